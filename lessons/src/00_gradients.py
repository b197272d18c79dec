# %% [markdown]
# # 00 · The chain rule on arrays, and how to know that a gradient is right
#
# **You will be able to** write the backward pass of any array operation by hand, and prove it with nothing but the
# forward pass.
#
# | | |
# |---|---|
# | you know | Python, NumPy, the chain rule for one variable |
# | runs in | 15 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | between the lines: §5.3 says "Adam", and Adam needs the gradients of everything before it |
# | in the package | [`linear`](../minitransformer/ops/linear.py), [`gradcheck`](../minitransformer/gradcheck.py) |
#
# ## How to use this course
#
# Run each cell, in order (Shift+Enter). Now and then a cell asks you to write a function. It looks like this:
#
# ```python
# def double(x):
#     """Twice x."""
#     raise NotImplementedError
# ```
#
# Replace the last line and run the cell, and the one after it, which says `check(double)`. The check answers in one
# line: *correct*, *not yet*, or what is wrong with it and why that may be. Until it says *correct* the lesson goes on
# with the package's version, so you can always read on; from then on it runs on yours. Solutions are in
# [`course/lesson_00/`](course/lesson_00/solutions.py), for when you are stuck for longer than is fun.
#
# What you write here is what the package contains: the same names, the same shapes, the same conventions. When the
# course is over you have read it.

# %%
import matplotlib.pyplot as plt
import numpy as np

from course import start
from course.style import BLUE, GREY, VERMILION
from minitransformer.gradcheck import GradientError, check_gradients, error
from minitransformer.ops import linear_backward as package_linear_backward
from minitransformer.ops import linear_forward

check = start("00")
rng = np.random.default_rng(0)

# %% [markdown]
# ## One number at the end
#
# Training changes millions of numbers so that one number, the loss $L$, falls. For each array $x$ on the way to $L$ we
# want to know: if I nudge this element, how much does $L$ move?
#
# $$ \mathrm{d}x_{i} := \frac{\partial L}{\partial x_{i}} $$
#
# Two things follow from the definition, and between them they catch most mistakes:
#
# * **d$x$ has the shape of $x$**, always: one slope for each element.
# * **Where $x$ is used twice, its gradients add.** Nudging it moves $L$ along both ways.
#
# In the code a gradient is `d` and the name: `dx`, `dweight`.
#
# ## A small function first
#
# Take $y = x^2$, element by element, somewhere in the middle of a long computation. Whatever comes after it, suppose
# that it has already handed us d$y$, the slope of $L$ with respect to each $y_i$. The chain rule is all that is left:
#
# $$ \mathrm{d}x_i = \frac{\partial L}{\partial y_i}\,\frac{\partial y_i}{\partial x_i} = \mathrm{d}y_i \cdot 2x_i $$
#
# So an operation is a **pair of functions**. The forward computes $y$, and remembers what the backward will need. The
# backward turns d$y$ into d$x$. In this package that is a convention which every operation keeps:


# %%
def square_forward(x):
    """y = x², and the cache: whatever the backward needs."""
    return x * x, x


def square_backward(dy, cache):
    """dx = dy · 2x."""
    x = cache
    return dy * 2 * x


x = np.array([1.0, 2.0, 3.0])
y, cache = square_forward(x)
dy = np.array([1.0, 1.0, 10.0])  # say that what follows is ten times as sensitive to the last element
print("y ", y)
print("dx", square_backward(dy, cache))

# %% [markdown]
# ## Why nobody builds the Jacobian
#
# In general every $y_j$ may depend on every $x_i$, and the chain rule sums over all ways:
#
# $$ \mathrm{d}x_i = \sum_j \mathrm{d}y_j \, \underbrace{\frac{\partial y_j}{\partial x_i}}_{J_{ji}}
#    \qquad\text{that is}\qquad \mathrm{d}x = J^\top \mathrm{d}y $$
#
# $J$, the Jacobian, has a row for each output and a column for each input. How large is it, for one linear layer in the
# feed-forward network of the paper's base model (512 in, 2,048 out), on a batch of 25,000 tokens (words, or pieces of
# words, each a row of $x$)?

# %%
tokens, width_in, width_out = 25_000, 512, 2_048
jacobian_bytes = 4 * (tokens * width_in) * (tokens * width_out)
print(f"the Jacobian as float32: {jacobian_bytes / 1e15:.1f} petabytes")
print(f"d x, all that we wanted: {4 * tokens * width_in / 1e6:.1f} megabytes")

