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
# A decoder writes from left to right, so its attention is [causal](glossary.md#causal): a position sees what came
# before it, and nothing else. But a reader may look ahead. Read "the sheep sleeps" and "the sheep sleep": only the word
# *after* "sheep" says how many there are. A causal model has to build its vector for *sheep* without knowing that.
# **What would happen if a model could read the whole sentence, both ways?** It is easy to try: take the causal mask
# away. Let us do that, and see what goes wrong.

# %%
import re
from itertools import islice

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from course import start
from course.lesson_21.pictures import draw_cheat, draw_fine_tuning, draw_objectives, draw_pretraining, draw_spans
from minitransformer.data.spans import corrupt, lengths
from minitransformer.gradcheck import check_gradients, error
from minitransformer.grammar import sample
from minitransformer.inside import attention_maps
from minitransformer.layers import Context
from minitransformer.models import BERT, GPT, IGNORED, BERTConfig, GPTConfig
from minitransformer.ops import cross_entropy_backward, cross_entropy_forward, layernorm_forward
from minitransformer.training.optimizer import Adam, Schedule, clip_scale

check = start("21")
threadpool_limits(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## The picture: three ways to ask
#
# A row is a question, and a column is a token of the input. A square is blue if the model may see that token when it
# answers that question. `[CLS]` and `[SEP]` stand before and after each sentence, as `<s>` and `</s>` did so far; these
# are BERT's names for them.

# %% tags=["picture"]
WORDS = ("[CLS]", "the", "sheep", "sleep", "in", "the", "garden", "[SEP]")
draw_objectives(WORDS, hidden=(2, 6))
plt.show()

# %% [markdown]
# On the left is the decoder of lesson [08](08_model.ipynb). In the middle its causal mask is gone. Now the answer to
# each question is one of the inputs: the token after *the* is *sheep*, and there it stands, one place to the right. On
# the right is the idea of this lesson: hide some tokens, and ask for these.
#
# ## The middle one, in a training
#
# We take short English sentences from the grammar (lesson [02](02_text.ipynb)), in lower case, and give each word a
# number. Whole words make the pictures and the gaps easy to read.

# %%
PAD, CLS, SEP, FIRST_WORD = 0, 1, 2, 3
MOST_WORDS = 9


def words_of(text):
    """The words and punctuation marks of a sentence, in lower case."""
    return re.findall(r"[\w'-]+|[.,?]", text.lower())


def short(split, count):
    """The first `count` sentences of a split with at most MOST_WORDS words."""
    return list(islice((e for e in sample(split, 0) if len(words_of(e.english)) <= MOST_WORDS), count))


train_set = short("train", 12_000)
vocabulary = ["<pad>", "[CLS]", "[SEP]", *sorted({w for e in train_set for w in words_of(e.english)}), "[MASK]"]
number_of = {word: number for number, word in enumerate(vocabulary)}
V, MASK = len(vocabulary), len(vocabulary) - 1
test_set = [e for e in short("test", 1000) if all(w in number_of for w in words_of(e.english))]


def encode(texts):
    """Sentences → ids (B, T): [CLS] words [SEP], padded."""
    ids = np.full((len(texts), MOST_WORDS + 2), PAD)
    for row, text in zip(ids, texts, strict=True):
        tokens = [CLS, *(number_of[word] for word in words_of(text)), SEP]
        row[: len(tokens)] = tokens
    return ids


train_ids, test_ids = (encode([e.english for e in examples]) for examples in (train_set, test_set))
print(f"{len(train_set):,} sentences to learn from, {len(test_set):,} to test, a vocabulary of {V}")
print(train_set[0].english, train_ids[0])

# %% [markdown]
# Two models of one size. The first is a decoder alone, a language model. The second is an encoder: the same layers
# without the causal mask. Both are asked for the next token at every place. A target of −100, `IGNORED`, means that
# nothing is asked there.

# %%
SIZE = {"d_model": 64, "num_heads": 4, "d_ff": 128, "num_layers": 2, "max_length": MOST_WORDS + 2}
PLAIN = {"dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.05}


def next_tokens(ids):
    """The token after each, (B, T); IGNORED where there is none."""
    targets = np.full_like(ids, IGNORED)
    targets[:, :-1] = np.where(ids[:, 1:] == PAD, IGNORED, ids[:, 1:])
    return targets


def train(model, batch_of, steps, peak_lr=3e-3, warmup=100, watch=None):
    """Train a model, in place; batch_of() gives the arguments of its loss. → the losses of the batches."""
    optimizer, schedule, losses = Adam(model.parameters, model.ops), Schedule(peak_lr, warmup), []
    for step in range(1, steps + 1):
        model.parameters.grad[...] = 0
        loss, cache = model.loss(**batch_of())
        model.loss_backward(1.0, cache)
        optimizer.step(schedule(step), clip_scale(optimizer.grad_norm(), 1.0))
        losses.append(float(loss))
        if watch is not None:
            watch(step)
    return losses


def some(ids, count=64):
    """Rows of ids, drawn by chance."""
    return ids[rng.integers(len(ids), size=count)]


def next_batch(model):
    ids = some(train_ids)
    arguments = {"ids": ids, "targets": next_tokens(ids)}
    # Padding is at the right end, where a causal model never looks; the other one must be told.
    return arguments if model is causal else arguments | {"mask": ids != PAD}


causal = GPT(GPTConfig(V, **SIZE, **PLAIN))
both_ways = BERT(BERTConfig(V, **SIZE, **PLAIN, mask_id=MASK))
names = {"what came before": causal, "everything": both_ways}
curves = {f"sees {name}": train(model, lambda model=model: next_batch(model), 300) for name, model in names.items()}

# %% [markdown]
# The test is: what does each say about the next token of a test sentence? First with the whole sentence in view, as in
# training. Then with the beginning alone, as it is when a model *writes* and the next token does not exist yet.


# %%
def loss_with_everything(model):
    logits, _ = model.forward(test_ids, mask=test_ids != PAD)
    return float(cross_entropy_forward(logits, next_tokens(test_ids), ignore_index=IGNORED)[0])


def loss_with_beginnings(model):
    """Each next token is asked for with the tokens before it as the only input."""
    total = count = 0
    for t in range(test_ids.shape[1] - 1):
        beginnings, wanted = test_ids[:, : t + 1], test_ids[:, t + 1]
        rows = wanted != PAD
        logits, _ = model.forward(beginnings[rows], mask=beginnings[rows] != PAD)
        loss, _ = cross_entropy_forward(logits[:, -1], wanted[rows])
        total, count = total + float(loss) * rows.sum(), count + rows.sum()
    return total / count


tests = {
    f"sees {name}": {"whole sentence": loss_with_everything(model), "beginning alone": loss_with_beginnings(model)}
    for name, model in names.items()
}
draw_cheat(curves, tests, floor=np.log(V))
plt.show()

weights = np.stack(list(attention_maps(both_ways, test_ids, mask=test_ids != PAD).values()))  # (layers, B, H, T, T)
ahead = np.diagonal(weights, 1, axis1=3, axis2=4)  # (layers, B, H, T − 1): from each place to the next one
real = test_ids[:, 1:] != PAD
print("weight on the next token, each head of each layer:")
print((np.einsum("lbht,bt->lh", ahead, real) / real.sum()).round(2))

# %% [markdown]
# The model that sees everything is nearly perfect after 300 steps, and has learned nothing about English. Its heads
# look one place ahead and copy what they find. Take the rest of the sentence away, and it is worse than somebody who
# gives all words the same probability. So the causal mask is not a handicap of language models: without it, there is
# nothing to predict.
#
# A model that reads both ways needs another question.
#
# ## Hide the answer
#
# BERT's question is a text with gaps (the paper calls it a *cloze* task). Of the words of a sentence 15 % are chosen to
# be **targets**. The model is asked what stood there. So that it can't simply look, the input is changed at these
# places:
#
# | of the targets | the input there becomes | why |
# |---|---|---|
# | 80 % | `[MASK]` | the answer can't be copied |
# | 10 % | any word, drawn by chance | a word in view may be wrong, so the model must check it against the others |
# | 10 % | what it was | a word in view may be right, so its vector must keep it |
#
# Why not always `[MASK]`? Because it is never there later, when the model is used: then all tokens are words. A model
# that was only ever asked at `[MASK]` may do whatever it likes at all other places. With the other two kinds of
# targets, every word in view might be asked for. (An optional section below measures what that does.)
#
# Why 15 %? Only targets teach, so more of them teach more from each sentence. But each takes away a word that the
# others need. Here, a sentence of seven words has one target.
#
# ### Exercise 1 ★★☆: mask a batch
#
# The words are the ids from 3 to `mask_id` − 1. In Python `round(0.15 * n)` rounds as wanted. Take random numbers from
# `rng` alone, which is a generator like `np.random.default_rng(0)`.


# %% tags=["exercise"]
def mask_batch(ids, mask_id, rng):
    """The input and the targets of a masked model.

    ids (B, T), integers: 0 padding, 1 [CLS], 2 [SEP], and words, 3 to mask_id − 1. Of each row's n words 15 % are
    targets, round(0.15 · n), but one at least; every choice of so many words has the same chance. For each target by
    itself: with probability 0.8 it becomes mask_id; with 0.1 it becomes a word that is drawn from 3 to mask_id − 1, all
    with the same chance (so it may be the old one); with 0.1 it stays.
    → the tuple hidden (B, T), ids with the targets changed; targets (B, T), the old ids there and −100 elsewhere; both
    are new arrays of integers.
    """
    raise NotImplementedError


# %%
mask_batch = check(mask_batch)

# %% [markdown] tags=["help"]
# Go row by row. At which places do words stand? How do you draw so many *different* ones of them? Which array do you
# read the target from, once you have begun to change the other one?
#
# ---
#
# `places = np.flatnonzero((row > 2) & (row < mask_id))`, then `rng.choice(places, count, replace=False)`. For each
# chosen place write `targets[b, t] = ids[b, t]`, and throw the dice once, `dice = rng.random()`: below 0.8 the mask,
# from there to below 0.9 the word `rng.integers(3, mask_id)`, else nothing happens.


# %%
def shown(row):
    return " ".join(vocabulary[token] for token in row if token != PAD)


for row in test_ids[:3]:
    print("the text    ", shown(row))
    for _ in range(2):
        seen, asked = mask_batch(row[None], MASK, rng)
        print("  model sees", shown(seen[0]), "   asked:", ", ".join(vocabulary[id] for id in asked[asked != IGNORED]))

seen, asked = mask_batch(train_ids, MASK, rng)
chosen = asked != IGNORED
fates = [(seen == MASK)[chosen].mean(), (seen == train_ids)[chosen].mean()]
print(f"\n{chosen.sum() / (train_ids > SEP).sum():.1%} of the words are targets (short rows are rounded); of these "
      f"{fates[0]:.1%} are masked, {fates[1]:.1%} are what they were, {1 - sum(fates):.1%} another word")  # fmt: skip

# %% [markdown]
# ## A loss at some places
#
# The encoder gives a vector for every place, `hidden` of shape $(B, T, C)$. The loss asks at $N$ places only, the set
# $M$ of all pairs $(b, t)$ that are targets. As in lesson [08](08_model.ipynb), logits are products with the table of
# embeddings:
#
# $$ L = -\frac{1}{N} \sum_{(b,t) \in M} \log \mathrm{softmax}\big(h_{bt}\, E^\top\big)_{y_{bt}} $$
#
# with $h_{bt}$ the vector of a place, $E$ the table $(V, C)$, and $y_{bt}$ the target. In loops, and without:


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
# Only the chosen rows meet the table. That saves most of the work of the output layer, and for a large vocabulary the
# output layer is a large part of all work.
#
# ### Exercise 2 ★☆☆: the gradient of a loss at some places
#
# Picking rows out is a copy to a new place, so its backward carries the gradients back to where the rows came from.
# What is the gradient of a row that nobody picked? From the package you may use
# `cross_entropy_forward(logits, targets)`, which gives the loss and a cache, and
# `cross_entropy_backward(dloss, cache)`, which gives the gradient of the logits.


# %% tags=["exercise"]
def masked_loss_backward(dloss, hidden, table, targets):
    """Gradients of masked_loss(hidden, table, targets), times the number dloss.

    hidden (B, T, C), table (V, C), targets (B, T): ids, or −100 where nothing is asked. Where nothing is asked at all,
    the loss is 0 and so are all gradients. → the tuple dhidden (B, T, C), dtable (V, C).
    """
    raise NotImplementedError


# %%
masked_loss_backward = check(masked_loss_backward)

# %% [markdown] tags=["help"]
# Write the forward's lines once more, and keep the cache. There are three: pick, multiply, loss. Undo them from the
# last to the first. What shape does each gradient have? By which number is the loss divided, and who does that?
#
# ---
#
# `dlogits = cross_entropy_backward(dloss, cache)` is $(N, V)$, and divided by $N$ already. Then `dlogits @ table` is
# the gradient of the rows, `dlogits.T @ rows` that of the table. Begin with `dhidden = np.zeros_like(hidden)`, and put
# the rows back with `dhidden[chosen] = …`.

# %%
checked = check_gradients(
    lambda hidden, table: (masked_loss(hidden, table, asked), (hidden, table)),
    lambda dloss, cache: masked_loss_backward(float(dloss), *cache, asked),
    {"hidden": hidden, "table": table},
    samples=300,
)
dhidden, dtable = masked_loss_backward(1.0, hidden, table, asked)

_, cache = cross_entropy_forward(hidden @ table.T, asked, ignore_index=IGNORED)  # the package, over all places
dlogits = cross_entropy_backward(1.0, cache)  # (B, T, V): V numbers for each place, most of them 0
print(f"central differences: dhidden {checked['hidden']:.1e}, dtable {checked['table']:.1e}")
print(f"the package, over all places: {error(dhidden, dlogits @ table):.1e}, "
      f"{error(dtable, np.einsum('btv,btc->vc', dlogits, hidden)):.1e}")  # fmt: skip
print(f"places with a gradient: {dhidden.any(axis=-1).sum()} of {asked.size}, for {(asked != IGNORED).sum()} targets")

# %% [markdown]
# Does a word learn nothing, then, if it is not asked? It does learn. Its own row of `dhidden` is 0, but the encoder
# made the vector of the gap from the vectors of the *others*: attention carries the gradient from the gap back to every
# word that the gap looked at.
#
# ## What goes in
#
# BERT reads one text or two: `[CLS] a question [SEP] an answer [SEP]`. So that it knows which token belongs to which,
# each gets a [**segment**](glossary.md#segment), 0 or 1, and each segment has a learned vector. The input of the first
# layer is a sum of three rows (§3 and figure 2 of BERT's paper), normalised (which only its code says):
#
# $$ x_t = \mathrm{LayerNorm}\big(E[\mathrm{id}_t] + S[\mathrm{segment}_t] + P[t]\big) $$


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
# In the formula $E$ is the table of tokens, $S$ that of segments and $P$ that of positions; all are learned. Then come
# the layers of the paper's encoder, post-norm, with one change: the feed-forward network has a GELU in place of the
# ReLU. That is $x\,\Phi(x)$, where $\Phi(x)$ is the probability that a standard normal number is below $x$: a ReLU with
# a round corner. The **masked head** on top is a linear map, a GELU, a layer norm, the product with the table and a
# bias for each word. Our sentences stand alone, so all segments are 0.
#
# (BERT had a second objective, **next-sentence prediction**: does text B follow text A, or is it from elsewhere? A
# classifier of `[CLS]` had to say. RoBERTa (Liu and others 2019) left it out, and nothing was lost. We leave it out,
# too.)
#
# ## Pre-training
#
# No labels are needed, only text. Each time a sentence comes, other words of it are hidden.

# %%
STEPS, EVERY, EARLY = 2000, 200, 800
test_seen, test_asked = mask_batch(test_ids, MASK, np.random.default_rng(9))
real_test = test_ids != PAD


def masked_batch():
    ids = some(train_ids)
    seen, asked = mask_batch(ids, MASK, rng)
    return {"ids": seen, "targets": asked, "mask": ids != PAD}


tested, early = {}, None


def watch(step):
    global early
    if step % EVERY == 0:
        tested[step] = float(bert.loss(test_seen, test_asked, mask=real_test, with_grad=False)[0])
    if step == EARLY:
        early = bert.parameters.data.copy()


bert = BERT(BERTConfig(V, **SIZE, **PLAIN, mask_id=MASK))
losses = train(bert, masked_batch, STEPS, watch=watch)

counts = np.bincount(train_ids[train_ids > SEP], minlength=V) + 1e-9
frequencies = -np.log(counts / counts.sum())[test_asked[test_asked != IGNORED]].mean()
draw_pretraining(losses, tested, frequencies)
plt.show()
print(f"{bert.parameters.count:,} parameters; test loss {tested[STEPS]:.2f} nats a gap: as if it were undecided among "
      f"{np.exp(tested[STEPS]):.0f} words, where the frequencies leave {np.exp(frequencies):.0f}")  # fmt: skip

# %% [markdown]
# It can't come near 0: in "the [MASK] sleeps" very many nouns are right. What it *can* learn is what the gap has to be.
# Each of these gaps is decided by the words around it, and all but one of them by words to its right:


# %%
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def fill(model, text):
    """The probabilities of all words for the one [MASK] in a text, (V,)."""
    tokens = [CLS, *(MASK if w == "[MASK]" else number_of[w] for w in text.split()), SEP]
    logits, _ = model.forward(np.array([tokens]))
    return softmax(logits[0, tokens.index(MASK)])


for text in (
    "the [MASK] sleeps .",
    "the [MASK] sleep .",
    "[MASK] men see the dog .",
    "[MASK] man sees the dog .",
    "she [MASK] not see the dog .",
    "[MASK] she see the dog ?",
):
    probabilities = fill(bert, text)
    best = np.argsort(-probabilities)[:5]
    print(f"{text:<30}", ", ".join(f"{vocabulary[w]} {probabilities[w]:.2f}" for w in best))

# %% [markdown]
# Nobody told the model that a noun is singular or plural. But a model that knows this of every noun has a lower loss,
# because the verb agrees with the noun.
#
# ## Fine-tuning: one vector for a whole text
#
# Now the second half of BERT's idea. The model has learned from text without labels. For a task with labels, such as
# "how many?", take the head off, put a small new one on, and go on training *all* weights for a short while.
#
# The new head must read a whole text. BERT reads it at the first token. `[CLS]` is no word and stands in every text, so
# its vector is free to collect what all tokens say. A linear map and a tanh, the [**pooler**](glossary.md#pooler), and
# one more linear map make $K$ logits of it, one for each class:
#
# $$ z = h_0 W_p + b_p \qquad p = \tanh(z) \qquad \mathrm{logits} = p\, W_c + b_c $$
#
# with $h_0$, $z$ and $p$ of shape $(B, C)$, and the logits $(B, K)$.


# %%
def class_head(hidden, w_pool, b_pool, w_class, b_class):
    """hidden (B, T, C), w_pool (C, C), b_pool (C,), w_class (C, K), b_class (K,) → logits (B, K)."""
    pooled = np.tanh(hidden[:, 0] @ w_pool + b_pool)  # (B, C)
    return pooled @ w_class + b_class


# %% [markdown]
# ### Exercise 3 ★★☆: back through [CLS]
#
# Where does the gradient enter the encoder? At one place of each text. The tanh's slope is
# $\tanh'(z) = 1 - \tanh^2(z)$; it needs only the output.


# %% tags=["exercise"]
def class_head_backward(dlogits, hidden, w_pool, b_pool, w_class):
    """Gradients of class_head(hidden, w_pool, b_pool, w_class, b_class).

    dlogits (B, K) → the tuple dhidden (B, T, C), dw_pool (C, C), db_pool (C,), dw_class (C, K), db_class (K,).
    What the forward computed on its way you may compute again.
    """
    raise NotImplementedError


# %%
class_head_backward = check(class_head_backward)

# %% [markdown] tags=["help"]
# From the last line to the first: the linear map of the classes, the tanh, the linear map of the pooler, and the choice
# of the first token. For each linear map there are three gradients (lesson 00). Which tokens did the head not read?
#
# ---
#
# `dpooled = dlogits @ w_class.T`, then `dz = dpooled * (1 - pooled**2)`. `dw_pool` is `hidden[:, 0].T @ dz`. Begin with
# `dhidden = np.zeros_like(hidden)`; only `dhidden[:, 0]` becomes something else.

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
# * **Is somebody or something plural?** There may be one noun or several.
# * **Is it about the past?** The verb says so: *wrote*, *did not write*.
#
# Imagine that labels are expensive: only 50, 200 or 800 sentences have one. Two models are trained on them, for equally
# many steps, with equal batches. One begins with the pre-trained encoder, the other one from scratch. The heads are new
# in both. We do so twice, with other sentences and other random weights.

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
plt.show()
for question, scores in results.items():
    for name, found in scores.items():
        print(f"{question:<22} {name:<13}" + "".join(f"{100 * each.mean():8.1f} %" for each in found))

# %% [markdown]
# The two questions have different answers.
#
# **Plural: pre-training is worth much.** Why? Does the model from scratch not learn its labelled sentences? Or does it
# not know the words that never had a label?

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
# It is neither. Both models know their labelled sentences by heart. And the model from scratch is hardly better where
# it has seen every word with a label. With 200 sentences there are many ways to get all labels right, and it has found
# one that holds for these sentences only. The pre-trained model had to know the number of a noun in order to fill the
# gaps of thousands of sentences. In its vectors number is something that nouns, articles and verbs have in common. So a
# few labels are enough to *name* what it knows, and the name also fits words that never had a label.
#
# **Past: pre-training is worth nothing, or less.** Why? Ask what it takes to fill a gap. Articles, numerals and nouns
# have to fit each other, and so do a verb in the present and its subject: number is needed all the time. And tense?
# *The dog [MASK] the man* may be *sees* or *saw*: nothing tells which, unless a time stands in the sentence, such as
# *yesterday*.

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
# *Sleeps* is nearer to *slept* than to *sleep*, and *does* is nearer to *did* than to *do*: here number keeps words
# apart, and tense hardly does. **Pre-training gives what its objective needed.** What the objective could do without
# has to come from the labels. The model from scratch finds single words such as *did* with few labels. The pre-trained
# one needs more of them, because it begins with vectors in which *did* is much like *does*. (Real text is richer than
# our grammar. There a whole story is in the past, and a word at its beginning tells the tense at its end.)
#
# ## Always [MASK]? (optional)
#
# What do the 10 % by chance and the 10 % that stay do? Train once more, for 800 steps, with *all* targets masked, and
# compare with our model as it was after 800 steps. The question is: what does a model say about a word that it *sees*?


# %%
def always_masked():
    batch = masked_batch()
    return batch | {"ids": np.where(batch["targets"] == IGNORED, batch["ids"], MASK)}


only_masks, mixed = BERT(bert.config), BERT(bert.config)
train(only_masks, always_masked, EARLY)
mixed.parameters.data[...] = early

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
# Both fill gaps about equally well. But at a word in view, the model that was only ever asked at masks hardly says that
# word: nobody asked it there. The other one gives that word far more probability where the word fits, and next to none
# where it does not. So its vectors of words say what a word is and whether it fits, and a classifier reads these
# vectors.
#
# ## Gaps of several words: T5 (optional)
#
# BERT asks for one token at each gap, so the reader knows how long a gap is. And an encoder alone can't write. T5 goes
# back to the paper's encoder–decoder. Whole **spans** are cut out of the text, and a mark, a
# [**sentinel**](glossary.md#sentinel), stands for each. The decoder writes what was cut, span after span. It is
# causal, so the next token is an honest question again:

# %%
row = np.concatenate([ids[ids > SEP] for ids in test_ids[4:9]])
names = [*vocabulary, "<2>", "<1>", "<0>"]  # the marks are the last ids, and the first gap has the very last
source, target = corrupt(row, len(names), np.random.default_rng(5))
draw_spans([names[id] for id in source], [names[id] for id in target])
plt.show()
print(f"{len(row)} tokens of text: {len(source)} in the source, {len(target)} in the target")
for length in (100, 500):
    print(f"{length} tokens: source and target have {lengths(length)}; T5 cuts out 15 %, in spans of 3 on average")

# %% [markdown]
# Each mark costs a token on both sides. In return the decoder writes a short text and not the whole one. T5's paper
# compares many such objectives (§3.3): they differ little, but those with short targets train faster. In T5 *every*
# task is a text: a classifier writes the name of the class.
#
# ## Common mistakes, and what they look like
#
# **−100 is taken for an id.** NumPy counts negative indices from the end. With a vocabulary of 100 words or more,
# `log_p[..., -100]` is a word near its end, and nobody complains. The loss is then mostly about that word:

# %%
print(f"logits[..., {IGNORED}] is the score of “{vocabulary[IGNORED]}”")
logits, _ = bert.forward(test_seen, mask=real_test)
log_p = np.log(softmax(logits))
b, t = np.indices(test_asked.shape)
careless = -log_p[b, t, test_asked].mean()
right = -log_p[b, t, np.maximum(test_asked, 0)][test_asked != IGNORED].mean()
summed = -log_p[b, t, np.maximum(test_asked, 0)][test_asked != IGNORED].sum()
print(f"with −100 as an id {careless:.2f}, right {right:.2f}")
print(f"divided by all places {summed / test_asked.size:.2f}: looks far better, and is the same model")

# %% [markdown]
# **The mean is taken over all places.** That is the last line above: the loss looks good because most of its terms are
# 0. The gradient is smaller by the same factor. Adam divides a constant factor out, but this one is not constant: a
# batch with much padding has fewer targets for its places, so it counts less than others.
#
# **The test set is masked anew for each test.** Then a part of what looks like progress is luck with the gaps. Mask it
# once, and keep it:

# %%
again = [mask_batch(test_ids, MASK, np.random.default_rng(seed)) for seed in range(6)]
tests_again = [float(bert.loss(seen, asked, mask=real_test, with_grad=False)[0]) for seen, asked in again]
print("one model, one test set, six maskings:", ", ".join(f"{loss:.2f}" for loss in sorted(tests_again)))

# %% [markdown]
# **The same gaps in every epoch.** If a data set is masked once, before the training, the model sees each sentence with
# one gap for ever. BERT's authors made ten copies with different masks; RoBERTa draws anew each time, as we do.
#
# **A classifier of `[CLS]` without fine-tuning.** The masked objective never asks at `[CLS]`, so its vector need not
# mean anything before the fine-tuning. For vectors without a fine-tuning, people often take the mean over all tokens.
#
# ## What changed since 2017
#
# BERT came a year after the paper, in October 2018, with 110 and 340 million parameters, and led eleven benchmarks. The
# order of its training, first much text without labels and then few labels, was that of the first GPT (Radford and
# others 2018). Its question was new: with gaps, one can train a model that reads both ways in every layer. RoBERTa
# (2019) trained longer, on more text, without next-sentence prediction. ELECTRA (Clark and others 2020) replaces words
# by those of a small model and asks at *every* place whether the word is the original one, so all places teach. T5
# (2020) made all tasks text. Then models that only predict the next token grew so large that they do tasks without
# fine-tuning, from a description (Brown and others 2020), and most of the field went that way. Encoders remained where
# texts are read and not written: search, classification, and vectors for texts. A recent one is ModernBERT (Warner and
# others 2024), with rotary positions, and 30 % of the tokens masked.
#
# Sources: Devlin, Chang, Lee and Toutanova 2019, *BERT: Pre-training of deep bidirectional transformers for language
# understanding*; Raffel and others 2020, *Exploring the limits of transfer learning with a unified text-to-text
# transformer*; Liu and others 2019, *RoBERTa: A robustly optimized BERT pretraining approach*.
#
# Open projects, to try yourself:
#
# * Mask 5 %, 15 %, 30 % and 50 % at equal steps. Which fills gaps best when one word is hidden? Which gives the best
#   start for "Is anything plural?"
# * Freeze the encoder and train the head alone, on `[CLS]` and on the mean over all tokens. How much of the fine-tuning
#   was the encoder's?
# * Find a question of the grammar for which pre-training should help, and one for which it should not, before you
#   measure. `e.constructions` has the names.
#
# ## Where next
#
# The command line trains and uses such models: `python -m minitransformer train --help` (`--kind bert`), then `fill`
# and `classify`. [Lesson 22](22_vit.ipynb) takes this encoder with its `[CLS]`, and gives it images.
