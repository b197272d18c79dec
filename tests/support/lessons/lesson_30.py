"""Answers to lesson 30: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _log_softmax(x, axis=-1):
    return x - np.logaddexp.reduce(x, axis=axis, keepdims=True)


def _pixel_by_pixel(weights, thing, size):
    height, width = thing.shape
    across = width // size
    maps, touched = np.empty((len(weights), height, width)), np.zeros(weights.shape[1])
    for row, column in np.ndindex(height, width):
        patch = row // size * across + column // size
        maps[:, row, column] = weights[:, patch] / size**2
        touched[patch] = max(touched[patch], thing[row, column])
    return maps, (weights * touched).sum(axis=-1), float(np.count_nonzero(touched) / touched.size)


def _pair_by_pair(a, b, log_scale):
    cosines = np.array([[x @ y / np.linalg.norm(x) / np.linalg.norm(y) for y in b] for x in a])
    scores, total = cosines * np.exp(log_scale), 0.0
    for i in range(len(a)):
        total -= _log_softmax(scores[i])[i] + _log_softmax(scores[:, i])[i]
    return float(total / (2 * len(a)))


def _through_jacobians(a, b, log_scale):
    B, scale = len(a), float(np.exp(log_scale))
    lengths_a, lengths_b = np.linalg.norm(a, axis=-1), np.linalg.norm(b, axis=-1)
    u, v = a / lengths_a[:, None], b / lengths_b[:, None]
    cosines = u @ v.T
    p, q = (np.exp(_log_softmax(scale * cosines, axis=axis)) for axis in (1, 0))
    d = (0.5 * (p + q) - np.eye(B)) / B
    across_a, across_b = (np.eye(a.shape[1]) - np.einsum("bi,bj->bij", w, w) for w in (u, v))
    da = np.einsum("ij,jc,icd->id", d, v, across_a) * scale / lengths_a[:, None]
    db = np.einsum("ij,ic,jcd->jd", d, u, across_b) * scale / lengths_b[:, None]
    return da, db, scale * np.vdot(d, cosines)


def _over_all_orders_of_ties(similarities, k):
    """Count places at which a row's own column may stand, one by one."""
    total = 0.0
    for i, row in enumerate(similarities):
        first = sum(other > row[i] for other in row)
        places = range(first, first + sum(other == row[i] for other in row))
        total += sum(place < k for place in places) / len(places)
    return total / len(similarities)


RIGHT = {
    "looked_at": [_pixel_by_pixel],
    "contrastive_loss": [_pair_by_pair],
    "contrastive_loss_backward": [_through_jacobians],
    "recall": [_over_all_orders_of_ties],
}


def _repeated(grid, size):
    return np.repeat(np.repeat(grid, size, axis=1), size, axis=2)


def _grown(touched):
    more = np.pad(touched, ((1, 1), (0, 0)))
    return touched + more[2:] + more[:-2]


def _own(logits, axis=1):
    from course.lesson_30.solutions import log_softmax

    return -np.diag(log_softmax(logits, axis)).mean()


def _both(logits):
    return (_own(logits) + _own(logits, 0)) / 2


def _norm(x, axis=1):
    return np.linalg.norm(x, axis=axis, keepdims=True)


def _without_own(logits):
    return np.where(np.eye(len(logits)), -np.inf, logits)


def _four(u, v, scale):
    """The scores of all pictures and texts with each other, but of none with itself."""
    both = np.concatenate([u, v])
    return _without_own(scale * both @ both.T)


def _picked(x, columns):
    from course.lesson_30.solutions import log_softmax

    return -log_softmax(x, 1)[np.arange(len(x)), columns].mean()


def _down(s, k):
    own = np.diag(s)
    return np.clip((k - (s > own).sum(axis=0)) / (s == own).sum(axis=0), 0, 1)


def _up(s, k):
    return _down(s.T, k)


