"""Training objectives: a loss of a model's output, forward and backward."""

from ..layers import TokenEmbedding
from ..ops import Array

IGNORED = -100
"""A target that does not count, outside every vocabulary; PyTorch's and Hugging Face's number for it."""


def next_token_loss(
    tokens: TokenEmbedding,
    hidden: Array,
    targets: Array,
    label_smoothing: float = 0.0,
    ignored: int | None = None,
    with_grad: bool = True,
) -> tuple[Array, tuple]:
    """The mean cross-entropy of targets `(B, T)` under the logits `hidden @ tableᵀ`, hidden `(B, T, C)`.

    Targets equal to `ignored` do not count. The logits are not kept. Source: Vaswani 2017, §5.4 (label smoothing).
    """
    batch, time, width = hidden.shape
    targets = tokens.ops.asarray(targets)
    if tuple(targets.shape) != (batch, time):
        raise ValueError(f"the targets have shape {tuple(targets.shape)}, expected {(batch, time)}")
    rows, wanted = hidden.reshape(batch * time, width), targets.reshape(-1)
    loss, cache = tokens.ops.linear_cross_entropy.forward(
        rows,
        tokens.table.value,
        wanted,
        label_smoothing=label_smoothing,
        ignore_index=ignored,
        with_grad=with_grad,
    )
    return loss, (cache, hidden.shape)


def next_token_loss_backward(tokens: TokenEmbedding, dloss: float, cache: tuple) -> Array:
    """Returns dhidden `(B, T, C)`; adds into the gradient of the table of tokens."""
    loss_cache, shape = cache
    dhidden, _ = tokens.ops.linear_cross_entropy.backward(dloss, loss_cache, out=tokens.table.grad)
    return dhidden.reshape(shape)
