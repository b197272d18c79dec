# %% [markdown]
# # 27 · Rewards: training without a target
#
# **You will be able to** train a model where nobody can say what it should have written, only how good it was: derive
# the gradient and prove it, make its noise smaller with groups of texts, and find what a reward forgets. In the
# optional parts: write the clipped slope of GRPO and the gradient of DPO, and train a small GPT on a parser's verdicts.
#
# | | |
# |---|---|
# | you know | [softmax](01_softmax.ipynb), [a table's gradient](02_text.ipynb); for the last part [GPT](19_gpt.ipynb) |
# | runs in | 60 s at most on 2 cores; no GPU, no PyTorch, no network |
# | in the paper | not there; Williams 1992, Schulman and others 2017, Rafailov and others 2023, Shao and others 2024 |
# | in the package | [`training/objectives.py`](../minitransformer/training/objectives.py); `train --objective` |
#
# Until now a text has always told the model what was right: at each place the next token, the *target*. But often there
# is no such text. A program can say whether an answer to a sum is right, and not which words should have led there. A
# reader can say which of two answers is better, and could not have written either. What they give is a number for a
# whole text, a [*reward*](glossary.md#reward). There is no way to differentiate it: a text is a row of
# integers, and a parser or a person has no backward. **How can a model learn from a number alone?**

# %%
import re
from itertools import product

import numpy as np

from course import start
from course.lesson_27 import pictures, sentences
from course.measuring import blas_threads
from course.style import BLUE, GREEN, GREY, VERMILION
from minitransformer.gradcheck import error, numerical_gradient
from minitransformer.models import IGNORED
from minitransformer.ops import adam_step, log_probs_backward, log_probs_forward, log_softmax
from minitransformer.training import objectives

check = start("27")
blas_threads(1)  # for small products one thread of BLAS is the fastest: lesson 14 says why
rng = np.random.default_rng(0)

# %% [markdown]
# ## A policy that can be listed
#
# A model that writes texts is called a [*policy*](glossary.md#policy) here, $\pi$. It draws a text $y$ word by word, so
# $\log \pi(y)$ is the sum of the logarithms of its words' probabilities. Ours is so small that we can list *all* texts:
# five words, three in each text. Its parameters are a table of scores, a row for each beginning: for the empty text,
# for each first word, and for each pair of words. The softmax of a row is the distribution of the next word.

# %%
WORDS = ("the", "cat", "dog", "sleeps", "runs")
V, T = len(WORDS), 3
TEXTS = np.array(list(product(range(V), repeat=T)))  # (125, 3): all texts
NAMES = [" ".join(WORDS[word] for word in text) for text in TEXTS]
first, second, third = TEXTS.T
ROWS = np.stack([0 * first, 1 + first, 1 + V + V * first + second], axis=1)  # (125, 3): what stands before each word


def log_probs(theta):
    """log π of each word of each text, (125, 3), for a table of scores (31, 5)."""
    return log_softmax(theta)[ROWS, TEXTS]


def policy(theta):
    """π of each text, (125,)."""
    return np.exp(log_probs(theta).sum(axis=1))


initial = np.zeros((1 + V + V**2, V))
initial[0, 0] = 5.0  # "the" begins nearly every text
initial[1, [1, 2]] = 5.0  # after "the": cat or dog
for animal in (1, 2):
    initial[1 + V + animal, [3, 4]] = 6.5, 5.0  # after "the cat": sleeps, and less often runs
pi = policy(initial)
print(f"{len(TEXTS)} texts, whose probabilities sum to {pi.sum():.6f}; the most probable are")
for text in np.argsort(-pi)[:6]:
    print(f"    {NAMES[text]:<16} {pi[text]:.4f}")

# %% [markdown]
# So this model has learned to write sentences, with a few mistakes. Now we want sentences in which somebody *runs*.
# The reward of a text is 1 if it is one, and 0 if it is not:

# %%
is_sentence = (first == 0) & np.isin(second, (1, 2)) & np.isin(third, (3, 4))
reward = (is_sentence & (third == 4)).astype(float)  # (125,)
print(f"{int(reward.sum())} of {len(TEXTS)} texts have the reward 1; the policy gets {pi @ reward:.3f} on average")

# %% [markdown]
# ## The gradient of an expectation
#
# We want a high reward on average over the texts that the policy draws:
#
# $$ J(\theta) = \sum_y \pi_\theta(y)\, r(y) = \mathbb{E}_{y \sim \pi}\bigl[r(y)\bigr] $$
#
# The reward $r(y)$ of a given text does not depend on $\theta$. What depends on $\theta$ is how often the text is
# drawn. So the reward needs no derivative at all:
#
# $$ \nabla J = \sum_y r(y)\, \nabla \pi(y) $$
#
# For 125 texts we can compute this sum. A GPT has $V^T$ texts, far too many. We can only *draw* some. But
# the sum above is no mean over drawn texts: it has the factor $\nabla\pi(y)$, and a mean needs the factor $\pi(y)$. One
# line brings it in. By the chain rule $\nabla \log \pi = \nabla\pi / \pi$, so $\nabla\pi = \pi\, \nabla\log\pi$, and
#
# $$ \nabla J = \sum_y \pi(y)\; r(y)\, \nabla \log \pi(y) =
# \mathbb{E}_{y \sim \pi}\bigl[ r(y)\, \nabla \log \pi(y) \bigr] $$
#
# This is the whole trick. $\nabla\log\pi$ is called the [*score function*](glossary.md#score-function), and the method
# REINFORCE (Williams 1992). In words: **draw texts; then take for each the gradient that would make it more probable,
# times its reward.** A text with reward 2 pulls twice as much as one with reward 1; one with reward −1 pushes away.
#
# And $\nabla \log \pi(y)$ is known. A text's $\log\pi$ is the sum of the $\log$ softmax of its words. The cross-entropy
# of lesson 01 is minus that, with the drawn word as its target. So the gradient with respect to the scores $z$ at one
# place, where word $w$ was drawn, is
#
# $$ \frac{\partial \log \pi_w}{\partial z_v} = \delta_{vw} - \pi_v $$
#
# (1 for the drawn word and 0 for others, minus the softmax; in the package the op `log_probs`). The exact $\nabla J$
# with loops, over all texts:


# %%
def gradient_in_loops(theta, reward):
    """The sum over all texts of π(y) · r(y) · ∇log π(y), a table as theta."""
    pi, gradient = policy(theta), np.zeros_like(theta)
    for text in range(len(TEXTS)):
        for row, word in zip(ROWS[text], TEXTS[text], strict=True):
            p = np.exp(log_softmax(theta[row]))
            for v in range(V):
                gradient[row, v] += pi[text] * reward[text] * ((v == word) - p[v])
    return gradient


exact = gradient_in_loops(initial, reward)
differences = numerical_gradient(lambda theta: policy(theta) @ reward, initial)
print(f"against central differences of J: error {error(exact, differences):.0e}")

# %% [markdown]
# ### Exercise 1 ★★☆: the score function
#
# Now for drawn texts, and without loops. In a batch of a GPT texts differ in length; `counted` says where there is a
# token.


# %% tags=["exercise"]
def score_function_gradient(logits, ids, counted, rewards):
    """The estimate of the gradient of the expected reward from B drawn texts, with respect to their logits.

    logits (B, T, V); ids (B, T): the drawn tokens; counted (B, T): True where a text has a token, False after its end;
    rewards (B,), numbers of any sign. It is the gradient of the mean over the texts of reward · log π(text); log π of a
    text is the sum of log softmax(logits) over its tokens that count. Large logits must not overflow. → (B, T, V)
    """
    raise NotImplementedError


# %%
score_function_gradient = check(score_function_gradient)

# %% [markdown] tags=["help"]
# Begin with one token: what is the gradient of its log softmax, a row of $V$ numbers? By what is it multiplied, and is
# that the same for all tokens of a text? What becomes of tokens that do not count? A mean over what?
#
# ---
#
# `np.eye(V)[ids]` is the one-hot of the drawn tokens, `(B, T, V)`; subtract the softmax of the logits over the last
# axis (take each row's maximum off first). The weight of a token is `rewards[:, None] * counted / B`, `(B, T)`.

# %% [markdown]
# The proof that the estimate is right *on average*, by listing everything. The mean of the estimate from one text is
# the sum over all texts of $\pi(y)$ times its estimate. We get it with one call: hand over all 125 texts, each with
# the "reward" $125 \cdot \pi(y)\, r(y)$, since the function divides by the number of texts.


# %%
EVERYTHING = np.arange(len(TEXTS))


def to_table(rows, dlogits):
    """The gradient of the table of scores: each place's goes to the row that was read there (lesson 02)."""
    dtheta = np.zeros_like(initial)
    np.add.at(dtheta, rows, dlogits)
    return dtheta


def estimate(theta, drawn, rewards):
    """The estimate of ∇J from drawn texts, given by their numbers in TEXTS."""
    counted = np.ones((len(drawn), T), bool)
    rows = ROWS[drawn]
    return to_table(rows, score_function_gradient(theta[rows], TEXTS[drawn], counted, rewards))


on_average = estimate(initial, EVERYTHING, len(TEXTS) * pi * reward)
print(f"mean of the estimate against ∇J, by central differences: error {error(on_average, differences):.0e}")
for count in (10, 100, 1000, 10_000):
    off = [estimate(initial, drawn, reward[drawn]) - exact for drawn in rng.choice(len(TEXTS), (30, count), p=pi)]
    size = np.sqrt(np.mean([np.sum(each**2) for each in off])) / np.linalg.norm(exact)
    print(f"{count:6,} drawn texts: off by {size:6.1%} of the gradient's length")

# %% [markdown]
# It is right on average, and noisy: four times as many texts halve the error, as for any mean. A step with few texts
# goes in a direction that is mostly luck. So the rest of the method is about noise.
#
# ## A baseline
#
# Subtract a number $b$ from all rewards. On average that changes nothing, because
#
# $$ \mathbb{E}\bigl[\, b\, \nabla \log\pi \,\bigr] = b \sum_y \pi(y)\, \frac{\nabla \pi(y)}{\pi(y)} = b\, \nabla \sum_y
# \pi(y) = b\, \nabla 1 = 0 $$
#
# provided that $b$ does not depend on the text that was drawn. This $b$ is a [*baseline*](glossary.md#baseline). What
# is left of a reward, $A = r - b$, is called the [*advantage*](glossary.md#advantage) of a text. But the *noise*
# changes. The variance is the mean square less the square of the mean, and here too we can list all texts:
#
# $$ \mathrm{Var}(b) = \sum_y \pi(y)\,(r(y) - b)^2\, \lVert \nabla\log\pi(y) \rVert^2 - \lVert \nabla J \rVert^2 $$

# %%
scores = len(TEXTS) * score_function_gradient(initial[ROWS], TEXTS, np.ones((len(TEXTS), T), bool), np.ones(len(TEXTS)))
squares = (scores**2).sum(axis=(1, 2))  # (125,): ‖∇log π‖² of each text


def variance(reward, b):
    """Return the variance of the estimate from one text, with a baseline."""
    return pi @ ((reward - b) ** 2 * squares) - np.sum(exact**2)


shifted = estimate(initial, EVERYTHING, len(TEXTS) * pi * (reward - 5))
print(f"with b = 5 the mean of the estimate is still ∇J: error {error(shifted, exact):.0e}")
mean, best = pi @ reward, (pi * squares) @ reward / (pi @ squares)
marks = {"no baseline": 0.0, "the mean reward": mean, "the best": best}
baselines = np.linspace(-0.5, 1.5, 81)
pictures.draw_baselines(
    baselines,
    {f"reward {more} or {1 + more}": [variance(reward + more, b) for b in baselines] for more in (0, 1)},
    {name: (b, variance(reward, b)) for name, b in marks.items()},
)
for name, b in marks.items():
    more = 1 if b else 0  # the same baseline, for rewards that are larger by 1
    shifted = variance(reward + 1, b + more)
    print(f"{name:<16} variance {variance(reward, b):.4f}; with 1 added to all rewards {shifted:.4f}")

