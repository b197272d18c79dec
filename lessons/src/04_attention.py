# %% [markdown]
# # 04 · Scaled dot-product attention, and masks
#
# **You will be able to** write attention, forward and backward, for any mask; prove it; and say what each of its parts
# is for: why the scores are divided by $\sqrt{d_k}$, and why a mask must come before the softmax.
#
# | | |
# |---|---|
# | you know | lessons 00 to 03: gradients by hand, the softmax, padding, teacher forcing, additive attention |
# | runs in | at most 20 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.2.1, equation 1, figure 2 (left); masks in §3.2.3 |
# | in the package | [`attention`](../minitransformer/ops/attention.py), [its proof](../tests/ops/test_attention.py) |
#
# In lesson 03 attention was a repair: a recurrent decoder, which writes word by word from a memory, could look back at
# every source word. The paper asks what is left if the recurrence goes and only the looking stays. This lesson is that
# looking, in the form that the paper gave it. Everything else in the Transformer is built around it.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np

from course import recorded, start
from course.lesson_04 import pictures as draw
from minitransformer.gradcheck import check_gradients, error
from minitransformer.ops import attention_backward as package_attention_backward
from minitransformer.ops import attention_forward, attention_mask, softmax_forward

check = start("04")
rng = np.random.default_rng(0)

# %% [markdown]
# ## A dictionary that always answers
#
# A dictionary has keys and values. You ask with a query; if it equals a key you get that key's value, and if not you
# get an error. Here are three colours, as amounts of red, green and blue, and the wavelength of their light in
# nanometres:

# %%
wavelengths = {(1, 0, 0): 650, (0, 1, 0): 530, (0, 0, 1): 460}
red, yellow = (1, 0, 0), (1, 1, 0)
print("red:   ", wavelengths[red], "nm")
print("yellow:", wavelengths.get(yellow, "KeyError"))

# %% [markdown]
# No key equals yellow, but two are like it. So let every key answer, in proportion to how well it matches. The match is
# a **dot product**, the proportions are its **softmax**, and the answer is the **weighted mean** of the values.

# %%
keys = np.array(list(wavelengths), dtype=float)  # (3, 3): a row for each key
values = np.array(list(wavelengths.values()), dtype=float)  # (3,)
for sharpness in (1, 5, 20):
    weights, _ = softmax_forward(sharpness * keys @ np.array(yellow, float))
    shown = "  ".join(f"{weight:.3f}" for weight in weights)
    print(f"sharpness {sharpness:2d}: weights of red, green, blue  {shown}   answer {weights @ values:.0f} nm")

# %% [markdown]
# Yellow lands between red and green, where the rainbow has it. The sharpness is a factor in the query. Take two things
# from this toy:
#
# * The longer the query, the sharper the choice: in the limit only the keys that match best still answer.
# * The answer moves smoothly with the query, the keys and the values. A hard look-up is flat with jumps in it, and has
#   no gradient to learn from. A soft one has a gradient; that is why it is soft.
#
# ## Equation 1
#
# Now with many queries. Let
#
# * `query` be $Q$, of shape $(T_q, D)$: for each of $T_q$ places that ask, a row $q_i$ saying what it looks for;
# * `key` be $K$, of shape $(T_k, D)$: for each of $T_k$ places that can be asked, a row $k_j$ saying what it has to
#   offer, of the same width $D$ (the paper's $d_k$), since it is compared with the queries;
# * `value` be $V$, of shape $(T_k, D_v)$: for each of these places the row $v_j$ that it hands over.
#
# $$ \mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{D}}\right) V \tag{1} $$
#
# Row by row, with a score $s_{ij}$ and a weight $w_{ij}$ for each pair of a query $i$ and a key $j$:
#
# $$ s_{ij} = \frac{q_i \cdot k_j}{\sqrt{D}} \qquad
#    w_{ij} = \frac{e^{s_{ij}}}{\sum_{l} e^{s_{il}}} \qquad
#    o_i = \sum_j w_{ij}\, v_j $$
#
# Query $i$ has a score $s_{ij}$ for each key $j$. The softmax over $j$ makes weights $w_{ij}$ of its scores, and $o_i$,
# its row of the output, is the mean of the values with these weights. (The $\sqrt{D}$ gets a section of its own below.)
# In loops:


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
# Nothing in the loop over $i$ depends on another $i$. No query waits for another one, while each step of the recurrence
# in lesson 03 waited for the step before.
#
# ### Exercise 1 ★☆☆: equation 1
#
# So neither loop is needed. Write equation 1 with matrix products. Sentences, and later heads, come as further axes in
# front, $(\dots, T, D)$: `@` multiplies the last two axes and leaves the others as they are, and your function should
# too. `softmax_forward` is lesson 01's: it takes the softmax over the last axis, and returns it with a cache.


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
# ---
# `key.swapaxes(-1, -2)` transposes the last two axes of any array; `.T` would reverse all of them. $D$ is
# `query.shape[-1]`. Then `weights, _ = softmax_forward(scores)`, and one more product.

