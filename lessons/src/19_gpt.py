# %% [markdown]
# # 19 · Decoder only: GPT from your own parts
#
# **You will be able to** make a language model of the parts of your Transformer, with every gradient; train it until it
# writes sentences; and say how it chooses its words. In the optional parts: write nucleus sampling, say in bits how
# good the model is, and write long texts with a cache.
#
# | | |
# |---|---|
# | you know | [the model](08_model.ipynb), [training](09_training.ipynb), [your file](18_your_transformer.ipynb) |
# | runs in | 90 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | Radford and others 2018 (GPT, §3.1) and 2019 (GPT-2, §2.3); Holtzman and others 2020 (§3.1) |
# | in the package | [`GPT`](../minitransformer/models/gpt.py), [`Sampling`](../minitransformer/decoding/sampling.py) |
#
# What would happen if we threw the encoder away? Cross-attention must go too, because there is nothing left to attend
# to. The decoder keeps its causal self-attention and its feed-forward network. It reads the beginning of a text and
# predicts the next token. Can it still translate? Put the source sentence first: then the translation continues the
# text, just as an answer continues a question. This is the bet of GPT-2: one task, *what comes next?*, contains all
# others, and every text is training data for it.

# %%
import json
import time
from itertools import islice
from pathlib import Path

import numpy as np

from course import answers, start
from course.lesson_18.assembly import imported, write
from course.lesson_18.trials import gradient_errors
from course.lesson_19 import pictures as draw
from course.lesson_19.loop import train
from course.measuring import blas_threads
from course.style import show
from minitransformer.data import BPETokenizer
from minitransformer.gradcheck import error
from minitransformer.grammar import sample, translate
from minitransformer.models import GPT, GPTConfig
from minitransformer.ops import gelu_backward, gelu_forward
from minitransformer.training.checkpoint import Checkpoint, save_checkpoint

check = start("19")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## The picture: what goes, what moves, what stays

# %% tags=["picture"]
draw.two_blocks()
show(
    "On the left a layer of the paper's decoder: the encoder and cross-attention are grey, because they go, and the "
    "norms stand on the residual stream. On the right GPT-2: a norm before each sub-layer and one after the last block."
)

# %% [markdown]
# On the left is a layer of the paper's decoder; the grey parts are thrown away. On the right is what GPT-2 makes of the
# rest.
#
# * The norm has moved. It no longer stands on the [*residual stream*](glossary.md#residual-stream), but at the entrance
#   of each sub-layer ([pre-norm](glossary.md#post-norm-pre-norm), lesson 08).
# * Two things are new: a final norm after the last block, because nothing else normalises the residual stream; and a
#   learned table $P$ of positions in place of the sinusoids.
# * The table of tokens, $E$, is used at both ends: it gives the embeddings at the bottom, and the logits at the top.
#
# ## The text: every position is an example
#
# Our text is 20,000 English sentences of the course's grammar, one after another, each with the end mark `</s>`. The
# tokens of a byte-pair encoding (lesson 02) lie in one long array, the *stream*.

# %%
EOS = 2
sentences = [example.english for example in islice(sample("train", 0), 20_000)]
tokenizer = BPETokenizer.train(sentences[:4000], 1500)
stream = np.array([token for sentence in sentences for token in (*tokenizer.encode(sentence), EOS)])
V, T = tokenizer.vocab_size, 32
print(f"{len(stream):,} tokens, a vocabulary of {V:,}; they begin with")
print(" ".join(token.replace("▁", "_") for token in tokenizer.tokens(stream[:24])))


# %% [markdown]
# A translator's batch holds sentences, filled up with padding. A [language model](glossary.md#language-model) needs
# neither: cut the stream into rows of $T$ tokens, wherever the cut falls. The target of a position is the token after
# it: the same stream, one place later.


# %%
def rows_of(stream, T, first=0):
    """The stream from token `first` on, cut into rows: ids (N, T) and targets (N, T), the token after each."""
    N = (len(stream) - 1 - first) // T  # the last target needs one token more
    cut = stream[first : first + N * T + 1]
    return cut[:-1].reshape(N, T), cut[1:].reshape(N, T)


ids, targets = rows_of(stream, T)
print(f"{len(ids):,} rows of {T}: {ids.size:,} positions, and each is an example")
draw.row_of_examples(tokenizer.tokens(ids[0, :10]), tokenizer.tokens(targets[0, :10]))
show("Ten lines: each has one token more than the line above, and the token after it in red, which has to be guessed.")

# %% [markdown]
# Each line of the picture is a training example. A row of 32 tokens holds 32 of them, and one forward pass answers them
# all. This is teacher forcing (lesson 03), and the causal mask keeps it honest. A row may begin in the middle of a
# sentence; only `</s>` tells the model where one ends. Each epoch begins at another `first`, so that the cuts move.
#
# ## The block
#
# We import the file of lesson 18. For parts that you have not written, the course's stand in:

# %%
mine = imported(write())


# %% [markdown]
# The file's `Layers` have all that we need, each with its backward. GPT-2 changes only the activation of the
# feed-forward network: [**GELU**](glossary.md#gelu) (Hendrycks and Gimpel 2016) is $x\,\Phi(x)$, where $\Phi(x)$ is the
# probability that a standard normal number is below $x$. It is a ReLU without a corner. GPT-2 approximates $\Phi$ by a
# formula with a tanh; the package's [`gelu`](../minitransformer/ops/elementwise.py) has it and its derivative.


