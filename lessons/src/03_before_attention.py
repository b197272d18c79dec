# %% [markdown]
# # 03 · Before attention: a translator with a memory, and where it gets stuck
#
# **You will be able to** say why a network with a memory forgets distant words, and compute the attention that was
# invented against that; in the optional parts, send a gradient back through time by hand, and train translators.
#
# | | |
# |---|---|
# | you know | [00](00_gradients.ipynb) to [02](02_text.ipynb): backwards, softmax and cross-entropy, embeddings |
# | runs in | 90 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §1, whose first three paragraphs are this lesson; §3.2.1 on additive attention; §4 on path length |
# | in the package | [`Recurrent`][rnn], [`additive_attention`][add], [`RecurrentTranslator`][model] |
#
# [rnn]: ../minitransformer/layers/recurrent.py
# [add]: ../minitransformer/ops/additive_attention.py
# [model]: ../minitransformer/models/baselines/recurrent.py
#
# This lesson is about the problem that the Transformer solves. We take the smallest translation task: **copy what you
# read.** The network has to understand nothing, only to remember. That was hard for the neural translators of 2014,
# until Bahdanau, Cho and Bengio let them look back.

# %%
import time

import numpy as np

from course import start
from course.lesson_03.pictures import draw_alignment, draw_copying, draw_distances, draw_paths
from course.style import show
from minitransformer import ops
from minitransformer.gradcheck import GradientError, check_gradients, error
from minitransformer.layers import Context, FlatParameters, Recurrent
from minitransformer.models import RecurrentConfig, RecurrentTranslator
from minitransformer.ops import numpy_ops
from minitransformer.system.threads import Threads
from minitransformer.training.optimizer import Adam, clip_scale

check = start("03")
rng = np.random.default_rng(0)

# %% [markdown]
# The picture shows the problem and its solution for the copy of `A B C`. Follow the path from the `A` that is read to
# the `A` that is written. The gradient has to come back along the same path. (The mark ‹ means: begin.)

# %%
draw_paths()
show("Two chains of states; the first three read A B C. Without attention the A passes every state, with it one edge.")

# %% [markdown]
# ## A network with a memory
#
# A recurrent neural network, *RNN*, carries a **state**, a vector of $C$ numbers, from position to position. At
# position $t$ it mixes the new input $x_t$ with the previous state $h_{t-1}$:
#
# $$ h_t = \tanh(x_t W + b + h_{t-1} U) $$
#
# $x_t$ has $C_{in}$ numbers, the bias $b$ and the state $h_t$ have $C$; $W$ is a matrix of shape $(C_{in}, C)$, and
# $U$, the *recurrent* weight, is $(C, C)$. tanh squashes every number into $(-1, 1)$; its slope is $1 - \tanh^2$. All
# positions share $W$, $b$ and $U$, so a sentence may have any length. The first state, $h_0$, is zero or comes from
# another network.
#
# Only $h_{t-1} U$ has to wait for the previous position. So we project the inputs of all positions at once, $p = xW +
# b$, and loop over the rest. In the array `hidden`, index 0 holds $h_0$, so `hidden[:, t + 1]` follows from `hidden[:,
# t]`:


# %%
def rnn_forward(projected, first, recurrent):
    """h_t = tanh(p_t + h_{t−1} U): projected (B, T, C), first (B, C), recurrent (C, C) → all states (B, T + 1, C)."""
    B, T, C = projected.shape
    hidden = np.empty((B, T + 1, C), projected.dtype)
    hidden[:, 0] = first
    for t in range(T):
        hidden[:, t + 1] = np.tanh(projected[:, t] + hidden[:, t] @ recurrent)
    return hidden


# %% [markdown]
# ## Two networks make a translator
#
# An *encoder* reads the source, symbol by symbol. A *decoder* starts from the encoder's last state and writes. In
# training it gets the *right* translation so far as its input, and must predict the next symbol, at all positions at
# once. This is called [**teacher forcing**](glossary.md#teacher-forcing). So the decoder's input is the target shifted
# one position to the right, behind the mark ‹. At the end it must write the mark ›:
#
# ```
# encoder reads      A  B  C  ›
# decoder reads      ‹  A  B  C
# decoder must write A  B  C  ›
# ```
#
# The decoder sees the source only through one state: a **bottleneck**. And that is only half of the trouble.
#
# ## How much of a gradient survives the distance
#
# How could the network learn that the first symbol it reads matters for the first one it writes? The gradient must tell
# it, and the gradient comes back state by state. A step from $h_t$ to $h_{t-1}$ goes back through the tanh and the
# product with $U$:
#
# $$ \mathrm{d}h_{t-1} = \left(\mathrm{d}h_t \odot (1 - h_t^2)\right) U^\top $$
#
# ($\odot$ multiplies element by element.) The slopes $1 - h_t^2$ are never above 1, and $U^\top$ may make a vector
# longer or shorter. To separate the two effects, let $U$ be a random *rotation*, which keeps the lengths of vectors,
# times a number $s$: then $U^\top$ makes every vector exactly $s$ times as long. (The first factor of `np.linalg.qr` is
# such a rotation, up to a reflection.) A gradient of length 1 arrives at the last of 100 states. Follow it back:


# %%
def carried_back(hidden, recurrent, arriving):
    """The length of the gradient at p_t, the last t first; hidden (T + 1, C), arriving (T, C) at h_1, …, h_T."""
    dhidden, lengths = 0.0, []
    for t in range(len(arriving), 0, -1):
        dprojected = (dhidden + arriving[t - 1]) * (1 - hidden[t] ** 2)  # back through tanh
        dhidden = dprojected @ recurrent.T  # back through the product with U
        lengths.append(np.linalg.norm(dprojected))
    return np.array(lengths)


# %%
WIDTH, FAR = 64, 100
inputs, first = rng.standard_normal((1, FAR, WIDTH)), np.zeros((1, WIDTH))
turn, _ = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))
arriving = np.zeros((FAR, WIDTH))
arriving[-1] = turn[0]  # of length 1
curves = {}
for s in (3, 2, 1):
    hidden = rnn_forward(inputs, first, s * turn)[0]
    curve = curves[f"RNN, s = {s}"] = carried_back(hidden, s * turn, arriving)
    print(f"s = {s}: each position multiplies the gradient by {(curve[-1] / curve[0]) ** (1 / (FAR - 1)):.2f}")
draw_distances({name: curves[name] for name in ("RNN, s = 3", "RNN, s = 1")})
show("On a logarithmic scale the gradient rises along a straight line with s = 3, and falls along one with s = 1.")

# %% [markdown]
# A straight line in this picture is exponential growth or decay. Even with $s = 1$ the slopes of tanh alone kill the
# gradient. With a larger $s$ the two effects may cancel, but only for one kind of input and one set of weights, and
# training changes the weights. This is the **vanishing gradient** and its twin, the **exploding** one (Hochreiter 1991;
# Bengio, Simard and Frasconi 1994). We can shorten a gradient that has exploded. A gradient that has vanished is lost.
#
# ## Look back instead
#
# Bahdanau, Cho and Bengio (2015) keep **all** of the encoder's states, $m_1, \dots, m_{T_k}$, as the memory. At each
# position the decoder scores how well each state fits its next word, and takes their weighted mean:
#
# $$ \begin{aligned}
#    &e_{ij} = v \cdot \tanh(q_i + k_j) \\
#    &\alpha_{ij} = \frac{e^{e_{ij}}}{\sum_{j'} e^{e_{ij'}}} \\
#    &\text{context}_i = \sum_j \alpha_{ij}\, m_j
# \end{aligned} $$
#
# * The **query** $q_i$, $C$ numbers, comes from the decoder's state at position $i$: what am I looking for?
# * The **key** $k_j$, $C$ numbers, comes from the encoder's state at position $j$: what can be found here?
# * The **score** $e_{ij}$ says how well they match. A small network computes it from their sum, so this is called
#   *additive* [attention](glossary.md#attention). Its last layer is the vector $v$ of $C$ numbers, the *score weight*.
# * The **weights** $\alpha_{ij}$ are the softmax of query $i$'s scores: positive, with sum 1.
# * The **value** is the vector that is averaged, here the state $m_j$ itself.
#
# ### Exercise 1 ★☆☆: a score for every pair
#
# Each of $T_q$ queries meets each of $T_k$ keys. Here it is in loops:


# %%
def scores_loops(query, key, score_weight):
    """e[b, i, j] = Σ_c v[c] tanh(query[b, i, c] + key[b, j, c])."""
    (B, Tq, C), Tk = query.shape, key.shape[1]
    scores = np.zeros((B, Tq, Tk))
    for b, i, j, c in np.ndindex(B, Tq, Tk, C):
        scores[b, i, j] += score_weight[c] * np.tanh(query[b, i, c] + key[b, j, c])
    return scores


# %% [markdown]
# Write it without a loop. NumPy repeats an axis of length 1 to match the other array, and `x[:, None]` inserts such an
# axis.


# %% tags=["exercise"]
def additive_scores(query, key, score_weight):
    """Additive attention's scores, e_ij = score_weight · tanh(query_i + key_j), of each sentence for itself.

    query (B, Tq, C), key (B, Tk, C), score_weight (C,)
    → the tuple scores (B, Tq, Tk), features (B, Tq, Tk, C), which are the tanh; float32 for float32.
    """
    raise NotImplementedError


# %%
additive_scores = check(additive_scores)

