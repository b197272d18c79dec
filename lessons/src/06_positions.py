# %% [markdown]
# # 06 · Positions
#
# **You will be able to** show that attention cannot tell a sentence from a bag of its words; add the positions; and
# find in the paper's sinusoids the rotations with which a head can look "three words back".
#
# | | |
# |---|---|
# | you know | lessons [04](04_attention.ipynb) and [05](05_multi_head.ipynb): attention and its heads |
# | runs in | at most 20 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.5; table 3, row (E) |
# | in the package | [`SinusoidalPositions`, `LearnedPositions`](../minitransformer/layers/embedding.py) |

# %%
import json
import math
from pathlib import Path

import numpy as np

from course import start
from course.lesson_06 import pictures as draw
from course.style import show
from minitransformer.gradcheck import check_gradients, error
from minitransformer.layers import AttentionConfig, LearnedPositions, SelfAttention, SinusoidalPositions
from minitransformer.layers.parameter import FlatParameters
from minitransformer.ops import attention_weights, numpy_ops

check = start("06")
rng = np.random.default_rng(0)

# %% [markdown]
# ## Attention sees a bag of words
#
# "The dog bites the man" and "the man bites the dog" have the same words. Give each word a random vector, send both
# sentences through a layer of self-attention (lesson 05) with random weights, and compare the outputs for *bites* and
# *dog*:

# %%
C = 32
words = {word: rng.standard_normal(C) for word in ("the", "dog", "bites", "man")}
layer = SelfAttention(numpy_ops, d_model=C, config=AttentionConfig(num_heads=4, d_k=8, d_v=8))
FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed=0)


def vectors(sentence):
    return np.stack([words[word] for word in sentence.split()])[None]  # (1, T, C)


one, _ = layer.forward(vectors("the dog bites the man"))
other, _ = layer.forward(vectors("the man bites the dog"))
print(f"bites, in both: {error(one[0, 2], other[0, 2]):.1e}")
print(f"dog, in both:   {error(one[0, 1], other[0, 4]):.1e}")

# %% [markdown]
# They are the same, up to rounding, and further layers cannot change that. Here is the reason. Let $P$ be a
# *permutation matrix*: one 1 in each row and in each column, all else 0. $PX$ is $X$ with its rows in another order,
# and $P^\top P$ is the identity. Now give attention's $Q$, $K$ and $V$ in that other order (without the $\sqrt{D}$,
# which changes nothing here):
#
# $$ \mathrm{softmax}\big(PQ\,(PK)^\top\big)\,PV = P\;\mathrm{softmax}\big(QK^\top\big)\,P^\top P\,V
#    = P\;\mathrm{softmax}\big(QK^\top\big)\,V $$
#
# The first step holds because the softmax of a row does not depend on the order of its entries. So a shuffled input
# gives the same output, shuffled in the same way: attention is **permutation-equivariant**. The recurrence of lesson 03
# knew the order because it read in order. (A causal mask also reveals the order, since the first word sees one word,
# the second two. For a decoder this alone [is enough](https://arxiv.org/abs/2203.16634). An encoder has no such mask.)
#
# ## Which vector to add
#
# The paper adds to each word's vector a second vector, which depends on the position. Four simple choices, each with a
# flaw:
#
# * **The position itself**, 0, 1, 2, …: unbounded. At position 500 it drowns the word.
# * **The position divided by the length**: bounded, but one step differs from sentence to sentence.
# * **One-hot**: as wide as the longest sentence, and any two positions are equally different. (A learned matrix behind
#   it solves that: see the optional part "Learned positions".)
# * **Binary**: bounded, and sixteen bits are enough. The last bit flips at each step, the one before it at every second
#   step, and so on. But it jumps: from 7 (`0111`) to 8 (`1000`) every bit changes, from 8 to 9 only one.
#
# Now make the last idea smooth. Replace the bits by the hands of a clock: the first hand is fast, and each next one is
# slower. The fast hands separate near positions, the slow hands distant ones.

