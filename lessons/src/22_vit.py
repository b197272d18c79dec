# %% [markdown]
# # 22 · ViT: an image is a sentence of patches
#
# **You will be able to** give an encoder images to read, forward and backward; say what a convolutional network knows
# from the start that this model has to learn; and, in an optional part, ask what it looks at and test the answer.
#
# | | |
# |---|---|
# | you know | [lesson 21](21_bert.ipynb): an encoder with `[CLS]`; [positions](06_positions.ipynb) |
# | runs in | 120 s at most on 2 cores; scikit-learn for its images; no GPU, no PyTorch, no network |
# | in the paper | *An image is worth 16x16 words* (Dosovitskiy and others 2021), §3, §4.3, §4.5, figures 1, 3, 6, 7 |
# | in the package | [`vit.py`](../minitransformer/models/vit.py), [`patches`](../minitransformer/ops/convolution.py) |
#
# An encoder reads a sequence of vectors, and nothing in it knows that they stand for words: attention compares vectors,
# the feed-forward network changes each one, the norms scale them. Only the very first step, the look-up in a table, is
# about language. **What would happen if the words were pieces of a picture?** Cut an image into squares, take the
# pixels of each square as its vector, and keep the rest of the encoder.

# %%
import numpy as np

from course import start
from course.lesson_22.cnn import CNN
from course.lesson_22.linear import linear_map
from course.lesson_22.pictures import draw_little_data, draw_looks, draw_positions, draw_sentence
from course.measuring import blas_threads
from course.style import show
from course.training import train
from minitransformer.data.digits import digits
from minitransformer.gradcheck import check_gradients, error
from minitransformer.inside import attention_maps
from minitransformer.models import ViT, ViTConfig
from minitransformer.ops import linear_forward, patches_forward

check = start("22")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)
training, held_out = digits()
images, classes = training.images, training.classes  # (N, 1, 8, 8), (N,)
new_images, new_classes = held_out.images, held_out.classes
print(f"{len(images):,} handwritten digits to learn from, {len(new_images)} held out")
print(f"an image is {images.shape[1:]} (channels, height, width), pixels from {images.min():.0f} to {images.max():.0f}")

# %% [markdown]
# The images come with scikit-learn and are small enough for a laptop: 8 × 8 pixels, −1 where there is no ink and 1
# where there is most. A colour image has three channels; ours have one.
#
# ## The picture: a sentence of patches

# %% tags=["picture"]
SIZE = 2
draw_sentence(images[3, 0], SIZE)
show("A handwritten 3 of 8 × 8 pixels, cut into 16 numbered squares, and the same squares in a row, row by row of the "
     "image, behind a class token.")  # fmt: skip

# %% [markdown]
# Each square is called a [**patch**](glossary.md#patch). With patches of 2 × 2, an image is a sentence of $T = 16$
# words, and each word has 4 numbers. A linear map $E$ turns each word into a vector of width $C$. A learned vector $c$,
# the [**class token**](glossary.md#class-token), stands before them, as `[CLS]` did. Then a table $P$ of learned
# positions is added. This is equation 1 of the paper, with $x_p$ the numbers of patch $p$:
#
# $$ z = \big[\,c;\; x_1 E;\; x_2 E;\; \dots;\; x_T E\,\big] + P \qquad (1 + T, C) $$
#
# Here $x_p$ has shape $(channels \cdot size^2)$, $E$ $(channels \cdot size^2, C)$, $c$ $(C)$ and $P$ $(1 + T, C)$. The
# linear map also has a bias, which the equation leaves out.
#
# ## Cutting
#
# The order is a convention: patches row by row, and within a patch channel by channel, row by row.


# %%
def patches_loops(images, size):
    """images (B, channels, height, width) → (B, T, channels·size²)."""
    batch, channels, height, width = images.shape
    down, across = height // size, width // size
    rows = np.empty((batch, down * across, channels * size * size), images.dtype)
    for b in range(batch):
        for i in range(down):
            for j in range(across):
                square = images[b, :, i * size : (i + 1) * size, j * size : (j + 1) * size]  # (channels, size, size)
                rows[b, i * across + j] = square.ravel()
    return rows