# %% [markdown] tags=["help"]
# The features have four axes: sentence, query, key, and the $C$ numbers. Which of these axes does `query` lack, and
# which does `key` lack? Insert the missing axis into each, with length 1, and add.
#
# ---
#
# `query[:, :, None]` has the shape (B, Tq, 1, C) and `key[:, None]` the shape (B, 1, Tk, C). The sum over $c$ with the
# weights $v_c$ is a product with a vector: `features @ score_weight`.

# %%
query, key = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4))
score_weight = rng.standard_normal(4)
scores, _ = additive_scores(query, key, score_weight)
print(f"scores {scores.shape}: loops against arrays {error(scores, scores_loops(query, key, score_weight)):.1e}")

# %% [markdown]
# ### One step, at any distance
#
# Lesson 01's softmax of the scores and the weighted mean complete additive attention. How does it help the gradient?
# Let the last state of the network with $s = 1$ look back at all 100, itself among them, and let the gradient of length
# 1 arrive at this state and at its context alike. The context is $\sum_j \alpha_j m_j$, so its gradient reaches every
# state in one step, scaled by that state's weight. (A little more comes through the scores; we leave it out here.)

# %%
states = hidden[None, 1:]  # of s = 1
scores, _ = additive_scores(states[:, -1:], states, rng.standard_normal(WIDTH) / WIDTH**0.5)
weights, _ = ops.softmax_forward(scores)  # (1, 1, FAR)
context = weights @ states  # (1, 1, WIDTH)
curves["RNN, s = 1, with attention"] = carried_back(hidden, turn, arriving + weights[0].T * arriving[-1])
draw_distances({name: curve for name, curve in curves.items() if "s = 1" in name})
show("With attention the gradient falls at first and then stays level at any distance; without it, it keeps falling.")
for name, curve in curves.items():
    print(f"{name:<26} left at distance {FAR - 1}: {curve[-1] / curve[0]:.0e}")

# %% [markdown]
# The gradient falls until the direct path is the stronger one. From there on it is level: each of $n$ positions gets
# about $1/n$ while the weights are nearly equal. **The path between two positions has length one.** It helps: in the
# optional part "Two translators, trained", a small network with attention copies sequences that larger ones without it
# forget.
#
# One question remains. Attention connects distant positions; the recurrence must still walk through every position, one
# after the other. **Do we still need the recurrence?** The paper's title, *Attention Is All You Need*, is the answer,
# and [lesson 04](04_attention.ipynb) begins with it. Go there now, or stay for the optional parts.
#
# ## Back through time (optional)
#
# `carried_back` follows one gradient through one sentence. To train, we need the gradients of all inputs of
# `rnn_forward`, $U$ among them. Unrolled, a recurrent network is a deep one: as many layers as positions, all with the
# same weights. So lesson 00 is enough. Write one step as two, and ask where $h_t$ is used:
#
# $$ \begin{aligned}
#    &a_t = p_t + h_{t-1} U \\
#    &h_t = \tanh(a_t)
# \end{aligned} $$
#
# **In two places.** The layers above read the output $h_t$, and send a gradient $\mathrm{d}h_t^{\text{out}}$. The next
# step uses $h_t$ in $a_{t+1}$. The two gradients add. We go from the last position to the first, because each step
# needs $\mathrm{d}a_{t+1}$.
#
# ### Exercise 2 ★★☆: backpropagation through time
#
# Find on paper the gradient of $h_t$ from its two uses, then those of $a_t$ and $p_t$, of $U$, which every position
# uses, and of $h_0$. Then write one loop, in reverse. (The sum for `drecurrent` needs no loop: it is one product over
# all positions of all sentences.)


# %% tags=["exercise"]
def rnn_backward(dhidden, hidden, recurrent):
    """Gradients of rnn_forward: h_t = tanh(p_t + h_{t−1} U).

    dhidden (B, T, C): the gradients of h_1, …, h_T from outside, without those from the next state;
    hidden (B, T + 1, C): h_0, …, h_T as rnn_forward returned them; recurrent (C, C) is U
    → the tuple dprojected (B, T, C), dfirst (B, C), drecurrent (C, C), float32 for float32.
    """
    raise NotImplementedError


# %%
rnn_backward = check(rnn_backward)

# %% [markdown] tags=["help"]
# Which gradient arrives at the last state, $h_T$? Only the one from outside, since no state comes after it. Which
# gradient does it send to $h_{T-1}$, and what is added there? Carry that one vector through the loop.
#
# ---
#
# $\mathrm{d}h_t = \mathrm{d}h_t^{\text{out}} + \mathrm{d}a_{t+1} U^\top$, then $\mathrm{d}p_t = \mathrm{d}a_t =
# \mathrm{d}h_t \odot (1 - h_t^2)$, with $h_t$ in `hidden[:, t + 1]`. At the end $\mathrm{d}U = \sum_t h_{t-1}^\top\,
# \mathrm{d}a_t$ and $\mathrm{d}h_0 = \mathrm{d}a_1 U^\top$.

