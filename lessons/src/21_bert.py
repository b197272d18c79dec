# %% [markdown]
# # 21 · BERT: fill the gaps, then fine-tune
#
# **You will be able to** train a model that reads a sentence both ways at once, by hiding words from it; write the
# gradient of a loss that looks at a few places only; and make the trained model a classifier that needs few labels.
#
# | | |
# |---|---|
# | you know | the encoder of the [model](08_model.ipynb), [training](09_training.ipynb), [its loss](01_softmax.ipynb) |
# | runs in | 120 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | *BERT* (Devlin and others 2019), §3 and appendix A.1; *T5* (Raffel and others 2020), §3.1.4, §3.3 |
# | in the package | [`bert.py`](../minitransformer/models/bert.py); [`data`](../minitransformer/data): masked, spans |
#
# A decoder writes from left to right, so its attention is [causal](glossary.md#causal): a position sees only what came
# before it. A reader may look ahead. In "the sheep sleeps" and "the sheep sleep" only the word *after* "sheep" says how
# many there are, and a causal model has to build its vector for *sheep* without it. **What would happen if a model
# could read the whole sentence, both ways?** Let us remove the causal mask, and see what goes wrong.

# %%
import numpy as np

from course import start
from course.lesson_21.pictures import draw_cheat, draw_fine_tuning, draw_objectives, draw_pretraining, draw_spans
from course.lesson_21.sentences import CLS, FIRST_WORD, LENGTH, PAD, SEP, encode, short, words_of
from course.measuring import blas_threads
from course.style import show
from course.training import train
from minitransformer.data.spans import corrupt, lengths
from minitransformer.gradcheck import check_gradients, error
from minitransformer.inside import attention_maps
from minitransformer.layers import Context
from minitransformer.models import BERT, GPT, IGNORED, BERTConfig, GPTConfig
from minitransformer.ops import cross_entropy_backward, cross_entropy_forward, layernorm_forward

check = start("21")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## The picture: three ways to ask
#
# A row is a prediction, a column a token of the input. The model may see the filled squares of a row when it makes that
# prediction. `[CLS]` and `[SEP]` stand before and after each sentence, as `<s>` and `</s>` did so far; these are BERT's
# names.

# %% tags=["picture"]
WORDS = ("[CLS]", "the", "sheep", "sleep", "in", "the", "garden", "[SEP]")
draw_objectives(WORDS, hidden=(2, 6))
show("What a prediction may see. Next token, causal: the tokens before it. Next token, seeing everything: the answer "
     "is among the inputs. Two masked tokens, seeing everything: the answers are hidden.")  # fmt: skip

# %% [markdown]
# On the left is the decoder of lesson [08](08_model.ipynb). In the middle its causal mask is gone, and now every answer
# is one of the inputs: the token after *the* is *sheep*, and it stands one place to the right (the crosses). On the
# right is the idea of this lesson: hide some tokens, and ask for these.
#
# ## The middle one, trained
#
# We take [short English sentences](course/lesson_21/sentences.py) from the grammar (lesson [02](02_text.ipynb)), in
# lower case, and give each whole word a number, so that gaps are easy to read.

# %%
train_set = short("train", 12_000)
vocabulary = ["<pad>", "[CLS]", "[SEP]", *sorted({w for e in train_set for w in words_of(e.english)}), "[MASK]"]
number_of = {word: number for number, word in enumerate(vocabulary)}
V, MASK = len(vocabulary), len(vocabulary) - 1
test_set = [e for e in short("test", 1000) if all(w in number_of for w in words_of(e.english))]
train_ids, test_ids = encode(train_set, number_of), encode(test_set, number_of)
print(f"{len(train_set):,} sentences to learn from, {len(test_set):,} to test, a vocabulary of {V}")
print(train_set[0].english, train_ids[0])

# %% [markdown]
# We train two models of one size: a decoder without an encoder, which is a language model, and an encoder, which has
# the same layers without the causal mask. Both predict the next token at every place, in [lesson 09's
# loop](course/training.py). A target of −100, `IGNORED`, means that nothing is asked there.

