"""The objectives of rewards and preferences against PyTorch's autograd, and the policy gradient by enumeration.

With five tokens there are 125 texts of three: the expectation of a reward over all of them is a sum, whose gradient is
that of autograd and of finite differences, without any drawing.
"""

import itertools

import numpy as np
import pytest
import torch

from minitransformer import GPT, GPTConfig
from minitransformer.gradcheck import numerical_gradient
from minitransformer.training.objectives import (
    group_advantages,
    implicit_rewards,
    preference_loss_backward,
    preference_loss_forward,
    reward_loss_backward,
    reward_loss_forward,
    target_weights,
)

V, LENGTH, BEGIN = 5, 3, 5
TEXTS = np.array(list(itertools.product(range(V), repeat=LENGTH)))  # (125, 3)


# --- Advantages -----------------------------------------------------------------------------------------------


def test_advantages_of_groups():
    rewards = np.array([[1.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]])
    np.testing.assert_allclose(group_advantages(rewards, divided=False)[0], [1, -1 / 3, -1 / 3, -1 / 3])
    np.testing.assert_allclose(group_advantages(rewards)[0], np.array([3, -1, -1, -1]) / np.sqrt(3))
    assert not group_advantages(rewards)[1].any()
    thirds = np.full((1, 3), 0.1)  # their mean is not exactly 0.1
    assert not group_advantages(thirds)[0].any()


@pytest.mark.parametrize("shape", [(3,), (3, 1), (0, 1)])
def test_a_group_needs_two_texts(shape):
    with pytest.raises(ValueError, match="expected \\(groups, G\\) with a G of 2 or more"):
        group_advantages(np.zeros(shape))


# --- Losses against autograd ----------------------------------------------------------------------------------