# %%
draw.hands(positions=(0, 1, 8, 64))
show("Four dials for each of four positions: the first hand turns far with each word, each next one turns less.")

# %% [markdown]
# The hands are the paper's [positional encoding](glossary.md#positional-encoding), the *sinusoids*:
#
# $$ \begin{aligned}
#    &PE(pos, 2i) = \sin(pos \cdot \omega_i), \\
#    &PE(pos, 2i + 1) = \cos(pos \cdot \omega_i), \\
#    &\omega_i = 10000^{-2i/C}
# \end{aligned} $$
#
# Here $pos$ is the position, from 0; $C$ is the model's width ($d_{model}$, even); $i$, from 0 to $C/2 - 1$, numbers
# the *pairs* of columns; and $\omega_i$ is the angle of the hand of pair $i$ for each word, in radians. A pair holds
# the sine and the cosine of its hand. The first hand turns by 1 radian a word, the last by about a ten-thousandth.
#
# ### Exercise 1 ★☆☆: the table
#
# No loop is needed: a column of positions times a row of frequencies gives all angles at once.


# %% tags=["exercise"]
def sinusoids(num_positions, d_model):
    """PE[pos, 2i] = sin(pos · ω_i), PE[pos, 2i+1] = cos(pos · ω_i), with ω_i = 10000^(−2i / d_model).

    → (num_positions, d_model) of float64; d_model is even.
    """
    raise NotImplementedError


# %%
sinusoids = check(sinusoids)

# %% [markdown] tags=["help"]
# How many different frequencies are there? Which columns get the sine of an angle, and which get the cosine of the same
# angle?
#
# ---
#
# `frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)`, since `np.arange(0, d_model, 2)` holds all $2i$. The
# even columns of an array are `table[:, 0::2]`, the odd ones `table[:, 1::2]`.

# %%
packaged = SinusoidalPositions(numpy_ops, max_length=100, d_model=64, dtype="float64")
print(f"against the package: {error(sinusoids(100, 64), packaged.table):.1e}")

bits = (np.arange(64)[:, None] >> np.arange(6)) & 1  # (64, 6): the last bit first
table = sinusoids(64, 64)
steps = {"binary": np.diff(bits, axis=0), "sinusoids": np.diff(table, axis=0)}
for name, step in steps.items():
    lengths = np.linalg.norm(step, axis=1)
    print(f"{name:<10} one step moves the vector by {lengths.min():.2f} to {lengths.max():.2f}")

# %%
draw.tables(bits, table)
show("Binary positions and sinusoids side by side: both flicker on the left and hardly change on the right.")

# %% [markdown]
# Both tables flicker on the left and hardly change on the right. (Green is positive, purple negative.) But all steps of
# the sinusoids have the same length.
#
# ## Every position has the same length (optional)
#
# ### Exercise 2 ★☆☆: predict
#
# $\sin^2 + \cos^2 = 1$, for each pair. So how long is the vector of a position?


# %% tags=["exercise"]
def encoding_length(d_model):
    """The Euclidean length of PE[pos], which is the same at every position. → a number."""
    raise NotImplementedError


# %%
encoding_length = check(encoding_length)

# %% [markdown] tags=["help"]
# The squared length of a vector is the sum of the squares of its numbers. Add them pair by pair: how much does one pair
# give, and how many pairs are there?
#
# ---
#
# Each of the $C/2$ pairs adds $\sin^2 + \cos^2 = 1$ to the squared length. The length is the root of the sum.

# %%
wide = sinusoids(200, 512)
pairs = (wide**2).reshape(200, 256, 2).sum(axis=-1)  # (200, 256)
print(f"sums of squares of pairs: {pairs.min():.6f} to {pairs.max():.6f}")
lengths = np.linalg.norm(wide, axis=1)
print(f"lengths: {lengths.min():.2f} to {lengths.max():.2f}, predicted {encoding_length(512):.2f}")

