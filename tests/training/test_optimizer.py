"""Adam against torch.optim.Adam, clipping against torch's, and the learning rate against the paper's formula."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from minitransformer.layers import FlatParameters, Parameter
from minitransformer.ops import numpy_ops
from minitransformer.training import TrainingSettings
from minitransformer.training.optimizer import Adam, Schedule, clip_scale, noam

SHAPES = {"weight": (5, 3), "bias": (3,), "table": (300, 257)}  # together more than one block of the in-place update


def flat_parameters(seed=0, dtype="float64"):
    parameters = FlatParameters(
        {name: Parameter(shape, lambda rng, shape: rng.standard_normal(shape)) for name, shape in SHAPES.items()},
        numpy_ops,
        dtype,
    )
    parameters.initialize(seed)
    return parameters


def set_gradients(parameters, step):
    """Gradients of sizes from 1e-6 to 1e3, and a parameter that gets none at even steps."""
    rng = np.random.default_rng(step)
    for name, parameter in parameters.named.items():
        size = 10.0 ** rng.uniform(-6, 3, parameter.shape)
        parameter.grad[...] = 0 if name == "bias" and step % 2 == 0 else size * rng.standard_normal(parameter.shape)


@pytest.mark.parametrize("clip_norm", [None, 0.7])
@pytest.mark.parametrize(("betas", "eps"), [((0.9, 0.98), 1e-9), ((0.8, 0.999), 1e-6), ((0.0, 0.5), 1e-3)])
def test_twenty_steps_follow_torch(betas, eps, clip_norm, proof):
    parameters = flat_parameters()
    adam = Adam(parameters, numpy_ops, betas, eps)
    theirs = {name: torch.from_numpy(p.data.copy()).requires_grad_() for name, p in parameters.named.items()}
    reference = torch.optim.Adam(theirs.values(), betas=betas, eps=eps)
    worst = 0.0
    for step in range(1, 21):
        set_gradients(parameters, step)
        for name, parameter in parameters.named.items():
            theirs[name].grad = torch.from_numpy(parameter.grad.copy())
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(theirs.values(), clip_norm)
        lr = noam(step, d_model=16, warmup_steps=10)
        reference.param_groups[0]["lr"] = lr
        reference.step()
        adam.step(lr, clip_scale(adam.grad_norm(), clip_norm))
        for name, parameter in parameters.named.items():
            worst = max(worst, np.abs(parameter.data - theirs[name].detach().numpy()).max())
    proof.record("Adam, 20 steps", "autograd", worst)
    assert worst <= 1e-8


def test_state_goes_on_with_the_same_bits():
    parameters, other = flat_parameters(), flat_parameters(seed=1)
    adam, resumed = Adam(parameters, numpy_ops), Adam(other, numpy_ops)
    for step in range(1, 9):
        if step == 5:
            other.load_state_dict(parameters.state_dict())
            resumed.load_state_dict({name: array.copy() for name, array in adam.state_dict().items()})
        for optimizer, flat in ((adam, parameters), (resumed, other)):
            set_gradients(flat, step)
            optimizer.step(0.01)
        assert np.array_equal(parameters.data, other.data) == (step >= 5)
    assert set(adam.state_dict()) == {"num_steps"} | {f"{moment}.{name}" for moment in "mv" for name in SHAPES}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("m.bias"), "m.bias"),
        (lambda state: state.pop("num_steps"), "num_steps"),
        (lambda state: state.update({"v.more": np.zeros(3)}), "v.more"),
        (lambda state: state.update({"v.bias": np.zeros(4)}), "v.bias"),
    ],
)
def test_state_of_another_model(change, message):
    adam = Adam(flat_parameters(), numpy_ops)
    state = dict(adam.state_dict())
    change(state)
    with pytest.raises(ValueError, match=f"does not fit the model: it differs in {message}"):
        adam.load_state_dict(state)


def test_impossible_hyper_parameters():
    parameters = flat_parameters()
    with pytest.raises(ValueError, match=r"betas must be in \[0, 1\), got \(0.9, 1.0\)"):
        Adam(parameters, numpy_ops, betas=(0.9, 1.0))
    for eps in (0.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"eps must be positive and finite, got {eps}"):
            Adam(parameters, numpy_ops, eps=eps)


@pytest.mark.parametrize("norm", [0.0, 0.5, 1.0, 7.5])
def test_clipping_shortens_only_what_is_too_long(norm):
    assert clip_scale(norm, None) == 1.0
    assert norm * clip_scale(norm, 1.0) == pytest.approx(min(norm, 1.0))


def test_schedule_is_equation_3():
    # Read off the formula by hand for the base model: 512^-0.5 · 4000^-0.5 at the peak.
    assert noam(4000, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert noam(1, 512, 4000) == pytest.approx(4000**-1.5 / 512**0.5)
    assert noam(16_000, 512, 4000, scale=2.0) == pytest.approx(noam(4000, 512, 4000))
    for d_model, warmup in ((512, 4000), (128, 1), (7, 250)):
        schedule = Schedule.paper(d_model, warmup)
        for step in (1, 2, warmup - 1 or 1, warmup, warmup + 1, 10 * warmup, 100_000):
            assert schedule(step) == pytest.approx(noam(step, d_model, warmup), rel=1e-12)


def test_schedule_with_a_named_peak():
    schedule = Schedule(peak_lr=0.005, warmup_steps=2000)
    rates = np.array([schedule(step) for step in range(1, 8001)])
    assert rates.argmax() + 1 == 2000
    assert rates.max() == pytest.approx(0.005)
    np.testing.assert_allclose(np.diff(rates[:2000]), 0.005 / 2000)
    assert schedule(8000) == pytest.approx(0.0025)


def test_schedule_with_a_cooldown():
    """A fifth of 8,000 steps: from 1 at step 6,401 to 1/1,600 at the last, times the curve without it."""
    settings = TrainingSettings(steps=8000, peak_lr=0.005, warmup_steps=2000)
    plain, cooled = settings.schedule(8), replace(settings, cooldown=0.2).schedule(8)
    factors = [cooled(step) / plain(step) for step in (1, 6400, 6401, 7201, 8000)]
    assert factors == pytest.approx([1, 1, 1, 0.5, 1 / 1600])


@pytest.mark.parametrize(
    ("peak_lr", "warmup_steps", "message"), [(0.0, 1, "peak_lr must be positive"), (1.0, 0, "warmup_steps must be at")]
)
def test_impossible_schedule(peak_lr, warmup_steps, message):
    with pytest.raises(ValueError, match=message):
        Schedule(peak_lr, warmup_steps)
