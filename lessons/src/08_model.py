# %% [markdown]
# # 08 · The whole model: encoder, decoder, and where the norm stands
#
# **You will be able to** write the paper's model, from tokens to logits; lead its gradients back from the loss to every
# weight; and choose the scale of its initial weights, and say what changes when the norm moves.
#
# | | |
# |---|---|
# | you know | attention, heads, positions (04 to 06), the [sub-layers](07_sublayers.ipynb) around them |
# | runs in | at most 40 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.1 and figure 1, §3.2.3, §3.4, table 3 |
# | in the package | [`Block`](../minitransformer/layers/block.py), [`Stack`](../minitransformer/layers/stack.py) |
#
# You have every part: attention, heads, positions, feed-forward, residual, norm. Now you write the wiring, and answer
# three questions that it raises. Where do gradients add? How large should the initial weights be? And does the norm
# stand in the right place?

# %%
from dataclasses import replace

import numpy as np

from course import recorded, start
from course.lesson_08.parts import learn_to_reverse, parts_of
from course.lesson_08.pictures import draw_beginnings, draw_layer_gradients, draw_sums, figure_1
from course.measuring import blas_threads
from minitransformer import Transformer, TransformerConfig, costs, layers
from minitransformer.gradcheck import check_gradients, error
from minitransformer.ops import Pair, attention_backward, attention_forward, numpy_ops

check = start("08")
rng = np.random.default_rng(0)

# %% [markdown]
# ## The picture: figure 1, from a running model
#
# Two sentences go in, both as integers: `source` of shape $(B, T_s)$ and `target` of shape $(B, T_t)$. $B$ is the
# number of sentence pairs, $T_s$ and $T_t$ are their lengths in tokens. The picture is drawn from the arrays of a real
# forward pass, with their shapes in grey. Change the sizes, run the cell again, and the picture follows.

# %%
config = TransformerConfig(vocab_size=100, d_model=64, num_heads=4, d_ff=256, num_layers=2, dropout=0.0)
model = Transformer(config, dtype="float64", seed=0)
source, target = rng.integers(3, 100, (2, 7)), rng.integers(3, 100, (2, 6))
figure_1(model, source, target)

# %% [markdown]
# Read it from the bottom. On the left the **encoder** turns the source tokens into one vector each; its last output is
# the [**memory**](glossary.md#memory). On the right the [**decoder**](glossary.md#decoder-encoder) does the same with
# the target tokens. Its third sub-layer, in the middle, is *cross-attention*: the queries come from the decoder, the
# keys and values from the memory. Above the decoder a linear layer gives the logits of the next token, $V$ numbers for
# each target position. Our model stops there: the loss takes the softmax itself (lesson 01).
#
# Between the embeddings and the linear layer the width never changes. Every sub-layer takes $(B, T, C)$ and gives
# $(B, T, C)$, so its output can be added to its input.
#
# ## What goes in, what comes out
#
# With the start mark `<s>` = 1, the end mark `</s>` = 2 and padding = 0, a pair of sentences becomes three rows:
#
# | | | |
# |---|---|---|
# | `source` | the source's tokens, `</s>` | the encoder reads it |
# | `target_in` | `<s>`, the target's tokens | the decoder reads it: the "outputs, shifted right" |
# | `target_out` | the target's tokens, `</s>` | the decoder has to predict it |
#
# At position $t$ the decoder has read `target_in[: t + 1]` and predicts `target_out[t]`, the next token. One forward
# pass asks all positions at once (teacher forcing, lesson 03), and the causal mask hides from each position its answer.
#
# ### Exercise 1 ★★☆: a layer of the encoder, a layer of the decoder
#
# Look at figure 1 and write what one layer does. Its parts are those of lessons 04 to 07 with their weights, such as
# `layer.self_attention(x, mask)`; the stubs list them ([their code](course/lesson_08/parts.py) is short). Each
# sub-layer stands in its Add & Norm, $\mathrm{LN}(x + f(x))$. (We leave out dropout: this is the model in use.) `True`
# in a mask means *may attend*, and a mask must fit $(B, H, T_q, T_k)$ by broadcasting: $H$ heads, $T_q$ queries, $T_k$
# keys.


