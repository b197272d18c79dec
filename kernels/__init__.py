"""The ops of `minitransformer` on a GPU: Triton kernels, their host wrappers, and the tables that a model takes.

    import kernels
    from minitransformer import Transformer, TransformerConfig
    model = Transformer(TransformerConfig.demo(), ops=kernels.triton_ops("cuda"))

Every Triton pair has the name and the meaning of its NumPy reference in `minitransformer.ops`. The backward returns the
gradients. Autograd does not know of them, so a tensor that requires a gradient is an error, except under
`torch.no_grad()`. In `kernels.functional` the pairs are functions with PyTorch's arguments, which autograd and
`torch.compile` know; `kernels.patch(model)` puts them into a model of Hugging Face's.

The same call gives the same bits every time in one process, because no kernel uses atomics. The tile of a large
attention is chosen by timing and kept in Triton's cache on disk, where all processes with the same kind of GPU find it,
such as the ranks of a training. On another machine, or with an empty cache, another tile may win, which adds in another
order, and the last bits may differ. A CUDA graph that is captured before the choice takes the default tile. Set
`MINITRANSFORMER_TUNE=0` before the first call, and every kernel takes its default tile: then the bits are the same in
each process, on each GPU of a kind. For calls that differ in the layout of rows or in the type of ids, Triton compiles
different kernels, whose last bits may differ too. Adam's bits are the same if its numbers come from the host or from
device memory, and dropout's masks depend only on the key and the coordinates.

`python -m kernels.speedup` measures within two minutes how much faster the kernels are on your own GPU.

On a GPU, run `PYTHONPATH=. python tests/benchmarks/gpu/lease.py first --out DIR` before anything else: within five
minutes it reports if attention is right there, and how fast it is; `second` reports on all other ops.

The names below are loaded when they are first used: importing this package needs neither PyTorch nor Triton, and never
initialises CUDA.
"""
# ruff: noqa: F401 - the imports under TYPE_CHECKING are for editors; at run time `__getattr__` does the same

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .availability import require_torch, require_triton

if TYPE_CHECKING:
    from . import functional
    from .adam import adam_step, global_norm
    from .attention import attention_backward, attention_forward
    from .cross_entropy import cross_entropy_backward, cross_entropy_forward
    from .dropout import dropout_backward, dropout_forward
    from .eager.linear import linear_backward, linear_forward
    from .elementwise import (
        gated_backward,
        gated_forward,
        gelu_backward,
        gelu_forward,
        relu_backward,
        relu_forward,
        silu_backward,
        silu_forward,
    )
    from .embedding import embedding_backward, embedding_forward
    from .linear_attention import linear_attention_backward, linear_attention_forward
    from .linear_cross_entropy import linear_cross_entropy_backward, linear_cross_entropy_forward
    from .norms.layernorm import add_layernorm_backward, add_layernorm_forward, layernorm_backward, layernorm_forward
    from .norms.rmsnorm import add_rmsnorm_backward, add_rmsnorm_forward, rmsnorm_backward, rmsnorm_forward
    from .patching import patch
    from .quantized import quantized_linear_backward, quantized_linear_forward
    from .rope import rope_backward, rope_forward
    from .softmax import softmax_backward, softmax_forward
    from .tables import add_layernorm_from, attention_from, torch_ops, triton_ops

KERNELS = {
    "attention": (
        "attention",
        "FlashAttention-style, both ways: grouped heads, bias, softcap, masks, patterns, dropout inside; any length",
    ),
    "linear_attention": ("linear_attention", "in chunks, both ways; grouped heads, padding; time that grows as T"),
    "softmax": ("softmax", "one pass where a row fits, online beyond"),
    "layernorm": ("norms.layernorm", "one pass; sums for gamma and beta without atomics"),
    "add_layernorm": ("norms.layernorm", "residual, dropout and norm in one kernel"),
    "rmsnorm": ("norms.rmsnorm", "one pass; sums for gamma without atomics"),
    "add_rmsnorm": ("norms.rmsnorm", "residual, dropout and norm in one kernel"),
    "cross_entropy": (
        "cross_entropy",
        "ids or probabilities as targets, label smoothing, weights, ignored targets; three passes over the logits",
    ),
    "linear_cross_entropy": ("linear_cross_entropy", "projection and loss, never all logits at once"),
    "embedding": ("embedding", "look-up; sums by token without atomics"),
    "dropout": ("dropout", "masks computed from coordinates, none stored"),
    "relu": ("elementwise", "one pass"),
    "gelu": ("elementwise", "one pass; exact, or by the formula with tanh"),
    "silu": ("elementwise", "one pass"),
    "gated": ("elementwise", "activation and product in one pass; the backward computes the activation again"),
    "rope": (
        "rope",
        "one pass, both ways, straight from the projection's rows; halves or neighbours, all or some channels",
    ),
    "quantized_linear": (
        "quantized",
        "weights in 8 or 4 bits, unpacked in registers; few rows and many, both ways",
    ),
    "adam": ("adam", "one pass over all parameters; the global norm"),
}
"""Every op with kernels of ours: its module, and its line in the README. The proofs and the ledger use this list."""


def functions_of(op: str) -> tuple[str, str]:
    """Return the names of an op's two public functions: forward and backward, for Adam the step and the global norm."""
    return ("adam_step", "global_norm") if op == "adam" else (f"{op}_forward", f"{op}_backward")


_HOMES = {name: (home, require_triton) for op, (home, _) in KERNELS.items() for name in functions_of(op)}
_HOMES |= dict.fromkeys(("linear_forward", "linear_backward"), ("eager.linear", require_torch))
_HOMES["patch"] = ("patching", require_torch)
_HOMES |= dict.fromkeys(("torch_ops", "triton_ops", "attention_from", "add_layernorm_from"), ("tables", require_torch))
__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it. Raises `ModuleNotFoundError` without PyTorch or Triton."""
    if name == "functional":
        require_torch()
        return import_module(f"{__name__}.functional")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, require = _HOMES[name]
    require()
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "functional"})