# %% [markdown]
# A backward therefore never forms $J$. It computes the *product* $J^\top \mathrm{d}y$, straight from the structure of
# the operation: a **vector–Jacobian product**. To find it, write the forward with its indices, and read off who
# contributes to whom.
#
# ## The linear layer, line by line
#
# $y = xW + b$, with $x$ of shape $(N, C_{in})$, $W$ of $(C_{in}, C_{out})$ and $b$ of $(C_{out})$. With indices:
#
# $$ y_{no} = \sum_i x_{ni} W_{io} + b_o $$
#
# In loops, so that nothing hides. (`error(a, b)`, from the package, is max |a − b|, divided by max |b| where that is
# above 1: 1e-16 is rounding.)


# %%
def linear_loops(x, weight, bias):
    """y[n, o] = Σ_i x[n, i] weight[i, o] + bias[o], one multiplication at a time."""
    N, C_in = x.shape
    C_out = weight.shape[1]
    y = np.zeros((N, C_out))
    for n in range(N):
        for o in range(C_out):
            y[n, o] = bias[o]
            for i in range(C_in):
                y[n, o] += x[n, i] * weight[i, o]
    return y


def linear_backward_loops(dy, x, weight):
    """Each line of the forward, undone: whatever was multiplied gets dy times the other factor."""
    dx, dweight, dbias = np.zeros_like(x), np.zeros_like(weight), np.zeros(weight.shape[1])
    N, C_in = x.shape
    for n in range(N):
        for o in range(weight.shape[1]):
            dbias[o] += dy[n, o]  # y[n, o] = bias[o]
            for i in range(C_in):
                dx[n, i] += dy[n, o] * weight[i, o]  # y[n, o] += x[n, i] * weight[i, o]
                dweight[i, o] += dy[n, o] * x[n, i]
    return dx, dweight, dbias


x, weight, bias = rng.standard_normal((5, 3)), rng.standard_normal((3, 4)), rng.standard_normal(4)
dy = rng.standard_normal((5, 4))
print(f"loops against `x @ weight + bias`: {error(linear_loops(x, weight, bias), x @ weight + bias):.1e}")

# %% [markdown]
# Look at what the loops say. `dx[n, i]` collects, over all outputs $o$, the slope of that output times the weight that
# led to it. `dweight[i, o]` collects over all rows $n$: the same weight was used for every row, so its gradients add.
# `dbias[o]` collects over all rows too.
#
# ### Exercise 1: the same without loops
#
# Each of the three sums is one NumPy expression. Let the shapes guide you: there is only one way to multiply `dy` and
# `weight` so that `dx` comes out with the shape of `x`.


# %% tags=["exercise"]
def linear_backward(dy, x, weight):
    """Gradients of y = x @ weight + bias, without a Python loop.

    dy (N, C_out), x (N, C_in), weight (C_in, C_out) → the tuple dx (N, C_in), dweight (C_in, C_out), dbias (C_out,).
    """
    raise NotImplementedError


# %%
linear_backward = check(linear_backward)

# %% [markdown]
# Loops, your version and the package's, side by side. The package takes a cache instead of `x` and `weight`:

# %%
mine = linear_backward(dy, x, weight)
slow = linear_backward_loops(dy, x, weight)
y, cache = linear_forward(x, weight, bias)
theirs = package_linear_backward(dy, cache)
for name, a, b, c in zip(("dx", "dweight", "dbias"), mine, slow, theirs, strict=True):
    print(f"{name:<8} against the loops {error(a, b):.1e}   against the package {error(a, c):.1e}")

# %% [markdown]
# ## But is it right?
#
# Loops and formula agree; but both came out of the same derivation. A proof needs something that does not know
# calculus. Nudge one element of $x$ up by $\varepsilon$, then down by $\varepsilon$, and watch $L$:
#
# $$ \mathrm{d}x_i \approx \frac{L(x + \varepsilon e_i) - L(x - \varepsilon e_i)}{2\varepsilon} $$
#
# ($e_i$ is 1 at place $i$ and 0 elsewhere.) This is the **central difference**. It needs two forward passes for each
# element, so it is far too slow to train with, and it is independent of every formula above: exactly what a referee
# should be.
#
# ### Exercise 2: be the referee


# %% tags=["exercise"]
def numerical_gradient(f, x, eps=1e-5):
    """Gradient of the function f, which gives one number, at x: central differences, one element at a time.

    x (any shape, float64; leave it as it was) → the gradient, of x's shape.
    """
    raise NotImplementedError