# %% tags=["exercise"]
def encoder_layer(layer, x, mask):
    """One layer of the encoder, as in figure 1.

    layer has the parts self_attention(x, mask), feed_forward(x), and the norms self_attention_norm(x) and
    feed_forward_norm(x). x (B, T, C), mask: where self-attention may look → (B, T, C).
    """
    raise NotImplementedError


def decoder_layer(layer, x, memory, mask, memory_mask):
    """One layer of the decoder, as in figure 1.

    layer also has cross_attention(x, memory, mask), its queries made of x, and cross_attention_norm(x).
    x (B, Tt, C), memory (B, Ts, C), mask for self-attention, memory_mask for the memory → (B, Tt, C).
    """
    raise NotImplementedError


# %%
encoder_layer = check(encoder_layer)
decoder_layer = check(decoder_layer)

# %% [markdown] tags=["help"]
# Follow the main arrow of the encoder's box in figure 1 from the bottom to the top. What does the first yellow box get,
# by its two arrows? And does the blue box above it get the layer's input, or the output of the yellow box?
#
# ---
#
# The first line is `x = layer.self_attention_norm(x + layer.self_attention(x, mask))`. Every sub-layer gets a line of
# this form. The decoder has three such lines; in the second one the memory and its mask come in.

# %% [markdown]
# ### A first step: the two ends of the model
#
# Exercise 2 asks for the whole model. We build its two ends together, from the parts of the model in the picture:
#
# | | |
# |---|---|
# | `parts.table` | $(V, C)$: the vectors of the tokens; it serves source, target and output layer (§3.4) |
# | `parts.positions` | $(\text{longest}, C)$: the sinusoids of lesson 06, a row for each position |
# | `parts.pad` | the id of padding |
# | `parts.encoder`, `parts.decoder` | lists of layers, the lowest first; the two may differ in length |
#
# At the bottom, the looked-up vectors are multiplied by $\sqrt{C}$ before the positions are added (§3.4): the table
# starts with standard deviation $1/\sqrt C$, because it is also the output layer, and without the factor the words
# would be fainter than their positions. Two masks are needed: no attention may look at padding of the source, and in
# the decoder's self-attention position $t$ looks at positions $0 \dots t$ only. At the top the output layer is the
# table again, transposed.

# %%
parts = parts_of(model)
padded = source.copy()
padded[1, 4:] = parts.pad  # the second sentence is shorter

bottom = np.sqrt(config.d_model) * parts.table[padded] + parts.positions[: padded.shape[1]]  # (B, Ts, C)
print(f"the first layer's input, against the package: {error(bottom, model.encoder.embedding.forward(padded)[0]):.1e}")
source_mask = (padded != parts.pad)[:, None, None, :]  # (B, 1, 1, Ts): the same for every head and every query
causal = np.tri(target.shape[1], dtype=bool)  # (Tt, Tt)
print("the source mask of the second sentence:", source_mask[1, 0, 0].astype(int))
print(f"the causal mask:\n{causal.astype(int)}")
one_layer = encoder_layer(parts.encoder[0], bottom, source_mask)
print("one layer of the encoder:", one_layer.shape, "  logits:", (one_layer @ parts.table.T).shape)

# %% [markdown]
# ### Exercise 2 ★★☆: the whole model
#
# Now wire everything: the ends of both stacks, as above, and all layers between them. Decide at each attention which
# mask it gets, and say which array is the memory.


# %% tags=["exercise"]
def transformer(model, source, target):
    """The whole model: source (B, Ts) and target (B, Tt), integers → logits (B, Tt, V).

    model has the parts table, positions, pad, encoder and decoder, as `parts` above.
    Use `encoder_layer(layer, x, mask)` and `decoder_layer(layer, x, memory, mask, memory_mask)` of exercise 1.
    A mask is True where a query may look, and broadcasts to (B, H, Tq, Tk).
    """
    raise NotImplementedError


# %%
transformer = check(transformer)