# %%
key, value = rng.standard_normal((7, 4)), rng.standard_normal((7, 3))
query = 2 * key[[5, 0, 2, 2, 6]] + rng.standard_normal((5, 4))  # five queries, each somewhat like one of the keys
out, weights = attention(query, key, value)
print(f"loops against matrix products: {error(attention_loops(query, key, value), out):.1e}")

# %% [markdown]
# The package works on a batch of $B$ sentences with $H$ heads, `(B, H, T, D)`. Heads are lesson 05's; here $H = 1$.

# %%
packaged, _ = attention_forward(query[None, None], key[None, None], value[None, None])  # (1, 1, 5, 3)
print(f"ours against the package:      {error(out, packaged[0, 0]):.1e}")

# %% [markdown]
# These are the seven keys and five queries, every number a little square. Follow the framed row: one query meets all
# keys, its scores become weights, and the weights mix the rows of `value` into its row of `out`.

# %%
draw.equation(query, key, value, weights, out, row=3)
plt.show()

# %% [markdown]
# ### Why a dot product?
#
# Lesson 03's additive score takes a vector of $C$ numbers, through a tanh, for every pair of a query and a key. A dot
# product takes one number for every pair, and all of them together are one matrix product, which is what processors do
# best. For one sentence of 512 tokens, in float32 (4 bytes a number):

# %%
n, width = 512, 64
print(f"features of additive scores:       {4 * n * n * width / 1e6:6.1f} MB")
print(f"dot products:                      {4 * n * n / 1e6:6.1f} MB")

# %% [markdown]
# Both grow with the square of the length: that is the price of letting everything look at everything. Lesson 13
# measures it, lesson 16 makes the memory go away.
#
# ## Why divide by √D
#
# The paper's footnote 4: let the components of $q$ and $k$ be independent, with mean 0 and variance 1. Each product
# $q_d k_d$ then has mean 0 and variance $1 \cdot 1 = 1$, and the variances of $D$ independent terms add:
#
# $$ \mathrm{Var}(q \cdot k) = \sum_{d=1}^{D} \mathrm{Var}(q_d k_d) = D $$
#
# So a score is about as large as $\sqrt{D}$. The query is in effect $\sqrt{D}$ times too long, and our dictionary is a
# hard one before it has learned anything. What is bad about that? Look at lesson 01's Jacobian of the softmax:
#
# $$ \frac{\partial w_j}{\partial s_l} = w_j\,(\delta_{jl} - w_l) $$
#
# ($\delta_{jl}$ is 1 where $j = l$, and 0 elsewhere.) With one weight at 1 and the others at 0 every entry of it is 0,
# and no gradient passes. Divided by $\sqrt{D}$, scores have variance 1 at any width. Let us measure: for each $D$,
# 2,000 random queries with 32 random keys each, and a random gradient that arrives at the weights. How much of it
# reaches the scores?

# %%
T, widths = 32, 2 ** np.arange(11)


def first_step(D, scale):
    """The scores' variance for random queries and keys, the weights, and the length of each query's score gradient."""
    rng = np.random.default_rng(D)
    query, key = rng.standard_normal((20, 100, D)), rng.standard_normal((20, T, D))
    dweights = rng.standard_normal((20, 100, T))
    scores = scale * query @ key.swapaxes(-1, -2)  # (20, 100, T)
    weights, _ = softmax_forward(scores)
    dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True))  # lesson 01
    return scores.var(), weights, np.linalg.norm(dscores, axis=-1).ravel()


unscaled = [first_step(D, 1.0) for D in widths]
scaled = [first_step(D, 1 / math.sqrt(D)) for D in widths]