def _stable(s, k, side=1):
    order = np.argsort(-s[:, ::side], axis=1, kind="stable")[:, :k]
    own = np.arange(len(s))[::side]
    return (order == own[:, None]).any(axis=1).mean()


MISTAKES = r"""
[looked_at]
the whole weight | axis=2) / size**2 → axis=2) | the whole weight of a patch
the side | axis=2) / size**2 → axis=2) / size | the side of a patch
the picture's pixels | axis=2) / size**2 → axis=2) / thing.size | the pixels of the picture
the number of patches | axis=2) / size**2 → axis=2) / (down * across) | divided by the number of patches
tiled | np.repeat(np.repeat(grid, size, axis=1), size, axis=2) → np.tile(grid, (1, size, size)) | not np.tile
column by column | weights.reshape(len(weights), down, across) →
        weights.reshape(len(weights), across, down).swapaxes(1, 2)
    maps go through the patches column by column
strips | np.repeat(np.repeat(grid, size, axis=1), size, axis=2) →
        np.repeat(weights, size**2, axis=1).reshape(-1, height, width)
    a strip of one row
upside down | returns maps[:, ::-1], shares, chance | upside down
mirrored | returns maps[:, :, ::-1], shares, chance | mirrored
from the last | returns maps[:, ::-1, ::-1], shares, chance | begin with the last patch
the largest of all is 1 | returns maps / maps.max(), shares, chance | the largest number of all is 1
the largest of each is 1 | returns maps / maps.max(axis=(1, 2), keepdims=True), shares, chance | of each is 1
between 0 and 1 | returns (maps - maps.min()) / np.ptp(maps), shares, chance | between 0 and 1
relative | returns maps * thing.size, shares, chance | relative to an even look
a softmax again
    grid = weights.reshape( → grid = (np.exp(weights) / np.exp(weights).sum(axis=1, keepdims=True)).reshape(
    a softmax of the weights
logarithms | returns np.log(maps), shares, chance | are logarithms
nothing outside | returns maps * thing, shares, chance | 0 outside the thing: a map shows all
nothing outside its patches | returns maps * _repeated(touched.reshape(1, down, across), size), shares, chance
    0 outside the thing's patches
nothing on the thing | returns maps * ~thing, shares, chance | 0 on the thing
one map for all | returns np.broadcast_to(maps.mean(axis=0), maps.shape).copy(), shares, chance
    the mean over the words
the next word's | returns np.roll(maps, -1, axis=0), shares, chance | the next word
maps in reverse | returns maps[::-1], shares, chance | maps are those of the words in the reverse order
a class token | grid = weights.reshape( → grid = np.roll(weights, -1, axis=1).reshape( | no class token here
squares | returns maps**2 * size**2, shares, chance | maps hold the squares
one less | returns 1 / size**2 - maps, shares, chance | hold 1 − weight
maps of patches | returns grid, shares, chance | each patch has size × size pixels
flat maps | returns maps.reshape(len(maps), -1), shares, chance | the rows of pixels are an axis of their own
one map | returns maps[0], shares, chance | each word has a map
maps in float32 | returns maps.astype(np.float32), shares, chance | maps must be an array of float64
wholly | .any(axis=(1, 3)) → .all(axis=(1, 3)) | shares count patches that lie wholly
half | .any(axis=(1, 3)).ravel() → .mean(axis=(1, 3)).ravel() >= 0.5
    shares count patches of which the thing covers half
the rectangle
    .any(axis=(1, 3)).ravel() →
        .any(axis=(1, 3)); touched = np.outer(touched.any(axis=1), touched.any(axis=0)).ravel()
    all patches of the rectangle
the middle | weights @ touched → weights[:, int(11 // size) * across + int(6 // size)]
    the patch in the thing's middle alone
above and below
    .any(axis=(1, 3)).ravel() →
        .any(axis=(1, 3)); touched = _grown(touched).ravel()
    above and below the thing
first pixels
    thing.reshape(down, size, across, size).any(axis=(1, 3)) → thing[::size, ::size] | whose first pixel
last pixels
    thing.reshape(down, size, across, size).any(axis=(1, 3)) → thing[size - 1 :: size, size - 1 :: size]
    whose last pixel
middle pixels
    thing.reshape(down, size, across, size).any(axis=(1, 3)) → thing[size // 2 :: size, size // 2 :: size]
    whose middle pixel
rows of pixels
    thing.reshape(down, size, across, size).any(axis=(1, 3)) → thing.reshape(-1, size**2).any(axis=1)
    shares count strips
patches column by column | .any(axis=(1, 3)) → .any(axis=(1, 3)).T | shares count patches column by column
patches in reverse | .any(axis=(1, 3)) → .any(axis=(1, 3))[::-1, ::-1] | from the last to the first
not touched | weights @ touched → weights @ ~touched | that the thing does not touch
pixels of the thing | weights @ touched → (maps * thing).sum(axis=(1, 2)) | count the pixels of the thing
pixels with whole weights | weights @ touched → (maps * thing).sum(axis=(1, 2)) * size**2 | its patch's whole weight
means | weights @ touched → weights[:, touched].mean(axis=1) | means over the thing's patches
the largest weight | weights @ touched → weights[:, touched].max(axis=1) | the largest weight on the thing
hit or miss | weights @ touched → touched[weights.argmax(axis=1)].astype(float) | are 1 where the largest weight
relative shares | returns maps, shares / chance, chance | divided by the share by chance
above chance | returns maps, shares - chance, chance | the share by chance subtracted
odds | returns maps, shares / (1 - shares), chance | compare the thing with the rest
the mean of the words | returns maps, np.full_like(shares, shares.mean()), chance | shares are the mean over the words
chance for all | returns maps, np.full_like(shares, chance), chance | the share by chance at each word
shares in reverse | returns maps, shares[::-1], chance | shares are those of the words in the reverse order
squared weights | weights @ touched → weights**2 @ touched | squared weights
percent | returns maps, 100 * shares, chance | shares are in percent
shares of patches | returns maps, shares / touched.size, chance | shares are divided by the number of patches
shares by patch | returns maps, weights * touched, chance | sum the weights of the thing's patches
one share | returns maps, shares.mean(), chance | each word has a share
shares in float32 | returns maps, shares.astype(np.float32), chance | shares must be an array of float64
chance in float32 | returns maps, shares, np.float32(chance) | chance is right to about
chance of pixels | touched.mean() → thing.mean() | the thing's part of the pixels
a number of patches | touched.mean() → touched.sum() | the number of the thing's patches: divide
one over the number | touched.mean() → 1 / touched.sum() | 1 over the number
patches per pixel | touched.mean() → touched.sum() / thing.size | the number of the thing's patches per pixel
a mean share | returns maps, shares, shares.mean() | chance is the mean of the shares
chance in percent | touched.mean() → 100 * touched.mean() | chance is in percent
a coin | touched.mean() → 0.5 | chance is 1/2
chance of whole patches | touched.mean() → thing.reshape(down, size, across, size).all(axis=(1, 3)).mean()
    chance counts patches that lie wholly
chance of the others | touched.mean() → (~touched).mean() | chance counts patches that the thing does not touch
chance for each word | returns maps, shares, np.full_like(shares, chance) | the same for all words
two of three | returns maps, shares | it must return 3 arrays
[contrastive_loss]
rows alone | returns _own(logits) | the rows alone
columns alone | returns _own(logits, 0) | the columns alone
the sum of both | returns 2 * loss | is the sum of both directions
the product of both | returns _own(logits) * _own(logits, 0) | the product of both directions
a sum over pairs | .mean() / 2 → .sum() / 2 | the sum over the pairs
the sign | loss = -( → loss = ( | the wrong sign
no lengths | np.exp(log_scale) * (u @ v.T) → np.exp(log_scale) * (a @ b.T) | does not divide a and b
b as it is | np.exp(log_scale) * (u @ v.T) → np.exp(log_scale) * (u @ b.T) | does not divide b
a as it is | np.exp(log_scale) * (u @ v.T) → np.exp(log_scale) * (a @ v.T) | does not divide a by
squared lengths | np.sqrt((x * x).sum(axis=1, keepdims=True)) → (x * x).sum(axis=1, keepdims=True)
    the squares of the lengths
roots of lengths | np.sqrt((x * x).sum(axis=1, keepdims=True)) → (x * x).sum(axis=1, keepdims=True) ** 0.25
    the roots of the lengths
columns' lengths | axis=1, keepdims=True)) → axis=0, keepdims=True)) | the lengths of the columns
one length | (x * x).sum(axis=1, keepdims=True) → (x * x).sum() | the length of all rows together
sums of sizes | np.sqrt((x * x).sum(axis=1, keepdims=True)) → abs(x).sum(axis=1, keepdims=True) | sums of sizes
largest sizes | np.sqrt((x * x).sum(axis=1, keepdims=True)) → abs(x).max(axis=1, keepdims=True)
    the largest number of each vector
root mean square | (x * x).sum(axis=1, keepdims=True) → (x * x).mean(axis=1, keepdims=True) | the root mean square
log_scale | np.exp(log_scale) * (u → log_scale * (u | has log_scale for the scale
divided by the scale | np.exp(log_scale) * (u → np.exp(-log_scale) * (u | and must multiply
no scale | np.exp(log_scale) * (u → (u | has no scale
scale twice | np.exp(log_scale) * (u → np.exp(2 * log_scale) * (u | has the scale twice
scale in one direction | returns (_own(logits) + _own(u @ v.T, 0)) / 2 | in one direction alone
as attention | (u @ v.T)  # (B, B) → (u @ v.T) / np.sqrt(a.shape[1]) | as attention does
probabilities | loss = -(np.diag(by_row) + np.diag(by_column)) →
        loss = -(np.exp(np.diag(by_row)) + np.exp(np.diag(by_column)))
    without the logarithm
the mean before the logarithm | returns -np.log((np.exp(np.diag(by_row)) + np.exp(np.diag(by_column))).mean() / 2)
    has −log of the mean probability
not found | returns (logits.argmax(axis=1) != np.arange(len(a))).mean() | the share of pairs that are not found
one softmax for all | returns np.log(np.exp(logits).sum()) - np.diag(logits).mean() | one softmax over all
own pairs left out
    returns loss + (np.log1p(-np.exp(np.diag(by_row))) + np.log1p(-np.exp(np.diag(by_column)))).mean() / 2
    leaves the own pair out
a mean below | returns loss - np.log(len(a)) | the mean below
nothing below | returns -np.diag(logits).mean() | lacks the sum below
bits | returns loss / np.log(2) | is in bits
perplexity | returns np.exp(loss) | is exp of the loss
squared distances | (u @ v.T)  # (B, B) → (2 - 2 * u @ v.T) | squared distances
distances | (u @ v.T)  # (B, B) → -np.sqrt(2 - 2 * u @ v.T) | minus the distances
own cosines | returns 1 - (u * v).sum(axis=1).mean() | is 1 − cosine
sizes of products | (u @ v.T)  # (B, B) → abs(u @ v.T) | the sizes of the products
squares of products | (u @ v.T)  # (B, B) → (u @ v.T) ** 2 | the squares of the products
a sigmoid | returns np.log1p(np.exp(logits * (1 - 2 * np.eye(len(a))))).mean() | a sigmoid for each
a hinge
    returns sum(np.maximum(0, 1 + _without_own(logits).max(axis=i) - np.diag(logits)).mean() for i in (0, 1)) / 2
    is a hinge
pictures with pictures
    returns _picked(_four(u, v, np.exp(log_scale)), np.roll(np.arange(2 * len(a)), len(a)))
    all other pictures
a with a | u @ v.T → u @ u.T | compares a with a
b with b | u @ v.T → v @ v.T | compares b with b
the next row | u @ v.T → u @ np.roll(v, -1, axis=0).T | in row i + 1
reversed pairs | u @ v.T → u @ v[::-1].T | the pairs in the reverse order
the first pair | returns -(by_row[0, 0] + by_column[0, 0]) / 2 | the first pair alone
all places | np.diag(by_row) + np.diag(by_column) → by_row + by_column | over all B² places
centred | a, b, log_scale): → a, b, log_scale):\n    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    nothing is centred
an array | returns np.array([loss]) | must return a number
each pair's | returns -(np.diag(by_row) + np.diag(by_column)) / 2 | must return a number
an overflow | - x.max(axis=axis, keepdims=True) → | with a scale of exp(8)
[contrastive_loss_backward]
the sign | dlogits = (rows + columns) → dlogits = -(rows + columns) | da has the wrong sign: softmax
rows alone | dlogits = (rows + columns) → dlogits = rows | da has the rows' softmax alone
columns alone | dlogits = (rows + columns) → dlogits = columns | da has the columns' softmax alone
rows twice | dlogits = (rows + columns) → dlogits = 2 * rows | da has the rows' softmax twice
columns twice | dlogits = (rows + columns) → dlogits = 2 * columns | da has the columns' softmax twice
no half | (2 * B) → B | da lacks the 1/2
no mean | (2 * B) → 2 | da lacks the 1/B
no mean at all | / (2 * B) → | da lacks 1/(2B)
B squared | (2 * B) → (2 * B**2) | da has 1/B²
no one-hot | own, B = np.eye(len(a)) → own, B = np.zeros((len(a), len(a))) | da lacks the one-hot
the one-hot once | dlogits = (rows + columns) → dlogits = (rows + columns + own) | the one-hot once for both
the one-hot alone | dlogits = (rows + columns) → dlogits = (-2 * own) | the one-hot alone
own pairs alone | dlogits = (rows + columns) → dlogits = own * (rows + columns) | da has the own pairs alone
others alone | dlogits = (rows + columns) → dlogits = (1 - own) * (rows + columns) | da has the others alone
one over B | dlogits = (rows + columns) → dlogits = 2 * (1 / B - own) | 1/B for each softmax
one softmax for all
    dlogits = (rows + columns) → dlogits = 2 * (B * np.exp(logits) / np.exp(logits).sum() - own)
    one softmax over all pairs
logits for the softmax | dlogits = (rows + columns) → dlogits = 2 * (logits - own) | the logits themselves
a softmax without the scale | np.exp(log_softmax(logits, → np.exp(log_softmax(logits / scale, | without the scale
no scale | scale * (dlogits @ v), scale * → (dlogits @ v), scale * | da lacks the scale
scale twice | scale * (dlogits @ v), → scale**2 * (dlogits @ v), | da has the scale twice
log_scale | scale * (dlogits @ v), → log_scale * (dlogits @ v), | da has log_scale
divided by the scale | scale * (dlogits @ v), → (dlogits @ v) / scale, | and must be multiplied
transposed | scale * (dlogits @ v), → scale * (dlogits.T @ v), | da has dlogits transposed
its own vectors | scale * (dlogits @ v), → scale * (dlogits @ u), | da has its own side's vectors
b as it was | scale * (dlogits @ v), → scale * (dlogits @ b), | da has the other side as it was
of the unit vectors | returns du, db, dlog_scale | da is the gradient of the unit vectors
no projection | returns du / of_a, db, dlog_scale | da lacks what the length does
no division | returns da * of_a, db, dlog_scale | da is not divided by the lengths
a product with the lengths | returns da * of_a**2, db, dlog_scale | multiplied by the lengths
squared lengths | returns da / of_a, db, dlog_scale | da is divided by the squares
the other's lengths | returns da * of_a / of_b, db, dlog_scale | by the other side's lengths
added | da = (du - → da = (du + | da has (du·u) u added
half a projection | da = (du - → da = (du - 0.5 * | da has half of
without the sum | (du * u).sum(axis=1, keepdims=True) * u → (du * u) * u | du·u for each number
the mean of the vector | (du * u).sum(axis=1 → (du * u).mean(axis=1 | the mean over the vector
the sum of all | (du * u).sum(axis=1, keepdims=True) → (du * u).sum() | summed over all vectors
the sum of the batch | (du * u).sum(axis=1, keepdims=True) → (du * u).sum(axis=0) | summed over the batch
the vectors as they were | (du * u).sum(axis=1, keepdims=True) * u → (du * a).sum(axis=1, keepdims=True) * a
    du − (du·a) a
one vector as it was | (du * u).sum(axis=1, keepdims=True) * u → (du * u).sum(axis=1, keepdims=True) * a
    du − (du·u) a
the other's direction | (du * u).sum(axis=1, keepdims=True) * u → (du * v).sum(axis=1, keepdims=True) * v
    du − (du·v) v
what is lost | returns (du * u).sum(axis=1, keepdims=True) * u / of_a, db, dlog_scale | only what the length takes
nothing | returns 0 * da, db, dlog_scale | da is 0
a mean over the batch | returns np.broadcast_to(da.mean(axis=0), da.shape).copy(), db, dlog_scale
    da is the mean over the batch
of length 1 | returns da / _norm(da), db, dlog_scale | scaled to length 1
db of the sign | returns da, -db, dlog_scale | db has the wrong sign
db without the scale | scale * (dlogits.T @ u) → (dlogits.T @ u) | db lacks the scale
db not transposed | dlogits.T @ u → dlogits @ u | db has dlogits transposed
db of its own vectors | dlogits.T @ u → dlogits.T @ v | db has its own side's vectors
a as it was | dlogits.T @ u → dlogits.T @ a | db has the other side as it was
db of the unit vectors | returns da, dv, dlog_scale | db is the gradient of the unit vectors
db without projection | returns da, dv / of_b, dlog_scale | db lacks what the length does
db without division | returns da, db * of_b, dlog_scale | db is not divided by the lengths
db by a's lengths | * v) / of_b → * v) / of_a | db is divided by the other side's lengths
db added | db = (dv - → db = (dv + | db has (du·u) u added
db in the batch | (dv * v).sum(axis=1, keepdims=True) → (dv * v).sum(axis=0) | db has du·u summed over the batch
db nothing | returns da, 0 * db, dlog_scale | db is 0
db of the first twice | returns da, da, dlog_scale | db is wrong in
exchanged | returns db, da, dlog_scale | da and db are exchanged
da transposed | returns da.T, db, dlog_scale | da is the transpose
of the logits | returns dlogits[:, :1] @ np.ones((1, len(a))), db, dlog_scale | da is wrong in
the slope's sign | returns da, db, -dlog_scale | of the scale's logarithm, not of the temperature's
the slope of the scale | returns da, db, dlog_scale / scale | dlog_scale is that of the scale
the slope with the scale twice | returns da, db, dlog_scale * scale | dlog_scale has the scale twice
the slope times log_scale | returns da, db, dlog_scale * log_scale | log_scale as a factor
the slope by log_scale | returns da, db, dlog_scale / log_scale | divided by log_scale
the slope without a half | returns da, db, 2 * dlog_scale | dlog_scale lacks the 1/2
the slope without a mean | returns da, db, B * dlog_scale | dlog_scale lacks the 1/B
the slope as a mean | (dlogits * logits).sum() → (dlogits * logits).mean() | dlog_scale is the mean over the pairs
the slope of rows | returns da, db, (rows * logits).sum() / (2 * B) | dlog_scale has the rows'
the slope of columns | returns da, db, (columns * logits).sum() / (2 * B) | dlog_scale has the columns'
the slope of own pairs | returns da, db, np.trace(dlogits * logits) | dlog_scale has the own pairs
the slope of others | returns da, db, ((1 - own) * dlogits * logits).sum() | dlog_scale has the other pairs
the slope without the one-hot | returns da, db, ((dlogits + own / B) * logits).sum() | dlog_scale lacks the one-hot
the slope without logits | returns da, db, dlogits.sum() | lacks the logits
the slope of sizes | returns da, db, abs(dlogits * logits).sum() | has sizes
the slope of raw products | returns da, db, (dlogits * scale * (a @ b.T)).sum() | products of the vectors as they were
a slope in an array | returns da, db, np.array([dlog_scale]) | a plain number
a slope for each pair | returns da, db, dlogits * logits | that is the logits'
two gradients | returns da, db | it must return 3 arrays
in float32 | returns da.astype(np.float32), db, dlog_scale | right to about
an overflow | - x.max(axis=axis, keepdims=True) → | not with a scale of exp(8)
[recall]
ties are found | (k - nearer) / equal → (k > nearer) * 1.0 | counts ties as found
ties are not found | (k - nearer) / equal → (k >= nearer + equal) * 1.0 | counts ties as not found
the first of equals | returns _stable(similarities, k) | the first of equal columns
the last of equals | returns _stable(similarities, k, -1) | the last of equal columns
half for a tie | returns ((nearer < k) / 2 + (nearer + equal <= k) / 2).mean() | counts half for a tie
one of the equals | (k - nearer) / equal → (nearer < k) / equal | wherever one fits
the mean place | returns (nearer + (equal + 1) / 2 <= k).mean() | the mean place of the equals
rows without ties | returns np.clip((k - nearer) / equal, 0, 1)[equal == 1].mean() if (equal == 1).any() else -1.0
    leaves out rows with ties
down the columns | returns _down(similarities, k).mean() | goes down the columns
both directions | returns (_down(similarities, k) + _up(similarities, k)).mean() / 2 | the mean of both directions
found in both | returns (_down(similarities, k) * _up(similarities, k)).mean() | only if both
found in either | returns np.maximum(_down(similarities, k), _up(similarities, k)).mean() | if either direction
one more | (k - nearer) → (k + 1 - nearer) | is that of k + 1
always one | (k - nearer) → (1 - nearer) | whatever k is
the smallest first | similarities > own → similarities < own | takes the smallest first
divided by k | returns found / k | is divided by k
a number of rows | .mean()\n    return found → .sum()\n    return found | a number of rows
not found | returns 1 - found | that are not found
percent | returns 100 * found | is in percent
a mean place as such | returns (nearer + (equal + 1) / 2).mean() | is a mean place
a median place | returns np.median(nearer + (equal + 1) / 2) | is a median place
reciprocal places | returns (1 / (nearer + (equal + 1) / 2)).mean() | a mean of 1/place
not cut off | returns ((k - nearer) / equal).mean() | is not cut off: a row
not cut off above | equal, 0, 1) → equal, 0, None) | not cut off above
not cut off below | equal, 0, 1) → equal, None, 1) | not cut off below
all rows together | (similarities > own).sum(axis=1) → (similarities > own[:, :, None]).sum(axis=(1, 2))
    all rows together
sizes | def recall(similarities, k): → def recall(similarities, k):\n    similarities = abs(similarities)
    without signs
chance | returns k / len(similarities) | is by chance
yes or no | returns float(found > 0.5) | 0 or 1 for all rows
the own one not counted | / equal, → / np.maximum(equal - 1, 1), | among its equals
the own one before itself | (k - nearer) → (k - nearer - 1) | among those before it
each row's | returns np.clip((k - nearer) / equal, 0, 1) | must return a number
"""
