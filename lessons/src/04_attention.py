# %% [markdown]
# # 04 · Scaled dot-product attention, and masks
#
# **You will be able to** write attention, forward and backward, for any mask; prove it; and explain its parts: why the
# scores are divided by $\sqrt{d_k}$, and why a mask must come before the softmax.
#
# | | |
# |---|---|
# | you know | lessons 00 to 03: gradients by hand, the softmax, padding, teacher forcing, additive attention |
# | runs in | at most 20 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.2.1, equation 1, figure 2 (left); masks in §3.2.3 |
# | in the package | [`attention`](../minitransformer/ops/attention.py), [its proof](../tests/ops/test_attention.py) |
#
# In lesson 03 attention let a recurrent decoder look back at every source word. The paper drops the recurrence and
# keeps only the attention, in the form of this lesson.

# %%
import math

import numpy as np

from course import recorded, start
from course.lesson_04 import pictures as draw
from course.style import show
from minitransformer.gradcheck import check_gradients, error
from minitransformer.ops import attention_forward, attention_mask, softmax_backward, softmax_forward

check = start("04")
rng = np.random.default_rng(0)

# %% [markdown]
# ## A dictionary that always answers
#
# A dictionary has keys and values. If your query equals a key, you get that key's value; if not, an error. Take three
# colours, as amounts of red, green and blue, and the wavelength of their light in nanometres. Yellow, $(1, 1, 0)$,
# equals none of them, but it resembles two. So let every key answer, in proportion to how well it matches. The match is
# a **dot product**, the proportions are its **softmax**, and the answer is the **weighted mean** of the values.

# %%
keys, values = np.eye(3), np.array([650.0, 530.0, 460.0])  # red, green and blue: (3, 3) and (3,)
for sharpness in (1, 5, 20):
    weights, _ = softmax_forward(sharpness * keys @ np.array([1.0, 1.0, 0.0]))
    print(f"sharpness {sharpness:2d}: weights {weights.round(3)}   answer {weights @ values:.0f} nm")

# %% [markdown]
# Yellow lands between red and green, as in the rainbow. The longer the query, the sharper the choice. And the answer
# moves smoothly with the query, the keys and the values, so gradient descent can train them. A hard look-up has no
# useful gradient.
#
# ## Equation 1
#
# Now with many queries. Let
#
# * `query` be $Q$, of shape $(T_q, D)$: row $q_i$ says what position $i$ looks for;
# * `key` be $K$, of shape $(T_k, D)$: row $k_j$ says what position $j$ offers; it has the same width $D$ (the paper's
#   $d_k$) as a query, because we compare the two;
# * `value` be $V$, of shape $(T_k, D_v)$: row $v_j$ is the vector that position $j$ hands over.
#
# $$ \mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{D}}\right) V \tag{1} $$
#
# Row by row, with a score $s_{ij}$ and a weight $w_{ij}$ for each pair of a query $i$ and a key $j$:
#
# $$ \begin{aligned}
#    &s_{ij} = \frac{q_i \cdot k_j}{\sqrt{D}} \\
#    &w_{ij} = \frac{e^{s_{ij}}}{\sum_{l} e^{s_{il}}} \\
#    &o_i = \sum_j w_{ij}\, v_j
# \end{aligned} $$
#
# The softmax over $j$ turns the scores of query $i$ into weights, and its output $o_i$ is the mean of the values with
# these weights. In loops:


# %%
def attention_loops(query, key, value):
    """out[i] = Σ_j w[i, j] value[j], w[i] the softmax of the scores of query i."""
    out = np.zeros((len(query), value.shape[1]))
    for i in range(len(query)):
        scores = np.zeros(len(key))
        for j in range(len(key)):
            scores[j] = sum(query[i, d] * key[j, d] for d in range(query.shape[1])) / math.sqrt(query.shape[1])
        exponentials = np.exp(scores - scores.max())
        for j in range(len(key)):
            out[i] += exponentials[j] / exponentials.sum() * value[j]
    return out