# %%
numerical_gradient = check(numerical_gradient)

# %% [markdown]
# ### From an array to a number
#
# `linear` gives an array, and we need one number. So pretend that the loss is $L = \sum_{no} \mathrm{d}y_{no}\,y_{no}$
# for some random, fixed d$y$. Its slope with respect to $y$ is d$y$, so the backward, fed with this d$y$, must return
# the slopes of this $L$. Random numbers matter: with all ones in d$y$, a backward that mixes up its elements would go
# unseen.

# %%
measured = numerical_gradient(lambda x: np.sum(dy * (x @ weight + bias)), x)
print(f"dx by hand against central differences:      {error(mine[0], measured):.1e}")
measured = numerical_gradient(lambda weight: np.sum(dy * (x @ weight + bias)), weight)
print(f"dweight by hand against central differences: {error(mine[1], measured):.1e}")

# %% [markdown]
# ## The picture: how small should ε be?
#
# Taylor says what the difference really measures: $f(x \pm \varepsilon) = f \pm \varepsilon f' +
# \tfrac{\varepsilon^2}{2} f'' \pm \tfrac{\varepsilon^3}{6} f''' + \dots$ In the central difference the even terms
# cancel, and what is left over is $\tfrac{\varepsilon^2}{6} f'''$: halve ε and the error falls to a quarter. The
# one-sided difference $(f(x + \varepsilon) - f(x)) / \varepsilon$ keeps the $\tfrac{\varepsilon}{2} f''$.
#
# Then why not take ε = 10⁻¹⁵? Because a float64 holds 16 digits, and subtracting two nearly equal numbers throws away
# all that they share. What is left is rounding noise of about $10^{-16}$, divided by ε. One error falls with ε, the
# other rises:

# %%
epsilons = np.logspace(-15, 0, 61)


def differences(f, x, dtype):
    """Central and one-sided differences of f at x, computed in dtype, for every ε."""
    x, eps = dtype(x), epsilons.astype(dtype)
    width = (x + eps) - (x - eps)  # the step that was really taken, after rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        return (f(x + eps) - f(x - eps)) / width, (f(x + eps) - f(x)) / ((x + eps) - x)


def relative_error(slopes, truth):
    return np.where(np.isfinite(slopes) & (slopes != truth), np.abs(slopes / truth - 1), np.nan)


truth = np.cos(1.0)  # the slope of sin at 1
central, one_sided = (relative_error(slopes, truth) for slopes in differences(np.sin, 1.0, np.float64))
central32, _ = (relative_error(slopes, truth) for slopes in differences(np.sin, 1.0, np.float32))

figure, axes = plt.subplots(figsize=(7.2, 3.6))
axes.loglog(epsilons, central32, "o", ms=3, color=GREY, label="central, float32")
axes.loglog(epsilons, one_sided, "o", ms=3, color=VERMILION, label="one-sided, float64")
axes.loglog(epsilons, central, "o", ms=3, color=BLUE, label="central, float64")
axes.loglog(epsilons, epsilons**2 / 6, color=BLUE, lw=1, alpha=0.5)
axes.text(0.25, 2e-3, "ε²/6", color=BLUE)
axes.loglog(epsilons, 1e-16 / epsilons, color=GREY, lw=1, alpha=0.7)
axes.text(1.5e-14, 3e-2, "10⁻¹⁶/ε", color=GREY)
axes.axvline(1e-5, color=GREY, lw=0.8, ls=":")
axes.set(xlabel="ε", ylabel="relative error of the slope", ylim=(1e-13, 3))
axes.set_title("The derivative of sin at 1, by differences")
axes.legend(loc="lower left")
plt.show()

# %% [markdown]
# Read the picture from right to left. The central difference falls two decades for each decade of ε, until rounding
# noise catches it; the one-sided difference falls one for one, and never gets far. The valley is where the two errors
# are equal, $\varepsilon^2 \approx 10^{-16}/\varepsilon$, so near $\varepsilon = 10^{-16/3}$:

# %%
at_1e_5 = epsilons.searchsorted(0.99e-5)
print(f"predicted best ε: {10 ** (-16 / 3):.0e}   measured: {epsilons[np.nanargmin(central)]:.0e}")
print(f"error at ε = 1e-5, float64: {central[at_1e_5]:.0e}")
print(f"error at ε = 1e-5, float32: {central32[at_1e_5]:.0e}   float32 at its best: {np.nanmin(central32):.0e}")

