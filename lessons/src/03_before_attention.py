# %% [markdown]
# # 03 · Before attention: a translator with a memory, and where it gets stuck
#
# **You will be able to** send a gradient back through time by hand, show why it dies or explodes on the way, and write
# the attention that was invented as the way around: additive attention, with its backward.
#
# | | |
# |---|---|
# | you know | [00](00_gradients.ipynb) to [02](02_text.ipynb): backwards, softmax and cross-entropy, embeddings |
# | runs in | 90 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §1, whose first three paragraphs are this lesson; §3.2.1 on additive attention; §4 on path length |
# | in the package | [`Recurrent`][rnn], [cells][cells], [`additive_attention`][add], [`RecurrentTranslator`][model] |
#
# [rnn]: ../minitransformer/layers/recurrent.py
# [cells]: ../minitransformer/layers/cells.py
# [add]: ../minitransformer/ops/additive_attention.py
# [model]: ../minitransformer/models/baselines/recurrent.py
#
# The Transformer is an answer. This lesson is about the question. The neural translators of 2014 were two recurrent
# networks: an *encoder* that reads the source word by word, and a *decoder* that writes the translation word by word,
# starting from what the encoder remembered. We build that translator, watch it fail on a task that a child can do, and
# mend it the way Bahdanau, Cho and Bengio did.
#
# The task is the smallest translation there is: **copy what you read.** Nothing has to be understood, only remembered.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

from course import start
from course.lesson_03.pictures import draw_alignment, draw_copying, draw_distances, draw_paths
from minitransformer.gradcheck import GradientError, check_gradients, error
from minitransformer.layers import Context, FlatParameters, Recurrent
from minitransformer.models import RecurrentConfig, RecurrentTranslator
from minitransformer.ops import (
    additive_attention_backward,
    additive_attention_forward,
    cross_entropy_backward,
    cross_entropy_forward,
    embedding_backward,
    embedding_forward,
    linear_backward,
    linear_forward,
    numpy_ops,
    sigmoid_forward,
    softmax_backward,
    softmax_forward,
    tanh_backward,
    tanh_forward,
)
from minitransformer.threads import Threads
from minitransformer.training.optimizer import Adam, clip_scale

check = start("03")
rng = np.random.default_rng(0)

# %% [markdown]
# Here is the whole lesson in one picture: copying `A B C`. Follow how the first `A` that is read gets to the first `A`
# that is written, and remember that the gradient has to come back the same way (‹ is the mark that says: begin):

# %%
draw_paths()
plt.show()

# %% [markdown]
# ## A network with a memory
#
# A recurrent network carries a **state**, a vector of $C$ numbers, from position to position. At position $t$ it mixes
# the new input with the state that the position before it left:
#
# $$ h_t = \tanh(x_t W + b + h_{t-1} U) $$
#
# $x_t$ is $(C_{in})$, $W$ is $(C_{in}, C)$, $b$ and $h_t$ are $(C)$, and $U$, the *recurrent* weight, is $(C, C)$. tanh
# squashes every number into $(-1, 1)$; its slope can be read off its output, $\tanh' = 1 - \tanh^2$. The same $W$, $b$
# and $U$ serve every position, so a sentence may be of any length. $h_0$ is given: zeros, or what another network left.
#
# Of all this only $h_{t-1} U$ has to wait for the position before. So the package projects the inputs of all positions
# at once, $p = xW + b$, and loops over the rest. (Its layers are given the table of operations that they compute with,
# here `numpy_ops`; `FlatParameters` gives the weights their place and their first values.)


# %%
def rnn_forward(projected, first, recurrent):
    """h_t = tanh(p_t + h_{t−1} U): projected (B, T, C), first (B, C), recurrent (C, C) → all states (B, T + 1, C)."""
    B, T, C = projected.shape
    hidden = np.empty((B, T + 1, C), projected.dtype)
    hidden[:, 0] = first
    for t in range(T):
        hidden[:, t + 1] = np.tanh(projected[:, t] + hidden[:, t] @ recurrent)
    return hidden