# %% [markdown]
# No query waits for another one, while each step of lesson 03's recurrence waited for the step before.
#
# ### Exercise 1 ★☆☆: equation 1
#
# So write equation 1 as matrix products. Sentences, and later heads, are further axes in front, $(\dots, T, D)$: `@`
# multiplies the last two axes for each of them, and your function should too. `softmax_forward` is lesson 01's softmax
# over the last axis; it returns it with a cache.


# %% tags=["exercise"]
def attention(query, key, value):
    """Equation 1, over the last two axes: softmax(query keyᵀ / √D) value. Large scores do no harm.

    query (..., Tq, D), key (..., Tk, D), value (..., Tk, Dv)
    → the tuple out (..., Tq, Dv), weights (..., Tq, Tk).
    """
    raise NotImplementedError


# %%
attention = check(attention)

# %% [markdown] tags=["help"]
# The scores are a matrix with a row for each query and a column for each key. Which product of `query` and `key` has
# this shape? And what must be true of every row of the weights?
#
# ---
#
# `key.swapaxes(-1, -2)` transposes the last two axes of any array; `.T` would reverse all of them. $D$ is
# `query.shape[-1]`. Then `weights, _ = softmax_forward(scores)`, and one more product.

# %%
key, value = rng.standard_normal((7, 4)), rng.standard_normal((7, 3))
query = 2 * key[[5, 0, 2, 2, 6]] + rng.standard_normal((5, 4))  # five queries, each somewhat like one of the keys
out, weights = attention(query, key, value)
print(f"loops against matrix products: {error(attention_loops(query, key, value), out):.1e}")
packaged, _ = attention_forward(query[None, None], key[None, None], value[None, None])  # (1, 1, 5, 3)
print(f"ours against the package:      {error(out, packaged[0, 0]):.1e}")

# %% [markdown]
# (The package takes $B$ sentences with $H$ heads, `(B, H, T, D)`; heads are in lesson 05, and here $H = 1$.) The
# picture shows these arrays, every number as a square. Follow the framed row: one query meets all keys, its scores
# become weights, and the weights mix the rows of `value` into its row of `out`.

# %%
draw.equation(query, key, value, weights, out, row=3)
show("Equation 1 as matrices. One row is framed all the way: a query, its scores, its weights, its row of the output.")

# %% [markdown]
# Why a dot product? Lesson 03's additive score takes a tanh of $C$ numbers for every pair of a query and a key. All dot
# products together are one matrix product, the operation that processors do best. (The number of pairs still grows with
# the square of the length: lessons 13 and 16.)
#
# ## Why divide by √D
#
# The paper's footnote 4: let the components of $q$ and $k$ be independent, with mean 0 and variance 1. Each product
# $q_d k_d$ then has mean 0 and variance $1 \cdot 1 = 1$, and the variances of $D$ independent terms add:
#
# $$ \mathrm{Var}(q \cdot k) = \sum_{d=1}^{D} \mathrm{Var}(q_d k_d) = D $$
#
# So the scores have a scale of $\sqrt{D}$: the query is in effect $\sqrt{D}$ times too long, and attention starts as a
# hard look-up. Why is that bad? Look at lesson 01's Jacobian of the softmax:
#
# $$ \frac{\partial w_j}{\partial s_l} = w_j\,(\delta_{jl} - w_l) $$
#
# With one weight at 1 and the others at 0 every entry is 0, and no gradient passes. Divided by $\sqrt{D}$, scores have
# variance 1 at any width. We measure it: for each $D$, 2,000 random queries with 32 random keys each, and a random
# gradient of the weights. How much of it reaches the scores?

# %%
widths = 2 ** np.arange(11)


def first_step(D, scale):
    """The scores' variance for random queries and keys, the weights, and the length of each query's score gradient."""
    rng = np.random.default_rng(D)
    query, key = rng.standard_normal((20, 100, D)), rng.standard_normal((20, 32, D))
    scores = scale * query @ key.swapaxes(-1, -2)  # (20, 100, 32)
    weights, cache = softmax_forward(scores)
    dscores = softmax_backward(rng.standard_normal(scores.shape), cache)
    return scores.var(), weights, np.linalg.norm(dscores, axis=-1).ravel()