# %% [markdown]
# The package's layer computes the same with weights of its own. (`numpy_ops` are the operations that it computes with;
# `FlatParameters` allocates and initialises its weights.) And lesson 00's referee, central differences, has the last
# word:

# %%
B, T, C = 3, 6, 4
layer = Recurrent(numpy_ops, "tanh", C, C)
FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed=0)
weight, bias, recurrent = layer.cell.input.weight.data, layer.cell.input.bias.data, layer.cell.recurrent.data

x, first = rng.standard_normal((B, T, C)), rng.standard_normal((B, C))
hidden = rnn_forward(x @ weight + bias, first, recurrent)  # (B, T + 1, C)
(theirs, _), cache = layer.forward(x, (first,))  # (B, T, C): without h_0
print(f"states     against the package {error(hidden[:, 1:], theirs):.1e}")

dhidden = rng.standard_normal((B, T, C))
dprojected, dfirst, drecurrent = rnn_backward(dhidden, hidden, recurrent)
dx, (theirs,) = layer.backward(dhidden, None, cache)
print(f"dx         against the package {error(dprojected @ weight.T, dx):.1e}")
print(f"dfirst     against the package {error(dfirst, theirs):.1e}")
print(f"drecurrent against the package {error(drecurrent, layer.cell.recurrent.grad):.1e}")


def states_forward(projected, first, recurrent):
    hidden = rnn_forward(projected, first, recurrent)
    return hidden[:, 1:], (hidden, recurrent)


rnn = {"projected": x @ weight + bias, "first": first, "recurrent": recurrent.copy()}
for name, worst in check_gradients(states_forward, lambda dout, cache: rnn_backward(dout, *cache), rnn).items():
    print(f"d{name:<10} against central differences {worst:.1e}")

# %% [markdown]
# ## The LSTM: a memory that is added to, not multiplied (optional)
#
# Hochreiter and Schmidhuber (1997) had found another remedy. Beside the state $h$ their cell, the *long short-term
# memory*, carries a *memory* $c$, also of $C$ numbers, and three gates between 0 and 1: write $i$ (the *input gate*),
# keep $f$ (the *forget gate*, added by Gers and others in 2000) and read $o$ (the *output gate*). Each follows from
# $x_t$ and $h_{t-1}$ by the sigmoid $\sigma(z) = 1/(1 + e^{-z})$:
#
# $$ \begin{aligned}
#    &c_t = f_t \odot c_{t-1} + i_t \odot g_t \\
#    &h_t = o_t \odot \tanh(c_t)
# \end{aligned} $$
#
# Here $g_t$ is a tanh of the same inputs. Read the gradient off the first equation. Along the memory it is
# $\mathrm{d}c_{t-1} = f_t \odot \mathrm{d}c_t$: **no matrix, no tanh**. With $f$ near 1 the gradient passes unchanged,
# and the network *learns* when to keep the path open. (The gates also read $h_{t-1}$; along that path a second gradient
# travels, as in any recurrent network.) The package's `LSTMCell` starts with the bias of $f$ at 1:

# %%
gate, _ = ops.sigmoid_forward(np.array([1.0]))
print(f"the keep gate at its start, before any input: {gate[0]:.2f}")


layer = Recurrent(numpy_ops, "lstm", WIDTH, WIDTH)
FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed=0)
_, cache = layer.forward(inputs)
dinputs, _ = layer.backward(arriving[None], None, cache)
lstm = curves["LSTM"] = np.linalg.norm(dinputs[0, ::-1], axis=-1)
print(f"LSTM: each position multiplies the gradient by {(lstm[-1] / lstm[1]) ** (1 / (FAR - 2)):.2f}")
draw_distances({name: curves[name] for name in ("RNN, s = 1", "LSTM", "RNN, s = 1, with attention")})
show("The LSTM's gradient falls much more slowly than the plain network's; with attention it stays level.")

# %% [markdown]
# The LSTM's line is much less steep, and its gates can learn to flatten it further. But the gradient must still pass
# through every position on its way.
#
# ## Additive attention, backwards (optional)
#
# ### Exercise 3 ★★☆: the scores' backward
#
# A score takes two steps: $f_{ij} = \tanh(q_i + k_j)$, then $e_{ij} = f_{ij} \cdot v$. Go back from the end. Two
# questions first: every pair uses the same $v$, so how do its gradients combine? And $q_i$ is in the sums with *all*
# keys, $k_j$ in those with all queries: what is the backward of copying along an axis?


