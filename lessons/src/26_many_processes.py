# %% [markdown]
# # 26 · Many processes, one training: all-reduce, and sums that keep their bits
#
# **You will be able to** add up the gradients of many processes without a bottleneck, count what each of them sends,
# and do it so that the result has the same bits for every number of processes.
#
# | | |
# |---|---|
# | you know | [training](09_training.ipynb): Adam, shares of the targets; the [whole model](08_model.ipynb) |
# | runs in | at most 120 s on 2 cores; no GPU, no network; PyTorch in one optional cell, or its recording |
# | in the paper | §5.2: eight GPUs |
# | in the package | [`training/parallel`](../minitransformer/training/parallel): shards, processes |
#
# The paper's models were trained on eight GPUs at once (§5.2). Each GPU computes the gradient of a part of the batch,
# then all of them add up what they have found, and take one step together. The sum is the same for two GPUs and for
# eight, so the training should be the same too. Try it with a common library: train twice with the same data and the
# same seed, once on two processes and once on three. At first the losses agree to the last printed digit. Some hundred
# steps later **the third digit differs**. Nobody made a mistake. Why is that so, does it matter, and can it be avoided?

# %%
import matplotlib.pyplot as plt
import numpy as np
from threadpoolctl import threadpool_limits

from course import recorded, start
from course.lesson_17.roofline import GPUS
from course.lesson_26.network import Network
from course.lesson_26.pictures import draw_drift, draw_exchange
from course.style import BLUE, GREY, INK, VERMILION
from minitransformer import Transformer, TransformerConfig
from minitransformer.costs import flops_per_token, num_parameters
from minitransformer.data.batching import Batch
from minitransformer.data.token_dataset import Batches, TokenDataset
from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.gradcheck import check_gradients
from minitransformer.grammar import pairs
from minitransformer.ops import adam_step
from minitransformer.training.optimizer import Adam
from minitransformer.training.parallel.shards import TreeSum, share, slices, subtrees

