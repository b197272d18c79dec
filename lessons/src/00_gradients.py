# %% [markdown]
# # 00 · The chain rule on arrays, and how to know that a gradient is right
#
# **You will be able to** write the backward pass of any array operation by hand, and prove it right with nothing but
# the forward pass.
#
# | | |
# |---|---|
# | you know | Python, NumPy, the chain rule for one variable |
# | runs in | 15 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | not printed: §5.3 says "Adam", and Adam needs the gradients of everything before it |
# | in the package | [`linear`](../minitransformer/ops/linear.py), [`gradcheck`](../minitransformer/gradcheck.py) |
#
# In all lessons, *the paper* is Vaswani and others 2017, *Attention Is All You Need*.
#
# ## First, the end
#
# By the end of the course you will have built a translator. Run each cell, in order (Shift+Enter). The first one opens
# the translator in the **explorer**, a page that computes the whole model in your browser. Type a sentence, and switch
# between its views. (GitHub and some editors show no page below the cell. Then open the file that it writes,
# `lessons/runs/explorer.html`, in a browser, or watch [a film of it](../minitransformer/explorer/README.md).)

# %%
import numpy as np
from IPython.display import HTML

from course import start
from course.lesson_00.heads import switched_off
from course.lesson_00.pictures import draw_attention, draw_errors, draw_graph
from minitransformer.decoding import Translator
from minitransformer.explorer import explore
from minitransformer.gradcheck import GradientError, check_gradients, error
from minitransformer.ops import linear_backward as package_linear_backward
from minitransformer.ops import linear_forward

check = start("00")
rng = np.random.default_rng(0)
translator = Translator.from_checkpoint("weights/en-de.safetensors")
print(f"a Transformer of {translator.model.parameters.data.size:,} numbers, each found by gradient descent")
explore(translator.model, translator.tokenizer, "runs/explorer.html", name="the translator", languages=("en", "de"))
HTML('<div><iframe src="runs/explorer.html" title="the explorer" width="100%" height="640"></iframe></div>')

# %% [markdown]
# Before the translator writes each German word, it looks back at the English ones. This is *attention*, and in each
# layer several *heads* do it in parallel. The next cell translates a sentence in Python, and draws the heads of one
# layer (left), one of these heads (middle), and the translator with this head switched off (right). Each row is a piece
# of German, each column a piece of English. The darker a cell, the more the model attends to that English token. You
# may change the sentence; the translator knows only the words of a small grammar, such as those of the explorer's
# examples.

# %%
SENTENCE = "The old king did not run into the garden."
LAYER, HEAD = 2, 4  # there are layers 1 and 2, and heads 1 to 6 in each

whole = translator.attention(SENTENCE)
print("with all heads:   ", translator.translate(SENTENCE)[0])
with switched_off(translator, LAYER, HEAD):
    less = translator.attention(SENTENCE)
    print("without this head:", translator.translate(SENTENCE)[0])
draw_attention(whole, less, LAYER, HEAD)

# %% [markdown]
# German needs *ist* or *hat* here, depending on the verb *run*, which German puts at the end. In the row *ist*, head 4
# looks at *run*. Without head 4 the translator writes *hat*, which is wrong.
#
# **You will build every part of this**: tokens and embeddings, attention and its heads, the layers, the training, the
# search for a translation, and the experiment with the heads.
#
# ## How to use this course
#
# Some cells ask you to write a function. They end with `raise NotImplementedError`. Replace that line, run the cell,
# then run the next one, which calls `check`. It answers *correct*, *not yet*, or says what is wrong and why. Until your
# answer is correct the lesson goes on with the package's version; from then on it uses yours. Unless the stub says
# otherwise, do not change the arrays that a function is given, and return float64 for float64.
#
# * **Help** is below each check: a hint, a stronger hint, the solution. Open only what you need.
# * **Stars** say how long an exercise takes: ★☆☆ ten minutes, ★★☆ twenty, ★★★ forty-five. You can skip parts whose
#   heading ends with *(optional)*.
# * **Correct answers** are kept in `lessons/answers`, and the last cell of a lesson shows your progress. In a terminal,
#   in the folder `lessons`, `python -m course progress` shows all of it, and `python -m course reset 00` starts lesson
#   00 again.
#
# ## One number at the end
#
# Training found the translator's parameters. It changes them so that one number, the loss $L$, falls. So for each array
# $x$ on the way to $L$ we ask: if I nudge one element, how much does $L$ move?
#
# $$ \mathrm{d}x_{i} := \frac{\partial L}{\partial x_{i}} $$
#
# Two consequences of this definition catch most mistakes:
#
# * **d$x$ has the shape of $x$**, always: one slope for each element.
# * **Where $x$ is used twice, its [gradients](glossary.md#gradient) add.** A nudge moves $L$ along both paths.
#
# In the code a gradient is `d` and the name: `dx`, `dweight`.
#
# ## A small function first
#
# Take $y = x^2$, element by element, somewhere in a long computation. The rest of the computation has already given us
# d$y$, the slope of $L$ for each $y_i$. The chain rule does the rest:
#
# $$ \mathrm{d}x_i = \frac{\partial L}{\partial y_i}\,\frac{\partial y_i}{\partial x_i} = \mathrm{d}y_i \cdot 2x_i $$
#
# So an operation is a **pair of functions**. The forward computes $y$, and keeps a *cache* for the
# [backward](glossary.md#backward). The backward turns d$y$ into d$x$:


# %%
def square_forward(x):
    """y = x², and the cache."""
    return x * x, x


def square_backward(dy, cache):
    """dx = dy · 2x."""
    x = cache
    return dy * 2 * x


x = np.array([1.0, 2.0, 3.0])
y, cache = square_forward(x)
dy = np.array([1.0, 1.0, 10.0])  # say that the loss is ten times as sensitive to the last element
print("y", y, "  dx", square_backward(dy, cache))

# %% [markdown]
# ## Why we never build the Jacobian
#
# In general every $y_j$ may depend on every $x_i$, and the chain rule sums over all paths:
#
# $$ \begin{aligned}
#    &\mathrm{d}x_i = \sum_j \mathrm{d}y_j \, \underbrace{\frac{\partial y_j}{\partial x_i}}_{J_{ji}} \\
#    &\text{that is}\quad \mathrm{d}x = J^\top \mathrm{d}y
# \end{aligned} $$
#
# The Jacobian $J$ has a row for each output and a column for each input. How large is it for one linear layer of the
# paper's base model (512 numbers in, 2,048 out), on the paper's batch of 25,000 tokens? (A token is a word or a piece
# of one, here a row of $x$.)

# %%
tokens, width_in, width_out = 25_000, 512, 2_048
jacobian_bytes = 4 * (tokens * width_in) * (tokens * width_out)
print(f"the Jacobian as float32: {jacobian_bytes / 1e15:.1f} petabytes")
print(f"dx, all that we wanted:  {4 * tokens * width_in / 1e6:.1f} megabytes")

# %% [markdown]
# So a backward computes the *product* $J^\top \mathrm{d}y$ directly, a [**vector–Jacobian
# product**](glossary.md#vectorjacobian-product). To find it, write the forward with its indices, and ask which input
# goes into which output.
#
# ## The linear layer, line by line
#
# $y = xW + b$, with $x$ of shape $(N, C_{in})$, $W$ of $(C_{in}, C_{out})$ and $b$ of $(C_{out})$. With indices:
#
# $$ y_{no} = \sum_i x_{ni} W_{io} + b_o $$
#
# Here is the backward in loops. Each line reverses one line of the forward: each factor of a product receives `dy`
# times the other factor.


# %%
def linear_backward_loops(dy, x, weight):
    """One multiplication at a time; the comments are the forward's lines."""
    dx, dweight, dbias = np.zeros_like(x), np.zeros_like(weight), np.zeros(weight.shape[1])
    for n in range(x.shape[0]):
        for o in range(weight.shape[1]):
            dbias[o] += dy[n, o]  # y[n, o] = bias[o]
            for i in range(x.shape[1]):
                dx[n, i] += dy[n, o] * weight[i, o]  # y[n, o] += x[n, i] * weight[i, o]
                dweight[i, o] += dy[n, o] * x[n, i]  # the same line, and its other factor
    return dx, dweight, dbias


x, weight, bias = rng.standard_normal((5, 3)), rng.standard_normal((3, 4)), rng.standard_normal(4)
dy = rng.standard_normal((5, 4))

# %% [markdown]
# `dx[n, i]` sums over all outputs $o$: the slope of the output, times the weight that leads to it. `dweight[i, o]` sums
# over all rows $n$, because every row used the same weight; so does `dbias[o]`.
#
# ### Exercise 1 ★☆☆: the same without loops
#
# Each of the three sums is one NumPy expression.


# %% tags=["exercise"]
def linear_backward(dy, x, weight):
    """Gradients of y = x @ weight + bias, without a Python loop.

    dy (N, C_out), x (N, C_in), weight (C_in, C_out) → the tuple dx (N, C_in), dweight (C_in, C_out), dbias (C_out,).
    """
    raise NotImplementedError


# %%
linear_backward = check(linear_backward)

# %% [markdown] tags=["help"]
# Look at the shapes. `dy` is $(N, C_{out})$, `weight` is $(C_{in}, C_{out})$, and `dx` must be $(N, C_{in})$. Which
# axis do the first two share, and does the loop sum over it? Ask the same for `dweight`.
#
# ---
#
# A matrix product sums over the last axis of the first factor and the first axis of the second. If a factor's axes are
# in the wrong order, it needs `.T`: `dx = dy @ weight.T`. `dweight` sums over $n$, and `dbias` is a sum over one axis.

