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
# The paper's models were trained on eight GPUs at once (§5.2). Each computes the gradient of a part of the batch, then
# all of them add up what they have found, and take one step together. The sum is the same for two GPUs and for eight,
# so the training run should be the same too. Try it with a common library, with the same data and the same seed, once
# on two processes and once on three. At first the losses agree to the last printed digit. Some hundred steps later
# **the third digit differs**, and there is no bug. Why, does it matter, and can it be avoided?

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import recorded, start
from course.lesson_17.roofline import GPUS
from course.lesson_26 import small
from course.lesson_26.network import Network
from course.lesson_26.pictures import draw_drift, draw_exchange
from course.lesson_26.small import SHARDS, batch_of, loss_and_grad, shard_gradients, small_model
from course.measuring import blas_threads
from course.style import BLUE, GREY, INK, VERMILION, show
from minitransformer import TransformerConfig
from minitransformer.costs import flops_per_token, num_parameters
from minitransformer.gradcheck import check_gradients
from minitransformer.ops import adam_step
from minitransformer.training.parallel.shards import TreeSum, share, slices, subtrees

check = start("26")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## A sum has an order
#
# A float32 has 24 binary digits. The sum of two of them may need more, so it is rounded, and the rounding depends on
# the order of the additions:

# %%
a, b, c = np.float32([1e8, -1e8, 1.25])
print(f"(a + b) + c = {(a + b) + c}, a + (b + c) = {a + (b + c)}")

# %% [markdown]
# Addition of floats is *commutative*, a + b = b + a. It is not *associative*: brackets matter.
#
# Now real gradients, of a [small Transformer](course/lesson_26/small.py) that learns German
# from the grammar of lesson 02. A batch is cut into eight [shards](glossary.md#shard). The gradient of each shard is
# weighted by its share of the targets, so that the batch's gradient is the plain sum of the eight (lesson 09, exercise
# 4). Add them from the first to the last, from the last to the first, and in pairs of pairs. The sum in float64, whose
# rounding is so much finer, stands for the exact one.


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


_, grads = shard_gradients(small_model(), batch_of(1))
P = len(grads[0])
exact = np.sum(grads, axis=0, dtype=np.float64)
for order in (in_order, backwards, in_pairs):
    total = order(grads)
    off = np.linalg.norm(total - exact) / np.linalg.norm(exact)
    print(f"{order.__name__:<10} error {off:.1e} of the gradient of {P:,} numbers; "
          f"{(total != in_order(grads)).mean():4.0%} are not those of in_order")  # fmt: skip

# %% [markdown]
# About half of all numbers differ, each in its last digit. No order is wrong: all errors are of the same size. So does
# the last digit matter?
#
# ## The last bit, in a training run
#
# Two runs begin with the same weights and take the same batches. One adds its shards in order, the other backwards.
# Nothing else differs. After each step we compare their weights and their losses.

# %%
STEPS = 300
drift = small.drift(in_order, backwards, STEPS)
draw_drift(drift.differences, rounding=float(np.finfo(np.float32).eps))
for digits in (6, 4, 3, 2):
    differing = [step for step, (x, y) in enumerate(drift.losses, 1) if f"{x:.{digits}f}" != f"{y:.{digits}f}"]
    when = f"in step {differing[0]}" if differing else f"not in {STEPS} steps"
    print(f"digit {digits} after the point of the loss differs for the first time {when}")
print("\n".join(small.in_one_step(drift)))