# %% [markdown]
# Without a baseline, texts with the rewards 1 and 2 are *all* pulled up, the good ones only twice as strongly. As all
# probabilities sum to 1, most of these pulls cancel each other, and only noise remains. With the mean reward as a
# baseline a text is pushed up if it is better than usual, and down if it is worse. (The best baseline weighs rewards by
# $\lVert\nabla\log\pi\rVert^2$. Nobody computes it: the mean brings most of the gain.)
#
# ## Groups: the others are the baseline
#
# What is the mean reward? It depends on the prompt: some tasks are easy. So draw a *group* of $G$ texts for each
# prompt, and compare them with each other. There are two ways. *Leave-one-out* (Kool and others 2019) subtracts from
# each reward the mean of the **others**,
#
# $$ A_i = r_i - \frac{1}{G-1} \sum_{j \neq i} r_j $$
#
# Why not simply the mean of all $G$? Because it contains $r_i$ itself, so it depends on the drawn text, and the proof
# above does not hold. *GRPO* (Shao and others 2024) takes that mean all the same, and then divides by the group's
# deviation:
#
# $$ A_i = \frac{r_i - \mathrm{mean}(r_1, \dots, r_G)}{\mathrm{std}(r_1, \dots, r_G)} $$
#
# ### Exercise 2 ★☆☆: advantages in groups


# %% tags=["exercise"]
def group_advantages(rewards, divided=True):
    """Advantages of texts in groups, from their rewards (groups, G), G of 2 or more. → (groups, G)

    divided=False: each reward minus the mean of the others in its group. divided=True: each reward minus the mean of
    its whole group, divided by the group's deviation, the root of the mean square distance from that mean (nothing is
    added to it); 0 for all texts of a group whose rewards are all equal.
    """
    raise NotImplementedError


# %%
group_advantages = check(group_advantages)

# %% [markdown] tags=["help"]
# Which axis is a group? What is the sum of the others, if you know the sum of all? What happens in a group that got
# every answer right? Try three rewards of 0.1: is their deviation exactly 0?
#
# ---
#
# $r_i$ minus the mean of the others is $(r_i - \text{mean}) \cdot G / (G-1)$. For the deviation `rewards.std(axis=1,
# keepdims=True)`. A group is equal where its maximum is its minimum; put 1 for its deviation before you divide, and
# take 0 there with `np.where`.

# %% [markdown]
# ### Are they right on average? (optional)
#
# With $G = 2$ there are $125^2 = 15{,}625$ pairs of texts. We list them all. The reward has three values for once: 1 as
# before, 0.8 for a sentence in which nobody runs, and 0.

# %%
graded = 0.2 * reward + 0.8 * is_sentence
target = to_table(ROWS, (pi * graded)[:, None, None] * scores)  # ∇J
both = np.array(list(product(EVERYTHING, repeat=2)))  # (15625, 2)
chance = pi[both].prod(axis=1)
WAYS = {
    "minus the mean of both": lambda r: r - r.mean(axis=1, keepdims=True),
    "minus that of the others": lambda r: group_advantages(r, divided=False),
    "GRPO, divided": group_advantages,
}
for name, way in WAYS.items():
    weights = np.bincount(both.ravel(), (chance[:, None] * way(graded[both]) / 2).ravel(), len(TEXTS))  # of each text
    found = to_table(ROWS, weights[:, None, None] * scores)
    length = np.linalg.norm(found) / np.linalg.norm(target)
    cosine = np.vdot(found, target) / np.linalg.norm(found) / np.linalg.norm(target)
    print(f"{name:<25} {length:.4f} times as long as ∇J, cosine of the angle {cosine:.4f}")

# %% [markdown]
# Leave-one-out gives $\nabla J$ exactly. The mean of both gives $(G-1)/G$ of it, here a half: a matter of the learning
# rate. GRPO's estimate is that of *another* goal. With two texts only the sign is left of the difference: slightly
# better counts as much as far better. In general the division gives all groups the same scale. A prompt whose texts are
# nearly all right, or nearly all wrong, has a small deviation, and counts for more than in $J$. That may be wanted: the
# scale of the rewards no longer matters.
#
# ## The picture: how the texts move
#
# Training is now a short loop: draw, judge, compare, step. `reward_of(policy's table)` gives the rewards of all texts,
# from which those of the drawn ones are looked up.


# %%
def train(reward_of, steps, divided=True, groups=16, G=8, rate=1.0, seed=0):
    """Gradient steps from the initial table. → the policies (125,) before each step and at the end."""
    theta, draws, policies = initial.copy(), np.random.default_rng(seed), []
    for _ in range(steps):
        pi = policy(theta)
        drawn = draws.choice(len(TEXTS), size=(groups, G), p=pi / pi.sum())  # whole texts: as if word by word
        advantages = group_advantages(reward_of(theta)[drawn], divided)
        theta += rate * estimate(theta, drawn.ravel(), advantages.ravel())  # upwards
        policies.append(pi)
    return [*policies, policy(theta)]


# %% tags=["picture"]
honest = train(lambda theta: reward, steps=60)
runs, sleeps, others = (np.flatnonzero(kind) for kind in (reward > 0, is_sentence & (reward == 0), ~is_sentence))
hacked = np.array([NAMES.index("runs runs runs")])
shown = {NAMES[text]: (np.array([text]), GREEN if reward[text] else BLUE) for text in (*runs, *sleeps)}
shown |= {"runs runs runs": (hacked, VERMILION), "all others": (np.setdiff1d(others, hacked), GREY)}
pictures.draw_texts(
    shown, {f"step {step}": honest[step] for step in (0, 8, 60)},
    "The probabilities of texts before, during and after training on a reward. At first the sentences with sleeps have "
    "most of it; then it moves to the two sentences with runs, which have nearly all of it in the end.",
)  # fmt: skip

# %% [markdown]
# Nobody has told the model that *runs* is right after *the dog*. It drew, it was judged, and what was better than its
# group became more probable. Notice what a reward can and cannot do: it chooses among the texts that the policy
# *already draws* from time to time. A text that never comes is never rewarded. That is why rewards come last: first a
# model learns from text, then from rewards.
#
# ## What a reward forgets
#
# Our reward knew what a sentence is. Suppose somebody is in a hurry, and writes: one point for each *runs*. On the
# texts that the model writes at the start, the two say nearly the same:

# %%
hasty = np.array([name.split().count("runs") for name in NAMES], float)  # (125,): 0 to 3
agree = pi @ (hasty == reward)
print(f"for {agree:.1%} of the texts that are drawn at the start both rewards are equal")
steps = 500
trained = train(lambda theta: hasty, steps)
kinds = {"a sentence with runs": runs, "a sentence with sleeps": sleeps, "runs runs runs": hacked,
         "all others": np.setdiff1d(others, hacked)}  # fmt: skip
