# %% [markdown]
# # 18 · Your Transformer, in one file
#
# **You will be able to** say that you wrote a Transformer: your parts from all lessons become one file of NumPy, which
# loads trained weights, translates, proves its gradients and, in an optional part, trains.
#
# | | |
# |---|---|
# | you know | the parts, from lessons 00 to [11](11_decoding.ipynb); above all the [whole model](08_model.ipynb) |
# | runs in | 150 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | all of it |
# | in the package | [`textbook`](../minitransformer/textbook/paper.py), [`Block`](../minitransformer/layers/block.py) |
#
# Your *correct* answers were kept in the folder `answers`. Here they become one model; where you left one out, or a
# whole lesson, the course's stand in. Three backwards are still missing: through several heads, through a layer of the
# decoder, and through the whole model.

# %%
import numpy as np

from course import start
from course.lesson_18.assembly import imported, part, run_with_numpy_alone, write
from course.lesson_18.pictures import draw_training
from course.lesson_18.trials import batch_of, batches_of, gradient_errors, initial_weights
from course.measuring import blas_threads
from course.style import show
from minitransformer.decoding import Translator
from minitransformer.grammar import pairs

check = start("18")
blas_threads(1)  # lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## The parts that you have
#
# A ✓ marks a part that is yours, a dot one of the course's. To replace a dot, solve the exercise of that name and run
# this cell again.

# %%
path = write()

# %% [markdown]
# [`layers.py`](course/lesson_18/layers.py) and [`model.py`](course/lesson_18/model.py) call your parts. A forward there
# returns its output and a cache. A backward takes a gradient and the cache, adds to the gradients of its weights, and
# returns the gradient of its input.
#
# This is how several heads are computed (without a mask, `attention` takes the place of the middle line):
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
# You need two lines, and the first three of the functions below; the last two are for exercise 3. Call lesson 04's as
# `attention_backward(dout, query, key, value, weights)`.

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
# `merge_heads` only puts numbers in other places. Which function puts them back? And which function goes back through
# the attention before it?
#
# ---
#
# The gradient of the heads' outputs is `split_heads(dout, H)`, where H is the length of the query's second axis. Pass
# it to `attention_backward`. What comes back is split into heads; the inputs of `multi_head` were not.

# %% [markdown]
# ## A layer of the decoder
#
# Its forward is your `decoder_layer` of [lesson 08](08_model.ipynb):
#
# ```python
# x = layer.self_attention_norm(x + layer.self_attention(x, mask))
# x = layer.cross_attention_norm(x + layer.cross_attention(x, memory, memory_mask))
# return layer.feed_forward_norm(x + layer.feed_forward(x))
# ```
#
# The cache is a tuple of six: `(self_attention, self_norm, cross_attention, cross_norm, feed_forward, last_norm)`.
# These backwards take (dout, cache):
#
# * `layers.self_attention_backward` and `layers.feed_forward_backward` return the gradient of their `x`;
# * `layers.cross_attention_backward` returns two, that of its `x` and that of the memory;
# * `layers.add_norm_backward` goes back through a norm, the sum inside it and dropout. It returns two: the gradient of
#   the `x` that bypasses the sub-layer, and `dout`, the gradient of the sub-layer's output.
#
# ### Exercise 2 ★★☆: back through a layer of the decoder


# %% tags=["exercise"]
def decoder_layer_backward(layers, dx, cache):
    """Back through one layer of the decoder.

    dx (B, T, C) is the gradient of the layer's output; cache is the tuple of the six caches, in the forward's order
    → the tuple dx of the layer's input (B, T, C), dmemory (B, Ts, C).
    """
    raise NotImplementedError


# %%
decoder_layer_backward = check(decoder_layer_backward)

# %% [markdown] tags=["help"]
# Begin with the forward's last norm. Add & Norm gives two gradients. One of them goes through a sub-layer and comes out
# as a gradient of the same `x` as the other. What happens to two gradients of one array?
#
# ---
#
# The last line of the forward is undone by `dx, dout = layers.add_norm_backward(dx, last_norm)` and
# `dx = dx + layers.feed_forward_backward(dout, feed_forward)`. The other four go the same way; cross-attention gives
# dmemory besides.