# %% [markdown]
# The picture shows three things.
#
# * **The key biases** diverge at the second step, each time by a full Adam step. A key bias adds the same number to all
#   scores of a query, and the softmax does not see that (lesson 04). So its true gradient is 0, and we compute nothing
#   but rounding. Adam divides by the size of the gradient (lesson 09), so it makes full steps of this noise. It does no
#   harm: the loss does not depend on these biases.
# * **All other weights** stay together for a long time, to about the last bit. The difference grows slowly.
# * Then, within a few steps, it **jumps** by orders of magnitude, and the loss follows. The network has corners: where
#   the input of a ReLU is nearly 0, the last bit decides whether a token's gradient goes through or not. Then the
#   gradients of this hidden unit differ in their first digits. (Where this was recorded, one unit jumps alone, in one
#   step, as the last lines show.) From there on the difference grows by itself. That is called *chaos*: small causes,
#   large effects.
#
# Is one of the two runs better? No, no more than one of two seeds. Then why do people want equal bits? For the same
# reasons as in [lesson 09](09_training.ipynb), where a stopped run went on with equal bits:
#
# * **A bug can be told from noise.** If equal bits are promised, one differing bit is a bug. Otherwise every difference
#   can be explained away.
# * **A run may change its size.** It stops on eight GPUs, goes on with four, and is still the same run.
# * **An experiment compares what it means to compare**, and not how many machines were free that day.
#
# ## All-reduce
#
# There are $n$ processes, numbered from 0; a number is also called a *rank*. Each has an array of $P$ numbers: the
# gradient of its part of the batch. Afterwards each needs the sum of all arrays. This is an
# [**all-reduce**](glossary.md#all-reduce).
#
# The naive way is a star: all send their arrays to process 0, which adds them up and sends the sum back. It receives
# $(n-1)P$ numbers and sends as many, one after the other through its one cable, and all others wait.
#
# The **ring** (Patarasuk and Yuan 2009) shares this work. Cut the array into $n$ slices. Each process only ever sends
# to the next one, $r \to r + 1$, and the last one sends to process 0. It goes in two rounds:
#
# * [**Reduce-scatter**](glossary.md#reduce-scatter), $n - 1$ steps. Process $r$ begins with slice $r$: it sends its own
#   numbers to the next process. That one adds its own and sends the sum on. All slices travel at the same time. After
#   $n - 1$ steps each process has the complete sum of *one* slice.
# * [**All-gather**](glossary.md#all-gather), $n - 1$ steps. The complete slices go around once more, and are copied.
#
# We simulate it in one process, and count the numbers that each process sends.