# %% [markdown]
# Without loops, as with heads (lesson [05](05_multi_head.ipynb)): split axes with `reshape`, exchange them, join them
# with `reshape`. The row of a pixel is split into two numbers: its patch, counted downwards, and its row *in the
# patch*; and so is its column. Then the patch's two numbers move to the front, and what is within a patch to the end:


# %%
def patches(images, size):
    batch, channels, height, width = images.shape
    down, across = height // size, width // size
    cut = images.reshape(batch, channels, down, size, across, size)
    rows = cut.transpose(0, 2, 4, 1, 3, 5)  # (B, down, across, channels, size, size)
    return rows.reshape(batch, down * across, channels * size * size)


colours = rng.standard_normal((2, 3, 4, 6))  # two images with three channels, and not square
print(f"without loops against loops {error(patches(colours, 2), patches_loops(colours, 2)):.0e}", end=", ")
print(f"against the package {error(patches(colours, 2), patches_forward(colours, 2)[0]):.0e}")

# %% [markdown]
# ### Exercise 1 ★★☆: put the patches back
#
# Cutting moves each pixel to one new place, so its backward moves each gradient back. (The gradient of an image is
# useful in itself: it says which pixels the loss depends on.) Loops are allowed.


# %% tags=["exercise"]
def patches_backward(drows, channels, height, width, size):
    """The gradient of patches(images, size), for images (B, channels, height, width).

    drows (B, T, channels·size²), T = height/size · width/size → dimages (B, channels, height, width).
    """
    raise NotImplementedError


# %%
patches_backward = check(patches_backward)

# %% [markdown] tags=["help"]
# `patches` has three steps: split, exchange, join. Undo them from the last to the first. What undoes a `reshape`, and
# what a `transpose`? The channels were axis 1 and became axis 3, so axis 3 must become axis 1 again.
#
# ---
#
# `drows.reshape(B, height // size, width // size, channels, size, size)` undoes the last step. The axes are now (image,
# patch down, patch across, channel, row, column), and must become (image, channel, patch down, row, patch across,
# column): `transpose(0, 3, 1, 4, 2, 5)`. A last `reshape` joins them.

# %%
found = check_gradients(
    lambda images: (patches(images, 2), images.shape[1:]),
    lambda drows, shape: patches_backward(drows, *shape, 2),
    {"images": colours},
)
print(f"central differences {found['images']:.0e}, there and back ", end="")
print(f"{error(patches_backward(patches(colours, 2), 3, 4, 6, 2), colours):.0e}")

# %% [markdown]
# ### Exercise 2 ★☆☆: the class token and the positions
#
# All images of a batch share one class token and one table of positions:


# %%
def sentence(tokens, class_token, positions):
    """tokens (B, T, C), class_token (C,), positions (1 + T, C) → (B, 1 + T, C)."""
    first = np.broadcast_to(class_token, (len(tokens), 1, len(class_token)))
    return np.concatenate([first, tokens], axis=1) + positions


# %% tags=["exercise"]
def sentence_backward(dx):
    """Gradients of sentence(tokens, class_token, positions).

    dx (B, 1 + T, C) → the tuple dtokens (B, T, C), dclass_token (C,), dpositions (1 + T, C).
    """
    raise NotImplementedError


# %%
sentence_backward = check(sentence_backward)

# %% [markdown] tags=["help"]
# For each of the three: at which places, and in how many images, does one of its numbers appear in the output? What
# does the chain rule say about a number that is used several times?
#
# ---
#
# A token appears once: drop the first place. The class token appears at the first place of every image, so its
# gradient is a sum over the batch, `dx[:, 0].sum(axis=0)`. A position appears once in each image, the first one too.

# %%
parts = {
    "tokens": rng.standard_normal((3, 4, 5)),
    "class_token": rng.standard_normal(5),
    "positions": rng.standard_normal((5, 5)),
}
found = check_gradients(lambda *parts: (sentence(*parts), None), lambda dx, _: sentence_backward(dx), parts)
print("central differences: ", ", ".join(f"d{name} {worst:.0e}" for name, worst in found.items()))

