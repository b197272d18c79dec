# %% [markdown]
# # 24 · Real weights: read name by name, and made to speak
#
# **You will be able to** read a folder of somebody else's weights with NumPy alone: header, numbers, names and
# tokenizer; run the GPT-2 in it; send gradients back into its layout; train an adapter of few numbers in place of all;
# and say which mistake of reading changes what, and which test notices.
#
# | | |
# |---|---|
# | you know | tokens ([02](02_text.ipynb)), heads ([05](05_multi_head.ipynb)), the [whole model](08_model.ipynb) |
# | runs in | 60 s at most on 2 cores; no GPU, no network; PyTorch in two optional cells, or their recordings |
# | in the paper | Radford et al. 2019 (GPT-2), §2.2, §2.3; Hu et al. 2021 (LoRA), §4; Vaswani et al. 2017, §3.4, §3.5 |
# | in the package | [`pretrained.load` and `pretrained.save`](../minitransformer/pretrained) |
#
# Somebody gives you a folder and says: here is a language model. In it is a file of numbers. One of its arrays maps the
# output of attention back to the model's width. It is square. Does your program multiply it from the right as it is, or
# transposed? The file does not say. Try both: both have the right shape. Both give logits, and the softmax makes
# probabilities of them that sum to 1. No error is raised. **How do you know that you read it right?**

# %%
import json
import os
import re
import shutil
import tempfile
import warnings
from itertools import islice, pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from course import recorded, start
from course.lesson_24 import stranger
from course.lesson_24.pictures import draw_file, draw_halves, draw_mistakes
from minitransformer.decoding import Translator
from minitransformer.gradcheck import check_gradients, error
from minitransformer.grammar import sample
from minitransformer.layers import RotaryConfig
from minitransformer.layers.attention import merge_heads, split_heads
from minitransformer.models import GPT, GPTConfig, Transformer, TransformerConfig
from minitransformer.ops import (
    attention_backward,
    attention_forward,
    cross_entropy_backward,
    cross_entropy_forward,
    gelu_backward,
    gelu_forward,
    layernorm_backward,
    layernorm_forward,
    linear_backward,
    linear_forward,
)
from minitransformer.pretrained import PretrainedError, load, save
from minitransformer.pretrained.files import find_tensors

check = start("24")
threadpool_limits(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)
place = tempfile.TemporaryDirectory()
FOLDER = Path(place.name) / "from-a-stranger"
stranger.leave(FOLDER)  # some seconds, and no network; do not look yet how it is made

for path in sorted(FOLDER.iterdir()):
    print(f"{path.name:<24} {path.stat().st_size:>9,} bytes")
print("\n" + (FOLDER / "README.md").read_text())

# %% [markdown]
# That is an honest label. The *form* of the folder is the one in which OpenAI's GPT-2 is published, down to the names.
# (Only the numbers are narrower: those of the published one are float32.) The weights are few and ours, so nothing has
# to be downloaded. At the end, an optional cell runs the same functions
# on the real ones.
#
# What a model needs beside its weights is in `config.json`:

# %%
config = json.loads((FOLDER / "config.json").read_text())
for name in ("model_type", "n_layer", "n_embd", "n_positions", "vocab_size"):
    print(f"{name:<20} {config[name]}")
print()
for name in ("activation_function", "layer_norm_epsilon", "tie_word_embeddings", "n_head"):
    print(f"{name:<20} {config[name]}")

# %% [markdown]
# Keep the second half in mind: these four lines change no shape. A program that overlooks one can run without an error.
# `gelu_new` is an activation. **GELU** is a smooth ReLU: $x \cdot \Phi(x)$, where $\Phi(x)$ is the probability that a
# standard normal number is below $x$. Exactly, that needs the function erf. `gelu_new` is an approximation with tanh:
# $\frac{x}{2} \left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)$.
#
# ## The picture: a file, and a model
#
# A GPT-2 is the decoder of [lesson 08](08_model.ipynb) without a source: no cross-attention, the norm *before* each
# sub-layer, one more norm at the end, learned positions, and GELU in the place of ReLU. (Lesson 19 builds and trains
# one.) Above is the file, to scale. Below is the model, in the order in which it computes.

# %% tags=["picture"]
draw_file(find_tensors(FOLDER))
plt.show()

# %% [markdown]
# Names are sorted in the file, so its order is not the model's. The table of tokens, `wte`, stands there once and is
# used twice: to look tokens up, and transposed to make logits ([tied weights](glossary.md#tied-weights)). The pale
# pieces are causal masks, which old versions of the library stored too. They are called `attn.bias`, but they are
# neither biases nor weights: a reader leaves them out. (Pieces of a few bytes, such as norms, are too thin to be seen.)
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
# There is no code in it. (The older format, `pytorch_model.bin`, is a Python *pickle*: to open it is to run what is
# written in it. The package refuses it.) Here are the first bytes of ours:

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
print(f"{len(header)} tensors")
for name, (kind, shape, first, last) in list(header.items())[:6]:
    print(f"{name:<24} {kind:<5} {shape!s:<16} bytes {first:>8,} to {last:>8,}")

# %% [markdown]
# ## Half a float32
#
# The type `BF16` is [*bfloat16*](glossary.md#bfloat16): most models are published in it today. NumPy does not know it.
# That is no problem. A float32 has 1 bit of sign, 8 of exponent and 23 of fraction. **A bfloat16 is its upper half**:
# the same sign, the same exponent, and the first 7 bits of the fraction. So the way back is to append 16 zeros.


# %%
def bits_of(number):
    bits = f"{np.float32(number).view(np.uint32):032b}"
    return f"{bits[0]} {bits[1:9]} {bits[9:16]}|{bits[16:]}"


print("    number   sign, exponent, fraction             the upper half, as uint16")
for number in (1.0, -2.0, np.pi):
    print(f"{number:10.6f}   {bits_of(number)}   {stranger.narrowed(np.array([number]))[0]}")
print(f"the largest numbers: float32 {np.finfo(np.float32).max:.1e}, float16 {np.finfo(np.float16).max:,.0f}")