pictures.draw_hacking(
    [pi @ hasty for pi in trained],
    {name: [pi[numbers].sum() for pi in trained] for name, numbers in kinds.items()},
)

# %%
middle = next(step for step, pi in enumerate(trained) if pi @ hasty > 1.5) // 2
pictures.draw_texts(
    shown, {f"step {step}": trained[step] for step in (0, middle, steps)},
    "The same for the hasty reward. Halfway to the jump nearly all texts are sentences with runs; at the end they are "
    "'runs runs runs'.",
)  # fmt: skip

# %% [markdown]
# The reward went up all the time. The upper curve alone shows success, twice. This is
# [*reward hacking*](glossary.md#reward-hacking): the policy is pushed towards what is *measured*, and finds what the
# measure forgets. It does not do so at once. As long as bad texts with a high reward are rarely drawn, all looks well.
# A longer training run and larger groups find more of them.
#
# ## Stay near the start
#
# The model at the start, $\pi_\text{ref}$, knows what a sentence is. So let us pay for leaving it. The
# [*Kullback–Leibler divergence*](glossary.md#kl-divergence) says how far $\pi$ is away,
#
# $$ \mathrm{KL}(\pi \,\Vert\, \pi_\text{ref}) =
# \mathbb{E}_{y\sim\pi}\left[\log\frac{\pi(y)}{\pi_\text{ref}(y)}\right] \ge 0 $$
#
# and the new goal is $J - \beta\, \mathrm{KL}$. Like $J$, it is an expectation over drawn texts. It is as if each text
# had the reward $r(y) - \beta \log(\pi(y) / \pi_\text{ref}(y))$. (This reward depends on $\theta$. But its gradient
# adds $-\beta\,\mathbb{E}[\nabla\log\pi] = 0$, as for a baseline, so `train` may treat it as a plain number.)
#
# Which policy is the best one now? Put both terms into one logarithm:
#
# $$ \sum_y \pi(y) \left( r(y) - \beta\log\frac{\pi(y)}{\pi_\text{ref}(y)} \right) = -\beta \sum_y \pi(y) \log
# \frac{\pi(y)}{\pi_\text{ref}(y)\, e^{r(y)/\beta}} $$
#
# With $Z$ the sum of the denominators over all texts, $\pi^*(y) = \pi_\text{ref}(y)\, e^{r(y)/\beta} / Z$ is a
# distribution, and the right side is $-\beta\, \mathrm{KL}(\pi \,\Vert\, \pi^*) + \beta \log Z$. A divergence is 0 for
# equal distributions, and else larger. So the best policy is $\pi^*$: **the start, with each text weighted by
# $e^{r/\beta}$**.

# %% tags=["long"]
reference = log_probs(initial).sum(axis=1)  # log π_ref of each text


def best_policy(reward, beta):
    weighted = np.exp(reference + reward / beta)
    return weighted / weighted.sum()


def held(beta):
    """The rewards of all texts, less β log(π / π_ref)."""
    return lambda theta: hasty - beta * (log_probs(theta).sum(axis=1) - reference)


def shares(policy):
    return [policy[numbers].sum() for numbers in kinds.values()]


reached = {}
for beta in (0.3, 0.4, 0.5, 0.7, 1, 2):
    policies = train(held(beta), steps=1000, divided=False)
    reached[beta] = shares(np.mean(policies[-300:], axis=0))  # the mean of the last ones, without the noise
betas = np.geomspace(0.2, 3, 60)
pictures.draw_trade_off(
    betas, dict(zip(kinds, np.transpose([shares(best_policy(hasty, beta)) for beta in betas]), strict=True)), reached
)
for beta, found in reached.items():
    off = np.abs(np.subtract(found, shares(best_policy(hasty, beta)))).max()
    print(f"β = {beta:<3}: {found[0]:4.0%} sentences with runs, {sum(found[2:]):4.0%} no sentences; "
          f"at most {off:.3f} off the formula")  # fmt: skip

# %% [markdown]
# (Where β is small, the points are not quite on the lines yet: rare texts are learned slowly.) In between there is a
# best β: with a smaller one the hack wins, with a larger one hardly anything changes. But **no β repairs the reward.**
# With three points for *runs runs runs*, its weight grows as $e^{3/\beta}$, and that of a sentence as $e^{1/\beta}$.
# The divergence only limits how much of what the reward forgets can be exploited.
#
# ### Three ways to estimate the divergence (optional)
#
# A GPT cannot list all texts, so the log of a training run shows an estimate from drawn ones. With $\delta =
# \log\pi_\text{ref}(y) - \log\pi(y)$ the obvious one is the mean of $-\delta$. It is right on average, but a single one
# may be below 0, and it is noisy. Better is $e^\delta - \delta - 1$ (Schulman 2020). What was added, $e^\delta - 1$,
# has the mean $\sum_y \pi(y)\, \pi_\text{ref}(y)/\pi(y) - 1 = 0$, so it is right on average too. And it is never below
# 0, as $e^\delta \ge 1 + \delta$. A third one, $\delta^2/2$, has little noise and a wrong mean. (Schulman calls them
# k1, k3 and k2.)

# %%
pi = honest[8]
delta = reference - np.log(pi)
print(f"the divergence after 8 steps: {-pi @ delta:.4f}\n\nestimate        mean   deviation of one text   smallest")
for name, values in {"−δ": -delta, "e^δ − δ − 1": np.expm1(delta) - delta, "δ²/2": delta**2 / 2}.items():
    mean = pi @ values
    print(f"{name:<12} {mean:7.4f} {np.sqrt(pi @ (values - mean) ** 2):23.4f} {values.min():10.4f}")

# %% [markdown]
# GRPO uses $e^\delta - \delta - 1$ as a *loss* that is added, with the weight β, and not in the reward. There is a
# trap. That the mean of an estimate is right does not make the mean of its *slope* right: the texts are drawn from
# $\pi$, and the slope of a drawn text's estimate does not see that. The slope of $e^\delta - \delta - 1$ by
# $\log\pi(y)$ is $1 - e^\delta$, which is $1 - \pi_\text{ref}/\pi$. So the mean gradient is
#
# $$ \sum_y \pi(y) \left(1 - \frac{\pi_\text{ref}(y)}{\pi(y)}\right) \nabla\log\pi(y) =
# -\sum_y \pi_\text{ref}(y)\, \nabla\log\pi(y) = \nabla\, \mathrm{KL}(\pi_\text{ref} \,\Vert\, \pi) $$
#
# since the mean of $\nabla\log\pi$ is 0. It is the divergence *the other way round*. The plain $-\delta$ has the slope
# 1: as a loss it does nothing on average. And $\delta^2/2$ has the slope $-\delta$. This is the weight of
# $\nabla\log\pi$ in $\nabla\, \mathrm{KL}(\pi \,\Vert\, \pi_\text{ref})$, so the estimate with the wrong mean has the
# right mean slope.

