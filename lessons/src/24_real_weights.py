# %% [markdown]
# # 24 · Real weights: read name by name, and made to speak
#
# **You will be able to** read a folder of a stranger's weights with NumPy alone: header, numbers and names; run the
# GPT-2 in it; say what each misreading changes, and which test notices it; and, if you like, send a gradient back into
# the file's layout, and train a small adapter in place of all numbers.
#
# | | |
# |---|---|
# | you know | tokens ([02](02_text.ipynb)), heads ([05](05_multi_head.ipynb)), the [whole model](08_model.ipynb) |
# | runs in | 60 s at most on 2 cores; no GPU, no network; PyTorch in two optional cells, or their recordings |
# | in the paper | Radford et al. 2019 (GPT-2), §2.2, §2.3; Hu et al. 2021 (LoRA), §4; Vaswani et al. 2017, §3.4, §3.5 |
# | in the package | [`pretrained.load` and `pretrained.save`](../minitransformer/pretrained) |
#
# You are given a folder with a file of numbers, and told: this is a language model. One array maps the output of
# attention back to the model's width, and it is square. Do you multiply by it as it is, or transposed? The file does
# not say. Both give logits, and no error is raised. **How do you know that you read it right?**

# %%
import json
import os
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np

from course import recorded, start
from course.lesson_24 import stranger, tokenizer
from course.lesson_24.misreadings import misreadings
from course.lesson_24.names import our_name
from course.lesson_24.pictures import draw_file, draw_halves, draw_mistakes
from course.measuring import blas_threads
from course.style import show
from minitransformer import Translator, layers, models, ops, pretrained
from minitransformer.gradcheck import check_gradients, error
from minitransformer.grammar import sample
from minitransformer.layers.attention import merge_heads, split_heads
from minitransformer.pretrained.files import find_tensors

check = start("24")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)
place = tempfile.TemporaryDirectory()
FOLDER = stranger.leave(Path(place.name))  # some seconds, and no network; do not look yet how it is made
print("\n".join(f"{path.name:<24} {path.stat().st_size:>9,} bytes" for path in sorted(FOLDER.iterdir())))
print("\n" + (FOLDER / "README.md").read_text())

# %% [markdown]
# The *form* is that of OpenAI's GPT-2, down to the names. (An optional cell at the end runs the same functions on the
# real weights.) `config.json` has the rest that a model needs:

# %%
config = json.loads((FOLDER / "config.json").read_text())
print({name: config[name] for name in ("n_layer", "n_embd", "n_positions", "vocab_size")})
print({name: config[name] for name in ("n_head", "activation_function", "layer_norm_epsilon", "tie_word_embeddings")})
HEADS, EPS, END = config["n_head"], config["layer_norm_epsilon"], config["eos_token_id"]

# %% [markdown]
# The entries of the second line change no shape: a program that overlooks one of them can run without an error.
# **GELU** is a smooth ReLU: $x \cdot \Phi(x)$, where $\Phi(x)$ is the probability that a standard normal number is
# below $x$. That needs the function erf. `gelu_new` approximates it with tanh:
# $\frac{x}{2} \left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)$.
#
# ## The picture: a file, and a model
#
# A GPT-2 is the decoder of [lesson 08](08_model.ipynb) without a source: no cross-attention, the norm *before* each
# sub-layer, one more norm at the end, learned positions, and GELU in the place of ReLU. (Lesson 19 trains one.)

# %% tags=["picture"]
draw_file(find_tensors(FOLDER))
show(
    "Above, the file as one bar, each tensor as long as its bytes; below, the model's arrays in the order in which it "
    "computes. The lines between them cross: the file's order is not the model's, and the table of tokens, by far the "
    "longest piece, is used at both ends of the model."
)

# %% [markdown]
# The file's names are sorted, so its order is not the model's. The table of tokens, `wte`, stands there once and is
# used twice: to look tokens up, and transposed to make logits ([tied weights](glossary.md#tied-weights)). The pale
# pieces, `attn.bias`, are causal masks, which a reader leaves out.
#
# ## The header
#
# The format is called [*safetensors*](glossary.md#safetensors). It is about as simple as a file of arrays can be:
#
# | bytes | what |
# |---|---|
# | 0 to 7 | $n$, a whole number, the lowest byte first ("little-endian") |
# | the next $n$ | the header, JSON: for each tensor its type, its shape, and where its bytes lie |
# | the rest | the numbers, one tensor after the other, row by row |
#
# There is no code in it. The older format, `pytorch_model.bin`, is a Python *pickle*: a list of instructions that build
# objects, and that may call any function on the way. Since PyTorch 2.6 (2025) `torch.load` refuses most of these unless
# you say `weights_only=False`, but `pickle.load` and older versions do not. (This package runs no pickle: it reads the
# tensors that one describes, and calls nothing.) Here are the first bytes of our file:

# %%
data = (FOLDER / "model.safetensors").read_bytes()
print(data[:8], "\n", data[8:380].decode(), "…")

# %% [markdown]
# ### Exercise 1 ★★☆: read the header
#
# `data_offsets` are counted from the *end of the header*, where the numbers begin. `__metadata__` is no tensor, and the
# header need not have it. A download that broke off is the most common damage: your function must notice it.


# %% tags=["exercise"]
def read_header(data):
    """The tensors in the bytes of a safetensors file.

    → a dictionary: name → (type, shape, start, stop). The type is the text in the file, such as "BF16"; the shape is a
    tuple; the tensor is data[start:stop]. Raises ValueError for a file that is cut off: shorter than its header says.
    """
    raise NotImplementedError


# %%
read_header = check(read_header)

# %% [markdown] tags=["help"]
# Three steps: the length, the text, the places. `int.from_bytes` knows both orders of bytes. From which byte of the
# file are the offsets counted? And how do you find the last byte that the file must have?
#
# ---
#
# `length = int.from_bytes(data[:8], "little")`, `first = 8 + length`, `json.loads(data[8:first])`. Each entry but
# `__metadata__` has `dtype`, `shape` and `data_offsets`, two numbers to which `first` is added. Then compare the
# largest stop with `len(data)`.

# %%
header = read_header(data)
for name, (kind, shape, first, last) in islice(header.items(), 4):
    print(f"{name:<24} {kind:<5} {shape!s:<16} bytes {first:>8,} to {last:>8,}")

# %% [markdown]
# ## Half a float32
#
# `BF16` is [*bfloat16*](glossary.md#bfloat16), in which most models are published today. NumPy does not know it. But a
# float32 has 1 bit of sign, 8 of exponent and 23 of fraction, and **a bfloat16 is its upper half**: the same sign, the
# same exponent, the first 7 bits of the fraction. So the way back is to append 16 zeros.


# %%
def bits_of(number):
    bits = f"{np.float32(number).view(np.uint32):032b}"
    return f"{bits[0]} {bits[1:9]} {bits[9:16]}|{bits[16:]}"


print("    number   sign, exponent, fraction             the upper half, as uint16")
for number in (1.0, -2.0, np.pi):
    print(f"{number:10.6f}   {bits_of(number)}   {stranger.narrowed(np.array([number]))[0]}")

# %% [markdown]
# (float16 has 16 bits too, cut in another way: 5 of exponent, 10 of fraction. Confuse the two and you get numbers, not
# an error.)
#
# ### Exercise 2 ★☆☆: widen
#
# NumPy reads the file's two bytes as one `uint16`. Turn it into float32, all numbers at once: a real file has hundreds
# of millions.


