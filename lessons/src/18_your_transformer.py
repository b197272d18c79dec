# %% [markdown]
# # 18 · Your Transformer, in one file
#
# **You will be able to** say that you wrote a Transformer: your parts from all lessons become one file of NumPy, which
# loads trained weights, translates, proves its gradients and trains.
#
# | | |
# |---|---|
# | you know | the parts, from lessons 00 to [11](11_decoding.ipynb); above all the [whole model](08_model.ipynb) |
# | runs in | 150 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | all of it |
# | in the package | [`textbook`](../minitransformer/textbook/paper.py), [`Block`](../minitransformer/layers/block.py) |
#
# You wrote attention, heads, positions, norms, perhaps also the loss, Adam and a beam search, each in a lesson of its
# own. Whatever a check called *correct* was kept, in the folder `answers` beside the notebooks. Now the parts come
# together, and for those that you left out the course's stand in.
#
# Three parts are still missing, and all of them are backwards: through several heads, through a layer of the decoder,
# and through the whole model. You write these three here. Then the file is made.

# %%
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from course import start
from course.lesson_18.assembly import imported, part, write
from course.lesson_18.layers import Layers
from course.lesson_18.pictures import draw_training
from minitransformer.decoding import Translator
from minitransformer.gradcheck import error
from minitransformer.grammar import pairs

check = start("18")
threadpool_limits(1)  # lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## What is there already
#
# A ✓ is yours, and a dot is the course's. Answer the exercise of that name in the lesson before it, and yours takes its
# place the next time you run this cell.

# %%
path = write()

# %% [markdown]
# What you did not write is the wiring, some 300 lines in two files of this lesson's room,
# [`layers.py`](course/lesson_18/layers.py) and [`model.py`](course/lesson_18/model.py). Read both: there is nothing in
# them that the lessons have not explained. Weights and gradients are two dictionaries with the same names, such as
# `decoder.layers.0.feed_forward.expand.weight`. A forward returns what it computed and a cache. A backward takes a
# gradient and the cache. It adds the gradients of its weights and returns the gradient of its input. This is how
# several heads are computed, with `split_heads`, `masked_softmax` and `merge_heads`:
#
# ```python
# def multi_head(self, query, key, value, mask):
#     query, key, value = (split_heads(x, self.num_heads) for x in (query, key, value))  # (B, H, T, D)
#     weights = masked_softmax(query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5, mask)  # (B, H, Tq, Tk)
#     return merge_heads(weights @ value), (query, key, value, weights)
# ```
#
# ### Exercise 1 ★☆☆: back through the heads
#
# Two lines, with three functions that you know; the one of lesson 04 is called as `attention_backward(dout, query, key,
# value, weights)`, with any leading axes. `part` fetches them from your answers, or else from the course's, and
# two more for exercise 3:

# %%
attention_backward = part("04", "attention_backward")
split_heads, merge_heads = part("05", "split_heads"), part("05", "merge_heads")
cross_entropy, embedding_backward = part("01", "cross_entropy"), part("02", "embedding_backward")


# %% tags=["exercise"]
def multi_head_backward(dout, cache):
    """Gradients of multi_head(query, key, value, mask).

    dout (B, Tq, C); cache is the tuple query (B, H, Tq, D), key and value (B, H, Tk, D), weights (B, H, Tq, Tk)
    → the tuple dquery (B, Tq, C), dkey (B, Tk, C), dvalue (B, Tk, C), with C = H·D.
    """
    raise NotImplementedError


# %%
multi_head_backward = check(multi_head_backward)

# %% [markdown] tags=["help"]
# `merge_heads` only puts numbers in other places. Which function puts them back? And what is handed from it to the
# attention that lies before it?
#
# ---
#
# The gradient of the heads' outputs is `split_heads(dout, H)`, where H is the second axis of the query. Hand it to
# `attention_backward`. What that returns is split into heads; query, key and value were not, before `multi_head`.

# %% [markdown]
# Against central differences, through a number that depends on every output:

# %%
layers = Layers({}, num_heads=2)
arrays = {"query": rng.standard_normal((2, 3, 8)), "key": rng.standard_normal((2, 4, 8))}
arrays["value"] = rng.standard_normal((2, 4, 8))
mask, dout = rng.random((2, 1, 3, 4)) < 0.7, rng.standard_normal((2, 3, 8))


