"""Scaled dot-product attention: `softmax(scale · query keyᵀ) value`.

The steps from the formula to the kernels, with the numbers that each moves to and from memory for one head at T = 4096
and D = 128 (tests count them: `test_triton_attention.py`). Facts about machine code are in
`results/compiled.json`, which has tests of its own.

    naive       `attention_naive`: the formula. Five passes write the Tq × Tk scores and weights, and five read them:
                10 · T² numbers, 80 times the 4 · T · D of inputs and output
    + softmax   `kernels.attention_from` with a softmax of one pass, and the scale applied to the query: 4 · T², 32
                times as many, or 6 · T² with a mask, which takes a pass of its own
    online      `attention_online`: one block of keys at a time; the softmax is corrected when a larger score comes. No
                array is Tq × Tk, so memory grows as T, but in plain operations each block's scores still move
    forward     the same, with a block of queries, its scores and its output in registers throughout. Only keys and
                values are read, once for each block of queries: T/128 · 2 · T · D. The softmax is in base 2, with
                log2(e) folded into the scale: a fused multiply-add and an exp2 for each score. Blocks of keys that
                causality, the window or padding hide from all of the queries are not visited, so a window of r costs
                T · r; blocks that all of the queries see completely need no mask
    backward    the weights are computed again from one number a query, the log-sum-exp, and delta = dout · out replaces
                a sum over keys. One kernel owns queries and writes dquery, the other owns keys and writes dkey and
                dvalue. That takes 7 products instead of 5, but no atomic additions, so each run gives the same bits
    dropout     the mask is a hash, one for two weights, computed where the weights are; no mask is stored

What could follow on Hopper: to compute the softmax and the hash while the tensor cores work, and to let special warps
fetch blocks with the tensor memory accelerator (`tl.make_tensor_descriptor`, `tl.range(..., warp_specialize=True)`).
"""

from .host import attention_backward, attention_forward
from .naive import attention_naive, attention_online

__all__ = ["attention_backward", "attention_forward", "attention_naive", "attention_online"]