# %% tags=["exercise"]
def widen(bits):
    """The numbers whose bfloat16 have these bits: bits, uint16 of any shape → float32 of the same shape.

    Also for −0, infinities and NaN.
    """
    raise NotImplementedError


# %%
widen = check(widen)

# %% [markdown] tags=["help"]
# Where in the 32 bits of a float32 do the 16 belong? What happens to a `uint16` that is shifted by 16? And how do you
# make NumPy look at the same bits as another type, without converting the value?
#
# ---
#
# `bits.astype(np.uint32) << 16` puts them into the upper half. `.view(np.float32)` looks at these bits as float32,
# where `.astype(np.float32)` would convert the whole number.


# %%
def read_weights(folder):
    """The weights of a GPT-2's folder by name, float32. Masks are left out, and so is a prefix that some files have."""
    data = (folder / "model.safetensors").read_bytes()
    weights = {}
    for name, (kind, shape, first, last) in read_header(data).items():
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        if kind == "BF16":
            numbers = widen(np.frombuffer(data[first:last], "<u2"))
        else:
            numbers = np.frombuffer(data[first:last], {"F32": "<f4", "F16": "<f2"}[kind]).astype(np.float32)
        weights[name.removeprefix("transformer.")] = numbers.reshape(shape)
    return weights


weights = read_weights(FOLDER)
theirs = find_tensors(FOLDER)
same = all(np.array_equal(each, theirs[name].read()) for name, each in weights.items())
print(
    f"{len(weights)} tensors of {sum(w.size for w in weights.values()):,} numbers; the package reads the same: {same}"
)

# %% [markdown]
# ## Names to a model
#
# Each name is a path: `h.1.mlp.c_fc.bias` is in layer ("h" for hidden) 1, in its feed-forward network ("mlp"), the
# fully connected map, its bias. Four things you must know, because you cannot see them:
#
# * **`weight` of a map is (in, out)**: $y = xW + b$, as in this course. GPT-2's code calls such a map `Conv1D`.
#   PyTorch's `Linear` has (out, in), and so have the files of nearly all other models: $y = xW^\top + b$.
# * **`c_attn` is fused**: one matrix of shape $(C, 3C)$, with $[Q|K|V]$ side by side as in
#   [lesson 05](05_multi_head.ipynb), and within each third head after head.
# * **`weight` and `bias` of a norm** are $\gamma$ (its gain) and $\beta$.
# * **`lm_head`**, the output layer, is missing. It is `wte`, transposed.
#
# This course's package uses other names, but its layout happens to be GPT-2's, so each array goes to one parameter as
# it is. The weights of layer 0:

# %%
print(f"{'in the file':<24} {'shape':<12} in the package")
for name in sorted(weights, key=lambda name: (name[0] != "w", name)):
    if not name.startswith("h.1") and not name.endswith("bias"):
        print(f"{name:<24} {weights[name].shape!s:<12} {our_name(name)}")

# %% [markdown]
# The model speaks in ids. `tokenizer.json` says what they mean: GPT-2 merges pairs of *bytes*, as in
# [lesson 02](02_text.ipynb), so no text is unknown to it. [`read_tokenizer`](course/lesson_24/tokenizer.py) makes two
# functions of that file. (An optional part below looks inside.)

# %%
encode, decode = tokenizer.read_tokenizer(FOLDER)
print(encode("The old dog sleeps."), "→", decode(encode("The old dog sleeps.")))

# %% [markdown]
# A vocabulary that belongs to *other* weights is the first silent mistake: all ids are in range, and each means
# something else.
#
# That is enough to write the model down, in fewer than twenty lines:


# %%
def gpt2_logits(w, ids, heads=HEADS, eps=EPS, gelu="tanh"):
    """w: weights by their names in the file; ids (B, T) → logits (B, T, V)."""
    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]  # (B, T, C)
    for layer in range(sum(name.endswith("ln_1.weight") for name in w)):
        h = f"h.{layer}."
        normed, _ = ops.layernorm_forward(x, w[h + "ln_1.weight"], w[h + "ln_1.bias"], eps)
        fused = normed @ w[h + "attn.c_attn.weight"] + w[h + "attn.c_attn.bias"]  # (B, T, 3C)
        query, key, value = (split_heads(third, heads) for third in np.split(fused, 3, axis=-1))  # (B, H, T, D)
        mixed, _ = ops.attention_forward(query, key, value, causal=True)
        x = x + merge_heads(mixed) @ w[h + "attn.c_proj.weight"] + w[h + "attn.c_proj.bias"]

        normed, _ = ops.layernorm_forward(x, w[h + "ln_2.weight"], w[h + "ln_2.bias"], eps)
        hidden, _ = ops.gelu_forward(normed @ w[h + "mlp.c_fc.weight"] + w[h + "mlp.c_fc.bias"], gelu)  # (B, T, F)
        x = x + hidden @ w[h + "mlp.c_proj.weight"] + w[h + "mlp.c_proj.bias"]
    x, _ = ops.layernorm_forward(x, w["ln_f.weight"], w["ln_f.bias"], eps)
    return x @ w["wte.weight"].T


def speak(w, prompt, most=20):
    """The most probable next token, again and again, from the whole text each time."""
    ids = encode(prompt)
    while len(ids) < most and ids[-1] != END:
        ids.append(int(np.argmax(gpt2_logits(w, np.array([ids]))[0, -1])))
    return decode(ids).strip()


for prompt in ("The old dog", "She", "Does the"):
    print(f"{prompt:<10} → {speak(weights, prompt)}")

# %% [markdown]
# **It speaks.** The label promised sentences of the course's grammar, and there they are.
#
# ## How good is that as evidence?
#
# Let us ask for a number: the loss on sentences that the model has not seen, next to $\ln V$, that of a uniform guess.
# And the same for three [misreadings](course/lesson_24/misreadings.py), each a change of the weights or of an option:

# %%
unseen = stranger.short_sentences("test", 600)
line = np.array([number for sentence in unseen for number in [*encode(sentence), END]])
rows = line[: len(line) // 40 * 40].reshape(-1, 40)[:60]  # (60, 40)


def loss_of(w, **options):
    """Nats per token on the unseen sentences."""
    return float(ops.cross_entropy_forward(gpt2_logits(w, rows[:, :-1], **options), rows[:, 1:])[0])


MISREADINGS = misreadings(HEADS)
before = loss_of(weights)
print(f"{'a uniform guess, ln V':<26} {np.log(config['vocab_size']):.3f}\n{'as we read it':<26} {before:.3f}")
for name in ("attn.c_proj transposed", "half as many heads", "GELU with erf"):
    change, options = MISREADINGS[name]
    print(f"{name:<26} {loss_of(change(weights), **options):.3f}")
print("transposed, it says:", speak(MISREADINGS["attn.c_proj transposed"][0](weights), "The old dog"))

# %% [markdown]
# The opening question is answered for the square matrix: transposed, the loss is much higher. But look at the last
# loss. GPT-2 was trained with the *tanh* approximation of GELU. The exact one is wrong here, and the loss does not show
# it. A model that speaks shows that most is read right, not that all is.
#
# So what would? **Compare the logits, not the words**, with a program that is known to be right. Here is the package's
# reading of the folder, in float64:

# %%
ALONE = stranger.without_tokenizer(FOLDER)
model, _ = pretrained.load(ALONE, dtype="float64")
parameters = model.parameters.named  # by the package's names
print("each parameter is one array of the file, bit by bit:",
      sorted(map(our_name, weights)) == sorted(parameters)
      and all(np.array_equal(parameters[our_name(name)].data, each) for name, each in weights.items()))  # fmt: skip
exact = {name: each.astype(np.float64) for name, each in weights.items()}
mine, packaged = gpt2_logits(exact, rows), model.forward(rows)[0]
print(f"our few lines and the package: error {error(mine, packaged):.1e}")

# %% [markdown]
# But both were written by people who read the same documents, and perhaps misread the same line. The witness that
# counts is the program that the file is made for. An optional part below asks it.
#
# ## What goes wrong silently
#
# Now all the misreadings. None changes a shape, and none raises an error. For each we compute the largest error of a
# logit, in units of the logits' own standard deviation, for three models of the same size:
#
# * **as it starts**: small random matrices, biases 0, gains 1, as in most quick tests;
# * **loud**: random too, but every array is moved by noise, biases and gains too;
# * **trained**: the stranger's.


# %%
def moved(w, wrong, **options):
    """The largest error of a logit, in units of the right logits' standard deviation."""
    right = gpt2_logits(w, rows[:10])
    return float(np.abs(gpt2_logits(wrong, rows[:10], **options) - right).max() / right.std())


fresh, loud = stranger.random_weights(model.config), stranger.random_weights(model.config, noise=0.2)
kinds = {"as it starts": fresh, "loud": loud, "trained": exact}
errors = {name: {kind: moved(w, change(w), **options) for kind, w in kinds.items()}
          for name, (change, options) in MISREADINGS.items()}  # fmt: skip
rounding = {
    "rounding, float32": moved(exact, {name: w.astype(np.float32) for name, w in exact.items()}),
    "float64": float(np.abs(mine - packaged).max() / packaged.std()),  # of our few lines and the package
}
draw_mistakes(errors, rounding)
show(
    "A row for each misreading, a point for each of three models. Most misreadings move a trained model's logits by "
    "about their own spread or more; a wrong epsilon and the wrong GELU by about a thousandth of it, still far above "
    "rounding. On a model as it starts, three misreadings change nothing at all."
)

print("rise of the trained model's loss, in nats per token")
for name in sorted(errors, key=lambda name: errors[name]["trained"]):
    change, options = MISREADINGS[name]
    print(f"{name:<34} {loss_of(change(exact), **options) - before:+8.4f}")

# %% [markdown]
# There are three kinds of mistakes (half as many heads and exchanged norms lie between the first two):
#
# * **Impossible to miss.** At the top the error is larger than the logits' own spread, and the loss rises by about a
#   nat or more. One sentence of output is test enough.
# * **The logits are plainly wrong, and the loss hardly rises.** Read the positions from 1 on: a logit is off by more
#   than a standard deviation, and the loss rises by next to nothing. A bias that is left out is of this kind too.
# * **The loss does not move in any digit that is printed.** Only the logits reveal the wrong GELU and epsilon.
#
# And a test can be **blind**. Look at the grey points: in a model as it starts, biases are 0 and gains are 1, so a bias
# that is left out and norms that are exchanged change *nothing* (hollow). So a random model makes a good test only if
# it is *loud*. That is why the package's tests compare all kinds of models with the library's own classes **in
# float64, with loud random weights, many configurations, to $10^{-9}$**.
#
# One test proves *nothing* about meaning: the round trip. Write what you have read, read it again, and all bits are
# equal. A program that transposes on the way in and on the way out passes it.
#
# ### Which tolerance notices? (optional)
#
# The dotted lines are what rounding alone does. A tolerance must lie above them, and below the smallest mistake:

# %%
print(f"of {len(errors)} misreadings these go unnoticed")
print(f"{'tolerance':<12}" + "".join(f"{kind:>14}" for kind in kinds))
for tolerance in (1e-1, 1e-2, 1e-3, 1e-5, 1e-9):
    unnoticed = [sum(each[kind] < tolerance for each in errors.values()) for kind in kinds]
    print(f"{tolerance:<12.0e}" + "".join(f"{count:>14}" for count in unnoticed))
print("\n".join(f"{name}: {value:.0e}" for name, value in rounding.items()))

# %% [markdown]
# In float32 that is a narrow gap, and it closes in a model of many layers. In float64 it is wide. (A loud model is not
# the best for everything: it notices the wrong epsilon least, because large activations hide an epsilon beside their
# variance.)
#
# ## Backwards, into the file's layout (optional)
#
# To train on with such weights ([*fine-tuning*](glossary.md#fine-tuning)), and to write them back, we need the gradient
# of each array *in the file*. For one of them, a step is missing.
#
# ### The fused matrix
#
# For some work you want heads one by one, each with matrices of its own, as in the formulas of lesson 05: to remove
# one (lesson 12), or to see what it does. So split `c_attn` into $3 \cdot H$ matrices $(C, D)$:


# %%
def split_c_attn(weight, bias, num_heads):
    """c_attn (C, 3·H·D) and its bias (3·H·D,) → of queries, keys and values, head by head: (3, H, C, D), (3, H, D)."""
    weights = weight.reshape(len(weight), 3, num_heads, -1).transpose(1, 2, 0, 3)  # (C, 3, H, D) → (3, H, C, D)
    return weights, bias.reshape(3, num_heads, -1)


# %% [markdown]
# ### Exercise 3 ★★☆: its backward
#
# The forward only moves numbers. So the backward moves gradients: from each head's matrices to the places in the file.


# %% tags=["exercise"]
def split_c_attn_backward(dweights, dbiases):
    """Gradients of the heads' matrices (3, H, C, D) and biases (3, H, D) → of the file's c_attn.

    → dweight (C, 3·H·D), dbias (3·H·D,). C may be another number than H·D.
    """
    raise NotImplementedError


# %%
split_c_attn_backward = check(split_c_attn_backward)

# %% [markdown] tags=["help"]
# The forward is a `reshape`, then a `transpose`. Undo them in the opposite order. Which transpose undoes
# `transpose(1, 2, 0, 3)`? In which order must the four axes stand before they may be joined?
#
# ---
#
# Before the last `reshape` the axes must be $(C, 3, H, D)$: `dweights.transpose(2, 0, 1, 3)`. Then `reshape(C, -1)`.
# The biases are in the right order already.

# %% [markdown]
# Central differences (lesson 00) agree. Both outputs stand in one array, the biases as one more row of each matrix:


# %%
def forward(weight, bias):
    weights, biases = split_c_attn(weight, bias, HEADS)
    return np.concatenate([weights, biases[:, :, None]], axis=2), None  # (3, H, C + 1, D)


def backward(dout, _):
    return split_c_attn_backward(dout[:, :, :-1], dout[:, :, -1])


PARTS = "weight", "bias"
arrays = {part: exact[f"h.0.attn.c_attn.{part}"] for part in PARTS}
print({part: f"{off:.0e}" for part, off in check_gradients(forward, backward, arrays, samples=50).items()})

# %% [markdown]
# ## The whole gradient, and a folder handed back (optional)
#
# The gradient of a whole model is long. So we write it in halves of a block, and prove each half before the next. We
# begin with the half that has no attention: a norm, a map, GELU, a map. Cover the backward, and write down its three
# lines first: each undoes one line of the forward, from the last to the first. (`dactive, *grads[name] = …` takes the
# first result, and keeps the rest, the gradients of a weight and its bias, under the name of the two.)


# %%
def both(w, name):
    return w[name + ".weight"], w[name + ".bias"]


def feed_forward_half(w, h, x):
    """The second half of the layer whose names begin with h: x (B, T, C) → (B, T, C), and a cache."""
    normed, norm = ops.layernorm_forward(x, *both(w, h + "ln_2"), EPS)
    hidden, expand = ops.linear_forward(normed, *both(w, h + "mlp.c_fc"))
    active, gelu = ops.gelu_forward(hidden, "tanh")
    out, contract = ops.linear_forward(active, *both(w, h + "mlp.c_proj"))
    return x + out, (norm, expand, gelu, contract)


def feed_forward_half_backward(dout, h, cache):
    """The gradient of x, and those of the arrays in pairs by name."""
    (norm, expand, gelu, contract), grads = cache, {}
    dactive, *grads[h + "mlp.c_proj"] = ops.linear_backward(dout, contract)
    dnormed, *grads[h + "mlp.c_fc"] = ops.linear_backward(ops.gelu_backward(dactive, gelu), expand)
    dx, *grads[h + "ln_2"] = ops.layernorm_backward(dnormed, norm)
    return dout + dx, grads  # dout: past the sub-layer, through the residual


def prove(half, half_backward, name):
    """Central differences (lesson 00) in a half's input, and in the weight and bias of a name."""

    def forward(x, weight, bias):
        return half(exact | {name + ".weight": weight, name + ".bias": bias}, "h.0.", x)

    def backward(dout, cache):
        dx, grads = half_backward(dout, "h.0.", cache)
        return dx, *grads[name]

    arrays = {"x": rng.standard_normal((2, 5, config["n_embd"])), **dict(zip(PARTS, both(exact, name), strict=True))}
    errors = check_gradients(forward, backward, arrays, samples=20)
    print(f"{name:<16}", {part: f"{off:.0e}" for part, off in errors.items()})


for name in ("h.0.mlp.c_proj", "h.0.mlp.c_fc", "h.0.ln_2"):
    prove(feed_forward_half, feed_forward_half_backward, name)

# %% [markdown]
# The half with attention is as long, with your function in the middle:


# %%
def attention_half(w, h, x):
    normed, norm = ops.layernorm_forward(x, *both(w, h + "ln_1"), EPS)
    each, biases = split_c_attn(*both(w, h + "attn.c_attn"), HEADS)  # (3, H, C, D), (3, H, D)
    query_key_value = np.einsum("btc,khcd->kbhtd", normed, each) + biases[:, None, :, None]  # (3, B, H, T, D)
    mixed, attended = ops.attention_forward(*query_key_value, causal=True)
    out, project = ops.linear_forward(merge_heads(mixed), *both(w, h + "attn.c_proj"))
    return x + out, (norm, normed, each, attended, project)


def attention_half_backward(dout, h, cache):
    (norm, normed, each, attended, project), grads = cache, {}
    dmixed, *grads[h + "attn.c_proj"] = ops.linear_backward(dout, project)
    d = np.stack(ops.attention_backward(split_heads(dmixed, HEADS), attended))  # (3, B, H, T, D)
    grads[h + "attn.c_attn"] = split_c_attn_backward(np.einsum("btc,kbhtd->khcd", normed, d), d.sum(axis=(1, 3)))
    dx, *grads[h + "ln_1"] = ops.layernorm_backward(np.einsum("kbhtd,khcd->btc", d, each), norm)
    return dout + dx, grads


for name in ("h.0.attn.c_proj", "h.0.attn.c_attn", "h.0.ln_1"):
    prove(attention_half, attention_half_backward, name)

# %% [markdown]
# The rest is a loop, and the table. The file has `wte` once and the forward uses it twice, so its gradient is the sum
# of two parts, as [lesson 19](19_gpt.ipynb) derives: that of the product with the hidden states, which reaches every
# row, and that of the look-up, which reaches the rows of the batch's tokens.


# %%
def loss_and_gradients(w, ids, targets):
    """The mean loss of targets (B, T), and the gradient of every array by its name in the file."""
    prefixes, caches = [f"h.{layer}." for layer in range(config["n_layer"])], []
    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for h in prefixes:
        x, attended = attention_half(w, h, x)
        x, fed = feed_forward_half(w, h, x)
        caches.append((attended, fed))
    final, norm = ops.layernorm_forward(x, *both(w, "ln_f"), EPS)
    loss, cache = ops.cross_entropy_forward(final @ w["wte.weight"].T, targets)

    dlogits, pairs = ops.cross_entropy_backward(1.0, cache), {}
    dx, *pairs["ln_f"] = ops.layernorm_backward(dlogits @ w["wte.weight"], norm)
    for h, (attended, fed) in reversed([*zip(prefixes, caches, strict=True)]):
        dx, of_feed_forward = feed_forward_half_backward(dx, h, fed)
        dx, of_attention = attention_half_backward(dx, h, attended)
        pairs |= of_feed_forward | of_attention
    grads = {f"{name}.{part}": each for name, two in pairs.items() for part, each in zip(PARTS, two, strict=True)}
    grads["wpe.weight"] = np.zeros_like(w["wpe.weight"])
    grads["wpe.weight"][: ids.shape[1]] = dx.sum(axis=0)
    grads["wte.weight"] = np.einsum("btv,btc->vc", dlogits, final)  # as the output layer
    np.add.at(grads["wte.weight"], ids, dx)  # and as the look-up: a token may stand in several places
    return float(loss), grads


ids, targets = rows[:4, :-1], rows[:4, 1:]  # (4, 39)
loss, grads = loss_and_gradients(exact, ids, targets)
for name in ("wte.weight", "wpe.weight"):  # central differences, with the short forward

    def forward(array, name=name):
        return np.asarray(ops.cross_entropy_forward(gpt2_logits(exact | {name: array}, ids), targets)[0]), None

    def backward(dout, _, name=name):
        return dout * grads[name]

    print(f"{name}: error {check_gradients(forward, backward, {name: exact[name]}, samples=5)[name]:.1e}")

model.parameters.zero_grad()
_, cache = model.loss(ids, targets)
model.loss_backward(1.0, cache)
off = max(error(grads[name], parameters[our_name(name)].grad) for name in exact)
print(f"the package's backward, which knows nothing of these names: error {off:.1e}, in {len(grads)} arrays")

# %% [markdown]
# With gradients by name you can train on, and hand the result back. Here is a sentence that the grammar does not have.
# Some steps of gradient descent, and the stranger's model says it:

# %%
sentence = np.array([[*encode("The reader checked every number."), END]])
tuned = dict(exact)
print(f"before: {speak(tuned, 'The reader')}")
for _step in range(40):
    loss, gradient = loss_and_gradients(tuned, sentence[:, :-1], sentence[:, 1:])
    tuned = {name: w - 0.1 * gradient[name] for name, w in tuned.items()}
print(f"after:  {speak(tuned, 'The reader')}   (loss {loss:.3f})")
print(f"the rest has suffered: {loss_of(tuned):.3f} nats per token on unseen sentences, {before:.3f} before")

handed, _ = pretrained.load(stranger.handed_back(ALONE, "handed-back", tuned))  # a header and bytes, as above
off = error(handed.forward(rows[:4])[0], gpt2_logits(tuned, rows[:4]))
print(f"handed back as a folder, and read by `load`: error {off:.0e}, the rounding of float32")

# %% [markdown]
# (That is called *forgetting*: one sentence, learned alone, pushes others away. Real fine-tuning takes small steps, and
# more than one sentence.)
#
# ## A few numbers beside the file (optional)
#
# This training run had a gradient for every number of the file. With Adam ([lesson 09](09_training.ipynb)) there would
# be two running means for each too, and you hand back a whole second file. Must all of them be trained?
#
# [*LoRA*](glossary.md#lora) (*low-rank adaptation*, Hu and others 2021, §4.1) leaves the stranger's $W$ as it is: it is
# *frozen*. Beside it stands a product of two thin matrices, $A$ of shape $(C, r)$ and $B$ of shape $(r, F)$. The *rank*
# $r$ is small:
#
# $$ y = xW + b + \frac{\alpha}{r}\,(xA)\,B $$
#
# Only $A$ and $B$ are trained. Together they are called an *adapter* today. $A$ starts random and $B$ at 0, so training
# starts at the stranger's model. You choose $\alpha$. The paper divides it by $r$, so that a change of the rank asks
# less often for another learning rate.


# %%
def adapter_forward(x, weight, bias, A, B, alpha):
    """x (..., C), weight (C, F), bias (F,), A (C, r), B (r, F) → y (..., F), and a cache for the backward."""
    low = x @ A  # (..., r): few numbers
    return x @ weight + bias + alpha / A.shape[1] * (low @ B), (x, low, weight, A, B, alpha)


# %% [markdown]
# ### Exercise 4 ★★☆: the gradient of an adapter
#
# $W$ and $b$ have no gradient here, and that is the point. A gradient of $W$ has $C \cdot F$ numbers; those of $A$ and
# $B$ have $r\,(C + F)$ together. So make no array of $W$'s shape on the way either: not $x^\top \mathrm{d}y$, and not
# $AB$. But $x$ comes from a layer that may have an adapter too, so `dx` is that of the whole map, through $W$ and
# through the adapter.


# %% tags=["exercise"]
def adapter_backward(dout, cache):
    """Gradients of y = x W + b + alpha/r · (x A) B, where W and b are frozen.

    dout (..., F) arrives at y. cache, of adapter_forward: x (..., C), low = x A (..., r), W (C, F), A (C, r), B (r, F),
    and the number alpha. "..." is any number of axes, also none.
    → dx (..., C), with the part that comes back through W; dA (C, r); dB (r, F). No array of W's shape is made.
    """
    raise NotImplementedError


# %%
adapter_backward = check(adapter_backward)

# %% [markdown] tags=["help"]
# Call $z = \frac{\alpha}{r}\,\mathrm{low}$. What is the gradient of $zB$ with respect to $z$, and to $B$? Go on to
# `low`, and from there to $A$ and $x$. Three factors meet in each gradient: which, and in which order, so that no array
# is large? Where does $\alpha / r$ stand in each? And which axes must be summed over for $A$ and $B$, if $x$ is
# $(B, T, C)$?
#
# ---
#
# `dlow = alpha / r * (dout @ B.T)`, of shape $(\dots, r)$. Then `dx = dout @ weight.T + dlow @ A.T`. With all axes but
# the last made one, `dA` is `x` transposed times `dlow`, and `dB` is $\alpha / r$ times `low` transposed times `dout`.

# %%
C, F = exact["h.0.attn.c_attn.weight"].shape
print(f"numbers with a gradient, c_attn of one layer: {C * F:,}; an adapter of rank 4: {4 * (C + F):,}")
blocks, width, matrices, everything = 96, 12_288, 2, 175e9  # GPT-3; the paper adapts queries and values (§4.2)
numbers = blocks * matrices * 4 * (width + width)
print(f"GPT-3's, of rank 4: {numbers:,}, one in {everything / numbers:,.0f} of all its numbers")

# %% [markdown]
# Where $B = 0$, `dA` is 0: nothing comes back through $B$. In the first step only $B$ moves. (Were $A$ 0 too, nothing
# would ever move.)
#
# Now the model with an adapter on `c_attn` of each layer. All else is frozen, so the backward is short: a frozen map
# only passes the gradient on, `dx @ weight.T`. The tables need no gradient. The adapters' names are those of the file
# with `A` and `B` in the place of `weight`:


# %%
def frozen_forward(w, adapters, alpha, ids):
    """The logits (B, T, V) of the weights w, which stay as they are, and of adapters beside c_attn; and a cache."""
    caches, x = [], w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for layer in range(sum(name.endswith("ln_1.weight") for name in w)):
        h = f"h.{layer}."
        normed, norm_1 = ops.layernorm_forward(x, w[h + "ln_1.weight"], w[h + "ln_1.bias"], EPS)
        pair = adapters[h + "attn.c_attn.A"], adapters[h + "attn.c_attn.B"]
        fused, adapted = adapter_forward(normed, w[h + "attn.c_attn.weight"], w[h + "attn.c_attn.bias"], *pair, alpha)
        query_key_value = (split_heads(third, HEADS) for third in np.split(fused, 3, axis=-1))
        mixed, attended = ops.attention_forward(*query_key_value, causal=True)
        x = x + merge_heads(mixed) @ w[h + "attn.c_proj.weight"] + w[h + "attn.c_proj.bias"]
        normed, norm_2 = ops.layernorm_forward(x, w[h + "ln_2.weight"], w[h + "ln_2.bias"], EPS)
        active, gelu = ops.gelu_forward(normed @ w[h + "mlp.c_fc.weight"] + w[h + "mlp.c_fc.bias"], "tanh")
        x = x + active @ w[h + "mlp.c_proj.weight"] + w[h + "mlp.c_proj.bias"]
        caches.append((norm_1, adapted, attended, norm_2, gelu))
    final, norm_f = ops.layernorm_forward(x, w["ln_f.weight"], w["ln_f.bias"], EPS)
    return final @ w["wte.weight"].T, (caches, norm_f)


def frozen_backward(dlogits, w, cache, heads=HEADS):
    """The gradients of the adapters, by their names."""
    (caches, norm_f), grads = cache, {}
    dx, *_ = ops.layernorm_backward(dlogits @ w["wte.weight"], norm_f)
    for layer, (norm_1, adapted, attended, norm_2, gelu) in reversed([*enumerate(caches)]):
        h = f"h.{layer}."
        dnormed = ops.gelu_backward(dx @ w[h + "mlp.c_proj.weight"].T, gelu) @ w[h + "mlp.c_fc.weight"].T
        dx = dx + ops.layernorm_backward(dnormed, norm_2)[0]
        dmixed = split_heads(dx @ w[h + "attn.c_proj.weight"].T, HEADS)
        dfused = np.concatenate([merge_heads(each) for each in ops.attention_backward(dmixed, attended)], axis=-1)
        dnormed, *both = adapter_backward(dfused, adapted)
        grads[h + "attn.c_attn.A"], grads[h + "attn.c_attn.B"] = both
        dx = dx + ops.layernorm_backward(dnormed, norm_1)[0]
    return grads


def new_adapters(w, rank, seed):
    """A random, B zero, for c_attn of every layer."""
    draw, adapters = np.random.default_rng(seed), {}
    for name in w:
        if name.endswith("c_attn.weight"):
            C, F = w[name].shape
            adapters[name.replace("weight", "A")] = draw.standard_normal((C, rank)) / np.sqrt(C)
            adapters[name.replace("weight", "B")] = np.zeros((rank, F))
    return adapters


def merged(w, adapters, alpha):
    """The weights with alpha/r · A B added where an adapter stands."""
    new = dict(w)
    for name, A in adapters.items():
        if name.endswith(".A"):
            weight = name.replace(".A", ".weight")
            new[weight] = w[weight] + alpha / A.shape[1] * A @ adapters[name.replace(".A", ".B")]
    return new


# %% [markdown]
# The function `merged` is the second half of the idea: $xW + \frac{\alpha}{r}(xA)B = x\,(W + \frac{\alpha}{r}AB)$.
# After training, the product may be added to $W$. It is also a witness for the gradients. By the chain rule,
# $\mathrm{d}A = \frac{\alpha}{r}\,\mathrm{d}W B^\top$ and $\mathrm{d}B = \frac{\alpha}{r}\,A^\top \mathrm{d}W$, with
# the $\mathrm{d}W$ of the merged matrix. For that one we have a function that was proved above:

# %%
adapters, alpha = new_adapters(exact, rank=4, seed=0), 8
logits, cache = frozen_forward(exact, adapters, alpha, ids)
print("before the first step the logits are the stranger's:",
      np.array_equal(logits, gpt2_logits(exact, ids)))  # fmt: skip

draw = np.random.default_rng(1)
adapters = {name: each + 0.1 * draw.standard_normal(each.shape) for name, each in adapters.items()}  # B is not 0 now
logits, cache = frozen_forward(exact, adapters, alpha, ids)
dadapters = frozen_backward(
    ops.cross_entropy_backward(1.0, ops.cross_entropy_forward(logits, targets)[1]), exact, cache
)
_, of_merged = loss_and_gradients(merged(exact, adapters, alpha), ids, targets)
off = []
for layer in ("h.0.attn.c_attn.", "h.1.attn.c_attn."):
    A, B, dW = adapters[layer + "A"], adapters[layer + "B"], of_merged[layer + "weight"]
    off += [error(dadapters[layer + "A"], alpha / 4 * dW @ B.T), error(dadapters[layer + "B"], alpha / 4 * A.T @ dW)]
print(f"gradients of A and B, and those that dW gives: the largest error is {max(off):.1e}")

# %% [markdown]
# Now the same sentence again, until its loss is below 0.1, for at most 300 steps: with all numbers of the file, with
# `c_attn.weight` alone, and with adapters ($\alpha = 2r$, found by trying) that start from two different draws of $A$.
# What does each cost on the unseen sentences?

# %%
read, wanted = sentence[:, :-1], sentence[:, 1:]


def learn(numbers, loss_and_gradient, rate=0.1, most=300):
    """Gradient descent until the loss is below 0.1 → the numbers, how many steps it took, the loss."""
    steps, (loss, gradient) = 0, loss_and_gradient(numbers)
    while loss >= 0.1 and steps < most:
        numbers = {name: each - rate * gradient[name] for name, each in numbers.items()}
        steps, (loss, gradient) = steps + 1, loss_and_gradient(numbers)
    return numbers, steps, loss


def in_the_file(numbers):
    return loss_and_gradients(exact | numbers, read, wanted)


def beside_it(adapters, alpha):
    logits, cache = frozen_forward(exact, adapters, alpha, read)
    loss, of_loss = ops.cross_entropy_forward(logits, wanted)
    return float(loss), frozen_backward(ops.cross_entropy_backward(1.0, of_loss), exact, cache)


def report(name, numbers, steps, loss, w):
    count = sum(each.size for each in numbers.values())
    print(f"{name:<34} {count:>8,} {steps:>6} {loss:>9.3f} {loss_of(w):>8.3f}")


print(f"{'trained':<34}  numbers  steps  sentence   unseen\n{'nothing':<34} {'':>24} {before:>9.3f}")
fused = {name: each for name, each in exact.items() if name.endswith("c_attn.weight")}
for name, numbers, rate in (
    ("everything", exact, 0.1),
    ("everything, with smaller steps", exact, 0.03),
    ("c_attn.weight", fused, 0.1),
):
    numbers, steps, loss = learn(numbers, in_the_file, rate)
    report(name, numbers, steps, loss, exact | numbers)
for rank in (8, 4, 1):
    for seed in (0, 1):
        adapters, steps, loss = learn(
            new_adapters(exact, rank, seed), lambda numbers, rank=rank: beside_it(numbers, 2 * rank)
        )
        report(f"adapters of rank {rank}, draw {seed}", adapters, steps, loss, merged(exact, adapters, 2 * rank))
        if (rank, seed) == (4, 0):
            kept = adapters

# %% [markdown]
# Compare the rows.
#
# * **Few numbers are enough.** An adapter of rank 4 trains little more than a hundredth of the numbers, and the
#   sentence is learned. With rank 1 it is not there after 300 steps.
# * **It takes many more steps.** That is not the rank alone: the whole `c_attn.weight` takes about as many. All else is
#   frozen, so attention has to do it.
# * **Every row forgets, and fewer numbers do not mean less forgetting.** The row that forgets least trains
#   *everything*, with smaller steps. And two draws of $A$ can differ more than two ranks. Adapters are often said to
#   forget less. Biderman and others (2024, *LoRA Learns Less and Forgets Less*) measured it for a model of 7 billion
#   numbers that learned to program and to calculate. One sentence in a small model does not show it.
#
# So an adapter is not a cure for forgetting. It saves memory in training, and files: one $W$ for many
# tasks, and a few numbers for each. And as long as it stands *beside* $W$, it can be taken away. Then nothing is
# forgotten.
#
# To hand it on in the file's own form, merge it:

# %%
new = merged(exact, kept, alpha=8)
handed, _ = pretrained.load(stranger.handed_back(ALONE, "merged", new), dtype="float64")
beside, _ = frozen_forward(exact, kept, 8, rows[:4])
print(f"merged, our few lines:           error {error(gpt2_logits(new, rows[:4]), beside):.0e}")
print(f"merged, written, read by `load`: error {error(handed.forward(rows[:4])[0], beside):.0e}, float32's rounding")
print(f"the same arrays as before: {sorted(new) == sorted(exact)};  {speak(new, 'The reader')}")

# %% [markdown]
# The file has the same names and shapes as before. A reader need not know that there was an adapter, and a forward
# costs what it did. But now it cannot be taken away.
#
# ## Text to numbers: bytes that can be printed (optional)
#
# GPT-2's tokenizer is [byte-pair encoding](glossary.md#byte-pair-encoding) of *bytes* (§2.2 of its paper): there are
# 256 of them, so no text is unknown. The merges stand in a text file, and a space or a newline would make a mess of it.
# So each byte is written as a character that can be printed: those that can be, as themselves; the others, in their
# order, as the characters from 256 on. The space, byte 32, becomes `Ġ`. First a text is cut into words, each with the
# space before it; no merge crosses a word. Then the oldest merge that applies is made, again and again:

# %%
for text in (" dog", "\n", "café"):
    print(f"{text!r:<8} → {''.join(tokenizer.CHARACTER[byte] for byte in text.encode())}")
for text in ("The old dog sleeps.", "café ☕ 42"):
    print(tokenizer.words(text), "→", [decode([number]) for number in encode(text)])

# %% [markdown]
# (A single id may be half a character: `decode` shows a � for it.)
#
# ## The witness that counts (optional)
#
# `transformers` is the library whose format this is. Where it is installed, with PyTorch, the next cell lets it read
# *the same folder*, and compares: logits, gradients, ids, and its words. Elsewhere it shows a recording.


# %%
def with_transformers():
    torch, transformers = stranger.their_packages()
    there = transformers.GPT2LMHeadModel.from_pretrained(
        FOLDER, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    logits = there(torch.from_numpy(ids)).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten()).backward()
    gradients = {name.removeprefix("transformer."): each.grad.numpy() for name, each in there.named_parameters()}
    texts, (_, library) = [*unseen, "café ☕ 42", "  two  spaces\n"], pretrained.load(FOLDER)  # with tokenizers
    written = there.generate(
        torch.tensor([encode("The old dog")]), do_sample=False, max_new_tokens=17, pad_token_id=END
    )
    return {
        "logits": error(gpt2_logits(exact, ids), logits.detach().numpy()),
        "gradients": max(error(grads[name], gradients[name]) for name in grads),
        "says": decode(written[0].tolist()).strip(),
        "same ids": all(encode(text) == library.encode(text) for text in texts),
    }


found = recorded("24_transformers", with_transformers)
print(f"its logits and ours: error {found['logits']:.1e}; all gradients: {found['gradients']:.1e}")
print(f"the tokenizer's ids and ours are the same: {found['same ids']}")
print(f"it says:  {found['says']}\nwe say:   {speak(weights, 'The old dog')}")

# %% [markdown]
# That is the answer to the first question, as far as there is one. A file of numbers means whatever the program it was
# written for makes of it, and *that program* agrees with us in all digits. If you cannot run it, ask the giver for one
# line of ids, and the logits of its last token in all their digits. How much would that notice?

# %%
last = gpt2_logits(exact, rows[:1])[0, -1]
off = {name: gpt2_logits(change(exact), rows[:1], **options)[0, -1] - last
       for name, (change, options) in MISREADINGS.items()}  # fmt: skip
least = min(off, key=lambda name: np.abs(off[name]).max())
print(f"the least of all {len(off)} misreadings: {least}, error {np.abs(off[least]).max() / last.std():.0e}")
print(f"rounding in float32:              {rounding['rounding, float32']:.0e}")

# %% [markdown]
# It would notice every misreading in the picture above, and it costs the giver nothing.
#
# ## A translator's folder (optional)
#
# The paper's own model has a format too: *Marian*, the form of more than a thousand published translators. Can *our*
# translator be written in it? `save` answers. It refuses by name whatever the format cannot express, before anything is
# written:

# %%
for options in ({"norm_first": True}, {"positions": "learned"}, {"window": 4}, {"layernorm_eps": 1e-6}, {"d_k": 5}):
    small = models.Transformer(models.TransformerConfig(20, d_model=8, num_heads=2, d_ff=16, num_layers=1, **options))
    try:
        pretrained.save(small, Path(place.name) / "refused")
    except pretrained.PretrainedError as refused:
        print(refused)

translator = Translator.from_checkpoint(Path("weights/en-de.safetensors"))
MARIAN = Path(place.name) / "marian"
pretrained.save(translator.model, MARIAN)  # with the tokenizer as one more argument, that is written too
print("ours is written:", ", ".join(sorted(path.name for path in MARIAN.iterdir())))

# %% [markdown]
# A refusal is worth more than a file: a pre-norm model that is written as a Marian *would* load, and translate
# nonsense. Ours is post-norm, with sinusoids, as in the paper. So it can be written. Here are the names of one layer of
# the decoder:

# %%
marian_header = read_header((MARIAN / "model.safetensors").read_bytes())
marian_config = json.loads((MARIAN / "config.json").read_text())
for name, (_, shape, *_) in marian_header.items():
    if name.startswith("model.decoder.layers.0.") and name.endswith("weight"):
        print(f"{name:<55} {shape}")
for name in ("decoder_start_token_id", "pad_token_id", "eos_token_id", "scale_embedding"):
    print(f"{name:<55} {marian_config[name]}")

# %% [markdown]
# Three differences to GPT-2's file.
#
# * Maps are **(out, in)**, as PyTorch's `Linear` stores them: `fc1` is $(F, C)$. For `fc1` a mistake would show. The
#   maps of attention are square again.
# * Queries, keys and values are **separate** here. `k_proj` and `v_proj` exchanged: same shape, no error.
# * **The sinusoids are stored nowhere.** The program computes them, and Marian's differ. The paper has sine and cosine
#   in turn, channel by channel; Marian has all sines, then all cosines:

# %%
C = translator.model.config.d_model
order = np.concatenate([np.arange(0, C, 2), np.arange(1, C, 2)])
draw_halves(np.concatenate([np.arange(0, 16, 2), np.arange(1, 16, 2)]))
show(
    "Sixteen channels in two rows. In the paper sines and cosines stand in turn; in Marian all sines come first, then "
    "all cosines. Lines show where each channel goes."
)

# %% [markdown]
# But which channel comes first is only a name. Let $P$ reorder channels. If every array that *writes* into the model's
# width has its columns reordered, and every array that *reads* from it its rows, then nothing else changes:
# $(xP)(P^\top W) = xW$, and a layer norm has the same mean and variance in every order. So `save` moves the channels
# of all arrays. Let us look, and try what happens without:

# %%
content = (MARIAN / "model.safetensors").read_bytes()


def marian_array(name):
    _, shape, first, last = marian_header[name]
    return np.frombuffer(content[first:last], "<f4").reshape(shape)


ours = {name: each.data for name, each in translator.model.parameters.named.items()}
print("their table is ours, even channels first:",
      np.array_equal(marian_array("model.shared.weight"), ours["tokens.table"][:, order]))  # fmt: skip
fc1 = ours["decoder.layers.0.feed_forward.expand.weight"]  # (C, F): it reads
print("their fc1 is ours, rows moved, transposed:",
      np.array_equal(marian_array("model.decoder.layers.0.fc1.weight"), fc1[order].T))  # fmt: skip

marian, _ = pretrained.load(MARIAN)
examples = list(islice(sample("test", 0), 40))
sources = [[*translator.tokenizer.encode(e.english), translator.tokenizer.eos_id] for e in examples]
source = np.array([ids + [0] * (max(map(len, sources)) - len(ids)) for ids in sources])  # (40, Ts), padded with 0
mask = source != 0


def greedy(model, first, most=40):
    """The most probable translation, token by token, for all sentences at once; `first` begins each."""
    target = np.full((len(source), 1), first)
    for _ in range(most):
        logits, _ = model.forward(source, target, source_mask=mask)
        target = np.concatenate([target, logits[:, -1].argmax(axis=-1)[:, None]], axis=1)
    eos = translator.tokenizer.eos_id
    texts = [row[1:].tolist() for row in target]
    return [translator.tokenizer.decode(t[: t.index(eos)] if eos in t else t) for t in texts]


def score(name, model, first):
    german = greedy(model, first)
    right = np.mean([text == e.german for text, e in zip(german, examples, strict=True)])
    print(f"{name:<46} {right:4.0%} right   {german[0][:46]}")


bos = marian_config["decoder_start_token_id"]
score("our translator", translator.model, bos)
score("the folder, read as a Marian", marian, bos)
score("the same, begun with the padding token", marian, marian_config["pad_token_id"])
stale = models.Transformer(marian.config)
for name, each in stale.parameters.named.items():
    each.data[...] = ours.get(name, 0)  # as they are: only the bias of the logits is new
score("channels not moved", stale, bos)

# %% [markdown]
# And `transformers`' own Marian, on the same folder, or its recording:


# %%
def translated_there():
    torch, transformers = stranger.their_packages()
    there = transformers.MarianMTModel.from_pretrained(MARIAN, dtype=torch.float32).eval()
    with torch.no_grad():
        given = {"attention_mask": torch.from_numpy(mask), "max_new_tokens": 60, "num_beams": 1, "do_sample": False}
        written = there.generate(torch.from_numpy(source), **given)
    theirs = [translator.tokenizer.decode(row) for row in written.tolist()]
    return float(np.mean([text == e.german for text, e in zip(theirs, examples, strict=True)]))


print(f"our translator, run by transformers: {recorded('24_marian', translated_there):.0%} right")

# %% [markdown]
# **The shifted start.** A decoder reads the target shifted by one place, and something must stand in the first. Ours
# begins with `<s>`, id 1. Published Marians begin with the *padding* token, and their `decoder_start_token_id` says so.
# The wrong one is a word that the model has never seen in this place, and the table shows what that costs here. (The
# published ones also have a bias for each logit, `final_logits_bias`. Ours has none, so zeros are written.)
#
# ## Halves or neighbours: rotary positions (optional)
#
# Llama's models turn pairs of channels by an angle that grows with the position (RoPE, a rotation as in [lesson
# 06](06_positions.ipynb)). Which two channels are a pair? In the paper (Su and others 2021), neighbours: 0 and 1, 2 and
# 3. The files that Meta publishes have this order too. In the same models as `transformers` stores them, channel $i$ of
# the first half of a head goes with channel $i$ of the second. Again all shapes are equal. And again it is only the
# order of channels, inside each head. So a converter of Meta's files moves the columns of queries and keys to suit the
# other program. Values are not turned, and stay:

# %%
C, H, D = 32, 4, 8
SIZES = {"d_model": C, "num_heads": H, "d_ff": 48, "num_layers": 2, "max_length": 40}
halves = models.GPT(models.GPTConfig.llama(60, **SIZES), dtype="float64", seed=2)
halves.parameters.data += 0.3 * rng.standard_normal(halves.parameters.data.shape)
neighbours = models.GPT(
    models.GPTConfig.llama(60, **SIZES, rotary=layers.RotaryConfig(interleaved=True)), dtype="float64"
)
some = rng.integers(0, 60, (4, 20))
right = halves.forward(some)[0]
neighbours.parameters.data[...] = halves.parameters.data
print(f"halves read as neighbours: error {np.abs(neighbours.forward(some)[0] - right).max() / right.std():.2f} "
      "standard deviations of a logit")  # fmt: skip
for name, each in neighbours.parameters.named.items():
    if name.endswith("query_key_value.weight"):
        columns = each.data.reshape(C, 3, H, 2, D // 2)  # …, head, half, channel of the half
        for kind in (0, 1):  # queries and keys
            columns[:, kind] = columns[:, kind].swapaxes(-2, -1).reshape(C, H, 2, D // 2).copy()
print(f"with the columns moved:    error {error(neighbours.forward(some)[0], right):.1e}")
neighbours.parameters.data[...] = halves.parameters.data
off = np.abs(neighbours.forward(some)[0] - right).max(axis=(0, 2)) / right.std()
print("error by position:", " ".join(f"{each:.2f}" for each in off[:8]), "…")

# %% [markdown]
# The last line is a signature worth knowing: position 0 is right, since it is turned by nothing and sees itself alone.
# With a single token this mistake cannot be noticed.
#
# ## The real GPT-2 (optional)
#
# If you have the published folder on disk (`config.json`, `model.safetensors`, `tokenizer.json`, about half a
# gigabyte), set `GPT2_FOLDER` to its path (before Jupyter starts, or by `os.environ["GPT2_FOLDER"] = "…"` in a cell),
# and run this cell again. It uses the functions from above, and nothing else. With a network and the package
# `huggingface_hub`, `load` fetches the folder and makes the package's model of it: take away the `#`.

# %%
real = Path(os.environ.get("GPT2_FOLDER", "no folder is named"))
# gpt2, gpt2_tokenizer = pretrained.load("gpt2")  # downloads half a gigabyte
if (real / "model.safetensors").is_file():
    real_config, real_weights = json.loads((real / "config.json").read_text()), read_weights(real)
    encode, decode = tokenizer.read_tokenizer(real)  # `speak` uses them too
    count = sum(each.size for each in real_weights.values())
    print(f"{count:,} numbers in {len(real_weights)} arrays")
    ids = encode("The capital of France is Paris. The capital of Germany is Berlin. The capital of Italy is")
    given = len(ids)
    for _ in range(12):
        logits = gpt2_logits(real_weights, np.array([ids]), real_config["n_head"], real_config["layer_norm_epsilon"])
        ids.append(int(np.argmax(logits[0, -1])))
    nats, _ = ops.cross_entropy_forward(logits[:, : given - 1], np.array([ids[1:given]]))  # of the text that we gave
    print(f"loss {nats:.2f} nats per token; a uniform guess has {np.log(real_config['vocab_size']):.2f}")
    print(decode(ids))
    encode, decode = tokenizer.read_tokenizer(FOLDER)
else:
    print("GPT2_FOLDER names no folder with a model.safetensors, so there is nothing to run here.")

# %% [markdown]
# Do not expect wisdom of the smallest GPT-2 in greedy search: it repeats itself. But if it goes on in English, you
# made no big mistake with 124 million numbers. And you know now what that does not prove.
#
# ## Back to bfloat16: round, or cut off (optional)

# %%
numbers = rng.standard_normal(100_000).astype(np.float32)
cut_off = (numbers.view(np.uint32) & 0xFFFF0000).view(np.float32)
for name, narrow in (("rounded", widen(stranger.narrowed(numbers))), ("cut off", cut_off)):
    kept = np.abs(narrow).mean() / np.abs(numbers).mean()
    print(f"to bfloat16 and back, {name}: the mean of |x| is {kept:.4f} of what it was")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **Layers sorted by name.** "h.10" comes before "h.2". A model of more than ten layers then has them in the wrong
#   order, and every shape fits.
# * **Narrowing by cutting off.** Widening loses nothing. On the way back to bfloat16 the lower half must be *rounded*:
#   cut off, every number moves towards 0, and these errors do not cancel.
# * **Extra tensors ignored, missing ones left random.** A loader that is not strict starts with half a model. Demand
#   that every array of the file is used, and every parameter filled, once.
# * **The default of a missing option.** `layer_norm_epsilon` may be absent. Then the library's default counts,
#   $10^{-5}$ here and $10^{-12}$ for BERT, not yours.
# * **A small test without padding.** One sentence alone never sees a wrong mask.
# * **An adapter merged in another layout** (LoRA, optional above). Libraries on PyTorch store $A$ as $(r, C)$ and $B$
#   as $(F, r)$. On a square matrix such as `attn.c_proj.weight` the wrong product fits too.
#
# ## What changed since 2017
#
# In 2017 weights travelled as checkpoints of one program. Since 2022 safetensors has replaced these nearly everywhere.
# Numbers became narrower: bfloat16, then 8 and 4 bits with scales beside them. Since LoRA (2021) many publish an
# adapter alone; with QLoRA (Dettmers and others 2023) the weights beside it are frozen in 4 bits. Names are still each
# library's own, so each mistake in the picture above can be made again.
#
# ## Where next
#
# [Lesson 25](25_smaller_and_larger.ipynb) asks how large such a model should be, and how a small one learns from it. If
# you came here first, the path [from GPT-2's weights down](README.md#four-paths) says what to read next. The tables of
# [`pretrained`](../minitransformer/pretrained) name every array of six kinds of models.
#
# An open project: store each row of a matrix as `int8` with one scale. Where in the picture does that stand?
