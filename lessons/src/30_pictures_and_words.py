# %% [markdown]
# # 30 · Pictures and words: a decoder that looks, and two towers that meet
#
# **You will be able to** let a decoder describe a picture, and measure where it looks for each word; write the loss of
# CLIP and its gradients by hand; and find a picture's text among hundreds, and count ties honestly. In optional parts:
# ask a model for pairs of words that it has never seen together, and see what temperature and batch do.
#
# | | |
# |---|---|
# | you know | the [decoder](08_model.ipynb), [patches](22_vit.ipynb), [cross-entropy](01_softmax.ipynb) |
# | runs in | 120 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | §3.2.3: the decoder's attention to the memory; §7: "input and output modalities other than text" |
# | in the package | [`captioner.py`](../minitransformer/models/captioner.py), `models/contrastive.py` |
#
# The decoder of lesson [08](08_model.ipynb) writes a German sentence. At each word it asks the *memory*, the encoder's
# vectors of the English words. But it never sees those words. It sees a list of vectors. **What would it write if they
# came from a picture?** The paper ends with this plan: it wants "to extend the Transformer to problems involving input
# and output modalities other than text", to "images, audio and video".

# %%
import itertools

import numpy as np

from course import start
from course.lesson_30 import pictures as drawn
from course.lesson_30.corners import NEW, PATCH, SIDE, WORDS, batch, draw_scenes, pictures, pixels_of, tokenizer, tokens
from course.measuring import blas_threads
from course.training import train
from minitransformer import Transformer, TransformerConfig
from minitransformer.decoding.describer import Describer
from minitransformer.gradcheck import check_gradients
from minitransformer.grammar.captions import caption, describe, judge, spell
from minitransformer.inside import attention_maps
from minitransformer.layers import Context
from minitransformer.models import Captioner, CaptionerConfig
from minitransformer.ops import adam_step, patches_forward

check = start("30")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)
scenes = draw_scenes(np.random.default_rng(1), 300)  # to test with; training draws others
print(f"a picture: {pictures(scenes[:1]).shape[1:]} (channels, height, width), numbers from −1 to 1")
for scene in scenes[:3]:
    print(caption(scene))
kinds = len(WORDS[0]) * (len(WORDS[1]) * len(WORDS[2]) - len(NEW))
print(f"captions that training may show: {kinds**2 * 3:,}")

# %% [markdown]
# Photographs would need millions of examples and people who describe them. Our [pictures](course/lesson_30/corners.py)
# are drawn by a program, so their captions are known exactly, and every word of a model's caption is either right or
# wrong. Two things lie on grey ground. Each has a size, a colour and a shape, and the caption also says where the first
# one lies, seen from the second: left or right, or above or below, along the axis on which they are further apart. The
# left (else the upper) one is named first.
#
# ## A memory is a list of vectors
#
# The first of the three uses of attention in §3.2.3 takes its queries from the decoder, and its keys and values from
# the memory $M$. For the $T_q$ words so far and a memory of $N$ vectors:
#
# $$ \operatorname{softmax}\Bigl(\frac{(X W^Q)(M W^K)^\top}{\sqrt D}\Bigr)\, M W^V
# \qquad X\ (T_q, C), \quad M\ (N, C), \quad \text{weights } (T_q, N) $$
#
# Nothing in it says where $M$ comes from. So we cut a picture into patches (lesson [22](22_vit.ipynb)), let an encoder
# read them, and give its output to the decoder as the memory. Each patch is a "word" of the source.

# %% tags=["picture"]
shown = scenes[1]
drawn.draw_scene(pictures([shown])[0], PATCH, caption(shown))

# %% [markdown]
# The model has one block of the encoder over the patches (pre-norm, learned positions, as in ViT) and one block of the
# decoder over the words: causal self-attention, cross-attention, feed-forward. That is all. Here is its forward, from
# parts that earlier lessons built:

# %%
config = CaptionerConfig(
    len(tokenizer), image_size=SIDE, patch_size=PATCH, d_model=64, num_heads=4, d_ff=128, num_layers=1, max_length=16
)
captioner = Captioner(config)
images, (target_in, target_out) = pictures(scenes[:2]), tokens([caption(scene) for scene in scenes[:2]])


