# %% [markdown]
# # 25 · Smaller and larger: distillation, scaling laws, what a fit predicts and where it fails
#
# **You will be able to** teach a small model with the probabilities of a large one, and write the gradient of that by
# hand; find the best size for a budget from a scaling law; and, if you like, fit the law yourself, and say how far its
# predictions reach.
#
# | | |
# |---|---|
# | you know | cross-entropy ([01](01_softmax.ipynb)), [training](09_training.ipynb), beams ([11](11_decoding.ipynb)) |
# | runs in | 60 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §5.2 and §6.2: two sizes, Table 2's training cost, Table 3 (C): "bigger models are better" |
# | in the package | [`after/experiments`](after/experiments): distillation and scaling; `ops.cross_entropy` |
#
# The paper trains its model in two sizes, and the larger one is better. It leaves two questions open.
#
# * **Smaller.** The large model is too slow for your users, so you train a small one. *Can a small model learn more
#   from a large one than from the text?*
# * **Larger.** You get ten times the compute. *Should the model grow, or the text?* And how good will it be?

# %%
from pathlib import Path

import numpy as np

from after.experiments import distillation, scaling
from course import start
from course.lesson_25 import fits, pictures, studies, teacher, words
from course.lesson_25.words import WordModel, Words, log_softmax, softmax
from course.measuring import blas_threads
from minitransformer import TransformerConfig
from minitransformer.costs import flops_per_token, num_parameters
from minitransformer.gradcheck import check_gradients, numerical_gradient
from minitransformer.grammar import pairs

check = start("25")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## The picture: smaller and larger
#
# On the left, a teacher. Our translator of lesson [10](10_translator.ipynb) has read *The hunter ran behind the pretty
# village* and has written *Der Jäger ist hinter*. The next word is *dem*, and the model knows that. But other articles,
# too, stand far above a token that makes no sense here. The text names one word, "dem". The teacher says how likely
# each word is.
#
# On the right, a law (with the constants of Hoffmann and others 2022). Each line is one budget, in floating-point
# operations. It buys a small model that reads much text, or a large one that reads little. At both ends the loss is
# high. The best size in between moves with the budget.


# %%
def law(theta, n, d):
    """The loss of a model of n parameters after d tokens, in nats; theta = (a, α, b, β, e), the logarithms first."""
    a, alpha, b, beta, e = theta
    return np.exp(e) + np.exp(a) / n**alpha + np.exp(b) / d**beta


HOFFMANN = np.array([np.log(406.4), 0.34, np.log(410.7), 0.28, np.log(1.69)])


# %% tags=["picture"]
SENTENCE, BEGINNING = "The hunter ran behind the pretty village.", "Der Jäger ist hinter"
teacher_logits, shown, names = teacher.next_word(Path("weights/en-de.safetensors"), SENTENCE, BEGINNING)
soft = {T: softmax(teacher_logits / T)[shown] for T in (1, 1.5, 2)}
pictures.draw_smaller_and_larger(
    names, soft, f"{BEGINNING} …", lambda n, d: law(HOFFMANN, n, d),
    lambda budget: fits.best_by_search(law, HOFFMANN, budget), [1e18, 1e20, 1e22, 1e24],
)  # fmt: skip

# %% [markdown]
# ## Smaller: what a teacher knows
#
# ### Soft targets
#
# Lesson 01 trains a model towards one token: $q$ is 1 there and 0 elsewhere. Hinton, Vinyals and Dean (2015) take a
# teacher's probabilities for $q$. These are [*soft targets*](glossary.md#soft-targets), and the method is
# [*distillation*](glossary.md#distillation).
#
# A good teacher is nearly certain: its soft target is nearly that one token again. So the logits of both are divided by
# a *temperature* $T$ before the softmax. With $v$ the teacher's logits and $z$ the student's:
#
# $$ \begin{aligned}
#    &q_i = \frac{e^{v_i/T}}{\sum_j e^{v_j/T}}, \\
#    &p_i = \frac{e^{z_i/T}}{\sum_j e^{z_j/T}}, \\
#    &L_T = -\sum_i q_i \log p_i
# \end{aligned} $$
#
# $T > 1$ makes probabilities more even, as in the picture. After training, the student is used at temperature 1. Often
# the right token $y$ counts too, with weight $1 - \lambda$. The loss of a row is
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
# ### The gradient
#
# Write $u = z/T$. Lesson 01 has the gradient of a cross-entropy with respect to the scores that go into the softmax:
# $\partial L_T/\partial u_i = p_i - q_i$, for any $q$ that sums to 1. The chain rule adds $1/T$:
#
# $$ \frac{\partial L_T}{\partial z_i} = \frac{p_i - q_i}{T} $$
#
# A high temperature makes this small twice: by the $1/T$, and because $p$ and $q$ are then both nearly even. The factor
# $T^2$ before the loss restores its size, so $\lambda$ means the same at each temperature.
#
# ### Exercise 1 ★★☆: the gradient of distillation
#
# No gradient goes back to the teacher: it has learned already.


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
# There are two losses with one softmax each: at which temperature? What is the gradient of each with respect to the
# scores in its own softmax? How many factors of $T$ stand before the second one in the end?
#
# ---
#
# `hard = softmax(logits)`, minus 1 at each target. `soft = softmax(logits / T) - softmax(teacher_logits / T)`. The
# loss brings $T^2$, the chain rule $1/T$: the second has the factor `share * T`. Both are divided by $N$ and multiplied
# by `dloss`, and large logits must not overflow.