unscaled = [first_step(D, 1.0) for D in widths]
scaled = [first_step(D, 1 / math.sqrt(D)) for D in widths]

# %% tags=["picture"]
draw.scaling(widths, unscaled, scaled, width=64)
show("Unscaled, the variance grows with D, one weight takes nearly all, and the gradient vanishes; scaled, it stays.")

# %% [markdown]
# On the left, the variance with and without the division. In the middle, the weights of one typical query, largest
# first. On the right, the gradient: the line is the median query, and the band holds the middle 80 % of them.
#
# Why not divide by $D$, to be safe? Then all weights are nearly equal, and attention becomes an average that ignores
# its query. At the right scale the softmax can still choose.
#
# ## The backward
#
# Three steps forward, so three steps back, from the last to the first:
#
# | forward | a gradient arrives | you want | you know it from |
# |---|---|---|---|
# | $S = QK^\top / \sqrt{D}$ | $\mathrm{d}S$ | $\mathrm{d}Q$, $\mathrm{d}K$ | lesson 00: a product of matrices |
# | $W = \mathrm{softmax}(S)$ | $\mathrm{d}W$ | $\mathrm{d}S$ | lesson 01, once for each row |
# | $O = WV$ | $\mathrm{d}O$ | $\mathrm{d}W$, $\mathrm{d}V$ | lesson 00: a product of matrices |
#
# Lesson 01's softmax backward is, in the letters of this lesson,
#
# $$ \mathrm{d}s_{ij} = w_{ij}\left(\mathrm{d}w_{ij} - \textstyle\sum_l \mathrm{d}w_{il}\,w_{il}\right) $$
#
# The last row of the table gives $\mathrm{d}w_{il} = \mathrm{d}o_i \cdot v_l$. So the sum in the brackets is
# $\mathrm{d}o_i \cdot \sum_l w_{il} v_l = \mathrm{d}o_i \cdot o_i$, and
#
# $$ \mathrm{d}s_{ij} = w_{ij}\;\mathrm{d}o_i \cdot (v_j - o_i) \tag{a} $$
#
# In words: **training raises a key's score if its value lies, seen from the present answer, in the direction in which
# the answer should move**, in proportion to the key's present weight. A key with weight 0 learns nothing: the factor
# $w_{ij}$ makes the gradient vanish, as in the previous section.
#
# ### The pull on the scores (optional)
#
# In two dimensions we can draw it, for one query with seven keys:

# %%
asked = rng.standard_normal((1, 2)) * 0.8  # one query, seven keys, values in the plane
plane_keys, plane_values = rng.standard_normal((7, 2)), rng.standard_normal((7, 2))
mixed, shares = attention(asked, plane_keys, plane_values)
dmixed = np.array([[-0.6, 0.8]])  # so the loss would fall if the answer moved the other way
dshares = dmixed @ plane_values.T
draw.pulls(plane_values, shares[0], mixed[0], dmixed[0], (shares * (dshares - dmixed @ mixed.T))[0])
show(
    "Seven values in a plane and the answer among them. Scores rise for values on the arrow's side, fall on the other."
)

# %% [markdown]
# The answer (star) is a weighted mean, so it stays inside the grey hull of the values. The dashed line through the
# answer separates the values. A step of gradient descent raises the scores on the arrow's side (green) and lowers the
# others (purple), the more, the larger the weight (written beside each).
#
# ### Exercise 2 ★★☆: attention's backward
#
# Write the backward of the table's three rows, from the last to the first. For each product, the shapes tell which
# array is transposed. As before, any number of axes may come before the last two.


# %% tags=["exercise"]
def attention_backward(dout, query, key, value, weights):
    """Gradients of out = weights @ value, where weights = softmax(query @ keyᵀ / √D).

    dout (..., Tq, Dv), query (..., Tq, D), key (..., Tk, D), value (..., Tk, Dv), weights (..., Tq, Tk)
    → the tuple dquery (..., Tq, D), dkey (..., Tk, D), dvalue (..., Tk, Dv).
    """
    raise NotImplementedError