WIDTHS = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_layers": 2}
config = ViTConfig(10, image_size=8, patch_size=SIZE, channels=1, **WIDTHS, init_std=0.1)
exact = ViT(config, dtype="float64")
some_images = new_images[:3].astype(np.float64)
weights = exact.parameters.state_dict()
tokens, _ = linear_forward(
    patches(some_images, SIZE), weights["patches.projection.weight"], weights["patches.projection.bias"]
)
ours = sentence(tokens, weights["patches.class_token"], weights["encoder.embedding.positions.table"])
print(f"the package's forward: {error(ours, exact.encoder.embedding.forward(some_images)[0]):.0e}")

# %% [markdown]
# ## The model, trained
#
# From here on nothing is new: the encoder of lesson [08](08_model.ipynb), pre-norm, with a GELU; a last norm; and a
# linear map from the class token's vector to the logits. (In pre-training, the paper's model has a hidden layer there,
# too.) There is no mask, because all images have equally many patches. The package's
# [`ViT`](../minitransformer/models/vit.py) is that:


# %% tags=["long"]
def fit(model, images_of, classes, steps, seed=0):
    """Train a ViT, in place, on batches of 64; images_of(rows) gives the images with these numbers."""
    generator = np.random.default_rng(seed)

    def batch():
        rows = generator.integers(len(classes), size=64)
        return {"images": images_of(rows), "targets": classes[rows]}

    train(model, batch, steps, peak_lr=3e-3, warmup=50)
    return model


def accuracy(model, images, classes):
    return np.mean(model.forward(images)[0].argmax(axis=1) == classes)


vit = fit(ViT(config), lambda rows: images[rows], classes, 800)
seen, new = accuracy(vit, images, classes), accuracy(vit, new_images, new_classes)
print(
    f"{vit.parameters.count:,} parameters; right: {seen:.1%} of the images it was trained on, {new:.1%} of the new ones"
)

# %% [markdown]
# A class token is not needed: the mean of the patches' vectors does as well, with another learning rate (appendix D.3
# of the paper). The paper keeps it to stay close to the Transformer that reads text.
#
# ### How does it know where a patch is?
#
# Attention does not know the order of its input (lesson [06](06_positions.ipynb)). So all that ViT knows about the
# plane is in the learned positions: one vector per patch, initialised at random. Two experiments:
#
# * **One shuffle for all.** Exchange the patches of all images in the same way, and the rows of positions with them.
#   Nothing changes, to the last digits. An untrained ViT takes a shuffled image as well as an image.
# * **A new shuffle for each image,** while training for as many steps. Then the positions tell nothing: what is left is
#   a *bag* of patches.


# %% tags=["long"]
def unpatched(rows):
    """Rows of patches (B, 16, 4) as images."""
    return patches_backward(rows, 1, 8, 8, SIZE).astype(rows.dtype)


def shuffled(images, orders):
    """The images with their patches in another order: orders (16,), or (B, 16), one for each image."""
    rows = patches(images, SIZE)
    return unpatched(np.take_along_axis(rows, np.broadcast_to(orders, rows.shape[:2])[..., None], axis=1))


one_order = rng.permutation(16)
twin = ViT(config, dtype="float64")
twin.parameters.data[...] = exact.parameters.data
table = twin.parameters.state_dict()["encoder.embedding.positions.table"]
table[1:] = table[1:][one_order]
twin.parameters.load_state_dict(twin.parameters.state_dict() | {"encoder.embedding.positions.table": table})
moved = error(twin.forward(shuffled(some_images, one_order))[0], exact.forward(some_images)[0])
print(f"one shuffle for patches and positions: the logits move by {moved:.0e}")


def orders(count):
    return np.argsort(rng.random((count, 16)), axis=1)


bag = fit(ViT(config), lambda rows: shuffled(images[rows], orders(len(rows))), classes, 800)
in_a_bag = accuracy(bag, shuffled(new_images, orders(len(new_images))), new_classes)
print(f"a new shuffle for each image: {in_a_bag:.0%} right; with the order {new:.0%}; by guessing 10%")