def log_softmax(x, axis):
    x = x - x.max(axis=axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


def logits_of(memory):
    hidden, _ = captioner.decoder.forward(target_in, Context(memory=memory))  # lesson 08's decoder, (B, T, C)
    return hidden @ captioner.tokens.table.value.T  # the table of tokens is the output layer, (B, T, V)


rows, _ = patches_forward(images, PATCH)  # lesson 22's patches, (B, 36, 48)
memory, _ = captioner.encode(images)  # a linear map of them, positions, a block: (B, 36, 64)
print(f"patches {rows.shape}, memory {memory.shape}, words {target_in.shape}, logits {logits_of(memory).shape}")
print(f"as the package's: {abs(logits_of(memory) - captioner.forward(images, target_in)[0]).max():.0e}")
translator = Transformer(TransformerConfig(vocab_size=100, d_model=64, num_heads=4, d_ff=128, num_layers=1))
print(f"the decoder's class: {type(captioner.decoder).__name__}; the translator's: {type(translator.decoder).__name__}")
shuffled = memory[:, rng.permutation(memory.shape[1])]
moved = abs(logits_of(shuffled) - logits_of(memory)).max()
print(f"with the vectors of the memory in another order the logits change by {moved:.0e}")

# %% [markdown]
# The last line says more than it seems to. The decoder does not even know in which order the patches lie. What it can
# know of places is what the encoder has written *into* the vectors, from its positions.
#
# ## Train it
#
# The loss is that of translation, the cross-entropy of each next word (lesson [09](09_training.ipynb)). Scenes are
# drawn anew for every batch. Some pairs of a colour and a shape never occur in training; we come back to them.

# %% tags=["long"]
describer, unseen = Describer(captioner, tokenizer), draw_scenes(np.random.default_rng(2), 200, new=True)


def judged(scenes):
    """The share of captions that are wholly true, and of those that are true in each part."""
    captions = describer.describe(list(pictures(scenes)), beam=1)
    return np.mean([judge(text, scene) for text, scene in zip(captions, scenes, strict=True)], axis=0)


def watch(step):
    if step % 250 == 0:
        print(f"{step:4}{''.join(f'{each:10.0%}' for each in judged(scenes[:200]))}")


print("captions that are true, of 200 new pictures\nstep    wholly      size    colour     shape      side")
kept = set(scenes)  # no picture of the test is trained on
losses = train(captioner, lambda: batch([each for each in draw_scenes(rng, 36) if each not in kept]), 1250, watch=watch)
for text, scene in zip(describer.describe(list(pictures(scenes[:3])), beam=1), scenes, strict=False):
    print(f"{'true' if judge(text, scene).true else 'not true':<8} {text}")

# %% [markdown]
# A caption is *wholly true* if all of its words are. (A guess hardly ever would be: see the number of captions above.)
# Sizes and colours come first. Shapes and sides come later: the side, for example, needs both things at a time.
#
# ## Where does it look?
#
# In a head of the decoder's only block, a word has 36 weights, with sum 1. We can draw them over the picture, and give
# a number: which share of a word's attention lies on the thing that it names? A patch is the smallest place that
# attention knows. So a patch counts as the thing's if one of the thing's pixels is in it, and the comparison is a model
# that looks everywhere alike.
#
# ### Exercise 1 ★★☆: where a word looks


# %% tags=["exercise"]
def looked_at(weights, thing, size):
    """Show where words look in a picture, and how much of that lies on a thing.

    weights (Tq, N): each word's attention to the N patches of size × size pixels, row by row of the picture.
    thing (height, width), bool: the pixels that the thing covers. size divides height and width.
    → maps (Tq, height, width): the attention on each pixel, where all pixels of a patch share its weight equally, so
      that a word's map sums to what its weights sum to;
      shares (Tq,): the attention of each word on the patches that the thing touches, with one pixel or more;
      chance, a number: the share of a word that looks at all patches alike.
    """
    raise NotImplementedError


# %%
looked_at = check(looked_at)

# %% [markdown] tags=["help"]
# The weights stand in a row; the patches lie in a grid. How many of them are in a row of the grid? What repeats a
# number along an axis? And how do you split the rows and columns of `thing` into (patch, pixel within the patch)?
#
# ---
#
# `grid = weights.reshape(len(weights), down, across)`, then `np.repeat` along axis 1 and along axis 2, divided by
# `size**2`. `thing.reshape(down, size, across, size).any(axis=(1, 3)).ravel()` says for each patch whether it is
# touched; the shares are a product with it, and chance is its mean.

# %% [markdown]
# One thing is easy to get wrong. The decoder reads `<s> A small red …` and writes `A small red square …`: the row of
# the input word *before* writes a word. So the weights with which "red" is chosen are in the row of "small".

# %%
CROSS = "decoder.layers.0.cross_attention"
NAMES = "size", "colour", "shape"


def looks(scene):
    """The words of a scene's caption, and the attention (H, T, 36) of the row that writes each of them."""
    target, _ = tokens([caption(scene)])  # (1, 1 + T): <s>, and the words
    weights = attention_maps(captioner, pictures([scene]), target)[CROSS][0]
    return [tokenizer.decode([each]) for each in target[0, 1:]], weights[:, :-1].astype(np.float64)


words, weights = looks(shown)
maps, _, _ = looked_at(weights.mean(axis=0), pixels_of(shown.things[0]), PATCH)  # the mean of the heads
drawn.draw_looks(pictures([shown])[0], words, maps)

# %% [markdown]
# Each map is scaled by its own largest number, so that even an empty map has a bright spot. Numbers say more. Here are
# a hundred pictures: the share of each word's attention (the mean of the four heads) on the thing that it names, on the
# other thing, and by chance.

# %%
found = np.zeros((2, 3, 3))  # by thing and word: on its own thing, on the other one, by chance
for scene in scenes[:100]:
    words, weights = looks(scene)
    # A small red square is left of a big blue cross .
    for i, rows in enumerate((slice(1, 4), slice(len(words) - 4, len(words) - 1))):
        own, other = (pixels_of(scene.things[place]) for place in (i, 1 - i))
        _, on_own, chance = looked_at(weights.mean(axis=0)[rows], own, PATCH)
        _, on_other, _ = looked_at(weights.mean(axis=0)[rows], other, PATCH)
        found[i] += np.stack([on_own, on_other, np.full(3, chance)], axis=-1) / 100
print("the word          its own thing   the other thing   by chance")
for i, j in np.ndindex(2, 3):
    print(f"{('first', 'second')[i]:<7}{NAMES[j]:<7}{found[i, j, 0]:17.0%}{found[i, j, 1]:18.0%}{found[i, j, 2]:12.0%}")

# %% [markdown]
# Each word looks at the thing that it names more than by chance, and at the other thing less or about as
# much: colours and shapes most clearly. But much of the attention lies on grey ground. The weights must sum to 1
# somewhere; and the encoder's block may have moved what it knows to other patches.
#
# As always with such maps (lessons [12](12_heads.ipynb) and [22](22_vit.ipynb)): the weights say where a layer *reads*,
# and not what it finds there. The encoder has mixed the patches before.
#
# ## Pairs that it has never seen (optional)
#
# Training shows red squares and blue circles, but no red circle. Each colour and each shape has one partner that it
# never meets. Somebody who knows "red" and "circle" knows a red circle at first sight. This is called
# [*compositionality*](glossary.md#compositionality). Does our model have it?

# %%
print("never seen together:", ", ".join(" ".join(pair) for pair in sorted(NEW)))
print("               wholly      size    colour     shape      side")
for name, tested in (("seen pairs", scenes[:200]), ("new pairs", unseen)):
    print(f"{name:<11}{''.join(f'{each:10.0%}' for each in judged(tested))}")
for text, scene in zip(describer.describe(list(pictures(unseen[:3])), beam=1), unseen, strict=False):
    print(f"true: {caption(scene)}\n  it: {text}")

# %% [markdown]
# Sizes, colours and sides are right nearly as often as before, and shapes nearly never. The model says another shape,
# one that it has seen in this colour. That is not stupid. In training, "red" was never followed by "circle". So a model
# that counts the colour as evidence against the circle has a *smaller* loss there than one that does not.
#
# Is the shape lost on the way? A *probe* tells: take the vectors of the memory at the patches that a thing touches, and
# fit one linear map from their mean to the shape, by least squares. It is fitted once on things of seen pairs alone, as
# the captioner was, and once on both kinds.


# %%
def probed(scenes):
    """For each thing: the mean of its memory vectors and a 1, its shape's number, and whether its pair is new."""
    memory, _ = captioner.encode(pictures(scenes))
    vectors, shapes, is_new = [], [], []
    for each, scene in zip(memory, scenes, strict=True):
        for thing in scene.things:
            _, touched, _ = looked_at(np.eye(len(each)), pixels_of(thing), PATCH)  # 1 at each patch that it touches
            vectors.append([*(touched @ each / touched.sum()), 1])
            shapes.append(WORDS[2].index(thing.shape))
            is_new.append((thing.colour, thing.shape) in NEW)
    return np.array(vectors), np.array(shapes), np.array(is_new)


draws = np.random.default_rng(4)
fitted = probed(draw_scenes(draws, 600) + draw_scenes(draws, 600, new=True))
tested = probed(scenes[:200] + unseen)
print("a linear map fitted on     right of seen pairs   of new pairs")
for name, chosen in (("seen pairs", ~fitted[2]), ("seen and new pairs", slice(None))):
    probe, *_ = np.linalg.lstsq(fitted[0][chosen], np.eye(4)[fitted[1][chosen]], rcond=None)
    right = (tested[0] @ probe).argmax(axis=1) == tested[1]
    print(f"{name:<27}{right[~tested[2]].mean():19.0%}{right[tested[2]].mean():15.0%}")

# %% [markdown]
# The shape is not lost: one linear map finds it in both kinds of pairs, most of the time. But a map that has learned
# from seen pairs alone uses the colour too, as the captioner does, and on new pairs that is fatal. Nothing in the loss
# asks for "colour and shape are two things". The model has learned the pairs that there are. With more colours and
# shapes each colour says less about the shape. With six of each, larger captioners describe 8 % of such scenes exactly,
# and 93 % of the others ([the report](after/after.md#pictures-and-words)): better, but far from well.
#
# ## Two towers
#
# A captioner writes a text. Often a smaller question is enough: *do this picture and this text belong together?* Search
# is such a task. CLIP (Radford and others 2021) has two models, the [*towers*](glossary.md#tower). One makes a vector
# $a_i$ of each picture, the other a vector $b_i$ of each text. Both have the same width, and they shall be near each
# other if picture and text belong together. Near means: a large cosine. So each vector is divided by its length, and
# the products of all pairs of a batch are
#
# $$ u_i = \frac{a_i}{|a_i|}, \quad v_j = \frac{b_j}{|b_j|}, \qquad S_{ij} = e^{\ell}\, u_i \cdot v_j $$
#
# $S$ is $(B, B)$. The *scale* $e^\ell$ is 1 over the temperature of a softmax. It is learned, as its logarithm $\ell$.
# Now row $i$ of $S$ is a classification: which of the $B$ texts belongs to picture $i$? The answer is text $i$. And
# column $j$ is another one: which of the $B$ pictures belongs to text $j$? Nobody has to write labels; that pictures
# and texts come in pairs is enough. The loss is the mean of both cross-entropies:
#
# $$ L = -\frac1{2B} \sum_i \Bigl( \log \frac{e^{S_{ii}}}{\sum_j e^{S_{ij}}} + \log \frac{e^{S_{ii}}}{\sum_j
# e^{S_{ji}}} \Bigr) $$
#
# It is a [*contrastive loss*](glossary.md#contrastive-loss): it pulls each vector to its partner, and pushes it away
# from the others' partners.
#
# ### Exercise 2 ★☆☆: the contrastive loss
#
# `log_softmax(x, axis)`, above, is the logarithm of the softmax along an axis. It never overflows.


# %% tags=["exercise"]
def contrastive_loss(a, b, log_scale):
    """The mean of both cross-entropies of S = exp(log_scale) · u vᵀ, where u and v are a and b, divided by lengths.

    a, b (B, C): row i of a belongs to row i of b, and to no other; no row is 0. log_scale: an array of shape ().
    → a number.
    """
    raise NotImplementedError


# %%
contrastive_loss = check(contrastive_loss)

# %% [markdown] tags=["help"]
# What is the length of a row? `keepdims=True` lets you divide by it. Along which axis is the softmax of the rows, along
# which that of the columns? Where in the matrix are the right answers?
#
# ---
#
# `u = a / np.sqrt((a * a).sum(axis=1, keepdims=True))`, and so `v`. `logits = np.exp(log_scale) * (u @ v.T)`. The right
# answers are the diagonal: `-(np.diag(log_softmax(logits, 1)) + np.diag(log_softmax(logits, 0))).mean() / 2`.

# %%
a, b = rng.standard_normal((2, 64, 32))
print(f"any vectors, scale 1: {contrastive_loss(a, b, np.array(0.0)):.2f}; the logarithm of 64: {np.log(64):.2f}")
print(f"each its own partner, scale 1: {contrastive_loss(a, a, np.array(0.0)):.2f}, scale 20: "
      f"{contrastive_loss(a, a, np.log(20.0)):.0e}")  # fmt: skip

# %% [markdown]
# At scale 1 even perfect vectors have a large loss. Cosines are from −1 to 1, so no text can be more than $e^2 ≈ 7$
# times as likely as another. So there must be a scale.
#
# ## Backwards
#
# Three steps. **The two softmaxes.** The gradient of a cross-entropy is softmax minus one-hot (lesson
# [01](01_softmax.ipynb)). With $P$ the softmax of the rows and $Q$ that of the columns:
#
# $$ \mathrm{d}S = \frac{(P - I) + (Q - I)}{2B} $$
#
# **The product.** $S = e^\ell\, U V^\top$ is a product of three, so
#
# $$ \mathrm{d}U = e^\ell\, \mathrm{d}S\, V, \qquad \mathrm{d}V = e^\ell\, \mathrm{d}S^\top U $$
#
# $$ \mathrm{d}\ell = \sum_{ij} \mathrm{d}S_{ij}\, S_{ij} $$
#
# In the last one the factor is $S_{ij}$ itself, because $\partial e^\ell / \partial \ell = e^\ell$.
#
# **The length.** Take one row, $u = a / |a|$. For a small $\varepsilon$, $|a + \varepsilon|^2 \approx |a|^2 +
# 2\,a \cdot \varepsilon$: the length grows by $u \cdot \varepsilon$. So $u$ moves by
#
# $$ \frac{\varepsilon}{|a|} - \frac{a\,(u \cdot \varepsilon)}{|a|^2} = \frac{\varepsilon - u\,(u \cdot
# \varepsilon)}{|a|} $$
#
# This linear map is symmetric, so the gradient goes back through the same one:
#
# $$ \mathrm{d}a = \frac{\mathrm{d}u - u\,(u \cdot \mathrm{d}u)}{|a|} $$
#
# What of $\mathrm{d}u$ lies along $u$ would change the length alone, and the length is thrown away.
#
# ### Exercise 3 ★★☆: back through the contrastive loss


# %% tags=["exercise"]
def contrastive_loss_backward(a, b, log_scale):
    """The gradients of contrastive_loss(a, b, log_scale).

    → da (B, C), db (B, C), and dlog_scale, a number.
    """
    raise NotImplementedError


# %%
contrastive_loss_backward = check(contrastive_loss_backward)

# %% [markdown] tags=["help"]
# Compute the forward again up to the logits. You need u, v, and the lengths of both. Then take the three steps in their
# order. Which of the two softmaxes is `np.exp(log_softmax(logits, 0))`? How many one-hot matrices
# are subtracted?
#
# ---
#
# `dlogits = (np.exp(log_softmax(logits, 1)) + np.exp(log_softmax(logits, 0)) - 2 * np.eye(B)) / (2 * B)`. Then
# `dlog_scale = (dlogits * logits).sum()`, `du = scale * (dlogits @ v)`, `dv = scale * (dlogits.T @ u)`, and `da = (du -
# (du * u).sum(axis=1, keepdims=True) * u) / lengths`, where the lengths of a are a column.

# %%
arrays = {"a": rng.standard_normal((6, 4)), "b": rng.standard_normal((6, 4)), "log_scale": np.array(1.2)}
worst = check_gradients(
    lambda *arrays: (contrastive_loss(*arrays), arrays),
    lambda dloss, arrays: tuple(dloss * each for each in contrastive_loss_backward(*arrays)),
    arrays,
)
print("central differences: ", ", ".join(f"d{name} {each:.0e}" for name, each in worst.items()))

# %% [markdown]
# ## Two small towers, trained
#
# Ours are as simple as they can be. The tower of pictures maps each patch by itself (linear, ReLU), takes the *mean*
# over the patches, and ends with a linear map. The tower of texts takes the mean of its words' vectors. So a text is a
# *bag* of words: for each word its share of the caption, wherever it stands.

# %%
seen = [each for each in draw_scenes(np.random.default_rng(3), 3000) if each not in kept]
texts, new_texts = ([caption(scene) for scene in each] for each in (seen, scenes))
known = np.unique(np.concatenate([tokenizer.encode(text) for text in texts]))
V = len(known)


def bags(texts, neighbours=False):
    """The share of each word in each text, (B, V); or that of each two words that are neighbours, (B, V²)."""
    found = []
    for text in texts:
        words = np.searchsorted(known, tokenizer.encode(text))
        parts = words[:-1] * V + words[1:] if neighbours else words
        found.append(np.bincount(parts, minlength=V**2 if neighbours else V) / len(parts))
    return np.stack(found).astype(np.float32)


class Towers:
    """Towers for pictures, patches (B, 36, 48) → linear → ReLU → mean → linear, and for texts, bags (B, V) → linear."""

    def __init__(self, vocabulary, scale=1 / 0.07, hidden=128, width=32):
        draw = np.random.default_rng(0).standard_normal
        tables = draw((48, hidden)) / 48**0.5, draw((hidden, width)) / hidden**0.5, draw((vocabulary, width))
        starts = *tables, np.zeros(hidden), np.log(scale)
        self.theta = np.concatenate([np.ravel(each) for each in starts]).astype(np.float32)
        parts = np.split(self.theta, np.cumsum([np.size(each) for each in starts])[:-1])
        shaped = (part.reshape(np.shape(each)) for part, each in zip(parts, starts, strict=True))
        self.weight, self.out, self.table, self.bias, self.log_scale = shaped

    def forward(self, patches, bags):
        h = patches @ self.weight + self.bias  # (B, 36, hidden)
        pooled = np.maximum(h, 0).mean(axis=1)  # (B, hidden)
        return pooled @ self.out, bags @ self.table, (patches, bags, h, pooled)

    def backward(self, da, db, cache):
        patches, bags, h, pooled = cache
        dout, dtable = pooled.T @ da, bags.T @ db
        dh = (h > 0) * (da @ self.out.T)[:, None] / h.shape[1]
        dweight = patches.reshape(-1, patches.shape[-1]).T @ dh.reshape(-1, h.shape[-1])
        return dweight, dout, dtable, dh.sum(axis=(0, 1))

    def fit(self, patches, bags, steps=400, size=64, learns_scale=True):
        m, v = np.zeros((2, len(self.theta)), np.float32)
        draws, losses = np.random.default_rng(0), []
        for step in range(1, steps + 1):
            chosen = draws.choice(len(patches), size, replace=False)
            a, b, cache = self.forward(patches[chosen], bags[chosen])
            losses.append(float(contrastive_loss(a, b, self.log_scale)))
            da, db, dlog_scale = contrastive_loss_backward(a, b, self.log_scale)
            parts = *self.backward(da, db, cache), dlog_scale * learns_scale
            grad = np.concatenate([np.ravel(each) for each in parts]).astype(np.float32)
            adam_step(self.theta, grad, m, v, step=step, lr=3e-3 * (1 - step / (steps + 1)))
        return losses

    def similarities(self, patches, bags):
        """The cosine of each picture and each text; each bag is computed once, so that equal ones have equal bits."""
        bags, which = np.unique(bags, axis=0, return_inverse=True)
        a, b, _ = self.forward(patches, bags)
        a, b = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (a, b))
        return (a @ b.T)[:, which.ravel()]