# %%
attention_backward = check(attention_backward)

# %% [markdown] tags=["help"]
# Begin with the last row, $O = WV$. Which arrays have the right shapes to make $\mathrm{d}V$, which is $(T_k, D_v)$?
# Which make $\mathrm{d}W$, which is $(T_q, T_k)$? The first row of the table goes the same way.
#
# ---
#
# $\mathrm{d}V = W^\top\,\mathrm{d}O$ and $\mathrm{d}W = \mathrm{d}O\,V^\top$; then the softmax backward, its sum over
# `axis=-1` with `keepdims=True`; then $\mathrm{d}Q = \mathrm{d}S\,K / \sqrt{D}$ and $\mathrm{d}K = \mathrm{d}S^\top Q /
# \sqrt{D}$.

# %% [markdown]
# Is it right?


# %%
def forward(query, key, value):
    out, weights = attention(query, key, value)
    return out, (query, key, value, weights)


def backward(dout, cache):
    return attention_backward(dout, *cache)


for name, worst in check_gradients(forward, backward, {"query": query, "key": key, "value": value}).items():
    print(f"d{name:<6} against central differences {worst:.1e}")

# %% [markdown]
# ### What the scale is worth (optional)
#
# With a backward we can train. Each of 50 queries has 32 keys of its own and must learn to fetch one given value. The
# loss is the squared distance from its answer to that value, and gradient descent (lesson 01) changes the query alone.
# Without the scale we have the same attention with queries that are $\sqrt{D}$ times as long. Both may choose among
# learning rates from one thousandth to one hundred.

# %%
D, rates = 256, 10.0 ** np.arange(-3, 3)
many_keys, many_values = rng.standard_normal((50, 32, D)), rng.standard_normal((50, 32, 8))
start_queries, wanted = rng.standard_normal((50, 1, D)), many_values[:, :1]  # each wants the value of its first key


def share_found(factor, rate, steps=50):
    """Train parameters p, with query = factor · p; the share of them that give their key most of the weight."""
    p = start_queries.copy()
    for _ in range(steps):
        answer, weights = attention(factor * p, many_keys, many_values)
        dquery, _, _ = attention_backward(answer - wanted, factor * p, many_keys, many_values, weights)
        p -= rate * factor * dquery
    return np.mean(attention(factor * p, many_keys, many_values)[1][:, 0, 0] > 0.5)


found = {factor: [share_found(factor, rate) for rate in rates] for factor in (1.0, math.sqrt(D))}

# %%
draw.rates(rates, found[1.0], found[math.sqrt(D)], chance=1 / 32)
show("With the scale most queries find their key at a good learning rate; without it few do at any rate.")
for name, shares_found in (("scaled", found[1.0]), ("unscaled", found[math.sqrt(D)])):
    print(f"{name:<8} at its best rate: {max(shares_found):.0%} found")

# %% [markdown]
# The unscaled queries have already chosen a random key before the first step, and by (a) a key without weight gets no
# gradient. No learning rate makes up for it. The scale does not let the model express more, since a factor may be part
# of the query. It sets the scale of the scores at the start and the size of the steps, in the same way for every width.
#
# ## Masks: which keys a query may see
#
# Two kinds of keys must stay invisible:
#
# * **padding**: sentences of unequal length share a batch (lesson 02), and the positions at their ends are no words;
# * **the future**: in training, the decoder reads the whole right sentence at once (teacher forcing, lesson 03).
#   Position $i$ must predict word $i + 1$, and could copy it from position $i + 1$.
#
# A [mask](glossary.md#mask) is an array of booleans that broadcasts to the scores. In this project, everywhere,
# **`True` = may attend**. For padding it is one row for each sentence, `key_mask` of shape $(B, T_k)$. For the future
# it is a triangle.
#
# ### Exercise 3 ★☆☆: the triangle
#
# Mind the case of fewer queries than keys. A decoder that writes word by word (lesson 11) asks only with the newest
# position, and all keys so far are its past: the *last* query is at the position of the *last* key.


