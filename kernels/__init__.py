"""The ops of `minitransformer` on a GPU: Triton kernels, their host wrappers, and the tables that a model takes.

    import kernels
    from minitransformer import Transformer, TransformerConfig
    model = Transformer(TransformerConfig.demo(), ops=kernels.triton_ops("cuda"))

Every Triton pair has the name and the meaning of its NumPy reference in `minitransformer.ops`. Its gradients are
returned by the backward; autograd knows nothing of them, so a tensor that requires a gradient is refused (but not under
`torch.no_grad()`).

The same call gives the same bits every time: nothing is atomic. Calls that differ in more than their values, in how
rows lie in memory or in the type of ids, are other kernels to the compiler, whose sums it may add in another order:
their last bits may differ. Adam's bits do not depend on where its numbers stand, and the masks of dropout on nothing
but the key and the coordinates.

The names below are loaded when they are first used: importing this package needs neither PyTorch nor Triton, and never
initialises CUDA.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .availability import require_torch, require_triton

if TYPE_CHECKING:
    from .adam import adam_step, global_norm
    from .attention import attention_backward, attention_forward
    from .cross_entropy import cross_entropy_backward, cross_entropy_forward
    from .dropout import dropout_backward, dropout_forward
    from .eager.linear import linear_backward, linear_forward
    from .embedding import embedding_backward, embedding_forward
    from .layernorm import add_layernorm_backward, add_layernorm_forward, layernorm_backward, layernorm_forward
    from .linear_cross_entropy import linear_cross_entropy_backward, linear_cross_entropy_forward
    from .relu import relu_backward, relu_forward
    from .softmax import softmax_backward, softmax_forward
    from .tables import add_layernorm_from, attention_from, torch_ops, triton_ops

__all__ = [
    "adam_step",
    "add_layernorm_backward",
    "add_layernorm_forward",
    "add_layernorm_from",
    "attention_backward",
    "attention_forward",
    "attention_from",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "dropout_backward",
    "dropout_forward",
    "embedding_backward",
    "embedding_forward",
    "global_norm",
    "layernorm_backward",
    "layernorm_forward",
    "linear_backward",
    "linear_cross_entropy_backward",
    "linear_cross_entropy_forward",
    "linear_forward",
    "relu_backward",
    "relu_forward",
    "softmax_backward",
    "softmax_forward",
    "torch_ops",
    "triton_ops",
]

_TORCH_HOMES = {
    "eager.linear": ("linear_forward", "linear_backward"),
    "tables": ("torch_ops", "triton_ops", "attention_from", "add_layernorm_from"),
}
_TRITON_HOMES = {
    "adam": ("adam_step", "global_norm"),
    "attention": ("attention_forward", "attention_backward"),
    "cross_entropy": ("cross_entropy_forward", "cross_entropy_backward"),
    "dropout": ("dropout_forward", "dropout_backward"),
    "embedding": ("embedding_forward", "embedding_backward"),
    "layernorm": ("layernorm_forward", "layernorm_backward", "add_layernorm_forward", "add_layernorm_backward"),
    "linear_cross_entropy": ("linear_cross_entropy_forward", "linear_cross_entropy_backward"),
    "relu": ("relu_forward", "relu_backward"),
    "softmax": ("softmax_forward", "softmax_backward"),
}
_HOME_OF = {name: (home, require_torch) for home, names in _TORCH_HOMES.items() for name in names}
_HOME_OF |= {name: (home, require_triton) for home, names in _TRITON_HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it; `ModuleNotFoundError` says what is missing."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, require = _HOME_OF[name]
    require()
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