# %%
theta = initial + 0.5 * rng.standard_normal(initial.shape)  # some other policy
pi, delta = policy(theta), reference - log_probs(theta).sum(axis=1)
here = len(TEXTS) * score_function_gradient(theta[ROWS], TEXTS, np.ones((len(TEXTS), T), bool), np.ones(len(TEXTS)))
forth = numerical_gradient(lambda theta: policy(theta) @ (log_probs(theta).sum(axis=1) - reference), theta)
back = numerical_gradient(lambda theta: np.exp(reference) @ (reference - log_probs(theta).sum(axis=1)), theta)
for name, slopes in {
    "log(π/π_ref) in the reward": -delta,
    "e^δ − δ − 1 as a loss": 1 - np.exp(delta),
    "−δ as a loss": np.ones(len(TEXTS)),
    "δ²/2 as a loss": -delta,
}.items():
    mean = to_table(ROWS, (pi * slopes)[:, None, None] * here)
    print(f"{name:<27} mean slope of length {np.linalg.norm(mean):.4f}; off ∇KL(π‖π_ref) by "
          f"{np.linalg.norm(mean - forth):.4f}, off ∇KL(π_ref‖π) by {np.linalg.norm(mean - back):.4f}")  # fmt: skip

# %% [markdown]
# Both divergences are 0 for $\pi = \pi_\text{ref}$, and both hold the policy back. But with a reward their best
# policies differ. (GRPO has a $\delta$ for each token. Then all this is true of the next token, after a beginning drawn
# from $\pi$.)
#
# ### Entropy (optional)
#
# Look again at the first picture of texts. The dog has won, though the cat's sentence has the same reward. That was
# luck: what is drawn more often is pushed up more often, too. The *entropy* of a row of probabilities, $H = -\sum_v p_v
# \log p_v$, says how undecided it is: $\log V$ if all words are equally likely, and 0 if one is certain. A bonus for it
# keeps several ways open (Williams and Peng 1991). Its gradient goes through the softmax, where $\partial p_u /
# \partial z_v = p_u\,(\delta_{uv} - p_v)$; with two indices $\delta$ is 1 if they are equal, and else 0:
#
# $$ \frac{\partial H}{\partial z_v} = -\sum_u (\log p_u + 1)\, p_u\, (\delta_{uv} - p_v) = -p_v\,(\log p_v + H) $$
#
# The entropy of a whole policy is the mean of $-\log\pi(y)$. So, like the divergence, a bonus can be a part of the
# reward:

# %%
z = rng.standard_normal((4, V))
log_p = log_softmax(z)
H = -(np.exp(log_p) * log_p).sum(axis=-1, keepdims=True)
found = -np.exp(log_p) * (log_p + H)
differences = numerical_gradient(lambda z: -(np.exp(log_softmax(z)) * log_softmax(z)).sum(), z)
print(f"the gradient against central differences: error {error(found, differences):.0e}")
for bonus in (0.0, 0.1):
    *_, pi = train(lambda theta, bonus=bonus: reward - bonus * log_probs(theta).sum(axis=1), steps=60)
    print(f"bonus {bonus}: entropy {-pi @ np.log(pi):.3f}, expected reward {pi @ reward:.3f}; "
          + ", ".join(f"{NAMES[text]} {pi[text]:.0%}" for text in runs))  # fmt: skip

# %% [markdown]
# (This is the divergence once more: from a reference for which all texts are equally likely.)
#
# ## Several steps on the same texts (optional)
#
# Drawing is slow: a text is written token by token (lesson 11). So one would like to take several steps with the same
# texts. But after the first step they come from an *old* policy, $\pi_\text{old}$. The remedy is a weight:
#
# $$ \mathbb{E}_{y\sim\pi}[r(y)] = \sum_y \pi_\text{old}(y)\, \frac{\pi(y)}{\pi_\text{old}(y)}\, r(y) =
# \mathbb{E}_{y\sim\pi_\text{old}}\bigl[\rho(y)\, r(y)\bigr] $$
#
# with the [*ratio*](glossary.md#importance-ratio) $\rho = \pi / \pi_\text{old}$. That is exact, and it is dangerous: a
# few texts whose ratio is large outweigh all others. PPO (Schulman and others 2017) gives each token its own ratio, and
# does not let it count for more than a little. The objective of a token is
#
# $$ \min\bigl(\rho A,\; \mathrm{clamp}(\rho,\, 1 - \varepsilon,\, 1 + \varepsilon)\, A\bigr) $$
#
# Read it case by case; here $\varepsilon = 0.2$.
#
# * $A > 0$: the token is to become more probable. $\rho = 1.2$ is enough for these texts. Beyond that the clamped
#   product is the smaller one and counts. It is constant: the slope is 0. Below 0.8 the token has *lost*, though it was
#   good (other tokens have moved it). There $\rho A$ is smaller, and its slope pulls back.
# * $A < 0$: the token is to become less probable. $\rho = 0.8$ is enough; below that the slope is 0. Above 1.2 the
#   slope pushes back.
#
# ### Exercise 3 ★★☆: the clipped slope (optional)
#
# For a whole batch, with respect to $\log\pi$. (Then `log_probs`' backward leads on to the logits, as above.)


# %% tags=["exercise"]
def clipped_slope(log_probs, old, advantages, counted, clip):
    """The gradient of the clipped objective by log_probs: of the mean of min(ρ A, clamp(ρ, 1 − clip, 1 + clip) A).

    log_probs, old (B, T): log π and log π_old of the drawn tokens, ρ = π / π_old; advantages (B,): A of each text;
    counted (B, T): True where a text has a token. The mean is over all N tokens that count. A token that does not count
    has the slope 0, whatever stands there, even NaN. The objective is to grow: it is not a loss. → (B, T)
    """
    raise NotImplementedError


# %%
clipped_slope = check(clipped_slope)