# %%
class GPTLayers(mine.Layers):
    """The file's layers, with GELU. A backward takes (gradient, cache) and adds to `self.gradients`."""

    def feed_forward(self, name, x):
        hidden, expand = self.linear(f"{name}.expand", x)  # (B, T, F)
        active, gelu = gelu_forward(hidden, approximate="tanh")
        y, contract = self.linear(f"{name}.contract", active)
        return y, (expand, gelu, contract)

    def feed_forward_backward(self, dy, cache):
        expand, gelu, contract = cache
        dhidden = gelu_backward(self.linear_backward(dy, contract), gelu)
        return self.linear_backward(dhidden, expand)


draw.activations(np.linspace(-4, 4, 201), lambda x: gelu_forward(x, approximate="tanh"))
show(
    "GELU follows ReLU far from zero; near zero it bends smoothly, dips a little below zero, and its slope has no jump."
)

# %% [markdown]
# And this is the block, $x \leftarrow x + f(\mathrm{LN}(x))$ twice:


# %%
def block_forward(layers, name, x, mask):
    """x (B, T, C) → (B, T, C), and the caches of the four parts. mask (T, T): True where a position may look."""
    h, first_norm = layers.norm(f"{name}.self_attention_norm", x)
    out, self_attention = layers.self_attention(f"{name}.self_attention", h, mask)
    x = x + out
    h, second_norm = layers.norm(f"{name}.feed_forward_norm", x)
    out, feed_forward = layers.feed_forward(f"{name}.feed_forward", h)
    return x + out, (first_norm, self_attention, second_norm, feed_forward)


# %% [markdown]
# ### Exercise 1 ★★☆: the block's backward
#
# You need `layers.norm_backward`, `layers.self_attention_backward` and `layers.feed_forward_backward`. Each takes
# (gradient, cache) and returns the gradient of the part's input.


# %% tags=["exercise"]
def block_backward(layers, dx, cache):
    """Back through a pre-norm block.

    dx (B, T, C) is the gradient of what block_forward gave; cache is the tuple that it returned. Each backward adds to
    the gradients of the weights, so call it once. → the gradient of the block's input, (B, T, C).
    """
    raise NotImplementedError


# %%
block_backward = check(block_backward)

# %% [markdown] tags=["help"]
# Take the last line of the forward, `x + out`. Where does the gradient of this sum go? One path leads straight down.
# The other one leads through two parts: which is undone first? And what happens where the two paths meet again?
#
# ---
#
# `dh = layers.feed_forward_backward(dx, feed_forward)`, then `dx = dx + layers.norm_backward(dh, second_norm)`. The
# first half of the block is undone in the same way, with this new `dx`.

# %% [markdown]
# In the paper's layer *all* of the gradient goes through the norm first. Here `dx` comes down the residual stream
# untouched, from the final norm to the embedding, and every sub-layer only adds to it. This is why deep stacks use
# pre-norm.
#
# ## The model, and a table with two ends
#
# Below the blocks, a token becomes a vector: its row of the table, plus the row of its position in a second table.
# Above the blocks the same table makes the logits:
#
# $$ \begin{aligned}
#    &x = E[\text{ids}] + P[0 \dots T-1] \\
#    &\text{hidden} = \mathrm{LN}(\mathrm{blocks}(x)) \\
#    &\text{logits} = \text{hidden}\; E^\top
# \end{aligned} $$
#
# The table $E$, $(V, C)$, is used twice, so its gradient is a sum of two parts:
#
# $$ \mathrm{d}E \;=\; \underbrace{\sum_{b,t} \mathrm{d}\text{logits}_{bt}^\top\, \text{hidden}_{bt}}_{\text{as the
#    output layer}} \;+\; \underbrace{\sum_{b,t} \text{one-hot}(\text{ids}_{bt})^\top\, \mathrm{d}x_{bt}}_{\text{as the
#    look-up}} $$
#
# The first part is dense: the softmax pushes down all tokens that were not the answer, so every token of the vocabulary
# gets a gradient in every step. The second is sparse: it reaches only the tokens of the batch.
#
# ### Exercise 2 ★★☆: the gradient of a tied table
#
# The stack of blocks lies between the two ends. You get it as a function, `stack_backward`.


# %% tags=["exercise"]
def tied_backward(dlogits, hidden, table, positions, ids, stack_backward):
    """Gradients of both tables, for x = table[ids] + positions[:T], hidden = stack(x), logits = hidden @ table.T.

    dlogits (B, T, V), hidden (B, T, C), table (V, C), positions (longest, C), ids (B, T) of integers.
    stack_backward(dhidden) → dx, both (B, T, C); it adds to the gradients of the blocks, so call it once.
    → the tuple dtable (V, C), dpositions (longest, C).
    """
    raise NotImplementedError


# %%
tied_backward = check(tied_backward)

# %% [markdown] tags=["help"]
# Go from the top to the bottom. `logits = hidden @ table.T` is a linear map without bias: what are the gradients of its
# two factors? Which of them goes into `stack_backward`? At the bottom, a token may stand in several places: what
# happens to the gradients of all these places? And how many rows of the batch use the position 0?
#
# ---
#
# With $B$ and $T$ made one axis, `dtable = dlogits.reshape(-1, V).T @ hidden.reshape(-1, C)`. Then
# `dx = stack_backward(dlogits @ table)`. `np.add.at(dtable, ids, dx)` adds the look-up's part (lesson 02 says why
# `+=` is wrong). The gradient of the positions is `dx` summed over the batch, in the first $T$ rows.