# %% tags=["long"]
SIZE = {"d_model": 64, "num_heads": 4, "d_ff": 128, "num_layers": 2, "max_length": LENGTH}
PLAIN = {"dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.05}


def next_tokens(ids):
    """The token after each, (B, T); IGNORED where there is none."""
    targets = np.full_like(ids, IGNORED)
    targets[:, :-1] = np.where(ids[:, 1:] == PAD, IGNORED, ids[:, 1:])
    return targets


def some(ids, count=64):
    """Rows of ids, drawn at random."""
    return ids[rng.integers(len(ids), size=count)]


def next_batch(model):
    ids = some(train_ids)
    # Padding is at the right end, where a causal model never looks; the other one needs a mask.
    return {"ids": ids, "targets": next_tokens(ids)} | ({} if model is causal else {"mask": ids != PAD})


causal = GPT(GPTConfig(V, **SIZE, **PLAIN))
both_ways = BERT(BERTConfig(V, **SIZE, **PLAIN, mask_id=MASK))
models = {"sees what came before": causal, "sees everything": both_ways}
curves = {name: train(model, lambda model=model: next_batch(model), 300) for name, model in models.items()}

# %% [markdown]
# The test: how well does each predict the next token of a test sentence? First with the whole sentence in view, as in
# training. Then with the beginning alone, as when a model *writes*, and the next token does not exist yet.


# %%
def loss_with_everything(model):
    logits, _ = model.forward(test_ids, mask=test_ids != PAD)
    return float(cross_entropy_forward(logits, next_tokens(test_ids), ignore_index=IGNORED)[0])


def loss_with_beginnings(model):
    """Each next token is predicted with the tokens before it as the only input."""
    beginnings = [test_ids[:, :t] for t in range(1, LENGTH)]
    logits = np.stack([model.forward(each, mask=each != PAD)[0][:, -1] for each in beginnings], axis=1)
    return float(cross_entropy_forward(logits, next_tokens(test_ids)[:, :-1], ignore_index=IGNORED)[0])


tests = {
    name: {"whole sentence": loss_with_everything(model), "beginning alone": loss_with_beginnings(model)}
    for name, model in models.items()
}
draw_cheat(curves, tests, floor=np.log(V))
show("Left: while training, the loss of the model that sees everything falls to nearly zero, the causal model's does "
     "not. Right: on test sentences, given the beginning alone, the first is worse than even guessing, and the causal "
     "model is as good as before.")  # fmt: skip

weights = np.stack(list(attention_maps(both_ways, test_ids, mask=test_ids != PAD).values()))  # (layers, B, H, T, T)
ahead = np.diagonal(weights, 1, axis1=3, axis2=4).swapaxes(1, 2)  # (layers, H, B, T − 1): the weight one place ahead
print("weight on the next token, each head of each layer:")
print(ahead[..., test_ids[:, 1:] != PAD].mean(axis=-1).round(2))

# %% [markdown]
# The model that sees everything is nearly perfect after 300 steps, and has learned nothing about English. Its heads
# look one place ahead and copy what they find. Without the rest of the sentence it does worse than a uniform guess. So
# the causal mask is not a handicap of language models: without it there is nothing to predict. A model that reads both
# ways needs another question.
#
# ## Hide the answer
#
# BERT's question is a text with gaps (its paper calls it a *cloze* task). Of the words of a sentence, 15 % are chosen
# as **targets**, and the model is asked which words stood there. The input is changed at these places, so that the
# model can't just look:
#
# | of the targets | the input there becomes | why |
# |---|---|---|
# | 80 % | `[MASK]` | the answer can't be copied |
# | 10 % | a random word | a visible word may be wrong, so the model must check it against the others |
# | 10 % | the word itself | a visible word may be right, so its vector must keep it |
#
# Why not always `[MASK]`? Because later, when the model is used, all tokens are words. A model that was only ever asked
# at `[MASK]` may do whatever it likes everywhere else. With the other two kinds of targets, any visible word may be
# asked for. (An optional section measures it.)
#
# Why 15 %? More targets teach more from each sentence, but each takes away a word that the others need. A sentence of
# seven words has one target.
#
# ### Exercise 1 ★★☆: mask a batch
#
# The words are the ids from 3 to `mask_id` − 1. Python's `round(0.15 * n)` rounds as required. Take all random numbers
# from `rng`, a generator like `np.random.default_rng(0)`.


# %% tags=["exercise"]
def mask_batch(ids, mask_id, rng):
    """The input and the targets of a masked model.

    ids (B, T), integers: 0 padding, 1 [CLS], 2 [SEP], and words, 3 to mask_id − 1. Of each row's n words
    max(1, round(0.15 · n)) are targets; every choice of that many words is equally likely. Each target on its own
    becomes mask_id with probability 0.8; with probability 0.1 a word drawn uniformly from 3 to mask_id − 1, which may
    be the old one; with probability 0.1 it stays.
    → the tuple hidden (B, T), ids with the targets changed; targets (B, T), the old ids there and −100 elsewhere; both
    are new arrays of integers.
    """
    raise NotImplementedError


# %%
mask_batch = check(mask_batch)

# %% [markdown] tags=["help"]
# Go row by row. Which places hold words? How do you draw several *different* ones? Once you have begun to change one
# array, which one do you read the target from?
#
# ---
#
# `places = np.flatnonzero((row > 2) & (row < mask_id))`, then `rng.choice(places, count, replace=False)`. For each
# chosen place write `targets[b, t] = ids[b, t]`, and draw one number, `dice = rng.random()`: below 0.8 write the mask,
# from 0.8 to below 0.9 the word `rng.integers(3, mask_id)`, otherwise change nothing.


# %%
def shown(row):
    return " ".join(vocabulary[token] for token in row if token != PAD)


for row in test_ids[:3]:
    print("the text    ", shown(row))
    for _ in range(2):
        seen, asked = mask_batch(row[None], MASK, rng)
        print("  model sees", shown(seen[0]), "   asked:", ", ".join(vocabulary[id] for id in asked[asked != IGNORED]))

# %% [markdown]
# ## A loss at some places
#
# The encoder gives a vector for every place, `hidden` of shape $(B, T, C)$. The loss asks only at the $N$ pairs
# $(b, t)$ that are targets, the set $M$. As in lesson [08](08_model.ipynb), logits are products with the table of
# embeddings:
#
# $$ L = -\frac{1}{N} \sum_{(b,t) \in M} \log \mathrm{softmax}\big(h_{bt}\, E^\top\big)_{y_{bt}} $$
#
# with $h_{bt}$ the vector of a place, $E$ the table $(V, C)$, and $y_{bt}$ the target. With loops and without:


# %%
def masked_loss_loops(hidden, table, targets):
    """hidden (B, T, C), table (V, C), targets (B, T), IGNORED where nothing is asked → the loss, a number."""
    total, count = 0.0, 0
    for vectors, asked in zip(hidden, targets, strict=True):
        for h, y in zip(vectors, asked, strict=True):
            if y != IGNORED:
                logits = table @ h  # (V,)
                total += np.log(np.exp(logits).sum()) - logits[y]
                count += 1
    return total / count


def masked_loss(hidden, table, targets):
    chosen = targets != IGNORED  # (B, T)
    rows = hidden[chosen]  # (N, C): a boolean array picks the places out
    loss, _ = cross_entropy_forward(rows @ table.T, targets[chosen])
    return loss


seen, asked = mask_batch(test_ids[:4], MASK, rng)
hidden, table = rng.standard_normal((*asked.shape, 6)), rng.standard_normal((V, 6))
print(f"loops {masked_loss_loops(hidden, table, asked):.6f}, rows {masked_loss(hidden, table, asked):.6f}")

# %% [markdown]
# Only the chosen rows meet the table. That saves most of the output layer's work.
#
# ### Exercise 2 ★☆☆: the gradient of a loss at some places
#
# Picking rows copies them to new places, so its backward carries the gradients back to where the rows came from. What
# is the gradient of a row that was not picked? You may use the package's `cross_entropy_forward(logits, targets)`,
# which returns the loss and a cache, and `cross_entropy_backward(dloss, cache)`, which returns the gradient of the
# logits.


# %% tags=["exercise"]
def masked_loss_backward(dloss, hidden, table, targets):
    """Gradients of masked_loss(hidden, table, targets), times the number dloss.

    hidden (B, T, C), table (V, C), targets (B, T): ids, or −100 where nothing is asked. If nothing is asked at all, the
    loss is 0 and so are all gradients. → the tuple dhidden (B, T, C), dtable (V, C).
    """
    raise NotImplementedError


# %%
masked_loss_backward = check(masked_loss_backward)

# %% [markdown] tags=["help"]
# Write the forward's three lines again and keep the cache: pick, multiply, loss. Undo them from the last to the first.
# What shape does each gradient have? By which number is the loss divided, and which function does it?
#
# ---
#
# `dlogits = cross_entropy_backward(dloss, cache)` is $(N, V)$, and already divided by $N$. Then `dlogits @ table` is
# the gradient of the rows, and `dlogits.T @ rows` that of the table. Begin with `dhidden = np.zeros_like(hidden)`, and
# put the rows back with `dhidden[chosen] = …`.

# %%
checked = check_gradients(
    lambda hidden, table: (masked_loss(hidden, table, asked), (hidden, table)),
    lambda dloss, cache: masked_loss_backward(float(dloss), *cache, asked),
    {"hidden": hidden, "table": table},
    samples=300,
)
print(f"central differences: dhidden {checked['hidden']:.1e}, dtable {checked['table']:.1e}")
dhidden, _ = masked_loss_backward(1.0, hidden, table, asked)
_, cache = cross_entropy_forward(hidden @ table.T, asked, ignore_index=IGNORED)  # the package, over all places
print(f"the package: dhidden {error(dhidden, cross_entropy_backward(1.0, cache) @ table):.1e}")
print(f"places with a gradient: {dhidden.any(axis=-1).sum()} of {asked.size}, for {(asked != IGNORED).sum()} targets")

# %% [markdown]
# Does a word that is not asked for learn nothing? It does learn. Its own row of `dhidden` is 0, but the encoder made
# the gap's vector from those of the *other* words: attention carries the gradient from the gap back to every word that
# the gap looked at.
#
# The encoder is the [paper's](08_model.ipynb), post-norm, with learned positions and a GELU in place of the ReLU:
# $x\,\Phi(x)$, with $\Phi(x)$ the probability that a standard normal number is below $x$. The **masked head** on top is
# a linear map, a GELU, a layer norm, the product with the table of embeddings and a bias for each word.
#
# ### Two texts at once (optional)
#
# BERT reads one text or two: `[CLS] a question [SEP] an answer [SEP]`. Each token gets a
# [**segment**](glossary.md#segment), 0 or 1, that says which text it belongs to, and each segment has a learned vector.
# So the input of the first layer is a sum of three rows (§3 and figure 2 of BERT's paper), normalised (which only its
# code says):
#
# $$ x_t = \mathrm{LayerNorm}\big(E[\mathrm{id}_t] + S[\mathrm{segment}_t] + P[t]\big) $$
#
# with $E$, $S$ and $P$ the learned tables of tokens, segments and positions.


# %%
def embed(parameters, ids, segments):
    """ids, segments (B, T) → (B, T, C)."""
    x = np.zeros((*ids.shape, parameters["tokens.table"].shape[1]))
    for b, t in np.ndindex(ids.shape):
        x[b, t] = parameters["tokens.table"][ids[b, t]]
        x[b, t] += parameters["encoder.embedding.types.table"][segments[b, t]]
        x[b, t] += parameters["encoder.embedding.positions.table"][t]
    gamma, beta = parameters["encoder.embedding.norm.gamma"], parameters["encoder.embedding.norm.beta"]
    return layernorm_forward(x, gamma, beta, eps=1e-12)[0]


pair = [CLS, *(number_of[w] for w in ("does", "she", "read", "?")), SEP, *(number_of[w] for w in ("she", "reads")), SEP]
ids = np.array([pair])
segments = (np.cumsum(ids == SEP, axis=1) - (ids == SEP) > 0).astype(int)  # 0 up to the first [SEP], then 1
for name, row in (("tokens", ids[0]), ("segments", segments[0]), ("positions", np.arange(len(pair)))):
    cells = (vocabulary[each] if name == "tokens" else each for each in row)
    print(f"{name:<10}" + "".join(f"{each!s:>7}" for each in cells))

exact = BERT(BERTConfig(V, **SIZE, **PLAIN, mask_id=MASK), dtype="float64")
ours = embed(exact.parameters.state_dict(), ids, segments)
theirs, _ = exact.encoder.embedding.forward(ids, Context(token_types=segments))
print(f"against the package: {error(ours, theirs):.1e}")

# %% [markdown]
# Our sentences stand alone, so all their segments are 0. BERT had a second objective, too, **next-sentence
# prediction**: a classifier of `[CLS]` had to say whether text B follows text A. RoBERTa (Liu and others 2019) left it
# out and lost nothing. We leave it out.
#
# ## Pre-training
#
# Pre-training needs text and no labels. Each time a sentence comes up, different words of it are hidden.

# %% tags=["long"]
STEPS, EVERY = 2000, 200
test_seen, test_asked = mask_batch(test_ids, MASK, np.random.default_rng(9))
real_test = test_ids != PAD


def masked_batch():
    ids = some(train_ids)
    seen, asked = mask_batch(ids, MASK, rng)
    return {"ids": seen, "targets": asked, "mask": ids != PAD}


tested = {}


def watch(step):
    if step % EVERY == 0:
        tested[step] = float(bert.loss(test_seen, test_asked, mask=real_test, with_grad=False)[0])


bert = BERT(BERTConfig(V, **SIZE, **PLAIN, mask_id=MASK))
losses = train(bert, masked_batch, STEPS, watch=watch)

counts = np.bincount(train_ids[train_ids > SEP], minlength=V) + 1e-9
frequencies = -np.log(counts / counts.sum())[test_asked[test_asked != IGNORED]].mean()
draw_pretraining(losses, tested, frequencies)
show("The loss at masked places falls quickly below that of a guess by word frequencies and then ever more slowly; on "
     "test sentences it runs through the middle of the training batches' losses.")  # fmt: skip
print(f"{bert.parameters.count:,} parameters; test loss {tested[STEPS]:.2f} nats a gap: as if it were undecided among "
      f"{np.exp(tested[STEPS]):.0f} words, where the frequencies leave {np.exp(frequencies):.0f}")  # fmt: skip

# %% [markdown]
# The loss can't come near 0: in "the [MASK] sleeps" very many nouns are right. The model *can* learn which kind of word
# the gap needs. In each of these sentences the words around the gap decide it, and in all but one of them words to its
# right:


# %%
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def fill(model, text):
    """The probabilities of all words for the one [MASK] in a text, (V,)."""
    tokens = [CLS, *(MASK if w == "[MASK]" else number_of[w] for w in text.split()), SEP]
    logits, _ = model.forward(np.array([tokens]))
    return softmax(logits[0, tokens.index(MASK)])


GAPS = ("the [MASK] sleeps .", "the [MASK] sleep .", "[MASK] men see the dog .", "[MASK] man sees the dog .",
        "she [MASK] not see the dog .", "[MASK] she see the dog ?")  # fmt: skip
for text in GAPS:
    probabilities = fill(bert, text)
    best = np.argsort(-probabilities)[:5]
    print(f"{text:<30}", ", ".join(f"{vocabulary[w]} {probabilities[w]:.2f}" for w in best))

# %% [markdown]
# No label said that a noun is singular or plural. But a model that knows it has a lower loss, because the verb agrees
# with the noun.
#
# ## Fine-tuning: one vector for a whole text
#
# The model has learned from text without labels. For a task with labels, such as "how many?", replace the head by a
# small new one, and train *all* weights a little longer.
#
# The new head must read a whole text. BERT reads it at the first token: `[CLS]` is no word and stands in every text, so
# its vector is free to collect what all tokens say. A linear map and a tanh, the [**pooler**](glossary.md#pooler), and
# one more linear map turn it into $K$ logits, one for each class:
#
# $$ \begin{aligned}
#    &z = h_0 W_p + b_p \\
#    &p = \tanh(z) \\
#    &\mathrm{logits} = p\, W_c + b_c
# \end{aligned} $$
#
# with $h_0$, $z$ and $p$ of shape $(B, C)$, and the logits $(B, K)$.


# %%
def class_head(hidden, w_pool, b_pool, w_class, b_class):
    """hidden (B, T, C), w_pool (C, C), b_pool (C,), w_class (C, K), b_class (K,) → logits (B, K)."""
    pooled = np.tanh(hidden[:, 0] @ w_pool + b_pool)  # (B, C)
    return pooled @ w_class + b_class


# %% [markdown]
# ### Exercise 3 ★★☆: back through [CLS] (optional)
#
# Where does the gradient enter the encoder? At one place of each text. The slope of the tanh,
# $\tanh'(z) = 1 - \tanh^2(z)$, needs only its output.


# %% tags=["exercise"]
def class_head_backward(dlogits, hidden, w_pool, b_pool, w_class):
    """Gradients of class_head(hidden, w_pool, b_pool, w_class, b_class).

    dlogits (B, K) → the tuple dhidden (B, T, C), dw_pool (C, C), db_pool (C,), dw_class (C, K), db_class (K,).
    You may compute again what the forward computed on its way.
    """
    raise NotImplementedError


# %%
class_head_backward = check(class_head_backward)

# %% [markdown] tags=["help"]
# Go from the last step to the first: the linear map of the classes, the tanh, the pooler's linear map, and the choice
# of the first token. Each linear map has three gradients (lesson 00). Which tokens did the head not read?
#
# ---
#
# `dpooled = dlogits @ w_class.T`, then `dz = dpooled * (1 - pooled**2)`. `dw_pool` is `hidden[:, 0].T @ dz`. Begin with
# `dhidden = np.zeros_like(hidden)`, and fill `dhidden[:, 0]` only.

# %%
B, T, C, K = 3, 5, 6, 2
given = {
    "hidden": rng.standard_normal((B, T, C)),
    "w_pool": rng.standard_normal((C, C)),
    "b_pool": rng.standard_normal(C),
    "w_class": rng.standard_normal((C, K)),
    "b_class": rng.standard_normal(K),
}
found = check_gradients(
    lambda *given: (class_head(*given), given[:-1]), lambda dlogits, cache: class_head_backward(dlogits, *cache), given
)
print("central differences: ", ", ".join(f"d{name} {worst:.0e}" for name, worst in found.items()))

config = BERTConfig(V, d_model=C, num_heads=1, d_ff=4, num_layers=1, dropout=0.0, head="classes", num_classes=K)
head = BERT(config, dtype="float64").head
head.pooler.weight.data[...], head.pooler.bias.data[...] = given["w_pool"], given["b_pool"]
head.classes.weight.data[...], head.classes.bias.data[...] = given["w_class"], given["b_class"]
logits, cache = head.forward(given["hidden"], Context())
dlogits = rng.standard_normal(logits.shape)
theirs = head.backward(dlogits, cache), head.pooler.weight.grad, head.pooler.bias.grad
ours = class_head_backward(dlogits, *list(given.values())[:-1])
print("the package's head:  ", ", ".join(f"{error(a, b):.0e}" for a, b in zip(ours, theirs, strict=False)))

# %% [markdown]
# ### Two questions
#
# The grammar knows the constructions of each sentence, so labels cost nothing here. We ask two things of a sentence:
#
# * **Is anything plural?** The sentence may have one noun or several.
# * **Is it about the past?** The verb says so: *wrote*, *did not write*.
#
# Suppose that labels are expensive: only 50, 200 or 800 sentences have one. We train two models on them, with equally
# many steps: one starts from the pre-trained encoder, the other from scratch, and both have a new head. We do this
# twice, with different sentences and random weights.

# %%
QUESTIONS = {"Is anything plural?": "plural", "Is it about the past?": "perfect"}  # a German past is in the perfect
SIZES, SEEDS = (50, 200, 800), (1, 2)


def labelled(examples, ids, construction):
    """The sentences (N, T) and their labels (N,); without those of "to be", whose German past is no perfect."""
    kept = [row for row, e in enumerate(examples) if "predicate adjective" not in e.constructions]
    return ids[kept], np.array([construction in examples[row].constructions for row in kept], int)


def accuracy(model, ids, classes):
    logits, _ = model.forward(ids, mask=ids != PAD)
    return np.mean(logits.argmax(axis=1) == classes)


def fine_tuned(model, ids, classes, seed):
    """Train a model with a class head for 150 steps, in place."""
    generator = np.random.default_rng(seed)

    def batch():
        rows = generator.integers(len(ids), size=32)
        return {"ids": ids[rows], "targets": classes[rows], "mask": ids[rows] != PAD}

    train(model, batch, 150, peak_lr=1e-3, warmup=20)
    return model


results, guess, classifiers = {}, {}, {}
for question, construction in QUESTIONS.items():
    pool_ids, pool_classes = labelled(train_set, train_ids, construction)
    new_ids, new_classes = labelled(test_set, test_ids, construction)
    guess[question] = max(np.mean(new_classes), 1 - np.mean(new_classes))
    scores = {"pre-trained": np.zeros((len(SIZES), len(SEEDS))), "from scratch": np.zeros((len(SIZES), len(SEEDS)))}
    for (i, size), (j, seed) in ((a, b) for a in enumerate(SIZES) for b in enumerate(SEEDS)):
        rows = np.random.default_rng(seed).permutation(len(pool_ids))[:size]
        for name, encoder in (("pre-trained", bert), ("from scratch", BERT(bert.config, seed=seed))):
            model = fine_tuned(encoder.with_head("classes", 2, seed), pool_ids[rows], pool_classes[rows], seed)
            scores[name][i, j] = accuracy(model, new_ids, new_classes)
            classifiers[question, size, name] = model, rows
    results[question] = scores
draw_fine_tuning(results, SIZES, guess)
show("Accuracy against the number of labels. Is anything plural: the pre-trained model is far ahead everywhere. Is it "
     "about the past: it is behind with the fewest labels, and about level with the most.")  # fmt: skip
for question, scores in results.items():
    for name, found in scores.items():
        print(f"{question:<22} {name:<13}" + "".join(f"{100 * each.mean():8.1f} %" for each in found))

# %% [markdown]
# The two questions have different answers. **For number, pre-training is worth much; for tense, nothing or less.**
# Pre-training gives what its objective needed. To fill gaps the model needs number all the time: articles, numerals,
# nouns and verbs in the present have to agree. It hardly needs tense: *The dog [MASK] the man* may be *sees* or *saw*,
# and nothing decides unless the sentence has a time, such as *yesterday*. What the objective did not need has to come
# from the labels.
#
# ### A closer look at both (optional)
#
# **Plural.** Does the model from scratch fail to learn its labelled sentences? Or does it not know the words that never
# had a label?

# %%
question, size = "Is anything plural?", 200
new_ids, new_classes = labelled(test_set, test_ids, QUESTIONS[question])
pool_ids, pool_classes = labelled(train_set, train_ids, QUESTIONS[question])
for name in scores:
    model, rows = classifiers[question, size, name]
    print(f"{name:<12} right in {accuracy(model, pool_ids[rows], pool_classes[rows]):.0%} of its labelled sentences")
had_label = np.isin(np.arange(V), pool_ids[rows])
unseen = ((new_ids > SEP) & ~had_label[new_ids]).sum(axis=1)
print(f"with {size} labelled sentences, {had_label[FIRST_WORD:MASK].sum()} of {MASK - FIRST_WORD} words had a label")
print(f"{'words of the test sentence that had none':<42} {'sentences':>9} {'pre-trained':>12} {'from scratch':>13}")
for count in range(4):
    which = unseen == count if count < 3 else unseen >= 3
    right = [accuracy(classifiers[question, size, name][0], new_ids[which], new_classes[which]) for name in scores]
    print(f"{count if count < 3 else '3 or more':<42} {which.sum():9} {right[0]:12.0%} {right[1]:13.0%}")

# %% [markdown]
# Neither. Both models know their labelled sentences by heart, and the model from scratch is hardly better where it has
# seen every word with a label. With 200 sentences there are many ways to get all labels right, and it has found one
# that holds for these sentences only. The pre-trained model had to know the number of a noun to fill the gaps of
# thousands of sentences, so its vectors for nouns, articles and verbs share a trace of number. A few labels are enough
# to *name* it, and the name also fits words that never had a label.
#
# **Past.** How often does a sentence have a time, and do the vectors of words know tense?

# %%
kept = [e.constructions for e in train_set if "predicate adjective" not in e.constructions]
print(f"{np.mean(['time adverbial' in c for c in kept]):.0%} of these sentences have a time")
for pair in "sleeps sleep, sleeps slept, does do, does did, dog dogs, dog cat".split(", "):
    a, b = (bert.tokens.table.value[number_of[word]] for word in pair.split())
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    print(f"cosine of the vectors of {pair.replace(' ', ' and '):<17}{cosine:+.2f}")

question = "Is it about the past?"
new_ids, new_classes = labelled(test_set, test_ids, QUESTIONS[question])
did = (new_ids == number_of["did"]).any(axis=1)
for size in SIZES:
    right = (accuracy(classifiers[question, size, name][0], new_ids[did], new_classes[did]) for name in scores)
    found = ", ".join(f"{name} {each:.0%}" for name, each in zip(scores, right, strict=True))
    print(f"{size:>3} labels; right in the {did.sum()} test sentences with “did”: {found}")

# %% [markdown]
# *Sleeps* is nearer to *slept* than to *sleep*, and *does* is nearer to *did* than to *do*: number keeps words apart
# here, and tense hardly does. With few labels the model from scratch finds single words such as *did*. The pre-trained
# model needs more labels for them, because it begins with vectors in which *did* is much like *does*. (Real text is
# richer than our grammar: there a whole story is in the past, and a word at its beginning tells the tense at its end.)
#
# ## Always [MASK]? (optional)
#
# What do the 10 % of random words and the 10 % that stay do? Train two models for 800 steps, one with *all* targets
# masked, the other as before. The question: what does a model say about a word that it *sees*?


# %% tags=["long"]
def always_masked():
    batch = masked_batch()
    return batch | {"ids": np.where(batch["targets"] == IGNORED, batch["ids"], MASK)}


only_masks, mixed = BERT(bert.config), BERT(bert.config)
train(only_masks, always_masked, 800)
train(mixed, masked_batch, 800)

is_word = test_ids > SEP
wrong_ids = test_ids.copy()
where = rng.integers(1, (test_ids != PAD).sum(axis=1) - 1)  # one word of each sentence ...
wrong_ids[np.arange(len(test_ids)), where] = rng.integers(FIRST_WORD, MASK, len(test_ids))  # ... becomes any word
print(f"{'trained with':<14} {'gaps: loss':>11} {'P(the word itself), where right':>33} {'where wrong':>12}")
for name, model in (("[MASK] alone", only_masks), ("80, 10, 10", mixed)):
    gaps = np.where(test_asked == IGNORED, test_ids, MASK)
    loss = float(model.loss(gaps, test_asked, mask=real_test, with_grad=False)[0])
    itself = []
    for ids in (test_ids, wrong_ids):
        p = softmax(model.forward(ids, mask=real_test)[0])
        itself.append(np.take_along_axis(p, ids[..., None], axis=2)[..., 0])  # (B, T)
    at_wrong = itself[1][np.arange(len(ids)), where]
    print(f"{name:<14} {loss:11.2f} {itself[0][is_word].mean():33.2f} {at_wrong.mean():12.2f}")

# %% [markdown]
# Both fill gaps about equally well. But at a visible word, the model that was only ever asked at masks hardly says that
# word: it never had to. The other one gives that word far more probability where it fits, and next to none where it
# does not. So its vectors say what a word is and whether it fits, and a classifier reads these vectors.
#
# ## Gaps of several words: T5 (optional)
#
# BERT asks for one token at each gap, so the length of a gap is known, and an encoder alone can't write. T5 goes back
# to the paper's encoder–decoder. Whole **spans** are cut out of the text, and a mark, a
# [**sentinel**](glossary.md#sentinel), stands for each. The decoder writes what was cut, span after span. It is causal,
# so the next token is an honest question again:

# %%
row = np.concatenate([ids[ids > SEP] for ids in test_ids[4:9]])
names = [*vocabulary, "<2>", "<1>", "<0>"]  # the marks are the last ids, and the first gap has the very last
source, target = corrupt(row, len(names), np.random.default_rng(5))
draw_spans([names[id] for id in source], [names[id] for id in target])
show("A text with two spans cut out. In the encoder's source a sentinel stands for each span; the decoder's target has "
     "each sentinel, followed by the words that it stands for.")  # fmt: skip
print(f"{len(row)} tokens of text: {len(source)} in the source, {len(target)} in the target")
for length in (100, 500):
    print(f"{length} tokens: source and target have {lengths(length)}; T5 cuts out 15 %, in spans of 3 on average")

# %% [markdown]
# Each mark costs a token on both sides. In return the decoder writes a short text instead of the whole one. T5's paper
# compares many such objectives (§3.3): they differ little, but those with short targets train faster. In T5 *every*
# task is a text: a classifier writes the name of the class.
#
# ## Common mistakes, and what they look like
#
# **−100 is taken for an id.** NumPy counts negative indices from the end. With a vocabulary of 100 words or more,
# `log_p[..., -100]` is a word near its end, and nothing complains. The loss is then mostly about that word:

# %%
print(f"logits[..., {IGNORED}] is the score of “{vocabulary[IGNORED]}”")
log_p = np.log(softmax(bert.forward(test_seen, mask=real_test)[0]))
careless = -np.take_along_axis(log_p, test_asked[..., None], axis=2).mean()
print(f"with −100 as an id {careless:.2f}, right {tested[STEPS]:.2f}")
print(f"divided by all places {tested[STEPS] * np.mean(test_asked != IGNORED):.2f}: the same model, and looks better")

# %% [markdown]
# **The mean is taken over all places.** The last line above looks good because most of its terms are 0. The gradient is
# smaller by the same factor. Adam would cancel a constant factor, but this one varies: a batch with much padding has
# fewer targets for its places, so it counts less.
#
# **The test set is masked anew for each test.** Then part of the progress is luck. Mask it once. The training set needs
# the opposite: masked once, each sentence has the same gaps in every epoch. BERT's authors made ten copies with
# different masks; RoBERTa draws new ones each time, as we do.
#
# ## What changed since 2017 (optional)
#
# BERT came in October 2018, with 110 and 340 million parameters, and led eleven benchmarks. Its order of training,
# first much text without labels and then few labels, was that of the first GPT (Radford and others 2018). Its question
# was new: gaps train a model that reads both ways in every layer. RoBERTa (2019) trained longer, on more text. ELECTRA
# (Clark and others 2020) replaces words by those of a small model and asks at *every* place whether the word is the
# original one, so all places teach. T5 (2020) made all tasks text. Then models that only predict the next token grew so
# large that a description of a task was enough (Brown and others 2020), and most of the field went that way. Encoders
# remain where texts are read and not written: search, classification, and vectors for texts. A recent one is ModernBERT
# (Warner and others 2024), with rotary positions and 30 % of the tokens masked.
#
# Sources: Devlin, Chang, Lee and Toutanova 2019, *BERT: Pre-training of deep bidirectional transformers for language
# understanding*; Raffel and others 2020, *Exploring the limits of transfer learning with a unified text-to-text
# transformer*; Liu and others 2019, *RoBERTa: A robustly optimized BERT pretraining approach*.
#
# ### Open projects (optional)
#
# * Mask 5 %, 15 %, 30 % and 50 % at equal steps. Which fills gaps best when one word is hidden? Which gives the best
#   start for "Is anything plural?"
# * Freeze the encoder and train only the head, on `[CLS]` and on the mean over all tokens. How much of fine-tuning's
#   gain comes from the encoder?
# * Find a question of the grammar for which pre-training should help, and one for which it should not, before you
#   measure. `e.constructions` has the names.
#
# ## Where next
#
# The command line trains and uses such models: `python -m minitransformer train --help` (`--kind bert`), then `fill`
# and `classify`. [Lesson 22](22_vit.ipynb) takes this encoder with its `[CLS]`, and gives it images.
