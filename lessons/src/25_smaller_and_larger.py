# %% [markdown]
# # 25 · Smaller and larger: distillation, scaling laws, what a fit predicts and where it fails
#
# **You will be able to** teach a small model with the probabilities of a large one, and write the gradient of that by
# hand; fit a scaling law to trainings, find the best size for a budget, and say how far such a prediction reaches.
#
# | | |
# |---|---|
# | you know | cross-entropy ([01](01_softmax.ipynb)), [training](09_training.ipynb), beams ([11](11_decoding.ipynb)) |
# | runs in | 60 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §5.2 and §6.2: two sizes, Table 2's training cost, Table 3 (C): "bigger models are better" |
# | in the package | [`after/experiments`](after/experiments): distillation and scaling; `ops.cross_entropy` |
#
# The paper trains its model in two sizes, and the larger one is better. That raises two questions which the paper
# leaves open.
#
# * **Smaller.** The large model is too slow for your users, and you train a small one. It can learn from the same text
#   as the large one. Or it can ask the large one. *Can a small model learn more from a large one than from the text?*
# * **Larger.** You get ten times the computer. *Should the model grow, or the text?* And how good will it be? A
#   training that takes a month is one that you want to know something about before it begins.

# %%
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from after.experiments import distillation, scaling
from after.experiments.scaling import ALL, BUDGETS, LENGTH, SIZES, WITHOUT
from after.experiments.scaling.fit import minimise, starts
from course import start
from course.lesson_25.pictures import (
    draw_bleu,
    draw_exponents,
    draw_reach,
    draw_smaller_and_larger,
    draw_students,
    draw_trainings,
)
from course.lesson_25.studies import (
    distillation_table,
    distillation_verdicts,
    findings,
    law_table,
    predicted,
    scaling_table,
    scaling_verdicts,
    what_is_known,
    wrapped,
)
from course.lesson_25.words import WordModel, Words
from minitransformer import TransformerConfig, ops
from minitransformer.costs import flops_per_token, num_parameters
from minitransformer.data.batching import collate
from minitransformer.decoding import Translator
from minitransformer.gradcheck import check_gradients, numerical_gradient
from minitransformer.grammar import pairs
from minitransformer.ops import adam_step

check = start("25")
threadpool_limits(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)


def softmax(x):
    return ops.softmax_forward(x)[0]


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


# %% [markdown]
# ## The picture: smaller and larger
#
# On the left is what a teacher can give. Our translator of lesson [10](10_translator.ipynb) has read *The hunter ran
# behind the pretty village* and has written *Der Jäger ist hinter*. The next word is *dem*, and it knows that. Now look
# at the words that it did *not* choose. They are not equally improbable. Other articles stand far above a token that
# has nothing to do here, such as the one in the middle of all tokens. The text says "dem", one word. The teacher's
# probabilities say what *dem* is like.
#
# On the right is a law. Each line is one budget, in floating-point operations. It buys a small model that reads much
# text, or a large one that reads little. At both ends the loss is high. In between is a best size, and it moves with
# the budget. (The constants are those of Hoffmann and others 2022.)


# %%
def law(theta, n, d):
    """The loss of a model of n parameters after d tokens, in nats; theta = (a, α, b, β, e), the logarithms first."""
    a, alpha, b, beta, e = theta
    return np.exp(e) + np.exp(a) / n**alpha + np.exp(b) / d**beta


HOFFMANN = np.array([np.log(406.4), 0.34, np.log(410.7), 0.28, np.log(1.69)])


def best_by_search(theta, operations):
    """The best N and D for a budget, looked up on a fine grid."""
    sizes = np.geomspace(1e3, 1e14, 100_001)
    n = sizes[law(theta, sizes, operations / 6 / sizes).argmin()]
    return n, operations / 6 / n