# %% [markdown]
# (float16, the other type with 16 bits, is cut in another way: 5 bits of exponent, 10 of fraction. It is finer, and
# ends much earlier, as the last line says. Whoever takes one for the other gets numbers, and no error.)
#
# ### Exercise 2 ★☆☆: widen
#
# NumPy reads the file's two bytes as one `uint16`. Make float32 of it. All numbers at once: a real file has hundreds of
# millions.


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
    """The weights of a GPT-2's folder by name, float32. Masks are left out, and so is what some files put first."""
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
theirs = {name: tensor for name, tensor in find_tensors(FOLDER).items() if name in weights}
equal = all(np.array_equal(weights[name], tensor.read()) for name, tensor in theirs.items())
print(f"{len(weights)} tensors of {sum(w.size for w in weights.values()):,} numbers")
print("equal to what the package reads, bit by bit:", equal)

# %% [markdown]
# ## Text to numbers: bytes that can be printed
#
# The model speaks in ids, and `tokenizer.json` says what they mean. GPT-2's tokenizer is
# [byte-pair encoding](glossary.md#byte-pair-encoding) of *bytes* (§2.2 of its paper): there are 256 of them, so no text
# is unknown. The merges stand in a text file, and bytes such as the space or the newline would make a mess of it. So
# each byte is written as a character that can be printed: those that can be, as themselves; the others, in their order,
# as the characters from 256 on. The space, byte 32, becomes `Ġ`:

# %%
printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = [byte for byte in range(256) if byte not in printable]
CHARACTER = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
BYTE = {character: byte for byte, character in CHARACTER.items()}
for text in (" dog", "\n", "café"):
    print(f"{text!r:<8} → {''.join(CHARACTER[byte] for byte in text.encode())}")

# %% [markdown]
# First a text is cut into words, each with the space before it. No merge crosses a word. Then the oldest merge that
# applies is made, again and again, as in lesson 02:

# %%
# GPT-2's own pattern writes \p{L} and \p{N}, which Python's `re` lacks; they differ for signs such as ² or Ⅷ only.
WORDS = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def read_tokenizer(folder):
    """Two functions: a text's ids, and the text of ids."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model, marks = content["model"], {token["id"] for token in content["added_tokens"]}
    vocabulary = model["vocab"]
    piece_of = {number: piece for piece, number in vocabulary.items() if number not in marks}
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    age = {pair: n for n, pair in enumerate(pairs)}  # the smaller, the older

    def encode(text):
        ids = []
        for word in WORDS.findall(text):
            pieces = [CHARACTER[byte] for byte in word.encode()]
            while known := [pair for pair in pairwise(pieces) if pair in age]:
                oldest, merged = min(known, key=age.get), []
                for piece in pieces:
                    if merged and (merged[-1], piece) == oldest:
                        merged[-1] += piece
                    else:
                        merged.append(piece)
                pieces = merged
            ids += [vocabulary[piece] for piece in pieces]
        return ids

    def decode(ids):
        characters = "".join(piece_of.get(int(number), "") for number in ids)  # the end mark is no text
        return bytes(BYTE[character] for character in characters).decode(errors="replace")

    return encode, decode


encode, decode = read_tokenizer(FOLDER)
for text in ("The old dog sleeps.", "café ☕ 42"):
    ids = encode(text)
    print(f"{ids} → {decode(ids)!r}")

# %% [markdown]
# A vocabulary that belongs to *other* weights is the first silent mistake: all ids are in range, and each means
# something else.
#
# ## Names to a model
#
# Now the names. Each is a path: `h.1.mlp.c_fc.bias` is in layer ("h" for hidden) 1, in its feed-forward network
# ("mlp"), the fully connected map, its bias. What must be known and cannot be seen:
#
# * **`weight` of a map is (in, out)**: $y = xW + b$, as in this course. GPT-2's code calls such a map `Conv1D`.
#   PyTorch's `Linear` has (out, in), and so have the files of nearly all other models: $y = xW^\top + b$.
# * **`c_attn` is fused**: one matrix of shape $(C, 3C)$, with $[Q|K|V]$ side by side as in
#   [lesson 05](05_multi_head.ipynb), and within each third head after head.
# * **`weight` and `bias` of a norm** are $\gamma$ and $\beta$.
# * **`lm_head`**, the output layer, is missing. It is `wte`, transposed.
#
# Here is the table, name by name, beside the names of this course's package. Its layout happens to be GPT-2's, so every
# array goes to one parameter, as it is:

# %%
NAMES = {"wte": "tokens.table", "wpe": "decoder.embedding.positions.table", "ln_f": "decoder.final_norm"}
PARTS = {
    "ln_1": "self_attention_norm", "ln_2": "feed_forward_norm", "mlp.c_fc": "feed_forward.expand",
    "mlp.c_proj": "feed_forward.contract", "attn.c_attn": "self_attention.query_key_value",
    "attn.c_proj": "self_attention.output",
}  # fmt: skip


def our_name(name):
    """The package's name of a parameter, by the file's."""
    part, ending = name.rsplit(".", 1)
    if part in ("wte", "wpe"):
        return NAMES[part]
    ending = {"weight": "gamma", "bias": "beta"}[ending] if ".ln_" in f".{part}" else ending
    if part in NAMES:
        return f"{NAMES[part]}.{ending}"
    _, layer, part = part.split(".", 2)
    return f"decoder.layers.{layer}.{PARTS[part]}.{ending}"


print(f"{'in the file':<24} {'shape':<12} in the package")
for name in sorted(weights, key=lambda name: (name[0] != "w", name)):
    if not name.startswith("h.1"):
        print(f"{name:<24} {weights[name].shape!s:<12} {our_name(name)}")

# %% [markdown]
# That is enough to write the model down, in fewer than twenty lines:


# %%
def gpt2_logits(w, ids, heads, eps, gelu="tanh"):
    """w: weights by their names in the file; ids (B, T) → logits (B, T, V)."""
    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]  # (B, T, C)
    for layer in range(sum(name.endswith("ln_1.weight") for name in w)):
        h = f"h.{layer}."
        normed, _ = layernorm_forward(x, w[h + "ln_1.weight"], w[h + "ln_1.bias"], eps)
        fused = normed @ w[h + "attn.c_attn.weight"] + w[h + "attn.c_attn.bias"]  # (B, T, 3C)
        query, key, value = (split_heads(third, heads) for third in np.split(fused, 3, axis=-1))  # (B, H, T, D)
        mixed, _ = attention_forward(query, key, value, causal=True)
        x = x + merge_heads(mixed) @ w[h + "attn.c_proj.weight"] + w[h + "attn.c_proj.bias"]

        normed, _ = layernorm_forward(x, w[h + "ln_2.weight"], w[h + "ln_2.bias"], eps)
        hidden, _ = gelu_forward(normed @ w[h + "mlp.c_fc.weight"] + w[h + "mlp.c_fc.bias"], gelu)  # (B, T, F)
        x = x + hidden @ w[h + "mlp.c_proj.weight"] + w[h + "mlp.c_proj.bias"]
    x, _ = layernorm_forward(x, w["ln_f.weight"], w["ln_f.bias"], eps)
    return x @ w["wte.weight"].T


HEADS, EPS = config["n_head"], config["layer_norm_epsilon"]
END = config["eos_token_id"]


def speak(w, prompt, most=20):
    """The most probable next token, again and again, from the whole text each time."""
    ids = encode(prompt)
    while len(ids) < most and ids[-1] != END:
        ids.append(int(np.argmax(gpt2_logits(w, np.array([ids]), HEADS, EPS)[0, -1])))
    return decode(ids).strip()


for prompt in ("The old dog", "She", "We do not", "Does the"):
    print(f"{prompt:<10} → {speak(weights, prompt)}")

# %% [markdown]
# **It speaks.** The label promised sentences of the course's grammar, and there they are: they were in the numbers. (A
# cache would save the repeated work: [lesson 11](11_decoding.ipynb).)
#
# ## How good is that as evidence?
#
# Let us ask for a number. The loss on sentences that the model has not seen, next to $\ln V$, which a model that knows
# nothing would have. And the same for two misreadings: the square matrix transposed, and the heads counted wrongly.

# %%
unseen = stranger.short_sentences("test", 600)
line = np.array([number for sentence in unseen for number in [*encode(sentence), END]])
rows = line[: len(line) // 40 * 40].reshape(-1, 40)[:60]  # (60, 40)


def loss_of(w, heads=HEADS, eps=EPS, gelu="tanh"):
    """Nats per token on the unseen sentences."""
    return float(cross_entropy_forward(gpt2_logits(w, rows[:, :-1], heads, eps, gelu), rows[:, 1:])[0])


def changed(w, ending, change):
    """The weights, those with this ending of their names changed."""
    return {name: np.ascontiguousarray(change(each)) if name.endswith(ending) else each for name, each in w.items()}


transposed = changed(weights, "attn.c_proj.weight", np.transpose)
print(f"knows nothing, ln V                 {np.log(config['vocab_size']):.3f}")
print(f"as we read it                       {loss_of(weights):.3f}")
print(f"attention's output map transposed   {loss_of(transposed):.3f}   {speak(transposed, 'The old dog')}")
print(f"half as many heads                  {loss_of(weights, heads=HEADS // 2):.3f}")
print(f"the exact GELU, with erf            {loss_of(weights, gelu='none'):.3f}")

# %% [markdown]
# The opening question is answered for the square matrix: transposed, the loss is much higher. But look at the last
# line. GPT-2 was trained with the *tanh* approximation of GELU. The exact one is wrong here, and the loss does not show
# it. A model that speaks shows that most is right. It does not show that all is.
#
# So what would? **Compare the logits, not the words**, with a program that is known to be right. Here is the package's
# reading of the folder, in float64:

# %%
ALONE = Path(place.name) / "weights-alone"  # `load` reads a tokenizer with the library tokenizers: not needed here
ALONE.mkdir(exist_ok=True)
for name in ("config.json", "model.safetensors"):
    shutil.copy(FOLDER / name, ALONE)
model, _ = load(ALONE, dtype="float64")
by_hand = GPT(model.config, dtype="float64")
for name, each in weights.items():
    by_hand.parameters.named[our_name(name)].data[...] = each
filled = sorted(map(our_name, weights))
print("each array goes somewhere, each parameter is filled once:", filled == sorted(by_hand.parameters.named))
print("filled by hand, the package's model has the bits that `load` gives:",
      np.array_equal(by_hand.parameters.data, model.parameters.data))  # fmt: skip

exact = {name: each.astype(np.float64) for name, each in weights.items()}
mine, packaged = gpt2_logits(exact, rows, HEADS, EPS), model.forward(rows)[0]
print(f"our few lines and the package: error {error(mine, packaged):.1e}")

# %% [markdown]
# But both were written by people who read the same documents, and perhaps misread the same line. The witness that
# counts is the program that the file is made for. An optional part below asks it.
#
# ## What goes wrong silently
#
# Here are plausible misreadings. None changes a shape, and none raises an error. For each we compute the largest error
# of a logit, in units of the logits' own standard deviation. We do it for three models of the same size:
#
# * **as it starts**: small random matrices, biases 0, gains 1. This is what people take for a quick test.
# * **loud**: random too, but every array is moved by noise, biases and gains too.
# * **trained**: the stranger's.


# %%
def thirds(order):
    """Exchange the thirds of the last axis."""
    return lambda w: np.concatenate([np.split(w, 3, axis=-1)[n] for n in order], axis=-1)


def by_head(w):
    """[Q|K|V] as a reader takes it who expects query, key and value of head 0, then of head 1 (as GPT-NeoX has it)."""
    return w.reshape(*w.shape[:-1], HEADS, 3, -1).swapaxes(-3, -2).reshape(w.shape)


def exchanged(w, one, other):
    """The weights with two parts of their names exchanged."""
    return {name.replace(one, "·").replace(other, one).replace("·", other): each for name, each in w.items()}


def as_float16(w):
    """bfloat16 taken for float16, as it is read from a file."""
    return {name: stranger.narrowed(each).view(np.float16).astype(np.float64) for name, each in w.items()}


MISREADINGS = {
    "attn.c_proj transposed": (lambda w: changed(w, "attn.c_proj.weight", np.transpose), {}),
    "queries and keys exchanged": (lambda w: changed(w, ("c_attn.weight", "c_attn.bias"), thirds((1, 0, 2))), {}),
    "keys and values exchanged": (lambda w: changed(w, ("c_attn.weight", "c_attn.bias"), thirds((0, 2, 1))), {}),
    "c_attn head by head": (lambda w: changed(w, ("c_attn.weight", "c_attn.bias"), by_head), {}),
    "half as many heads": (lambda w: w, {"heads": HEADS // 2}),
    "c_attn's bias left out": (lambda w: changed(w, "c_attn.bias", np.zeros_like), {}),
    "all biases of the norms left out": (
        lambda w: changed(w, ("ln_1.bias", "ln_2.bias", "ln_f.bias"), np.zeros_like),
        {},
    ),
    "ln_1 and ln_2 exchanged": (lambda w: exchanged(w, "ln_1", "ln_2"), {}),
    "gains taken as 1 + gain": (lambda w: changed(w, ("ln_1.weight", "ln_2.weight"), lambda g: 1 + g), {}),
    "layers 0 and 1 exchanged": (lambda w: exchanged(w, "h.0.", "h.1."), {}),
    "positions from 1 on": (lambda w: changed(w, "wpe.weight", lambda p: np.roll(p, -1, axis=0)), {}),
    "GELU with erf": (lambda w: w, {"gelu": "none"}),
    "epsilon 1e-12 (BERT's)": (lambda w: w, {"eps": 1e-12}),
    "bfloat16 taken for float16": (as_float16, {}),
}


def named_as_in_the_file(model):
    """The weights of a GPT of the package's, by the file's names."""
    save(model, Path(place.name) / "another")
    return {name: each.astype(np.float64) for name, each in read_weights(Path(place.name) / "another").items()}


fresh = GPT(model.config, seed=1)
models = {"as it starts": named_as_in_the_file(fresh)}
fresh.parameters.data += 0.2 * rng.standard_normal(fresh.parameters.data.shape).astype(np.float32)
models |= {"loud": named_as_in_the_file(fresh), "trained": exact}


def moved(w, wrong, **options):
    """The largest error of a logit, in units of the right logits' standard deviation."""
    right = gpt2_logits(w, rows[:10], HEADS, EPS)
    off = gpt2_logits(wrong, rows[:10], **{"heads": HEADS, "eps": EPS} | options) - right
    return float(np.abs(off).max() / right.std())