# %% tags=["picture"]
draw.scaling(widths, unscaled, scaled, width=64)
plt.show()

# %% [markdown]
# On the left, the footnote's line, and the flat one that the division makes of it. In the middle, the weights of one
# typical query, largest first. On the right, the gradient: the line is the median query, and the band holds the middle
# 80 % of them.

# %%
at = list(widths).index(512)
for name, measured in (("unscaled", unscaled[at]), ("scaled", scaled[at])):
    variance, weights, lengths = measured
    print(
        f"D = 512, {name:<8}  variance {variance:6.1f}   largest weight {np.median(weights.max(-1)):.2f}   "
        f"gradient: median {np.median(lengths):.0e}, mean {lengths.mean():.0e}"
    )

# %% [markdown]
# Look at the last two numbers of each line. Without the scale the *mean* gradient falls far less than the median one.
# So it is not true that all queries learn slowly. A few, whose two best keys nearly tie, get everything, and the rest
# get nothing. A training curve shows you only the mean.
#
# Why not divide by $D$, then, to be safe? Because scores of variance $1/D$ make all weights nearly equal: attention
# becomes an average that ignores its query. The right scale is the one at which the softmax can still decide.
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
# Lesson 01's line for the softmax is, in the letters of this lesson,
#
# $$ \mathrm{d}s_{ij} = w_{ij}\left(\mathrm{d}w_{ij} - \textstyle\sum_l \mathrm{d}w_{il}\,w_{il}\right) $$
#
# Put the two lower lines of the table together and something simple appears. An entry of $\mathrm{d}W$ is
# $\mathrm{d}w_{il} = \mathrm{d}o_i \cdot v_l$. So the sum in the brackets is $\mathrm{d}o_i \cdot \sum_l w_{il} v_l$,
# which is $\mathrm{d}o_i \cdot o_i$, and
#
# $$ \mathrm{d}s_{ij} = w_{ij}\;\mathrm{d}o_i \cdot (v_j - o_i) \tag{a} $$
#
# Read it: **training raises a key's score if its value, seen from the present answer, lies in the direction in which
# the answer should move**, and does so in proportion to the weight that the key already has. A key with weight 0 learns
# nothing: this one factor, $w_{ij}$, is what the last section measured.

# %%
asked = rng.standard_normal((1, 2)) * 0.8  # one query, seven keys, values in the plane
plane_keys, plane_values = rng.standard_normal((7, 2)), rng.standard_normal((7, 2))
mixed, shares = attention(asked, plane_keys, plane_values)
dmixed = np.array([[-0.6, 0.8]])  # so the loss would fall if the answer moved the other way
dshares = dmixed @ plane_values.T
draw.pulls(plane_values, shares[0], mixed[0], dmixed[0], (shares * (dshares - dmixed @ mixed.T))[0])
plt.show()

# %% [markdown]
# The answer (star) is a weighted mean, so it can only lie inside the fence of the values (grey). The dashed line
# through the answer parts the values. A step of gradient descent raises the scores of those on the arrow's side (green)
# and lowers the scores of the others (purple). It does so the more, the larger the weight, which is written beside
# each.
#
# ### Exercise 2 ★★☆: attention's backward
#
# Fill in the table. The products of lesson 00 are not written out: the shapes decide which one it is. As before, any
# number of axes may come before the last two.


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
# Begin with the last line, $O = WV$. Which of the arrays at hand have the right shapes to make $\mathrm{d}V$, which is
# $(T_k, D_v)$? Which make $\mathrm{d}W$, which is $(T_q, T_k)$? The first line of the table goes the same way.
# ---
# $\mathrm{d}V = W^\top\,\mathrm{d}O$ and $\mathrm{d}W = \mathrm{d}O\,V^\top$; then the softmax's line, its sum over
# `axis=-1` with `keepdims=True`; then $\mathrm{d}Q = \mathrm{d}S\,K / \sqrt{D}$ and
# $\mathrm{d}K = \mathrm{d}S^\top Q / \sqrt{D}$.

# %% [markdown]
# Against the package, and against central differences:


# %%
def forward(query, key, value):
    out, weights = attention(query, key, value)
    return out, (query, key, value, weights)


def backward(dout, cache):
    return attention_backward(dout, *cache)