# %% [markdown]
# The proof, by central differences:

# %%
for T, share in ((1.0, 0.5), (4.0, 1.0), (0.5, 0.2)):
    errors = check_gradients(
        lambda logits, T=T, share=share: distillation_forward(logits, v, right, T, share),
        lambda dloss, cache: distillation_backward(dloss, *cache),
        {"logits": z},
    )
    print(f"T = {T:g}, share {share:g}: error {errors['logits']:.0e}")

# %% [markdown]
# ### Why the factor is T² (optional)
#
# How near to each other are $p$ and $q$? For large $T$ we have $e^{x/T} \approx 1 + x/T$. Take logits whose mean is 0
# in each row. Then the sum over all $V$ tokens is about $V$, and
#
# $$ \frac{p_i - q_i}{T} \approx \frac{1}{T}\left(\frac{1 + z_i/T}{V} - \frac{1 + v_i/T}{V}\right)
# = \frac{z_i - v_i}{V\,T^2} $$
#
# That is the factor $T^2$. And a student at a high temperature learns the teacher's *logits*, as in least squares. The
# size of the gradient, with $T^2$ and without:

# %%
for T in (1, 5, 20, 100):
    size = np.linalg.norm(distillation_backward(1.0, z, v, right, float(T), 1.0))
    print(f"T = {T:3}: the gradient has the size {size:.4f} with T², {size / T**2:.6f} without")

# %% [markdown]
# ### A small student, in seconds
#
# The task: guess the next word of an English sentence of the grammar from the four words before it. The model
# ([`words.py`](course/lesson_25/words.py)) looks up four vectors and has one hidden layer (Bengio and others 2003). The
# teacher learns from 6,000 sentences. The students have a fraction of its parameters and see some of these sentences.
# All take the same number of steps. Only the target differs: the words of the text, or the teacher's probabilities.

# %%
english = [source for source, _ in pairs("train", seed=0, count=6000)]
vocabulary = Words(english, size=300)
held_out = vocabulary.rows([source for source, _ in pairs("test", seed=0, count=300)])


def losses_of(model, sentences, **way):
    """The loss on held-out sentences every 50 steps of training; `words.train` calls distillation_backward."""
    return words.train(model, distillation_backward, *vocabulary.rows(sentences), held_out, **way)


large = WordModel(len(vocabulary), width=24, hidden=128)
taught = losses_of(large, english, steps=1500)
COUNTS = (100, 400, 1600, 6000)
WAYS = {"the words of the text": {}, "the teacher, T = 1": {"taught_by": large}}
WAYS["the teacher, T = 2"] = {"taught_by": large, "temperature": 2.0}
curves = {}
for name, way in WAYS.items():
    students = [WordModel(len(vocabulary), width=8, hidden=16, seed=1) for _ in COUNTS]
    curves[name] = [losses_of(each, english[:count], **way) for each, count in zip(students, COUNTS, strict=True)]
text, *from_teacher = curves
lines = {f"{text}, at the end": [curve[-1] for curve in curves[text]],
         f"{text}, at its best moment": [min(curve) for curve in curves[text]]}  # fmt: skip
lines |= {name: [curve[-1] for curve in curves[name]] for name in from_teacher}
pictures.draw_students([len(vocabulary.rows(english[:count])[1]) for count in COUNTS], lines, taught[-1])
print(f"teacher: {len(large.data):,} parameters, loss {taught[-1]:.3f}; a student has {len(students[0].data):,}")

