# %% [markdown]
# # 05 · Multi-head attention
#
# **You will be able to** say what several heads can do that one cannot, compute all of them in one product, and
# recognise the reshape that silently mixes the positions of a sentence; and, if you like, write the backward.
#
# | | |
# |---|---|
# | you know | lesson [04](04_attention.ipynb): attention, its backward, masks |
# | runs in | at most 20 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.2.2, figure 2 (right); table 3, rows (A) |
# | in the package | [`SelfAttention`, `split_heads`, `merge_heads`](../minitransformer/layers/attention.py) |
#
# Attention gives each query one set of weights, and so one mean of the values. In "the old dog sleeps", *dog* may need
# its article, its adjective and its verb. One set of weights can cover all three, but their values arrive added up, and
# cannot be told apart. The paper's answer: look several times, with a smaller vector each time.

# %%
import json
from pathlib import Path

import numpy as np

from course import start
from course.lesson_05 import pictures as draw
from course.style import show
from minitransformer.gradcheck import check_gradients, error
from minitransformer.layers import AttentionConfig, SelfAttention
from minitransformer.layers.parameter import FlatParameters
from minitransformer.ops import attention_backward, attention_forward, attention_weights, numpy_ops  # noqa: F401
from minitransformer.system.threads import Threads

check = start("05")
rng = np.random.default_rng(0)

# %% [markdown]
# ## The definition
#
# In **self-attention**, queries, keys and values come from one sequence, $x$ of shape $(T, C)$: a row for each of $T$
# words, with the model's width $C$ (the paper's $d_{model}$). They are learned linear maps of $x$. Each of $H$
# [heads](glossary.md#head) has three maps of its own, $W^Q_h$, $W^K_h$ and $W^V_h$, each of shape $(C, D)$:
#
# $$ \mathrm{head}_h = \mathrm{Attention}\big(x W^Q_h,\; x W^K_h,\; x W^V_h\big) \qquad (T, D) $$
#
# $$ \mathrm{MultiHead}(x) = \big[\mathrm{head}_1, \dots, \mathrm{head}_H\big]\, W^O \qquad
#    (T, H D)\,(H D, C) \to (T, C) $$
#
# The brackets put the heads side by side, and $W^O$ of shape $(HD, C)$ mixes them. The paper takes $D = C / H$: eight
# heads of 64 in a model of 512. So the heads divide the width among them, and more heads need no more parameters and no
# more multiplications (only more $T \times T$ matrices of weights). Head by head:


# %%
def multi_head_loops(x, w_query, w_key, w_value, w_out):
    """One sentence, one head after the other. x (T, C), w_query, w_key, w_value (H, C, D), w_out (H·D, C) → (T, C)."""
    heads = []
    for head_query, head_key, head_value in zip(w_query, w_key, w_value, strict=True):
        query, key, value = x @ head_query, x @ head_key, x @ head_value  # (T, D) each
        out, _ = attention_forward(query[None, None], key[None, None], value[None, None])  # (1, 1, T, D)
        heads.append(out[0, 0])
    return np.concatenate(heads, axis=1) @ w_out


# %% [markdown]
# ## All heads in one product
#
# No head waits for another one, so we need no loop. Put the heads' matrices side by side, as columns of one: $W^Q =
# [W^Q_1, \dots, W^Q_H]$, of shape $(C, HD)$. Then $x W^Q$ holds the queries of all heads side by side, $D$ columns each
# (in code `h*D:(h+1)*D` with `h` from 0). Put $W^Q$, $W^K$ and $W^V$ side by side too, and one matrix of shape $(C,
# 3HD)$ projects everything. The last product is a sum over heads, because each head meets only its own rows of $W^O$:
#
# $$ \big[\mathrm{head}_1, \dots, \mathrm{head}_H\big] \begin{bmatrix} W^O_1 \\ \vdots \\ W^O_H \end{bmatrix}
#    = \sum_h \mathrm{head}_h\, W^O_h
#    = \sum_h A_h\; x \; \big(W^V_h W^O_h\big) \tag{a} $$
#
# Here $A_h$ are the $(T, T)$ weights of head $h$, and $W^O_h$ are its $D$ rows of $W^O$. So **heads do not talk to each
# other**; each adds its own contribution to the output.