def patches_of(scenes):
    return patches_forward(pictures(scenes), PATCH)[0]


training, testing = patches_of(seen), patches_of(scenes)
towers = Towers(V)
losses = towers.fit(training, bags(texts))
print(f"loss of a batch of 64: {losses[0]:.2f} at first, {np.mean(losses[-50:]):.2f} at the end, "
      f"scale {np.exp(towers.log_scale):.0f}")  # fmt: skip
S = towers.similarities(testing, bags(new_texts))
drawn.draw_similarities(pictures(scenes[:6]), new_texts[:6], S[:6, :6])

# %% [markdown]
# ## What is found, and honest ties
#
# Three hundred new pictures, and their three hundred captions. For each picture, the captions are put in the order of
# their cosines. [*Recall at k*](glossary.md#recall-at-k) is the share of the pictures whose own caption is among the
# first $k$.
#
# But some pictures have the same caption, word by word, and then their cosines are equal. Which is first? Three answers
# are in use, and two are wrong. If a tie counts as found, a model that gives *the same vector to everything* has a
# recall of 100 %. If the sorting decides, the result depends on the order of the list. So say what would happen on
# average if equals were put in a random order.
#
# ### Exercise 4 ★☆☆: recall at k


# %% tags=["exercise"]
def recall(similarities, k):
    """The expected share of the rows whose own column is among the first k, if equals are put in a random order.

    similarities (N, N): row i belongs to column i, the largest number is the first. 1 ≤ k ≤ N. → a number, 0 to 1.
    """
    raise NotImplementedError


