"""Attention's weights alone."""

import math

from .arguments import Array, arguments, check_flag, check_number, check_positive, has_products
from .attention import scores_forward
from .pattern import Pattern, Window, allowed_keys, check_pattern, check_window, pattern_of
from .softmax import softmax_in_place


@arguments(
    "query B H Tq D≥1, key B Hk|H Tk D, bias?:broadcast B H Tq Tk, key_mask?:bool B Tk",
    causal=check_flag,
    window=check_window,
    pattern=check_pattern,
    scale=check_number,
    softcap=check_positive,
)
@has_products
def attention_weights(
    query: Array,
    key: Array,
    bias: Array | None = None,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    window: Window = None,
    pattern: Pattern | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Array:
    """The softmax matrix `(B, H, Tq, Tk)` of `attention_forward`, for pictures and for teaching."""
    factor = query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    whole = pattern_of(pattern, causal, key_mask, window, (key.shape[0], key.shape[2]))
    mask = allowed_keys(query.shape[2], key.shape[2], False, None, None, pattern=whole)
    return softmax_in_place(scores_forward(query, key, bias, mask, factor, softcap)[0])