# %% [markdown] tags=["help"]
# Write down the input and the output of each part, with shapes: embedding of the source, encoder, embedding of the
# target, decoder, output. Three attentions need a mask: which of the two does each get?
#
# ---
#
# Embed the source, then run `memory = encoder_layer(layer, memory, source_mask)` for each layer of `model.encoder`.
# Embed the target, then run `decoder_layer` for each layer of `model.decoder`: self-attention gets the causal mask,
# cross-attention the mask of the source. The last line is `return x @ model.table.T`.

# %% [markdown]
# The same weights, in your model and in the package's:

# %%
logits, _ = model.forward(padded, target)
print(f"your wiring against the package: {error(transformer(parts, padded, target), logits):.1e}")

# %% [markdown]
# ### A second witness (optional)
#
# The same wiring, with a backward for every line, is the package's [`Block`](../minitransformer/layers/block.py),
# [`Stack`](../minitransformer/layers/stack.py) and [`EncoderDecoder`](../minitransformer/models/encoder_decoder.py). A
# second witness is PyTorch's `TransformerEncoderLayer`. It wants our matrices transposed, and its masks mean the
# opposite: `True` = *may not* attend.

# %%
layer_config = TransformerConfig(8, d_model=16, num_heads=4, d_ff=32, dropout=0.0)
layer = layers.Block(numpy_ops, layer_config.encoder.block)
parameters = layers.FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64")
parameters.initialize(seed=0)
x, real = rng.standard_normal((2, 5, 16)), np.array([[True] * 5, [True] * 3 + [False] * 2])
dy = rng.standard_normal(x.shape) * real[..., None]
y, cache = layer.forward(x, layers.Context(mask=real))
dx, _ = layer.backward(dy, cache)


def against_torch():
    import torch

    ours = parameters.state_dict()
    theirs = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True).double()
    linears = {"self_attn.in_proj_": "self_attention.query_key_value.", "self_attn.out_proj.": "self_attention.output."}
    linears |= {"linear1.": "feed_forward.expand.", "linear2.": "feed_forward.contract."}
    state = {f"{to}{what}": ours[f"{name}{what}"].T for to, name in linears.items() for what in ("weight", "bias")}
    for number, name in enumerate(("self_attention", "feed_forward"), 1):
        state[f"norm{number}.weight"] = ours[f"{name}_norm.gamma"]
        state[f"norm{number}.bias"] = ours[f"{name}_norm.beta"]
    theirs.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    tensor = torch.tensor(x, requires_grad=True)
    out = theirs(tensor, src_key_padding_mask=torch.tensor(~real))
    out.backward(torch.tensor(dy))
    return [error(y[real], out.detach().numpy()[real]), error(dx, tensor.grad.numpy())]


forward_error, backward_error = recorded("08_encoder_layer", against_torch)
print(f"an encoder layer against PyTorch's: forward {forward_error:.1e}, backward {backward_error:.1e}")

# %% [markdown]
# [A test](../tests/models/test_torch_transformer.py) does this for the whole model, against `torch.nn.Transformer`.
#
# ### Two masks, and one that is not there (optional)
#
# Padding of the *target* needs no mask. It stands at the right end, a causal position never looks to the right, and the
# outputs at padding are not in the loss. Three experiments; the last one is the control: it hides a real word, and the
# model must miss it.

# %%
longer = np.concatenate([padded, np.full((2, 5), parts.pad)], axis=1)  # five columns of padding more
print(f"more padding on the source:    logits move by {error(transformer(parts, longer, target), logits):.1e}")

future = target.copy()
future[:, 4:] = 7  # other words from position 4 on
moved = np.abs(transformer(parts, padded, future) - logits).max(axis=(0, 2))  # (Tt,)
print(f"other words from position 4:   positions 0–3 move by {moved[:4].max():.1e}, 4 on by {moved[4:].max():.1e}")

hidden = padded.copy()
hidden[0, 0] = parts.pad
print(f"a source word made padding:    logits move by {error(transformer(parts, hidden, target), logits):.1e}")