# %% [markdown]
# Now the whole model. The names of the weights are those of the package, so each can read the other's.

# %%
TABLE, POSITIONS, LAST = "tokens.table", "decoder.embedding.positions.table", "decoder.final_norm"


class MyGPT(GPTLayers):
    """A GPT-2 over weights by name. The number of blocks follows from the names."""

    def __init__(self, weights, num_heads):
        super().__init__(weights, num_heads)
        count = sum(name.endswith("feed_forward.expand.bias") for name in weights)
        self.blocks = [f"decoder.layers.{number}" for number in range(count)]

    def forward(self, ids):
        """ids (B, T) → logits (B, T, V), and a cache."""
        T, caches = ids.shape[1], []
        x = self.weights[TABLE][ids] + self.weights[POSITIONS][:T]  # (B, T, C)
        for name in self.blocks:
            x, cache = block_forward(self, name, x, np.tri(T, dtype=bool))
            caches.append(cache)
        hidden, norm = self.norm(LAST, x)
        return hidden @ self.weights[TABLE].T, (ids, caches, norm, hidden)

    def backward(self, dlogits, cache):
        """dlogits (B, T, V): adds to the gradient of every weight."""
        ids, caches, norm, hidden = cache

        def stack_backward(dhidden):
            dx = self.norm_backward(dhidden, norm)
            for block_cache in reversed(caches):
                dx = block_backward(self, dx, block_cache)
            return dx

        tables = self.weights[TABLE], self.weights[POSITIONS]
        dtable, dpositions = tied_backward(dlogits, hidden, *tables, ids, stack_backward)
        self.gradients[TABLE] += dtable
        self.gradients[POSITIONS] += dpositions

    def loss_and_gradients(self, ids, targets):
        """The mean cross-entropy of targets (B, T); the gradients are those of this batch alone."""
        for gradient in self.gradients.values():
            gradient[...] = 0
        logits, cache = self.forward(ids)
        loss, dlogits = mine.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.ravel())
        self.backward(dlogits.reshape(logits.shape).astype(logits.dtype), cache)
        return float(loss)


# %% [markdown]
# ## Is it right?
#
# Three questions. First: does one pass over a row give the same losses as $T$ passes over its $T$ beginnings? If not, a
# position has seen something that it must not see. Second: is every gradient right, by central differences? Third: does
# the package compute the same?

# %%
config = GPTConfig(V, d_model=16, num_heads=4, d_ff=64, num_layers=2, max_length=T, eos_id=EOS)
package = GPT(config, dtype="float64", seed=0)
weights = {name: 3 * weight for name, weight in package.parameters.state_dict().items()}  # larger than at the start
package.parameters.load_state_dict(weights)
exact = MyGPT({name: weight.copy() for name, weight in weights.items()}, num_heads=4)