# %% [markdown]
# Should a position be longer than a word? Like the paper (§3.4), the package multiplies a word's vector by $\sqrt{C}$
# before it adds the position. The words' table starts with entries of variance $1/C$, because the same table serves at
# the output, where that is the right scale (lesson 08). Without the factor the positions would drown the words:

# %%
embedding = rng.standard_normal((1000, 512)) / math.sqrt(512)
for name, factor in (("as they are", 1), ("times √C", math.sqrt(512))):
    typical = np.linalg.norm(factor * embedding, axis=1).mean()
    print(f"words {name:<12} length {typical:5.2f}   positions {encoding_length(512):5.2f}")

# %% [markdown]
# ## Their dot products only know the distance
#
# Attention compares by dot products. So compare two positions $p$ and $q$. The last step is a theorem about the cosine,
# $\cos(a - b) = \sin a \sin b + \cos a \cos b$:
#
# $$ PE_p \cdot PE_q = \sum_i \big(\sin p\omega_i \sin q\omega_i + \cos p\omega_i \cos q\omega_i\big)
#    = \sum_i \cos\big((p - q)\,\omega_i\big) $$
#
# Only $p - q$ is left. (That is also why all steps have the same length: the squared distance of two positions is
# $|PE_p|^2 + |PE_q|^2 - 2\,PE_p \cdot PE_q$.)

# %% tags=["picture"]
positions = sinusoids(128, 128)
products = positions @ positions.T  # (128, 128)
draw.products(products)
show(
    "The dot products of all pairs of positions form stripes along the diagonal. Three rows, each drawn from its own "
    "position, coincide: a peak at distance zero that falls, with ripples, to both sides alike."
)

# %%
diagonals = [np.diagonal(products, offset) for offset in range(100)]
print(f"largest difference along a diagonal: {max(float(np.ptp(diagonal)) for diagonal in diagonals):.1e}")

# %% [markdown]
# On the left one stripe runs down the diagonal: every position sees its surroundings in the same way. The right panel
# shows three rows of that matrix, each from its own position; they coincide. Near positions are alike, and far ones
# mostly less so, because hands of many speeds only agree near zero. But the curve is symmetric, so it cannot tell
# *before* from *after*. A matrix can.
#
# ## An offset is a rotation
#
# Turn every hand forward by $k$ words. The hand of pair $i$ turns by $k\omega_i$, **from any position**:

# %%
draw.dials(sinusoids(40, 16), starts=(0, 4), offset=2)
show("Three dials with the hands of two positions, each turned on by two words: on each dial both turn by one angle.")

# %% [markdown]
# The two addition theorems give the new pair:
#
# $$ \begin{aligned}
#    &\sin(a + b) = \sin a \cos b + \cos a \sin b \\
#    &\cos(a + b) = \cos a \cos b - \sin a \sin b
# \end{aligned} $$
#
# With $a = p\omega_i$ and $b = k\omega_i$: the new sine and the new cosine are each a sum of the old two, with factors
# that depend on $k$ but not on $p$. So there is a matrix $M_k$ of shape $(C, C)$ with
#
# $$ PE_{p+k} = PE_p\,M_k \qquad \text{for every } p $$
#
# ### Exercise 3 ★★☆: find the rotation
#
# Each pair needs a 2 × 2 block of its own, on the diagonal. Mind that $PE_p$ is a row, on the left of the matrix.


# %% tags=["exercise"]
def rotation(offset, d_model):
    """M (d_model, d_model) with PE[pos] @ M = PE[pos + offset] for every pos; offset may be negative.

    On the diagonal a block of 2 × 2 for each pair of columns, 2i and 2i+1; zeros elsewhere.
    """
    raise NotImplementedError


# %%
rotation = check(rotation)