# %% [markdown]
# ## Back through the wiring
#
# A layer's backward is its forward in reverse. Where a value is used several times, several gradients come back, and
# they **add**. That happens at five kinds of places:
#
# * **the residual sums**: $x$ goes into the sub-layer and past it (lesson 07);
# * **queries, keys and values**: in self-attention all three are made of the same $x$;
# * **keys and values** of cross-attention: both are made of the memory;
# * **the memory itself**: every layer of the decoder looks at it;
# * **the table of tokens**: it is looked up for the source, looked up for the target, and is the output layer
#   ([tied weights](glossary.md#tied-weights)).
#
# Here is the way back through two layers of each stack, from the loss to the table. A circle, or a + inside a box, is a
# place where gradients add:

# %%
draw_sums()

# %% [markdown]
# ### Exercise 3 ★★☆: the gradient of the memory, in one cross-attention (optional)
#
# One head and no biases, so that only the wiring is left: `query = x @ weight_query`, `key = memory @ weight_key`,
# `value = memory @ weight_value`. Attention's own backward is that of lesson 04.


# %%
def cross_forward(x, memory, weight_query, weight_key, weight_value):
    """x (B, Tq, C), memory (B, Tk, C), three weights (C, C) → (B, Tq, C)."""
    query, key, value = x @ weight_query, memory @ weight_key, memory @ weight_value
    out, attention_cache = attention_forward(query[:, None], key[:, None], value[:, None])  # one head: (B, 1, T, C)
    return out[:, 0], (weight_query, weight_key, weight_value, attention_cache)


dquery, dkey, dvalue = attention_backward(np.ones((1, 1, 4, 8)), attention_forward(*rng.random((3, 1, 1, 4, 8)))[1])
print("attention_backward gives", dquery.shape, dkey.shape, dvalue.shape)


# %% tags=["exercise"]
def cross_backward(dout, cache):
    """Gradients of cross_forward for its two sequences (those of the weights are lesson 00's).

    dout (B, Tq, C), cache as cross_forward returned it → the tuple dx (B, Tq, C), dmemory (B, Tk, C).
    `attention_backward(dout[:, None], attention_cache)` gives dquery, dkey, dvalue, each (B, 1, T, C).
    """
    raise NotImplementedError


# %%
cross_backward = check(cross_backward)

# %% [markdown] tags=["help"]
# Which of the three, queries, keys and values, are made of the decoder's sequence, and which of the memory? How many
# times is each of the two sequences used? What follows for their gradients?
#
# ---
#
# `dquery, dkey, dvalue = attention_backward(dout[:, None], attention_cache)`; `[:, 0]` takes the axis of the head off
# again. Back through `query = x @ weight_query` goes `dquery @ weight_query.T` (lesson 00).

# %%
three = rng.standard_normal((3, 8, 8)) / np.sqrt(8)
arrays = {"x": rng.standard_normal((2, 4, 8)), "memory": rng.standard_normal((2, 5, 8))}
errors = check_gradients(lambda x, memory: cross_forward(x, memory, *three), cross_backward, arrays)
for name, worst in errors.items():
    print(f"d{name:<7} against central differences {worst:.1e}")

# %% [markdown]
# ### Exercise 4 ★★☆: back through the decoder
#
# The memory was used by every layer of the decoder. This is a stack's forward, which keeps every layer's cache:
#
# ```python
# for layer in layers:
#     x, cache = layer.forward(x, memory)
#     caches.append(cache)
# ```
#
# Each layer's `backward(dx, cache)` returns two gradients: that of its input, which belongs to the layer below, and
# that of the memory, which belongs to the encoder.


# %% tags=["exercise"]
def decoder_backward(dx, layers, caches):
    """Back through a stack of decoder layers; caches[n] is what layers[n].forward left.

    dx is the gradient of the last layer's output; each `layer.backward(dx, cache)` returns (dx, dmemory), and adds to
    the gradients of the layer's weights, so call it once. Leave the lists as they are: the model goes on with them.
    → the tuple dx of the first layer's input, dmemory of the memory that all layers looked at.
    """
    raise NotImplementedError