# %%
recall = check(recall)

# %% [markdown] tags=["help"]
# In row i, `nearer` columns are strictly larger than the own one, and `equal` are equal to it, with itself. At which
# places may it stand, and how many of them are among the first k? At least 0, and at most all.
#
# ---
#
# It stands at one of the places `nearer + 1` to `nearer + equal`, all equally likely. Of these, `k - nearer` are among
# the first k, if that is between 0 and `equal`: `np.clip((k - nearer) / equal, 0, 1).mean()`.

# %%
KS = 1, 5, 10


def row(name, S):
    print(f"{name:<30}{''.join(f'{recall(S, k):8.1%}' for k in KS)}")


_, which = np.unique(bags(new_texts), axis=0, return_inverse=True)
print(f"{len(S)} captions, {len(set(new_texts))} different ones, {len(set(which.ravel()))} different bags")
print(f"recall at{''.join(f'{k:>8}' for k in KS):>45}")
row("a text for a picture", S)
row("a picture for a text", S.T)
row("all vectors alike", np.ones_like(S))
row("the right bag, always", (which.ravel()[:, None] == which.ravel()) * 1.0)

# %% [markdown]
# The own caption is nearly always among the first five, and about every second time the first. Equal bags must be
# guessed (last row). And the tower of pictures has no positions: its mean can't tell left from above. All vectors alike
# have what is due to them, $k$ of 300.
#
# ## A bag has no order (optional)
#
# Exchange the colours in a caption: "a small red square … a big blue cross" becomes "a small blue square … a big red
# cross". These are the same words, so it is the same bag. A tower that takes a mean can't tell them apart, however long
# it trains. Two remedies: neighbours, so that "red square" is a part of its own; or a model that reads and looks word
# by word, our captioner. It gives a text a probability, and the larger one wins.