# %% [markdown] tags=["help"]
# A row times a matrix: the first column of the block makes the new sine, the second the new cosine. Which two numbers
# must be in the first column, so that (old sine, old cosine) times it is $\sin a \cos b + \cos a \sin b$?
#
# ---
#
# The block of pair $i$ is $\begin{pmatrix} \cos k\omega_i & -\sin k\omega_i \\ \sin k\omega_i & \cos k\omega_i
# \end{pmatrix}$. With `sines = np.arange(0, d_model, 2)` and `cosines = sines + 1`, `M[cosines, sines] = ...` sets one
# corner of all blocks at once.

# %%
table, M = sinusoids(100, 64), rotation(7, 64)
print(f"PE[pos] M₇ against PE[pos + 7]: {error(table[:-7] @ M, table[7:]):.1e}")
print(f"M₃ M₄ against M₇:               {error(rotation(3, 64) @ rotation(4, 64), M):.1e}")
print(f"M₋₇ against the transpose:      {error(rotation(-7, 64), M.T):.1e}")
print(f"lengths are kept, M Mᵀ = 1:     {error(M @ M.T, np.eye(64)):.1e}")

# %% [markdown]
# ### A head that looks three words back
#
# The paper hopes that its encoding "would allow the model to easily learn to attend by relative positions". Queries and
# keys are linear maps of the input. So let $W^K$ be the identity, and let $W^Q$ be $M_{-3}$. Each query is then the
# vector of the position three words before, and the key most similar to it is that position's own. One matrix serves
# all positions, without any training:

# %%
T, C, sharpness = 24, 64, 16.0  # the sharpness is a factor in W^Q
table = sinusoids(T, C)
maps = {}
for offset in (0, -1, -3, 5):
    query, key = sharpness * table @ rotation(offset, C), table
    weights = maps[offset] = attention_weights(query[None, None], key[None, None])[0, 0]  # (T, T)
    found = np.mean([weights[i].argmax() == i + offset for i in range(T) if 0 <= i + offset < T])
    print(f"offset {offset:+d}: the largest weight is there for {found:.0%} of the queries")
draw.looking(maps)
show("Four maps of attention, each with one sharp diagonal: at the word itself, one back, three back and five ahead.")

# %% [markdown]
# (If there is no word three places back, the softmax picks the closest match.) Lesson 12 looks for such a head in a
# trained model. There, words and positions share the vectors, and both contribute to the score. The projections must
# learn to separate them.
#
# ## Learned positions (optional)
#
# The alternative is a table with one learned row for each position, added in the same way: `LearnedPositions`. The
# output is $x + \mathrm{table}$. Every sentence of a batch uses the same rows.
#
# ### Exercise 4 ★☆☆: a table's gradient
#
# A row of the table is used by every sentence that is long enough. Which gradient does it get?


# %% tags=["exercise"]
def learned_positions_backward(dout, max_length):
    """Gradient of the table (max_length, C) in out[b, t] = x[b, t] + table[t].

    dout (B, T, C), with T ≤ max_length → dtable (max_length, C).
    """
    raise NotImplementedError


# %%
learned_positions_backward = check(learned_positions_backward)

# %% [markdown] tags=["help"]
# Where an array is used several times, its gradients add (lesson 00). Over which axis of `dout`, then? And which
# gradient do the rows get that no sentence was long enough to use?
#
# ---
#
# Begin with zeros of the table's shape, (max_length, C), and put `dout.sum(axis=0)` into the first $T$ rows.

# %%
x, table = rng.standard_normal((3, 5, 4)), rng.standard_normal((8, 4))
checked = check_gradients(
    lambda x, table: (x + table[: x.shape[1]], None),
    lambda dout, _: (dout, learned_positions_backward(dout, 8)),
    {"x": x, "table": table},
)
learned = LearnedPositions(numpy_ops, max_length=8, d_model=4)
FlatParameters(dict(learned.named_parameters()), numpy_ops, "float64").initialize(seed=0)
dout = rng.standard_normal(x.shape)
learned.backward(dout, learned.forward(dout)[1])
print(f"central differences {checked['table']:.1e}")
print(f"the package         {error(learned_positions_backward(dout, 8), learned.table.grad):.1e}")
print("rows without any gradient:", np.flatnonzero(~learned.table.grad.any(axis=1)))