# %% [markdown] tags=["help"]
# What is the derivative of $\rho = e^{\log\pi - \log\pi_\text{old}}$ by $\log\pi$? Which of the two in the minimum
# moves with $\rho$? What if both are equal, as in the first step, where every ratio is 1?
#
# ---
#
# $\mathrm{d}\rho = \rho\, \mathrm{d}\log\pi$, so the slope of `gain = ratio * advantages[:, None]` is `gain` itself. It
# counts where `gain <= clamped`, and where `counted`; elsewhere 0 (`np.where`, since NaN · 0 is NaN). Divide by
# `counted.sum()`. Take the difference of the logarithms as 0 where a token does not count.

# %%
CLIP = 0.2
ratios = np.linspace(0.4, 1.8, 281)[:, None]  # (281, 1): each a text of one token
panels = {}
for A in (1.0, -1.0):
    objective = np.minimum(ratios * A, np.clip(ratios, 1 - CLIP, 1 + CLIP) * A)
    slope = clipped_slope(np.log(ratios), 0 * ratios, np.full(len(ratios), A), ratios > 0, CLIP) * len(ratios)
    panels[f"A = {A:+.0f}".replace("-", "−")] = objective[:, 0], slope[:, 0]
pictures.draw_clip(ratios[:, 0], panels, CLIP)

# %% [markdown]
# The proof, by central differences, away from the corners. Then two tests of several updates on the same texts, with a
# clip and without. How much of the expected reward is reached after 4 rounds of 128 texts? And how far does the policy
# move in one round of 8 texts if their rewards are mere *luck*, so that it should not move at all?


# %%
def objective(log_probs, old, advantages, clip):
    ratio = np.exp(log_probs - old)
    gain, clamped = ratio * advantages[:, None], np.clip(ratio, 1 - clip, 1 + clip) * advantages[:, None]
    return np.minimum(gain, clamped).mean()


moved, old = 0.4 * rng.standard_normal((2, 6, 5))
some = rng.standard_normal(6)
slope = clipped_slope(moved, old, some, np.ones((6, 5), bool), CLIP)
print(f"error {error(slope, numerical_gradient(lambda x: objective(x, old, some, CLIP), moved)):.0e}\n")


def one_round(theta, draws, judge, updates, clip, groups=16):
    """Draw groups of 8 texts, and take several steps with them. → the new table"""
    pi = policy(theta)
    drawn = draws.choice(len(TEXTS), size=(groups, 8), p=pi / pi.sum())
    advantages, drawn = group_advantages(judge(drawn)).ravel(), drawn.ravel()
    old, rows, there = log_probs(theta)[drawn], ROWS[drawn], np.ones((drawn.size, T), bool)
    for _ in range(updates):
        now, cache = log_probs_forward(theta[rows], TEXTS[drawn])
        slope = T * clipped_slope(now, old, advantages, there, clip)  # T: the sum over the tokens of a text
        theta = theta + to_table(rows, log_probs_backward(slope, cache))
    return theta


def divergence(theta):
    """KL(π ‖ π_ref)."""
    return policy(theta) @ (log_probs(theta).sum(axis=1) - reference)


print("updates   clip   expected reward after 4 rounds   divergence after a round of luck")
for updates, clip in ((1, CLIP), (20, CLIP), (20, 1e9)):
    theta = initial
    for number in range(4):
        theta = one_round(theta, np.random.default_rng(number), lambda drawn: reward[drawn], updates, clip)
    lucky = [
        one_round(initial, np.random.default_rng(seed), lambda drawn: rng.random(drawn.shape), updates, clip, groups=1)
        for seed in range(40)
    ]
    moved = np.mean([divergence(each) for each in lucky])
    print(f"{updates:7} {clip if clip < 1 else 'none':>6} {policy(theta) @ reward:32.3f} {moved:34.3f}")

# %% [markdown]
# More updates on the same texts reach more, and most of all without a clip: our rewards are never wrong, and a limit
# only costs time. With luck it is the other way round: without a clip the policy learns the noise. The clip is a limit
# on how much one batch of drawn texts may be believed.
#
# ## From preferences, without a reward (optional)
#
# People find it hard to give a number, and easy to say which of two texts is better. The model of Bradley and Terry
# (1952) connects both: a text with reward $r_1$ is preferred to one with $r_2$ with the probability
#
# $$ P(y_1 \succ y_2) = \sigma\bigl(r_1 - r_2\bigr), \qquad \sigma(m) = \frac{1}{1 + e^{-m}} $$
#
# One way is to fit a model of $r$ to many preferences, and then to train on it as above. *DPO* (Rafailov and others
# 2023) needs neither the model of $r$ nor drawn texts. Read the formula of the best policy backwards: if
# $\pi = \pi_\text{ref}\, e^{r/\beta} / Z$, then
#
# $$ r(y) = \beta \log\frac{\pi(y)}{\pi_\text{ref}(y)} + \beta\log Z $$
#
# So **every policy is the best one for some reward**, its [*implicit reward*](glossary.md#implicit-reward). $Z$ cannot
# be computed for a GPT, but it is the same for both texts of a pair. In the difference it drops out. So put this $r$
# into the probability of the preferences, and take the loss of a classifier, minus its logarithm:
#
# $$ L = -\log\sigma(m), \qquad m = \beta\log\frac{\pi(y_1)}{\pi_\text{ref}(y_1)} -
# \beta\log\frac{\pi(y_2)}{\pi_\text{ref}(y_2)} $$
#
# where $y_1$ is the better text. Its mean over the pairs is DPO's loss:


# %%
def preference_loss(log_probs, reference, counted, beta):
    """log_probs, reference (2P, T): the P better texts, then the P worse ones, in the same order. → the loss"""
    implicit = beta * np.where(counted, log_probs - reference, 0).sum(axis=1)  # (2P,)
    better, worse = np.split(implicit, 2)
    return np.logaddexp(0, worse - better).mean()  # −log σ(m) = log(1 + e^−m)


# %% [markdown]
# ### Exercise 4 ★★☆: the gradient of a preference (optional)
#
# With $\sigma'(m) = \sigma(m)\,\sigma(-m)$ the slope of $-\log\sigma(m)$ is $-\sigma(-m)$. What does a token's
# $\log\pi$ do to $m$?