dout = rng.standard_normal(out.shape)
_, package_cache = attention_forward(query[None, None], key[None, None], value[None, None])
theirs = package_attention_backward(dout[None, None], package_cache)
measured = check_gradients(forward, backward, {"query": query, "key": key, "value": value})
for name, mine, other in zip(measured, backward(dout, forward(query, key, value)[1]), theirs, strict=True):
    print(f"d{name:<6} against the package {error(mine, other[0, 0]):.1e}   central differences {measured[name]:.1e}")

# %% [markdown]
# The package's version saves a little work. It scales the `query`, $D$ numbers a row, and not the scores, $T_k$ numbers
# a row; and it takes the softmax's sum as $\mathrm{d}o_i \cdot o_i$, as in (a). Flash attention uses that identity
# (lesson 16).
#
# ### What the scale is worth (optional)
#
# With a backward we can train. Each of 50 queries has 32 keys of its own and must learn to fetch one given value. The
# loss is the squared distance from its answer to that value, and gradient descent (lesson 01) moves the query alone. It
# is as easy as learning gets. Without the scale we have the same attention on queries that are $\sqrt{D}$ times as
# long. To be fair, both may choose among learning rates from one thousandth to one hundred.

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
plt.show()
for name, shares_found in (("scaled", found[1.0]), ("unscaled", found[math.sqrt(D)])):
    print(f"{name:<8} at its best rate: {max(shares_found):.0%} found")

# %% [markdown]
# The unscaled queries have made up their minds at random before the first step, and by (a) a key that has no weight
# cannot ask for more. No learning rate helps. Note what the scale is *not*: it adds nothing that the model could not
# express otherwise, since a factor may hide in the query. It only sets how large the scores are at the start and
# how long the steps are, in the same way for every width.
#
# ## Masks: what a query may see
#
# Two things must not be looked at:
#
# * **padding**: sentences of unequal length share a batch (lesson 02), and the empty places at their ends are no words;
# * **the future**: in training, the decoder gets the right sentence as its input, all of it at once (teacher forcing,
#   lesson 03). Position $i$ must predict word $i + 1$. But word $i + 1$ is also in the input, at position $i + 1$. If
#   position $i$ could look there, it would only have to copy.
#
# A [mask](glossary.md#mask) is an array of booleans that broadcasts to the scores. In this project, everywhere,
# **`True` = may attend**. For padding it is one row for each sentence, `key_mask` of shape $(B, T_k)$. For the future
# it is a triangle.
#
# ### Exercise 3 ★☆☆: the triangle
#
# Mind the case of fewer queries than keys. When a decoder writes word by word (lesson 11), it asks with the newest
# position alone, and all keys so far are its past: the *last* query stands at the *last* key.


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
# With 2 queries and 5 keys: at which positions do the two queries stand, if the last one stands at the last key? Which
# condition on a query's position and a key's position says "not in the future"?
# ---
# The queries stand at `np.arange(num_keys - num_queries, num_keys)`, the keys at `np.arange(num_keys)`. Compare the two
# with `<=`, one of them as a column, `[:, None]`, so that every query meets every key.

# %%
for shape in ((4, 4), (1, 4), (4, 2)):
    agrees = np.array_equal(causal_mask(*shape), attention_mask(*shape, causal=True, key_mask=None, window=None))
    drawn = " / ".join("".join(".x"[int(may)] for may in row) for row in causal_mask(*shape))
    print(f"{shape[0]} queries, {shape[1]} keys: {drawn:<20} as the package's: {agrees}")

# %% [markdown]
# ### Three ways to use it
#
# What does it mean that a query may not see a key? The output must be the same, *whatever* that key and its value are.
# There are three places to put the mask, and each looks reasonable:


# %%
def times_scores(query, key, value, mask):
    """The forbidden scores become 0."""
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    weights, _ = softmax_forward(scores * mask)
    return weights @ value, weights


def times_weights(query, key, value, mask):
    """The forbidden weights become 0."""
    weights = attention(query, key, value)[1] * mask
    return weights @ value, weights


def minus_infinity(query, key, value, mask):
    """The forbidden scores become −∞, so that their exponentials are 0."""
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    weights, _ = softmax_forward(np.where(mask, scores, -np.inf))
    return weights @ value, weights


