"""The pairs as PyTorch's functions: they work with autograd, `torch.compile` and autocast, in the place of PyTorch's.

    from kernels.functional import layer_norm
    y = layer_norm(x, (x.shape[-1],), weight)    # F.layer_norm's arguments
    y.sum().backward()

Names, arguments, layouts and shapes are those of `torch.nn.functional`, and of flash-attention's `flash_attn_func` and
`flash_attn_varlen_func`. An argument that is not supported is refused by a sentence; none is ignored.

Where it runs: float32, float16 and bfloat16 on a GPU run in the Triton kernel if the op has one. Without a GPU
`torch.nn.functional` itself runs where it has the function and means the same. Everything else, such as float64 on a
GPU and dropout on a CPU, runs in PyTorch's own arithmetic, `kernels.eager`. With TRITON_INTERPRET=1 the kernels run on
a CPU too, to check them. So the same code works everywhere.

Where they differ from their namesakes: sums are in float32 whatever the dtype, so that a loss of half-precision logits
is float32. A loss is 0 if no target counts (in PyTorch NaN). A query with nothing to attend to gets zeros. Gradients
can be taken once; a gradient of a gradient is refused, and so are a derivative in forward mode and torch.func's
transforms, except where `torch.nn.functional` itself runs. A sum or a gate of two dtypes has the wider one, as in
PyTorch. An output may be changed in place unless the backward reads it again, as softmax's and a kernel's attention's
do, as in PyTorch.

Under autocast, attention and `linear_cross_entropy` compute in its dtype. On a GPU norms, softmax and cross-entropy
take their input in float32, as PyTorch's do.
"""

from .attention import linear_attention, scaled_dot_product_attention
from .flash import flash_attn_func, flash_attn_varlen_func
from .losses import cross_entropy, linear_cross_entropy
from .rows import (
    add_layer_norm,
    add_rms_norm,
    dropout,
    embedding,
    geglu,
    gelu,
    layer_norm,
    rms_norm,
    rope,
    silu,
    softmax,
    swiglu,
)

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "cross_entropy",
    "dropout",
    "embedding",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "geglu",
    "gelu",
    "layer_norm",
    "linear_attention",
    "linear_cross_entropy",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "swiglu",
]