# %% tags=["exercise"]
def additive_scores_backward(dscores, features, score_weight):
    """Gradients of scores = features @ score_weight with features = tanh(query_i + key_j).

    dscores (B, Tq, Tk), features (B, Tq, Tk, C), score_weight (C,)
    → the tuple dquery (B, Tq, C), dkey (B, Tk, C), dscore_weight (C,), float32 for float32.
    """
    raise NotImplementedError


# %%
additive_scores_backward = check(additive_scores_backward)

# %% [markdown] tags=["help"]
# How would you do it for a single query and a single key? One number arrives, $\mathrm{d}e$; $f$ and $v$ get a vector
# each, and tanh turns $\mathrm{d}f$ into the gradient of the sum $q + k$. Then ask which axes each array lacked.
#
# ---
#
# `dsum = dscores[..., None] * score_weight * (1 - features**2)` has the shape (B, Tq, Tk, C). `query` had no axis for
# the keys: sum over it. `key` had none for the queries. `score_weight` had none for sentences, queries or keys.

# %% [markdown]
# Now all of attention. The weighted mean is a product of matrices, so its backward is that of `linear`, once for each
# sentence; between the two is lesson 01's softmax:


# %%
def attend(query, key, value, score_weight):
    scores, features = additive_scores(query, key, score_weight)
    weights, softmax_cache = ops.softmax_forward(scores)  # (B, Tq, Tk)
    return weights @ value, (features, softmax_cache, weights, value, score_weight)  # (B, Tq, C), and a cache


def attend_backward(dout, cache):
    features, softmax_cache, weights, value, score_weight = cache
    dvalue = weights.swapaxes(1, 2) @ dout  # out = weights @ value
    dscores = ops.softmax_backward(dout @ value.swapaxes(1, 2), softmax_cache)
    dquery, dkey, dscore_weight = additive_scores_backward(dscores, features, score_weight)
    return dquery, dkey, dvalue, dscore_weight


value = rng.standard_normal((2, 5, 4))
arrays = {"query": query, "key": key, "value": value, "score_weight": score_weight}
measured = check_gradients(attend, attend_backward, arrays)
out, cache = attend(*arrays.values())
theirs, their_cache = ops.additive_attention_forward(*arrays.values())
print(f"out            against the package {error(out, theirs):.1e}")
dout = rng.standard_normal(out.shape)
ours, package = attend_backward(dout, cache), ops.additive_attention_backward(dout, their_cache)
for name, a, b in zip(arrays, ours, package, strict=True):
    print(f"d{name:<13} against the package {error(a, b):.1e}, against central differences {measured[name]:.1e}")

# %% [markdown]
# ## Two translators, trained (optional)
#
# The task is to copy symbols, the ids 3 to 12. All sequences of a batch have one length:

# %%
SYMBOLS, LONGEST = 10, 20
BOS, EOS, FIRST = 1, 2, 3  # begin and end; 0 would be padding


def batch(rng, length, size=32):
    """Random symbols: source (B, T + 1), and the decoder's input and target (B, T + 1); all of one length."""
    symbols = rng.integers(FIRST, FIRST + SYMBOLS, (size, length))
    mark = np.ones((size, 1), dtype=int)
    return np.hstack([symbols, EOS * mark]), np.hstack([BOS * mark, symbols]), np.hstack([symbols, EOS * mark])


for name, ids in zip(("source", "decoder reads", "must write"), batch(np.random.default_rng(0), 5, 1), strict=True):
    print(f"{name:<14}", ids[0])

# %% [markdown]
# The next class is the model, forward and backward. Its weights, with their names, shapes and initial values, are those
# of the package's `RecurrentTranslator`; the arithmetic is ours. Each line of the backward reverses one of the forward,
# from the last to the first. The source, the target and the output share one table of symbols, so its gradient has
# three parts. `look` does nothing yet: attention will go there.