# %% [markdown]
# A bag tells surprisingly much: how much ink there is, and which little strokes. The rest needs the order. (The paper's
# base model, whose patches of 16 × 16 pixels show more, loses less without positions: from 64 % to 61 % on ImageNet
# with five labels for each class, appendix D.4.)
#
# ## What a convolutional network has and ViT has not
#
# A convolutional network, a **CNN**, slides small windows over the image, layer after layer. So it knows two things
# from the start: neighbours belong together, and a stroke is the same stroke wherever it is. Such built-in knowledge is
# an [**inductive bias**](glossary.md#inductive-bias). ViT has almost none and must learn from images what the CNN is
# told. So with few images the CNN should be ahead, and if images are *not* as it believes, it should lose its lead.
#
# [Ours](course/lesson_22/cnn.py) is small: two convolutions of 3 × 3, each with a ReLU and a mean over squares of 2 ×
# 2, then a linear map. Its backward is written by hand, too.
#
# Both models learn from 50, 200 or all images, with equally many steps, twice. Then we repeat all of it with images
# that are *not* as the CNN believes: the pixels of all images are shuffled in the same way (another one in the second
# run). For comparison there is a model without any idea of the plane, [one linear map](course/lesson_22/linear.py) of
# the 64 pixels (lesson [01](01_softmax.ipynb)).


# %% tags=["long"]
def trained(images, classes, seed):
    """The three models, each a function from images to logits."""
    vit = fit(ViT(config, seed=seed), lambda rows: images[rows], classes, STEPS, seed)
    cnn = CNN(seed)
    cnn.fit(images, classes, STEPS, 5e-3, np.random.default_rng(seed))
    return lambda x: vit.forward(x)[0], lambda x: cnn.forward(x)[0], linear_map(images, classes)


SIZES, SEEDS, STEPS = (50, 200, len(images)), (1, 2), 300


def in_one_way(images, seed):
    """All images with their pixels in another order, the same for all."""
    order = np.random.default_rng(seed).permutation(64)
    return images.reshape(len(images), -1)[:, order].reshape(images.shape)


views = {"real images": lambda images, _: images, "all pixels shuffled, in one way": in_one_way}
results = {title: {name: np.zeros((3, 2)) for name in ("ViT", "CNN", "one linear map")} for title in views}
for title, view in views.items():
    for (i, size), (j, seed) in ((a, b) for a in enumerate(SIZES) for b in enumerate(SEEDS)):
        kept = np.random.default_rng(seed).permutation(len(images))[:size]
        models = trained(view(images[kept], seed), classes[kept], seed)
        for found, model in zip(results[title].values(), models, strict=True):
            found[i, j] = np.mean(model(view(new_images, seed)).argmax(axis=1) == new_classes)
draw_little_data(SIZES, results)
show("Accuracy against the number of images. On real images the CNN is ahead of ViT with few and level with all. With "
     "shuffled pixels it is worse, and with all images behind ViT. One linear map is best with few.")  # fmt: skip
for title, models in results.items():
    for name, found in models.items():
        print(f"{title:<32} {name:<15}" + "".join(f"{100 * each.mean():8.1f} %" for each in found))

# %% [markdown]
# On real images the CNN is ahead of ViT with 50 images and with 200, and with all of them ViT has caught up. With
# shuffled pixels the CNN's belief is false. It gets worse: with 200 images its lead is small, and with all of them it
# is behind ViT, which hardly notices. So a bias helps as far as it is true, and it helps less with more data. (With 50
# images the CNN is still ahead of ViT: its bias alone does not explain that lead.)
#
# The linear map is the best of the three with 50 images, shuffled or not, and about level with ViT with all of them. It
# believes that a pixel counts for or against a digit, whatever the others are: a good belief for digits that are so
# small and so well centred. So the picture does not say which model is best, but what each belief is worth when there
# is little to learn from.
#
# ### A stroke is a stroke, wherever it is (optional)
#
# First the CNN's backward against central differences. Then one more test of the same kind: move all new images by one
# pixel to the left or right. No model was trained on such images.

# %%
tiny = CNN(0, widths=(2, 3), dtype=np.float64)
small_images = rng.standard_normal((2, 1, 8, 8))


