# %% [markdown]
# # 08 · The whole model: encoder, decoder, and where the norm stands
#
# **You will be able to** write the paper's model on one page, lead its gradients back from the loss to every weight,
# count its parameters without making it, and say what changes when the norm moves.
#
# | | |
# |---|---|
# | you know | attention, heads, positions (04 to 06), the [sub-layers](07_sublayers.ipynb) around them |
# | runs in | at most 40 s on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.1 and figure 1, §3.2.3, §3.4, table 3 |
# | in the package | [`Block`](../minitransformer/layers/block.py), [`Stack`](../minitransformer/layers/stack.py) |
#
# Every part is there: attention, heads, positions, feed-forward, residual, norm. What is left is the wiring, which fits
# on a page, and three questions that the wiring raises. Where do gradients add? How many numbers are learned? And does
# the norm stand where it should?

# %%
from dataclasses import replace

import numpy as np

from course import recorded, start
from course.lesson_08.pictures import draw_layer_gradients, figure_1
from minitransformer import Transformer, TransformerConfig
from minitransformer.costs import num_parameters, parameter_groups
from minitransformer.gradcheck import check_gradients, error
from minitransformer.layers import Block, Context, FlatParameters
from minitransformer.ops import (
    Pair,
    attention_backward,
    attention_forward,
    layernorm_forward,
    numpy_ops,
    softmax_forward,
)

check = start("08")
rng = np.random.default_rng(0)

# %% [markdown]
# ## The picture: figure 1, from a running model
#
# Two sentences go in: `source` of shape $(B, T_s)$, integers, and `target`, $(B, T_t)$. What follows is drawn from the
# arrays of a real forward pass: the grey shapes on the arrows are those that were seen. Change the sizes, run the cell
# again, and the picture follows.

# %%
config = TransformerConfig(vocab_size=100, d_model=64, num_heads=4, d_ff=256, num_layers=2, dropout=0.0)
model = Transformer(config, dtype="float64", seed=0)
source, target = rng.integers(3, 100, (2, 7)), rng.integers(3, 100, (2, 6))
figure_1(model, source, target)

# %% [markdown]
# Read it from the bottom. On the left the **encoder** turns source tokens into one vector each; its last output is
# called the **memory**. On the right the **decoder** does the same with the target tokens, with a third sub-layer in
# the middle, whose queries come from the decoder and whose keys and values come from the memory: *cross-attention*.
# Above it a linear layer gives $V$ numbers for each target position, the logits of the token that comes next, and the
# softmax at the top turns them into probabilities.
#
# Note what does not happen: between the two embeddings and the top, the width never changes. Every sub-layer takes and
# gives $(B, T, C)$, which is what lets it be added to its input.
#
# ## What goes in, what comes out
#
# The target stands in the picture as "Outputs, shifted right". With `<s>` = 1, `</s>` = 2, padding = 0, a pair of
# sentences becomes three rows:
#
# | | | |
# |---|---|---|
# | `source` | the source's tokens, `</s>` | what the encoder reads |
# | `target_in` | `<s>`, the target's tokens | what the decoder reads |
# | `target_out` | the target's tokens, `</s>` | what it has to say |
#
# At position $t$ the decoder has read `target_in[: t + 1]` and is asked for `target_out[t]`, the next token. One
# forward pass asks all positions at once (teacher forcing, lesson 03), and the causal mask sees to it that none has
# read its answer.
#
# ## The whole model on one page
#
# All weights are given by name in one dictionary, as a checkpoint holds them. The names are the package's. Heads, masks
# and sinusoids are those of lessons 04 to 06; `True` in a mask means *may attend*.

# %%
weights = model.parameters.state_dict()
num_heads, num_layers, pad = config.num_heads, config.num_layers, config.pad_id


def linear(name, x):
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def feed_forward(name, x):
    return linear(f"{name}.contract", np.maximum(0, linear(f"{name}.expand", x)))