# %%
T, C, H = 5, 8, 4
x = rng.standard_normal((T, C))
w_qkv, w_out = rng.standard_normal((C, 3 * C)), rng.standard_normal((C, C))
blocks = [np.stack(np.split(w, H, axis=1)) for w in np.split(w_qkv, 3, axis=1)]  # three of (H, C, D)
looped = multi_head_loops(x, *blocks, w_out)

query, key = x @ blocks[0], x @ blocks[1]  # (H, T, D)
attention_of_heads = attention_weights(query[None], key[None])[0]  # (H, T, T)

# %% tags=["picture"]
draw.blocks(attention_of_heads, width=C)
show(
    "Above, four heads as coloured columns of the projections and of their outputs, and as rows of W^O. Below, the "
    "same heads as blocks on the diagonal of one large matrix of weights, with zeros elsewhere."
)

# %% [markdown]
# Each colour is a head, here and in all pictures of this lesson. Above: a head owns columns of $W^Q$, $W^K$ and $W^V$
# (the picture shows one of the three) and rows of $W^O$. Below: the values of the heads are under each other, and the
# weights of all heads form one block-diagonal matrix, whose zeros cost nothing. Your program only has to move the
# numbers from the upper arrangement to the lower one.
#
# ### Exercise 1 ★☆☆: split
#
# Move the heads from side by side to under each other. The package's attention takes the heads before the positions,
# `(B, H, T, D)`, where $B$ is the number of sentences.


# %% tags=["exercise"]
def split_heads(x, num_heads):
    """x (B, T, H·D) → (B, H, T, D): head h gets the columns h·D to (h+1)·D of every position."""
    raise NotImplementedError


# %%
split_heads = check(split_heads)

# %% [markdown] tags=["help"]
# `reshape` can cut an axis in two, or join two neighbouring axes; it never changes the order of the numbers. Which axis
# must be cut here, into which two? And which two axes must then be swapped?
#
# ---
#
# `x.reshape(B, T, num_heads, C // num_heads)` cuts the columns: all of head 0, then all of head 1. Then `swapaxes(1,
# 2)` brings the heads before the positions.

# %% [markdown]
# A wrong way gives the right shape. `reshape` reads the numbers row by row and cuts this one long sequence anew. Asked
# for $(H, T, D)$ at once, it cuts between *positions* where it should cut between *columns*:

# %%
B, T, H, D = 1, 4, 3, 2
heads = np.broadcast_to(np.arange(H * D) // D, (B, T, H * D))  # to which head each column belongs
positions = np.broadcast_to(np.arange(T)[:, None], (B, T, H * D))  # at which position each number is
draw.splits(
    (heads[0], positions[0]),
    {
        "split_heads(x, 3)": (split_heads(heads, H)[0], split_heads(positions, H)[0]),
        "x.reshape(B, H, T, D)": (heads.reshape(B, H, T, D)[0], positions.reshape(B, H, T, D)[0]),
    },
)
show(
    "Two ways to split. split_heads gives each head its own columns at all positions; a plain reshape gives each head "
    "columns of all heads, at only some of the positions."
)

# %% [markdown]
# Each number has its head (letter and colour) and its position. In the upper row, every head gets its own columns, at
# positions 0 to 3. In the lower row, head 1 gets the columns of all three heads, but only those of positions 0 and 1,
# and it will treat these four rows as four positions. You get no error.
#
# ### Exercise 2 ★☆☆: merge
#
# The way back, for the heads' outputs. It is also a gradient: `split_heads` only moves numbers, so its backward **moves
# the gradients back**. The backward of split is merge, and the backward of merge is split.


# %% tags=["exercise"]
def merge_heads(x):
    """x (B, H, T, D) → (B, T, H·D): the heads side by side, in their order. The inverse of split_heads."""
    raise NotImplementedError


# %%
merge_heads = check(merge_heads)

# %% [markdown] tags=["help"]
# Undo the two steps of `split_heads`, the last one first. `reshape` joins axes only if they are neighbours, in the
# right order: which two must be neighbours before it?
#
# ---
#
# `x.swapaxes(1, 2)` is `(B, T, H, D)` again; then `reshape(B, T, H * D)`.

# %%
x = rng.standard_normal((2, 5, 8))
split = check_gradients(lambda x: (split_heads(x, 4), None), lambda dy, _: merge_heads(dy), {"x": x})
merge = check_gradients(lambda x: (merge_heads(x), None), lambda dy, _: split_heads(dy, 4), {"x": split_heads(x, 4)})
print(f"merge as split's backward {split['x']:.1e}   split as merge's backward {merge['x']:.1e}")

# %% [markdown]
# ### Exercise 3 ★★☆: the batch equals the loop
#
# Now write the whole layer without a loop over heads. `attention_forward(query, key, value, causal=...)` is lesson
# 04's, from the package; it gives `out, cache`. As in the paper there are no biases.


# %% tags=["exercise"]
def self_attention(x, w_qkv, w_out, num_heads, causal=False):
    """Multi-head self-attention: x (B, T, C), w_qkv (C, 3·C), w_out (C, C) → (B, T, C).

    The first C columns of w_qkv make the queries of all heads, the next C the keys, the last C the values.
    Large scores do no harm.
    """
    raise NotImplementedError


# %%
self_attention = check(self_attention)

# %% [markdown] tags=["help"]
# In which order do these five steps come: attend, merge, mix with $W^O$, project, split? Which shape does each of them
# give?
#
# ---
#
# `np.split(x @ w_qkv, 3, axis=-1)` gives the queries, the keys and the values of all heads, each (B, T, C). Split each
# into heads, attend, merge the output, and multiply by `w_out`.

# %%
x = rng.standard_normal((2, 5, 8))
looped = np.stack([multi_head_loops(sentence, *blocks, w_out) for sentence in x])
batched = self_attention(x, w_qkv, w_out, num_heads=4)
print(f"batch against loop    {error(batched, looped):.1e}")

layer = SelfAttention(numpy_ops, d_model=8, config=AttentionConfig(num_heads=4, d_k=2, d_v=2))
FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64")  # allocates the layer's parameters: zeros
layer.query_key_value.weight.data[...], layer.output.weight.data[...] = w_qkv, w_out
packaged, cache = layer.forward(x)
print(f"batch against package {error(batched, packaged):.1e}")

# %% [markdown]
# ### Exercise 4 ★★☆: its backward (optional)
#
# Reverse the forward line by line; you have written the backward of each line. Mind the two weights: every position of
# every sentence uses them. `attention_backward(dout, cache)`, from the package, gives `dquery, dkey, dvalue`. (Lesson
# 18 asks for the middle part of it again.)


# %% tags=["exercise"]
def self_attention_backward(dout, x, w_qkv, w_out, num_heads, causal=False):
    """Gradients of self_attention(x, w_qkv, w_out, num_heads, causal).

    dout (B, T, C) → the tuple dx (B, T, C), dw_qkv (C, 3·C), dw_out (C, C).
    You may compute the forward's intermediate arrays again (a layer keeps them in its cache).
    """
    raise NotImplementedError


# %%
self_attention_backward = check(self_attention_backward)

# %% [markdown] tags=["help"]
# Write the five lines of the forward down, then go through them from the last to the first. Which operation reverses a
# merge, and which a split? Where are the three gradients of query, key and value in the gradient of `x @ w_qkv`?
#
# ---
#
# `dmixed = split_heads(dout @ w_out.T, num_heads)`; then `attention_backward`; then merge each of the three and put
# them side by side with `np.concatenate(..., axis=-1)`. A weight's gradient is (input)ᵀ @ (gradient of the output),
# over all positions at once: flatten both to two axes with `reshape(-1, width)`.

# %%
arrays = {"x": x, "w_qkv": w_qkv, "w_out": w_out}
checked = check_gradients(
    lambda *arrays: (self_attention(*arrays, num_heads=4), arrays),
    lambda dout, arrays: self_attention_backward(dout, *arrays, num_heads=4),
    arrays,
)
dout = rng.standard_normal(x.shape)
mine = self_attention_backward(dout, *arrays.values(), num_heads=4)
theirs = layer.backward(dout, cache), layer.query_key_value.weight.grad, layer.output.weight.grad
for name, ours, other in zip(arrays, mine, theirs, strict=True):
    print(f"d{name:<6} central differences {checked[name]:.1e}   the package's layer {error(ours, other):.1e}")

# %% [markdown]
# [The tests](../tests/layers/test_attention_layers.py) prove that the layer is also PyTorch's `nn.MultiheadAttention`,
# with every mask.
#
# ## What one head cannot do
#
# An experiment tests the claim of the first paragraph. A sentence is six words in random order. Each word is a row of
# $x$ with its own name, the names of two words that it wants, and a value of fourteen random numbers. The output must
# hold the value of the first wanted word in its first fourteen columns, and that of the second in the next fourteen:

# %%
if "self_attention_backward" not in globals():  # for those who skip the optional exercise
    from course.lesson_05.solutions import self_attention_backward

NAMES, WIDTH = 6, 14


def wishes(rng, B=32):
    """x (B, 6, 32): name, first wish, second wish (one-hot), value; target (B, 6, 28); and the places (B, 6, 2)."""
    name = rng.permuted(np.tile(np.arange(NAMES), (B, 1)), axis=1)  # (B, 6): the word at each position
    first = rng.permuted(name, axis=1)
    second = (first + rng.integers(1, NAMES, first.shape)) % NAMES  # never the same as the first
    value = rng.standard_normal((B, NAMES, WIDTH))
    x = np.concatenate([np.eye(NAMES)[name], np.eye(NAMES)[first], np.eye(NAMES)[second], value], axis=-1)
    place = np.argsort(name, axis=1)  # (B, 6): the position of each word
    places = np.stack([np.take_along_axis(place, wish, axis=1) for wish in (first, second)], axis=-1)
    target = [np.take_along_axis(value, places[..., n, None], axis=1) for n in (0, 1)]
    return x, np.concatenate(target, axis=-1), places


def train(num_heads, steps=400, rate=0.3):
    """Gradient descent on half the squared distance from the target, summed over columns; the mean squared errors."""
    rng = np.random.default_rng(0)
    C = 3 * NAMES + WIDTH
    w_qkv, w_out = rng.standard_normal((C, 3 * C)) / np.sqrt(C), rng.standard_normal((C, C)) / np.sqrt(C)
    errors = []
    for _ in range(steps):
        x, target, _ = wishes(rng)
        miss = self_attention(x, w_qkv, w_out, num_heads)[..., : 2 * WIDTH] - target
        errors.append(np.mean(miss**2))
        dout = np.zeros_like(x)
        dout[..., : 2 * WIDTH] = miss / miss[..., 0].size  # the mean over words
        _, dw_qkv, dw_out = self_attention_backward(dout, x, w_qkv, w_out, num_heads)
        w_qkv, w_out = w_qkv - rate * dw_qkv, w_out - rate * dw_out
    return errors, w_qkv


# %% [markdown]
# How well can one head do? It gives its two wanted words the weights $p$ and $1 - p$, so it passes on $a = p\,v_1 +
# (1-p)\,v_2$ for *both* halves of the output. The best linear estimate of $v_1$ is a multiple $c\,a$. The values are
# independent with variance 1, so its mean squared error is $(1 - cp)^2 + c^2(1-p)^2$. The minimum, at $c = p / (p^2 +
# (1-p)^2)$, is $(1-p)^2 / (p^2 + (1-p)^2)$, and for $v_2$ in the same way $p^2 / (p^2 + (1-p)^2)$. The mean of the two
# is $\frac12$ **for every $p$**: one head can serve one wish, or each by half.

# %%
with Threads(1):  # products as small as these are slower when BLAS shares them out
    trained = {num_heads: train(num_heads) for num_heads in (1, 2, 4)}
x, _, places = wishes(np.random.default_rng(1), B=1)
maps = {}
for num_heads in (1, 2):
    query, key, _ = (split_heads(part, num_heads) for part in np.split(x @ trained[num_heads][1], 3, axis=-1))
    for h, weights in enumerate(attention_weights(query, key)[0]):
        maps["one head" if num_heads == 1 else f"two heads: head {h + 1}"] = weights
draw.wishes({f"{h} head{'s' * (h > 1)}": errors for h, (errors, _) in trained.items()}, maps, places[0])
show(
    "Above, the error during training: one head stays at one half, two heads reach zero, four reach it later. Below, "
    "maps of attention: one head divides itself between both wanted words; each of two heads fetches one of them."
)
for num_heads, (errors, _) in trained.items():
    print(f"heads: {num_heads}   mean squared error of the last 20 steps {np.mean(errors[-20:]):.3f}")

# %% [markdown]
# One head reaches its floor and stays there, divided between the two wishes (circle and square). Two heads take one
# wish each, though no loss told them to. Four heads are 8 wide each, too narrow to carry a value of 14. So two of them
# must fetch one value together, and need more steps to learn it.
#
# ## How many heads? (optional)
#
# Many heads have a price: each of them is narrow. By (a), head $h$ contributes $x\,(W^V_h W^O_h)$, and its scores are
#
# $$ s_{ij} \propto x_i \,\big(W^Q_h {W^K_h}^\top\big)\, x_j^\top $$
#
# (up to the factor $1/\sqrt{D}$; $x_i$ is row $i$ of $x$). Both matrices in brackets are $(C, C)$, but of rank $D$ at
# most: a head sees the words through $D$ dimensions. More heads look in more directions, each less sharply. The paper's
# table 3, rows (A), searched for the best number at a fixed cost, and this project repeated that in miniature ([the
# report](paper/paper.md)):

# %%
findings = json.loads(Path("paper/results/table3.json").read_text(encoding="utf-8"))["findings"]
for name in ("1 head", "4 heads", "base", "16 heads", "32 heads"):
    size, score = findings["miniature"][name], findings["scores"][name]["bleu"]
    interval = f"({score['low']:.1f} to {score['high']:.1f})"
    print(f"{size['heads']:2d} heads of {size['d_k']:2d}: BLEU {score['value']:.1f} {interval}")

# %% [markdown]
# (BLEU measures how similar a translation is to the reference; more is better, and lesson 11 builds it. In brackets:
# its range for 95 % of resampled test sets.) One head is too few, and thirty-two heads that are two wide are too many.
# The paper's table has the same shape.
#
# ## A bias that never learns (optional)
#
# The paper has no biases in these [projections](glossary.md#projection). The package has them, as PyTorch does; look at
# their gradients:

# %%
sentences = rng.standard_normal((2, 5, 8))
layer.backward(rng.standard_normal(sentences.shape), layer.forward(sentences)[1])
for name, part in zip(("query", "key", "value"), np.split(layer.query_key_value.bias.grad, 3), strict=True):
    print(f"bias of the {name:<6} largest gradient {np.abs(part).max():.1e}")

# %% [markdown]
# The key's is zero, up to rounding, for any input. A bias $b$ on the keys adds $q_i \cdot b$ to the score of *every*
# key, and softmax only sees differences (lesson 01). The query's bias is different: it adds $b \cdot k_j$, which
# depends on the key. It can make a key popular with all queries.
#
# ## Common mistakes, and what they look like


# %%
def with_split(split, merge, x, num_heads=4, causal=True):
    mixed, _ = attention_forward(*(split(part, num_heads) for part in np.split(x @ w_qkv, 3, axis=-1)), causal=causal)
    return merge(mixed) @ w_out


def reshaped(x, num_heads):
    B, T, C = x.shape
    return x.reshape(B, num_heads, T, C // num_heads)  # right shape, wrong numbers


def flattened(x):
    B, H, T, D = x.shape
    return x.reshape(B, T, H * D)  # as wrong, on the way back


x = rng.standard_normal((1, 5, 8))
first, last = x.copy(), x.copy()
first[0, 0] += 1
last[0, -1] += 1
for name, split, merge in (
    ("split, merge", split_heads, merge_heads),
    ("reshape, reshape", reshaped, flattened),
    ("split, reshape", split_heads, flattened),
):
    moved = [
        np.flatnonzero(np.abs(with_split(split, merge, changed) - with_split(split, merge, x)).max(axis=(0, 2)) > 1e-9)
        for changed in (first, last)
    ]
    print(f"{name:<17} the first word moves the outputs {moved[0]!s:<12} the last one {moved[1]}")

# %% [markdown]
# **`reshape` without `swapaxes`.** Shapes fit, and gradients check, since the backward of a wrong forward can be
# perfectly right. Test which word moves which output, with a causal mask: the first word must move every output, the
# last one only its own. If split and merge are both wrong, each head has a piece of the sentence to itself, and the
# last word never sees the first. If only one is wrong, the future leaks.
#
# ### Three more (optional)

# %%
by_head = w_qkv.reshape(8, 3, 4, 2).swapaxes(1, 2).reshape(8, 24)  # (C, H, 3, D): q, k, v of head 0, then of head 1, …
apart = error(self_attention(x, by_head, w_out, 4), self_attention(x, w_qkv, w_out, 4))
print(f"columns ordered by head, read as if by kind: error {apart:.1f}")

eight = rng.standard_normal((2, 1, 8, 20, 64))  # a query and a key of 20 words, 8 heads, D = 64, C = 512
for name, width in (("√D", 64), ("√C", 512)):
    largest = attention_weights(*eight, scale=1 / np.sqrt(width)).max(axis=-1)
    print(f"divided by {name}: the largest of 20 weights is {np.median(largest):.2f}")

louder = w_qkv.copy()
louder[:, 16:18] += 1  # the values of head 0
for name, last in (("without W^O", np.eye(8)), ("with W^O", w_out)):
    difference = self_attention(x, louder, last, 4) - self_attention(x, w_qkv, last, 4)
    print(f"{name:<11} head 0 writes into the columns {np.flatnonzero(difference.any(axis=(0, 1)))}")

# %% [markdown]
# * **Another order of columns.** GPT-2 stores $[Q, K, V]$, as here; GPT-NeoX stores them head by head. Both are right,
#   each with its own weights.
# * **$\sqrt{C}$ for $\sqrt{D}$.** The scale belongs to the width that the dot product sums over, the head's. With
#   $\sqrt{C}$ all scores are $\sqrt H$ times too small, and all weights too even.
# * **A missing $W^O$.** Without it each head writes into its own columns only, and cannot reach the rest of the vector.
#
# ## What changed since 2017 (optional)
#
# Many heads turned out to be superfluous after training ([Michel et al. 2019](https://arxiv.org/abs/1905.10650), [Voita
# et al. 2019](https://arxiv.org/abs/1905.09418); lesson 12 tests it). And a model that writes keeps the keys and values
# of every head for every word, a large part of its memory. So today query heads share them: all heads in [multi-query
# attention](https://arxiv.org/abs/1911.02150), the heads of each group in [grouped-query
# attention](https://arxiv.org/abs/2305.13245).
#
# ## Where next
#
# The experiment above shuffled its words at every step, and the model did not notice. That is a problem: a sentence is
# not a bag of words. [Lesson 06](06_positions.ipynb) gives attention the positions.