# %%
def log_probabilities(images, texts):
    """log P of each text for its picture, by the captioner: the sum over its tokens."""
    target_in, target_out = tokens(texts)
    by_token = log_softmax(captioner.forward(images, target_in)[0], -1)  # (B, T, vocabulary)
    own = np.take_along_axis(by_token, np.maximum(target_out, 0)[..., None], axis=-1)[..., 0]
    return (own * (target_out >= 0)).sum(axis=1)


def exchanged(scene):
    said = describe(scene)
    return spell(said._replace(colours=said.colours[::-1]))


fair = [
    scene for scene in scenes if len({thing.colour for thing in scene.things}) == 2
    and NEW.isdisjoint((one.colour, other.shape) for one, other in itertools.permutations(scene.things))
]  # fmt: skip
right, wrong = [caption(scene) for scene in fair], [exchanged(scene) for scene in fair]
print(f"{len(fair)} pictures whose colours can be exchanged; e.g.\n{right[0]}\n{wrong[0]}")


def preferred(true, false):
    """The share of the true texts that have the larger number; a tie counts half."""
    return np.mean((true > false) + (true == false) / 2)


pairs = Towers(V**2)
pairs.fit(training, bags(texts, neighbours=True))
for name, model, neighbours in (("bag of words", towers, False), ("bag of neighbours", pairs, True)):
    S = model.similarities(patches_of(fair), bags(right + wrong, neighbours))
    at = np.arange(len(fair))
    print(f"{name:<20}{preferred(S[at, at], S[at, at + len(fair)]):.0%}")