def moved(name, place, by):
    """The number, with one element of one array moved."""
    changed = {key: array.copy() for key, array in arrays.items()}
    changed[name][place] += by
    return (dout * layers.multi_head(*changed.values(), mask)[0]).sum()


gradients = multi_head_backward(dout, layers.multi_head(*arrays.values(), mask)[1])
for name, gradient in zip(arrays, gradients, strict=True):
    places = list(np.ndindex(gradient.shape))
    slopes = [(moved(name, place, 1e-5) - moved(name, place, -1e-5)) / 2e-5 for place in places]
    print(f"d{name:<6} against central differences {error(gradient.ravel(), np.array(slopes)):.1e}")

# %% [markdown]
# ## A layer of the decoder
#
# Its forward, as in [lesson 08](08_model.ipynb): three sub-layers, and Add & Norm around each. `name` is the layer's,
# such as `decoder.layers.0`.
#
# ```python
# out, self_attention = layers.self_attention(f"{name}.self_attention", x, mask)
# x, self_norm = layers.add_norm(f"{name}.self_attention_norm", x, out)
# out, cross_attention = layers.cross_attention(f"{name}.cross_attention", x, memory, memory_mask)
# x, cross_norm = layers.add_norm(f"{name}.cross_attention_norm", x, out)
# out, feed_forward = layers.feed_forward(f"{name}.feed_forward", x)
# x, last_norm = layers.add_norm(f"{name}.feed_forward_norm", x, out)
# return x, (self_attention, self_norm, cross_attention, cross_norm, feed_forward, last_norm)
# ```
#
# Each of these has a backward with the same name and `_backward` behind it, which takes (dout, cache):
#
# * `layers.self_attention_backward` and `layers.feed_forward_backward` return the gradient of their `x`;
# * `layers.cross_attention_backward` returns two, that of its `x` and that of the memory;
# * `layers.add_norm_backward` returns two: one for `x`, which passes by the sub-layer, and one for `out`, which goes
#   into the sub-layer.
#
# ### Exercise 2 ★★☆: back through a layer of the decoder


# %% tags=["exercise"]
def decoder_layer_backward(layers, dx, cache):
    """Back through one layer of the decoder.

    dx (B, T, C) is the gradient of the layer's output; cache is the tuple that its forward returned
    → the tuple dx of the layer's input (B, T, C), dmemory (B, Ts, C).
    """
    raise NotImplementedError


# %%
decoder_layer_backward = check(decoder_layer_backward)

# %% [markdown] tags=["help"]
# Begin at the forward's last line. Add & Norm returns two gradients. One of them goes through a sub-layer and comes out
# as a gradient of the same `x` as the other. What becomes of two gradients of one array?
#
# ---
#
# The last two lines of the forward are undone by `dx, dout = layers.add_norm_backward(dx, last_norm)` and
# `dx = dx + layers.feed_forward_backward(dout, feed_forward)`. The other four go the same way; cross-attention gives
# dmemory besides.

# %% [markdown]
# ## The whole model
#
# What is left is to put the loss on top and to lead its gradient down to every weight. The model has these functions:
#
# * `model.encode(source)` → the memory, and a cache;
# * `model.decode(target_in, memory, source)` → the hidden states (B, Tt, C), and a cache; the mask needs `source`;
# * `model.decode_backward(dhidden, cache)` → the gradient of what `embed` computed for the target, before its dropout,
#   and dmemory;
# * `model.encode_backward(dmemory, cache)` → the gradient of what `embed` computed for the source, before its dropout.
#
# The two backwards add the gradients of their weights to `model.gradients`, except that of the table of tokens. The
# table is used three times: `embed` computes $\sqrt C \cdot \text{table}[\text{ids}]$ (plus positions) for the source
# and for the target, and the logits are $\text{hidden} \cdot \text{table}^\top$. So its gradient is a sum of three, and
# yours to write.
#
# ### Exercise 3 ★★★: the gradients of the whole model