# %% tags=["exercise"]
def preference_backward(dloss, log_probs, reference, counted, beta):
    """The gradient of `preference_loss` by log_probs.

    dloss: a number. log_probs, reference (2P, T): log π and log π_ref of the tokens of P better texts, then of the P
    texts that are worse, in the same order; counted (2P, T): True where a text has a token. The loss is the mean over
    the P pairs of −log σ(margin); a text's log π is the sum over its tokens that count. Others have the gradient 0,
    whatever stands there, even NaN. Margins may be in the thousands. → (2P, T)
    """
    raise NotImplementedError


# %%
preference_backward = check(preference_backward)

# %% [markdown] tags=["help"]
# How does the margin change if the log π of one token of the better text grows by a little? If it is a token of the
# worse text? And how does the loss change with the margin, for a pair that is told apart well, and for one that is not?
#
# ---
#
# The margin is computed as in `preference_loss`. Each token of a better text has the gradient $-\beta\,\sigma(-m)/P$
# times `dloss`, each of a worse text the opposite. `np.exp(-np.logaddexp(0, margin))` is $\sigma(-m)$ without an
# overflow. `np.concatenate([slope, -slope])[:, None] * counted`.

# %%
mine, theirs, there = -rng.random((10, 4)), -rng.random((10, 4)), rng.random((10, 4)) < 0.8  # five pairs
differences = numerical_gradient(lambda mine: preference_loss(mine, theirs, there, 0.3), mine)
found = preference_backward(1.0, mine, theirs, there, 0.3)
print(f"against central differences: error {error(found, differences):.0e}")

# %% [markdown]
# Read the gradient: the better text is pulled up and the worse one pushed down, by $\beta\,\sigma(-m)$: strongly where
# the worse text still has the larger implicit reward, hardly where the better one has. Implicit rewards are measured
# from the reference. So the further the policy has moved from it in the right direction, the weaker is the pull.
#
# Does it work? 3,000 pairs of texts are drawn from the start. A judge has the reward 2 for a sentence with *runs*, 1
# for one with *sleeps* and 0 for all else, and prefers with Bradley and Terry's probability. The policy never sees
# these numbers. By the derivation it should come to $\pi^*$.

# %% tags=["long"]
BETA, PAIRS = 0.5, 3000
hidden = reward + is_sentence
one, other = rng.choice(len(TEXTS), size=(2, PAIRS), p=policy(initial))
prefers_one = rng.random(PAIRS) < 1 / (1 + np.exp(hidden[other] - hidden[one]))
judged = np.concatenate([np.where(prefers_one, one, other), np.where(prefers_one, other, one)])  # (2P,): better, worse
whole, of_start = np.ones((2 * PAIRS, T), bool), log_probs(initial)[judged]
theta, m, v = initial.copy(), np.zeros_like(initial), np.zeros_like(initial)
learned = {}
for step in range(1, 301):
    now, cache = log_probs_forward(theta[ROWS[judged]], TEXTS[judged])
    slope = preference_backward(1.0, now, of_start, whole, BETA)
    grad = to_table(ROWS[judged], log_probs_backward(slope, cache))
    adam_step(theta.reshape(-1), grad.reshape(-1), m.reshape(-1), v.reshape(-1), step=step, lr=0.05)
    if step in (100, 300):
        learned[f"step {step}"] = policy(theta)
        print(f"step {step}: loss {preference_loss(log_probs(theta)[judged], of_start, whole, BETA):.4f}")
aim = best_policy(hidden, BETA)
log_ratio = (np.log(aim) - reference)[judged][:, None]
print(f"π*: loss {preference_loss(log_ratio, 0 * log_ratio, log_ratio < np.inf, BETA):.4f}")
pictures.draw_texts(
    shown, {"the best, π*": aim, **learned},
    "The probabilities of texts in the best policy for the judge's hidden reward, and after 100 and 300 steps of "
    "learning from pairs. After 100 steps they are nearly the best policy's; after 300 most is in other texts.",
)  # fmt: skip
better, worse = np.split(judged, 2)
final = learned["step 300"]
for text in [text for text in np.argsort(-final) if text in others][:3]:
    print(f"{NAMES[text]:<18} π {final[text]:.2f}; in the pairs {np.sum(better == text)} times better, "
          f"{np.sum(worse == text)} times worse")  # fmt: skip

# %% [markdown]
# After 100 steps the sentences are as the derivation says: from comparisons alone the policy has come near the best one
# for a reward that it has never seen. But its loss is already below that of $\pi^*$, so it has begun to learn the luck
# of these pairs. The loss falls on, and the sentences vanish. **A loss of differences sees pairs, and nothing else.** A
# text that stood in a few pairs, and was never the worse one there, may gain without an end; its probability is taken
# from all others, good and bad. So DPO is stopped early, and its texts are read too.
#
# ## A GPT, and a parser that judges it (optional)
#
# Now a real model. A [small GPT](course/lesson_27/sentences.py) reads a few hundred short sentences of the grammar for
# a few seconds, and stops long before it knows the grammar. Then it writes, and the grammar's parser gives 1 for a text
# that the grammar can form, and 0 for others. Training steps need nothing new. The ordinary loss of a model with
# *weights* is $\sum_i w_i\,(-\log\pi_i) / N$. With $w = -N \cdot$ (the gradient of the objective by $\log\pi_i$, as a
# loss) it has the objective's gradient. For steps on fresh texts that is simply the advantage of the text, less the
# slope of the divergence.

# %% tags=["long"]
world = sentences.Sentences()
ready = world.model()
world.read(ready, steps=150)


def log_probs_of(model, ids):
    """log π of the words of texts, (B, T)."""
    return log_probs_forward(model.forward(sentences.inputs(ids))[0].astype(np.float64), ids)[0]


def rewarded(beta, steps=100, count=64):
    """Train a copy of the GPT. → it, and lists: steps, shares of grammatical texts, shares of different ones."""
    model, draws = world.model(), np.random.default_rng(1)
    model.parameters.load_state_dict(ready.parameters.state_dict())
    moments, found = np.zeros((2, model.parameters.data.size), np.float32), ([], [], [])
    for step in range(steps + 1):
        if step % 20 == 0:
            texts = [world.text(row) for row in world.write(model, 300, np.random.default_rng(2))[0]]
            good = np.mean([sentences.is_grammatical(text) for text in texts])
            for values, value in zip(found, (step, good, len(set(texts)) / len(texts)), strict=True):
                values.append(value)
        ids, counted = world.write(model, count, draws)
        rewards = np.array([[float(sentences.is_grammatical(world.text(row))) for row in ids]])
        weights = np.where(counted, group_advantages(rewards).reshape(-1, 1), 0)
        if beta:
            delta = log_probs_of(ready, ids) - log_probs_of(model, ids)
            weights -= np.where(counted, beta * (1 - np.exp(delta)), 0)
        model.parameters.zero_grad()
        _, cache = model.loss(
            sentences.inputs(ids), np.where(counted, ids, IGNORED), weights=weights.astype(np.float32)
        )
        model.loss_backward(1.0, cache)
        adam_step(model.parameters.data, model.parameters.grad, *moments, step=step + 1, lr=1e-3)
    return model, found