# %% [markdown]
# Compare yours with the loops. The package's `error(a, b)` is the largest difference, divided by the largest number in
# $b$ if that is above 1. About 1e-16 is rounding.

# %%
mine = linear_backward(dy, x, weight)
for name, a, b in zip(("dx", "dweight", "dbias"), mine, linear_backward_loops(dy, x, weight), strict=True):
    print(f"{name:<8} against the loops {error(a, b):.1e}")

# %% [markdown]
# ## But is it right?
#
# The loops and your formula agree, but both come from the same derivation. A proof needs an independent referee, which
# knows no calculus. Move one element of $x$ up by a small $\varepsilon$, then down by $\varepsilon$, and watch $L$:
#
# $$ \mathrm{d}x_i \approx \frac{L(x + \varepsilon e_i) - L(x - \varepsilon e_i)}{2\varepsilon} $$
#
# ($e_i$ is 1 at position $i$ and 0 elsewhere.) This [**central difference**](glossary.md#central-difference) needs two
# forward passes for each element, so it is too slow for training. But it uses none of the formulas above. With a large
# ε the function's curvature distorts the slope; with a tiny ε only rounding is left. $\varepsilon = 10^{-5}$ in float64
# is a good choice; an optional part measures it.
#
# ### Exercise 2 ★☆☆: be the referee


# %% tags=["exercise"]
def numerical_gradient(f, x, eps=1e-5):
    """Gradient of the function f, which gives one number, at x: central differences, one element at a time.

    x (any shape, float64; leave it as it was) → the gradient, of x's shape.
    """
    raise NotImplementedError


# %%
numerical_gradient = check(numerical_gradient)

# %% [markdown] tags=["help"]
# How do you visit every element of an array without knowing how many axes it has? And how do you keep `x` itself
# unchanged, and move only one element at a time?
#
# ---
#
# `for index in np.ndindex(x.shape):` visits every position, and `x[index]` is the element. Work on two copies, `up =
# x.copy()` and `down = x.copy()`; the slope is `(f(up) - f(down)) / (2 * eps)`.

# %% [markdown]
# ### From an array to a number
#
# `linear` returns an array, and the referee needs one number. So take as the loss $L = \sum_{no}
# \mathrm{d}y_{no}\,y_{no}$ with a fixed, random d$y$. The slope of this $L$ with respect to $y$ is d$y$, so a backward
# that is given this d$y$ must return the slopes of this $L$.

# %%
measured = numerical_gradient(lambda weight: np.sum(dy * (x @ weight + bias)), weight)
print(f"dweight by hand against central differences: {error(mine[1], measured):.1e}")

# %% [markdown]
# The package's `check_gradients` does this for every argument at once. The whole course uses it, and accepts a gradient
# when the error is below 10⁻⁶. (The package's `linear_backward` takes a [cache](glossary.md#cache) instead of `x` and
# `weight`.)

# %%
arrays = {"x": x, "weight": weight, "bias": bias}
for name, worst in check_gradients(linear_forward, package_linear_backward, arrays).items():
    print(f"d{name:<8} {worst:.1e}")

# %% [markdown]
# ### Measured: how small should ε be? (optional)
#
# A Taylor series writes a smooth function near $x$ as a sum of its derivatives: $f(x \pm \varepsilon) = f \pm
# \varepsilon f' + \tfrac{\varepsilon^2}{2} f'' \pm \tfrac{\varepsilon^3}{6} f''' + \dots$ In the central difference the
# terms with even powers cancel. Its error is $\tfrac{\varepsilon^2}{6} f'''$: half the ε gives a quarter of the error.
# The one-sided difference $(f(x + \varepsilon) - f(x)) / \varepsilon$ keeps $\tfrac{\varepsilon}{2} f''$.
#
# Then why not take ε = 10⁻¹⁵? A float64 holds 16 digits. The subtraction of two nearly equal numbers cancels the digits
# that they share. Rounding noise of about $10^{-16}$ remains, divided by ε. So one error falls with ε, and the other
# rises:

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

draw_errors(epsilons, {"central, float32": central32, "one-sided, float64": one_sided, "central, float64": central})

# %% [markdown]
# Read the picture from right to left. With each tenth of ε, the error of the central difference falls to a hundredth,
# until it meets the rounding noise. The error of the one-sided difference only falls to a tenth. The minimum is where
# the two errors are equal, $\varepsilon^2 \approx 10^{-16}/\varepsilon$, so near $\varepsilon = 10^{-16/3}$:

# %%
at_1e_5 = epsilons.searchsorted(0.99e-5)
print(f"predicted best ε: {10 ** (-16 / 3):.0e}   measured: {epsilons[np.nanargmin(central)]:.0e}")
print(f"error at ε = 1e-5, float64: {central[at_1e_5]:.0e}")
print(f"error at ε = 1e-5, float32: {central32[at_1e_5]:.0e}   float32 at its best: {np.nanmin(central32):.0e}")

# %% [markdown]
# So the course checks gradients **in float64**. In float32 the minimum is so shallow that a real mistake can hide in
# it.
#
# ## Chains
#
# A network is a chain of operations. Its backward is the chain of their backwards, in reverse order. The picture shows
# $y = x + w_2 \max(0,\, w_1 x + b_1) + b_2$ for one number $x$. First follow the blue values to the right. Then follow
# the red gradients back to the left, and compare each with the line of code that computes it:

# %% tags=["picture"]
x, w1, b1, w2, b2 = 2.0, 1.5, -1.0, 0.5, 0.5
h = w1 * x + b1
a = max(0.0, h)
o = w2 * a + b2
y = x + o

dy = 1.0  # the slope of y by itself
do, around = dy, dy  # y = x + o
dw2, db2, da = do * a, do, do * w2  # o = w2 * a + b2
dh = da * (h > 0)  # a = max(0, h)
dw1, db1, through = dh * x, dh, dh * w1  # h = w1 * x + b1
dx = through + around  # x was used twice
values = {"x": x, "w1": w1, "b1": b1, "h": h, "a": a, "w2": w2, "b2": b2, "o": o, "y": y}
gradients = {"x": dx, "w1": dw1, "b1": db1, "h": dh, "a": da, "w2": dw2, "b2": db2, "o": do, "y": dy}
draw_graph(values, gradients | {"through": through, "around": around})

# %% [markdown]
# This is a **computation graph**. Each box needs only its own values and the gradient that comes back to it. $x$ is
# used twice, so two gradients come back to it, and they add.
#
# Now with arrays. The middle is the paper's feed-forward network (eq. 2); max(0, ·) is called relu. Adding $x$ to its
# output is a **residual connection** (§3.1).


# %%
def network_forward(x, weight1, bias1, weight2, bias2):
    """y = x + relu(x W1 + b1) W2 + b2."""
    hidden, cache1 = linear_forward(x, weight1, bias1)
    out, cache2 = linear_forward(np.maximum(hidden, 0), weight2, bias2)
    return x + out, (cache1, hidden > 0, cache2)


def network_backward(dy, cache):
    cache1, positive, cache2 = cache
    dactive, dweight2, dbias2 = package_linear_backward(dy, cache2)
    dx, dweight1, dbias1 = package_linear_backward(dactive * positive, cache1)
    return dx + dy, dweight1, dbias1, dweight2, dbias2  # + dy: x was also added to the output


shapes = {"x": (4, 3), "weight1": (3, 6), "bias1": (6,), "weight2": (6, 3), "bias2": (3,)}
network = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
for name, worst in check_gradients(network_forward, network_backward, network).items():
    print(f"d{name:<8} {worst:.1e}")

# %% [markdown]
# ## Common mistakes, and what they look like
#
# Each of these two backwards is wrong in one place. The referee notices, and often says where:


# %%
def forgotten_row(dy, cache):
    dx, dweight, _ = package_linear_backward(dy, cache)
    return dx, dweight, dy[0]  # the shape is right, the sum over rows is missing


def forgotten_path(dy, cache):
    dx, *rest = network_backward(dy, cache)
    return dx - dy, *rest  # the gradient that came around is missing


mistakes = (linear_forward, forgotten_row, arrays), (network_forward, forgotten_path, network)
for forward, backward, given in mistakes:
    try:
        check_gradients(forward, backward, given)
    except GradientError as problem:
        print(f"{backward.__name__}\n    {problem}\n")

# %% [markdown]
# There are two ways to fool the referee:
#
# * **A kink has no slope.** relu at 0 has slope 0 on its left and 1 on its right, and the central difference gives
#   their mean, ½. Keep test inputs away from kinks.
# * **Zeros and ones hide mistakes.** With `weight = 0` the gradient of `x` is zero even with a wrong sign, and with a
#   d$y$ of ones a backward may mix up its elements. Use random numbers.
#
# ## What changed since 2017
#
# The paper's authors wrote forward passes, and TensorFlow derived the backward passes, as PyTorch and JAX do today.
# This is called [autograd](glossary.md#autograd). It cannot look into a GPU kernel, so a kernel's backward is still
# written by hand: lessons 15 and 16.
#
# ## Where next
#
# [Lesson 01](01_softmax.ipynb): the softmax, whose Jacobian is full and still never built, and the loss at the end of
# the chain.