# %% tags=["exercise"]
def causal_mask(num_queries, num_keys):
    """The mask of the keys that each query may attend to: those at its own position and before it. True = may.

    The last query stands at the last key, the one before it at the last but one, and so on.
    → (num_queries, num_keys) of bool.
    """
    raise NotImplementedError


# %%
causal_mask = check(causal_mask)

# %% [markdown] tags=["help"]
# With 2 queries and 5 keys: what are the positions of the two queries, if the last one is at the last key? Which
# condition on a query's position and a key's position says "not in the future"?
#
# ---
#
# The queries are at `np.arange(num_keys - num_queries, num_keys)`, the keys at `np.arange(num_keys)`. Compare the two
# with `<=`, one of them as a column, `[:, None]`, so that every query meets every key.

# %%
for shape in ((4, 4), (1, 4), (4, 2)):
    agrees = np.array_equal(causal_mask(*shape), attention_mask(*shape, causal=True, key_mask=None, window=None))
    drawn = " / ".join("".join(".x"[int(may)] for may in row) for row in causal_mask(*shape))
    print(f"{shape[0]} queries, {shape[1]} keys: {drawn:<20} as the package's: {agrees}")

# %% [markdown]
# ### Three ways to use it
#
# If a query may not see a key, its output must not depend on that key or its value. There are three places for the
# mask, and each looks reasonable:


# %%
def softmax(scores):
    return softmax_forward(scores)[0]


ways = {
    "no mask": lambda scores, mask: softmax(scores),
    "scores × mask": lambda scores, mask: softmax(scores * mask),
    "weights × mask": lambda scores, mask: softmax(scores) * mask,
    "−∞ before the softmax": lambda scores, mask: softmax(np.where(mask, scores, -np.inf)),
}

# %% [markdown]
# ### Exercise 4 ★★☆: perturb the future (optional)
#
# Test which of them is right. Replace key $j$ and value $j$ by something else, and see which rows of the output move.
# You can run this test on any model, without knowing its inside.


# %% tags=["exercise"]
def moved_by(attend, query, key, value):
    """True at [i, j] if output i moves when key j and value j are replaced by other numbers, for all i and j.

    attend(query, key, value) → out (Tq, Dv); query (Tq, D), key (Tk, D), value (Tk, Dv): leave them as they were.
    → (Tq, Tk) of bool; a difference below 1e-9 is rounding.
    """
    raise NotImplementedError


# %%
moved_by = check(moved_by)

# %% [markdown] tags=["help"]
# For one $j$: which arrays do you give to `attend` the second time, and what may have changed in them? Which rows of
# the two outputs do you then compare, and into which row or column of the answer does the result go?
#
# ---
#
# In a loop over $j$: `other_key = key.copy()`, then `other_key[j] += 1`, and the value likewise. Row $i$ has moved if
# any of its numbers has: `(np.abs(new - out) > 1e-9).any(axis=1)`. This is column $j$ of the answer.

# %% [markdown]
# ### The test of the three ways
#
# We change each key and value in turn, and see which outputs move. Query $i$ may see the keys to the left of the
# staircase:

# %%
if "moved_by" not in globals():  # for those who skip the optional exercise
    from course.lesson_04.solutions import moved_by

length, D = 6, 8
query, key, value = (rng.standard_normal((length, D)) for _ in range(3))
scores, mask = query @ key.T / math.sqrt(D), causal_mask(length, length)
weights, moved = {}, {}
for name, way in ways.items():
    weights[name] = way(scores, mask)
    moved[name] = moved_by(lambda q, k, v, way=way: way(q @ k.T / math.sqrt(D), mask) @ v, query, key, value)
draw.masks(weights, moved, mask)
show(
    "Four masks: weights above, and below which key moves which output. Without a mask, with scores × mask and with "
    "weights × mask the future leaks everywhere; with −∞ before the softmax nothing leaks."
)