sums = [log_probabilities(pictures(fair), each) for each in (right, wrong)]
print(f"{'captioner':<20}{preferred(*sums):.0%}")
print("recall at 1, 5 and 10:")
row("bag of words", towers.similarities(testing, bags(new_texts)))
row("bag of neighbours", pairs.similarities(testing, bags(new_texts, neighbours=True)))

# %% [markdown]
# The first row is no measurement, it is a proof: equal bags, equal vectors, one half. With neighbours it still has
# ties: where only the colours differ, the neighbours are equal too. The captioner is right nearly every time: it names
# one thing after the other and looks. (CLIP's tower of texts is a Transformer, and could tell. But texts of a random
# batch can mostly be told apart by their words, so nothing asks for the order. Yuksekgonul and others (2023) found that
# CLIP and models like it often choose as a bag would.)
#
# ## Temperature, and the batch as the task (optional)
#
# Two numbers decide what the loss asks for.
#
# **The scale.** The gradient of a row is $P - I$. With a small scale $P$ is nearly even: all others push alike, also
# those that are far away already. With a large one only the nearest wrong text counts. Here the scale is fixed, and
# then learned:

# %%
for scale in (1, 5, 20, 100, 1000):
    fixed = Towers(V, scale)
    losses = fixed.fit(training, bags(texts), 200, learns_scale=False)
    row(f"scale {scale:<5} loss {np.mean(losses[-50:]):5.2f}", fixed.similarities(testing, bags(new_texts)))