# %% [markdown]
# From a hundred sentences the student learns the text by heart, and its loss on other sentences explodes. (Its best
# moment, chosen on the test sentences, is shown too.) Taught by the teacher on the *same* sentences it ends far below
# even that moment: for each beginning it is told all words that may follow, not one.
#
# So the first question has an answer, with a condition: **yes, where the student sees less text than the teacher did.**
# And $T = 2$ gains nothing over $T = 1$ here: temperatures are for teachers that are nearly certain, such as
# classifiers of images. This one is not, since many words may follow.
#
# ### For translation: words, or whole sentences (optional)
#
# Kim and Rush (2016) bring distillation to translation, in two ways.
#
# * **Word level.** What you have just written, at each position of the target, after the right beginning
#   ([teacher forcing](glossary.md#teacher-forcing)).
# * **Sequence level.** A translation is a whole sentence $t$, so the loss should be $-\sum_t Q(t) \log P(t)$, with the
#   teacher's probabilities $Q$ of whole sentences. There are far too many to add up. So put all of $Q$ on the teacher's
#   best sentence, found by beam search: *translate the training set with the teacher, and train the student on these
#   translations.* No new code at all.
#
# Why should a machine's translations teach better than a human's? One sentence has many right translations, and a weak
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
# translates better, because it gave up what it could not do. So expect three things of sequence-level distillation:
# better translations, above all without a beam; less gained by a beam; and a *higher* perplexity on human translations.
#
# ### Distillation measured (optional)
#
# `make after` measures this on Multi30k (29,000 captions of images, with translations), with a teacher of four layers
# and students of one: a translator alone, and three that learn by words (at $T = 1$, share ½), by sentences, and by
# both. There is one training run of each, and the predictions were written down before. The intervals of single models
# are those of [bootstrap](glossary.md#bootstrap) samples of the test sentences. Those of differences between two models
# are wider: they leave room for what another seed would change, as far as that is known.

# %%
recorded_students = studies.findings("distillation")
if recorded_students is not None:
    pictures.draw_bleu(recorded_students)
    print("\n".join(studies.distillation_table(recorded_students)))
    print(f"\n{studies.wrapped(studies.distillation_verdicts(recorded_students))}")
    print(f"\nPredicted before, and what came:\n{studies.wrapped(studies.predicted(distillation, recorded_students))}")

# %% [markdown]
# ## Larger: a law for the loss
#
# Now to the second question. Train models of several sizes $N$ (parameters) on several amounts of text $D$ (tokens),
# and look at their losses on held-out text. To a surprising degree they follow one formula (Hoffmann and others 2022):
#
# $$ L(N, D) = E + \frac{A}{N^\alpha} + \frac{B}{D^\beta} $$
#
# * $E$ is the text's own entropy, which no model can remove: a sentence may go on in more than one way.
# * $A/N^\alpha$ is lost because the model is small, however much it reads.
# * $B/D^\beta$ is lost because it has read little, however large it is.
#
# Why powers? If a term falls by the same factor each time that $N$ doubles, it is a power of $N$. Such lines were
# measured on logarithmic axes (Kaplan and others 2020), and not derived. It is a *law* like Kepler's: it describes, and
# does not explain.
#
# ### Where to put ten times the compute
#
# A training step costs about 6 operations for each parameter and each token: 2 in the forward, for a product and a sum,
# and twice as many in the backward, which has two matrix products for each of the forward. So a budget of $C$
# operations says
#
# $$ C = 6\,N D $$
#
# and asks for the $N$ with the least $L(N, \frac{C}{6N})$. If $N$ grows by a percent, $D$ shrinks by a percent. Then
# the first term falls by $\alpha$ percent of itself, and the second rises by $\beta$ percent of itself. At the best
# size the two changes cancel:
#
# $$ \alpha\,\frac{A}{N^\alpha} = \beta\,\frac{B}{D^\beta} $$
#
# ### Exercise 2 ★☆☆: the best size for a budget
#
# Put $D = \frac{C}{6N}$ into the condition, and solve it for $N$. The law's constants come in the form in which they
# are fitted: $\theta = (a, \alpha, b, \beta, e)$ with $a = \log A$, $b = \log B$ and $e = \log E$.


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
# So $N$ grows as $C^{\beta/(\alpha+\beta)}$ and $D$ as $C^{\alpha/(\alpha+\beta)}$. The proof is a search on a fine
# grid. Then the question itself, for two sets of constants. The second is a fit of Besiroglu and others (2024), who
# read Hoffmann's training runs out of a figure of that paper and fitted them again.