def forward(data):
    tiny.data = data
    return tiny.forward(small_images)


worst = check_gradients(forward, tiny.backward, {"weights": tiny.data}, samples=60)["weights"]
print(f"central differences {worst:.0e}; the CNN has {CNN().data.size:,} parameters, ViT {vit.parameters.count:,}")


# %%
def moved_by(images, distance):
    """Images whose columns are moved to the right, or to the left if distance is negative; what comes in is empty."""
    result = np.roll(images, distance, axis=3)
    result[..., (slice(0, distance) if distance > 0 else slice(distance, None))] = -1
    return result


cnn = CNN(0)
cnn.fit(images, classes, 800, 5e-3, np.random.default_rng(0))
for distance in (0, 1, -1):
    shifted = moved_by(new_images, distance) if distance else new_images
    print(f"moved by {distance:+d}: ViT {accuracy(vit, shifted, new_classes):.0%}, "
          f"CNN {accuracy(cnn, shifted, new_classes):.0%}")  # fmt: skip

# %% [markdown]
# Both suffer, because the CNN's last linear map knows where a stroke is. But the CNN suffers less. To ViT an image that
# is moved by one pixel is a sentence in which every word has changed.
#
# ## What does it look at? (optional)
#
# The answer is read off the class token, so look at its row of the attention weights: the share that goes to each
# patch. There are two layers with four heads each. Which map is *the* map?
#
# The last layer's map has a flaw: after one layer each vector is a mixture of many patches, so the last layer does not
# look at patches any more. [**Attention rollout**](glossary.md#attention-rollout) (Abnar and Zuidema 2020; ViT's figure
# 6 uses it) follows the mixture back. It assumes that in each layer half of a position's vector comes from itself,
# through the residual connection, and half from all positions, through attention. Let $A_{lh}$ be the attention weights
# of head $h$ in layer $l$, of $L$ layers, and $I$ the identity matrix:
#
# $$ \tilde A_l = \tfrac12 \big(\mathrm{mean}_h\, A_{lh} + I\big) \qquad R = \tilde A_L \cdots \tilde A_1 $$
#
# A row of $\tilde A_l$ says how a vector above layer $l$ is mixed from the vectors below it, and a row of the product
# $R$ how a vector at the end is mixed from the input. The halves are a guess: the lengths of the two summands were not
# measured.
#
# ### Exercise 3 ★★☆: attention rollout


# %% tags=["exercise"]
def rollout(weights):
    """Attention rolled out, for each image.

    weights (layers, B, H, T, T), the first layer first; T counts all positions, the class token included. Rows are
    queries and sum to 1. → R (B, T, T), rows sum to 1: how much of each position's vector, after the last layer, comes
    from each position of the input.
    """
    raise NotImplementedError


# %%
rollout = check(rollout)

# %% [markdown] tags=["help"]
# Which axis do you average first? For one layer and one image you have a matrix; what is half of its sum with the
# identity? Row $q$ of the second layer's matrix says how much position $q$ takes of each of the first layer's vectors.
# On which side of the product does that matrix stand?
#
# ---
#
# `half = (weights.mean(axis=2) + np.eye(T)) / 2` is $(layers, B, T, T)$. Begin with the identity, and for each
# layer, the first one first, `total = layer @ total`. `@` works on the last two axes, for all images at once.

# %% [markdown]
# ### Is it true?
#
# A map of attention is not an explanation (lesson [12](12_heads.ipynb)). So test it by
# [**occlusion**](glossary.md#occlusion): replace one patch by its mean over all images, and see how far the
# log-probability of the model's answer falls; do so for each patch. A map that tells what counts must put the patches
# in about the same order as these falls. Spearman's $\rho$ compares the two orders (lesson 12), image by image.
#
# For comparison there is a map that does not know the model at all: how far each patch is from its mean over all
# images. In the picture darker means more. Each map has its own scale, so compare within a map only.


# %%
def log_probability(model, images, answers):
    """The log-probability of each image's answer, (B,)."""
    logits, _ = model.forward(images)
    logits = logits - logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.take_along_axis(log_p, answers[:, None], axis=1)[:, 0]