def surprise(logits, targets):
    """−log of the probability of each target: logits (..., V), targets (...) → (...)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=-1))
    return log_total - np.take_along_axis(shifted, targets[..., None], axis=-1)[..., 0]


at_once = surprise(exact.forward(ids[:1])[0], targets[:1])[0]  # (T,)
one_by_one = [surprise(exact.forward(ids[:1, : t + 1])[0][:, -1], targets[:1, t])[0] for t in range(T)]
print(f"{T} examples at once against one by one: {error(at_once, np.array(one_by_one)):.1e}")


batch = ids[:4], targets[:4]
errors = gradient_errors(exact, batch, rng)
worst = max(errors, key=errors.get)
print(f"{len(errors)} weights; the largest error against central differences, {errors[worst]:.1e}, is in {worst}")

loss = exact.loss_and_gradients(*batch)
package_loss, cache = package.loss(*batch)
package.loss_backward(1.0, cache)
off = {name: error(gradient, package.parameters.named[name].grad) for name, gradient in exact.gradients.items()}
print(f"against the package: loss {abs(loss - float(package_loss)):.1e}, gradients {max(off.values()):.1e}")

# %% [markdown]
# ## Training
#
# Our model has two blocks and 64 numbers a token; Adam comes from your file. The weights start as GPT-2's do: normal
# numbers with standard deviation 0.02. They are smaller by $\sqrt{2L}$ in the two matrices of a block that write into
# the residual stream, because there $2L$ outputs add up in $L$ blocks. The learning rate rises for 50 steps, then falls
# along a cosine to 0. The [loop](course/lesson_19/loop.py) is that of lesson 09.
#
# Three reference values help to read the curve. A model that knows nothing has a loss of $\ln V$. If it knows how
# frequent each token is, it reaches the *unigram* entropy; with the frequencies of neighbouring pairs, that of
# *bigrams*.

# %% tags=["long"]
B, STEPS = 24, 900
config = GPTConfig(V, d_model=64, num_heads=4, d_ff=256, num_layers=2, max_length=T, eos_id=EOS)


def fresh():
    """A model with new weights."""
    return MyGPT({name: np.array(weight) for name, weight in GPT(config, seed=0).parameters.state_dict().items()}, 4)


model = fresh()
print(f"{sum(weight.size for weight in model.weights.values()):,} parameters, {STEPS * B * T:,} examples")


def batches(seed=0):
    """Endless batches of B rows; each epoch cuts the stream elsewhere."""
    draws = np.random.default_rng(seed)
    while True:
        ids, targets = rows_of(stream, T, first=int(draws.integers(T)))
        order = draws.permutation(len(ids))
        for rows in order[: len(order) // B * B].reshape(-1, B):
            yield ids[rows], targets[rows]


def written(model, choose=mine.softmax, length=16, seed=1):
    """A text that the model writes after </s>: each token is drawn from its probabilities, and becomes input."""
    draws, ids = np.random.default_rng(seed), [EOS]
    for _ in range(length):
        logits, _ = model.forward(np.array([ids]))
        ids.append(int(draws.choice(V, p=choose(logits[0, -1].astype(np.float64)))))
    return tokenizer.decode(ids[1:]).replace("</s>", " ").replace("\n", " ")


def report(step, losses):
    if step in (1, 40, 200, STEPS):
        print(f"step {step:4}   loss {np.mean(losses[-20:]):.2f}   {written(model)}")


losses = train(model, batches(), STEPS, mine.adam_step, report)

# %%
counts, pairs = np.bincount(stream, minlength=V), np.zeros((V, V))
np.add.at(pairs, (stream[:-1], stream[1:]), 1)
per_row = pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1)
unigram = -(counts * np.log(np.maximum(counts, 1) / counts.sum())).sum() / counts.sum()
bigram = -(pairs * np.log(np.where(pairs > 0, per_row, 1))).sum() / pairs.sum()
draw.training(losses, {"nothing known: ln V": np.log(V), "unigrams": unigram, "bigrams": bigram})
show(
    "The loss falls from ln V past the unigrams within a few dozen steps, then past the bigrams, and levels off below."
)

# %% [markdown]
# First the model learns which tokens are frequent, then which ones follow each other. Below the last line it also uses
# tokens further back. The samples show the same: first any tokens, then frequent ones, then sentences.
#
# ## How good is it? Perplexity, and bits per byte (optional)
#
# We take sentences of the test split, which are not in the training text, as far as they fit into $T$ positions. The
# **perplexity** $e^{\text{loss}}$ (lesson 09) is the number of equally likely tokens among which the model is
# undecided.
#
# Perplexity has a weakness: longer tokens are fewer, and each is harder to guess. So you cannot compare the
# perplexities of models with different vocabularies. But you can compare bits: a code that spends $-\log_2 p$ bits on
# each token can write the text down exactly (a compressor works like this). Count the bits of the whole text, and
# divide by its bytes:
#
# $$ \text{bits per byte} = \frac{1}{\ln 2} \cdot \frac{\sum_t -\ln P(y_t \mid y_{<t})}{\text{number of bytes}} $$
#
# We compare three models of the same text: the first counts bytes, the second counts tokens, and the third is yours.
# Each sentence stands alone, after `</s>`; its own `</s>` counts as one byte, the line's end.

# %%
texts = [example.english for example in islice(sample("test", 0), 400)]
encoded = [[EOS, *tokenizer.encode(text), EOS] for text in texts]
texts, encoded = zip(*((text, row) for text, row in zip(texts, encoded, strict=True) if len(row) <= T + 1), strict=True)
num_bytes = sum(len(text.encode()) + 1 for text in texts)


def nats(row):
    """The surprise at a whole sentence, −log of its probability: the sum over its tokens."""
    row = np.array([row])
    return surprise(model.forward(row[:, :-1])[0].astype(np.float64), row[:, 1:]).sum()


every_byte = np.frombuffer("\n".join(sentences).encode(), np.uint8)
byte_shares = (np.bincount(every_byte, minlength=256) + 1) / (len(every_byte) + 256)  # one of each, so that none is 0
token_shares = (counts + 1) / (counts + 1).sum()
tokens = np.concatenate([row[1:] for row in encoded])
models = {
    "counts bytes": (
        -np.log(byte_shares[np.frombuffer(("\n".join(texts) + "\n").encode(), np.uint8)]).sum(),
        num_bytes,
    ),
    "counts tokens": (-np.log(token_shares[tokens]).sum(), len(tokens)),
    "yours": (sum(nats(row) for row in encoded), len(tokens)),
}
print(f"{len(texts)} sentences, {num_bytes:,} bytes\n\n{'model':<15} perplexity   bits per byte")
for name, (total, count) in models.items():
    print(f"{name:<15} {np.exp(total / count):10.1f} {total / np.log(2) / num_bytes:15.2f}")

# %% [markdown]
# By perplexity the first model is clearly better than the second. But it has to choose at every byte, and the second
# only once in several bytes. In bits per byte the second is better, and this comparison is fair.
#
# ## Nothing twice: the cache (optional)
#
# `written` computes the whole text again for each token. Lesson 11's cache avoids this for a single new position. Here
# the [*prompt*](glossary.md#prompt) goes through the same blocks, so the cache must take many new positions at once.
#
# A cache holds the keys and values of the $t$ positions so far. Now add $n$ positions. The $i$-th of them, counted from
# 0, is position $t + i$ of the text. So it sees $t + i + 1$ keys: the whole cache, and the new ones up to itself.

# %%
draw.piece(cached=5, new=3)
show("The last three rows of a triangle: each new query sees all cached keys, and the new keys up to its own position.")

# %% [markdown]
# With an empty cache this is the triangle of training. With one new position it is the step of lesson 11, without a
# mask. In general it is the last $n$ rows of the whole triangle.
#
# ### Exercise 3 ★★☆: a piece of the text, with a cache (optional)


# %% tags=["exercise"]
def cached_attention(query, key, value, keys, values):
    """Causal self-attention of n new positions, given the keys and values of the t before them (t may be 0).

    A position's weights are the softmax of its scores, query · key / √D, over the keys that it may see.
    query, key (B, H, n, D), value (B, H, n, Dv): of the new positions; keys (B, H, t, D), values (B, H, t, Dv).
    → the tuple mixed (B, H, n, Dv), keys (B, H, t + n, D), values (B, H, t + n, Dv), the new positions last.
    Scores in the thousands must do no harm.
    """
    raise NotImplementedError


# %%
cached_attention = check(cached_attention)

# %% [markdown] tags=["help"]
# First let the cache grow, so that the new positions can see each other. The scores then have shape $(B, H, n, t + n)$.
# In the picture, which is the last column that row $i$ may see?
#
# ---
#
# `np.tri(n, t + n, t, dtype=bool)` is the mask: row $i$ is True up to column $t + i$. Put $-\infty$ elsewhere, with
# `np.where`, and take a softmax that subtracts each row's largest score.

# %% [markdown]
# Everything else in the model works on one position alone. So the whole model with a cache is this:


# %%
def empty_cache(model, B):
    """Nothing read yet: for each block keys and values (B, H, 0, D)."""
    H, C, dtype = model.num_heads, model.weights[TABLE].shape[1], model.weights[TABLE].dtype
    return {name: (np.zeros((B, H, 0, C // H), dtype),) * 2 for name in model.blocks}


def read(model, ids, cache):
    """The next tokens of B texts, ids (B, n) → the logits (B, V) after the last of them. The cache grows."""
    past = cache[model.blocks[0]][0].shape[2]
    x = model.weights[TABLE][ids] + model.weights[POSITIONS][past : past + ids.shape[1]]
    for name in model.blocks:
        h, _ = model.norm(f"{name}.self_attention_norm", x)
        projected, _ = model.linear(f"{name}.self_attention.query_key_value", h)
        query, key, value = (mine.split_heads(part, model.num_heads) for part in np.split(projected, 3, axis=-1))
        mixed, *cache[name] = cached_attention(query, key, value, *cache[name])
        x = x + model.linear(f"{name}.self_attention.output", mine.merge_heads(mixed))[0]
        h, _ = model.norm(f"{name}.feed_forward_norm", x)
        x = x + model.feed_forward(f"{name}.feed_forward", h)[0]
    hidden, _ = model.norm(LAST, x[:, -1:])  # (B, 1, C): only the last position is asked
    return (hidden @ model.weights[TABLE].T)[:, 0]


whole, _ = exact.forward(ids[:3])
for pieces in ((T,), (1,) * T, (12, 1, 1, 18)):
    cache, stop, worst = empty_cache(exact, 3), 0, 0.0
    for n in pieces:
        logits, stop = read(exact, ids[:3, stop : stop + n], cache), stop + n
        worst = max(worst, error(logits, whole[:, stop - 1]))
    name = f"{len(pieces)} pieces" if len(pieces) > 1 else "one piece"
    print(f"in {name:<10} against the whole at once {worst:.1e}")

# %% [markdown]
# How much time does it save? We measure *one* more token, after a text of growing length, with the cache and without it
# (then `read` gets the whole text and an empty cache). The model has the same size and more positions; it need not be
# trained for this.

# %%
longer = GPTConfig(V, d_model=64, num_heads=4, d_ff=256, num_layers=2, max_length=1024)
timed = MyGPT({name: np.array(weight) for name, weight in GPT(longer).parameters.state_dict().items()}, 4)
lengths = (16, 64, 128, 256, 512)


def fastest(run, repeats=7):
    """Milliseconds of the fastest of some runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