# %%
BESIROGLU = np.array([np.log(482.01), 0.3478, np.log(2085.43), 0.3658, np.log(1.8172)])
PUBLISHED = {"Hoffmann": HOFFMANN, "Besiroglu": BESIROGLU}
for name, theta in PUBLISHED.items():
    found, searched = compute_optimal(theta, 1e21), fits.best_by_search(law, theta, 1e21)
    print(f"{name}: N {found[0]:.4e} by the formula, {searched[0]:.4e} by the search")
    (n, more_n), (d, more_d) = compute_optimal(theta, np.array([1e21, 1e22]))
    print(f"  ten times the operations: {more_n / n:.2f} times the parameters and {more_d / d:.2f} times the tokens; "
          f"loss {law(theta, n, d):.3f} → {law(theta, more_n, more_d):.3f}")  # fmt: skip

# %% [markdown]
# So the answer is **both**, in nearly equal parts. Ten times the compute is about three times the model and three times
# the text. After Kaplan's law, which let the model grow much faster, language models had become large and read a token
# or two for each parameter. Then Chinchilla (Hoffmann and others 2022) took the budget of one of them, made the model a
# quarter as large, and was better. (How far beyond its runs does such a law reach? Two optional parts below ask.)
#
# ### Tokens for each parameter (optional)
#
# Here are the paper's models and three language models, beside the best ratio by the two fits for the same operations.
# (The paper's models translate and read their text many times, so the law is not made for them.)

# %%
base, big = num_parameters(TransformerConfig.base()), num_parameters(TransformerConfig.big())
trained_models = {  # parameters, tokens; a batch of the paper has 25,000 source and 25,000 target tokens
    "base, 2017": (base, 100_000 * 50_000), "big, 2017": (big, 300_000 * 50_000), "GPT-3, 2020": (175e9, 300e9),
    "Gopher, 2021": (280e9, 300e9), "Chinchilla, 2022": (70e9, 1.4e12),
}  # fmt: skip
print(f"{'':<18}{'N':>9}{'D':>9}   tokens a parameter: as trained" + "".join(f"{name:>11}" for name in PUBLISHED))
for name, (n, d) in trained_models.items():
    best = [compute_optimal(theta, 6 * n * d) for theta in PUBLISHED.values()]
    print(f"{name:<18}{n:9.1e}{d:9.1e}{d / n:34.1f}" + "".join(f"{b / a:11.1f}" for a, b in best))

# %% [markdown]
# Look at the last two columns. They are fits of one formula to partly the same runs, and for the largest budgets they
# differ by a factor of several. (Hoffmann's exponents, 0.34 and 0.28, are rounded, and a small error of an exponent is
# multiplied by many decades. By two other ways, without this formula, Hoffmann and others found a best size near
# Chinchilla's, and the second fit agrees.) So before we believe such a number, let us make one.
#
# ## What a fit is worth (optional)
#
# We make up training runs whose law we know, so that we can see what a fit finds. Sizes and budgets are those of a
# study of ours. Each loss is a third of a percent off, at random. How sure is the fit? The
# [*bootstrap*](glossary.md#bootstrap) asks how the result would differ if other runs had been made. Draw as many runs
# as there are, with replacement, so that some come twice and some not at all; fit again; repeat. The middle 95 % of the
# results is the interval. ([`fitted`](course/lesson_25/fits.py) descends from many starts; an optional part below
# writes its gradient.)

# %%
TRUTH, NOISE = np.array([np.log(60.0), 0.45, np.log(900.0), 0.5, np.log(1.7)]), 0.003
n, d, budget = fits.runs()
losses = law(TRUTH, n, d) * np.exp(NOISE * rng.standard_normal(len(n)))
drawn = rng.multinomial(len(n), np.full(len(n), 1 / len(n)), size=100)  # (100, n): how often each run is drawn
best, samples = fits.fitted(n, d, losses, drawn)  # (5,), (100, 5)
print(f"{len(n)} runs, N {n.min():,.0f} to {n.max():,.0f}, D {d.min():,.0f} to {d.max():,.0f}; "
      f"the fit is off by {100 * np.abs(law(best, n, d) / losses - 1).max():.1f} % at most")  # fmt: skip
print("             truth      fit   95 % of bootstrap samples")
values = {"A": lambda t: np.exp(t[..., 0]), "α": lambda t: t[..., 1], "B": lambda t: np.exp(t[..., 2]),
          "β": lambda t: t[..., 3], "E": lambda t: np.exp(t[..., 4]), "best N ∝ C^": fits.exponent}  # fmt: skip