# %%
decoder_backward = check(decoder_backward)

# %% [markdown] tags=["help"]
# Which layer's backward comes first? What does the next one need from it? And the memory was used by every layer: what
# happens to the gradients that come back from all of them?
#
# ---
#
# Go through `zip(reversed(layers), reversed(caches))`. In each round, `dx` becomes the new `dx`, and the memory's part
# is added to a sum that begins at 0.

# %% [markdown]
# Now put yours into the package's model, in place of the loop in
# [`Stack.backward`](../minitransformer/layers/stack.py). The forward keeps everything. The backward begins with a
# random gradient of the logits:

# %%
logits, cache = model.forward(padded, target)
dlogits = rng.standard_normal(logits.shape)
model.parameters.zero_grad()
model.backward(dlogits, cache)
expected = model.parameters.grad.copy()

model.parameters.zero_grad()
encoder_cache, decoder_cache, logits_cache, _ = cache
embedding_cache, layer_caches, _ = decoder_cache
dhidden = model.output.logits_backward(dlogits, logits_cache)  # use 3 of the table: the output layer
dtarget, dmemory = decoder_backward(dhidden, model.decoder.layers, layer_caches)
model.decoder.embedding.backward(dtarget, embedding_cache)  # use 2: the target
model.encoder.backward(dmemory, encoder_cache)  # use 1, inside: the source
print(
    f"all {model.parameters.count:,} gradients against the package's backward: "
    f"{error(model.parameters.grad, expected):.1e}"
)

# %% [markdown]
# A backward *adds* into the gradients. So a tied weight comes out right by itself, and so does a batch in parts
# (lesson 09). But clear the gradients before every new step: `zero_grad`.
#
# ## Is it right?
#
# The referee of lesson 00, on the whole model: nudge one weight, run two forwards, compare. We do it for three random
# elements of every parameter, through the loss with its label smoothing:

# %%
batch = padded, target, rng.integers(3, 100, target.shape)
model.parameters.zero_grad()
loss, cache = model.loss(*batch, label_smoothing=0.1)
model.loss_backward(1.0, cache)


def central_difference(array, index, eps=1e-5):
    """The slope of the loss along one element of a weight, which is put back."""
    was, losses = array[index], []
    for moved in (was + eps, was - eps):
        array[index] = moved
        losses.append(float(model.loss(*batch, label_smoothing=0.1, with_grad=False)[0]))
    array[index] = was
    return (losses[0] - losses[1]) / (2 * eps)


errors = {}
for name, parameter in model.parameters.named.items():
    places = [tuple(rng.integers(parameter.shape)) for _ in range(3)]
    measured = [central_difference(parameter.data, place) for place in places]
    errors[name] = error([parameter.grad[place] for place in places], measured)
worst = max(errors, key=errors.get)
print(f"{len(errors)} parameters checked; the largest error, {errors[worst]:.1e}, is in {worst}")

# %% [markdown]
# Note `parameters.grad`. All weights lie end to end in one array, `parameters.data`, all gradients in another, and each
# name is a view ([`FlatParameters`](../minitransformer/layers/parameter.py)). So a step of the optimiser, the norm of
# all gradients, a checkpoint and an average are each one operation on one array:

# %%
view = model.parameters.named["decoder.layers.1.cross_attention.query.weight"].data
print(f"{model.parameters.data.shape}; a weight is a view: {np.shares_memory(model.parameters.data, view)}")

# %% [markdown]
# ## Counting (optional)
#
# How many numbers does the paper's base model learn? $C = 512$, $F = 2048$, $N = 6$ layers in each stack, a vocabulary
# of "about 37000" (§5.1) shared by all three uses. Walk through figure 1. A linear map from $a$ to $b$ has $ab$ weights
# and $b$ biases. A layer norm has $2C$ numbers. Sinusoids have none. The number of heads does not matter: $H$ heads of
# width $C/H$ are still $C$ columns.
#
# ### Exercise 5 ★★☆: the parameters of a Transformer


