"""Adam and the paper's learning rate (Vaswani 2017, §5.3), over all parameters at once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..layers import FlatParameters
from ..ops import Array, Ops


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) with the betas and epsilon of Vaswani 2017, §5.3.

        m = β₁ m + (1 - β₁) g              m̂ = m / (1 - β₁ᵗ)
        v = β₂ v + (1 - β₂) g²             v̂ = v / (1 - β₂ᵗ)
        θ = θ - lr · m̂ / (√v̂ + ε)

    m and v are flat arrays like the gradient, so that a step is one operation. `part` is the slice of the flat gradient
    whose parameters are updated, by default all of it; frozen parameters are outside. Raises ValueError if a beta is
    outside [0, 1) or eps is not positive and finite.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        ops: Ops,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        part: slice | None = None,
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be in [0, 1), got {betas}")
        if not 0 < eps < math.inf:
            raise ValueError(f"eps must be positive and finite, got {eps}")
        self.parameters, self.ops, self.betas, self.eps = parameters, ops.unchecked(), betas, eps
        self.num_steps, self.part = 0, part or slice(len(parameters.grad))
        size = len(parameters.grad[self.part])
        self.m = ops.zeros(size, parameters.dtype)  # (P,), or less: the part's
        self.v = ops.zeros(size, parameters.dtype)

    def step(self, learning_rate: float, grad_scale: float = 1.0) -> None:
        """Update every parameter in place from `grad_scale` times its gradient."""
        self.num_steps += 1
        parameters, part = self.parameters, self.part
        if not len(self.m):
            return
        # With 16-bit activations the parameters have a copy in 16 bits, and such a backend's adam_step writes it too.
        narrow = {} if parameters.shadow is parameters.data else {"shadow": parameters.shadow[part]}
        self.ops.adam_step(
            parameters.data[part], parameters.grad[part], self.m, self.v,
            step=self.num_steps, lr=learning_rate, beta1=self.betas[0], beta2=self.betas[1], eps=self.eps,
            grad_scale=grad_scale, **narrow,
        )  # fmt: skip

    def grad_norm(self) -> float:
        """Return the global norm: the norm of all gradients as one vector."""
        return float(self.ops.global_norm(self.parameters.grad))

    def state_dict(self) -> dict[str, Array]:
        """Return `num_steps`, and each parameter's moments as `m.<name>` and `v.<name>`, in host memory."""
        moments = self._moments(self._whole(self.m), self._whole(self.v))
        state = {name: self.ops.to_numpy(moment) for name, moment in moments.items()}
        return {"num_steps": self.ops.to_numpy(self.ops.asarray(self.num_steps))} | state

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Load what `state_dict` returned. Raises ValueError, and changes nothing, if it does not fit the model."""
        m, v = (self.ops.zeros(self.parameters.grad.shape, self.parameters.dtype) for _ in "mv")
        moments = self._moments(m, v)
        expected = {name: tuple(moment.shape) for name, moment in moments.items()} | {"num_steps": ()}
        given = {name: tuple(array.shape) for name, array in state.items()}
        if given != expected:
            differing = sorted(name for name in given | expected if given.get(name) != expected.get(name))
            raise ValueError(f"the optimiser's state does not fit the model: it differs in {', '.join(differing)}")
        mistyped = [name for name, array in state.items() if array.dtype.kind != ("i" if name == "num_steps" else "f")]
        if mistyped:
            raise ValueError(f"the optimiser's moments must be floats and num_steps an integer, not so: {mistyped}")
        for name, moment in moments.items():
            moment[...] = self.ops.asarray(state[name], self.parameters.dtype)
        self.m[...], self.v[...] = m[self.part], v[self.part]
        self.num_steps = int(state["num_steps"])

    def _moments(self, m: Array, v: Array) -> dict[str, Array]:
        """Return the moments of each parameter, as views into flat arrays."""
        views = {"m": self.parameters.views(m), "v": self.parameters.views(v)}
        return {f"{letter}.{name}": view for letter, named in views.items() for name, view in named.items()}

    def _whole(self, moment: Array) -> Array:
        """Return a flat array of the moments of all parameters that are trained."""
        flat = self.ops.zeros(self.parameters.grad.shape, self.parameters.dtype)
        flat[self.part] = moment
        return flat


def clip_scale(norm: float, clip_norm: float | None) -> float:
    """Return the factor that brings a gradient's norm down to `clip_norm`, 1 if it is smaller (Pascanu 2013, §3.2)."""
    return 1.0 if clip_norm is None or norm <= clip_norm else clip_norm / norm


def noam(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Return the paper's learning rate, for steps counted from 1 (Vaswani 2017, §5.3, eq. 3).

    lrate = scale · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)
    """
    return scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to `peak_lr` at `warmup_steps`, then decay with the inverse square root of the step.

    lr = peak_lr · min(step / warmup_steps, √(warmup_steps / step)), steps counted from 1: the curve of the paper's
    eq. 3, given by its peak. In the last `cooldown_steps` of `steps` this is multiplied by a factor that falls from 1
    to almost 0 on a line. Raises ValueError unless `peak_lr` and `warmup_steps` are positive.
    """

    peak_lr: float
    warmup_steps: int
    steps: int = 0
    cooldown_steps: int = 0

    def __post_init__(self) -> None:
        if not self.peak_lr > 0:
            raise ValueError(f"peak_lr must be positive, got {self.peak_lr}")
        if self.warmup_steps < 1:
            raise ValueError(f"warmup_steps must be at least 1, got {self.warmup_steps}")

    @classmethod
    def paper(cls, d_model: int, warmup_steps: int = 4000) -> "Schedule":
        """Return the paper's eq. 3 itself: its peak is (d_model · warmup_steps)^-0.5."""
        return cls(noam(warmup_steps, d_model, warmup_steps), warmup_steps)

    def __call__(self, step: int) -> float:
        rate = self.peak_lr * min(step / self.warmup_steps, (self.warmup_steps / step) ** 0.5)
        return rate * min(1.0, (self.steps + 1 - step) / self.cooldown_steps) if self.cooldown_steps else rate
