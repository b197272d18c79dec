"""Scaled dot-product attention: `softmax(scale · query keyᵀ) value`.

Per head, in numbers moved to and from memory, at T = 4096 and D = 128. Tests count them
(`test_triton_attention_memory.py`); what is said of machine code is in `results/compiled.json`, with tests of its own.

    naive       `attention_naive`: the formula. The scores and the weights are Tq × Tk arrays that five passes write and
                five read: 10 · T², 80 times what goes in and out, 4 · T · D
    + softmax   `kernels.attention_from` with a softmax of one pass; the scale goes into the query: 4 · T², 32 times,
                and 6 · T² with a mask, which is a pass of its own
    online      `attention_online`: a block of keys at a time, the softmax corrected when a larger score turns up. No
                array is Tq × Tk, so memory grows as T; in plain operations each block's scores still travel
    forward     that, with a block of queries, its scores and its output in registers throughout: what is read is the
                keys and values, once for each block of queries: T/128 · 2 · T · D. The softmax is in base 2, log2(e)
                folded into the scale: a fused multiply-add and an exp2 for each score. Blocks of keys that causality,
                the window or padding hide from all of the queries are not visited, so a window of r costs T · r; and
                those that all of the queries see whole need no mask
    backward    the weights are computed again from one number a query, the log-sum-exp, and delta = dout · out replaces
                a sum over keys. One kernel owns queries and writes dquery, the other owns keys and writes dkey and
                dvalue: 7 products where 5 would do, for no atomic additions and the same bits in each run
    dropout     the mask is a hash, one for each two weights, computed where the weights are; none is stored

What is next on Hopper: that the softmax and the hash are computed while the tensor cores work; and blocks fetched by
the tensor memory accelerator, with warps of their own to do so (`tl.make_tensor_descriptor`, `tl.range(...,
warp_specialize=True)`).
"""

from .host import attention_backward, attention_forward
from .naive import attention_naive, attention_online

__all__ = ["attention_backward", "attention_forward", "attention_naive", "attention_online"]