def drawn(seed, rows=6, length=5):
    """Log-probabilities of the policy, of the one that drew, and of the reference, advantages, and what counts."""
    rng = np.random.default_rng(seed)
    log_probs, old, reference = -rng.exponential(1, (3, rows, length))
    counted = np.arange(length) < rng.integers(1, length + 1, rows)[:, None]
    return log_probs, log_probs + 0.3 * (old - reference), reference, rng.standard_normal(rows), counted


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clip", [None, 0.1, 0.2])
@pytest.mark.parametrize("kl", [0.0, 0.3])
def test_the_loss_of_rewards_is_autograds(seed, clip, kl):
    log_probs, old, reference, advantages, counted = drawn(seed)
    loss, cache = reward_loss_forward(log_probs, old, advantages, counted, reference, clip, kl)
    dlog_probs = reward_loss_backward(1.7, cache)
    pi, pi_old, pi_ref, advantage = map(torch.tensor, (log_probs, old, reference, advantages[:, None]))
    ratio = (pi.requires_grad_() - pi_old).exp()
    kept = ratio if clip is None else ratio.clamp(1 - clip, 1 + clip)
    losses = -torch.minimum(ratio * advantage, kept * advantage)
    losses = losses + kl * ((pi_ref - pi).exp() - (pi_ref - pi) - 1)
    theirs = losses[torch.tensor(counted)].mean()
    (1.7 * theirs).backward()
    assert abs(loss - theirs.item()) < 1e-12
    np.testing.assert_allclose(dlog_probs, np.asarray(pi.grad), rtol=1e-12, atol=1e-14)
    clipped = ~np.isclose(ratio.detach().numpy(), kept.detach().numpy()) & counted
    assert clip is None or clipped.any()  # or clipping was not tried
    numerical = numerical_gradient(
        lambda x: reward_loss_forward(x, old, advantages, counted, reference, clip, kl)[0], log_probs
    )
    np.testing.assert_allclose(dlog_probs / 1.7, numerical, atol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_of_preferences_is_autograds(seed):
    log_probs, _, reference, _, counted = drawn(seed)
    loss, cache = preference_loss_forward(log_probs, reference, counted, 0.4)
    dlog_probs = preference_loss_backward(1.7, cache)
    pi = torch.tensor(log_probs, requires_grad=True)
    rewards = 0.4 * ((pi - torch.tensor(reference)) * torch.tensor(counted)).sum(1)
    better, worse = rewards.chunk(2)
    theirs = -torch.nn.functional.logsigmoid(better - worse).mean()
    (1.7 * theirs).backward()
    assert abs(loss - theirs.item()) < 1e-12
    np.testing.assert_allclose(dlog_probs, np.asarray(pi.grad), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(implicit_rewards(log_probs, reference, counted, 0.4), rewards.detach(), rtol=1e-12)


def test_losses_are_finite_far_from_the_reference():
    log_probs, reference, counted = np.full((2, 1), -800.0), np.array([[0.0], [-1600.0]]), np.ones((2, 1), bool)
    loss, cache = preference_loss_forward(log_probs, reference, counted, 1.0)
    assert loss == 1600
    np.testing.assert_array_equal(preference_loss_backward(1.0, cache), [[-1.0], [1.0]])


def test_what_does_not_count_has_no_part():
    log_probs, old, reference, advantages, counted = drawn(5)
    counted[0] = False
    expected, cache = reward_loss_forward(log_probs, old, advantages, counted, reference, 0.2, 0.1)
    gradient = reward_loss_backward(1.0, cache)
    for array in (log_probs, old, reference):
        array[~counted] = -np.inf
    loss, cache = reward_loss_forward(log_probs, old, advantages, counted, reference, 0.2, 0.1)
    assert loss == expected
    np.testing.assert_array_equal(reward_loss_backward(1.0, cache), gradient)
    assert not gradient[~counted].any()


# --- The policy gradient, by enumeration ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy():
    config = GPTConfig(V + 1, d_model=8, num_heads=2, d_ff=16, num_layers=1, max_length=LENGTH, dropout=0, init_std=0.5)
    return GPT(config, dtype="float64", seed=3)


def log_policy(model):
    """Log π of each text's tokens, (125, 3): what the model says of the five tokens, and never the mark again."""
    ids = np.concatenate([np.full((len(TEXTS), 1), BEGIN), TEXTS[:, :-1]], axis=1)
    logits = model.forward(ids)[0][..., :V]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return np.take_along_axis(log_probs, TEXTS[..., None], -1)[..., 0]


def expected_reward(model, rewards):
    return float(np.exp(log_policy(model).sum(1)) @ rewards)


def scores(model):
    """∇log π of each text, (125, P), by the library's backward."""
    ids = np.concatenate([np.full((len(TEXTS), 1), BEGIN), TEXTS[:, :-1]], axis=1)
    found = []
    for row, text in zip(ids, TEXTS, strict=True):
        logits, cache = model.forward(row[None])
        probabilities = np.exp(logits) / np.exp(logits)[..., :V].sum(-1, keepdims=True)
        dlogits = -probabilities  # ∂log softmax: onehot − softmax, over the five
        dlogits[..., V] = 0
        dlogits[0, np.arange(LENGTH), text] += 1
        model.parameters.zero_grad()
        model.backward(dlogits, cache)
        found.append(model.parameters.grad.copy())
    return np.array(found)


@pytest.fixture(scope="module")
def enumerated(policy):
    """Each text's probability, reward and ∇log π, and the exact gradient of the expected reward."""
    probabilities, rewards = np.exp(log_policy(policy).sum(1)), np.random.default_rng(0).uniform(0, 1, len(TEXTS))
    gradients = scores(policy)
    return probabilities, rewards, gradients, (probabilities * rewards) @ gradients


def test_the_score_function_gives_the_gradient_of_the_expectation(policy, enumerated):
    probabilities, rewards, gradients, exact = enumerated
    assert abs(probabilities.sum() - 1) < 1e-12
    data = policy.parameters.data
    numerical = np.zeros_like(exact)
    for place in range(len(data)):
        kept, sides = data[place], []
        for step in (1e-5, -1e-5):
            data[place] = kept + step
            sides.append(expected_reward(policy, rewards))
        data[place] = kept
        numerical[place] = (sides[0] - sides[1]) / 2e-5
    np.testing.assert_allclose(exact, numerical, atol=1e-9)
    assert np.abs(exact).max() > 1e-3
    np.testing.assert_allclose(probabilities @ gradients, 0, atol=1e-13)  # so a baseline changes nothing


def test_the_baseline_of_the_others_leaves_the_estimate_unbiased(enumerated):
    """On average over all 15,625 pairs of texts, each as probable as it is, the estimate is the gradient exactly."""
    probabilities, rewards, gradients, exact = enumerated
    i, j = np.indices((len(TEXTS),) * 2).reshape(2, -1)
    pairs = np.stack([rewards[i], rewards[j]], axis=1)
    weight = (probabilities[i] * probabilities[j])[:, None]
    advantages = weight * group_advantages(pairs, divided=False) / 2  # each of two texts is half of the mean
    per_text = np.bincount(i, advantages[:, 0], len(TEXTS)) + np.bincount(j, advantages[:, 1], len(TEXTS))
    np.testing.assert_allclose(per_text @ gradients, exact, atol=1e-15)
    own = weight * (pairs - pairs.mean(1, keepdims=True)) / 2  # a baseline with the text's own reward in it
    per_text = np.bincount(i, own[:, 0], len(TEXTS)) + np.bincount(j, own[:, 1], len(TEXTS))
    np.testing.assert_allclose(per_text @ gradients, exact / 2, atol=1e-15)  # (G − 1) / G of it


def test_the_mean_of_drawn_texts_converges_by_the_root_of_their_number(enumerated):
    probabilities, rewards, gradients, exact = enumerated
    rng, errors = np.random.default_rng(1), []
    for groups in (100, 10_000):
        found = []
        for _ in range(200):  # trials, whose mean square error is known to a tenth
            texts = rng.choice(len(TEXTS), (groups, 4), p=probabilities)
            advantages = group_advantages(rewards[texts], divided=False)
            mean = np.bincount(texts.reshape(-1), advantages.reshape(-1), len(TEXTS)) @ gradients / texts.size
            found.append(((mean - exact) ** 2).sum())
        errors.append(np.sqrt(np.mean(found)))
    assert errors[0] < np.linalg.norm(exact)
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.15)


def test_weights_of_targets_give_the_objectives_gradient():
    """The model's ordinary loss with these weights is differentiated as the objective is."""
    config = GPTConfig(7, d_model=8, num_heads=2, d_ff=16, num_layers=1, max_length=6, dropout=0, init_std=0.5)
    model, rng = GPT(config, dtype="float64", seed=1), np.random.default_rng(2)
    ids, targets = rng.integers(0, 7, (2, 4, 6))
    targets[:, 4:], targets[0, 2:] = -100, -100
    counted = targets != -100

    def log_probs_of():
        logits = model.forward(ids)[0]
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return np.take_along_axis(log_probs, np.where(counted, targets, 0)[..., None], -1)[..., 0]

    old, reference = (log_probs_of() + 0.3 * rng.standard_normal(targets.shape) for _ in range(2))
    advantages = rng.standard_normal(4)

    def objective():
        return reward_loss_forward(log_probs_of(), old, advantages, counted, reference, 0.2, 0.1)

    weights = target_weights(reward_loss_backward(1.0, objective()[1]), counted)
    model.parameters.zero_grad()
    model.loss_backward(1.0, model.loss(ids, targets, weights=weights)[1])
    for place in rng.permutation(len(model.parameters.data))[:60]:
        kept, sides = model.parameters.data[place], []
        for step in (1e-6, -1e-6):
            model.parameters.data[place] = kept + step
            sides.append(objective()[0])
        model.parameters.data[place] = kept
        assert model.parameters.grad[place] == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-8)
