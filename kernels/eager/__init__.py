"""The ops in PyTorch's own arithmetic, without its autograd: on a CPU, a GPU or Apple's, in any floating dtype.

Names, formulas and errors are those of `minitransformer.ops`, which also explains the formulas: read the two side by
side. float16 and bfloat16 are widened to float32 for every sum.
Autograd is not needed, but it works with these functions as with all of PyTorch's operations.
"""
# ruff: noqa: F401 - `kernels.tables` makes a table of everything that is imported here

from .adam import adam_step, global_norm
from .additive_attention import additive_attention_backward, additive_attention_forward
from .attention import attention_backward, attention_forward, attention_from, attention_weights
from .conv1d import conv1d_backward, conv1d_forward
from .cross_entropy import (
    cross_entropy_backward,
    cross_entropy_forward,
    linear_cross_entropy_backward,
    linear_cross_entropy_forward,
)
from .dropout import dropout_backward, dropout_forward
from .elementwise import (
    gated_backward,
    gated_forward,
    gelu_backward,
    gelu_forward,
    relu_backward,
    relu_forward,
    sigmoid_backward,
    sigmoid_forward,
    silu_backward,
    silu_forward,
    tanh_backward,
    tanh_forward,
)
from .embedding import embedding_backward, embedding_forward
from .linear import linear_backward, linear_forward
from .linear_attention import linear_attention_backward, linear_attention_forward, linear_attention_step
from .log_probs import entropy_backward, entropy_forward, log_probs_backward, log_probs_forward
from .norms import (
    add_layernorm_backward,
    add_layernorm_forward,
    add_layernorm_from,
    add_rmsnorm_backward,
    add_rmsnorm_forward,
    layernorm_backward,
    layernorm_forward,
    rmsnorm_backward,
    rmsnorm_forward,
)
from .patches import patches_backward, patches_forward
from .quantized import on_device, quantized_linear_backward, quantized_linear_forward, quantized_rows
from .rope import rope_backward, rope_forward
from .softmax import log_softmax, softmax_backward, softmax_forward