B, T, C = 3, 6, 4
layer = Recurrent(numpy_ops, "tanh", C, C)  # the package's
FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed=0)
weight, bias, recurrent = layer.cell.input.weight.data, layer.cell.input.bias.data, layer.cell.recurrent.data

x, first = rng.standard_normal((B, T, C)), rng.standard_normal((B, C))
hidden = rnn_forward(x @ weight + bias, first, recurrent)  # (B, T + 1, C)
(theirs, _), cache = layer.forward(x, (first,))  # (B, T, C): without h_0
print(f"our states against the package's: {error(hidden[:, 1:], theirs):.1e}")

# %% [markdown]
# In the arrays everything is one place later than in the formula: `projected[:, t]` makes `hidden[:, t + 1]` out of
# `hidden[:, t]`, since `hidden[:, 0]` is $h_0$.
#
# ## Back through time
#
# Unroll the loop, and a recurrent network is a deep one: as many layers as there are positions, all with the same
# weights. So lesson 00 has said all that is needed. Write one step as two, and ask who uses $h_t$:
#
# $$ a_t = p_t + h_{t-1} U \qquad\qquad h_t = \tanh(a_t) $$
#
# **Two do**: whoever looks at the output $h_t$, from whom comes a gradient $\mathrm{d}h_t^{\text{out}}$, and the next
# step, in $a_{t+1}$. Where something is used twice, its gradients add; and we go from the last position to the first,
# because $\mathrm{d}a_{t+1}$ must be there before it can be used:
#
# $$ \mathrm{d}h_t = \mathrm{d}h_t^{\text{out}} + \mathrm{d}a_{t+1} U^\top
#    \qquad\qquad \mathrm{d}a_t = \mathrm{d}h_t \odot (1 - h_t^2) \qquad\qquad \mathrm{d}p_t = \mathrm{d}a_t $$
#
# ($\odot$ multiplies element by element; after the last position there is no $a_{T+1}$.) $U$ was used at every
# position, so its gradients add too; and what is left over before the first position is for whoever gave us $h_0$:
#
# $$ \mathrm{d}U = \sum_{t=1}^{T} h_{t-1}^\top\, \mathrm{d}a_t \qquad\qquad \mathrm{d}h_0 = \mathrm{d}a_1 U^\top $$
#
# ### Exercise 1: backpropagation through time
#
# One loop, in reverse. (The sum for `drecurrent` needs none: it is one product over all positions of all sentences.)


# %% tags=["exercise"]
def rnn_backward(dhidden, hidden, recurrent):
    """Gradients of rnn_forward: h_t = tanh(p_t + h_{t−1} U).

    dhidden (B, T, C): what h_1, …, h_T receive from whoever looks at them, not from the state after them;
    hidden (B, T + 1, C): h_0, …, h_T as rnn_forward returned them; recurrent (C, C) is U
    → the tuple dprojected (B, T, C), dfirst (B, C), drecurrent (C, C), float32 where the arrays are.
    """
    raise NotImplementedError


# %%
rnn_backward = check(rnn_backward)

# %%
dhidden = rng.standard_normal((B, T, C))
dprojected, dfirst, drecurrent = rnn_backward(dhidden, hidden, recurrent)
dx, (theirs,) = layer.backward(dhidden, None, cache)
print(f"dx         against the package {error(dprojected @ weight.T, dx):.1e}")
print(f"dfirst     against the package {error(dfirst, theirs):.1e}")
print(f"drecurrent against the package {error(drecurrent, layer.cell.recurrent.grad):.1e}")


# %% [markdown]
# Three versions of one derivation agree; the referee of lesson 00, who knows no derivation, has the last word:


# %%
def states_forward(projected, first, recurrent):
    hidden = rnn_forward(projected, first, recurrent)
    return hidden[:, 1:], (hidden, recurrent)


rnn = {"projected": x @ weight + bias, "first": first, "recurrent": recurrent.copy()}
for name, worst in check_gradients(states_forward, lambda dout, cache: rnn_backward(dout, *cache), rnn).items():
    print(f"d{name:<10} against central differences {worst:.1e}")