attention = np.stack(list(attention_maps(vit, new_images).values()))  # (layers, B, H, 17, 17)
answers = vit.forward(new_images)[0].argmax(axis=1)
before = log_probability(vit, new_images, answers)
rows, mean_rows = patches(new_images, SIZE), patches(images, SIZE).mean(axis=0)
falls = np.zeros((len(new_images), 16))
for patch in range(16):
    occluded = rows.copy()
    occluded[:, patch] = mean_rows[patch]
    falls[:, patch] = before - log_probability(vit, unpatched(occluded), answers)

maps = {
    "first layer": attention[0].mean(axis=1)[:, 0, 1:],
    "last layer": attention[-1].mean(axis=1)[:, 0, 1:],
    "rollout": rollout(attention)[:, 0, 1:],
    "far from the mean": np.abs(rows - mean_rows).sum(axis=2),
}
shown = [int(np.flatnonzero(new_classes == digit)[1]) for digit in (0, 1, 3, 4, 6, 7, 9)]
draw_looks(
    new_images[shown, 0],
    [f"a {new_classes[i]}, read as {answers[i]}" if answers[i] != new_classes[i] else f"a {answers[i]}" for i in shown],
    {name: each[shown].reshape(-1, 4, 4) for name, each in (maps | {"occlusion": np.maximum(falls, 0)}).items()},
)
show("Seven digits, and below each the patches that count, by five maps. The maps of the two layers differ; rollout "
     "and the distance from the mean follow the strokes; occlusion often marks one patch alone.")  # fmt: skip


def spearman(a, b):
    """The mean of Spearman's ρ over the rows of two arrays."""
    ranks = [np.argsort(np.argsort(each, axis=1), axis=1).astype(float) for each in (a, b)]
    return np.mean([np.corrcoef(p, q)[0, 1] for p, q in zip(*ranks, strict=True)])


for name, each in maps.items():
    print(f"{name:<18} ρ with occlusion {spearman(each, falls):+.2f}")
largest = maps["last layer"].max(axis=1)
print(f"last layer, the patch that is looked at most: {np.median(largest):.0%} of the look (median), "
      f"{largest.max():.0%} at most; an even look gives each {1 / 17:.0%}")  # fmt: skip

# %% [markdown]
# * The two layers look at different things, and neither is *the* map. In the last layer one patch often gets several
#   times its share. But the vector there has already collected from other places.
# * Rollout agrees with occlusion better than either layer alone. Following the mixture back helps.
# * And still it agrees no better than a map that never saw the model: the distance from the mean. A map that looks
#   right to us may show the image, and not the model. (Occlusion has its own flaw: a digit without one patch is an
#   image that the model never saw.)
#
# ## What do the positions become? (optional)
#
# In the paper's figure 7 the learned positions show the plane: neighbours are alike, although the model was never told
# which patches are neighbours. Is it so here? We train two models, one whose words are the 64 single pixels, and one
# whose words are patches of 2 × 2 as before. (Both start with smaller weights, so that what they learn is not lost in
# the initial noise.)
#
# Two positions are alike if their cosine is large. We subtract the mean vector first, which makes the average cosine
# slightly negative.

# %%
START = {"image_size": 8, "channels": 1, **WIDTHS, "init_std": 0.02}
pixels, squares = (
    fit(ViT(ViTConfig(10, patch_size=size, **START)), lambda rows: images[rows], classes, 300) for size in (1, 2)
)


def cosines_of(model):
    """The cosine of each position with each other, without their mean; and how far they are apart, in pixels."""
    table = model.parameters.state_dict()["encoder.embedding.positions.table"][1:]
    table = table - table.mean(axis=0)
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    side = 8 // model.config.patch_size
    line, column = np.divmod(np.arange(side * side), side)
    apart = np.stack([line - line[:, None], column - column[:, None]]) * model.config.patch_size
    return unit @ unit.T, apart  # (T, T), and (2, T, T): down and to the right