rounding = {
    "rounding, float32": moved(exact, {name: w.astype(np.float32) for name, w in exact.items()}),
    "float64": float(np.abs(mine - packaged).max() / packaged.std()),  # of our few lines and the package
}
errors = {name: {kind: moved(w, change(w), **options) for kind, w in models.items()}
          for name, (change, options) in MISREADINGS.items()}  # fmt: skip
draw_mistakes(errors, rounding)
plt.show()

# %%
before = loss_of(weights)
print("rise of the trained model's loss, in nats per token")
for name in sorted(errors, key=lambda name: errors[name]["trained"]):
    change, options = MISREADINGS[name]
    print(f"{name:<34} {loss_of(change(exact), **options) - before:+8.4f}")

# %% [markdown]
# (The dotted lines are what rounding alone does: our forward in float32 against float64, and our few lines against
# the package, both in float64.)
#
# Compare the picture and the list. There are three kinds of mistakes (half as many heads, and the two norms exchanged,
# lie between the first kind and the second):
#
# * **Nobody can miss it.** At the top the error is larger than the logits' own spread, and the loss rises by about a
#   nat or more. One sentence of output is test enough.
# * **The logits are plainly wrong, and the loss hardly rises.** Read the positions from 1 on: a logit is off by more
#   than a standard deviation, and the loss rises by next to nothing. A bias that is left out is of this kind too. You
#   would report a score that is slightly too low, and never know.
# * **The loss does not move in any digit that is printed.** That is so for the wrong GELU and the wrong epsilon. Only
#   the logits tell.
#
# And a test can be **blind**. Look at the grey points. In a model as it starts, biases are 0 and gains are 1: a bias
# that is left out changes *nothing*, and exchanged norms change nothing either (hollow). Its scores are nearly 0, so
# attention is almost a plain mean, whatever queries and keys are.
#
# So a random model makes a good test only if it is *loud*. (Not for everything: it notices the wrong epsilon least,
# because large activations hide what is added to their variance.) What can be seen depends on the tolerance too:

# %%
print(f"of {len(errors)} misreadings these go unnoticed")
print(f"{'tolerance':<12}" + "".join(f"{kind:>14}" for kind in models))
for tolerance in (1e-1, 1e-2, 1e-3, 1e-5, 1e-9):
    unnoticed = [sum(each[kind] < tolerance for each in errors.values()) for kind in models]
    print(f"{tolerance:<12.0e}" + "".join(f"{count:>14}" for count in unnoticed))
print("\n".join(f"{name}: {value:.0e}" for name, value in rounding.items()))

# %% [markdown]
# A tolerance must lie below the smallest mistake and above rounding. In float32 that is a narrow gap, and it closes in
# a model of many layers. In float64 it is wide. That is why the package's tests compare all kinds of models with the
# library's own classes **in float64, with loud random weights, many configurations, to $10^{-9}$**.
#
# And one test proves *nothing* about meaning: the round trip. Write what you have read, read it again, and all bits are
# equal. Somebody who transposes on the way in and on the way out passes it. It only shows that nothing is lost.
#
# ## Backwards, into the file's layout
#
# To train on with such weights ([*fine-tuning*](glossary.md#fine-tuning)), and to write them back, we need the gradient
# of each array *in the file*. For one of them, a step is left to be done.
#
# ### The fused matrix
#
# For some work one wants heads one by one, each with matrices of its own, as in the formulas of lesson 05: to remove
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
# ### One table, used twice
#
# The file has `wte` once. The forward uses it twice: $x = \mathrm{wte}[\mathrm{ids}] + \dots$ at the bottom, and
# $\mathrm{logits} = \mathrm{hidden} \cdot \mathrm{wte}^\top$ at the top. So its gradient is the sum of two parts, as
# [lesson 19](19_gpt.ipynb) derives: that of the product, which reaches every row, and that of the look-up, which
# reaches the rows of the tokens in the batch. The next function ends with these two lines.