# %% [markdown]
# ## What is left of a gradient that has come far
#
# Let a gradient of length 1 enter at the last state, and follow it $k$ positions back. Each step multiplies it with the
# slopes of tanh, none above 1, and with $U^\top$, which stretches a vector by at most $s$, the largest singular value
# of $U$:
#
# $$ \lVert \mathrm{d}h_{T-k} \rVert \;\le\; s^k \qquad\text{where}\qquad
#    \mathrm{d}h_{t-1} = \left(\mathrm{d}h_t \odot (1 - h_t^2)\right) U^\top $$
#
# If $s < 1$ the gradient must die, exponentially in the distance. If $s > 1$ it may grow, the same way. To see nothing
# but this effect, take for $U$ an orthogonal matrix, all of whose singular values are 1, times $s$. The bound's $s^k$
# would then be reached exactly, were it not for the slopes:

# %%
WIDTH, FAR = 64, 100


def gradient_at_distance(scale, seed):
    """|dp_{T−k}| for k = 0 … FAR − 1, of a unit gradient at the last of FAR states; inputs are noise."""
    rng = np.random.default_rng(seed)
    orthogonal, _ = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))
    hidden = rnn_forward(rng.standard_normal((1, FAR, WIDTH)), np.zeros((1, WIDTH)), scale * orthogonal)
    dhidden = np.zeros((1, FAR, WIDTH))
    direction = rng.standard_normal(WIDTH)
    dhidden[0, -1] = direction / np.linalg.norm(direction)
    dprojected, _, _ = rnn_backward(dhidden, hidden, scale * orthogonal)
    return np.linalg.norm(dprojected[0, ::-1], axis=-1)  # the last position first


def geometric_mean(curves):
    return np.exp(np.mean(np.log(curves), axis=0))


scales = (1.0, 2.0, 3.0)
curves = {scale: geometric_mean([gradient_at_distance(scale, seed) for seed in range(5)]) for scale in scales}
for scale, curve in curves.items():
    print(f"s = {scale:.0f}: each position multiplies the gradient by {(curve[-1] / curve[0]) ** (1 / (FAR - 1)):.2f}")

# %% [markdown]
# Even with $s = 1$, where $U$ neither stretches nor shrinks, the slopes alone kill it. One can make $U$ larger until
# the two cancel; but they cancel for one kind of input and one set of weights, and training moves the weights. This is
# the **vanishing gradient** and its twin, the **exploding** one (Hochreiter 1991; Bengio, Simard and Frasconi 1994).
# Explosions can be lived with: clip the gradient's length, as every training below does. A gradient that has vanished
# cannot be called back.
#
# ### The LSTM: a memory that is added to, not multiplied
#
# Hochreiter and Schmidhuber (1997) changed the road. Beside the state $h$ their cell carries a *memory* $c$, also of
# $C$ numbers, and three gates between 0 and 1, computed from $x_t$ and $h_{t-1}$ by the sigmoid
# $\sigma(z) = 1/(1 + e^{-z})$: write $i$, keep $f$ (added by Gers and others in 2000) and read $o$:
#
# $$ c_t = f_t \odot c_{t-1} + i_t \odot g_t \qquad\qquad h_t = o_t \odot \tanh(c_t) $$
#
# with $g_t$ a tanh of the same inputs. Read the gradient off the first equation. Along the memory it is
# $\mathrm{d}c_{t-1} = f_t \odot \mathrm{d}c_t$: **no matrix, no tanh**. Where a gate says "keep", with $f$ near 1, the
# gradient passes untouched, and the network *learns* for what to keep the road open. (The gates also read $h_{t-1}$,
# along which a second gradient travels as in any RNN.) The package's `LSTMCell` starts with $f$'s bias at 1:

# %%
gate, _ = sigmoid_forward(np.array([1.0]))
print(f"the keep gate at its start, with nothing to read yet: {gate[0]:.2f}")