# %% tags=["exercise"]
def model_gradients(model, source, target_in, target_out, label_smoothing=0.1):
    """The loss of a batch; adds the gradient of every weight to `model.gradients`.

    source (B, Ts), target_in and target_out (B, Tt): ids, 0 is padding. The loss is the mean over the tokens of
    target_out that are no padding: cross_entropy(logits (N, V), targets (N,), label_smoothing) → loss, dlogits.
    The table is model.weights["tokens.table"] (V, C), its gradient model.gradients["tokens.table"]. The backward of
    table[ids] is embedding_backward(dy (..., C), ids (...), V) → (V, C). → the loss.
    """
    raise NotImplementedError


# %%
model_gradients = check(model_gradients)

# %% [markdown] tags=["help"]
# Write the forward first: memory, hidden states, the rows of them that are scored, logits, loss. Then go back line by
# line. Which rows of `dhidden` are zero? What does `logits = rows @ table.T` say about the gradient of the table?
#
# ---
#
# With `real = target_out != 0`, the rows are `hidden[real]`, and `loss, dlogits = cross_entropy(rows @ table.T,
# target_out[real], label_smoothing)`. Then `dhidden[real] = dlogits @ table`, and zero elsewhere. The three parts of
# the table's gradient are `dlogits.T @ rows`, and √C times `embedding_backward(…, ids, len(table))`, once for the
# source and once for the target.

# %% [markdown]
# ## Your file
#
# Now the file is complete. It imports NumPy and modules that come with Python, and nothing else. To be sure, it is run
# by a Python that refuses all other packages:

# %%
path = write()
alone = """
import sys

class OnlyNumPy:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {"numpy", *sys.stdlib_module_names}:
            raise ImportError(f"{name} is not NumPy")

import numpy
sys.meta_path.insert(0, OnlyNumPy())
exec(open(sys.argv[1], encoding="utf-8").read())
print("it needs NumPy alone")
"""
done = subprocess.run([sys.executable, "-c", alone, path], capture_output=True, text=True)
print(done.stdout.strip() or done.stderr.strip())
mine = imported(path)

# %% [markdown]
# ### It translates
#
# The weights are those of the course, which lessons 10 to 12 looked into. Your file reads them by itself: a checkpoint
# is a header in JSON with the arrays behind it. Write sentences of your own. The words that it knows are those of
# the grammar: they stand in [its lexicon](../minitransformer/grammar/lexicon).

# %%
sentences = [
    "The old teacher reads a book.",
    "She is not lazy if the green skirt is blue.",
    "The strange actress did not look at the quiet boy.",
]
model, tokenizer = mine.load("weights/en-de.safetensors")
package = Translator.from_checkpoint("weights/en-de.safetensors")
for sentence, theirs in zip(sentences, package.translate(sentences, beam=4), strict=True):
    ours = mine.translate(model, tokenizer, sentence)
    print(f"{sentence}\n   {ours}{'' if ours == theirs else f'   (the package: {theirs})'}")

# %% [markdown]
# ### Its gradients are right
#
# The referee of lesson 00 once more, on the whole model in float64: three elements of every weight, through the loss.

# %%
exact = mine.MyTransformer({name: weight.astype(np.float64) for name, weight in model.weights.items()}, 6)
examples = [(tokenizer.encode(english), tokenizer.encode(german)) for english, german in pairs("test", 0, count=4)]


def batch_of(examples):
    """Pairs of ids → source (B, Ts), target_in and target_out (B, Tt), filled up with 0."""
    rows = zip(*(([*source, 2], [1, *target], [*target, 2]) for source, target in examples), strict=True)
    return [np.array([ids + [0] * (max(map(len, part)) - len(ids)) for ids in part]) for part in rows]


batch = batch_of(examples)
exact.loss_and_gradients(*batch)
found = {name: gradient.copy() for name, gradient in exact.gradients.items()}
errors = {}
for name, weight in exact.weights.items():
    for place in [tuple(rng.integers(weight.shape)) for _ in range(3)]:
        was, losses = weight[place], []
        for value in (was + 1e-5, was - 1e-5):
            weight[place] = value
            losses.append(exact.loss_and_gradients(*batch))
        weight[place] = was
        slope = (losses[0] - losses[1]) / 2e-5
        errors[name] = max(errors.get(name, 0), error(np.array(found[name][place]), np.array(slope)))