# %% [markdown]
# Now the whole model, forward and backward, by the names of the file. Each line of the backward undoes one of the
# forward:


# %%
def loss_and_gradients(w, ids, targets, heads=HEADS, eps=EPS):
    """The mean loss of targets (B, T), and the gradient of every array by its name in the file."""
    layers, caches, grads = sum(name.endswith("ln_1.weight") for name in w), [], {}
    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for layer in range(layers):
        h = f"h.{layer}."
        normed, norm_1 = layernorm_forward(x, w[h + "ln_1.weight"], w[h + "ln_1.bias"], eps)
        each, biases = split_c_attn(w[h + "attn.c_attn.weight"], w[h + "attn.c_attn.bias"], heads)
        query_key_value = np.einsum("btc,khcd->kbhtd", normed, each) + biases[:, None, :, None]  # (3, B, H, T, D)
        mixed, attended = attention_forward(*query_key_value, causal=True)
        out, project = linear_forward(merge_heads(mixed), w[h + "attn.c_proj.weight"], w[h + "attn.c_proj.bias"])
        x = x + out
        normed_2, norm_2 = layernorm_forward(x, w[h + "ln_2.weight"], w[h + "ln_2.bias"], eps)
        hidden, expand = linear_forward(normed_2, w[h + "mlp.c_fc.weight"], w[h + "mlp.c_fc.bias"])
        active, gelu = gelu_forward(hidden, "tanh")
        out, contract = linear_forward(active, w[h + "mlp.c_proj.weight"], w[h + "mlp.c_proj.bias"])
        x = x + out
        caches.append((normed, each, norm_1, attended, project, norm_2, expand, gelu, contract))
    final, norm_f = layernorm_forward(x, w["ln_f.weight"], w["ln_f.bias"], eps)
    loss, cache = cross_entropy_forward(final @ w["wte.weight"].T, targets)

    dlogits = cross_entropy_backward(1.0, cache)

    def keep(name, weight, bias):
        grads[name + ".weight"], grads[name + ".bias"] = weight, bias

    dx, *both = layernorm_backward(dlogits @ w["wte.weight"], norm_f)
    keep("ln_f", *both)
    for layer in reversed(range(layers)):
        h = f"h.{layer}."
        normed, each, norm_1, attended, project, norm_2, expand, gelu, contract = caches[layer]
        dactive, *both = linear_backward(dx, contract)
        keep(h + "mlp.c_proj", *both)
        dnormed, *both = linear_backward(gelu_backward(dactive, gelu), expand)
        keep(h + "mlp.c_fc", *both)
        dout, *both = layernorm_backward(dnormed, norm_2)
        keep(h + "ln_2", *both)
        dx = dx + dout
        dmixed, *both = linear_backward(dx, project)
        keep(h + "attn.c_proj", *both)
        d = np.stack(attention_backward(split_heads(dmixed, heads), attended))  # (3, B, H, T, D)
        packed = split_c_attn_backward(np.einsum("btc,kbhtd->khcd", normed, d), d.sum(axis=(1, 3)))
        keep(h + "attn.c_attn", *packed)
        dout, *both = layernorm_backward(np.einsum("kbhtd,khcd->btc", d, each), norm_1)
        keep(h + "ln_1", *both)
        dx = dx + dout
    grads["wpe.weight"] = np.zeros_like(w["wpe.weight"])
    grads["wpe.weight"][: ids.shape[1]] = dx.sum(axis=0)
    grads["wte.weight"] = np.einsum("btv,btc->vc", dlogits, final)  # as the output layer
    np.add.at(grads["wte.weight"], ids, dx)  # and as the look-up: a token may stand in several places
    return float(loss), grads


ids, targets = rows[:4, :-1], rows[:4, 1:]  # (4, 39)
loss, grads = loss_and_gradients(exact, ids, targets)
shapes = [{name: each.shape for name, each in arrays.items()} for arrays in (grads, exact)]
print("every array of the file has a gradient of its shape:", shapes[0] == shapes[1])

# %% [markdown]
# The proof is the one of lesson 00: move a number in the file, and look at the loss. Here for five numbers of each
# array. And the package's backward knows nothing of the file's names, so it is a second witness:

# %%
worst = {}
for name in exact:

    def forward(array, name=name):
        logits = gpt2_logits(exact | {name: array}, ids, HEADS, EPS)  # the short forward, not the one just written
        return np.asarray(cross_entropy_forward(logits, targets)[0]), None

    def backward(dout, _, name=name):
        return dout * grads[name]

    worst[name] = check_gradients(forward, backward, {name: exact[name]}, samples=5)[name]
print(f"central differences: the largest error is {max(worst.values()):.1e}, of {max(worst, key=worst.get)}")

model.parameters.zero_grad()
_, cache = model.loss(ids, targets)
model.loss_backward(1.0, cache)
package = {name: model.parameters.named[our_name(name)].grad for name in exact}
off = max(error(grads[name], package[name]) for name in exact)
print(f"the package's backward: the largest error is {off:.1e}, in {len(package)} arrays")

# %% [markdown]
# With gradients by name one can train on, and hand the result back. A sentence that the grammar does not have, some
# steps of gradient descent, and the stranger's model says it:

# %%
sentence = np.array([[*encode("The reader checked every number."), END]])
tuned = dict(exact)
print(f"before: {speak(tuned, 'The reader')}")
for _step in range(40):
    loss, gradient = loss_and_gradients(tuned, sentence[:, :-1], sentence[:, 1:])
    tuned = {name: w - 0.1 * gradient[name] for name, w in tuned.items()}
print(f"after:  {speak(tuned, 'The reader')}   (loss {loss:.3f})")
print(f"the rest has suffered: {loss_of(tuned):.3f} nats per token on unseen sentences, {before:.3f} before")