without, with_cache = [], []
for length in lengths:
    text = rng.integers(0, V, (1, length + 1))
    cache = empty_cache(timed, 1)
    read(timed, text[:, :-1], cache)
    without.append(fastest(lambda text=text: read(timed, text, empty_cache(timed, 1))))
    with_cache.append(fastest(lambda text=text, cache=cache: read(timed, text[:, -1:], dict(cache))))
draw.cost_of_a_token(lengths, {"everything again": without, "with the cache": with_cache})
show("Without a cache the time for the next token grows with the text; with the cache it stays nearly the same.")
print(f"after {lengths[-1]} tokens the cache makes the next one {without[-1] / with_cache[-1]:.0f} times as fast")

# %% [markdown]
# Both axes are logarithmic. Without a cache the next token costs a pass over the whole text before it, and a text that
# is twice as long takes about four times as long, or more. The cache costs memory: for each token and block two vectors
# of $C$ numbers.

# %%
for name, blocks, width, context in (("yours", 2, 64, T), ("GPT-2", 12, 768, 1024), ("GPT-2, largest", 48, 1600, 1024)):
    each = 2 * blocks * width * 4
    print(f"{name:<15} {each:9,} bytes a token, {each * context / 2**20:7.3g} MiB for a text of {context:,} tokens")

# %% [markdown]
# One mistake raises no error: `np.tri(n, t + n)` is right in training, where $t = 0$. With a cache it is wrong: the
# first new position sees only one key of the whole past.

# %%
query, key, value = rng.standard_normal((3, 1, 1, 8, 4))
right, _, _ = cached_attention(query[:, :, 5:], key[:, :, 5:], value[:, :, 5:], key[:, :, :5], value[:, :, :5])
scores = query[:, :, 5:] @ key.swapaxes(-1, -2) / 2  # √D = 2
for name, offset in (("bottom right", 5), ("top left", 0)):
    weights = mine.softmax(np.where(np.tri(3, 8, offset, dtype=bool), scores, -np.inf))
    print(f"triangle at the {name:<12}: off by {error(weights @ value, right):.1e}")