for name, value in values.items():
    low, high = fits.middle(value(samples))
    print(f"{name:<11}{value(TRUTH):>7.3g}{value(best):>9.3g}   {low:.3g} to {high:.3g}")

# %% [markdown]
# The law describes all runs to within a percent, and yet leaves much room for $A$: a larger $A$ with a larger $\alpha$
# does nearly as well, because all sizes lie within two decades. So do not quote a constant alone. The exponent of the
# best size is known better than $\alpha$.
#
# How does the interval of a *prediction* grow as we leave the runs? Take the best model of a budget that is 10, 100,
# 1,000 times the largest one:

# %%
factors = np.geomspace(0.1, 1e4, 41)
reached = budget.max() * factors
truth, said = (law(theta, *compute_optimal(theta, reached)) for theta in (TRUTH, best))
many = np.array([law(theta, *compute_optimal(theta, reached)) for theta in samples])  # (samples, factors)
bands = fits.middle(many)
pictures.draw_reach(factors, 100 * (said / truth - 1), 100 * (bands / truth - 1))

# %% [markdown]
# With each factor of ten the interval becomes wider, since beyond the dotted line no run corrects the law. (Where the
# dashed line, the truth, is outside the band, the interval is too narrow. With few runs bootstrap intervals often are.)
#
# ### Intervals around the wrong number
#
# Now let something be wrong with *all* runs. The learning rate suits the small models, and the larger a model is, the
# more it loses by that: the largest has a loss that is 4 % too high.

# %%
untuned = losses * (1 + 0.04 * np.log(n / n.min()) / np.log(n.max() / n.min()))
print(f"the truth   best N ∝ C^{fits.exponent(TRUTH):.3f}")
for name, measured in (("tuned", losses), ("not tuned", untuned)):
    theta, others = fits.fitted(n, d, measured, drawn)
    low, high = fits.middle(fits.exponent(others))
    inside = "inside" if low <= fits.exponent(TRUTH) <= high else "OUTSIDE"
    print(f"{name:<11} best N ∝ C^{fits.exponent(theta):.3f} ({low:.3f} to {high:.3f}), the truth is {inside}")

# %% [markdown]
# The runs that are not tuned still lie nearly on *a* law, and their interval looks no worse. It is an interval around
# the wrong number. A bootstrap asks how far chance could have moved the result. It does not know what was wrong with
# *all* runs: a warm-up that is too long for the short ones, text that is read twice, one seed of each. (If the test
# rows are resampled, and not the runs, it says how well *one loss* is known, and nothing about another seed or
# another learning rate.) Only a run that was kept aside, far out, says how far a law reaches.
#
# ## Fitting the law (optional)
#
# How do you fit five constants? Hoffmann and others make three choices, and each has a reason.
#
# * **The logarithm of the loss.** An error of one percent should count the same at a loss of 4 and of 2. With
#   $a = \log A$, $b = \log B$, $e = \log E$ the prediction is a *log-sum-exp*. It cannot overflow if the
#   largest of the three is subtracted first (lesson 01), and $A$, $B$ and $E$ stay positive by themselves:
#   $$ \log L = \log\bigl(e^{a - \alpha \log N} + e^{b - \beta \log D} + e^{e}\bigr) $$
# * **[Huber's loss](glossary.md#huber-loss)** of the residuals $r$ (the predicted minus the measured $\log L$): $r^2/2$
#   up to $|r| = \delta$, and beyond that the line $\delta\,(|r| - \delta/2)$. Beyond $\delta$ a run pulls no harder,
#   however wrong it went. $\delta = 10^{-3}$.
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


log_n, log_d, log_loss, DELTA = np.log(n), np.log(d), np.log(losses), 1e-3
print(f"with loops {objective_in_loops(TRUTH, log_n, log_d, log_loss, DELTA):.12e}")
print(f"without    {objective_forward(TRUTH, log_n, log_d, log_loss, DELTA)[0]:.12e}")

# %% [markdown]
# ### One run first
#
# The gradient goes back through three steps. Take a single run, and only the constant $a$:
#
# 1. **Huber's loss** has the slope $r$ up to $\delta$, then $\pm\delta$. Call it the run's *pull*.
# 2. **The log-sum-exp** of three terms $t_k$ has the slope $s_k = e^{t_k} / \sum_j e^{t_j}$ by $t_k$, a softmax. So
#    $s_1$ is the share of $A/N^\alpha$ in the predicted loss, $s_2$ that of $B/D^\beta$, and $s_3$ that of $E$.
# 3. **The term** $t_1 = a - \alpha \log N$ has the slope 1 by $a$.
#
# So the slope by $a$ is the pull, times $s_1$, times 1:

# %%
guess, one = TRUTH + 0.05, slice(4, 5)  # some constants; the fifth run alone
predicted, terms = predictions(guess, log_n[one], log_d[one])  # (1,), (3, 1)
pull = np.clip(predicted[0] - log_loss[one][0], -DELTA, DELTA)
shares = softmax(terms[:, 0])  # (3,)
slopes = numerical_gradient(
    lambda t: objective_forward(t, log_n[one], log_d[one], log_loss[one], DELTA)[0], guess, eps=1e-7
)
print(
    f"residual {predicted[0] - log_loss[one][0]:.4f}, pull {pull:.4f}, shares {', '.join(f'{s:.3f}' for s in shares)}"
)
print(f"the slope by a: {pull * shares[0] * 1:.6e}; by central differences {slopes[0]:.6e}")
print(f"all five, to compare yours with: {', '.join(f'{slope:.3e}' for slope in slopes)}")

# %% [markdown]
# ### Exercise 3 ★★☆: the gradient of the fit
#
# Do the same for the other four constants: what does each term depend on? Then take all runs at once, and sum.


# %% tags=["exercise"]
def objective_backward(dloss, theta, log_n, log_d, log_loss, delta):
    """The gradient of `objective_forward`'s loss by theta.

    dloss: a number. theta (5,): a, α, b, β, e. log_n, log_d, log_loss (n,): of each training run the logarithms of its
    parameters, its tokens and its loss. The loss is the sum over the runs of Huber's loss of
    log(exp(a − α log N) + exp(b − β log D) + exp(e)) − log L. Large terms must not overflow. → dtheta (5,), in
    theta's order
    """
    raise NotImplementedError


# %%
objective_backward = check(objective_backward)

# %% [markdown] tags=["help"]
# Go from the end to the beginning. How hard does each run pull at its own prediction of $\log L$? How is that pull
# shared among the three terms? How does each term depend on its constants?
#
# ---
#
# With `predictions` as in the forward: `shares` is the softmax of the three terms, (3, n), and `pulls = dloss *
# np.clip(residuals, -delta, delta)`. The slope of the prediction by $a$ is `shares[0]`, by $\alpha$ `-shares[0] *
# log_n`, by $b$ `shares[1]`, by $\beta$ `-shares[1] * log_d`, by $e$ `shares[2]`. Each of the five is multiplied by the
# pulls and summed over the runs.

# %%
for name, theta in (("at the truth", TRUTH), ("elsewhere", guess)):
    ours = objective_backward(1.0, theta, log_n, log_d, log_loss, DELTA)
    slopes = numerical_gradient(lambda t: objective_forward(t, log_n, log_d, log_loss, DELTA)[0], theta, eps=1e-7)
    print(f"{name:<12} error {np.abs(ours - slopes).max() / np.abs(slopes).max():.0e} of the gradient")

# %% [markdown]
# ### Down a valley
#
# Take plain gradient descent (lesson 01), from a start that is not far away. How long a step may be depends on how
# curved the ground is in each direction. Here is the walk, and the curvature at the truth, from its flattest direction
# to its steepest:

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
# $A/N^\alpha$ is right at the sizes that were trained. Along it hardly anything changes. Steps that are short enough
# for the walls get nowhere on the floor.
#
# A part of the ratio is a matter of coordinates: with their means subtracted from $\log N$ and $\log D$ it is far
# smaller. The other part is in the data. The last line is the noise of the losses, divided by the root of each
# curvature: the constants can move so far in each direction before the losses show it. In the flattest direction,
# nearly that of $a$, *the data themselves say little*. And many starts end in the wrong place:

# %%
_, objectives = fits.descents(n, d, losses)
poor = (objectives > 1.01 * objectives.min()).mean()
print(f"of {len(objectives)} starts {poor:.0%} end in a place that is worse than the best one")