# %% tags=["exercise"]
def count_parameters(V, C, F, N):
    """The number of learned numbers of the paper's model, with biases in every linear map but the output layer.

    V the vocabulary, one table for source, target and output; C the width; F of the feed-forward networks; N layers in
    the encoder and as many in the decoder. → int.
    """
    raise NotImplementedError


# %%
count_parameters = check(count_parameters)

# %% [markdown] tags=["help"]
# Count one attention first. Which four linear maps are in it, from which width to which? How many attentions, how many
# feed-forward networks and how many norms are in a layer of the encoder, and how many in a layer of the decoder?
#
# ---
#
# An attention has $4\,(C^2 + C)$ numbers, a feed-forward network $CF + F + FC + C$, a norm $2C$. A layer of the encoder
# has 1, 1 and 2 of them, a layer of the decoder 2, 1 and 3. The table has $VC$, once.

# %%
base = count_parameters(37_000, 512, 2048, 6)
print(f"base, counted:                    {base:,}")
print(f"base, by making the package's:    {costs.num_parameters(TransformerConfig.base(37_000)):,}")
print("table 3:                          65,000,000")
print(f"big, counted:                     {count_parameters(37_000, 1024, 4096, 6):,}")
print("table 3:                          213,000,000")
print(f"vocabulary that would give 65 M:  {37_000 + (65_000_000 - base) // 512:,}\n")
for group, count in costs.parameter_groups(TransformerConfig.base(37_000)).items():
    print(f"{group:<48} {count:>11,}  {count / base:5.1%}")

# %% [markdown]
# Table 3 of the paper rounds to millions, the vocabulary is "about" 37,000, and the paper writes its attention without
# biases, which ours has. So we cannot meet its figures exactly: big comes out a little above, base a little below. The
# feed-forward networks are the largest part, and the table of tokens is nearly a third.
#
# ## How large should the initial weights be?
#
# Biases start at 0, $\gamma$ at 1, $\beta$ at 0. Matrices must start at random numbers: if all numbers were equal, all
# columns would get equal gradients and stay equal. Which scale is right at this
# [initialisation](glossary.md#initialisation)? Look at one output of a linear map, a sum of $n_{in}$ products, and at
# the backward, a sum over the $n_{out}$ outputs:
#
# $$ \begin{aligned}
#    &y_j = \sum_{i=1}^{n_{in}} x_i\, W_{ij} \\
#    &\mathrm{d}x_i = \sum_{j=1}^{n_{out}} \mathrm{d}y_j\, W_{ij}
# \end{aligned} $$
#
# Let the weights be independent, with mean 0 and variance (mean square) $w^2$. Variances of independent numbers add. So
# if the $x_i$ have mean square $s^2$, $y_j$ has variance $n_{in}\, s^2 w^2$, and the size stays the same if
# $w^2 = 1/n_{in}$. In the backward it stays the same if $w^2 = 1/n_{out}$. Xavier Glorot and Yoshua Bengio (2010) took
# the middle:
#
# $$ \begin{aligned}
#    &w^2 = \frac{2}{n_{in} + n_{out}} \\
#    &\text{which uniform numbers in } [-b, b] \text{ have for} \\
#    &b = \sqrt{\frac{6}{n_{in} + n_{out}}}
# \end{aligned} $$
#
# because the variance of such a number is $b^2/3$. This is *Xavier's bound*, and the package's `init_gain` multiplies
# it. The paper does not give its initialisation; the authors' code took Xavier's bound.
#
# Two experiments with other bounds. Left: a chain of twelve square linear maps. Right: a small Transformer learns to
# write six tokens in reverse order (lesson 09 has the training loop).


# %%
def chain(gain, width=64, depth=12):
    """The size (root mean square) of x after each of a chain of linear maps, and of the gradient before each."""
    bound = gain * np.sqrt(6 / (width + width))
    matrices = rng.uniform(-bound, bound, (depth, width, width))
    forward, backward = [[each] for each in rng.standard_normal((2, 16, width))]
    for matrix in matrices:
        forward.append(forward[-1] @ matrix)
    for matrix in matrices[::-1]:
        backward.append(backward[-1] @ matrix.T)
    return [[np.sqrt((each**2).mean()) for each in way] for way in (forward, backward[::-1])]