# %% [markdown]
# ## Which token? Temperature, top-k, top-p
#
# The model gives a probability to every token. How do we choose one? Here is what the model expects after three texts:

# %%
CONTEXTS = ("She does not want", "The old teacher", "On Tuesday, the")


def after(text):
    """The logits (V,) of the token after a text."""
    return model.forward(np.array([[EOS, *tokenizer.encode(text)]]))[0][0, -1].astype(np.float64)


for text in CONTEXTS:
    probabilities = mine.softmax(after(text))
    best = np.argsort(-probabilities)[:5]
    listed = "  ".join(f"{tokenizer.tokens([token])[0].strip('▁')} {probabilities[token]:.2f}" for token in best)
    print(f"{text + ' …':<20} {listed}   (perplexity {np.exp(-probabilities @ np.log(probabilities)):.1f})")

# %% [markdown]
# After the first text there is hardly a choice; after the last there are about a hundred. Taking the best token
# (greedy) suits the first, but always gives the same noun in the last. Drawing from the probabilities (*sampling*)
# gives variety. But each of a thousand wrong tokens has a tiny probability, and together they have a notable one. In a
# long text one of them comes up sooner or later, and the model continues from there. There are three common remedies.
#
# [**Temperature**](glossary.md#temperature) divides the logits by $\tau$ before the softmax. Every ratio of
# probabilities becomes its power $1/\tau$:
#
# $$ p_i \propto e^{z_i / \tau} \qquad \frac{p_i}{p_j} \;\to\; \Big(\frac{p_i}{p_j}\Big)^{1/\tau} $$
#
# With $\tau < 1$ the good tokens gain, and $\tau \to 0$ is greedy. With $\tau > 1$ all become more alike.
#
# **Top-k** keeps the $k$ best tokens (Fan and others 2018). **Top-p** keeps the fewest tokens that together reach the
# probability $p$, the [*nucleus*](glossary.md#nucleus-sampling) (Holtzman and others 2020). Both set the rest to zero,
# and divide by the sum of the kept ones.

# %%
draw.temperatures({text: after(text) for text in CONTEXTS}, (0.5, 1.0, 2.0), k=10, p=0.9)
show(
    "Bars of the best forty tokens after three texts, at three temperatures. The nucleus, in dark, is small where one "
    "token is clear and large where many fit, and it grows with the temperature; top-k always keeps ten."
)

# %% [markdown]
# Each row of the picture is a context, each column a temperature. Top-k always keeps 10 here: too many where one token
# is clear, and too few where a hundred fit. The nucleus (the dark bars) is small where the model is sure, and large
# where it is not.
#
# ### Exercise 4 ★★☆: the nucleus (optional)


# %% tags=["exercise"]
def top_p(logits, p):
    """The probabilities from which nucleus sampling draws.

    logits (B, V), of which some may be −∞ or in the thousands; 0 < p ≤ 1. In each row the fewest tokens are kept, the
    best first, whose probabilities sum to p or more; all others get 0. → (B, V), each row sums to 1, and each token
    stays in its place.
    """
    raise NotImplementedError


# %%
top_p = check(top_p)

# %% [markdown] tags=["help"]
# Sort the probabilities of a row, the best first. A token is kept if those *before* it have not yet reached $p$. Why is
# that the right question, and not whether the sum *with* it is below $p$? How do you put the kept ones back in
# their places?
#
# ---
#
# `order = np.argsort(-logits, axis=-1)`, and the softmax of `np.take_along_axis(logits, order, axis=-1)`. With
# `before = cumsum − probabilities`, keep where `before < p`, divide by the sum, and put the result back into an array
# with `np.put_along_axis(result, order, kept, axis=-1)`.

# %%
for text in CONTEXTS:
    kept = top_p(after(text)[None], 0.9)[0]
    print(f"{text + ' …':<20} the nucleus of 0.9 has {np.count_nonzero(kept):3} of {V:,} tokens")
for name, choose in {
    "drawn": mine.softmax,
    "τ = 0.5": lambda z: mine.softmax(z / 0.5),
    "p = 0.9": lambda z: top_p(z[None], 0.9)[0],
}.items():
    print(f"{name:<8} {written(model, choose, length=24)}")

# %% [markdown]
# ## What does it do to the sentences? (optional)
#
# In most languages no program can say which texts are right. In ours one can: `translate` parses a sentence, and raises
# `ValueError` if the grammar cannot form it. So let the model write 300 texts side by side, at each of several
# settings, and let the parser judge. For variety we count the different words among the first 1,000.


# %%
TEXTS = 300


def texts_of(choose, count=TEXTS, seed=0):
    """Texts that the model writes after </s>, up to the next </s>; choose: logits (B, V) → probabilities (B, V)."""
    draws, cache = np.random.default_rng(seed), empty_cache(model, count)
    ids, rows = np.full((count, 1), EOS), []
    for _ in range(T):
        cumulative = np.cumsum(choose(read(model, ids, cache).astype(np.float64)), axis=-1)  # (B, V)
        drawn = draws.random((count, 1)) * cumulative[:, -1:]
        ids = (cumulative <= drawn).sum(axis=-1, keepdims=True)  # (B, 1): the token in whose share the number falls
        rows.append(ids[:, 0])
    return [tokenizer.decode(row[: (row == EOS).argmax()] if EOS in row else row) for row in np.array(rows).T]