# %%
class Copier:
    """Encoder and decoder, one tanh layer each, and one table of symbols (V, C) for source, target and output."""

    attention = False

    def __init__(self, dtype="float32"):
        config = RecurrentConfig(FIRST + SYMBOLS, d_model=WIDTH, cell="tanh", attention=self.attention, dropout=0.0)
        self.package = RecurrentTranslator(config, dtype=dtype, seed=0)
        self.parameters = self.package.parameters
        named = {name.replace(".stack.layers.0.cell", ""): p for name, p in self.parameters.named.items()}
        self.weight = {name: p.data for name, p in named.items()}
        self.grad = {name: p.grad for name, p in named.items()}
        self.table, self.dtable = self.weight["tokens.table"], self.grad["tokens.table"]

    def affine(self, name, x):
        """x W + b with the weights of this name."""
        y, cache = ops.linear_forward(x, self.weight[f"{name}.weight"], self.weight[f"{name}.bias"])
        return y, (name, cache)

    def affine_backward(self, dy, cache):
        name, cache = cache
        dx, dweight, dbias = ops.linear_backward(dy, cache)
        self.grad[f"{name}.weight"] += dweight
        self.grad[f"{name}.bias"] += dbias
        return dx

    def read(self, name, ids, first):
        """ids (B, T) through the layer `name`, "encoder" or "decoder", from the state `first` → (B, T + 1, C)."""
        x, ids_cache = ops.embedding_forward(ids, self.table, scale=self.table.shape[1] ** 0.5)  # (B, T, C)
        projected, input_cache = self.affine(f"{name}.input", x)
        hidden = rnn_forward(projected, first, self.weight[f"{name}.recurrent"])
        return hidden, (name, ids_cache, input_cache, hidden)

    def read_backward(self, dhidden, cache):
        """dhidden (B, T, C) of the states after each position → the gradient of `first`."""
        name, ids_cache, input_cache, hidden = cache
        dprojected, dfirst, drecurrent = rnn_backward(dhidden, hidden, self.weight[f"{name}.recurrent"])
        self.grad[f"{name}.recurrent"] += drecurrent
        self.dtable[...] += ops.embedding_backward(self.affine_backward(dprojected, input_cache), ids_cache)
        return dfirst

    def look(self, hidden, states):
        """The output at each position, from the decoder's and the encoder's states; here, the decoder's own state."""
        return hidden, states

    def look_backward(self, dout, states):
        return dout, np.zeros_like(states)  # dhidden, dstates: the encoder's states were not used

    def loss(self, source, target_in, target_out):
        zeros = np.zeros((len(source), self.table.shape[1]), self.table.dtype)
        states, encoder_cache = self.read("encoder", source, zeros)
        hidden, decoder_cache = self.read("decoder", target_in, states[:, -1])  # the last state is where it starts
        out, look_cache = self.look(hidden[:, 1:], states[:, 1:])
        logits, logits_cache = ops.linear_forward(out, self.table.T, None)  # (B, T, V)
        loss, loss_cache = ops.cross_entropy_forward(logits, target_out)
        return loss, (encoder_cache, decoder_cache, look_cache, logits_cache, loss_cache)

    def loss_backward(self, dloss, cache):
        encoder_cache, decoder_cache, look_cache, logits_cache, loss_cache = cache
        dlogits = ops.cross_entropy_backward(dloss, loss_cache)
        dout, dtable, _ = ops.linear_backward(dlogits, logits_cache)
        self.dtable[...] += dtable.T
        dhidden, dstates = self.look_backward(dout, look_cache)
        dstates[:, -1] += self.read_backward(dhidden, decoder_cache)  # the only way back without attention
        self.read_backward(dstates, encoder_cache)


# %% [markdown]
# Does it agree with the package? With the same weights and the same batch, compare the losses and every gradient:


# %%
def against_the_package(model):
    data = batch(np.random.default_rng(1), 7)
    model.parameters.zero_grad()
    ours, cache = model.loss(*data)
    model.loss_backward(1.0, cache)
    gradient = model.parameters.grad.copy()  # of all parameters, one flat array
    model.parameters.zero_grad()
    theirs, cache = model.package.loss(*data)
    model.package.loss_backward(1.0, cache)
    print(f"{type(model).__name__}: {model.parameters.count:,} parameters, loss {ours:.3f}")
    print(f"    loss against the package      {error(ours, theirs):.1e}")
    print(f"    gradients against the package {error(gradient, model.parameters.grad):.1e}")


against_the_package(Copier("float64"))

# %% [markdown]
# ### The training loop
#
# The update rule is Adam, with a learning rate that rises, then falls; we borrow both from [lesson
# 09](09_training.ipynb). `clip_scale` shortens a gradient that has exploded. In the test there is no teacher forcing:
# the decoder reads the last symbol that it wrote (the package's `decode_step`, [lesson 11](11_decoding.ipynb)).


# %% tags=["long"]
def train(model, steps, peak=0.003, seed=0, data=batch):
    """Adam on batches of random lengths 1 … LONGEST; returns the seconds of CPU."""
    rng, started = np.random.default_rng(seed), time.process_time()
    adam = Adam(model.parameters, numpy_ops)
    with Threads(1):  # products as small as these are slower when BLAS shares them out
        for step in range(1, steps + 1):
            model.parameters.zero_grad()
            _, cache = model.loss(*data(rng, int(rng.integers(1, LONGEST + 1))))
            model.loss_backward(1.0, cache)
            rate = peak * min(step / 50, 1) * (1.02 - step / steps)
            adam.step(rate, clip_scale(adam.grad_norm(), 1.0))
    return time.process_time() - started


def copied(translator, length, count=200):
    """The share of symbols that it writes in the right place without teacher forcing (a random guess: 1 / SYMBOLS)."""
    source, _, _ = batch(np.random.default_rng(length), length, count)
    state, ids, right = translator.start_decoding(source), np.full((count, 1), BOS), 0
    with Threads(1):
        for t in range(length):
            ids = translator.decode_step(ids, state).argmax(-1)  # (B, 1)
            right += np.sum(ids[:, 0] == source[:, t])
    return right / (count * length)