# %% [markdown]
# That is why the whole course checks gradients **in float64, with central differences, at ε = 10⁻⁵**, and calls one
# right when the error is below 10⁻⁶. In float32 the valley is so shallow that a real mistake can hide in it.
#
# ## The package's referee
#
# `check_gradients` does what you just did, for every argument at once, and returns the errors:

# %%
arrays = {"x": x, "weight": weight, "bias": bias}
for name, worst in check_gradients(linear_forward, package_linear_backward, arrays).items():
    print(f"d{name:<8} {worst:.1e}")

# %% [markdown]
# ## Chains
#
# Operations in a row: the backward of the whole is the backwards in reverse, each fed with what the one after it
# returned. Here two linear layers with a relu between, max(0, x), which is to the letter the paper's feed-forward
# network (eq. 2); and what went in is added to what comes out, a **residual connection** (§3.1). Watch two things: the
# order, and `x`, which is used twice, so that its gradients add.


# %%
def relu_forward(x):
    return np.maximum(x, 0), x > 0


def relu_backward(dy, positive):
    return dy * positive


def network_forward(x, weight1, bias1, weight2, bias2):
    """y = x + relu(x W1 + b1) W2 + b2."""
    hidden, cache1 = linear_forward(x, weight1, bias1)
    active, positive = relu_forward(hidden)
    out, cache2 = linear_forward(active, weight2, bias2)
    return x + out, (cache1, positive, cache2)


def network_backward(dy, cache):
    cache1, positive, cache2 = cache
    dactive, dweight2, dbias2 = package_linear_backward(dy, cache2)
    dhidden = relu_backward(dactive, positive)
    dx, dweight1, dbias1 = package_linear_backward(dhidden, cache1)
    return dx + dy, dweight1, dbias1, dweight2, dbias2  # + dy: x was also added to the output


network = {
    "x": rng.standard_normal((4, 3)),
    "weight1": rng.standard_normal((3, 6)),
    "bias1": rng.standard_normal(6),
    "weight2": rng.standard_normal((6, 3)),
    "bias2": rng.standard_normal(3),
}
for name, worst in check_gradients(network_forward, network_backward, network).items():
    print(f"d{name:<8} {worst:.1e}")

# %% [markdown]
# The Transformer is this, a few hundred operations long.
#
# ## Common mistakes, and what they look like
#
# Four backwards of `linear` that are each wrong in one place. The referee sees them all, and often says which:


# %%
def averaged(dy, cache):
    dx, dweight, dbias = package_linear_backward(dy, cache)
    return dx, dweight / len(dy), dbias / len(dy)  # rows add up; whether to average is the loss's business


def wrong_sign(dy, cache):
    dx, dweight, dbias = package_linear_backward(dy, cache)
    return -dx, dweight, dbias


def forgotten_row(dy, cache):
    dx, dweight, _ = package_linear_backward(dy, cache)
    return dx, dweight, dy[0]  # the shape is right, the sum over rows is missing


def forgotten_path(dy, cache):
    dx, *rest = network_backward(dy, cache)
    return dx - dy, *rest  # the residual connection is not in the gradient


for backward in (averaged, wrong_sign, forgotten_row):
    try:
        check_gradients(linear_forward, backward, arrays)
    except GradientError as problem:
        print(f"{backward.__name__}\n    {problem}\n")
try:
    check_gradients(network_forward, forgotten_path, network)
except GradientError as problem:
    print(f"forgotten_path\n    {problem}")

# %% [markdown]
# And two ways to fool the referee, or yourself:
#
# * **On a kink there is no slope.** relu at 0 has a left slope of 0 and a right slope of 1, and the central difference
#   reports their mean. Keep test inputs away from kinks.
# * **Zeros and ones hide mistakes.** With `weight = 0` the gradient of `x` is zero, with a sign turned or a factor
#   forgotten just as without. Use random numbers.

# %%
print("the central difference of relu at 0:", (np.maximum(1e-5, 0) - np.maximum(-1e-5, 0)) / 2e-5)

# %% [markdown]
# ## What changed since 2017
#
# The paper's authors wrote their forward passes in TensorFlow, which derived the backward passes; PyTorch and JAX do it
# today, by chaining the same vector–Jacobian products that you wrote. Those who make models fast still write backwards
# by hand, as autograd does not see into a GPU kernel that somebody wrote: lessons 15 and 16 do.
#
# ## Where next
#
# [Lesson 01](01_softmax.ipynb): the softmax, whose Jacobian is dense and still never built, and the loss at the end of
# the chain.