BACK = Path(place.name) / "handed-back"
shutil.copytree(ALONE, BACK, dirs_exist_ok=True)
as_bytes = {name: ("F32", list(w.shape), w.astype("<f4").tobytes()) for name, w in tuned.items()}
(BACK / "model.safetensors").write_bytes(stranger.safetensors(as_bytes))  # a header and bytes, as above
handed, _ = load(BACK)
off = error(handed.forward(rows[:4])[0], gpt2_logits(tuned, rows[:4], HEADS, EPS))
print(f"handed back as a folder, and read by `load`: error {off:.0e}, the rounding of float32")

# %% [markdown]
# (That is called *forgetting*: one sentence, learned alone, pushes others away. Real fine-tuning takes small steps, and
# more than one sentence.)
#
# ## A few numbers beside the file
#
# This training had a gradient for every number of the file. Had Adam taken the steps ([lesson 09](09_training.ipynb)),
# there would be two running means for each too. And what is handed back is a whole second file. Must all of them be
# trained?
#
# [*LoRA*](glossary.md#lora) (*low-rank adaptation*, Hu and others 2021, §4.1) leaves the stranger's $W$ as it is: it is
# *frozen*. Beside it stands a product of two thin matrices, $A$ of shape $(C, r)$ and $B$ of shape $(r, F)$. The *rank*
# $r$ is small:
#
# $$ y = xW + b + \frac{\alpha}{r}\,(xA)\,B $$
#
# Only $A$ and $B$ are trained. Together they are called an *adapter* today. (In the paper that word means layers that
# are put in between.) $A$ starts random and $B$ at 0, so training starts at the stranger's model. $\alpha$ is a number
# that one chooses. The paper divides it by $r$, so that a change of the rank asks less often for another learning rate.


# %%
def adapter_forward(x, weight, bias, A, B, alpha):
    """x (..., C), weight (C, F), bias (F,), A (C, r), B (r, F) → y (..., F), and what the backward needs."""
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
layers, width, matrices, everything = 96, 12_288, 2, 175e9  # GPT-3; the paper adapts queries and values (§4.2)
numbers = layers * matrices * 4 * (width + width)
print(f"GPT-3's, of rank 4: {numbers:,}, one in {everything / numbers:,.0f} of all its numbers")

# %% [markdown]
# Where $B = 0$, `dA` is 0: nothing comes back through $B$. In the first step only $B$ moves. (Were $A$ 0 too, nothing
# would ever move.)
#
# Now the model with an adapter on `c_attn` of each layer. As all else is frozen, the backward is short. A map that is
# frozen only passes the gradient on, `dx @ weight.T`. Nothing is done for the tables. The adapters' names are those of
# the file with `A` and `B` in the place of `weight`:


# %%
def frozen_forward(w, adapters, alpha, ids, heads=HEADS, eps=EPS):
    """The logits (B, T, V) of the weights w, which stay as they are, and of adapters beside c_attn; and a cache."""
    caches, x = [], w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for layer in range(sum(name.endswith("ln_1.weight") for name in w)):
        h = f"h.{layer}."
        normed, norm_1 = layernorm_forward(x, w[h + "ln_1.weight"], w[h + "ln_1.bias"], eps)
        pair = adapters[h + "attn.c_attn.A"], adapters[h + "attn.c_attn.B"]
        fused, adapted = adapter_forward(normed, w[h + "attn.c_attn.weight"], w[h + "attn.c_attn.bias"], *pair, alpha)
        query_key_value = (split_heads(third, heads) for third in np.split(fused, 3, axis=-1))
        mixed, attended = attention_forward(*query_key_value, causal=True)
        x = x + merge_heads(mixed) @ w[h + "attn.c_proj.weight"] + w[h + "attn.c_proj.bias"]
        normed, norm_2 = layernorm_forward(x, w[h + "ln_2.weight"], w[h + "ln_2.bias"], eps)
        active, gelu = gelu_forward(normed @ w[h + "mlp.c_fc.weight"] + w[h + "mlp.c_fc.bias"], "tanh")
        x = x + active @ w[h + "mlp.c_proj.weight"] + w[h + "mlp.c_proj.bias"]
        caches.append((norm_1, adapted, attended, norm_2, gelu))
    final, norm_f = layernorm_forward(x, w["ln_f.weight"], w["ln_f.bias"], eps)
    return final @ w["wte.weight"].T, (caches, norm_f)


def frozen_backward(dlogits, w, cache, heads=HEADS):
    """The gradients of the adapters, by their names."""
    (caches, norm_f), grads = cache, {}
    dx, *_ = layernorm_backward(dlogits @ w["wte.weight"], norm_f)
    for layer, (norm_1, adapted, attended, norm_2, gelu) in reversed([*enumerate(caches)]):
        h = f"h.{layer}."
        dnormed = gelu_backward(dx @ w[h + "mlp.c_proj.weight"].T, gelu) @ w[h + "mlp.c_fc.weight"].T
        dx = dx + layernorm_backward(dnormed, norm_2)[0]
        dmixed = split_heads(dx @ w[h + "attn.c_proj.weight"].T, heads)
        dfused = np.concatenate([merge_heads(each) for each in attention_backward(dmixed, attended)], axis=-1)
        dnormed, *both = adapter_backward(dfused, adapted)
        grads[h + "attn.c_attn.A"], grads[h + "attn.c_attn.B"] = both
        dx = dx + layernorm_backward(dnormed, norm_1)[0]
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
      np.array_equal(logits, gpt2_logits(exact, ids, HEADS, EPS)))  # fmt: skip

draw = np.random.default_rng(1)
adapters = {name: each + 0.1 * draw.standard_normal(each.shape) for name, each in adapters.items()}  # B is not 0 now
logits, cache = frozen_forward(exact, adapters, alpha, ids)
dadapters = frozen_backward(cross_entropy_backward(1.0, cross_entropy_forward(logits, targets)[1]), exact, cache)
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
    loss, of_loss = cross_entropy_forward(logits, wanted)
    return float(loss), frozen_backward(cross_entropy_backward(1.0, of_loss), exact, cache)


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
#   *everything*, with smaller steps. And two draws of $A$ can differ more than two ranks. One often reads that adapters
#   forget less. Biderman and others (2024, *LoRA Learns Less and Forgets Less*) measured it for a model of 7 billion
#   numbers that learned to program and to calculate. One sentence in a small model does not show it.
#
# So an adapter is not a cure for forgetting. What it saves is memory while one trains, and files: one $W$ for many
# tasks, and a few numbers for each. And as long as it stands *beside* $W$, it can be taken away. Then nothing is
# forgotten.
#
# To hand it on in the file's own form, merge it:

# %%
MERGED = Path(place.name) / "merged"
shutil.copytree(ALONE, MERGED, dirs_exist_ok=True)
new = merged(exact, kept, alpha=8)
as_bytes = {name: ("F32", list(w.shape), w.astype("<f4").tobytes()) for name, w in new.items()}
(MERGED / "model.safetensors").write_bytes(stranger.safetensors(as_bytes))
handed, _ = load(MERGED, dtype="float64")
beside, _ = frozen_forward(exact, kept, 8, rows[:4])
print(f"merged, our few lines:           error {error(gpt2_logits(new, rows[:4], HEADS, EPS), beside):.0e}")
print(f"merged, written, read by `load`: error {error(handed.forward(rows[:4])[0], beside):.0e}, float32's rounding")
print(f"the same arrays as before: {sorted(new) == sorted(exact)};  {speak(new, 'The reader')}")

# %% [markdown]
# The file has the same names and shapes as before. Who reads it need not know that there was an adapter, and a forward
# costs what it did. But now it cannot be taken away.
#
# ## The witness that counts (optional)
#
# `transformers` is the library whose format this is. Where it is installed, with PyTorch, the next cell lets it read
# *the same folder*, and compares: logits, gradients, ids, and what it says. Elsewhere it shows what was recorded.


# %%
def their_packages():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a progress bar that a notebook may lack
        import torch
        import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    return torch, transformers


def with_transformers():
    torch, transformers = their_packages()
    there = transformers.GPT2LMHeadModel.from_pretrained(
        FOLDER, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    logits = there(torch.from_numpy(ids)).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten()).backward()
    gradients = {name.removeprefix("transformer."): each.grad.numpy() for name, each in there.named_parameters()}
    texts, (_, tokenizer) = [*unseen, "café ☕ 42", "  two  spaces\n"], load(FOLDER)  # of the library tokenizers
    written = there.generate(
        torch.tensor([encode("The old dog")]), do_sample=False, max_new_tokens=17, pad_token_id=END
    )
    return {
        "logits": error(gpt2_logits(exact, ids, HEADS, EPS), logits.detach().numpy()),
        "gradients": max(error(grads[name], gradients[name]) for name in grads),
        "says": decode(written[0].tolist()).strip(),
        "same ids": all(encode(text) == tokenizer.encode(text) for text in texts),
    }


found = recorded("24_transformers", with_transformers)
print(f"its logits and ours: error {found['logits']:.1e}; all gradients: {found['gradients']:.1e}")
print(f"the tokenizer's ids and ours are the same: {found['same ids']}")
print(f"it says:  {found['says']}\nwe say:   {speak(weights, 'The old dog')}")

# %% [markdown]
# That is the answer to the first question, as far as there is one. A file of numbers means what the program makes of it
# that it was written for, and *that program* agrees with us in all digits. Where no such program can be run, ask the
# giver for one line of ids, and the logits of its last token in all their digits. How much would that notice?

# %%
usual = {"heads": HEADS, "eps": EPS}
last = gpt2_logits(exact, rows[:1], **usual)[0, -1]
off = {name: gpt2_logits(change(exact), rows[:1], **usual | options)[0, -1] - last
       for name, (change, options) in MISREADINGS.items()}  # fmt: skip
least = min(off, key=lambda name: np.abs(off[name]).max())
print(f"the least of all {len(off)} misreadings: {least}, error {np.abs(off[least]).max() / last.std():.0e}")
print(f"rounding in float32:              {rounding['rounding, float32']:.0e}")

# %% [markdown]
# Everything in the picture above. It costs the giver nothing.
#
# ## A translator's folder (optional)
#
# The paper's own model has a format too: *Marian*, the form of more than a thousand published translators. Can *our*
# translator be written in it? `save` answers. What the format cannot express is refused by name, before anything is
# written:

# %%
for options in ({"norm_first": True}, {"positions": "learned"}, {"window": 4}, {"layernorm_eps": 1e-6}, {"d_k": 5}):
    small = Transformer(TransformerConfig(20, d_model=8, num_heads=2, d_ff=16, num_layers=1, **options))
    try:
        save(small, Path(place.name) / "refused")
    except PretrainedError as refused:
        print(refused)

translator = Translator.from_checkpoint(Path("weights/en-de.safetensors"))
MARIAN = Path(place.name) / "marian"
save(translator.model, MARIAN)  # with the tokenizer as one more argument, that is written too
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
# * **The sinusoids are stored nowhere.** The program computes them, and Marian computes others. The paper has sine and
#   cosine in turn, channel by channel; Marian has all sines, then all cosines:

# %%
C = translator.model.config.d_model
order = np.concatenate([np.arange(0, C, 2), np.arange(1, C, 2)])
draw_halves(np.concatenate([np.arange(0, 16, 2), np.arange(1, 16, 2)]))
plt.show()

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

marian, _ = load(MARIAN)
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
stale = Transformer(marian.config)
for name, each in stale.parameters.named.items():
    each.data[...] = ours.get(name, 0)  # as they are: only the bias of the logits is new
score("channels not moved", stale, bos)

# %% [markdown]
# And `transformers`' own Marian, on the same folder, or what was recorded:


# %%
def translated_there():
    torch, transformers = their_packages()
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
# It is one number in a configuration. The wrong one is a word that the model has never seen in this place, and the
# table shows what that costs here. (The published ones also have a bias for each logit, `final_logits_bias`. Ours has
# none, so zeros are written.)
#
# ## Halves or neighbours: rotary positions (optional)
#
# Llama's models turn pairs of channels by an angle that grows with the position (RoPE, a rotation as in [lesson
# 06](06_positions.ipynb)). Which two channels are a pair? In the paper (Su and others 2021), neighbours: 0 and 1, 2 and
# 3. The files that Meta publishes have this order too. In the same models as `transformers` stores them, channel $i$ of
# the first half of a head goes with channel $i$ of the second. Again all shapes are equal. And again it is only the
# order of channels, inside each head. So the columns of queries and keys can be moved to suit the other program, and
# whoever converts Meta's files does that. Values are not turned, and stay:

# %%
C, H, D = 32, 4, 8
SIZES = {"d_model": C, "num_heads": H, "d_ff": 48, "num_layers": 2, "max_length": 40}
halves = GPT(GPTConfig.llama(60, **SIZES), dtype="float64", seed=2)
halves.parameters.data += 0.3 * rng.standard_normal(halves.parameters.data.shape)
neighbours = GPT(GPTConfig.llama(60, **SIZES, rotary=RotaryConfig(interleaved=True)), dtype="float64")
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
# and run this cell again. These are the functions from above, and nothing else. With a network and the package
# `huggingface_hub`, `load` fetches the folder and makes the package's model of it: take away the `#`.

# %%
real = Path(os.environ.get("GPT2_FOLDER", "no folder is named"))
# gpt2, gpt2_tokenizer = load("gpt2")  # downloads half a gigabyte
if (real / "model.safetensors").is_file():
    real_config, real_weights = json.loads((real / "config.json").read_text()), read_weights(real)
    encode, decode = read_tokenizer(real)  # `speak` uses them too
    count = sum(each.size for each in real_weights.values())
    print(f"{count:,} numbers in {len(real_weights)} arrays")
    ids = encode("The capital of France is Paris. The capital of Germany is Berlin. The capital of Italy is")
    given = len(ids)
    for _ in range(12):
        logits = gpt2_logits(real_weights, np.array([ids]), real_config["n_head"], real_config["layer_norm_epsilon"])
        ids.append(int(np.argmax(logits[0, -1])))
    nats, _ = cross_entropy_forward(logits[:, : given - 1], np.array([ids[1:given]]))  # of the text that we gave
    print(f"loss {nats:.2f} nats per token; one who knows nothing has {np.log(real_config['vocab_size']):.2f}")
    print(decode(ids))
    encode, decode = read_tokenizer(FOLDER)
else:
    print("GPT2_FOLDER names no folder with a model.safetensors, so there is nothing to run here.")

# %% [markdown]
# Do not expect wisdom of the smallest GPT-2 in greedy search: it repeats itself. But if it goes on in English, you
# made no big mistake with 124 million numbers. And you know now what that does not prove.
#
# ## Common mistakes, and what they look like

# %%
print("sorted as text:", ", ".join(sorted(f"h.{layer}" for layer in (0, 1, 2, 10, 11))))

looked_up = np.unique(rows[:4, :-1])
print(f"tokens of a batch that are looked up: {len(looked_up)} of {config['vocab_size']}")
with_gradient = np.abs(grads["wte.weight"]).max(axis=1) > 0
print(f"rows of the tied table that get a gradient: {with_gradient.sum()} of {len(with_gradient)}")

numbers = rng.standard_normal(100_000).astype(np.float32)
cut_off = (numbers.view(np.uint32) & 0xFFFF0000).view(np.float32)
for name, narrow in (("rounded", widen(stranger.narrowed(numbers))), ("cut off", cut_off)):
    kept = np.abs(narrow).mean() / np.abs(numbers).mean()
    print(f"to bfloat16 and back, {name}: the mean of |x| is {kept:.4f} of what it was")

# %% [markdown]
# * **Layers sorted by name.** "h.10" comes before "h.2". A model of more than ten layers then has them in the wrong
#   order, and every shape fits.
# * **Two copies of a tied table.** Some files store `lm_head.weight` beside `wte.weight`. Whoever fills two parameters
#   with them and trains on has an output layer that learns alone, and a look-up in which only the tokens of the batch
#   move.
# * **An adapter merged in another layout.** Libraries on PyTorch store $A$ as $(r, C)$ and $B$ as $(F, r)$, so their
#   product is $(F, C)$. For GPT-2's file it must be transposed. On a square matrix such as `attn.c_proj.weight` the
#   wrong one fits.
# * **Narrowing by cutting off.** Widening loses nothing. On the way back to bfloat16 the lower half must be *rounded*:
#   cut off, every number moves towards 0, and these errors do not cancel.
# * **Extra tensors ignored, missing ones left random.** A loader that is not strict starts with half a model. Demand
#   that every array of the file is used, and every parameter filled, once.
# * **The default of an option that is missing.** `layer_norm_epsilon` may be absent. Then the library's default counts,
#   $10^{-5}$ here and $10^{-12}$ for BERT, not yours.
# * **Dropout left on.** The configuration has rates. A forward that drops gives other logits each time.
# * **A small test without padding.** One sentence alone never sees a wrong mask.
#
# ## What changed since 2017
#
# In 2017 weights travelled as checkpoints of one program: to use them was to run its code. The files of PyTorch were
# pickles, and a stranger's file could do anything on your machine. Since 2022 safetensors has replaced them nearly
# everywhere. Numbers became narrower: bfloat16, then 8 and 4 bits with scales beside them, which is one more layout to
# misread (GGUF is a format for these). Since LoRA (2021) many who train a large model further publish an adapter alone,
# and whoever uses it needs the very weights that it was trained beside; with QLoRA (Dettmers and others 2023) these are
# frozen in 4 bits. Names are still each library's own. So each new model begins with a table like
# the one in this lesson, and each mistake in the picture above can be made again.
#
# Open projects:
#
# * **A loud test for your own reader.** Write `misread(weights)`, which makes one of the mistakes at random. How many
#   of them does a test on a *single token* notice? On two?
# * **Which layer is wrong?** Given hidden states after each layer from the right program, find the first that differs,
#   and then the mistake, without looking at the code.
# * **8 bits.** Store each row of a matrix as `int8` with one scale. How far do the logits move? Where does that stand
#   in the picture?
#
# ## Where next
#
# [Lesson 25](25_smaller_and_larger.ipynb) asks how large such a model should be, and how a small one learns from it.
#
# If you came here first, the path [from GPT-2's weights down](README.md#four-paths) says what to read next, down to the
# proof that a gradient is right. Models of six kinds from another library are read by
# [`pretrained`](../minitransformer/pretrained), whose tables say name by name what goes where.