# %% tags=["picture"]
SENTENCE, BEGINNING = "The hunter ran behind the pretty village.", "Der Jäger ist hinter"
translator = Translator.from_checkpoint(Path("weights/en-de.safetensors"))
tokenizer = translator.tokenizer
batch = collate([tokenizer.encode(SENTENCE)], [tokenizer.encode(BEGINNING)])
teacher_logits = translator.model.forward(batch.source, batch.target_in)[0][0, -1].astype(float)  # (V,)
order = np.argsort(-teacher_logits)
shown = [*order[:7], order[len(order) // 2]]  # the best seven, and the one in the middle of all
names = [tokenizer.decode([int(token)]) for token in shown]
names[-1] = f"the median: {names[-1]}"
soft = {T: softmax(teacher_logits / T)[shown] for T in (1, 1.5, 2)}
draw_smaller_and_larger(
    names, soft, f"{BEGINNING} …", lambda n, d: law(HOFFMANN, n, d), lambda c: best_by_search(HOFFMANN, c),
    [1e18, 1e20, 1e22, 1e24],
)  # fmt: skip

# %% [markdown]
# ## Smaller: what a teacher knows
#
# ### Soft targets
#
# Lesson 01 trains a model towards one token: $q$ is 1 there and 0 elsewhere. Hinton, Vinyals and Dean (2015) take a
# teacher's probabilities for $q$. They are called [*soft targets*](glossary.md#soft-targets), and the training is
# called [*distillation*](glossary.md#distillation). A soft target tells more than a token: one number for each token of
# the vocabulary, for the same beginning.
#
# A good teacher is nearly certain, and then its soft target is nearly the token again. So the logits of both are
# divided by a *temperature* $T$ before the softmax. With $v$ the teacher's logits and $z$ the student's:
#
# $$ q_i = \frac{e^{v_i/T}}{\sum_j e^{v_j/T}}, \qquad p_i = \frac{e^{z_i/T}}{\sum_j e^{z_j/T}}, \qquad
# L_T = -\sum_i q_i \log p_i $$
#
# $T > 1$ makes probabilities more even, as in the picture. (At $T = 2$ the second word has less than at $T = 1.5$: by
# then most of the probability is with all the tokens that the picture leaves out.) The student is asked at the same
# temperature, and is used at temperature 1 when it is done. Often the right token $y$ counts too, with weight
# $1 - \lambda$. The loss of a row is
#
# $$ L = (1 - \lambda)\,\bigl(-\log p_y\bigr|_{T=1}\bigr) \;+\; \lambda\, T^2 L_T $$
#
# and that of a batch is the mean over its rows. In code $\lambda$ is `share`. First with loops:


# %%
def distillation_in_loops(logits, teacher_logits, targets, temperature, share):
    (N, V), total = logits.shape, 0.0
    for n in range(N):
        at_one, student, teacher = logits[n], logits[n] / temperature, teacher_logits[n] / temperature
        total += (1 - share) * (np.log(np.exp(at_one).sum()) - at_one[targets[n]])
        for i in range(V):
            q = np.exp(teacher[i]) / np.exp(teacher).sum()
            log_p = student[i] - np.log(np.exp(student).sum())
            total -= share * temperature**2 * q * log_p
    return total / N


def distillation_forward(logits, teacher_logits, targets, temperature, share):
    """logits (N, V), teacher_logits (N, V), targets (N,) ids → the loss, one number, and the cache."""
    hard = -log_softmax(logits)[np.arange(len(logits)), targets]  # (N,)
    q = softmax(teacher_logits / temperature)  # (N, V)
    soft = -(q * log_softmax(logits / temperature)).sum(axis=-1)  # (N,)
    loss = ((1 - share) * hard + share * temperature**2 * soft).mean()
    return loss, (logits, teacher_logits, targets, temperature, share)


z, v = rng.standard_normal((3, 5)), 3 * rng.standard_normal((3, 5))
right = np.array([0, 4, 2])
print(f"with loops {distillation_in_loops(z, v, right, 2.0, 0.7):.12f}")
print(f"without    {distillation_forward(z, v, right, 2.0, 0.7)[0]:.12f}")

# %% [markdown]
# ### The gradient, and why there is a T²
#
# Write $u = z/T$. Lesson 01 has the gradient of a cross-entropy by the scores that go into the softmax:
# $\partial L_T/\partial u_i = p_i - q_i$, for any $q$ that sums to 1. The chain rule adds $\partial u_i/\partial z_i =
# 1/T$:
#
# $$ \frac{\partial L_T}{\partial z_i} = \frac{p_i - q_i}{T} $$
#
# So a high temperature makes this gradient small: once by the $1/T$ that stands there. And a second time, because at a
# high temperature $p$ and $q$ are both nearly even, and so near to each other. How near? For large $T$ we have
# $e^{x/T} \approx 1 + x/T$. Take logits whose mean is 0 in each row; the softmax does not mind. Then the sum over all
# $V$ tokens is about $V$, and
#
# $$ \frac{p_i - q_i}{T} \approx \frac{1}{T}\left(\frac{1 + z_i/T}{V} - \frac{1 + v_i/T}{V}\right)
# = \frac{z_i - v_i}{V\,T^2} $$
#
# The gradient falls as $1/T^2$. A factor $T^2$ before the loss keeps its size, so that the weight $\lambda$ means the
# same at each temperature. That is all that the $T^2$ is for. The formula says something else too: at a high
# temperature the student is asked for the teacher's *logits*, each of them, in the sense of squares.
#
# ### Exercise 1 ★★☆: the gradient of distillation
#
# Nothing goes back to the teacher: it has learned already.


# %% tags=["exercise"]
def distillation_backward(dloss, logits, teacher_logits, targets, temperature, share):
    """The gradient of `distillation_forward`'s loss by the student's logits.

    dloss: a number. logits (N, V), the student's; teacher_logits (N, V); targets (N,): ids of the right tokens.
    The loss is the mean over the rows of (1 − share) · (that towards the right token, at temperature 1) + share · T² ·
    (that towards the teacher, both at the temperature T). Large logits must not overflow. → dlogits (N, V)
    """
    raise NotImplementedError


# %%
distillation_backward = check(distillation_backward)

# %% [markdown] tags=["help"]
# There are two losses with one softmax each: at which temperature? What is the gradient of each by the scores that go
# into its own softmax? How many factors of $T$ stand before the second one in the end?
#
# ---
#
# `hard = softmax(logits)`, minus 1 at each target. `soft = softmax(logits / T) - softmax(teacher_logits / T)`. The
# loss brings $T^2$, the chain rule $1/T$: the second has the factor `share * T`. Both are divided by $N$ and multiplied
# by `dloss`, and large logits must not overflow.

# %% [markdown]
# The proof: central differences. And at temperature 1 the two losses are one, with the target
# $(1-\lambda)\,\mathrm{onehot} + \lambda\, q$. The package's `cross_entropy` takes such probabilities for its targets:

# %%
for T, share in ((1.0, 0.5), (4.0, 1.0), (0.5, 0.2)):
    errors = check_gradients(
        lambda logits, T=T, share=share: distillation_forward(logits, v, right, T, share),
        lambda dloss, cache: distillation_backward(dloss, *cache),
        {"logits": z},
    )
    print(f"T = {T:g}, share {share:g}: error {errors['logits']:.0e}")
q = 0.4 * np.eye(5)[right] + 0.6 * softmax(v)
loss, cache = ops.cross_entropy_forward(z, q)
off = np.abs(ops.cross_entropy_backward(1.0, cache) - distillation_backward(1.0, z, v, right, 1.0, 0.6)).max()
loss_off = abs(loss - distillation_forward(z, v, right, 1.0, 0.6)[0])
print(f"against the package's op at T = 1: loss off by {loss_off:.0e}, gradient by {off:.0e}")

# %% [markdown]
# The size of the gradient against the temperature, with $T^2$ and without, and the cosine of its angle to the
# difference of the logits (each with its mean taken off):

# %%
centred = (z - z.mean(axis=1, keepdims=True)) - (v - v.mean(axis=1, keepdims=True))
print("   T    gradient with T²    without    cosine to z − v")
for T in (1, 2, 5, 20, 100):
    grad = distillation_backward(1.0, z, v, right, float(T), 1.0)
    cosine = (grad * centred).sum() / np.linalg.norm(grad) / np.linalg.norm(centred)
    print(f"{T:4} {np.linalg.norm(grad):19.4f} {np.linalg.norm(grad) / T**2:10.6f} {cosine:18.4f}")

# %% [markdown]
# ### A small student, in seconds
#
# A translator takes too long here. So the task is a smaller one: guess the next word of an English sentence of the
# grammar from the four words before it. The model ([`words.py`](course/lesson_25/words.py)) looks up four vectors and
# has one hidden layer (Bengio and others 2003). Words that are not among the most frequent are all `<unk>`.
#
# The teacher learns from 6,000 sentences. The students have a fraction of its parameters. Each sees some of these
# sentences, and takes as many steps as all others. What differs is the target: the words of the text, or the teacher's
# probabilities for the same beginnings.

# %%
STEPS = 600
english = [source for source, _ in pairs("train", seed=0, count=6000)]
words = Words(english, size=300)
held_out = words.rows([source for source, _ in pairs("test", seed=0, count=300)])


def train(model, contexts, targets, taught_by=None, temperature=1.0, share=1.0, steps=STEPS):
    """Train a model of words; returns its loss on held-out sentences every 50 steps."""
    rng, losses = np.random.default_rng(0), []
    m, v = np.zeros((2, len(model.data)), np.float32)
    if taught_by is None:
        temperature, share, their_logits = 1.0, 0.0, np.zeros((len(contexts), 1), np.float32)
    else:
        their_logits, _ = taught_by.forward(contexts)  # once: the teacher does not change
    for step in range(1, steps + 1):
        rows = rng.integers(len(contexts), size=256)
        logits, cache = model.forward(contexts[rows])
        theirs = np.broadcast_to(their_logits[rows], logits.shape)
        dlogits = distillation_backward(1.0, logits, theirs, targets[rows], temperature, share)
        model.backward(dlogits.astype(np.float32), cache)
        adam_step(model.data, model.grad, m, v, step=step, lr=0.01 * (1 - step / (steps + 1)))
        if step % 50 == 0:
            losses.append(model.loss(*held_out))
    return losses


def student():
    return WordModel(len(words), width=8, hidden=16, seed=1)


teacher = WordModel(len(words), width=24, hidden=128)
taught = train(teacher, *words.rows(english), steps=1500)
print(f"teacher: {len(teacher.data):,} parameters, loss {taught[-1]:.3f}; a student has {len(student().data):,}")

# %%
COUNTS = (100, 400, 1600, 6000)
WAYS = {
    "the words of the text": {},
    "the teacher, T = 1": {"taught_by": teacher},
    "the teacher, T = 2": {"taught_by": teacher, "temperature": 2.0},
}
texts = {count: words.rows(english[:count]) for count in COUNTS}
curves = {name: [train(student(), *texts[count], **way) for count in COUNTS] for name, way in WAYS.items()}
at_end = {name: [curve[-1] for curve in each] for name, each in curves.items()}
text, *from_teacher = at_end
best_moment = [min(curve) for curve in curves[text]]
draw_students(
    [len(texts[count][1]) for count in COUNTS],
    {f"{text}, at the end": at_end[text], f"{text}, at its best moment": best_moment}
    | {name: at_end[name] for name in from_teacher},
    taught[-1],
)
print(f"{'sentences':<28}" + "".join(f"{count:>8,}" for count in COUNTS))
for name in (text, *from_teacher):
    print(f"{name:<28}" + "".join(f"{loss:8.3f}" for loss in at_end[name]))
print(f"{'the words, best moment':<28}" + "".join(f"{loss:8.3f}" for loss in best_moment))

# %% [markdown]
# With a hundred sentences the words of the text are learned by heart, and the loss on other sentences explodes. (Its
# best moment, where one would have stopped, is shown too. That is generous: it was chosen on the test sentences.) The
# teacher's student reads the *same* hundred sentences, and ends far below even that moment. For each beginning it is
# told not one word that may follow, but all of them.
#
# So the first question has an answer, with a condition: **yes, where the student sees less text than the teacher did.**
# The more of the teacher's text the student has, the less is left to gain. A part of what is left is a faster training:
# after one beginning the text has another word each time, and a soft target is always the same. (Give both more steps,
# `steps=3000`: with all sentences most of the difference goes, and with 1,600 it grows.)
#
# And the temperature? Here $T = 2$ gains nothing over $T = 1$. This teacher is not certain: many words may follow, and
# at $T = 1$ it says so. Temperatures are for teachers that are nearly certain, as classifiers of images are.
#
# ### For translation: words, or whole sentences
#
# Kim and Rush (2016) bring distillation to translation, in two ways.
#
# * **Word level.** What you have just written, at each position of the target, after the right beginning
#   ([teacher forcing](glossary.md#teacher-forcing)).
# * **Sequence level.** A translation is a whole sentence $t$. So the loss should be $-\sum_t Q(t) \log P(t)$, with the
#   teacher's probabilities $Q$ of whole sentences. There are far too many to add up. So put all of $Q$ on one sentence,
#   the teacher's best, found by beam search. That means: *translate the training set with the teacher, and train the
#   student on these translations.* No new code at all.
#
# Why should a machine's translations teach better than a human's? One sentence has many right translations. A weak
# student that is asked for all of them mixes them. Here is the smallest example. Three translations are right; the
# student is so weak that it chooses each of its three words by itself:

# %%
TRANSLATIONS = {"heute kommt er": 0.4, "er kommt heute": 0.3, "er kommt jetzt": 0.3}


def weakest_student(targets):
    """For each of three places the probability of each word, as in the targets: no other choice has a lower loss."""
    places = [{}, {}, {}]
    for sentence, probability in targets.items():
        for place, word in zip(places, sentence.split(), strict=True):
            place[word] = place.get(word, 0) + probability
    return places


def probability_of(sentence, places):
    return np.prod([place.get(word, 0) for place, word in zip(places, sentence.split(), strict=True)])


best_sentence = max(TRANSLATIONS, key=TRANSLATIONS.get)
for name, targets in (("all translations", TRANSLATIONS), ("the teacher's best one", {best_sentence: 1.0})):
    places = weakest_student(targets)
    greedy = " ".join(max(place, key=place.get) for place in places)
    valid = sum(probability_of(sentence, places) for sentence in TRANSLATIONS)
    missed = [sentence for sentence in TRANSLATIONS if probability_of(sentence, places) == 0]
    print(f"taught {name}: writes '{greedy}' ({'right' if greedy in TRANSLATIONS else 'wrong'}); "
          f"{valid:.0%} of its probability is on right sentences;\n   right sentences that it thinks impossible: "
          f"{', '.join(missed) or 'none'}")  # fmt: skip

# %% [markdown]
# The second student is worse by its loss, infinitely so: it thinks that right sentences are impossible. And it
# translates better. It gave up what it could not do, and does well what is left. So expect three things of
# sequence-level distillation: better translations, above all without a beam; less gained by a beam; and a *higher*
# perplexity on human translations.
#
# ### What it is worth: a measurement
#
# `make after` measures this on Multi30k (29,000 captions of images, with translations), with a teacher of four layers
# and students of one: a translator alone, and three that learn by words (at $T = 1$, share ½), by sentences, and by
# both. What is expected was written down before. The cell reads what was recorded, where it was, and says what follows
# from the numbers. There is one training of each. The intervals in the table are those of
# [bootstrap](glossary.md#bootstrap) samples of the test sentences. Those of differences between two models are wider:
# they leave room for what another seed would change, as far as that is known.

# %%
recorded_students = findings("distillation")
if recorded_students is not None:
    draw_bleu(recorded_students)
    print("\n".join(distillation_table(recorded_students)))
    print(f"\n{wrapped(distillation_verdicts(recorded_students))}")
    print(f"\nPredicted before, and what came:\n{wrapped(predicted(distillation, recorded_students))}")

# %% [markdown]
# ## Larger: a law for the loss
#
# Now to the second question. Train models of several sizes $N$ (parameters) on several amounts of text $D$ (tokens),
# and look at their losses on held-out text. To a surprising degree they follow one formula (Hoffmann and others 2022):
#
# $$ L(N, D) = E + \frac{A}{N^\alpha} + \frac{B}{D^\beta} $$
#
# * $E$ is what no model can know: the text's own entropy. A sentence may go on in more than one way.
# * $A/N^\alpha$ is what is lost because the model is small, however much it reads.
# * $B/D^\beta$ is what is lost because it has read little, however large it is.
#
# Why powers? If what is lost falls by the same factor each time that $N$ doubles, it is a power of $N$, a straight line
# when both axes are logarithmic. That such lines are straight over many decades was found by measuring (Kaplan and
# others 2020). There are explanations, but nobody can derive the exponents for a text. So this is a *law* as Kepler's
# were: it describes.
#
# ### Where to put ten times the computer
#
# A training step costs about 6 operations for each parameter and each token: 2 in the forward, for a product and a sum,
# and twice as many in the backward, which has two matrix products for each of the forward. So a budget of $C$
# operations says
#
# $$ C = 6\,N D $$
#
# and asks for the $N$ with the least $L(N, \frac{C}{6N})$. Put $D = \frac{C}{6N}$ in, and set the derivative by $\log
# N$ to 0. If $N$ grows by a percent, $D$ shrinks by a percent. The first term falls by $\alpha$ percent of itself, and
# the second rises by $\beta$ percent of itself:
#
# $$ \alpha\,\frac{A}{N^\alpha} = \beta\,\frac{B}{D^\beta} $$
#
# (Lagrange's multipliers give the same: the gradients of $L$ and of $\log N + \log D$ by $(\log N, \log D)$ must be
# parallel, so the two components of the first must be equal.) At the best size the two losses are *not* equal. They
# stand as $\beta$ to $\alpha$.
#
# ### Exercise 2 ★☆☆: the best size for a budget
#
# Put $D = \frac{C}{6N}$ into the condition, and solve it for $N$. The law's constants come as they are fitted below:
# $\theta = (a, \alpha, b, \beta, e)$ with $a = \log A$, $b = \log B$ and $e = \log E$.


# %% tags=["exercise"]
def compute_optimal(theta, operations):
    """The N and D with the least loss E + A/N^α + B/D^β among those that cost 6 N D = operations.

    theta (5,): a = log A, α, b = log B, β, e = log E. operations: a number, or an array of budgets (K,).
    → N, D: numbers, or arrays (K,), not rounded
    """
    raise NotImplementedError


# %%
compute_optimal = check(compute_optimal)

# %% [markdown] tags=["help"]
# Take the logarithm of the condition $\alpha A/N^\alpha = \beta B/D^\beta$. It is linear in $\log N$ and $\log D$, and
# $\log D = \log(C/6) - \log N$.
#
# ---
#
# `log_n = (np.log(alpha) + a - np.log(beta) - b + beta * np.log(operations / 6)) / (alpha + beta)`. Then N is its
# exponential, and D is what the budget leaves: `operations / 6 / n`.

# %% [markdown]
# In one line, what you have written is
#
# $$ N = G\left(\frac{C}{6}\right)^{\frac{\beta}{\alpha+\beta}}, \quad
# D = \frac1G\left(\frac{C}{6}\right)^{\frac{\alpha}{\alpha+\beta}}, \quad
# G = \left(\frac{\alpha A}{\beta B}\right)^{\frac{1}{\alpha+\beta}} $$
#
# The exponents sum to 1, as they must. If the model's term falls faster, $\alpha > \beta$, then it is the text that has
# to grow more.
#
# The proof: a search along the budget. Then the question itself, for two sets of constants. The second is a fit of
# Besiroglu and others (2024), who read Hoffmann's trainings out of a figure of their paper and fitted them again.

# %%
BESIROGLU = np.array([np.log(482.01), 0.3478, np.log(2085.43), 0.3658, np.log(1.8172)])
PUBLISHED = {"Hoffmann": HOFFMANN, "Besiroglu": BESIROGLU}
for name, theta in PUBLISHED.items():
    found, searched = compute_optimal(theta, 1e21), best_by_search(theta, 1e21)
    print(f"{name}: N {found[0]:.4e} by the formula, {searched[0]:.4e} by the search")
print("\nten times the operations:")
for name, theta in PUBLISHED.items():
    (n, more_n), (d, more_d) = compute_optimal(theta, np.array([1e21, 1e22]))
    print(f"{name}: {more_n / n:.2f} times the parameters and {more_d / d:.2f} times the tokens; "
          f"loss {law(theta, n, d):.3f} → {law(theta, more_n, more_d):.3f}")  # fmt: skip

# %% [markdown]
# So the answer is **both**, in nearly equal parts. Ten times the computer is about three times the model and three
# times the text.
#
# What did people do? Here are the paper's two models and three language models, with the tokens that they read for each
# parameter. Beside that stands what the two fits would have done with the same operations. (The paper's models
# translate, and read their text many times over, so the law is not made for them. They are here to show how the ratio
# changed.)

# %%
base, big = num_parameters(TransformerConfig.base()), num_parameters(TransformerConfig.big())
STEP_TOKENS = 50_000  # of the paper's batches: 25,000 source and 25,000 target tokens
trained_models = {  # parameters, tokens
    "base, 2017": (base, 100_000 * STEP_TOKENS),
    "big, 2017": (big, 300_000 * STEP_TOKENS),
    "GPT-3, 2020": (175e9, 300e9),
    "Gopher, 2021": (280e9, 300e9),
    "Chinchilla, 2022": (70e9, 1.4e12),
}
print(f"{'':<18}{'N':>9}{'D':>9}{'6 N D':>9}   tokens a parameter: as trained" + "".join(f"{n:>11}" for n in PUBLISHED))
for name, (n, d) in trained_models.items():
    best = [compute_optimal(theta, 6 * n * d) for theta in PUBLISHED.values()]
    print(f"{name:<18}{n:9.1e}{d:9.1e}{6 * n * d:9.1e}{d / n:34.1f}" + "".join(f"{b / a:11.1f}" for a, b in best))

# %% [markdown]
# After Kaplan's law, which let the model grow much faster than the text, language models became large and read little:
# a token or two for each parameter. Hoffmann's law said that they were far too large. Chinchilla took Gopher's budget,
# made the model a quarter as large, and was better.
#
# Now look at the last two columns. They are fits of one formula to partly the same trainings, and for the largest
# budgets they differ by a factor of several. Chinchilla itself has far fewer tokens than the first fit asks for:
# Hoffmann and others estimated the best size in two more ways, without this formula, and Chinchilla is near those. The
# second fit agrees with them. And 0.34 and 0.28 are rounded. A small error of an exponent is multiplied by many
# decades. So before we believe such a number, let us make one.
#
# ### What 6 N D counts (optional)
#
# The package counts the operations of a training exactly, matrix product by matrix product. Here are the
# [GPTs](../minitransformer/models/gpt.py) (decoders without a memory) of our own trainings below. One ratio counts all
# parameters, the other leaves out the table of tokens:

# %%
print("width × layers    N, all   without    operations: ÷ 6 N, all   ÷ 6 N, without")
for size in SIZES:
    operations = flops_per_token(size.config, LENGTH).training
    n_all, n_without = size.parameters[ALL], size.parameters[WITHOUT]
    print(
        f"{size.name:<14}{n_all:>10,}{n_without:>10,}{operations / 6 / n_all:>26.2f}{operations / 6 / n_without:>17.2f}"
    )

# %% [markdown]
# With all parameters the rule is right to about a tenth. The rest is attention, whose scores have no parameters.
# Without the table it is far off for small models: the table is the output layer too, and that is a matrix product.
#
# ## Fitting the law
#
# We make trainings whose law we know, so that we can see what a fit finds. Sizes and budgets are those of our own
# trainings below. Each loss is a third of a percent off, by chance.

# %%
TRUTH = np.array([np.log(60.0), 0.45, np.log(900.0), 0.5, np.log(1.7)])
NOISE, DELTA = 0.003, 1e-3
n = np.array([size.parameters[ALL] for _, sizes in BUDGETS for size in sizes], float)
budget = np.array([operations for operations, sizes in BUDGETS for _ in sizes])
d = budget / 6 / n
losses = law(TRUTH, n, d) * np.exp(NOISE * rng.standard_normal(len(n)))
log_n, log_d, log_loss = np.log(n), np.log(d), np.log(losses)
print(f"{len(n)} trainings, N {n.min():,.0f} to {n.max():,.0f}, D {d.min():,.0f} to {d.max():,.0f}, "
      f"losses {losses.min():.2f} to {losses.max():.2f}")  # fmt: skip

# %% [markdown]
# How do you fit five constants? Hoffmann and others make three choices, and each has a reason.
#
# * **The logarithm of the loss.** An error of one percent should count the same at a loss of 4 and of 2. With
#   $a = \log A$, $b = \log B$, $e = \log E$ the prediction is a *log-sum-exp*. It cannot overflow if the
#   largest of the three is subtracted first (lesson 01), and $A$, $B$ and $E$ stay positive by themselves:
#   $$ \log L = \log\bigl(e^{a - \alpha \log N} + e^{b - \beta \log D} + e^{e}\bigr) $$
# * **[Huber's loss](glossary.md#huber-loss)** of the residuals $r$ (the predicted minus the measured $\log L$): $r^2/2$
#   up to $|r| = \delta$, and beyond that the line $\delta\,(|r| - \delta/2)$. Beyond $\delta$ a training pulls no
#   harder, however wrong it went. $\delta = 10^{-3}$.
# * **Many starts**, because the descent can end in a bad place. We shall see how often.


# %%
def predictions(theta, log_n, log_d):
    """The predictions of log L (n,), and the three terms of each (3, n)."""
    a, alpha, b, beta, e = theta
    terms = np.stack([a - alpha * log_n, b - beta * log_d, e + 0 * log_n])
    highest = terms.max(axis=0)
    return highest + np.log(np.exp(terms - highest).sum(axis=0)), terms


def objective_in_loops(theta, log_n, log_d, log_loss, delta):
    a, alpha, b, beta, e = theta
    total = 0.0
    for x, y, z in zip(log_n, log_d, log_loss, strict=True):
        r = np.log(np.exp(a - alpha * x) + np.exp(b - beta * y) + np.exp(e)) - z
        total += r**2 / 2 if abs(r) <= delta else delta * (abs(r) - delta / 2)
    return total


def objective_forward(theta, log_n, log_d, log_loss, delta):
    """The sum of the Huber losses, and the cache."""
    size = np.abs(predictions(theta, log_n, log_d)[0] - log_loss)  # (n,)
    loss = np.where(size <= delta, size**2 / 2, delta * (size - delta / 2)).sum()
    return loss, (theta, log_n, log_d, log_loss, delta)


print(f"with loops {objective_in_loops(TRUTH, log_n, log_d, log_loss, DELTA):.12e}")
print(f"without    {objective_forward(TRUTH, log_n, log_d, log_loss, DELTA)[0]:.12e}")

# %% [markdown]
# The gradient goes back through three steps.
#
# 1. Huber's loss: its slope is $r$ up to $\delta$, then $\pm\delta$. That is `np.clip(r, -delta, delta)`.
# 2. The log-sum-exp of three terms $t_k$: its slope by $t_k$ is $s_k = e^{t_k} / \sum_j e^{t_j}$, a softmax. So $s_1$
#    is the share of $A/N^\alpha$ in the loss that the law says, $s_2$ that of $B/D^\beta$ and $s_3$ that of $E$.
# 3. The terms: $t_1 = a - \alpha \log N$ has the slope 1 by $a$ and $-\log N$ by $\alpha$, and so on.
#
# ### Exercise 3 ★★☆: the gradient of the fit


# %% tags=["exercise"]
def objective_backward(dloss, theta, log_n, log_d, log_loss, delta):
    """The gradient of `objective_forward`'s loss by theta.

    dloss: a number. theta (5,): a, α, b, β, e. log_n, log_d, log_loss (n,): of each training the logarithms of its
    parameters, its tokens and its loss. The loss is the sum over the trainings of Huber's loss of
    log(exp(a − α log N) + exp(b − β log D) + exp(e)) − log L. Large terms must not overflow. → dtheta (5,), in
    theta's order
    """
    raise NotImplementedError


# %%
objective_backward = check(objective_backward)

# %% [markdown] tags=["help"]
# Go from the end to the beginning. How hard does each training pull at its own prediction of $\log L$? How is that pull
# shared among the three terms? How does each term depend on its constants?
#
# ---
#
# With `predictions` as in the forward: `shares` is the softmax of the three terms, (3, n), and `pulls = dloss *
# np.clip(residuals, -delta, delta)`. The slope of the prediction by $a$ is `shares[0]`, by $\alpha$ `-shares[0] *
# log_n`, by $b$ `shares[1]`, by $\beta$ `-shares[1] * log_d`, by $e$ `shares[2]`. Each of the five is multiplied by the
# pulls and summed over the trainings.

# %%
for name, theta in (("at the truth", TRUTH), ("elsewhere", TRUTH + 0.05)):
    ours = objective_backward(1.0, theta, log_n, log_d, log_loss, DELTA)
    slopes = numerical_gradient(lambda t: objective_forward(t, log_n, log_d, log_loss, DELTA)[0], theta, eps=1e-7)
    print(f"{name:<12} error {np.abs(ours - slopes).max() / np.abs(slopes).max():.0e} of the gradient")

# %% [markdown]
# ### Down a valley
#
# A gradient is there to walk downhill. Take plain gradient descent (lesson 01), from a start that is not far away. How
# long a step may be depends on how curved the ground is in each direction. Here is the walk, and the curvature at the
# truth, from its flattest direction to its steepest:

# %%
walk = TRUTH + np.array([1.0, 0.05, -1.0, -0.05, 0.1])
begin, _ = objective_forward(walk, log_n, log_d, log_loss, DELTA)
for _ in range(5000):
    walk = walk - 0.05 * objective_backward(1.0, walk, log_n, log_d, log_loss, DELTA)
end, _ = objective_forward(walk, log_n, log_d, log_loss, DELTA)
at_truth, _ = objective_forward(TRUTH, log_n, log_d, log_loss, DELTA)
print(f"gradient descent, 5,000 steps: {begin:.2e} → {end:.2e}; the truth itself has {at_truth:.2e}")


def slopes_of(theta):
    """The slopes of all predictions of log L by the five constants, (n, 5)."""
    _, terms = predictions(theta, log_n, log_d)
    near, far, floor = softmax(terms.T).T
    return np.stack([near, -near * log_n, far, -far * log_d, floor], axis=1)


curvatures = np.linalg.eigvalsh(slopes_of(TRUTH).T @ slopes_of(TRUTH))
ratio = curvatures[-1] / curvatures[0]
print(f"curvatures: {', '.join(f'{c:.1e}' for c in curvatures)}; steepest ÷ flattest {ratio:,.0f}")
print(f"the noise leaves ±: {', '.join(f'{w:.1e}' for w in NOISE / np.sqrt(curvatures))}")

# %% [markdown]
# The valley is very long and very narrow. Across it the loss rises at once: $a$ and $\alpha$ must fit together, so that
# $A/N^\alpha$ is right at the sizes that were trained. Along it hardly anything changes: a larger $A$ with a larger
# $\alpha$ does nearly as well. Steps that are short enough for the walls get nowhere on the floor.
#
# A part of the ratio is a matter of coordinates: with their means subtracted from $\log N$ and $\log D$ it is far
# smaller. The other part is in the data. The last line is the noise of the losses, divided by the root of each
# curvature: the constants can move so far in each direction before the losses tell. In the flattest direction, nearly
# that of $a$, *the data themselves say little.* That is the reason for all that follows.
#
# So one takes steps that know the curvature. Hoffmann and others use L-BFGS, which estimates the curvature from earlier
# gradients. Our study uses the method of Levenberg and Marquardt, for all starts at once:
# [`minimise`](after/experiments/scaling/fit.py). The next section, which is optional, writes one step of it.
#
# ## A step that knows the curvature (optional)
#
# Near $\theta$ the residuals are nearly linear: $r(\theta + s) \approx r + J s$, where $J$, $(n, 5)$, holds the slopes
# of the predictions. If the loss were $\frac12\lVert r + Js\rVert^2$, its minimum would be one system of linear
# equations away: $J^\top J\,s = -J^\top r$. Two things are missing.
#
# * **Huber's loss** is treated as squares with weights: $w_i = 1$ up to $\delta$ and $\delta/|r_i|$ beyond, so that
#   $w_i r_i$ is Huber's slope. With $W$ the diagonal matrix of the weights: $J^\top W J\,s = -J^\top W r$.
# * **Damping.** The residuals are linear only nearby, and in a flat direction the step would be huge. So the diagonal
#   of $J^\top W J$ is multiplied by $1 + \mu$. A large $\mu$ gives short steps downhill, a small one the full step.
#
# ### Exercise 4 ★★☆: one damped step


# %% tags=["exercise"]
def damped_step(residuals, slopes, damping, delta):
    """A step of Levenberg and Marquardt, with Huber's weights: what is added to theta.

    residuals (n,): predicted minus measured. slopes (n, k): of the predictions, by each constant.
    It solves (M + damping · diagonal of M) step = −gradient, where M = slopesᵀ W slopes, gradient = slopesᵀ W
    residuals, and W has on its diagonal 1 where |residual| ≤ delta, else delta / |residual|. → (k,)
    """
    raise NotImplementedError


# %%
damped_step = check(damped_step)

# %% [markdown] tags=["help"]
# There is a weight for each training, a row of `slopes`. You need no matrix $W$: what does it do to the rows? A
# residual may be exactly 0.
#
# ---
#
# `weights[:, None] * slopes` is $WJ$. `np.diag(np.diag(M))` is the diagonal of $M$ as a matrix.
# `np.linalg.solve(matrix, -gradient)`. For the weights, `delta / np.maximum(size, delta)` is 1 where the size is below
# delta, and never divides by 0.


# %%
def descend(theta, steps=200):
    """From a start to the end of a descent: damping falls while steps help, and rises where one does not."""
    damping, loss = 1e-2, objective_forward(theta, log_n, log_d, log_loss, DELTA)[0]
    for _ in range(steps):
        residuals = predictions(theta, log_n, log_d)[0] - log_loss
        tried = theta + damped_step(residuals, slopes_of(theta), damping, DELTA)
        new, _ = objective_forward(tried, log_n, log_d, log_loss, DELTA)
        if new < loss:
            theta, loss, damping = tried, new, damping / 3
        else:
            damping *= 4
        if damping > 1e8:
            break
    return theta, loss


theta, loss = descend(TRUTH + np.array([1.0, 0.05, -1.0, -0.05, 0.1]))
print(f"from the same start, 200 steps at most: {loss:.3e}; the gradient there has a size of "
      f"{np.abs(objective_backward(1.0, theta, log_n, log_d, log_loss, DELTA)).max():.0e}")  # fmt: skip

# %% [markdown]
# ## What an interval says
#
# Now the whole fit: descents from many starts, and the best of their ends. And how sure is it? The
# [*bootstrap*](glossary.md#bootstrap) asks how the result would differ if other trainings had been run. Draw as many
# trainings as there are, with replacement, so that some come twice and some not at all; fit again; repeat. The middle
# 95 % of what comes is the interval. (The study begins at all of Hoffmann's starts, and here it is one in fifty.)


# %%
def fitted(n, d, losses, samples=100):
    """The law that fits best, (5,), and those of bootstrap samples of the trainings, (samples, 5)."""

    def descents(begins, counts):
        counts = np.broadcast_to(counts, (len(begins), len(n)))
        return minimise(begins, np.log(n), np.log(d), np.log(losses), counts)

    grid = starts()[::50]
    ends, objectives = descents(grid, np.ones((1, len(n))))
    best = ends[objectives.argmin()]
    drawn = np.random.default_rng(0).multinomial(len(n), np.full(len(n), 1 / len(n)), size=samples).astype(float)
    begins = np.concatenate([best[None], grid[::30]])  # (k, 5): each sample from these
    again, values = descents(np.tile(begins, (samples, 1)), np.repeat(drawn, len(begins), axis=0))
    again, values = again.reshape(samples, -1, 5), values.reshape(samples, -1)
    return best, again[np.arange(samples), values.argmin(axis=1)]


def exponent(theta):
    """The power of C with which the best N grows."""
    return theta[..., 3] / (theta[..., 1] + theta[..., 3])


def middle(samples):
    """The middle 95 %."""
    return np.percentile(samples, [2.5, 97.5])


ends, objectives = minimise(starts()[::50], log_n, log_d, log_loss, np.ones((len(starts()[::50]), len(n))))
poor = (objectives > 1.01 * objectives.min()).mean()
print(f"of {len(ends)} starts (Hoffmann: {len(starts()):,}) {poor:.0%} end in a place that is worse than the best one")

best, samples = fitted(n, d, losses)
print("\n             truth      fit   95 % of bootstrap samples")
for name, value in {
    "A": lambda t: np.exp(t[..., 0]), "α": lambda t: t[..., 1], "B": lambda t: np.exp(t[..., 2]),
    "β": lambda t: t[..., 3], "E": lambda t: np.exp(t[..., 4]), "best N ∝ C^": exponent,
}.items():  # fmt: skip
    low, high = middle(value(samples))
    print(f"{name:<11}{value(TRUTH):>7.3g}{value(best):>9.3g}   {low:.3g} to {high:.3g}")
print(f"the largest miss of the fit: {100 * np.abs(law(best, n, d) / losses - 1).max():.1f} %")

# %% [markdown]
# The law describes all trainings to within a percent. And yet so few trainings leave much room for $A$: that is the
# floor of the valley, and $A$ and $\alpha$ are wrong *together*. ($B$ and $\beta$ are known better: from the shortest
# training to the longest it is farther than from the smallest model to the largest.) So do not quote a constant alone.
# The exponent of the best size is known better than $\alpha$. What the law says best are losses between its trainings
# and near them.
#
# How does this interval grow as we leave the trainings? Take the best model of a budget that is 10, 100, 1,000 times
# the largest one:

# %%
factors = np.geomspace(0.1, 1e4, 41)
reached = budget.max() * factors
truth = law(TRUTH, *compute_optimal(TRUTH, reached))
said = law(best, *compute_optimal(best, reached))
many = np.array([law(theta, *compute_optimal(theta, reached)) for theta in samples])  # (samples, factors)
bands = np.percentile(many, [2.5, 97.5], axis=0)
draw_reach(factors, 100 * (said / truth - 1), 100 * (bands / truth - 1))
for factor in (1, 10, 100, 1000):
    at = int(np.abs(factors - factor).argmin())
    print(f"×{factor:<5} the interval of the loss is {100 * (bands[1] - bands[0])[at] / said[at]:.1f} % wide")

# %% [markdown]
# With each factor of ten the interval becomes wider, since beyond the dotted line no training corrects the law. (Where
# the dashed line, the truth, is outside the band, the interval is too narrow. With few trainings bootstrap intervals
# often are.)
#
# An interval that is too good is a warning. Hoffmann and others print intervals for the exponents of the best $N$ and
# $D$ that are 0.001 wide. Besiroglu and others estimate that this would take more than 600,000 trainings; there were
# fewer than 500. The cause, which one of the authors confirmed, is the valley again: the minimiser stopped too early,
# in the fit and in its bootstrap samples, because Huber's losses were averaged and not summed, and its tolerance was
# meant for larger numbers.
#
# ## With embeddings, and without (optional)
#
# Kaplan and others found that the best size grows as $C^{0.73}$, Hoffmann and others that it grows as $C^{0.5}$. Those
# are different worlds: with ten times the computer, is the model more than five times as large, or about three times?
# Pearce and Song (2024) found most of the reason in what is counted: Kaplan's $N$ leaves out the embeddings, and his
# models were small.
#
# Let Besiroglu's law be true, with all parameters. Now count without embeddings, as Kaplan did: $n$ parameters in the
# layers. A model of width $w$ with $w/40$ layers has $n = 12\,w^2 \cdot w/40$ of them, so with 32,000 tokens its table
# has $32{,}000\,w = 32{,}000\,(40\,n/12)^{1/3} = \omega\,n^{1/3}$ numbers. For each $n$ there is one budget, $6\,n D$
# by this count, for which it is the best size. (Set the derivative to 0 again, with $N = n + \omega\,n^{1/3}$.) How
# fast does the best $n$ grow with the budget?

# %%
small = np.geomspace(1e3, 1e12, 400)
omega = 32_000 * (40 / 12) ** (1 / 3)
log_a, alpha, log_b, beta, _ = BESIROGLU
total = small + omega * small ** (1 / 3)
slope = small + omega * small ** (1 / 3) / 3  # n · dN/dn
near_term = alpha * np.exp(log_a) / total**alpha * slope / total  # how the first term falls as log n grows
their_d = (beta * np.exp(log_b) / near_term) ** (1 / beta)
by_their_count = np.gradient(np.log(small), np.log(6 * small * their_d))
by_all = np.full_like(small, exponent(BESIROGLU))
draw_exponents(
    small, {"all parameters, as Hoffmann counts": by_all, "without embeddings, as Kaplan counts": by_their_count},
    {"Kaplan: 0.73": 0.73, "Hoffmann: 0.50": 0.5},
)  # fmt: skip
in_range = small < 1.5e9
print(f"from 1,000 to 1.5 billion parameters, fitted with one power: "
      f"{np.polyfit(np.log(6 * small * their_d)[in_range], np.log(small[in_range]), 1)[0]:.2f}")  # fmt: skip

# %% [markdown]
# One truth, two ways to count, and two laws. Where the table is most of the model, ten times $n$ is little more than
# twice $N$, since the table grows as $n^{1/3}$. So the first term falls slowly as $n$ grows, and what falls slowly has
# to grow more. (Exercise 2: with $\alpha/3$ for $\alpha$ the exponent is larger.) In between, where the layers overtake
# the table, each further factor of $n$ is worth more than the last, and the exponent is larger still. For very large
# models the two counts agree. Kaplan's models were where the lines are apart.
#
# Porian and others (2024) got Kaplan's exponent in trainings of their own, and found three causes: the operations of
# the output layer were not counted, the warm-up was too long for small models, and the optimiser was not tuned for each
# size. With these put right they got Hoffmann's exponent.
#
# ## Our own trainings, and the one that was kept aside
#
# The same with real models: GPTs read the grammar's sentences, in several sizes and with several budgets, which span
# two decades. (A GPT is the decoder of lesson 08 without a memory: it reads a text and says what comes next.) One more,
# larger than all others, is kept aside: no fit sees it, and the law has to say its loss before. What we expected was
# written down, too. Each training ran once, and its learning rate follows from the width by a rule and was not tuned.

# %%
trainings = findings("scaling")
if trainings is not None:
    print("\n".join(scaling_table(trainings)))
    if trainings["laws"]:
        own_law = trainings["laws"][ALL]["law"]
        draw_trainings(trainings, lambda n, d: law(own_law, n, d))
        print("\n".join(law_table(trainings)))
        print(f"\n{wrapped([what_is_known(trainings)])}")
    print(wrapped(scaling_verdicts(trainings)))
    print(f"\nPredicted before, and what came:\n{wrapped(predicted(scaling, trainings))}")

# %% [markdown]
# Read the intervals before the numbers. A constant whose interval is wide is not known, however well the law fits: that
# is the valley again. And look at the greatest miss, not at the median alone: a law that is off by several percent
# somewhere does not describe all of its trainings.
#
# The size kept aside is a weak test. It is one training, a little beyond the others, where the loss hardly depends on
# the size any more. So compare the law's miss with those of guesses without any law: a law that is right where a guess
# is nearly right too has not shown much. Ask more of it: fit the smaller budgets alone, and say the losses of the
# largest one.

# %%
if trainings is not None and trainings["laws"]:
    for found in trainings["ahead"]:
        factor = trainings["operations"][-1] / trainings["operations"][found["known"] - 1]
        off = ", ".join(f"{miss:+.1f} ({low:+.0f} to {high:+.0f})" for miss, low, high in found["misses"])
        print(f"from the {found['trainings']} trainings with at most 1/{factor:.1f} of the largest budget, "
              f"off by\n    {off} %")  # fmt: skip
else:
    print("Without recorded trainings, the made-up ones below have to answer.")

# %% [markdown]
# ## Where it fails
#
# The loss of a training falls in more than one way: fast, while the model learns which words are frequent, and slowly,
# when it learns what follows from what. A law with one power for all of $D$ does not know that. So very short trainings
# can pull it away from the long ones. Our recipe may do so too: in the shortest trainings the optimiser takes few
# steps, and a tenth of them are its warm-up. The lines above show whether something of this kind happened here: then
# the predicted losses are off in one direction. They do not show which of the two it was.
#
# With made-up trainings we know the truth, so we can see which intervals to trust.
#
# * **Few trainings.** Every second one.
# * **Cheap trainings.** The two lowest budgets only.
# * **Nothing tuned.** The learning rate suits the small models, and the larger a model is, the more it loses by that:
#   the largest has a loss that is 4 % too high.

# %%
untuned = losses * (1 + 0.04 * np.log(n / n.min()) / np.log(n.max() / n.min()))
cheap = budget < 1.01 * np.unique(budget)[1]
cases = {
    "all of them": (n, d, losses),
    "few": (n[::2], d[::2], losses[::2]),
    "cheap ones": (n[cheap], d[cheap], losses[cheap]),
    "not tuned": (n, d, untuned),
}
goal = compute_optimal(TRUTH, 100 * budget.max())
for name, case in cases.items():
    theta, others = fitted(*case)
    text = []
    for value in (exponent, lambda t: law(np.moveaxis(t, -1, 0), *goal)):
        low, high = middle(value(others))
        text.append(
            f"{value(theta):.3f} ({low:.3f} to {high:.3f}), {'inside' if low <= value(TRUTH) <= high else 'OUTSIDE'}"
        )
    print(f"{name:<12} best N ∝ C^{text[0]:<33} loss at 100 times the budget {text[1]}")
print(f"the truth    best N ∝ C^{exponent(TRUTH):.3f}{'':<28} loss at 100 times the budget {law(TRUTH, *goal):.3f}")

# %% [markdown]
# Few trainings and cheap ones cost precision, and the intervals say so: they are wide. The last case is another matter.
# The trainings that are not tuned still lie nearly on *a* law, and its intervals are hardly wider than those of the
# first line. They are intervals around the wrong numbers. A bootstrap asks what chance could have changed. It does not
# know what was wrong with *all* trainings, and no interval does. The same holds for a warm-up that is too long for the
# short trainings, for text that is read twice, and for one seed of each.
#
# And the form of the law is an assumption of its own. Leave out the floor $E$, and the best of the made-up losses of
# each budget lie nearly on a straight line as well:

# %%
levels = np.unique(budget)
lowest = np.array([losses[budget == level].min() for level in levels])
line = np.polyfit(np.log(levels), np.log(lowest), 1)
misses = np.exp(np.polyval(line, np.log(levels))) / lowest - 1
worst = 100 * np.abs(misses).max()
print(f"L ∝ C^{line[0]:.3f}, off by {worst:.1f} % at most; no model is below E = {np.exp(TRUTH[4]):.3f}")
for factor in (100, 10_000):
    far = factor * levels[-1]
    says, true = np.exp(np.polyval(line, np.log(far))), law(TRUTH, *compute_optimal(TRUTH, far))
    print(f"×{factor:<7,} it says {says:.3f}; the truth is {true:.3f}")

# %% [markdown]
# Over two decades such a line looks straight enough. Far enough out it promises a model that knows what cannot be
# known. *How well a law fits says little about how far it reaches.* What says something is a training that was kept
# aside, far out.
#
# ## Common mistakes, and what they look like
#
# * **The temperature is changed and $T^2$ is missing.** The teacher's part becomes weaker as $1/T^2$, and "higher
#   temperatures do not help".
# * **The teacher has its dropout on.** Its targets are then noise around what it knows. Compute them as in decoding.
# * **Padding is taught.** The teacher has probabilities after the end of a sentence too. They are no targets, and the
#   rows do not count in the mean. (The study's [student](after/experiments/distillation/taught.py) has zeros for such
#   targets, and divides by the others.)
# * **A teacher that was trained with label smoothing.** It was told that all wrong tokens are equally wrong, and passes
#   that on (Müller and others 2019). Ours was, with 0.1, and the even floor under the words in the first picture is
#   that.
# * **Students are compared by perplexity** at sequence level. See the three translations above: the loss rises where
#   the student becomes better.
# * **The test rows are resampled, not the trainings.** That interval says how well *one loss* is known. What another
#   seed, another order of the text or a learning rate does to a training is not in it. Only other trainings show that.
# * **$L$ is fitted instead of $\log L$, with squares.** The cheapest trainings, with the highest losses, then decide.
#   They are the least interesting.
# * **The best size is read off the lowest point that was measured.** The valleys of the first picture are flat: twice
#   the best size costs little. So a little noise moves the lowest point far:

# %%
at_best, best_tokens = compute_optimal(BESIROGLU, 1e21)
for factor in (0.5, 2, 4):
    rise = law(BESIROGLU, factor * at_best, best_tokens / factor) / law(BESIROGLU, at_best, best_tokens) - 1
    print(f"{factor:g} times the best size, at the same budget: the loss is {100 * rise:.2f} % higher")

# %% [markdown]
# ## What changed since 2017
#
# Distillation became a usual step. DistilBERT (Sanh and others 2019) is a BERT of half the layers, and translators in
# browsers are students of larger ones. For models that write freely, the student's *own* sentences are now often what
# the teacher judges (Agarwal and others 2024), so that a student learns where *it* goes wrong: teacher forcing never
# shows that.
#
# The law changed what is trained. After Hoffmann came models with twenty tokens for each parameter, and soon with
# hundreds and more (Touvron and others 2023). That is no contradiction. The best size for a *training* is too large for
# a model that answers millions of people afterwards: a smaller model that reads longer costs more to train, and less to
# use. So the two questions of this lesson meet.
#
# Sources: Hinton, Vinyals and Dean 2015, *Distilling the knowledge in a neural network*; Kim and Rush 2016,
# *Sequence-level knowledge distillation*; Kaplan and others 2020, *Scaling laws for neural language models*; Hoffmann
# and others 2022, *Training compute-optimal large language models* (eq. 3 and appendix D); Besiroglu and others 2024,
# *Chinchilla scaling: a replication attempt*; Pearce and Song 2024, arXiv 2406.12907; Porian and others 2024, arXiv
# 2406.19146.
#
# Open projects:
#
# * **The cost of use.** A model will read $U$ tokens after its training, 2 operations for each parameter and token.
#   Minimise $6ND + 2NU$ for a loss that is asked for. How do $N$ and $D$ move as $U$ grows? (Put $D$ from the law into
#   the cost, and search along $N$.)
# * **A better teacher, or a nearer one?** Train teachers of several sizes on the words above, and one student from
#   each. Is the best teacher the one with the lowest loss?
# * **Which training next?** The bootstrap laws disagree most somewhere in the plane of $N$ and $D$. Find where, for the
#   price of one training, and see whether that one narrows the interval of the exponent more than a random one.
#
# ## Where next
#
# [Lesson 26](26_many_processes.ipynb): a budget is operations, and one machine has only so many in a month. What many
# machines have to say to each other.