# %% [markdown]
# * **Scores × mask**: a score of 0 still adds $e^0 = 1$ to the sum. The future keeps a weight, even a larger one than a
#   past word with a negative score.
# * **Weights × mask**: the triangle is clean, but the rows no longer sum to 1. The softmax has counted the forbidden
#   keys in its denominator, and there they leak: a model can read something of the future from the *size* of its
#   outputs.
# * **−∞ before the softmax**: $e^{-\infty} = 0$ in numerator and denominator. Nothing moves.
#
# The backward needs no mask. By (a) a weight of 0 makes a gradient of 0, so your backward of exercise 2 is already the
# masked one.
#
# ### Dividing by the sum instead (optional)
#
# Can a mask after the softmax be saved if we divide each row by its sum? On paper, yes. In floating point the softmax
# has already subtracted the maximum *over all keys*, and beside a large forbidden score all allowed weights have
# vanished:

# %%
scores, may = np.array([1.0, 2.0, 900.0]), np.array([True, True, False])
after = softmax(scores) * may
print("weights × mask:", after, "with the sum", after.sum())
print("−∞ before:     ", softmax(np.where(may, scores, -np.inf)).round(3))

# %% [markdown]
# ## A query with nothing to see
#
# One case remains. A sentence of a batch may be all padding, and with more queries than keys, as in the last line under
# exercise 3, the first queries come before the first key. Then the maximum of a row is $-\infty$, and $-\infty -
# (-\infty)$ is NaN. How far does one such row spread?

# %%
lonely = mask.copy()
lonely[2] = False  # query 2 may see nothing
masked = np.where(lonely, query @ key.T / math.sqrt(D), -np.inf)
with np.errstate(invalid="ignore"):
    exponentials = np.exp(masked - masked.max(axis=-1, keepdims=True))
    broken = exponentials / exponentials.sum(axis=-1, keepdims=True)
    gradients = attention_backward(np.ones((length, D)), query, key, value, broken)
for name, array in zip(("weights", "dquery", "dkey", "dvalue"), (broken, *gradients), strict=True):
    print(f"rows of {name:<7} that are NaN: {int(np.isnan(array).any(axis=1).sum())} of {length}")

# %% [markdown]
# After one such row and one step of training the whole model is NaN. The right output is simple: a sum over no keys is
# **0**, and a constant sends no gradient.
#
# ### Exercise 5 ★☆☆: a masked softmax
#
# All of the above in one function. Write the exponentials and their sum yourself: put −∞ where the mask forbids, and
# subtract each row's maximum. An empty row fails twice: its maximum is −∞, and its sum is 0. Replace both by harmless
# numbers, so that zeros come out.


# %% tags=["exercise"]
def masked_softmax(scores, mask):
    """The softmax over the last axis of the scores that the mask allows; the others have weight 0.

    scores (..., Tq, Tk), mask of bool (True = may attend), which broadcasts to it → weights (..., Tq, Tk).
    A row that may see nothing gives zeros. Large scores, allowed or forbidden, do no harm.
    """
    raise NotImplementedError


# %%
masked_softmax = check(masked_softmax)

# %% [markdown] tags=["help"]
# `np.where(condition, this, that)` chooses number by number. Which finite number can you subtract from a row of −∞ so
# that the exponentials are 0? And by which number can you divide zeros?
#
# ---
#
# `scores = np.where(mask, scores, -np.inf)`, then `largest = scores.max(axis=-1, keepdims=True)`. Subtract
# `np.where(np.isneginf(largest), 0, largest)`, and divide by `np.where(totals == 0, 1, totals)`.

# %% [markdown]
# ## The proof
#
# This batch has all the difficulties at once: a [causal](glossary.md#causal) mask, more queries than keys, and a
# sentence with padding at its end.


# %%
def masked_forward(query, key, value):
    weights = masked_softmax(query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1]), mask)  # (B, H, Tq, Tk)
    return weights @ value, (query, key, value, weights)