def is_grammatical(text):
    try:
        translate(text)
    except ValueError:
        return False
    return True


def judged(choose):
    """The share of grammatical texts, and the number of different words among the first 1,000."""
    texts = texts_of(choose)
    words = " ".join(texts).split()[:1000]
    return np.mean([is_grammatical(text) for text in texts]), len(set(words))


def top_k(logits, k):
    least = np.partition(logits, -k, axis=-1)[:, -k, None]  # (B, 1): the k-th best
    return mine.softmax(np.where(logits < least, -np.inf, logits))


TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5)
by_temperature = [judged(lambda logits, tau=tau: mine.softmax(logits / tau)) for tau in TEMPERATURES]
cuts = {"top-k, k = 10": judged(lambda logits: top_k(logits, 10)), "top-p, p = 0.9": judged(lambda z: top_p(z, 0.9))}
cuts["top-p, p = 0.5"] = judged(lambda logits: top_p(logits, 0.5))
draw.grammatical(TEMPERATURES, by_temperature, cuts, TEXTS)
show(
    "The share of grammatical texts falls as the temperature rises, while the number of different words grows. With "
    "the tail cut off, more texts are grammatical than at temperature 1."
)
for name, (share, words) in (*zip((f"τ = {tau}" for tau in TEMPERATURES), by_temperature, strict=True), *cuts.items()):
    print(
        f"{name:<15} {share:4.0%} grammatical, give or take {np.sqrt(share * (1 - share) / TEXTS):.0%}; {words} words"
    )

# %% [markdown]
# A low temperature gives more correct sentences, but less variety. At higher temperatures the share of correct
# sentences falls fast, because one wrong token spoils a sentence. Even at the lowest, some sentences are wrong: there
# the model prefers the wrong token, and no sampling rule repairs this.
#
# In the right half of the picture, up and to the right is better. All three cuts give many more correct sentences than
# $\tau = 1$. Now compare the words of top-k and of the nucleus of 0.9. Top-k keeps ten nouns wherever a noun may stand.
# The nucleus keeps about a hundred there, and one token after *does not want*. So it loses far fewer words, for a
# slightly smaller gain. (In real text the tail is longer, with tens of thousands of tokens.)
#
# What does a wrong sentence look like? And does the model only repeat its training text?

# %%
warm = texts_of(mine.softmax)
good = [text for text in warm if is_grammatical(text)]
print("not of the grammar:")
for text in [text for text in warm if text not in good][:5]:
    print("  ", text)
known = set(sentences)
print(f"\nof {len(good)} grammatical sentences, {sum(text in known for text in good)} are in the training text:")
for text in good[:5]:
    print("  ", text, "→", translate(text).german)

# %% [markdown]
# The grammatical sentences are new. So the model, trained only to guess the next token, has learned rules:
# which verb form a singular subject takes, or what follows *does not want*.
#
# ## Watch it think (optional)
#
# The [explorer](../minitransformer/explorer/README.md) shows such a model at work, in a browser: type a beginning, and
# see what each block adds to a token's vector, which token the model would say after each block, and where each head
# looks. Train one from the command line, which takes some minutes, and write its page:
#
# ```bash
# python -m minitransformer train --kind gpt --dataset grammar --steps 1500 --out runs/gpt
# python -m minitransformer explore runs/gpt/step-00001500.safetensors --out gpt.html
# ```
#
# ### Yours in the explorer (optional)
#
# Your weights have the package's names. Saved with the tokenizer, in the folder `answers`, they are a checkpoint that
# the package's programs open.

# %%
path = answers.folder() / "my_gpt.safetensors"
save_checkpoint(path, Checkpoint(GPT(config).config.to_dict(), model.weights, tokenizer=tokenizer.to_json()))
print(f"{path.name}: {path.stat().st_size:,} bytes")

# %% [markdown]
# ```bash
# python -m minitransformer generate lessons/answers/my_gpt.safetensors "The old teacher" --top-p 0.9
# python -m minitransformer explore lessons/answers/my_gpt.safetensors --out my_gpt.html
# ```
#
# ### After which block does it know? (optional)
#
# One of the explorer's views in numbers, the *logit lens*: take the residual stream after each block, put it through
# the final norm and the table, as if the model ended there, and see how good the guess is. Here it is for your model,
# and for a deeper one, trained on the same grammar and recorded by `python -m after inside`.


# %%
def lens(model, ids, targets):
    """The loss if the model ended after 0, 1, … blocks."""
    x, found = model.weights[TABLE][ids] + model.weights[POSITIONS][: ids.shape[1]], []
    for name in (None, *model.blocks):
        if name:
            x, _ = block_forward(model, name, x, np.tri(ids.shape[1], dtype=bool))
        logits = model.norm(LAST, x)[0] @ model.weights[TABLE].T
        found.append(surprise(logits, targets).mean())
    return found


inside = json.loads(Path("after/results/inside.json").read_text(encoding="utf-8"))["findings"]["models"]["GPT"]["lens"]
for name, depths in (("yours", lens(model, *next(batches()))), ("a deeper one", inside["loss"])):
    print(f"{name:<12} loss after 0, 1, … blocks: " + "  ".join(f"{value:.2f}" for value in depths))

# %% [markdown]
# Without a block the residual stream holds the token that was just read, so the table answers with that token itself,
# which is nearly always wrong. Each block improves the guess.
#
# ### A token's cost in a long text (optional)
#
# This was recorded by `python -m after decoding`, on two cores with NumPy, for a larger GPT: the time of one more
# token, and the bytes of the cache, after texts of thousands of tokens. *Grouped* means that several heads share one
# set of keys and values.