LENGTHS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40)
accuracy, cost = {}, {}


def trained(name, model, steps, **options):
    """Train it, and note how well it copies at each length."""
    seconds = train(model, steps, **options)
    translator = getattr(model, "package", model)
    accuracy[name] = [copied(translator, length) for length in LENGTHS]
    cost[name] = (model.parameters.count, steps, seconds)
    shown = "   ".join(f"{length}: {accuracy[name][LENGTHS.index(length)]:.0%}" for length in (2, 4, 8, 12, 16, 20))
    print(f"{name:<24} {shown}")


STEPS = 1000
print("symbols copied right, by length")
trained("RNN", Copier(), STEPS)

# %% [markdown]
# That is poor. (The network even falls below a random guess, since it often writes the end mark.) Is the cell to blame?
# Take the package's LSTM. Then train it twice as long. Then make it twice as wide:


# %%
def lstm_translator(width):
    config = RecurrentConfig(FIRST + SYMBOLS, d_model=width, cell="lstm", attention=False, dropout=0.0)
    return RecurrentTranslator(config, seed=0)


print("symbols copied right, by length")
trained("LSTM", lstm_translator(WIDTH), STEPS, peak=0.005)
trained("LSTM, twice the steps", lstm_translator(WIDTH), 2 * STEPS, peak=0.005)
trained("LSTM, twice the width", lstm_translator(2 * WIDTH), STEPS, peak=0.005)

# %% [markdown]
# Much better, but all of them still fail on longer sequences. On paper the one state is wide enough. A symbol is one of
# ten, so it takes $\log_2 10$ bits, and a float32 has 32:

# %%
print(f"to copy {LONGEST} symbols takes {LONGEST * np.log2(SYMBOLS):.0f} bits; "
      f"a state of {WIDTH} float32 has {32 * WIDTH:,}")  # fmt: skip

# %% [markdown]
# There is enough room, but the network has to *learn* to use it. The encoder would have to write each symbol into
# numbers of its own and keep them unchanged through all later symbols; the decoder would have to read them in order.
# Every gradient that could teach this comes back through the one state, weakened by the distance. More steps or a wider
# state only help up to a greater length: the width of the state is fixed, and the length of sentences is not.
#
# ### The same translator, looking back
#
# Only `look` changes: it attends to the encoder's states, and mixes the context with its own state. In the backward,
# `dstates` is no longer zero: **each of the encoder's states now gets a gradient from each position of the decoder, in
# one step**, at any distance. Query and key are linear maps of states: $q_i = h_i W_q + b_q$ of the decoder's state
# $h_i$, and $k_j = m_j W_k$ of the encoder's state $m_j$.


# %%
class LookingCopier(Copier):
    """Copier whose decoder says tanh([h; context] W + b)."""

    attention = True

    def look(self, hidden, states):
        query, query_cache = self.affine("decoder.attention.query", hidden)
        key, key_cache = ops.linear_forward(states, self.weight["decoder.attention.key"], None)
        context, cache = attend(query, key, states, self.weight["decoder.attention.score"])
        mixed, mix_cache = self.affine("decoder.combine", np.concatenate([hidden, context], axis=-1))
        out, tanh_cache = ops.tanh_forward(mixed)
        return out, (query_cache, key_cache, cache, mix_cache, tanh_cache)

    def look_backward(self, dout, look_cache):
        query_cache, key_cache, cache, mix_cache, tanh_cache = look_cache
        dboth = self.affine_backward(ops.tanh_backward(dout, tanh_cache), mix_cache)  # (B, Tq, 2C)
        dhidden, dcontext = np.split(dboth, 2, axis=-1)
        dquery, dkey, dvalue, dscore_weight = attend_backward(dcontext, cache)
        self.grad["decoder.attention.score"] += dscore_weight
        dstates, dweight, _ = ops.linear_backward(dkey, key_cache)
        self.grad["decoder.attention.key"] += dweight
        return dhidden + self.affine_backward(dquery, query_cache), dstates + dvalue  # each was used twice


against_the_package(LookingCopier("float64"))

# %% [markdown]
# (Bahdanau's query is the state *before* a position, its answer feeds into that position, and the source is read in
# both directions. Luong, Pham and Manning (2015) use the state after the position. Then all positions can ask at once
# in training. The package does that, and reads from left to right.)
#
# The next cell trains it on the same task, with the plain tanh cell and as many steps as the first network:

# %%
looking = LookingCopier()
print("symbols copied right, by length")
trained("RNN with attention", looking, STEPS)
print()
print(f"{'':<24} parameters   steps   seconds of CPU")
for name, (parameters, steps, seconds) in cost.items():
    print(f"{name:<24} {parameters:>10,} {steps:>7,} {seconds:>16.1f}")

# %% tags=["picture"]
draw_copying(LENGTHS, accuracy, LONGEST, 1 / SYMBOLS)
show(
    "The share of symbols copied right against the length. The plain network forgets after a few symbols; the LSTMs "
    "fail later; with attention nearly all are right, and most still are beyond the lengths of the training."
)

# %% [markdown]
# The weaker cell with attention beats the stronger one without it. The LSTM has more parameters, and in one of its
# three runs more steps too. Beyond the trained lengths (grey) the mistakes of the model with attention grow too, but
# slowly.
#
# How does it do it? Draw the weights $\alpha_{ij}$ while it copies a new sequence:

# %%
source, target_in, _ = batch(np.random.default_rng(7), 16, 1)
zeros = np.zeros((1, WIDTH), np.float32)
states, _ = looking.read("encoder", source, zeros)
hidden, _ = looking.read("decoder", target_in, states[:, -1])
_, (*_, attention_cache, _, _) = looking.look(hidden[:, 1:], states[:, 1:])
weights = attention_cache[2][0]  # (Tq, Tk)
draw_alignment(weights, source[0] - FIRST, EOS - FIRST)
show("The attention weights, rows written against columns read: nearly all of each row's weight is on the diagonal.")

# %% [markdown]
# No loss told it that position $i$ of the copy comes from position $i$ of the source. It found the
# [**alignment**](glossary.md#alignment) because the gradient could reach the right state directly. Between two
# languages the line bends where the word order differs; [lesson 10](10_translator.ipynb) shows it.
#
# ## Common mistakes, and what they look like (optional)
#
# **Missing axes.** `query + key` works without them if there are as many queries as keys. Then query $i$ meets only key
# $i$. The number of axes gives it away:

# %%
queries, keys = rng.standard_normal((2, 2, 5, 4))
print("query + key:                      ", (queries + keys).shape)
print("query[:, :, None] + key[:, None]: ", (queries[:, :, None] + keys[:, None]).shape)

# %% [markdown]
# **A missing gradient from the future.** Each step by itself looks right, and so do the shapes. The referee notices the
# mistake; a test of the last position alone would not:


# %%
def forgetful_backward(dout, cache):
    hidden, recurrent = cache
    dprojected = dout * (1 - hidden[:, 1:] ** 2)  # the gradient from the next state is missing
    return dprojected, dprojected[:, 0] @ recurrent.T, np.einsum("bti,btj->ij", hidden[:, :-1], dprojected)


try:
    check_gradients(states_forward, forgetful_backward, rnn)
except GradientError as problem:
    print(problem)

# %% [markdown]
# **An unshifted decoder input.** The decoder reads the symbol that it must write, and learns to repeat its input. Its
# loss is very low, and without teacher forcing it fails:


# %%
def unmoved(rng, length, size=32):
    source, _, target_out = batch(rng, length, size)
    return source, target_out, target_out


cheat = LookingCopier()
train(cheat, 300, data=unmoved)
loss, _ = cheat.loss(*unmoved(np.random.default_rng(1), 10))
print(f"loss {loss:.4f}; symbols copied right at length 10: {copied(cheat.package, 10):.0%}")

# %% [markdown]
# **Padding in the state.** Shorter sentences of a batch are padded on the right. Then the last state is the one after
# the padding, not after the last word. The package's layer carries the state past the padding unchanged:

# %%
C = 4
layer = Recurrent(numpy_ops, "tanh", C, C)
FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed=0)
x = rng.standard_normal((1, 6, C))
(_, (alone,)), _ = layer.forward(x[:, :4])  # four words
(_, (read,)), _ = layer.forward(x)  # two of padding after them
(_, (masked,)), _ = layer.forward(x, context=Context(mask=np.array([[True] * 4 + [False] * 2])))
print(f"last state, padding read: off by {error(read, alone):.2f}   padding masked: off by {error(masked, alone):.2f}")

# %% [markdown]
# (Attention must not look at padding either: masks are a subject of the next lesson.)
#
# ## What changed since 2017 (optional)
#
# Recurrence came back without its tanh. State-space models and linear recurrences (S4, 2021; RWKV and Mamba, 2023) are
# linear from state to state. So a whole sequence can be computed in parallel, and the designer chooses how fast a
# gradient decays. Such models have a state of fixed size, and copying distant text is still hard for them: Jelassi and
# others showed it in 2024 ("Repeat After Me"), with a copying task like this one.
#
# ## Where next
#
# The additive score takes a tanh for each pair of positions and each of $C$ numbers. The paper takes a dot product
# instead, which is much cheaper: [lesson 04](04_attention.ipynb).