query, key, value = (rng.standard_normal((2, 1, T, D)) for T, D in ((6, 5), (4, 5), (4, 3)))  # (B, H, T, D)
key_mask = np.array([[True, True, True, True], [True, True, False, False]])  # (B, Tk)
mask = causal_mask(6, 4) & key_mask[:, None, None, :]  # (B, 1, Tq, Tk)
print("queries with nothing to see:", int((~mask.any(axis=-1)).sum()))

out, cache = masked_forward(query, key, value)
packaged, _ = attention_forward(query, key, value, causal=True, key_mask=key_mask)
print(f"output against the package {error(out, packaged):.1e}")
for name, worst in check_gradients(masked_forward, backward, {"query": query, "key": key, "value": value}).items():
    print(f"d{name:<6} against central differences {worst:.1e}")

# %% [markdown]
# ### Against PyTorch (optional)
#
# We also compare with PyTorch's own attention and its autograd, in float64, for the queries that have something to see.
# (PyTorch's output for a row without any key has changed between its versions.)


# %%
def against_pytorch():
    import torch

    seen = mask.any(axis=-1, keepdims=True)  # (B, 1, Tq, 1)
    dout = rng.standard_normal(out.shape) * seen
    leaves = [torch.tensor(array, requires_grad=True) for array in (query, key, value)]
    allowed = torch.tensor(mask | ~seen)  # an empty row sees everything there, and is left out of the comparison
    theirs = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=allowed)
    theirs.backward(torch.tensor(dout))
    ours = [out * seen, *attention_backward(dout, *cache)]
    expected = [theirs.detach().numpy() * seen, *(leaf.grad.numpy() for leaf in leaves)]
    return {name: error(a, b) for name, a, b in zip(("out", "dquery", "dkey", "dvalue"), ours, expected, strict=True)}


for name, worst in recorded("04_pytorch", against_pytorch).items():
    print(f"{name:<6} against PyTorch {worst:.1e}")

# %% [markdown]
# ## Common mistakes, and what they look like

# %%
query, key, value = (rng.standard_normal((5, 16)) for _ in range(3))
scores = query @ key.T / math.sqrt(16)

print("softmax over the wrong axis: rows sum to ", softmax(scores.T).T.sum(axis=1).round(2))
print("mask inverted: the last row is           ", masked_softmax(scores, ~causal_mask(5, 5))[-1])
hides_itself = masked_softmax(scores, np.tril(np.ones((5, 5), bool), k=-1))  # off by one
print("mask off by one: the first row is        ", hides_itself[0])
print("-1e9 for −∞: an empty row attends to     ", softmax(np.where(False, scores, -1e9))[0])

# %% [markdown]
# * **The softmax over the wrong axis.** Look at the sums: the weights of one query, a row, must sum to 1.
# * **An inverted mask.** APIs disagree: in PyTorch's `scaled_dot_product_attention` `True` means "may attend", in its
#   `MultiheadAttention` `True` means "hide". Look at one row.
# * **The triangle off by one.** If it is too small, the first position sees nothing. If it is too large, each position
#   sees the answer: the training loss is close to 0, and the translations are nonsense.
# * **$-10^9$ for $-\infty$.** In an empty row all scores are equal, and the query attends evenly to the padding.
#
# ## What changed since 2017 (optional)
#
# Equation 1 is still at the heart of nearly every large language model. Its computation has changed: the weights are
# never stored ([FlashAttention](https://arxiv.org/abs/2205.14135), 2022; lesson 16). And trained queries and keys are
# not independent, so the scores need more to stay in range. Many models normalise queries and keys before the product
# ([QK-norm](https://arxiv.org/abs/2010.04245), 2020). [μP](https://arxiv.org/abs/2203.03466) divides by $D$: for
# correlated vectors the sum of $D$ terms grows as $D$ and not as its root.
#
# ## Where next
#
# One query gets one set of weights. [Lesson 05](05_multi_head.ipynb) gives it several.