worst = max(errors, key=errors.get)
print(f"{len(errors)} weights; the largest error, {errors[worst]:.1e}, is in {worst}")

# %% [markdown]
# ### It trains
#
# A small model from nothing, on short sentences of the grammar, for a minute: one layer on each side, 64 numbers a
# token. Matrices start within half of Xavier's bound, as the course's did. What does it write after a minute?

# %%
SECONDS, WIDTH, INNER = 60, 64, 128


def start_of(name, shape):
    """New values for a weight of the course's model, at the smaller width."""
    shape = [{96: WIDTH, 192: 2 * WIDTH, 288: 3 * WIDTH, 384: INNER}.get(size, size) for size in shape]
    if name == "tokens.table":
        values = rng.standard_normal(shape) / WIDTH**0.5
    elif len(shape) == 2:
        values = rng.uniform(-0.5, 0.5, shape) * (6 / sum(shape)) ** 0.5
    else:
        values = np.full(shape, float(name.endswith("gamma")))
    return values.astype(np.float32)


kept = {name: weight for name, weight in model.weights.items() if "layers.1" not in name}
small = mine.MyTransformer({name: start_of(name, weight.shape) for name, weight in kept.items()}, num_heads=4)
short = [pair for pair in pairs("train", 0, count=20_000) if len(pair[0].split()) <= 6]
known = [(tokenizer.encode(english), tokenizer.encode(german)) for english, german in short]


def endless():
    while True:
        yield batch_of([known[i] for i in rng.integers(0, len(known), 64)])


losses = small.train(endless(), SECONDS, warmup_steps=100)
for sentence in ("The dog sleeps.", "She sees the cat.", "The old teacher reads a book."):
    print(f"{sentence:<32}{mine.translate(small, tokenizer, sentence)}")

# %% tags=["picture"]
draw_training(losses, SECONDS)
plt.show()

# %% [markdown]
# The file is yours. It lies in the folder `answers`; copy it wherever you like, with the weights beside it, and use it
# there:
#
# ```python
# import my_transformer as mine
#
# model, tokenizer = mine.load("en-de.safetensors")
# print(mine.translate(model, tokenizer, "The old teacher reads a book."))
# ```
#
# If you change it in `answers`, and run this lesson again, your changes are kept under another name.
#
# ## Common mistakes, and what they look like
#
# * **Two gradients of one array, of which one is kept.** The loss still falls, since half of a gradient often points
#   downhill too. Only central differences notice.
# * **A cache of another layer.** Shapes agree, numbers do not. Here, too, the loss falls for a while.
# * **The table's gradient without one of its uses.** Without the output layer's, rare words are never learned. Without
#   √C, the embeddings learn too slowly.
# * **Padding in the loss.** It looks very good: padding is easy to predict, and the loss is a mean.
# * **Gradients that are not cleared** between steps: every step also follows all steps before it.
#
# Each of these can be tried in a line or two. Here is the first, in the feed-forward networks: what comes through them
# is lost, what passes by them is kept. Only the weights of the decoder's last norm stay right: no feed-forward network
# lies between them and the loss.

# %%
half = mine.MyTransformer(exact.weights, 6)
half.feed_forward_backward = lambda dout, cache: 0 * dout  # the gradient through the feed-forward networks is lost
half.loss_and_gradients(*batch)
wrong = {name: error(half.gradients[name], found[name]) for name in found}
count = sum(value > 1e-9 for value in wrong.values())
print(f"the loss is as before; of {len(wrong)} weights, the gradients of {count} are wrong")

# %% [markdown]
# ## What changed since 2017
#
# The file is not far from the models of today. GPT-2 keeps the decoder without its cross-attention and puts the norms
# first; BERT keeps the encoder. Llama has RMSNorm for layer normalisation, rotations for sinusoids, a gate in the
# feed-forward network. Each of these is a change of a few lines, and each needs a backward.
#
# ## Where next
#
# [Lesson 19](19_gpt.ipynb) makes a GPT of it: a decoder alone. Or make it yours in earnest: pre-norm, a key/value cache
# for `search`. The package's [`textbook`](../minitransformer/textbook/paper.py) has the plain arithmetic of all parts,
# and [lesson 14](14_numpy_speed.ipynb) says how to make it fast.