# %% [markdown]
# The last line is the weakness of the table: positions beyond all training sentences keep their random rows, and beyond
# its end there is no row at all. The sinusoids never end, and the paper hoped that they "may allow the model to
# extrapolate to sequence lengths longer than the ones encountered during training". Do they? This project trained both
# in miniature, only on short sentences ([the report](paper/paper.md)):

# %%
findings = json.loads(Path("paper/results/table3.json").read_text(encoding="utf-8"))["findings"]["lengths"]
longest, (least, _) = findings["trained"][1], findings["asked"]
for name, scores in findings["scores"].items():
    short, long = (scores[which]["bleu"]["value"] for which in ("short", "long"))
    print(f"{name:<11} BLEU {short:.1f} up to {longest} tokens, {long:.1f} from {least} tokens")

# %% [markdown]
# (BLEU, from lesson 11: more is better.) On trained lengths the two are equally good, as far as so small a test can
# tell; the paper's table 3, row (E), agrees. On longer ones both fail. A vector for position 30 can be computed, but
# the layers above have never learned to read it.
#
# ## Common mistakes, and what they look like

# %%
# Sines first, then cosines: the same columns in another order.
table = sinusoids(64, 64)
halves = np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)
print(f"halves instead of pairs: table off by {error(halves, table):.1f}, ", end="")
print(f"dot products off by {error(halves @ halves.T, table @ table.T):.0e}")

# Decoding word by word: the fifth word arrives alone, and is taken for the first.
x = rng.standard_normal((1, 5, 64))
layer = SinusoidalPositions(numpy_ops, max_length=64, d_model=64, dtype="float64")
(whole, _), (alone, _), (placed, _) = layer.forward(x), layer.forward(x[:, 4:]), layer.forward(x[:, 4:], start=4)
print(f"word 4 alone: off by {error(alone, whole[:, 4:]):.1f};  with start=4: {error(placed, whole[:, 4:]):.1f}")

# %% [markdown]
# * **Halves instead of pairs.** Some implementations put all sines before all cosines, the authors' own
#   [tensor2tensor](https://github.com/tensorflow/tensor2tensor) among them. The columns are only in another order, so
#   both are equally good. But weights trained with one do not fit the other.
# * **Positions that start again.** A decoder with a cache sees one word at a time and must be told its position.
# * **Padding on the left** moves the sentence. Pad on the right, or count from the first real word.
#
# ## What changed since 2017
#
# Positions moved from the input into the attention. [Shaw et al. 2018](https://arxiv.org/abs/1803.02155) learn a vector
# for each offset. [ALiBi](https://arxiv.org/abs/2108.12409) lowers a score with the distance. Most of today's language
# models use [RoPE](https://arxiv.org/abs/2104.09864), which is `rotation`. It adds nothing to the words. It
# rotates the query at $i$ by $M_i$ and the key at $j$ by $M_j$. A transposed rotation rotates back, so the score is $q
# M_i (k M_j)^\top = q\,M_i M_j^\top k^\top = q\,M_{i-j}\,k^\top$. It only depends on the offset, and not only for
# vectors of positions, as above, but for any $q$ and $k$:

# %%
q, k = rng.standard_normal((2, 64))
scores = {(i, j): (q @ rotation(i, 64)) @ (k @ rotation(j, 64)) for i, j in ((3, 1), (10, 8), (52, 50), (1, 3))}
for (i, j), score in scores.items():
    print(f"query at {i:2d}, key at {j:2d}: {score:8.4f}")

# %% [markdown]
# The score is the same at the same offset, and another one at the opposite offset: so it can tell before from after.
#
# ## Where next
#
# Words, positions, heads: attention is complete. [Lesson 07](07_sublayers.ipynb) is about the parts around it that six
# trainable layers need: the feed-forward network, the residual connection, the norm, dropout.