# %% [markdown]
# ### Exercise 4 ★★☆: perturb the future (optional)
#
# Do not argue about which of them is right; test it. Replace key $j$ and value $j$ by something else, and see which
# rows of the output move. You can run this test on any model, without knowing what is inside.


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
# ---
# In a loop over $j$: `other_key = key.copy()`, then `other_key[j] += 1`, and the value likewise. Row $i$ has moved if
# any of its numbers has: `(np.abs(new - out) > 1e-9).any(axis=1)`. This is column $j$ of the answer.

# %% [markdown]
# ### What the test shows
#
# The weights of four ways above, and below them what moves what. Query $i$ may see the keys below the staircase:

# %%
if "moved_by" not in globals():  # for those who skip the optional exercise
    from course.lesson_04.solutions import moved_by

length, D = 6, 8
query, key, value = (rng.standard_normal((length, D)) for _ in range(3))
mask = causal_mask(length, length)
ways = {
    "no mask": lambda q, k, v, mask: attention(q, k, v),
    "scores × mask": times_scores,
    "weights × mask": times_weights,
    "−∞ before the softmax": minus_infinity,
}
weights = {name: way(query, key, value, mask)[1] for name, way in ways.items()}
moved = {
    name: moved_by(lambda q, k, v, way=way: way(q, k, v, mask)[0], query, key, value) for name, way in ways.items()
}
draw.masks(weights, moved, mask)
plt.show()

# %% [markdown]
# Column by column:
#
# * **Scores × mask**: a score of 0 is not "nothing", it is $e^0 = 1$ in the sum. The future keeps a weight. This weight
#   is even larger than that of a word in the past whose score is negative. So its values leak.
# * **Weights × mask**: this one looks right, the triangle is clean. But the rows no longer sum to 1. The forbidden keys
#   were counted in the softmax's denominator, and through the denominator they leak: in training, a model can read
#   something of the future from the *size* of its outputs.
# * **−∞ before the softmax**: $e^{-\infty} = 0$ in numerator and denominator. Nothing moves.
#
# Can a mask after the softmax be saved if we divide each row by its sum? On paper it is the same thing. In floating
# point it is not. The softmax has already subtracted the maximum *over all keys*, and next to a large forbidden score
# all that was allowed has vanished:

# %%
scores, may = np.array([1.0, 2.0, 900.0]), np.array([True, True, False])
after = softmax_forward(scores)[0] * may
before, _ = softmax_forward(np.where(may, scores, -np.inf))
print("weights × mask:", after, "with the sum", after.sum())
print("−∞ before:     ", np.round(before, 3))

# %% [markdown]
# The backward needs no mask at all. By (a) a weight of 0 makes a gradient of 0, so what nobody may see cannot learn
# from it either. Your backward of exercise 2 is already the masked one.
#
# ## A query with nothing to see
#
# One case is left. The last sentence of a batch may be empty, all of it padding. A window (lesson 13) may hold nothing
# but padding. With more queries than keys, as in the last line under exercise 3, the first queries stand before the
# first key. Then the maximum of a row is $-\infty$, and $-\infty - (-\infty)$ is NaN. How far does one such row go?


# %%
def naive_softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


lonely = mask.copy()
lonely[2] = False  # query 2 may see nothing
with np.errstate(invalid="ignore"):
    broken = naive_softmax(np.where(lonely, query @ key.T / math.sqrt(D), -np.inf))
    gradients = attention_backward(np.ones((length, D)), query, key, value, broken)
print("rows of the weights that are NaN:", int(np.isnan(broken).any(axis=1).sum()), "of", length)
for name, gradient in zip(("dquery", "dkey", "dvalue"), gradients, strict=True):
    print(f"rows of {name:<6} that are NaN:     {int(np.isnan(gradient).any(axis=1).sum())} of {length}")

# %% [markdown]
# One empty row, and after one step of training the model is NaN. What should this query get? It asks, and nobody is
# there: a sum over no keys is **0**, and a constant sends no gradient.
#
# ### Exercise 5 ★★☆: a softmax that knows its mask
#
# All of the above in one function: −∞ first, and zeros for a row that may see nothing. Write the exponentials and their
# sum yourself.


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
# Two steps go wrong in a row of nothing but −∞: the largest score is −∞, and the sum of the exponentials is 0. Which
# other number could you subtract there, and which other number could you divide by, so that zeros come out?
# ---
# `scores = np.where(mask, scores, -np.inf)`, then `largest = scores.max(axis=-1, keepdims=True)`. Subtract
# `np.where(np.isneginf(largest), 0, largest)`, and divide by `np.where(totals == 0, 1, totals)`.