learned = Towers(V)
losses = learned.fit(training, bags(texts), 200)
row(f"learned, {np.exp(learned.log_scale):<3.0f}  loss {np.mean(losses[-50:]):5.2f}",
    learned.similarities(testing, bags(new_texts)))  # fmt: skip

# %% [markdown]
# Too small is bad and too large is bad, and the learned scale is about as good as the best of the others. (The losses
# can't be compared: the scale is a part of the loss.) CLIP begins with $1/0.07$, as we do, and cuts the
# scale off at 100.
#
# **The batch.** In other losses a larger batch is a better mean of the same task. Here it *is* the task: one answer out
# of $B$. Among four captions one word is often enough, and among 256 some differ in one word only. (The losses in the
# rows below are those of different tasks, and can't be compared: by chance it is $\log B$.)

# %%
for size, steps in ((4, 200), (4, 3200), (16, 200), (64, 200), (256, 200)):
    model = Towers(V)
    losses = model.fit(training, bags(texts), steps, size)
    row(f"{size:>3} × {steps:<4} loss {np.mean(losses[-50:]):.2f}", model.similarities(testing, bags(new_texts)))

# %% [markdown]
# (Batch × steps.) With four captions and 200 steps the model has learned little. But it has also seen few pictures:
# with as many as in 200 steps of 64 it finds about as much. So here a larger batch gains nothing but more pictures.
# CLIP took 32,768 all the same, on many GPUs. Each GPU then needs the *vectors* of all the others (an all-gather,
# lesson [26](26_many_processes.ipynb)), and not only the sum of the gradients.
#
# ## Common mistakes, and what they look like
#
# * **The row of the word itself.** In row $t$ the decoder reads word $t$ and writes word $t + 1$. One row too late, the
#   map of "red" is that of the shape.
# * **A map that is scaled by its own largest number.** Every map then seems to have a hot spot. Give the number, and
#   what it is by chance.
# * **Pixels that are not as in training.** Numbers from 0 to 1, or channels in another order, raise no error.
# * **No division by the lengths.** The loss falls, because long vectors are a large scale. The cosines that search then
#   uses were never trained.
# * **The scale itself as a parameter**, and not its logarithm: one large step makes it negative, and the most unlike
#   text wins.
# * **One direction alone.** Pictures find texts, and texts find the few pictures that are near everything.
# * **The same text twice in a batch.** The loss pushes a picture away from its own caption. The larger the batch,
#   the more such pairs it holds.
# * **Recall with `>=` or with `argmax`.** See above.
#
# ## What changed since 2017 (optional)
#
# *Show, attend and tell* (Xu and others 2015) drew such maps two years before the Transformer: a recurrent decoder, and
# additive attention (lesson [03](03_before_attention.ipynb)) over 14 × 14 places of a convolutional network. With ViT
# (Dosovitskiy and others 2021) the places became patches. CLIP (Radford and others 2021) trained two towers on 400
# million pairs from the web, with batches of 32,768. Its loss needs no list of classes: to classify, one compares a
# picture with texts such as "a photo of a dog".
#
# Then came models that talk about pictures. There are two ways to join a picture to a language model that exists
# already, and you know both:
#
# * **As a memory.** Flamingo (Alayrac and others 2022) puts new layers of cross-attention between the frozen blocks of
#   a language model. They attend as ours do, with a gate that is 0 at the beginning, so that training starts with the
#   language model as it was. A small model first turns the picture's vectors into 64.
# * **As words.** LLaVA (Liu and others 2023) maps CLIP's patch vectors to the width of the language model by one linear
#   map, and puts them by the text, where word vectors would stand. There is no cross-attention at all: the
#   causal self-attention looks at the picture. First only the linear map is trained, then the language model too.
#
# Most models of today take the second way. The model stays as it is; pictures may stand anywhere in a text. Its price
# is length (lesson [23](23_efficient_attention.ipynb)): each patch is a token.
#
# Sources (arXiv): Xu and others 1502.03044, Dosovitskiy and others 2010.11929, Radford and others 2103.00020 (figure 3,
# §2.5), Yuksekgonul and others 2210.01936, Alayrac and others 2204.14198, Liu and others 2304.08485.
#
# ## Where next
#
# `python -m minitransformer train --kind captioner` trains on whole scenes, with two or three things at free places,
# six colours and six shapes, in English or (`--target de`) German, and `caption MODEL --scene 1` describes one. Open
# questions: our captioner reads pictures with one block; which parts of the caption get better with two? If half of the
# pairs are held out instead of a quarter, or one alone, what becomes of the new ones? And what if every caption came in
# two languages? There are more [ideas for projects](ideas.md). [Lesson 18](18_your_transformer.ipynb) is the one to
# come back to: everything in one file of your own.