# %%
def ring(arrays):
    """All-reduce around a ring. → the sums, numbers sent by each process."""
    n, P = len(arrays), len(arrays[0])
    cut = [slice(P * k // n, P * (k + 1) // n) for k in range(n)]
    held, sent = [array.copy() for array in arrays], [0] * n

    def pass_on(number, adds):
        """Process r sends slice r + number to the next one; all send at the same time."""
        messages = [held[r][cut[(r + number) % n]].copy() for r in range(n)]
        for r, message in enumerate(messages):
            place = held[(r + 1) % n][cut[(r + number) % n]]
            place[:] = message + place if adds else message
            sent[r] += len(message)

    for step in range(n - 1):  # reduce-scatter
        pass_on(-step, adds=True)
    for step in range(n - 1):  # all-gather: process r begins with the slice that it has completed, r + 1
        pass_on(1 - step, adds=False)
    return held, sent


arrays = list(rng.standard_normal((4, 12)))
print("all have the sum:", all(np.allclose(each, sum(arrays)) for each in ring(arrays)[0]))
for n in (2, 4, 8, 64):
    around = max(ring([np.zeros(6400)] * n)[1]) / 6400
    print(f"{n:3} processes: process 0 of a star sends {n - 1:2} P, each of a ring {around:.2f} P")

# %% [markdown]
# In each of the $2(n-1)$ steps a process sends one slice, $P/n$ numbers. So it sends
#
# $$ 2\,\frac{n-1}{n}\,P $$
#
# numbers, which is less than $2P$ **for every $n$**. It cannot be done with less: Patarasuk and Yuan prove that, too.
#
# But in which order does a ring add? Let it "add" letters: for text, `+` writes one behind the other, so the result is
# the order. And our eight gradients, shared by $n$ processes, each of which adds up its own shards first:

# %%
for n in (2, 3, 4):
    letters = [np.array([letter] * n, dtype=object) for letter in "abcd"[:n]]
    of_each = [in_order([grads[shard] for shard in share(SHARDS, rank, n)]) for rank in range(n)]
    differ = (ring(of_each)[0][0] != in_order(grads)).mean()
    print(f"{n} processes:", ", ".join(f"slice {k}: {text}" for k, text in enumerate(ring(letters)[0][0])),
          f"- {differ:.0%} of the numbers are not those of one process")  # fmt: skip

# %% [markdown]
# Each slice begins at another process, and what a letter stands for depends on $n$: with two processes `a` is the sum
# of four shards, with four of two. So the bits depend on $n$ and on where a number lies in the array. Patarasuk and
# Yuan say so in their first sentence: they assume that the operation is associative. Ours is not.
#
# ## One tree
#
# How can $n$ processes add up arrays so that the sum does not depend on $n$? The idea has two halves:
#
# * **The shards are fixed.** The batch is cut into the same eight shards, whether one process computes all of them or
#   eight compute one each.
# * **The brackets are fixed.** They are those of one binary tree over the shards: neighbours first, then pairs of
#   neighbours, and so on. Each addition, wherever it happens, adds the same two numbers.
#
# The package's [`TreeSum`](../minitransformer/training/parallel/shards.py) adds along this tree. It takes the values
# one after another, and adds two siblings as soon as it has both. `add(left, right)` adds in place, so here are texts
# in lists:


# %%
def write_brackets(left, right):
    left[0] = f"({left[0]} + {right[0]})"


for count in (8, 5):
    tree = TreeSum(write_brackets)
    for shard in range(count):
        tree.push(shard, [str(shard)])
    print(tree.total()[0])

# %% [markdown]
# A process that has the shards 4, 5, 6 and 7 can do all additions below one node of the tree by itself: it has a *whole
# subtree*. A process with the shards 2, 3 and 4 has two of them: the pair (2, 3), and 4 alone. It must not add these
# two: in the tree 4 goes with 5, which another process has. `share` gives each process its shards, and `subtrees` their
# largest whole subtrees, each as its first shard and its size:

# %%
for n in (2, 3):
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
# You may use `subtrees` and `TreeSum(add)`, where `add` adds its second array to its first, in place.
# `tree.push(first, value, size)` adds the sum of a whole subtree; push in the order of the shards. The tree changes
# what you push, so push copies.


# %%
def add(left, right):
    left += right


# %% tags=["exercise"]
def exchange(grads, shares, parts, send):
    """The sum of all shards' gradients along the tree; each process gets its slice of it.

    grads: a list of the shards' gradients, float32 arrays (P,). shares[r]: the range of shards whose gradients process
    r has. parts[r]: the slice of the sum that it wants.
    send(sender, receiver, array) → a copy of the array, as the receiver gets it. Everything that one process needs from
    another goes through it: the sum of each of the sender's largest subtrees, in the receiver's slice, a call for each.
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
print("  n   bits that differ   numbers sent at most, in P   first half of a ring")
for n in (1, 2, 3, 4, 5, 8):
    shares, network = [share(SHARDS, rank, n) for rank in range(n)], Network(n)
    total = np.concatenate(exchange(grads, shares, slices(P, n), network.send))
    sent = max(network.numbers_sent()) / P
    print(f"{n:3} {(total != alone).mean():18.0%} {sent:28.2f} {(n - 1) / n:22.2f}")

# %% [markdown]
# ## Adam on a slice
#
# After the exchange each process has the sum in its own slice only. The ring would now send the slices around once
# more, and then every process would do all of Adam's work, $n$ times the same. There is a better way. Adam treats every
# parameter by itself. So process $r$ can update its slice of the *parameters*, and then the processes gather these
# instead of the gradients. As many numbers are sent, and
#
# * Adam's work is shared: each process does $1/n$ of it,
# * the moments $m$ and $v$ of a slice are needed by one process only: $1/n$ of the memory in each.
#
# This is the first stage of ZeRO (Rajbhandari and others 2020). Here is all of it together: runs of 20 steps, simulated
# on one to four processes, along the tree and around the ring.


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
# ## Weighted by targets, not by processes
#
# The loss of a batch is the mean over its *targets*. Sentences differ in length, so processes with equally many
# sentences have different numbers of targets. PyTorch's `DistributedDataParallel` averages the gradients of the
# processes, as if all had equally many. How wrong is that? Here 64 sentences of all lengths are sorted and cut into
# four parts with equally many:

# %%
model = small_model()
model.parameters.data[:] = with_one[True]  # it has learned a little
everything, quarters = small.sentences_by_length(64, parts=4)
whole_loss, whole_grad = loss_and_grad(model, everything, 1.0)
counts = np.array([quarter.num_targets for quarter in quarters])
print("targets of the four processes:", counts.tolist())
for name, weights in (("1/n for each process", np.full(4, 0.25)), ("share of the targets", counts / counts.sum())):
    found = [loss_and_grad(model, quarter, weight) for quarter, weight in zip(quarters, weights, strict=True)]
    loss, grad = sum(loss for loss, _ in found), sum(grad for _, grad in found)
    off = np.linalg.norm(grad - whole_grad) / np.linalg.norm(whole_grad)
    print(f"{name:<21} loss {loss:.4f} for {whole_loss:.4f}; the gradient is off by {off:.1e} of its length")

# %% [markdown]
# This is more than a last bit. The words of short sentences count for more, and the error depends on $n$: this second
# way in which a run changes with the number of processes *is* a mistake. The same holds for all that is random. A
# dropout mask from a generator in each process depends on who computes what. In the package a mask belongs to a
# sentence by its number (lesson 07).
#
# ## The backward of a gather (optional)
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
# Which operation of this lesson is it?


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
# <details><summary>The operation</summary>
#
# A sum, and everyone gets a slice of it: the backward of an all-gather is a **reduce-scatter**. By the same rule the
# backward of a reduce-scatter is an all-gather.
#
# </details>
#
# Central differences (lesson 00) agree; here all wholes are one array, a row for each process, and each row has a
# gradient of its own:


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
# ## What it costs (optional)
#
# How much time does all this take? We compute it for the paper's base model. The assumptions:
#
# * Gradients and parameters travel in float32, over a fully used link of 400 Gb/s in each direction, while no process
#   computes.
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
# (The star's numbers are those that process 0 receives and then sends. Ours is far above the ring with three processes
# and 64 shards: then a process has several subtrees. Take a number of processes that divides the shards.)
#
# Computing takes $1/n$ of the time. Sending takes $(n-1)/n$ of a fixed time, which soon hardly changes with $n$. Beyond
# some $n$, sending takes longer than computing. In 2017 that $n$ was far away. Since then GPUs have gained more speed
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
show(
    "Milliseconds a step against the number of processes, both logarithmic. Computing falls in proportion; sending "
    "around a ring soon stays the same, and through a star it rises. On H100s sending takes longer than computing from "
    "a few processes on, on P100s not even with a hundred."
)

# %% [markdown]
# Three things help: larger batches; sending 16-bit numbers; and sending the gradients of the last layers while those of
# the first are still being computed, since the backward has the last ones ready first. (Ours sends after the backward.)
#
# ## With real processes (optional)
#
# All of this was simulated. Here it is on real processes, which send through `torch.distributed` (its library *gloo*,
# for CPUs). Each of them runs [this file](course/lesson_26/processes.py): ten steps, once with the package's exchange,
# once with PyTorch's `all_reduce`. We compare checksums of the weights.


# %%
def with_real_processes():
    import torch.distributed  # noqa: F401 - without PyTorch, the recording is shown

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
# Real runs are started by PyTorch's launcher, `torchrun`. It starts the processes, tells each its rank, and starts
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
# All processes but the first write nothing and print nothing. A run that was stopped on four processes goes on with
# two, or with one, and ends with the same bits.

# %% [markdown]
# ## Common mistakes, and what they look like
#
# * **A mean of means**, as in "Weighted by targets". It looks fine as long as all batches are equally long.
# * **A step that one process does not take.** `if loss is not finite: continue`, on one process only: the others wait
#   in their all-reduce for ever. Decide together, by the sum of a 0 or a 1 from each.
# * **The same shard in every process**, because all draw their data with the same seed. The loss falls, and $n$
#   processes learn what one would have learned.
# * **Weighted twice.** Gradients that were averaged by the library *and* weighted by the shares are $n$
#   times too small. Adam hides it, since it does not mind the scale; clipping does not.
# * **Trust in more digits.** Sums in float64 depend on their order too. After rounding to float32 that hardly ever
#   shows, but a difference that comes once in a million is harder to find than one that always comes.

# %%
many = (rng.standard_normal((SHARDS, 1_000_000)) * 10 ** rng.uniform(-6, 6, (SHARDS, 1_000_000))).astype(np.float32)
for dtype in (np.float32, np.float64):
    sums = np.array([in_order(np.roll(many, k, axis=0).astype(dtype)) for k in range(SHARDS)])
    rounded = sums.astype(np.float32)
    print(f"sums in {dtype.__name__}: {np.any(sums != sums[0], axis=0).mean():.0%} depend on who begins, "
          f"and {np.any(rounded != rounded[0], axis=0).sum():,} of a million after rounding to float32")  # fmt: skip

# %% [markdown]
# ## What changed since 2017
#
# In 2017 training was *data-parallel*: every GPU had the whole model. Models that do not fit into one GPU are cut:
#
# * within a layer (tensor parallelism, Shoeybi and others 2019),
# * between layers (pipelines),
# * and in their state (ZeRO, Rajbhandari and others 2020; FSDP).
#
# Rings take $2(n-1)$ steps, each with a delay, so with thousands of GPUs libraries use trees and networks that add on
# the way. Equal bits have become a topic of their own: "batch-invariant" kernels for language models give an answer
# that does not depend on who else is asking.
#
# Sources: Patarasuk and Yuan 2009, *Bandwidth optimal all-reduce algorithms for clusters of workstations*; Rajbhandari
# and others 2020 (ZeRO), arXiv 1910.02054.
#
# ## Where next
#
# `python -m minitransformer train --help` has the number of shards, `--shards`, and [the tests](../tests) share
# training runs between processes, kill some of them, and compare bits. [Lesson 27](27_rewards.ipynb) trains a model
# without any targets: somebody says how good its texts are. An open question: where $n$ does not divide the shards, a
# process sends several sums. Are equal bits possible with less?