def lstm_at_distance(seed):
    """As gradient_at_distance, of the package's LSTM at its first weights."""
    rng = np.random.default_rng(seed)
    layer = Recurrent(numpy_ops, "lstm", WIDTH, WIDTH)
    FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64").initialize(seed)
    _, cache = layer.forward(rng.standard_normal((1, FAR, WIDTH)))
    dout = np.zeros((1, FAR, WIDTH))
    dout[0, -1] = rng.standard_normal(WIDTH)
    return np.linalg.norm(layer.backward(dout, None, cache)[0][0, ::-1], axis=-1)


lstm = geometric_mean([lstm_at_distance(seed) for seed in range(5)])
print(f"LSTM:  each position multiplies the gradient by {(lstm[-1] / lstm[1]) ** (1 / (FAR - 2)):.2f}")
draw_distances({"RNN, s = 3": curves[3.0], "RNN, s = 1": curves[1.0], "LSTM": lstm})
plt.show()

# %% [markdown]
# A straight line in this picture is exponential decay, or growth. The LSTM's is much less steep, and its gates can
# learn to flatten it further. But whatever travels here must pass through every position on its way.
#
# ## Two networks make a translator
#
# The encoder reads the source and leaves its last state. The decoder starts from that state, and writes. In training it
# is given the *right* translation so far and asked for the next symbol, at all positions at once: **teacher forcing**.
# Its input is therefore the target moved one place to the right, behind a begin mark; when it has said everything, it
# must say the end mark.

# %%
SYMBOLS, LONGEST = 10, 20
BOS, EOS, FIRST = 1, 2, 3  # 0 would be padding; the symbols to copy are 3 … 12


def batch(rng, length, size=32):
    """Random symbols: source (B, T + 1), and the decoder's input and target (B, T + 1); all of one length."""
    symbols = rng.integers(FIRST, FIRST + SYMBOLS, (size, length))
    mark = np.ones((size, 1), dtype=int)
    return np.hstack([symbols, EOS * mark]), np.hstack([BOS * mark, symbols]), np.hstack([symbols, EOS * mark])


source, target_in, target_out = batch(np.random.default_rng(0), length=5, size=1)
print("source           ", source[0])
print("decoder reads    ", target_in[0])
print("decoder must say ", target_out[0])

# %% [markdown]
# The model, forward and backward. Its weights, with their names, shapes and first values, are those of the package's
# `RecurrentTranslator`; the arithmetic is ours. Each line of the backward undoes one of the forward, in reverse order.
# One table of symbols serves the source, the target and the output, so its gradient comes from three places. `look`
# does nothing yet: it is where attention will go.


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
        y, cache = linear_forward(x, self.weight[f"{name}.weight"], self.weight[f"{name}.bias"])
        return y, (name, cache)

    def affine_backward(self, dy, cache):
        name, cache = cache
        dx, dweight, dbias = linear_backward(dy, cache)
        self.grad[f"{name}.weight"] += dweight
        self.grad[f"{name}.bias"] += dbias
        return dx

    def read(self, name, ids, first):
        """ids (B, T) through the layer `name`, "encoder" or "decoder", from the state `first` → (B, T + 1, C)."""
        x, ids_cache = embedding_forward(ids, self.table, scale=self.table.shape[1] ** 0.5)  # (B, T, C)
        projected, input_cache = self.affine(f"{name}.input", x)
        hidden = rnn_forward(projected, first, self.weight[f"{name}.recurrent"])
        return hidden, (name, ids_cache, input_cache, hidden)

    def read_backward(self, dhidden, cache):
        """dhidden (B, T, C) of the states after each position → the gradient of `first`."""
        name, ids_cache, input_cache, hidden = cache
        dprojected, dfirst, drecurrent = rnn_backward(dhidden, hidden, self.weight[f"{name}.recurrent"])
        self.grad[f"{name}.recurrent"] += drecurrent
        self.dtable[...] += embedding_backward(self.affine_backward(dprojected, input_cache), ids_cache)
        return dfirst

    def look(self, hidden, states):
        """What is said at each position, of the decoder's states and the encoder's. Here: its own state."""
        return hidden, states

    def look_backward(self, dout, states):
        return dout, np.zeros_like(states)  # dhidden, dstates: nobody looked at the encoder's states

    def loss(self, source, target_in, target_out):
        zeros = np.zeros((len(source), self.table.shape[1]), self.table.dtype)
        states, encoder_cache = self.read("encoder", source, zeros)
        hidden, decoder_cache = self.read("decoder", target_in, states[:, -1])  # the last state is where it starts
        out, look_cache = self.look(hidden[:, 1:], states[:, 1:])
        logits, logits_cache = linear_forward(out, self.table.T, None)  # (B, T, V)
        loss, loss_cache = cross_entropy_forward(logits, target_out)
        return loss, (encoder_cache, decoder_cache, look_cache, logits_cache, loss_cache)

    def loss_backward(self, dloss, cache):
        encoder_cache, decoder_cache, look_cache, logits_cache, loss_cache = cache
        dlogits = cross_entropy_backward(dloss, loss_cache)
        dout, dtable, _ = linear_backward(dlogits, logits_cache)
        self.dtable[...] += dtable.T
        dhidden, dstates = self.look_backward(dout, look_cache)
        dstates[:, -1] += self.read_backward(dhidden, decoder_cache)  # the only way back, unless somebody looked
        self.read_backward(dstates, encoder_cache)