# %% [markdown]
# So the descent needs steps that know the curvature. Hoffmann and others use L-BFGS, which estimates it from earlier
# gradients. Our study uses the method of Levenberg and Marquardt, for all starts at once:
# [`minimise`](after/experiments/scaling/fit.py).
#
# An interval that is too good is a warning. Hoffmann and others print intervals for the exponents of the best $N$ and
# $D$ that are 0.001 wide. Besiroglu and others estimate that this would take more than 600,000 runs; there were fewer
# than 500. The cause, which one of the authors confirmed, is the valley: the minimiser stopped too early, in the fit
# and in its bootstrap samples, because Huber's losses were averaged and not summed, and its tolerance was meant for
# larger numbers.
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
    """A step of Levenberg and Marquardt, with Huber's weights: the change of theta.

    residuals (n,): predicted minus measured. slopes (n, k): of the predictions, by each constant.
    It solves (M + damping · diagonal of M) step = −gradient, where M = slopesᵀ W slopes, gradient = slopesᵀ W
    residuals, and W has on its diagonal 1 where |residual| ≤ delta, else delta / |residual|. → (k,)
    """
    raise NotImplementedError


# %%
damped_step = check(damped_step)

# %% [markdown] tags=["help"]
# There is a weight for each run, a row of `slopes`. You need no matrix $W$: what does it do to the rows? A
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
# ## What 6 N D counts (optional)
#
# The package counts the operations of training exactly, matrix product by matrix product. Here are the
# [GPTs](../minitransformer/models/gpt.py) (decoders without a memory) of our own runs below. One ratio counts all
# parameters, the other leaves out the table of tokens:

# %%
print("width × layers    N, all   without    operations: ÷ 6 N, all   ÷ 6 N, without")
for size in scaling.SIZES:
    operations = flops_per_token(size.config, scaling.LENGTH).training
    n_all, n_without = size.parameters[scaling.ALL], size.parameters[scaling.WITHOUT]
    print(
        f"{size.name:<14}{n_all:>10,}{n_without:>10,}{operations / 6 / n_all:>26.2f}{operations / 6 / n_without:>17.2f}"
    )

# %% [markdown]
# With all parameters the rule is right to about a tenth. The rest is attention, whose scores have no parameters.
# Without the table it is far off for small models: the table is the output layer too, and that is a matrix product.
#
# ## Kaplan against Hoffmann: with embeddings, and without (optional)
#
# Kaplan and others found that the best size grows as $C^{0.73}$, Hoffmann and others that it grows as $C^{0.5}$. The
# difference is large: with ten times the compute, is the model more than five times as large, or about three times?
# Pearce and Song (2024) found most of the reason in the way to count: Kaplan's $N$ leaves out the embeddings, and his
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
by_all = np.full_like(small, fits.exponent(BESIROGLU))
pictures.draw_exponents(
    small, {"all parameters, as Hoffmann counts": by_all, "without embeddings, as Kaplan counts": by_their_count},
    {"Kaplan: 0.73": 0.73, "Hoffmann: 0.50": 0.5},
)  # fmt: skip
in_range = small < 1.5e9
print(f"from 1,000 to 1.5 billion parameters, fitted with one power: "
      f"{np.polyfit(np.log(6 * small * their_d)[in_range], np.log(small[in_range]), 1)[0]:.2f}")  # fmt: skip

# %% [markdown]
# One truth, two ways to count, and two laws. Where the table is most of the model, ten times $n$ is little more than
# twice $N$. So the first term falls slowly as $n$ grows, and a slow term has to grow more. (Exercise 2: with $\alpha/3$
# for $\alpha$ the exponent is larger.) In between, where the layers overtake the table, each further factor of $n$ is
# worth more than the last, and the exponent is larger still. For very large models the two counts agree. Kaplan's
# models had sizes at which the lines are apart.
#
# Porian and others (2024) got Kaplan's exponent in runs of their own, and found three causes: the operations of the
# output layer were not counted, the warm-up was too long for small models, and the optimiser was not tuned for each
# size. With these put right they got Hoffmann's exponent.
#
# ## Our own runs, and the one that was kept aside (optional)
#
# The same with real models: GPTs read the grammar's sentences, in several sizes and with several budgets, which span
# two decades. One more, larger than all others, is kept aside: no fit sees it, and the law has to predict its loss. Our
# expectations were written down, too. Each size and budget ran once, and the learning rate follows from the width by a
# rule and was not tuned.

# %%
measured = studies.findings("scaling")
if measured is not None:
    print("\n".join(studies.scaling_table(measured)))
    if measured["laws"]:
        own_law = measured["laws"][scaling.ALL]["law"]
        pictures.draw_trainings(measured, lambda n, d: law(own_law, n, d))
        print("\n".join(studies.law_table(measured)))
        print(f"\n{studies.wrapped([studies.what_is_known(measured)])}")
    print(studies.wrapped(studies.scaling_verdicts(measured)))
    print(f"\nPredicted before, and what came:\n{studies.wrapped(studies.predicted(scaling, measured))}")