sizes = {name: chain(gain) for name, gain in (("half of it", 0.5), ("Xavier's bound", 1.0), ("twice", 2.0))}
with blas_threads(1):  # for small products one thread is the fastest: lesson 14 says why
    gains = {"a tenth": 0.1, "Xavier's bound": 1.0, "four times": 4.0}
    runs = {name: learn_to_reverse(gain) for name, gain in gains.items()}
draw_beginnings(sizes, {name: losses for name, (losses, _) in runs.items()}, np.log(21))
for name, (losses, sharpness) in runs.items():
    print(f"model, {name:<16} loss {np.mean(losses[-20:]):.2f} (guessing: {np.log(21):.2f}); "
          f"at the start the largest of 6 attention weights is {sharpness:.2f}")  # fmt: skip

# %% [markdown]
# The chain multiplies sizes by the same factor at every map, so a small mistake grows or shrinks exponentially, forward
# and backward.
#
# In the Transformer the norms restore the size after every sub-layer, but the initial scale still matters. **Too
# small**: $f(x)$ is tiny beside $x$. Attention is nearly even, its output is too faint, the source does not reach the
# logits, and the loss stays at guessing. **Too large**: $f(x)$ drowns $x$, so the residual stream (lesson 07) loses
# $x$. Scores are products of queries and keys, so they grow with the square of the gain. The softmax then puts most of
# the weight on one key, and almost no gradient comes through a saturated softmax (lesson 01).
#
# ## Where does the norm stand?
#
# The paper's layer is [**post-norm**](glossary.md#post-norm-pre-norm): $\mathrm{LN}(x + f(x))$. Its norm stands on the
# residual stream. The gradient that comes down past $f$ is divided at every norm by about $\sigma$, the standard
# deviation of $x + f(x)$. Since $x$ was normed before and $f(x)$ is added to it, $\sigma$ is above 1 at the start. So
# on this path every sub-layer shrinks the gradient: we call this the *toll*.
#
# **Pre-norm** moves the norm aside, $x + f(\mathrm{LN}(x))$, and puts one norm at the end of each stack. Between the
# layers no norm stands on the residual stream. In the package it is a switch, `norm_first=True`.
#
# Take the whole model at its initial weights, with twelve layers in each stack. How long is the gradient of each
# layer's parameters? Each point is a geometric mean over five seeds:

# %%
DEEP = {"vocab_size": 100, "d_model": 64, "num_heads": 4, "d_ff": 256, "num_layers": 12, "dropout": 0.0}
ways = {
    "post-norm, as printed": {"norm_first": False},
    "pre-norm": {"norm_first": True},
    "post-norm, half the bound": {"norm_first": False, "init_gain": 0.5},
}


def random_batch(length=16):
    return [rng.integers(3, 100, (8, length)) for _ in range(3)]


def layer_gradients(options, seed):
    """(2, L): the norm of the gradient of each layer's parameters, of the encoder and of the decoder."""
    model = Transformer(TransformerConfig(**DEEP, **options), dtype="float64", seed=seed)
    _, cache = model.loss(*random_batch())
    model.loss_backward(1.0, cache)
    return [
        [np.sqrt(sum((parameter.grad**2).sum() for _, parameter in layer.named_parameters())) for layer in stack.layers]
        for stack in (model.encoder, model.decoder)
    ]


norms = {
    name: np.exp(np.mean(np.log([layer_gradients(options, seed) for seed in range(5)]), axis=0))
    for name, options in ways.items()
}
draw_layer_gradients(norms)
for name, (_, decoder) in norms.items():
    print(f"{name:<26} decoder: top layer's gradient is {decoder[-1] / decoder[0]:5.1f} times the bottom layer's")