# %%
long = json.loads(Path("after/results/decoding.json").read_text(encoding="utf-8"))["findings"]
kinds = {"each head its own keys and values": long["kinds"]["full"], "grouped": long["kinds"]["grouped"]}
draw.long_texts(long["sizes"]["lengths"], kinds)
show(
    "Time and memory of one more token, against the tokens so far: both grow with the text, and with grouped heads the "
    "cache is smaller at every length."
)
print(", ".join(f"{name} {long['sizes'][name]}" for name in ("num_layers", "d_model", "num_heads", "kv_heads")))

# %% [markdown]
# In a short text most of the time goes into reading the weights once for each token. In a long one there are more keys
# and values than weights. This is why large models share them among heads (grouped-query attention, Ainslie and others
# 2023).
#
# ## From the paper's decoder to GPT-2 (optional)
#
# | | the paper's decoder (2017) | GPT (Radford and others 2018) | GPT-2 (2019) |
# |---|---|---|---|
# | looks at | its text and the memory | its text | its text |
# | norm | after each sum | after each sum | before each sub-layer, and one at the end |
# | positions | sinusoids | learned, 512 | learned, 1,024 |
# | output layer | the table of tokens | the same | the same |
# | look-up | times $\sqrt C$ | as it is | as it is |
# | activation | ReLU | GELU | GELU |
# | weights at the start | not said | N(0, 0.02²) | the same; before a sum smaller, with depth |
# | tokens | byte pairs, 37,000 | byte pairs, 40,000 | pairs of real bytes, 50,257: no text is unknown |
# | sizes | 6 layers, $C = 512$ | 12 layers, $C = 768$ | 12 to 48 layers, $C = 768$ to 1,600 |
# | text | sentence pairs | 7,000 books | 8 million web pages |
# | then | translates | is *trained on*, for each task | is *asked*: the task stands in the text |
#
# GPT's point was the order: first a language model on much text, then a little more training for the task at hand.
# GPT-2's point was that the second step can be left out.
#
# ## Common mistakes, and what they look like
#
# **Targets that are not shifted.** With `targets = ids` each position is asked for the token that it has just read.
# That is very easy: the residual stream carries the token from one end of a tied table to the other. A short training
# run, with four rows in a batch:

# %%
copies = ((ids[:4], ids[:4]) for ids, _ in batches())
told = train(fresh(), copies, 150, mine.adam_step)
print(f"not shifted: loss {np.mean(told[-20:]):.2f} after {150 * 4 * T:7,} examples")
print(f"shifted:     loss {np.mean(losses[-20:]):.2f} after {STEPS * B * T:7,} examples")

# %% [markdown]
# The loss is far lower, after far fewer examples. But such a model only repeats the token that it has just read. **No
# causal mask** misleads in the same way: attention finds the answer one place to the right. A loss far below that of a
# good model is a mistake, not a success.
#
# **The final norm forgotten.** The vectors on the residual stream grow from block to block, and the output layer needs
# them at one scale. Without the norm a trained model gives wrong probabilities, and no error.
#
# **A table that is tied by a copy.** Two equal arrays each get one part of the gradient, and drift apart. Tied means
# one array.
#
# ### A space at the end of the prompt (optional)
#
# Our words begin with their space (`▁dog`). After "The old " the space is there already, so the model must find a word
# that begins without one, which it has never seen:

# %%
for text in ("The old", "The old "):
    probabilities = mine.softmax(after(text))
    best = tokenizer.tokens(np.argsort(-probabilities)[:4].tolist())
    print(f"{text + '|':<10} {'  '.join(best)}")

# %% [markdown]
# ## What changed since 2017
#
# Today's large language models are still stacks of causal blocks that predict the next token. Since GPT-2:
#
# * **The block.** [Llama](https://arxiv.org/abs/2302.13971) (2023) has RMSNorm, rotary positions and a gated
#   feed-forward network ([lesson 20](20_modern_blocks.ipynb)). In many large models a token goes through a few of many
#   feed-forward networks ([Mixtral](https://arxiv.org/abs/2401.04088)).
# * **The size.** [GPT-3](https://arxiv.org/abs/2005.14165) (2020) has up to 175 billion parameters; the models of
#   [Llama 3](https://arxiv.org/abs/2407.21783) (2024) were trained on about 15 trillion tokens.
# * **After the training on text** comes training on instructions and on people's preferences
#   ([InstructGPT](https://arxiv.org/abs/2203.02155)), and reinforcement learning on problems whose answers can be
#   checked ([DeepSeek-R1](https://arxiv.org/abs/2501.12948)).
#
# ### Open projects (optional)
#
# * **It can translate, after all.** Train it on lines such as `The dog sleeps. = Der Hund schläft.` (`pairs` of the
#   grammar gives them), with longer rows, and give it the first half as a prompt. How many steps does it need until it
#   is right on new sentences? Compare with the translator of lesson [10](10_translator.ipynb).
# * **What is the least possible loss?** The grammar draws its sentences with known weights, so the probability of each
#   sentence can be computed. Find the entropy of the grammar in bits per byte. How far is your model from it?
# * **Post-norm, as GPT.** Move the norms after the sums, with 2 and with 8 blocks. At which learning rates does each
#   still train?
#
# ## Where next
#
# [Lesson 20](20_modern_blocks.ipynb) exchanges the parts of the block for those of today, one by one.