# %% [markdown]
# Read the intervals before the numbers. A constant whose interval is wide is not known, however well the law fits. And
# look at the greatest miss, not at the median alone: a law that is off by several percent somewhere does not describe
# all of its runs.
#
# The size kept aside is a weak test. It is one run, a little beyond the others, where the loss hardly depends on the
# size any more. So compare the law's miss with those of guesses without any law. Ask more of it: fit only the smaller
# budgets, and predict the losses of the largest.

# %%
if measured is not None and measured["laws"]:
    for found in measured["ahead"]:
        factor = measured["operations"][-1] / measured["operations"][found["known"] - 1]
        off = ", ".join(f"{miss:+.1f} ({low:+.0f} to {high:+.0f})" for miss, low, high in found["misses"])
        print(f"from the {found['trainings']} runs with at most 1/{factor:.1f} of the largest budget, "
              f"off by\n    {off} %")  # fmt: skip
else:
    print("Without recorded runs, the made-up ones have to answer.")

# %% [markdown]
# A loss falls in more than one way: fast, while the model learns which words are frequent, and slowly, when it learns
# what follows from what. A law with one power for all of $D$ does not know that, so very short runs can pull it away
# from the long ones. Our recipe may do so too: in the shortest runs the optimiser takes few steps, and a tenth of them
# are its warm-up. If something of this kind happened here, the predicted losses above are off in one direction. They do
# not show which of the two it was.
#
# ## A form that is wrong (optional)
#
# The form of the law is an assumption of its own. Leave out the floor $E$, and the best of the made-up losses of each
# budget lie nearly on a straight line as well. And do few runs, or cheap ones, do any harm?

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
cheap, goal = budget < 1.01 * levels[1], compute_optimal(TRUTH, 100 * budget.max())
for name, kept in (("all", n > 0), ("every second", np.arange(len(n)) % 2 == 0), ("cheap ones", cheap)):
    theta, others = fits.fitted(n[kept], d[kept], losses[kept])
    low, high = fits.middle(law(np.moveaxis(others, -1, 0), *goal))
    print(f"{name:<13} loss at 100 times the budget {law(theta, *goal):.3f} ({low:.3f} to {high:.3f})")

# %% [markdown]
# Over two decades the straight line looks good enough. Far enough out it promises a model that knows what cannot be
# known. Few runs and cheap ones cost precision, and their intervals say so: they are wide.
#
# ## Common mistakes, and what they look like
#
# * **The temperature is changed and $T^2$ is missing.** The teacher's part becomes weaker as $1/T^2$, and "higher
#   temperatures do not help".
# * **The teacher has its dropout on.** Its targets are then noisy.
# * **Padding is taught.** The teacher has probabilities after the end of a sentence too. They are no targets, and the
#   rows do not count in the mean.
# * **A teacher that was trained with label smoothing.** It was told that all wrong tokens are equally wrong, and passes
#   that on (Müller and others 2019). Ours was, with 0.1: hence the even floor in the first picture.
# * **The best size is read off the lowest point that was measured.** The valleys of the first picture are flat, so a
#   little noise moves the lowest point far.
#
# ## What changed since 2017
#
# Distillation became common: DistilBERT (Sanh and others 2019) is a BERT of half the layers, and translators in
# browsers are students of larger ones. For models that write freely, the teacher now often judges the student's *own*
# sentences (Agarwal and others 2024).
#
# After Hoffmann came models with twenty tokens for each parameter, and soon with hundreds and more (Touvron and others
# 2023). That is no contradiction: a smaller model that reads longer costs more to train, and less to use, and it
# answers millions of people afterwards. So the two questions of this lesson meet.
#
# Sources (arXiv): Hinton and others 1503.02531, Kim and Rush 1606.07947, Kaplan and others 2001.08361, Hoffmann and
# others 2203.15556 (eq. 3, appendix D), Besiroglu and others 2404.10102, Pearce and Song 2406.12907, Porian and others
# 2406.19146.
#
# ## Where next
#
# [Lesson 26](26_many_processes.ipynb): a budget is operations, and one machine has only so many in a month. How do many
# machines share them? An open project: a model will read $U$ tokens after its training, 2 operations for each parameter
# and token. Minimise $6ND + 2NU$ for a given loss. How do $N$ and $D$ move as $U$ grows?