def multi_head(query, key, value, mask):
    """query (B, Tq, C), key and value (B, Tk, C), mask broadcast to (B, H, Tq, Tk) → (B, Tq, C)."""
    B, _, C = query.shape
    query, key, value = (x.reshape(B, -1, num_heads, C // num_heads).swapaxes(1, 2) for x in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(C // num_heads)  # (B, H, Tq, Tk)
    mixed = softmax_forward(np.where(mask, scores, -np.inf))[0] @ value  # (B, H, Tq, D)
    return mixed.swapaxes(1, 2).reshape(B, -1, C)


def self_attention(name, x, mask):
    query, key, value = np.split(linear(f"{name}.query_key_value", x), 3, axis=-1)
    return linear(f"{name}.output", multi_head(query, key, value, mask))


def cross_attention(name, x, memory, mask):
    query = linear(f"{name}.query", x)  # from the decoder
    key, value = np.split(linear(f"{name}.key_value", memory), 2, axis=-1)  # from the encoder
    return linear(f"{name}.output", multi_head(query, key, value, mask))


def add_norm(name, x, sublayer_out):
    return layernorm_forward(x + sublayer_out, weights[f"{name}.gamma"], weights[f"{name}.beta"])[0]


def embed(ids):
    """√C · table[ids] + sinusoids: (B, T) → (B, T, C)."""
    table = weights["tokens.table"]
    T, C = ids.shape[1], table.shape[1]
    angles = np.arange(T)[:, None] / 10000 ** (np.arange(0, C, 2) / C)  # (T, C/2)
    positions = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(T, C)
    return np.sqrt(C) * table[ids] + positions


def encode(source):
    """source (B, Ts) → the memory (B, Ts, C)."""
    mask = (source != pad)[:, None, None, :]  # (B, 1, 1, Ts): nobody looks at padding
    x = embed(source)
    for n in range(num_layers):
        layer = f"encoder.layers.{n}"
        x = add_norm(f"{layer}.self_attention_norm", x, self_attention(f"{layer}.self_attention", x, mask))
        x = add_norm(f"{layer}.feed_forward_norm", x, feed_forward(f"{layer}.feed_forward", x))
    return x


def decode(target, memory, source):
    """target (B, Tt), memory (B, Ts, C), source (B, Ts) for its padding → (B, Tt, C)."""
    memory_mask = (source != pad)[:, None, None, :]
    causal = np.tri(target.shape[1], dtype=bool)  # (Tt, Tt): position t looks at 0 … t
    x = embed(target)
    for n in range(num_layers):
        layer = f"decoder.layers.{n}"
        x = add_norm(f"{layer}.self_attention_norm", x, self_attention(f"{layer}.self_attention", x, causal))
        seen = cross_attention(f"{layer}.cross_attention", x, memory, memory_mask)
        x = add_norm(f"{layer}.cross_attention_norm", x, seen)
        x = add_norm(f"{layer}.feed_forward_norm", x, feed_forward(f"{layer}.feed_forward", x))
    return x


def transformer(source, target):
    """(B, Ts) and (B, Tt) → logits (B, Tt, V): the output layer is the embedding table again."""
    return decode(target, encode(source), source) @ weights["tokens.table"].T


padded = source.copy()
padded[1, 4:] = pad  # the second sentence is shorter
logits, _ = model.forward(padded, target)
print(f"one page against the package: {error(transformer(padded, target), logits):.1e}")

# %% [markdown]
# The same page with a backward for every line is the package's [`Block`](../minitransformer/layers/block.py),
# [`Stack`](../minitransformer/layers/stack.py) and [`EncoderDecoder`](../minitransformer/models/encoder_decoder.py). A
# second witness is PyTorch, whose `TransformerEncoderLayer` was written by others. It wants our matrices transposed,
# and its masks mean the opposite, `True` = *may not* attend:

# %%
layer_config = TransformerConfig(8, d_model=16, num_heads=4, d_ff=32, dropout=0.0)
layer = Block(numpy_ops, layer_config.encoder.block)
parameters = FlatParameters(dict(layer.named_parameters()), numpy_ops, "float64")
parameters.initialize(seed=0)
x, real = rng.standard_normal((2, 5, 16)), np.array([[True] * 5, [True] * 3 + [False] * 2])
dy = rng.standard_normal(x.shape) * real[..., None]
y, cache = layer.forward(x, Context(mask=real))
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
# ### Two masks, and one that is not there
#
# Padding of the source is masked wherever the source is looked at: in the encoder and in cross-attention. The decoder's
# self-attention is causal. But nobody masks padding of the *target*. It stands at the right end, and a causal position
# never looks right; what padding itself computes is not in the loss. Three experiments, of which the last is the
# control, a word that is hidden and must be missed:

# %%
longer = np.concatenate([padded, np.full((2, 5), pad)], axis=1)  # five columns of padding more
print(f"more padding on the source:    logits move by {error(transformer(longer, target), logits):.1e}")

future = target.copy()
future[:, 4:] = 7  # other words from position 4 on
moved = np.abs(transformer(padded, future) - logits).max(axis=(0, 2))  # (Tt,)
print(f"other words from position 4:   positions 0–3 move by {moved[:4].max():.1e}, 4 on by {moved[4:].max():.1e}")

hidden = padded.copy()
hidden[0, 0] = pad
print(f"a source word made padding:    logits move by {error(transformer(hidden, target), logits):.1e}")

# %% [markdown]
# ## Back through the wiring
#
# Where a value goes one way, its gradient comes back one way, and a layer's backward is its forward in reverse. Where a
# value is used several times, its gradients add. In figure 1 that happens at five kinds of places:
#
# * **the residual sums**, at every sub-layer (lesson 07);
# * **queries, keys and values**, all made of the same $x$ in self-attention;
# * **keys and values**, both made of the memory, in every cross-attention;
# * **the memory itself**, which every layer of the decoder looks at;
# * **the table of tokens**, which is looked up for the source, looked up for the target, and is the output layer.
#
# ### Exercise 1: the gradient of the memory, in one cross-attention
#
# One head, no biases, so that only the wiring is left: `query = x @ weight_query`, `key = memory @ weight_key`,
# `value = memory @ weight_value`. Attention's own backward is lesson 04's; you get it as `attention_backward`.


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

# %%
three = rng.standard_normal((3, 8, 8)) / np.sqrt(8)
arrays = {"x": rng.standard_normal((2, 4, 8)), "memory": rng.standard_normal((2, 5, 8))}
errors = check_gradients(lambda x, memory: cross_forward(x, memory, *three), cross_backward, arrays)
for name, worst in errors.items():
    print(f"d{name:<7} against central differences {worst:.1e}")

# %% [markdown]
# ### Exercise 2: back through the decoder
#
# A stack's forward, with every layer's cache kept:
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

# %% [markdown]
# Yours inside the package's model, in place of the loop in [`Stack.backward`](../minitransformer/layers/stack.py).
# The forward keeps everything; the backward begins with a random gradient of the logits:

# %%
logits, (encoder_cache, decoder_cache, logits_cache) = model.forward(padded, target)
dlogits = rng.standard_normal(logits.shape)
model.parameters.zero_grad()
model.backward(dlogits, (encoder_cache, decoder_cache, logits_cache))
expected = model.parameters.grad.copy()

model.parameters.zero_grad()
embedding_cache, layer_caches, _ = decoder_cache
dhidden = model.tokens.logits_backward(dlogits, logits_cache)  # use 3 of the table: the output layer
dtarget, dmemory = decoder_backward(dhidden, model.decoder.layers, layer_caches)
model.decoder.embedding.backward(dtarget, embedding_cache)  # use 2: the target
model.encoder.backward(dmemory, encoder_cache)  # use 1, inside: the source
print(
    f"all {model.parameters.count:,} gradients against the package's backward: "
    f"{error(model.parameters.grad, expected):.1e}"
)

# %% [markdown]
# Note `zero_grad`. A backward *adds* into the gradients, which is what makes a tied weight, and a batch in parts
# (lesson 09), come out right by themselves. Whoever starts anew has to clear them.
#
# ## Is it right?
#
# The referee of lesson 00, on the whole model: nudge one weight, run two forwards, compare. Three random elements of
# every parameter, through the loss with its label smoothing:

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
# ## One flat array
#
# All weights lie end to end in one array, and each name is a view into it; the gradients likewise. An optimiser's step,
# the norm of all gradients, a checkpoint and an average are then each one operation over one array. That is all that
# [`FlatParameters`](../minitransformer/layers/parameter.py) is:

# %%
flat = model.parameters.data
view = model.parameters.named["decoder.layers.1.cross_attention.query.weight"].data
before = view[0, 0]
flat += 1.0
print("one array of shape", flat.shape, "· a weight is a view:", np.shares_memory(flat, view))
print(f"add 1 to the array, and the weight grows by {view[0, 0] - before:.1f}")
flat -= 1.0

# %% [markdown]
# ## Counting
#
# How many numbers does the paper's base model learn? $C = 512$, $F = 2048$, $N = 6$ layers in each stack, a vocabulary
# of "about 37000" (§5.1) shared by all three uses. Take the figure and walk through it. A linear map from $a$ to $b$
# has $ab$ weights and $b$ biases; a layer norm has $2C$; sinusoids have none. The number of heads does not matter: $H$
# heads of width $C/H$ are still $C$ columns.
#
# ### Exercise 3: the parameters of a Transformer


# %% tags=["exercise"]
def count_parameters(V, C, F, N):
    """The number of learned numbers of the paper's model, with biases in every linear map but the output layer.

    V the vocabulary, one table for source, target and output; C the width; F of the feed-forward networks; N layers in
    the encoder and as many in the decoder. → int.
    """
    raise NotImplementedError


# %%
count_parameters = check(count_parameters)

# %%
base = count_parameters(37_000, 512, 2048, 6)
print(f"base, counted:                    {base:,}")
print(f"base, by making the package's:    {num_parameters(TransformerConfig.base(37_000)):,}")
print("table 3:                          65,000,000")
print(f"big, counted:                     {count_parameters(37_000, 1024, 4096, 6):,}")
print("table 3:                          213,000,000")
print(f"vocabulary that would give 65 M:  {37_000 + (65_000_000 - base) // 512:,}\n")
for group, count in parameter_groups(TransformerConfig.base(37_000)).items():
    print(f"{group:<48} {count:>11,}  {count / base:5.1%}")

# %% [markdown]
# Table 3 rounds to millions, the paper's vocabulary is "about" 37,000, and its attention is written without biases,
# which ours has: neither figure can be met exactly. Big comes out a little above, base a little below. The feed-forward
# networks are the largest part, and the table of tokens is nearly a third.
#
# ## Where does the norm stand?
#
# The paper's layer is **post-norm**: $\mathrm{LN}(x + f(x))$. Lesson 07 left a doubt: the norm stands on the highway.
# What comes down the lane past $f$ is divided by about $\sigma$ at every norm, $\sigma$ being the standard deviation of
# $x + f(x)$; as $x$ is already normed and $f(x)$ comes on top, $\sigma$ is above 1 at the start. That is a toll at
# every sub-layer. To measure it, swap into a deep model an op that takes note of $\sigma$; and once more with all
# matrices drawn from half of Xavier's bound (`init_gain`), so that $f(x)$ is smaller:


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


def random_batch(length=16):
    return [rng.integers(3, 100, (8, length)) for _ in range(3)]


DEEP = {"vocab_size": 100, "d_model": 64, "num_heads": 4, "d_ff": 256, "num_layers": 12, "dropout": 0.0}
for bound, gain in (("Xavier's bound", 1.0), ("half of it", 0.5)):
    encoder, decoder = np.split(tolls(init_gain=gain), [2 * DEEP["num_layers"]])
    for stack, sigmas in (("encoder", encoder), ("decoder", decoder)):
        total = np.prod(sigmas)
        print(f"{bound:<15} {stack}: {len(sigmas)} norms, each divides by about {total ** (1 / len(sigmas)):.2f}, "
              f"all together by {total:,.1f}")  # fmt: skip
    print(f"{'':<24} of these the {len(decoder[1::3])} behind cross-attention by {np.prod(decoder[1::3]):,.1f}")

# %% [markdown]
# **Pre-norm** moves the norm aside, $x + f(\mathrm{LN}(x))$, and sets one at the end of each stack. Nothing is left on
# the lane. It is a switch in the package, `norm_first=True`.
#
# ### The picture: gradients by layer
#
# The whole model, twelve layers in each stack, at its initial weights: the norm of the gradient of each layer's
# parameters, for three ways of starting. Geometric means over five seeds.

# %%
ways = {
    "post-norm, as printed": {"norm_first": False},
    "pre-norm": {"norm_first": True},
    "post-norm, half the bound": {"norm_first": False, "init_gain": 0.5},
}


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
# In the post-norm decoder the top layers get most of the gradient and the bottom ones a fraction; in the encoder all
# get about the same. Why not there too? Where $f(x)$ makes $\sigma$ larger it is also a second way for the gradient,
# and that about makes up for the toll. Cross-attention is the exception. Its $f(x)$ is made of the memory: it makes
# $\sigma$ larger all the same, but back to $x$ there is only the way through the queries, and at the start next to
# nothing takes it. What its norms alone divide by was printed above, and it is about what the picture shows.
#
# Xiong and others (2020) trace to these large gradients next to the output that post-norm needs small steps at first,
# the warm-up of [lesson 09](09_training.ipynb). Pre-norm is nearly level.
#
# But look at the third curve. Post-norm with its matrices drawn from half of Xavier's bound is as level as pre-norm:
# where $f(x)$ is small, $\sigma$ is near 1 and the toll is small too. The paper does not say how its weights start. The
# small models of this package start at half (`init_gain`), and stay post-norm.
#
# ## Common mistakes
#
# **The memory's gradient from one layer only.** The decoder learns as it should, and the encoder learns from a fraction
# of its gradient. Nothing crashes:

# %%
model.parameters.zero_grad()
dhidden = model.tokens.logits_backward(dlogits, logits_cache)
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
# **No √d_model on the look-up.** The table starts with standard deviation $1/\sqrt C$, small because it is also the
# output layer. Without the factor, words are whispers beside the positions:

# %%
table = model.parameters.named["tokens.table"].data
position_size = np.sqrt(0.5)  # the root mean square of a sine
print(f"look-up without the factor, against the positions: {table.std() / position_size:.2f}")
print(f"look-up with the factor, against the positions:    {table.std() * np.sqrt(64) / position_size:.2f}")

# %% [markdown]
# **A target that is not shifted.** If `target_in` is `target_out`, the answer to each position is its own input, which
# the causal mask lets it see. In training the loss falls to nothing; in use there is no answer to copy. The check is a
# question: does the logit of position $t$ depend on `target_out[t]`? Here it must not:

# %%
ids = rng.integers(3, 100, (1, 6))
shifted = np.concatenate([[[1]], ids[:, :-1]], axis=1)
for name, target_in in (("shifted", shifted), ("not shifted", ids)):
    other = ids.copy()
    other[:, 3] = 3 + (ids[:, 3] - 2) % 97  # another word at position 3 of target_out
    other_in = np.concatenate([[[1]], other[:, :-1]], axis=1) if name == "shifted" else other
    change = np.abs(transformer(source[:1], other_in) - transformer(source[:1], target_in))[0, 3].max()
    print(f"{name:<12} another answer at position 3 moves the logits there by {change:.1e}")

# %% [markdown]
# ## What changed since 2017
#
# Most large models keep only the decoder, without cross-attention, and are pre-norm. Input and output tables are often
# untied in large models, and biases have mostly gone. The encoder–decoder lives on where one sequence is turned into
# another: T5, NLLB, Whisper.
#
# ## Where next
#
# [Lesson 09](09_training.ipynb): how it learns. Batches, Adam, warm-up, and a training that stops and goes on as if
# nothing had happened.