# %% [markdown]
# Is it the package's? The same weights, the same batch, both losses and every gradient:


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
# ### Training it, on trust
#
# The update rule is Adam, with a learning rate that rises, then falls; both belong to [lesson 09](09_training.ipynb),
# and are borrowed here. `clip_scale` shortens a gradient that has exploded. Reading out, the decoder no longer has a
# teacher: it reads its own last symbol (the package's `decode_step`, [lesson 11](11_decoding.ipynb)).


# %%
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
    """The share of symbols (chance: 1 / SYMBOLS) that it writes in the right place, without a teacher."""
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
# A child does better. (It even falls below chance, since much of what it writes is the end mark.) Is the cell to blame?
# Take the package's LSTM; then let it train twice as long; then make it twice as wide:


# %%
def lstm_translator(width):
    config = RecurrentConfig(FIRST + SYMBOLS, d_model=width, cell="lstm", attention=False, dropout=0.0)
    return RecurrentTranslator(config, seed=0)


print("symbols copied right, by length")
trained("LSTM", lstm_translator(WIDTH), STEPS, peak=0.005)
trained("LSTM, twice the steps", lstm_translator(WIDTH), 2 * STEPS, peak=0.005)
trained("LSTM, twice the width", lstm_translator(2 * WIDTH), STEPS, peak=0.005)

# %% [markdown]
# Better, by much; and each still falls as sequences grow. All that the decoder is ever told of the source stands in one
# state: a **bottleneck**. On paper it is wide enough:

# %%
print(f"to copy {LONGEST} symbols takes {LONGEST * np.log2(SYMBOLS):.0f} bits; "
      f"a state of {WIDTH} float32 has {32 * WIDTH:,}")  # fmt: skip

# %% [markdown]
# The room is there. What is hard is to *learn* to use it: the encoder would have to write each symbol to a place of its
# own and keep it there unharmed through all later ones, the decoder to read the places in order, and every hint of how
# to do it comes back through the one state, thinned by the distance. More steps or a wider state move the fall to the
# right. They do not remove it: the state's width is fixed, and the length of sentences is not.
#
# ## Look back instead
#
# Bahdanau, Cho and Bengio (2015) removed it. Keep **all** of the encoder's states, $m_1, \dots, m_{T_k}$, the memory.
# At each position the decoder decides how well each of them fits what it is about to write, and takes their average,
# weighted accordingly:
#
# $$ e_{ij} = v \cdot \tanh(q_i + k_j) \qquad\qquad \alpha_{ij} = \frac{e^{e_{ij}}}{\sum_{j'} e^{e_{ij'}}}
#    \qquad\qquad \text{context}_i = \sum_j \alpha_{ij}\, m_j $$
#
# * The **query** $q_i = h_i W_q + b_q$, $(C)$, is made from the decoder's state at position $i$ of $T_q$: what am I
#   looking for?
# * The **key** $k_j = m_j W_k$, $(C)$, from the encoder's state at position $j$ of $T_k$: what is there to be found?
# * The **score** $e_{ij}$ is a small network of their sum, hence *additive* attention; its last layer is the vector
#   $v$, $(C)$. A softmax over $j$ makes weights $\alpha_{ij}$ of the scores: positive, and 1 in sum.
# * The **value** is what is averaged, here the state $m_j$ itself.
#
# First in loops, then at once. In NumPy an axis of length 1 where the other array has many is a loop that you need not
# write:


# %%
def scores_loops(query, key, score_weight):
    """e[b, i, j] = Σ_c v[c] tanh(query[b, i, c] + key[b, j, c])."""
    (B, Tq, C), Tk = query.shape, key.shape[1]
    scores = np.zeros((B, Tq, Tk))
    for b, i, j, c in np.ndindex(B, Tq, Tk, C):
        scores[b, i, j] += score_weight[c] * np.tanh(query[b, i, c] + key[b, j, c])
    return scores


def additive_scores(query, key, score_weight):
    """query (B, Tq, C), key (B, Tk, C), score_weight (C,) → scores (B, Tq, Tk), and the features (B, Tq, Tk, C)."""
    features = np.tanh(query[:, :, None] + key[:, None])  # (B, Tq, Tk, C)
    return features @ score_weight, features


query, key = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4))
value, score_weight = rng.standard_normal((2, 5, 4)), rng.standard_normal(4)
scores, features = additive_scores(query, key, score_weight)
print(f"scores {scores.shape}: loops against arrays {error(scores, scores_loops(query, key, score_weight)):.1e}")

# %% [markdown]
# ### Exercise 2: the scores' backward
#
# Let $s_{ij} = q_i + k_j$ and $f_{ij} = \tanh(s_{ij})$, both $(C)$. Undo the forward from its end:
# $e_{ij} = f_{ij} \cdot v$ gives $\mathrm{d}f_{ij}$ and a part of $\mathrm{d}v$ for each pair; tanh turns
# $\mathrm{d}f_{ij}$ into $\mathrm{d}s_{ij}$. And $q_i$ took part in the sums with *all* keys, $k_j$ in those with all
# queries: where the forward copied along an axis, the backward sums over it.


# %% tags=["exercise"]
def additive_scores_backward(dscores, features, score_weight):
    """Gradients of scores = features @ score_weight with features = tanh(query_i + key_j).

    dscores (B, Tq, Tk), features (B, Tq, Tk, C), score_weight (C,)
    → the tuple dquery (B, Tq, C), dkey (B, Tk, C), dscore_weight (C,), float32 where the arrays are.
    """
    raise NotImplementedError


# %%
additive_scores_backward = check(additive_scores_backward)

# %% [markdown]
# With the softmax of lesson 01 after it, and the weighted average after that, this is additive attention. The average
# is a product of matrices, whose backward is that of `linear`, once for each sentence:


# %%
def attend(query, key, value, score_weight):
    scores, features = additive_scores(query, key, score_weight)
    weights, softmax_cache = softmax_forward(scores)  # (B, Tq, Tk)
    return weights @ value, (features, softmax_cache, weights, value, score_weight)  # (B, Tq, C)


def attend_backward(dout, cache):
    features, softmax_cache, weights, value, score_weight = cache
    dvalue = weights.swapaxes(1, 2) @ dout  # out = weights @ value
    dscores = softmax_backward(dout @ value.swapaxes(1, 2), softmax_cache)
    dquery, dkey, dscore_weight = additive_scores_backward(dscores, features, score_weight)
    return dquery, dkey, dvalue, dscore_weight


arrays = {"query": query, "key": key, "value": value, "score_weight": score_weight}
measured = check_gradients(attend, attend_backward, arrays)
out, cache = attend(*arrays.values())
theirs, their_cache = additive_attention_forward(*arrays.values())
dout = rng.standard_normal(out.shape)
ours, package = attend_backward(dout, cache), additive_attention_backward(dout, their_cache)
print(f"out            against the package {error(out, theirs):.1e}")
for name, a, b in zip(arrays, ours, package, strict=True):
    print(f"d{name:<13} against the package {error(a, b):.1e}, against central differences {measured[name]:.1e}")