# %% [markdown]
# ## The whole model
#
# The last step goes from the loss to every weight. The model has these functions:
#
# * `model.encode(source)` → the memory, and a cache;
# * `model.decode(target_in, memory, source)` → the hidden states (B, Tt, C), and a cache; the mask needs `source`;
# * `model.decode_backward(dhidden, cache)` → the gradient of the target's embeddings, and dmemory;
# * `model.encode_backward(dmemory, cache)` → the gradient of the source's embeddings.
#
# The two backwards add the gradients of all weights to `model.gradients`, except for the table of tokens: its gradient
# is your part. The model uses this table three times: the embeddings of the source and of the target are
# $\sqrt C \cdot \text{table}[\text{ids}]$ plus positions, and the logits are $\text{hidden} \cdot \text{table}^\top$.
# Where one array is used three times, its gradient is a sum of three.
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
# The file is complete. It needs nothing but Python and NumPy. To prove it, we run the file in a Python that refuses all
# other packages:

# %%
path = write()
run_with_numpy_alone(path)
mine = imported(path)

# %% [markdown]
# ### It translates
#
# Your file reads the course's trained weights. Try sentences of your own, with words of the grammar's
# [lexicon](../minitransformer/grammar/lexicon).

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
# The file lies in `answers`. Copy it, with the weights:
#
# ```python
# import my_transformer as mine
#
# model, tokenizer = mine.load("en-de.safetensors")
# print(mine.translate(model, tokenizer, "The old teacher reads a book."))
# ```
#
# If you change it and run this lesson again, your changes are kept under another name.
#
# ### Its gradients are right
#
# Lesson 00's test for the whole file: central differences of the loss, at three elements of every weight, in float64.

# %%
exact = mine.MyTransformer({name: weight.astype(np.float64) for name, weight in model.weights.items()}, 6)
four = [(tokenizer.encode(english), tokenizer.encode(german)) for english, german in pairs("test", 0, count=4)]
errors = gradient_errors(exact, batch_of(four), rng)
worst = max(errors, key=errors.get)
print(f"{len(errors)} weights; the largest error, {errors[worst]:.1e}, is in {worst}")

# %% [markdown]
# ### A gradient that is lost (optional)
#
# In the feed-forward networks we now keep only the gradient that bypasses them. How many weights does this spoil?

# %%
exact.feed_forward_backward = lambda dout, cache: 0 * dout
wrong = sum(value > 1e-6 for value in gradient_errors(exact, batch_of(four), rng).values())
print(f"the loss is as before; of {len(errors)} weights, the gradients of {wrong} are wrong")

# %% [markdown]
# ### It trains (optional)
#
# We train a small model from scratch on short sentences of the grammar: one layer on each side, 64 numbers a token.
# This takes about a minute on two cores. What can the model translate then?

# %% tags=["long"]
STEPS, draws = 1200, np.random.default_rng(0)
small = mine.MyTransformer(initial_weights(model, width=64, d_ff=128, rng=draws), num_heads=4)
short = [pair for pair in pairs("train", 0, count=20_000) if len(pair[0].split()) <= 6]
known = [(tokenizer.encode(english), tokenizer.encode(german)) for english, german in short]
losses = small.train(batches_of(known, draws), STEPS, warmup_steps=250)
for sentence in ("The child laughs.", "She is tired.", "He does not sleep."):
    print(f"{sentence:<32}{mine.translate(small, tokenizer, sentence)}")

# %% tags=["picture"]
draw_training(losses)
show("The loss of each step: it falls steeply in the first few hundred steps, and then more and more slowly.")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **Only one of two gradients of an array is kept.** The loss still falls, since half of a gradient often points
#   downhill too. Only central differences show the mistake.
# * **The cache of another layer.** Shapes agree, numbers do not, and again the loss falls for a while.
# * **The table's gradient lacks one of its uses.** Without the output layer's part, rare words are never learned.
#   Without √C, the embeddings learn too slowly.
# * **Padding in the loss.** The loss looks very good, because padding is easy to predict.
# * **Gradients are not cleared.** Then every step also follows the gradients of all steps before it.
#
# ## What changed since 2017
#
# Today's models change only a few lines of this file, and each change needs a backward. GPT-2 drops cross-attention and
# puts the norms first. BERT keeps only the encoder. Llama has RMSNorm, rotary positions and a gated feed-forward
# network.
#
# ## Where next
#
# [Lesson 19](19_gpt.ipynb) makes a GPT of your file: a decoder alone. Or improve the file: use pre-norm, or give
# `search` lesson 11's key/value cache. [Lesson 14](14_numpy_speed.ipynb) says how to make it fast.