check = start("26")
threadpool_limits(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## A sum has an order
#
# A float32 has 24 binary digits. The sum of two of them may need more, so it is rounded. And what is rounded depends on
# what was added first:

# %%
a, b, c = np.float32([1e8, -1e8, 1.25])
print(f"(a + b) + c = {(a + b) + c}, a + (b + c) = {a + (b + c)}")
print(f"in float64, too: {(0.1 + 0.2) + 0.3} and {0.1 + (0.2 + 0.3)}")

# %% [markdown]
# a + b and b + a are always equal: addition of floats is *commutative*. It is not *associative*: brackets matter.
#
# These are extreme numbers. What about real gradients? Here is a small Transformer that learns German from the grammar
# of lesson 02. A batch is cut into eight [shards](glossary.md#shard). The gradient of each shard is weighted by its
# share of the targets, so that the gradient of the batch is the plain sum of the eight (lesson 09, exercise 4):

# %%
VOCABULARY, SHARDS = 400, 8
english_german = list(pairs("train", seed=0, count=1200))
tokenizer = BPETokenizer.train([text for pair in english_german[:300] for text in pair], VOCABULARY)
dataset = TokenDataset.from_pairs([tuple(map(tokenizer.encode, pair)) for pair in english_german])
batches = Batches(dataset, tokens_per_batch=512, seed=0, vocab_size=VOCABULARY)


def small_model():
    return Transformer(
        TransformerConfig(VOCABULARY, d_model=32, num_heads=4, d_ff=64, num_layers=2, max_length=128, dropout=0.0)
    )


def batch_of(step):
    """The batch of a step, counted from 1: epoch after epoch."""
    return batches.batch(*divmod(step - 1, len(batches)))


def loss_and_grad(model, part, weight):
    """weight times the loss of a part of a batch, and its gradient."""
    model.parameters.zero_grad()
    loss, cache = model.loss(part.source, part.target_in, part.target_out)
    model.loss_backward(weight, cache)
    return weight * float(loss), model.parameters.grad.copy()


def shard_gradients(model, batch):
    """The loss of a batch, and the gradients of its shards, whose sum is the batch's."""
    parts = batch.split(SHARDS)
    found = [loss_and_grad(model, part, part.num_targets / batch.num_targets) for part in parts]
    empty = [np.zeros_like(model.parameters.grad)] * (SHARDS - len(parts))  # a batch of few sentences has fewer parts
    return sum(loss for loss, _ in found), [grad for _, grad in found] + empty


model = small_model()
_, grads = shard_gradients(model, batch_of(1))
P = len(grads[0])
print(f"{P:,} parameters, {len(grads)} shards of {[part.num_targets for part in batch_of(1).split(SHARDS)]} targets")

# %% [markdown]
# Add the eight arrays from the first to the last, from the last to the first, and in pairs of pairs. What is the exact
# sum? In float64 the rounding is so much finer that we can take that one for exact.


# %%
def in_order(grads):
    total = grads[0].copy()
    for grad in grads[1:]:
        total += grad
    return total


def backwards(grads):
    return in_order(grads[::-1])


def in_pairs(grads):
    return ((grads[0] + grads[1]) + (grads[2] + grads[3])) + ((grads[4] + grads[5]) + (grads[6] + grads[7]))


exact = np.sum(grads, axis=0, dtype=np.float64)
first = in_order(grads)
for order in (in_order, backwards, in_pairs):
    total = order(grads)
    off = np.linalg.norm(total - exact) / np.linalg.norm(exact)
    print(f"{order.__name__:<10} error {off:.1e} of the gradient; {(total != first).mean():4.0%} of the numbers are "
          "not those of in_order")  # fmt: skip

# %% [markdown]
# About half of all numbers differ, each in its last digit. No order is wrong: all errors are of the same size. So who
# cares about the last digit?
#
# ## The last bit, in a training
#
# Two trainings begin with the same weights and take the same batches. One adds its shards in order, the other
# backwards. Nothing else differs. After each step we compare their weights and their losses.


# %%
def training(total_of, steps):
    """Train a model; after each step gives its loss and its weights."""
    model = small_model()
    adam = Adam(model.parameters, model.ops)
    for step in range(1, steps + 1):
        loss, grads = shard_gradients(model, batch_of(step))
        model.parameters.grad[:] = total_of(grads)
        adam.step(5e-3 * min(step / 50, (50 / step) ** 0.5))
        yield loss, model.parameters.data


STEPS = 300
names = model.parameters.views(np.arange(P))  # where each parameter lies in the flat array
is_key_bias = np.zeros(P, bool)
for name, places in names.items():
    if name.endswith("query_key_value.bias"):
        is_key_bias[np.split(places, 3)[1]] = True
    elif name.endswith("key_value.bias"):
        is_key_bias[np.split(places, 2)[0]] = True


def rms(x):
    return float(np.sqrt(np.mean(x**2)))


drift = {"biases of the keys": [], "all other weights": [], "loss": []}
losses, by_unit = [], []
for ours, theirs in zip(training(in_order, STEPS), training(backwards, STEPS), strict=True):
    losses.append((ours[0], theirs[0]))
    off = ours[1] - theirs[1]
    by_unit.append({name: np.abs(off[names[name]]).max(axis=0) for name in names if name.endswith("expand.weight")})
    drift["biases of the keys"].append(rms(off[is_key_bias]))
    drift["all other weights"].append(rms(off[~is_key_bias]))
    drift["loss"].append(abs(ours[0] - theirs[0]))
draw_drift(drift, rounding=float(np.finfo(np.float32).eps))
for digits in (6, 4, 3, 2):
    differing = [step for step, (x, y) in enumerate(losses, 1) if f"{x:.{digits}f}" != f"{y:.{digits}f}"]
    when = f"in step {differing[0]}" if differing else f"not in {STEPS} steps"
    print(f"digit {digits} after the point of the loss differs for the first time {when}")
print(f"losses of step {STEPS}: {losses[-1][0]:.4f} and {losses[-1][1]:.4f}")

# %% [markdown]
# There are three stories in this picture.
#
# * **The biases of the keys** part in the second step, and by whole steps of Adam. Why? A bias of the keys adds the
#   same number to all scores of a query, and the softmax does not see that (lesson 04). So its true gradient is 0. What
#   we compute is rounding and nothing else. And Adam divides by the size of the gradient (lesson 09), so it makes full
#   steps of this noise. Nobody notices: the loss does not depend on these biases.
# * **All other weights** stay together for a long time, to about the last bit. The difference grows slowly.
# * Then, within a few steps, it **jumps** by orders of magnitude, and the loss follows. The network has corners: where
#   the input of a ReLU is nearly 0, the last bit decides whether the gradient of a token goes through or not. Then the
#   gradients of this hidden unit differ not in the last digit but in the first ones. From there on the difference grows
#   by itself, and more corners are crossed. That is called *chaos*: small causes, large effects.
#
# Is it really a ReLU? The cell takes the step in which the difference of the other weights grew most. There it looks at
# the weights that lead to the hidden units of the feed-forward networks, for each unit by itself:

# %%
other = np.array(drift["all other weights"])
jump = int(np.argmax(other[20:] / other[19:-1])) + 20  # the first steps aside
print(
    f"in step {jump + 1} the difference of the other weights becomes {other[jump] / other[jump - 1]:.0f} times as large"
)
most = max(by_unit[jump], key=lambda name: by_unit[jump][name].max())
for step in (jump - 1, jump):
    units = by_unit[step][most]
    print(f"step {step + 1}, {most}: largest difference in unit {np.argmax(units)} {units.max():.0e}, "
          f"in the median unit {np.median(units):.0e}")  # fmt: skip

# %% [markdown]
# Where this was recorded, one unit alone jumps, in one step. All others follow later.
#
# Is one of the two trainings better? No, no more than one of two seeds. Then why do people want equal bits? For the
# same reasons as in [lesson 09](09_training.ipynb), where a stopped run went on with equal bits:
#
# * **A bug can be told from noise.** If equal bits are promised, one differing bit is a bug. Otherwise every difference
#   can be explained away.
# * **A training may change its size.** It stops on eight GPUs, goes on with four, and is still the same training.
# * **An experiment compares what it means to compare**, and not how many machines were free that day.
#
# ## All-reduce
#
# Now to the processes. There are $n$ of them, numbered from 0; a number is also called a *rank*. Each has an array of
# $P$ numbers: the gradient of its part of the batch. Afterwards each needs the sum of all arrays. This is called an
# [**all-reduce**](glossary.md#all-reduce).
#
# The naive way is a star: all send their arrays to process 0, which adds them up and sends the sum back. We simulate it
# in NumPy, in one process, and count the numbers that each process sends.


# %%
def star(arrays):
    """All-reduce: everyone sends to process 0, which sends the sum back. → the sums, numbers sent by each process."""
    total = arrays[0].copy()
    for array in arrays[1:]:
        total = total + array
    P, n = len(total), len(arrays)
    return [total.copy() for _ in arrays], [(n - 1) * P] + [P] * (n - 1)


# %% [markdown]
# Process 0 receives $(n-1)P$ numbers and sends as many, one after the other through its one cable. The more processes,
# the longer all of them wait for it.
#
# The **ring** (Patarasuk and Yuan 2009) shares this work. Cut the array into $n$ slices. Each process only ever sends
# to the next one, $r \to r + 1$, and the last one sends to process 0. It goes in two rounds:
#
# * [**Reduce-scatter**](glossary.md#reduce-scatter), $n - 1$ steps. Process $r$ begins with slice $r$: it sends its own
#   numbers to the next process. That one adds its own and sends the sum on. All slices travel at the same time. After
#   $n - 1$ steps each process has the complete sum of *one* slice.
# * [**All-gather**](glossary.md#all-gather), $n - 1$ steps. The complete slices go around once more, and are copied.


# %%
def ring(arrays):
    """All-reduce around a ring. → the sums, numbers sent by each process."""
    n, P = len(arrays), len(arrays[0])
    cut = [slice(P * k // n, P * (k + 1) // n) for k in range(n)]
    held, sent = [array.copy() for array in arrays], [0] * n

    for step in range(n - 1):  # reduce-scatter
        travelling = []
        for r in range(n):  # all send at the same time, so first all messages are written
            k = (r - step) % n
            travelling.append(held[r][cut[k]].copy())
            sent[r] += len(travelling[r])
        for r in range(n):
            k = (r - step) % n
            held[(r + 1) % n][cut[k]] = travelling[r] + held[(r + 1) % n][cut[k]]

    for step in range(n - 1):  # all-gather: process r begins with the slice that it has completed, r + 1
        travelling = []
        for r in range(n):
            k = (r + 1 - step) % n
            travelling.append(held[r][cut[k]].copy())
            sent[r] += len(travelling[r])
        for r in range(n):
            k = (r + 1 - step) % n
            held[(r + 1) % n][cut[k]] = travelling[r]
    return held, sent


arrays = list(rng.standard_normal((4, 12)))
summed, sent = ring(arrays)
print("all have the sum:", all(np.allclose(each, sum(arrays)) for each in summed), "- sent by each:", sent)

# %% [markdown]
# Let us count. In each of the $2(n-1)$ steps a process sends one slice, $P/n$ numbers. So it sends
#
# $$ 2\,\frac{n-1}{n}\,P $$
#
# numbers, which is less than $2P$ **for every $n$**. It cannot be done with less: Patarasuk and Yuan prove that, too.

# %%
print("numbers sent, in P:\n  n   star, process 0        ring, each")
for n in (2, 4, 8, 64):
    arrays = [np.zeros(6400) for _ in range(n)]
    print(f"{n:3} {max(star(arrays)[1]) / 6400:17.2f} {max(ring(arrays)[1]) / 6400:17.2f}")

# %% [markdown]
# That is why rings are so common. But in which order do they add? Python can show that: let the ring "add" letters.
# For text, `+` writes one behind the other, and so the result is the order:

# %%
for n in (2, 3, 4):
    letters = [np.array([letter] * n, dtype=object) for letter in "abcd"[:n]]
    print(f"{n} processes:", ", ".join(f"slice {k}: {text}" for k, text in enumerate(ring(letters)[0][0])))

# %% [markdown]
# Each slice begins at another process. And what a letter stands for depends on $n$: with two processes `a` is the sum
# of four shards, with four processes of two. So the bits depend on $n$ and on where a number lies in the array.
# Patarasuk and Yuan say so in their first sentence: they assume that the operation is associative. Ours is not.
#
# Here are our eight gradients, shared by $n$ processes. Each adds up its shards in order, and the ring does the rest:

# %%
alone = in_order(grads)
for n in (1, 2, 3, 4, 8):
    of_each = [in_order([grads[shard] for shard in share(SHARDS, rank, n)]) for rank in range(n)]
    (total, *_), _ = ring(of_each)
    print(f"{n} processes: {(total != alone).mean():4.0%} of the numbers are not those of one process")

# %% [markdown]
# ## One tree
#
# How can $n$ processes add up arrays so that nobody can tell afterwards how many they were? The idea has two halves:
#
# * **The shards are fixed.** The batch is cut into the same eight shards, whether one process computes all of them or
#   eight compute one each. So the numbers that are added do not depend on $n$.
# * **The brackets are fixed.** They are those of one binary tree over the shards. Neighbours are added first, then
#   pairs of neighbours, and so on. Whoever does an addition, it is an addition of the same two numbers.
#
# The package's [`TreeSum`](../minitransformer/training/parallel/shards.py) adds along this tree. It takes the values
# one after another, and adds two siblings as soon as it has both. `add(left, right)` adds in place, so here are texts
# in lists:


# %%
def write_brackets(left, right):
    left[0] = f"({left[0]} + {right[0]})"


for count in (8, 7, 5):
    tree = TreeSum(write_brackets)
    for shard in range(count):
        tree.push(shard, [str(shard)])
    print(tree.total()[0])

# %% [markdown]
# A process that has the shards 4, 5, 6 and 7 can do all additions below one node of the tree by itself: it has a *whole
# subtree*. One that has the shards 2, 3 and 4 has two of them: the pair (2, 3), and 4 alone. It must not add these two.
# In the tree 4 goes with 5, which another process has. `subtrees` gives the largest whole subtrees of consecutive
# shards, each as its first shard and its size, and `share` gives each process its shards:

# %%
for n in (1, 2, 3, 4):
    print(f"n = {n}:", "; ".join(f"process {r} {subtrees(share(SHARDS, r, n))}" for r in range(n)))

# %% [markdown]
# So this is the exchange. The flat array of the gradient is cut into a slice for each process, as for the ring. Every
# process adds up its largest subtrees. It sends each of these sums to every other process, but only the numbers in the
# receiver's slice. And each process adds what it has received, for its own slice, along the rest of the tree.
#
# ## The picture: the same tree, shared by two and by three

# %% tags=["picture"]
draw_exchange(num_shards=SHARDS, sizes=(2, 3))

# %% [markdown]
# With two processes everyone sends one sum, cut into slices: $(n-1)/n \cdot P$ numbers, as in the first half of the
# ring. With three, some send two sums. That is the price of the equal bits where $n$ does not divide the shards.
#
# ### Exercise 1 ★★☆: the exchange
#
# We simulate all processes in one function. `send` stands for the network, and the check looks at what goes through it.
# You may use `subtrees` and `TreeSum`, which takes a function that adds its second array to its first, in place:
# `TreeSum(add)`. `tree.push(first, value, size)` adds the sum of a whole subtree; push in the order of the shards. What
# you push is changed by this, so push copies of what you were given.


# %%
def add(left, right):
    left += right


# %% tags=["exercise"]
def exchange(grads, shares, parts, send):
    """The sum of all shards' gradients along the tree; each process gets its slice of it.

    grads: a list of the shards' gradients, float32 arrays (P,). shares[r]: the range of shards whose gradients process
    r has. parts[r]: the slice of the sum that it wants.
    send(sender, receiver, array) → a copy of the array, as the receiver gets it. What one process has and another
    needs goes through it: the sum of each of the sender's largest subtrees, in the receiver's slice, a call for each.
    → a list: for each process its slice of the sum, a float32 array.
    """
    raise NotImplementedError


# %%
exchange = check(exchange)

# %% [markdown] tags=["help"]
# Begin with what each process can do alone. Which sums does process 1 make, if it has the shards 2, 3 and 4? Then take
# one receiver. What must it get from each process so that its own tree is complete? What does it take from itself?
#
# ---
#
# First a list for each process: for every `(first, size)` of `subtrees(shares[r])`, push copies of its shards into a
# `TreeSum`, and keep `(first, size, tree.total())`. Then for each receiver a new `TreeSum`: for each sender in turn,
# and each of its sums, push `value[part]` (a copy, if it is its own; else what `send` returns) with `first` and `size`.

# %% [markdown]
# One to eight processes share our eight gradients, beside the package's `TreeSum` over all shards in one process.
# [`slices`](../minitransformer/training/parallel/shards.py) cuts the flat array as the package does.


# %%
def tree_total(grads):
    tree = TreeSum(add)
    for shard, grad in enumerate(grads):
        tree.push(shard, grad.copy())
    return tree.total()


alone = tree_total(grads)
print("  n   bits that differ: exchange     ring    numbers sent at most, in P: exchange   first half of a ring")
for n in (1, 2, 3, 4, 5, 8):
    shares, network = [share(SHARDS, rank, n) for rank in range(n)], Network(n)
    total = np.concatenate(exchange(grads, shares, slices(P, n), network.send))
    around = ring([tree_total([grads[shard] for shard in shards]) for shards in shares])[0][0]
    print(f"{n:3} {(total != alone).mean():28.0%} {(around != alone).mean():8.0%} "
          f"{max(network.numbers_sent()) / P:36.2f} {(n - 1) / n:22.2f}")  # fmt: skip

# %% [markdown]
# (Here each process of the ring adds its own shards along a tree. With two processes the ring then has the tree's bits:
# it adds two numbers only, and $a + b = b + a$. It is luck, and it ends with three.)
#
# ## Adam on a slice
#
# After the exchange each process has the sum in its own slice only. The ring would now send the slices around once
# more, and then every process would do all of Adam's work, with the same numbers, $n$ times the same. There is a better
# way. Adam treats every parameter by itself. So process $r$ can update its slice of the *parameters*, and then the
# processes gather these instead of the gradients. As many numbers are sent, and
#
# * Adam's work is shared: each process does $1/n$ of it,
# * the moments $m$ and $v$ of a slice are needed by one process only: $1/n$ of the memory in each.
#
# This is the first stage of ZeRO (Rajbhandari and others 2020).

# %%
theta, grad = rng.standard_normal((2, P), dtype=np.float32)
whole, m, v = theta.copy(), np.zeros(P, np.float32), np.zeros(P, np.float32)
adam_step(whole, grad, m, v, step=1, lr=1e-3)
for n in (2, 3):
    pieces = []
    for part in slices(P, n):
        piece, m, v = theta[part].copy(), *np.zeros((2, part.stop - part.start), np.float32)
        adam_step(piece, grad[part], m, v, step=1, lr=1e-3)
        pieces.append(piece)
    same = np.array_equal(np.concatenate(pieces), whole)
    in_each = 2 * 4 * max(map(len, pieces)) / 1024
    print(f"{n} processes: the bits of one: {same}; moments of {in_each:.0f} KiB in each, not {2 * 4 * P / 1024:.0f}")

# %% [markdown]
# Now all of it together: trainings of 20 steps, simulated, on one to four processes. Beside it the same with the ring.


# %%
def shared_training(n, tree, steps=20):
    """The weights after some steps on n simulated processes, which add along the tree or around the ring."""
    model = small_model()
    theta = model.parameters.data
    shares, parts = [share(SHARDS, rank, n) for rank in range(n)], slices(P, n)
    m, v = np.zeros((2, P), np.float32)
    for step in range(1, steps + 1):
        _, grads = shard_gradients(model, batch_of(step))
        if tree:
            sums = exchange(grads, shares, parts, Network(n).send)
        else:
            total = ring([in_order([grads[shard] for shard in shards]) for shards in shares])[0][0]
            sums = [total[part] for part in parts]
        for part, grad in zip(parts, sums, strict=True):  # each process, its slice
            adam_step(theta[part], grad, m[part], v[part], step=step, lr=1e-4 * step)
    return theta.copy()


with_one = {tree: shared_training(1, tree) for tree in (True, False)}
for n in (2, 3, 4):
    same = {tree: np.array_equal(shared_training(n, tree), with_one[tree]) for tree in (True, False)}
    print(f"{n} processes against one, 20 steps: equal bits along the tree {same[True]}, with the ring {same[False]}")

# %% [markdown]
# ### The backward of a gather
#
# With ZeRO's third stage (also called FSDP) a process does not even keep all *parameters*. It has a slice of them, and
# the processes gather a layer's weights just before they need them. So the gather stands inside the forward, and it
# needs a backward, as everything in a forward does.
#
# The forward: process $r$ has the piece $x_r$. After the gather all have the same $y = (x_0, x_1, \dots)$, each a copy
# of its own, and each goes on with it in its own way. So each process has its own gradient $\mathrm{d}y^{(q)}$, of the
# one loss, through its own copy.
#
# ### Exercise 2 ★☆☆: backwards through a gather
#
# Which collective operation of this lesson is it?


# %%
def gather_forward(pieces):
    """A list of arrays, a piece for each process → a list of wholes, one for each process; the widths of the pieces."""
    whole = np.concatenate(pieces)
    return [whole.copy() for _ in pieces], [len(piece) for piece in pieces]


# %% tags=["exercise"]
def gather_backward(dwholes, widths):
    """dwholes: for each process the gradient (P,) of its whole; widths: of the pieces, whose sum is P.

    → a list: for each process the gradient of its piece.
    """
    raise NotImplementedError


# %%
gather_backward = check(gather_backward)

# %% [markdown] tags=["help"]
# Where does one number of $x_r$ go? How many copies of it are there afterwards? What does the chain rule say about a
# number that is used in several places (lesson 00)?
#
# ---
#
# The gradient of a number is the *sum* of the gradients of all its copies: add up `dwholes`. Then process $r$ gets the
# places of its own piece, which begin at `sum(widths[:r])`.

# %% [markdown]
# A sum, and everyone gets a slice of it: the backward of an all-gather is a **reduce-scatter**. By the same rule the
# backward of a reduce-scatter is an all-gather. Central differences (lesson 00) agree; here all wholes are one array,
# a row for each process, and each row has a gradient of its own:


# %%
def forward(*pieces):
    wholes, widths = gather_forward(pieces)
    return np.stack(wholes), widths


def backward(dout, widths):
    return gather_backward(list(dout), widths)


pieces = {f"piece {r}": rng.standard_normal(width) for r, width in enumerate((3, 1, 4))}
for name, worst in check_gradients(forward, backward, pieces).items():
    print(f"{name}: error {worst:.0e}")

# %% [markdown]
# ## The norm of a gradient in slices (optional)
#
# Clipping needs the norm of the *whole* gradient, and each process has a slice. It is enough to exchange one number:
#
# $$ \lVert g \rVert^2 = \sum_r \lVert g_r \rVert^2 $$
#
# ### Exercise 3 ★☆☆: clip a slice
#
# Each process runs this function, on its own slice.


# %% tags=["exercise"]
def clip_slice(part, clip_norm, sum_of_all):
    """A process's slice of a gradient that is clipped: where the whole is longer than clip_norm, it is scaled to that.

    part (p,): the slice. sum_of_all(number) → the sum of the numbers that all processes call it with, the same in all;
    it waits until each process has called it, once. → an array (p,).
    """
    raise NotImplementedError


# %%
clip_slice = check(clip_slice)

# %% [markdown] tags=["help"]
# What can each process compute alone, so that the sum over the processes says something about the whole? And which
# processes must call `sum_of_all`, if all wait for all?
#
# ---
#
# `norm = np.sqrt(sum_of_all(np.sum(part**2)))`, always. Then `part * (clip_norm / norm)` if `norm` is above
# `clip_norm`, else `part`.

# %% [markdown]
# All slices are scaled by one factor, so the direction of the whole stays. With a limit of 1 for each slice by itself
# it does not:

# %%
_, grads = shard_gradients(small_model(), batch_of(1))
grad = 5 * tree_total(grads).astype(np.float64)
parts = [grad[part] for part in slices(P, 3)]
squares = sum(float(np.sum(part**2)) for part in parts)
clipped = np.concatenate([clip_slice(part, 1.0, lambda own: squares) for part in parts])
each = np.concatenate([part * min(1.0, 1.0 / np.linalg.norm(part)) for part in parts])
for name, result in (("one factor for all", clipped), ("each by its own norm", each)):
    cosine = result @ grad / np.linalg.norm(result) / np.linalg.norm(grad)
    print(f"{name:<21} norm {np.linalg.norm(result):.3f}, cosine of the angle to the gradient {cosine:.4f}")

# %% [markdown]
# (For equal bits the squares, too, must be added in an order that does not depend on $n$. The package cuts the flat
# array into at most 64 pieces, never through one, and adds their squares in order.)
#
# ## What is weighted by what
#
# The loss of a batch is the mean over its *targets*. Sentences have different lengths, so processes with equally many
# sentences have different numbers of targets. PyTorch's `DistributedDataParallel` averages the gradients of the
# processes, as if all had equally many. How wrong is that? Here 64 sentences of all lengths are sorted and cut into
# four parts with equally many:

# %%
model = small_model()
model.parameters.data[:] = with_one[True]  # it has learned a little
everything = Batches(TokenDataset.from_pairs([dataset[i] for i in range(64)]), 10_000, seed=0).batch(0, 0)
by_length = np.argsort((everything.target_out != 0).sum(axis=1), kind="stable")
quarters = [Batch(*(ids[rows] for ids in everything.inputs)) for rows in np.array_split(by_length, 4)]
whole_loss, whole_grad = loss_and_grad(model, everything, 1.0)
counts = np.array([quarter.num_targets for quarter in quarters])
print("targets of the four processes:", counts.tolist())
for name, weights in (("1/n for each process", np.full(4, 0.25)), ("share of the targets", counts / counts.sum())):
    found = [loss_and_grad(model, quarter, weight) for quarter, weight in zip(quarters, weights, strict=True)]
    loss, grad = sum(loss for loss, _ in found), sum(grad for _, grad in found)
    off = np.linalg.norm(grad - whole_grad) / np.linalg.norm(whole_grad)
    print(f"{name:<21} loss {loss:.4f} for {whole_loss:.4f}; the gradient is off by {off:.1e} of its length")

# %% [markdown]
# That is not a last bit. The words of short sentences count for more. And the error depends on $n$, so here is
# a second way in which a training changes with the number of processes. This one *is* a mistake.
#
# The same holds for all that is random. A dropout mask that comes from a generator in each process depends on who
# computes what. In the package a mask belongs to a sentence by its number (lesson 07).
#
# ## What it costs
#
# How much time does all this take? We compute it for the paper's base model. The assumptions:
#
# * Gradients and parameters travel in float32, over a link of 400 Gb/s in each direction, which is used to the full.
#   Nothing is computed meanwhile.
# * The batch is the paper's, 25,000 source and 25,000 target tokens, whatever $n$ is; 64 shards. So every process
#   computes $1/n$.
# * A P100 is as fast as in the paper: a step took 0.4 s on eight. An H100 reaches 40 % of its data sheet's rate.

# %%
LINK = 400e9 / 8  # bytes a second
base = TransformerConfig.base()
size = num_parameters(base)
h100 = next(gpu for gpu in GPUS if gpu.name == "H100")
gpu_seconds = {"P100": 8 * 0.4, "H100": 50_000 * flops_per_token(base, 25).training / (0.4 * h100.flops)}
print(f"{size / 1e6:.0f} million parameters; one GPU would compute for", end=" ")
print(", ".join(f"{1e3 * seconds:,.0f} ms ({name})" for name, seconds in gpu_seconds.items()))


def bytes_sent(n, shards=64):
    """The bytes that one process sends in a step, at most: sums of subtrees, then its slice of the parameters."""
    widths = [part.stop - part.start for part in slices(size, n)]
    sums = [len(subtrees(share(shards, rank, n))) for rank in range(n)]
    return 4 * max(s * (size - width) + (n - 1) * width for s, width in zip(sums, widths, strict=True))


print("\n  n    ours, MB    ring, MB    star, MB   ours, ms   computing on P100, ms   on H100, ms")
for n in (2, 3, 8, 64):
    ours, around, hub = bytes_sent(n), 4 * 2 * (n - 1) / n * size, 4 * 2 * (n - 1) * size
    print(f"{n:3} {ours / 1e6:11,.0f} {around / 1e6:11,.0f} {hub / 1e6:11,.0f} {1e3 * ours / LINK:10.1f}", end="")
    print(f" {1e3 * gpu_seconds['P100'] / n:23,.0f} {1e3 * gpu_seconds['H100'] / n:13.1f}")

# %% [markdown]
# (The star's numbers are what process 0 receives and then sends. Ours may be a little above the ring where slices are
# whole pieces, and is far above it with three processes and 64 shards: then a process has several subtrees. Take a
# number of processes that divides the shards.)
#
# Computing takes $1/n$ of the time. Sending takes $(n-1)/n$ of a fixed time, so that it soon hardly changes with $n$.
# So there is an $n$ from which on sending is longer. In 2017 that was far away. Since then GPUs have gained more speed
# than links have, and today the paper's batch would be too small for many GPUs:

# %%
processes = 2.0 ** np.arange(1, 8)
_, axes = plt.subplots(figsize=(7.2, 3.0))
for (name, seconds), colour in zip(gpu_seconds.items(), (BLUE, VERMILION), strict=True):
    axes.plot(processes, 1e3 * seconds / processes, "o-", ms=4, color=colour, label=f"computing, {name}")
ring_ms = 1e3 * 4 * 2 * (processes - 1) / processes * size / LINK
axes.plot(processes, ring_ms, color=INK, label="sending, ring or tree")
axes.plot(processes, 1e3 * 4 * 2 * (processes - 1) * size / LINK, color=GREY, ls="--", label="sending, star")
axes.set(xscale="log", yscale="log", xlabel="processes", ylabel="ms a step", title="The paper's base model and batch")
axes.set_xticks(processes, [f"{n:.0f}" for n in processes])
axes.minorticks_off()
axes.legend(fontsize=8)
plt.show()

# %% [markdown]
# What helps: larger batches; sending 16-bit numbers; and sending the gradients of the last layers while those of the
# first are still being computed, since the backward has the last ones ready first. (Ours sends after the backward.)
#
# ## With real processes (optional)
#
# All of this was simulated. Here it is on real processes, which send through `torch.distributed` (its library *gloo*,
# for CPUs). Each of them runs [this file](course/lesson_26/processes.py): ten steps, once with the package's exchange,
# once with PyTorch's `all_reduce`. We compare checksums of the weights.


# %%
def with_real_processes():
    import torch.distributed  # noqa: F401 - without PyTorch, what was recorded is shown

    from course.lesson_26.processes import shared, trained

    return [[trained()], *(shared(size) for size in (2, 3))]


results = recorded("26_processes", with_real_processes)
(alone,) = results[0]
for way, name in (("tree", "along the tree"), ("all_reduce", "by all_reduce")):
    for of_all in results[1:]:
        among = len({each[way] for each in of_all}) == 1
        same = of_all[0][way] == alone[way]
        print(f"{name:<15} {len(of_all)} processes: equal among them {among}, equal to one process {same}")

# %% [markdown]
# Real trainings are started by PyTorch's launcher, `torchrun`. It starts the processes, tells each its rank, and starts
# all of them again if one dies:
#
# ```bash
# torchrun --standalone --nproc-per-node 2 -m minitransformer train --dataset multi30k --preset tiny --out runs/en-de
#
# # on two machines with 8 GPUs each, the same command on both:
# torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint first-machine:29400 \
#     -m minitransformer train --dataset multi30k --preset tiny --backend triton --out /shared/en-de
# ```
#
# All processes but the first write nothing and print nothing. A training that was stopped on four processes goes on
# with two, or with one, and ends with the same bits.
#
# ## Common mistakes, and what they look like
#
# * **A mean of means.** See above. It looks fine as long as all batches are equally long.
# * **A step that one process does not take.** `if loss is not finite: continue`, on one process only: the others wait
#   in their all-reduce for ever. Decide together (`sum_of_all` of a 0 or a 1).
# * **The same shard in every process**, because all draw their data with the same seed. The loss falls, and $n$
#   processes learn what one would have learned.
# * **Weighted twice.** Gradients that were averaged by the library *and* weighted by the shares are $n$
#   times too small. Adam hides it, since it does not mind the scale; clipping does not.
# * **Trust in more digits.** Sums in float64 depend on their order too. After rounding to float32 that hardly ever
#   shows, which may be good enough. But it is twice the bytes, and no promise: a difference that comes once in a
#   million is harder to find than one that always comes.

# %%
model = small_model()
_, grads = shard_gradients(model, batch_of(1))
true = in_order(grads)
repeated = in_order([grads[0]] * SHARDS)
print(
    f"every process the same shard: off by {np.linalg.norm(repeated - true) / np.linalg.norm(true):.0%} of the gradient"
)
many = (rng.standard_normal((SHARDS, 1_000_000)) * 10 ** rng.uniform(-6, 6, (SHARDS, 1_000_000))).astype(np.float32)
for dtype in (np.float32, np.float64):
    sums = np.array([in_order(np.roll(many, k, axis=0).astype(dtype)) for k in range(SHARDS)])
    rounded = sums.astype(np.float32)
    print(f"sums in {dtype.__name__}: {np.any(sums != sums[0], axis=0).mean():.0%} depend on who begins, "
          f"and {np.any(rounded != rounded[0], axis=0).sum():,} of a million after rounding to float32")  # fmt: skip

# %% [markdown]
# ## What changed since 2017
#
# In 2017 a training was *data-parallel*: every GPU had the whole model. Models that do not fit into one GPU are cut:
# within a layer (tensor parallelism, Shoeybi and others 2019), between layers (pipelines), and in their state (ZeRO,
# Rajbhandari and others 2020; FSDP). The collective operations are still those of this lesson. Rings take $2(n-1)$
# steps, each with a delay, so with thousands of GPUs libraries use trees and networks that add on the way. Equal bits
# have become a topic of their own: kernels for language models that are "batch-invariant" give an answer that does not
# depend on who else is asking.
#
# Sources: Patarasuk and Yuan 2009, *Bandwidth optimal all-reduce algorithms for clusters of workstations*; Rajbhandari,
# Rasley, Ruwase and He 2020, *ZeRO: Memory optimizations toward training trillion parameter models*.
#
# Open questions, to try yourself:
#
# * Where $n$ does not divide the shards, a process sends several sums. Are equal bits possible with less?
# * The exchange waits for the end of the backward. Which bits would change if layers were sent as soon as they are
#   ready? (None. Why?)
# * Equal bits hold on one type of processor with one build of the libraries. What in a matrix product depends on these?
#
# ## Where next
#
# `python -m minitransformer train --help` has the number of shards, `--shards`, and [the tests](../tests) share
# trainings between processes, kill some of them, and compare bits. [Lesson 18](18_your_transformer.ipynb) is the one to
# come back to: everything in one file of your own.