# %% [markdown]
# ## The same translator, looking back
#
# Only `look` changes: it attends to the encoder's states, and mixes what it found, the context, with its own state.
# Going back, `dstates` is no longer zero: **each of the encoder's states now gets a gradient from each position of the
# decoder, in one step**, however far apart they are.


# %%
class LookingCopier(Copier):
    """Copier whose decoder says tanh([h; context] W + b)."""

    attention = True

    def look(self, hidden, states):
        query, query_cache = self.affine("decoder.attention.query", hidden)
        key, key_cache = linear_forward(states, self.weight["decoder.attention.key"], None)
        context, cache = attend(query, key, states, self.weight["decoder.attention.score"])
        mixed, mix_cache = self.affine("decoder.combine", np.concatenate([hidden, context], axis=-1))
        out, tanh_cache = tanh_forward(mixed)
        return out, (query_cache, key_cache, cache, mix_cache, tanh_cache)

    def look_backward(self, dout, look_cache):
        query_cache, key_cache, cache, mix_cache, tanh_cache = look_cache
        dboth = self.affine_backward(tanh_backward(dout, tanh_cache), mix_cache)  # (B, Tq, 2C)
        dhidden, dcontext = np.split(dboth, 2, axis=-1)
        dquery, dkey, dvalue, dscore_weight = attend_backward(dcontext, cache)
        self.grad["decoder.attention.score"] += dscore_weight
        dstates, dweight, _ = linear_backward(dkey, key_cache)
        self.grad["decoder.attention.key"] += dweight
        return dhidden + self.affine_backward(dquery, query_cache), dstates + dvalue  # each was used twice


against_the_package(LookingCopier("float64"))

# %% [markdown]
# (Bahdanau asks with the state *before* a position and feeds the answer into it, and reads the source from both ends.
# Asking with the state after the position, as Luong, Pham and Manning did in 2015, lets all positions ask at once in
# training. The package does that, and reads from left to right.)
#
# The same task, the plain tanh cell, as many steps as the first RNN had:

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
plt.show()

# %% [markdown]
# The weaker cell with attention beats the stronger one without it, which has more parameters and, in one of its three
# runs, more steps too. Beyond the lengths that it was trained on (grey) it begins to lose its place, but gently.
#
# How does it do it? Ask for the weights $\alpha_{ij}$ while it copies a sequence that it has never seen:

# %%
source, target_in, _ = batch(np.random.default_rng(7), 16, 1)
zeros = np.zeros((1, WIDTH), np.float32)
states, _ = looking.read("encoder", source, zeros)
hidden, _ = looking.read("decoder", target_in, states[:, -1])
_, (*_, attention_cache, _, _) = looking.look(hidden[:, 1:], states[:, 1:])
weights = attention_cache[2][0]  # (Tq, Tk)
draw_alignment(weights, source[0] - FIRST, EOS - FIRST)
plt.show()

# %% [markdown]
# Nobody told it that position $i$ of the copy comes from position $i$ of the source. It found the **alignment** because
# the gradient could reach the right state directly. Between two languages the line bends where the word order differs;
# [lesson 10](10_translator.ipynb) watches that happen.
#
# And the gradient? The plain cell once more with $s = 1$, whose gradient died within a few dozen positions. Now the
# last position also looks back, and the unit gradient enters at its state and at its context alike:


# %%
def looking_at_distance(seed):
    """As gradient_at_distance with s = 1, of the last state plus what it sees when it looks back."""
    rng = np.random.default_rng(seed)
    recurrent, _ = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))
    hidden = rnn_forward(rng.standard_normal((1, FAR, WIDTH)), np.zeros((1, WIDTH)), recurrent)
    states = hidden[:, 1:]
    query_weight, key_weight = rng.standard_normal((2, WIDTH, WIDTH)) / WIDTH**0.5
    score_weight = rng.standard_normal(WIDTH) / WIDTH**0.5
    _, cache = attend(states[:, -1:] @ query_weight, states @ key_weight, states, score_weight)
    direction = rng.standard_normal((1, 1, WIDTH))
    direction /= np.linalg.norm(direction)
    dquery, dkey, dvalue, _ = attend_backward(direction, cache)
    dhidden = dvalue + dkey @ key_weight.T
    dhidden[:, -1:] += direction + dquery @ query_weight.T
    dprojected, _, _ = rnn_backward(dhidden, hidden, recurrent)
    return np.linalg.norm(dprojected[0, ::-1], axis=-1)