# %% [markdown]
# In the decoder with the norm as printed, the top layers get most of the gradient, the bottom layers a small fraction.
# Xiong and others (2020) found such large gradients near the output of post-norm models. This, they say, is why
# post-norm needs small steps at first: the warm-up of [lesson 09](09_training.ipynb). With pre-norm the gradients are
# nearly level.
#
# But look at the third curve. Post-norm at half of Xavier's bound is as level as pre-norm: $f(x)$ is small, $\sigma$ is
# near 1, and so the toll is small. The small models of this package start at half (`init_gain=0.5`) and stay post-norm.
#
# ### Why only the decoder? The toll, measured (optional)
#
# In the encoder all layers get about the same gradient. To see why, we swap an operation of the deep model for one that
# records $\sigma$.


# %%
def tolls(**options):
    """σ at every norm of a deep post-norm model at its initial weights, in the order of the forward: (5 L,)."""
    sigmas = []

    def noting(x, sublayer_out, *rest):
        sigmas.append((x + sublayer_out).std(axis=-1).mean())
        return numpy_ops.add_layernorm.forward(x, sublayer_out, *rest)

    pair = Pair(noting, numpy_ops.add_layernorm.backward)
    ops = replace(numpy_ops, add_layernorm=pair)  # the ops are a table: any of them can be swapped
    Transformer(TransformerConfig(**DEEP, **options), ops, "float64").forward(*random_batch()[:2])
    return np.array(sigmas)


for bound, gain in (("Xavier's bound", 1.0), ("half of it", 0.5)):
    encoder, decoder = np.split(tolls(init_gain=gain), [2 * DEEP["num_layers"]])
    for stack, sigmas in (("encoder", encoder), ("decoder", decoder)):
        total = np.prod(sigmas)
        print(f"{bound:<15} {stack}: {len(sigmas)} norms, each divides by about {total ** (1 / len(sigmas)):.2f}, "
              f"all together by {total:,.1f}")  # fmt: skip
    print(f"{'':<24} of these the {len(decoder[1::3])} behind cross-attention by {np.prod(decoder[1::3]):,.1f}")

# %% [markdown]
# The norm takes its toll in both stacks. But the residual stream is not the only way back to $x$: the sub-layer $f$ is
# another one. In self-attention and in the feed-forward network a larger $f(x)$ means a larger toll, and also more
# gradient that comes back through $f$. The two about cancel.
#
# Cross-attention is the exception. Its $f(x)$ is made of the memory, so its gradient goes to the memory, and not to
# $x$. (Only the queries lead back to $x$, and at the start next to nothing comes through them.) Nothing makes up for
# this toll. The product over the norms behind cross-attention, printed above, is about the ratio of the top layer to
# the bottom layer in the picture.
#
# ## Common mistakes, and what they look like
#
# **The memory's gradient from one layer only.** The decoder learns as it should. The encoder learns from a fraction of
# its gradient. Nothing crashes:

# %%
model.parameters.zero_grad()
dhidden = model.output.logits_backward(dlogits, logits_cache)
for layer, layer_cache in zip(reversed(model.decoder.layers), reversed(layer_caches), strict=True):
    dhidden, dmemory_here = layer.backward(dhidden, layer_cache)  # dmemory_here of the layer below overwrites it
model.decoder.embedding.backward(dhidden, embedding_cache)
model.encoder.backward(dmemory_here, encoder_cache)
truth = model.parameters.views(expected)
for stack in ("encoder", "decoder"):
    names = [name for name in truth if name.startswith(stack)]
    off = max(error(model.parameters.named[name].grad, truth[name]) for name in names)
    print(f"{stack}: worst gradient is off by {off:.1e}")

# %% [markdown]
# **A target that is not shifted.** If `target_in` is `target_out`, the input at each position is its answer, and the
# causal mask does not hide it. In training the loss falls to nothing; in use there is no answer to copy. Lesson 10
# trains such a model.
#
# ## What changed since 2017
#
# Most large models keep only the decoder, without cross-attention, and are pre-norm. Many have separate tables for
# input and output, and biases have mostly gone. The encoder–decoder lives on where one sequence is turned into another:
# T5, NLLB, Whisper.
#
# ## Where next
#
# [Lesson 09](09_training.ipynb): how it learns. Batches, Adam, warm-up, and a training run that stops and goes on as if
# nothing had happened.
