"""Scaled dot-product attention: `softmax(scale · query keyᵀ) value`.

Per head, in numbers moved to and from memory, at T = 4096 and D = 128:

    naive       `attention_naive`: the formula. The scores and the weights are Tq × Tk arrays that five passes write and
                five read: 10 · T², 80 times what goes in and out, 4 · T · D
    + softmax   scale, mask and softmax in one pass (`kernels.attention_from`): 4 · T², 32 times
    online      `attention_online`: a block of keys at a time, the softmax corrected when a larger score turns up. No
                array is Tq × Tk, so memory grows as T; in plain operations each block's scores still travel
    forward     that, with a block of queries, its scores and its output in registers throughout: what is read is the
                keys and values, once for each block of queries, and mostly from the L2 cache: T/128 · 2 · T · D. Now
                arithmetic is the limit, so: the softmax is in base 2, log2(e) folded into the scale, a fused
                multiply-add and an exp2 for each score; blocks of keys that causality, the window or padding hide from
                all of the queries are not visited, so a window of r costs T · r; and those that all of the queries see
                whole need no mask
    backward    the weights are computed again from one number a query, the log-sum-exp, and delta = dout · out replaces
                a sum over keys. One kernel owns queries and writes dquery, the other owns keys and writes dkey and
                dvalue: 7 products where 5 would do, for no atomic additions and the same bits in each run
    dropout     the mask is a hash, computed while the tensor cores work, one for each two weights; nothing is stored

What is next on Hopper: blocks fetched by the tensor memory accelerator, and warps of their own to do so
(`tl.make_tensor_descriptor`, `tl.range(..., warp_specialize=True)`). Triton 3.7.1 compiles that for a single loop over
128 × 128 tiles, with 168 registers and no spills, but its pass fails where blocks that need no mask have a loop of
their own, as they do here. A single loop would mask every block; whether it is faster has not been measured.
"""

from .host import attention_backward, attention_forward
from .naive import attention_naive, attention_online

__all__ = ["attention_backward", "attention_forward", "attention_naive", "attention_online"]
