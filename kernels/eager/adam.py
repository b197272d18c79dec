"""The two operations of an optimiser over a model's flat arrays."""

import torch
from torch import Tensor

from ..checks import check_adam, check_shadow, declared, refuses_autograd


@refuses_autograd
@declared
def adam_step(
    data: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    step: int | Tensor,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.98,
    eps: float = 1e-9,
    grad_scale: float | Tensor = 1.0,
    shadow: Tensor | None = None,
) -> None:
    """Update flat `data`, `m` and `v` in place by one step of Adam; step, lr and grad_scale may be in device memory.

    `shadow` receives a copy of the new data in its own dtype.
    """
    check_shadow(shadow, data)
    check_adam({"step": step, "lr": lr, "grad_scale": grad_scale}, beta1, beta2, eps)
    # Scalars are float64, in which β^step is exact enough; a tensor without axes does not change the arrays' dtype.
    wide = _widest(data)
    number, lr, grad_scale = (n.reshape(()).to(wide) if isinstance(n, Tensor) else n for n in (step, lr, grad_scale))
    root_correction = (1 - beta2**number) ** 0.5
    rate = lr * root_correction / (1 - beta1**number)
    g = grad * grad_scale
    m.mul_(beta1).add_(g, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    data.sub_(m / (v.sqrt() + eps * root_correction) * rate)
    if shadow is not None:
        shadow.copy_(data)


@declared
def global_norm(grad: Tensor) -> Tensor:
    """`√Σ grad²`, a scalar in device memory; summed in float64 if the device has it."""
    return torch.linalg.vector_norm(grad, dtype=_widest(grad))


def _widest(tensor: Tensor) -> torch.dtype:
    """Return the widest floating dtype of the tensor's device: Apple's GPUs have no float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64