writers = {"no divergence": rewarded(0.0), "β = 0.1": rewarded(0.1)}
pictures.draw_writers({name: found for name, (_, found) in writers.items()})
for name, model in (("before", ready), *((name, model) for name, (model, _) in writers.items())):
    texts = [world.text(row) for row in world.write(model, 300, np.random.default_rng(4))[0]]
    plain = np.mean([bool(re.fullmatch(r"The \w+ (is|was) \w+\.", text)) for text in texts])
    print(f"{name}: {plain:.0%} are of the kind 'The … is …'\n    {' '.join(texts[:5])}")

# %% [markdown]
# It works on a GPT, too: from about a third of grammatical texts to most. Now look at the right picture, and at the
# texts. Without the divergence, more and more texts are of one kind, which the model gets right, and the same texts
# come again and again. The reward says *grammatical*; it does not say *different*. With the divergence the model gets a
# little less reward, and nearly all of its texts are different. But texts of that one kind gain there, too, only more
# slowly.
#
# ## It is the package's (optional)
#
# The package has the same functions in [`objectives.py`](../minitransformer/training/objectives.py), and the command
# `python -m minitransformer train --from MODEL --objective grpo --reward grammar` trains with them (`reinforce` and
# `dpo` are the others; `--kl` is β, `--clip` is ε).

# %%
now, old, at_start = -rng.random((3, 6, 5))
advantages, there = rng.standard_normal(6), rng.random((6, 5)) < 0.8
_, cache = objectives.reward_loss_forward(now, old, advantages, there, clip=CLIP)
mine = clipped_slope(now, old, advantages, there, CLIP)
print(f"clipped slope: error {error(-objectives.reward_loss_backward(1.0, cache), mine):.0e}")
_, cache = objectives.preference_loss_forward(now, at_start, there, BETA)
mine = preference_backward(1.0, now, at_start, there, BETA)
print(f"preferences: error {error(objectives.preference_loss_backward(1.0, cache), mine):.0e}")

# %% [markdown]
# ## Python, and a judge that every machine has (optional)
#
# Python's parser says whether a text is Python, and does not run it. And where Python is, there is a text to learn
# from: its own library. These commands, in the repository's folder, write its shorter functions to a file, one a line,
# train a GPT on them, and go on with `ast.parse` as the judge. Nothing is downloaded, and it takes tens of minutes.
#
# ```bash
# python lessons/after/experiments/code/library.py functions.txt
# python -m minitransformer train --kind gpt --text functions.txt --vocab-size 2000 --max-length 256 \
#     --positions rotary --steps 2400 --out runs/code
# python -m minitransformer train --from runs/code/step-00002400.safetensors --objective grpo \
#     --reward lessons/after/experiments/code/library.py:parses --max-tokens 160 --tokens-per-batch 10304 \
#     --peak-lr 5e-4 --kl 0.5 --steps 80 --out runs/code-rewarded
# ```
#
# A line break stands as ¶ in a line, and four spaces after it as →. Let the model write before and after, with
# `python -m minitransformer generate MODEL "def"`. The judge is the function `parses` in
# [`library.py`](after/experiments/code/library.py), a dozen lines. Before you train with `--kl 0`, write down what it
# forgets. `make after ARGS=code` does all of this with three seeds, and compares the GPT with gzip and xz ([the
# figures](after/after.md#python-that-a-gpt-writes)).
#
# ## Common mistakes, and what they look like
#
# * **The sign.** Optimisers go down; $J$ is to go up. With the wrong sign the reward falls, and if all rewards are 0 at
#   the start, nothing shows it.
# * **All rewards of a group are equal.** Then all advantages are 0, and the step does nothing. If a task is always
#   solved, or never, drop it, or draw larger groups.
# * **A mean over each text's tokens first**, then over the texts. A token of a long wrong text then costs little, and
#   texts that are wrong grow longer and longer (Yu and others 2025).
# * **The prompt is counted.** Its tokens were not drawn. Only what the policy has drawn has a score function.
# * **Drawn from one distribution, judged by another.** Top-p (lesson 19), a temperature, or dropout in one of two
#   passes: then the ratio is not 1 in the first step, and the proof does not hold.
# * **Only the reward is watched.** Print texts. Watch the divergence, the entropy, the length, and how many texts are
#   different: each of them moves before a reader notices.
#
# ## What changed since 2017
#
# InstructGPT (Ouyang and others 2022) went the long way: a model of people's preferences as the reward, PPO with a
# second network that predicts rewards as the baseline, and a divergence. This made a language model into an assistant.
# Since then parts were left out: DPO needs neither the reward model nor drawn texts; GRPO replaces the second network
# by a group. And where a program can judge (sums, proofs, tests of code), rewards need no people: with them models
# learned to write long solutions before their answers (DeepSeek-AI 2025).
#
# Sources: Williams 1992 (*Simple statistical gradient-following algorithms*, §4), Kool and others 2019 (*Buy 4
# REINFORCE samples, get a baseline for free*), Schulman and others 2017 (arXiv 1707.06347, eq. 7), Shao and others 2024
# (2402.03300, §4.1), Rafailov and others 2023 (2305.18290, eq. 4 to 7), Yu and others 2025 (2503.14476, §3.3), Schulman
# 2020 (*Approximating KL divergence*).
#
# ## Where next
#
# Write a reward of your own: a function from texts to numbers in a file, and `--reward FILE.py:NAME` (see
# [how](../minitransformer/pretrained/README.md#train-on-rewards-or-on-preferences)). Before you train, write down what
# it forgets. Then see what the model finds, and compare it with [what we
# measured](after/after.md#training-on-rewards). An open question: the reward of a text counts for all of its tokens.
# Which of them made it good? [Lesson 28](28_small_numbers.ipynb) makes a trained model small.