def dark_together(size):
    """The correlation of the ink of each two words, over all images, (T, T)."""
    ink = patches(images, size).mean(axis=2)
    ink = ink - ink.mean(axis=0)
    unit = ink / np.maximum(np.linalg.norm(ink, axis=0), 1e-9)  # some corners are always empty
    return unit.T @ unit


curves, neighbours = {}, {}
for name, model in (("words of 1 × 1 pixel", pixels), ("words of 2 × 2 pixels", squares)):
    cosines, apart = cosines_of(model)
    away = np.hypot(*apart)
    distances = np.unique(away[(away > 0) & (away < 6)])
    curves[name] = distances, np.array([cosines[away == distance].mean() for distance in distances])
    neighbours[name] = dark_together(model.config.patch_size)[away == model.config.patch_size].mean()

REACH = 3
cosines, (down, right) = cosines_of(pixels)
offsets = range(-REACH, REACH + 1)
positions_alike, ink_alike = (
    np.array([[each[(down == i) & (right == j)].mean() for j in offsets] for i in offsets])
    for each in (cosines, dark_together(1))
)
draw_positions(positions_alike, curves)
show("Left: with words of one pixel, the cosine of two positions is large for neighbours and small or negative farther "
     "away. Right: with distance it falls to about zero; with words of 2 × 2 pixels it is never high.")  # fmt: skip
others = np.hypot(*np.meshgrid(offsets, offsets)) > 0  # all but the middle
likeness = np.corrcoef(positions_alike[others], ink_alike[others])[0, 1]
print(f"words of one pixel: {accuracy(pixels, new_images, new_classes):.1%} right")
print(f"correlation of the left picture with the same picture of pixels that are dark together: {likeness:.2f}")
for name, each in neighbours.items():
    print(f"{name:<22} ink of neighbours, correlation {each:.2f}")

# %% [markdown]
# With words of one pixel, neighbours *are* alike (positive, green; negative is purple). Pixels that are next to each
# other are often dark together, so they do the same work, and their positions got similar gradients. The region of
# large cosines even leans to the right, as handwriting does. The model was not told that there is a plane: it found it
# in the images.
#
# With words of 2 × 2 pixels there is nothing of the kind. Neighbours are dark together less often than neighbouring
# pixels are, so their positions have less reason to become alike. The model of the paper's figure has only 7 × 7
# positions, but it saw many millions of photographs, in which neighbouring patches are often alike.
#
# ### How far does a head look?
#
# Figure 7 has one more part: for each head, the mean distance from a patch to what it looks at, weighted with its
# attention. In the paper, some heads of the lowest layers look at near patches only, as a convolution does, and others
# across the whole image. And here?

# %%
away = np.hypot(*cosines_of(vit)[1])  # (16, 16), in pixels
among_patches = attention[..., 1:, 1:] / attention[..., 1:, 1:].sum(axis=-1, keepdims=True)  # without the class token
reach = (among_patches * away).sum(axis=-1).mean(axis=(1, 3))  # (layers, H)
for number, heads in enumerate(reach, 1):
    print(f"layer {number}, mean distance of its heads in pixels:", "  ".join(f"{each:.2f}" for each in heads))
print(f"an even look would give {away.mean():.2f}")

# %% [markdown]
# All heads look about as far as uniform attention would. With so few images and so small a plane no head has become a
# little convolution.
#
# ## Patches and a linear map are a convolution (optional)
#
# A [**convolution**](glossary.md#convolution) moves a window over an image, and at each place multiplies what it sees
# with the same weights. The **stride** is how far it moves. If it moves by its own width, the windows do not overlap:
# they are our patches. So papers and libraries write ViT's first step as a convolution whose stride is its size:


# %%
def convolution_loops(images, weight, stride):
    """images (B, channels, height, width), weight (C, channels, size, size) → (B, C, down, across)."""
    size = weight.shape[2]
    batch, _, height, width = images.shape
    out = np.zeros((batch, len(weight), (height - size) // stride + 1, (width - size) // stride + 1))
    for b, c, i, j in np.ndindex(out.shape):
        window = images[b, :, i * stride : i * stride + size, j * stride : j * stride + size]
        out[b, c, i, j] = np.sum(window * weight[c])
    return out


weight = rng.standard_normal((5, 3, 2, 2))  # five output channels
convolved = convolution_loops(colours, weight, stride=2)  # (2, 5, 2, 3)
projected, _ = linear_forward(patches(colours, 2), weight.reshape(5, -1).T, None)  # (2, 6, 5)
print(f"against a linear map of patches {error(convolved.reshape(2, 5, -1).swapaxes(1, 2), projected):.0e}")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# **A `reshape` alone.** `images.reshape(B, T, channels * size * size)` has the right shape, and cuts the image into
# strips: four pixels of one row are a "patch". No error is raised, and the model learns, because it has no idea of the
# plane. But the pixels of a word are now all in one row:

# %%
PLACE = 6 - 1  # patch 6 of the picture
counted = np.arange(64).reshape(1, 1, 8, 8)  # each pixel is its own number
for name, each in (("image", images[3:4]), ("pixels' numbers", counted)):
    right, wrong = patches(each, SIZE)[0, PLACE], each.reshape(1, 16, 4)[0, PLACE]
    print(f"patch 6, {name}: right {right.reshape(2, 2).tolist()}, reshaped only {wrong.tolist()}, all of one row")

# %% [markdown]
# **Other pixels than in training.** The model takes −1 to 1. Images with 0 to 1 look the same to us, and are another
# language to it:

# %%
for name, lighter in (
    ("−1 to 1", new_images),
    ("0 to 1", (new_images + 1) / 2),
    ("black and white exchanged", -new_images),
):
    print(f"{name:<26} {accuracy(vit, lighter, new_classes):.0%}")

# %% [markdown]
# **Positions for another size.** Images with more pixels need more positions. The paper stretches the table, as if it
# were a small image (§3.2). For smaller images it is tempting to take the first rows of the table. That is wrong: with
# 3 × 3 patches the fourth patch begins the second row, and it would get the position of the last patch of the first
# row.
#
# **The gradient of something shared, averaged over the images.** The loss is already a mean over the batch. A class
# token whose gradient is averaged once more learns $B$ times more slowly under plain gradient descent. Adam hides the
# mistake.
#
# ## What changed since 2017 (optional)
#
# In 2017 images belonged to CNNs, and Transformers to text. *An image is worth 16x16 words* (2021) trained the encoder
# nearly unchanged: 12 to 32 layers, patches of 14 to 32 pixels. Trained on 1.3 million images it was *behind* CNNs of
# its size; on 300 million it was ahead. "Large scale training trumps inductive bias", as the paper puts it. DeiT
# (Touvron and others 2021) closed the gap for 1.3 million images with stronger augmentation (images moved, cut or
# recoloured at random) and distillation. Swin (Liu and others 2021) gave back a part of the bias: attention in windows.
# Masked autoencoders (He and others 2022) did to patches what lesson [21](21_bert.ipynb) did to words, with 75 % of
# them hidden. And since an image is a sentence now, models read both: CLIP (Radford and others 2021) puts images and
# texts into one space of vectors, and language models read images as rows of patch vectors between their words.
#
# Sources: Dosovitskiy and others 2021, *An image is worth 16x16 words: Transformers for image recognition at scale*;
# Abnar and Zuidema 2020, *Quantifying attention flow in Transformers*.
#
# ### Open projects (optional)
#
# * Patches of 1 × 1 (64 words of one number), 2 × 2 and 4 × 4 (4 words of 16): which is best after equal steps, and
#   which after equal time?
# * Train ViT on images that are moved by a pixel at random, and draw the little-data picture again. How many images is
#   such an augmentation worth?
# * Hide 12 of the 16 patches and let the encoder predict their pixels, then fine-tune with 50 labels. Does lesson 21's
#   order work here?
#
# ## Where next
#
# `python -m minitransformer train --kind vit` trains a larger model, and `classify` reads your own PNG with it.
# [Lesson 12](12_heads.ipynb) has more tests for what attention shows; [lesson 21](21_bert.ipynb) has the other half,
# how to learn without labels. [Lesson 23](23_efficient_attention.ipynb) asks what attention costs when a sentence is
# long, and how to pay less.