looked = geometric_mean([looking_at_distance(seed) for seed in range(5)])
draw_distances({"RNN, s = 1": curves[1.0], "LSTM": lstm, "RNN, s = 1, with attention": looked})
plt.show()
print(f"left at distance {FAR - 1}, of what there is at distance 0:   RNN {curves[1.0][-1] / curves[1.0][0]:.0e}   "
      f"LSTM {lstm[-1] / lstm[0]:.0e}   with attention {looked[-1] / looked[0]:.0e}")  # fmt: skip

# %% [markdown]
# It falls until the direct way is the stronger one, and from there on it is flat: each of the $n$ positions gets its
# share, of the order of $1/n$ as long as the weights are near uniform. The path between two positions has length one.
#
# That leaves a question, which is the title of the paper. If attention carries what is far, and the recurrence must
# walk through every position, one after the other: **what is the recurrence still for?**
#
# ## Common mistakes, and what they look like
#
# **The gradient from the future is forgotten.** Each step by itself looks right, and the shapes are. The referee sees
# it; at the last position alone there would be nothing to see:


# %%
def forgetful_backward(dout, cache):
    hidden, recurrent = cache
    dprojected = dout * (1 - hidden[:, 1:] ** 2)  # + what comes back from the state after it
    return dprojected, dprojected[:, 0] @ recurrent.T, np.einsum("bti,btj->ij", hidden[:, :-1], dprojected)


try:
    check_gradients(states_forward, forgetful_backward, rnn)
except GradientError as problem:
    print(problem)

# %% [markdown]
# **The decoder is given the symbol that it is asked for**: its input was not moved. It learns to repeat its input, the
# loss is splendid, and without a teacher it is lost:


# %%
def unmoved(rng, length, size=32):
    source, _, target_out = batch(rng, length, size)
    return source, target_out, target_out


cheat = LookingCopier()
train(cheat, 300, data=unmoved)
loss, _ = cheat.loss(*unmoved(np.random.default_rng(1), 10))
print(f"loss {loss:.4f}; symbols copied right at length 10: {copied(cheat.package, 10):.0%}")

# %% [markdown]
# **Padding is read.** Sentences of a batch differ in length, and the shorter are padded on the right. Then `[:, -1]` is
# the state after the padding, not that of the last word. The package carries the state past it unchanged:

# %%
x = rng.standard_normal((1, 6, C))
(_, (alone,)), _ = layer.forward(x[:, :4])  # four words
(_, (read,)), _ = layer.forward(x)  # two of padding after them
(_, (masked,)), _ = layer.forward(x, context=Context(mask=np.array([[True] * 4 + [False] * 2])))
print(f"last state, padding read: off by {error(read, alone):.2f}   padding masked: off by {error(masked, alone):.2f}")

# %% [markdown]
# (Attention must not look at padding either: masks are a subject of the next lesson.)
#
# ## What changed since 2017
#
# Recurrence came back without its tanh: state-space models and linear recurrences (S4, 2021; RWKV and Mamba, 2023) are
# linear from state to state, so that a whole sequence can be computed in parallel, and how fast a gradient decays is
# something that is designed. Copying what was read long ago is still what such models, with a state of fixed size, find
# hard: Jelassi and others showed it in 2024 ("Repeat After Me"), with a copying task like this one.
#
# ## Where next
#
# [Lesson 04](04_attention.ipynb): the additive score cost a tanh for each pair of positions and each of $C$ numbers.
# The paper takes a dot product instead, one matrix multiplication for all pairs at once, and attention becomes cheap
# enough to be all you need.