# %% [markdown]
# The package does it in the [softmax](../minitransformer/ops/softmax.py) itself: a row of −∞ gives zeros there.
#
# ## The proof
#
# The whole of this lesson in a few lines, on a batch in which everything happens at once: a
# [causal](glossary.md#causal) mask, more queries than keys, and a sentence whose last keys are padding.


# %%
def masked_attention_forward(query, key, value, mask):
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])  # (B, H, Tq, Tk)
    weights = masked_softmax(scores, mask)
    return weights @ value, (query, key, value, weights)


query, key, value = (rng.standard_normal((2, 1, T, D)) for T, D in ((6, 5), (4, 5), (4, 3)))  # (B, H, T, D)
key_mask = np.array([[True, True, True, True], [True, True, False, False]])  # (B, Tk)
mask = causal_mask(6, 4) & key_mask[:, None, None, :]  # (B, 1, Tq, Tk)
print("queries with nothing to see:", int((~mask.any(axis=-1)).sum()))

arrays = {"query": query, "key": key, "value": value}
out, cache = masked_attention_forward(*arrays.values(), mask)
packaged, _ = attention_forward(query, key, value, causal=True, key_mask=key_mask)
print(f"output against the package {error(out, packaged):.1e}")
for name, worst in check_gradients(lambda *qkv: masked_attention_forward(*qkv, mask), backward, arrays).items():
    print(f"d{name:<6} against central differences {worst:.1e}")

# %% [markdown]
# ### Against PyTorch (optional)
#
# And against PyTorch's own attention and its autograd, in float64, for the queries that have something to see. (What
# PyTorch returns for a row without any key has changed between its versions.)


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

over_queries = softmax_forward(scores.T)[0].T  # softmax over the queries: axis 0 instead of the last
print("softmax over the wrong axis: rows sum to ", np.round(over_queries.sum(axis=1), 2))

inverted = masked_softmax(scores, ~causal_mask(5, 5))  # True taken for "hide"
print("mask inverted: the last row is           ", inverted[-1])

hides_itself = masked_softmax(scores, np.tril(np.ones((5, 5), bool), k=-1))  # off by one
print("mask off by one: the first row is        ", hides_itself[0])

big_negative = softmax_forward(np.where(False, scores, -1e9))[0]  # −10⁹ for −∞, and nothing to see
print("-1e9 for −∞: an empty row attends to     ", big_negative[0])

batch = rng.standard_normal((2, 3, 5, 16))
print(".T on a batch: (2, 3, 5, 16) becomes     ", batch.T.shape)

# %% [markdown]
# * **The softmax over the wrong axis.** Now keys share out queries. The sums show it: over each row, the weights of one
#   query, they must be 1.
# * **Masks the other way round.** APIs disagree: in PyTorch's `scaled_dot_product_attention` `True` means "may attend",
#   in its `MultiheadAttention` `True` means "hide". Look at one row.
# * **The triangle off by one.** Too small, and the first position sees nothing. Too large, and each position sees the
#   answer: a training loss close to 0 that is too good to be true, and nonsense when the model translates.
# * **$-10^9$ for $-\infty$.** It works until a row is empty: then all scores are equal, and the query attends evenly to
#   the padding. In float16 the number does not exist.
# * **`.T` on a batch** reverses *all* axes. Use `swapaxes(-1, -2)`.
# * **The corner of the triangle**, where queries and keys differ in number. PyTorch's `is_causal=True` aligns at the
#   top left, which is not what a decoder with a cache needs. Ours aligns at the bottom right.
#
# ## What changed since 2017
#
# Equation 1 is still at the heart of nearly every large language model. How it is computed has changed: the weights are
# never stored ([FlashAttention](https://arxiv.org/abs/2205.14135), 2022; lesson 16). And training moves queries and
# keys away from independence, so the scores need more to stay in range. Many models normalise queries and keys before
# the product ([QK-norm](https://arxiv.org/abs/2010.04245), 2020). [μP](https://arxiv.org/abs/2203.03466) divides by
# $D$: for vectors that have become correlated the sum of $D$ terms grows as $D$ and not as its root.
#
# ## Where next
#
# One query gets one set of weights, and can look in one direction. [Lesson 05](05_multi_head.ipynb) gives it eight.
