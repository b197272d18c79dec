"""Scaled dot-product attention: `softmax(scale · query keyᵀ) value`.

The steps from the formula to the kernels, with the numbers that each moves to and from memory for one head at T = 4096
and D = 128 (tests count them: `test_triton_attention.py`). `test_compilation.py` checks statements about machine code.

    naive       `attention_naive`: the formula. Five passes write the Tq × Tk scores and weights, and five read them:
                10 · T² numbers, 80 times the 4 · T · D of inputs and output
    + softmax   `kernels.attention_from` with a softmax of one pass, and the scale applied to the query: 4 · T², 32
                times as many, or 6 · T² with a mask, which takes a pass of its own
    online      `attention_online`: one block of keys at a time; the softmax is corrected when a larger score comes. No
                array is Tq × Tk, so memory grows as T, but in plain operations each block's scores still move
    minimal     `minimal.attention_minimal`: the same in one kernel of 25 lines, causal or not, to be read first
    forward     the same, with a block of queries, its scores and its output in registers throughout. Only keys and
                values are read, once for each block of queries: T/128 · 2 · T · D. The softmax is in base 2, with
                log2(e) folded into the scale: a fused multiply-add and an exp2 for each score. Blocks of keys that
                causality, the window or padding hide from all of the queries are not visited, so a window of r costs
                T · r; blocks that all of the queries see completely need no mask
    backward    the weights are computed again from one number a query, the log-sum-exp, and delta = dout · out replaces
                a sum over keys. One kernel owns queries and writes dquery, the other owns keys and writes dkey and
                dvalue. That takes 7 products instead of 5, but no atomic additions, so each run gives the same bits
    dropout     the mask is a hash, one for two weights, computed where the weights are; no mask is stored
    grouped     heads of queries that share keys and values read the same blocks; the program that owns keys visits the
                queries of the whole group, so the sum over the group needs no atomics
    bias        added to the scores in base 2, with strides of 0 where it is broadcast; a third kernel owns a block of
                the bias and computes dS of all sentences and heads that share it again: nothing is B · H · T² large
    slopes      ALiBi's bias is computed in registers, from positions: nothing is read, and it has no gradient. In tiles
                of 128 × 64 the forward's loop of heads 128 wide has 504 instructions instead of 373, which is 4 more
                for each score of a thread
    softcap     a tanh for each score, made of an exp2 and a division; the backward computes it again
    packed      sentences lie one behind the other. A program reads where its own begins and ends, and stops at once if
                its block lies beyond: nothing is padded, so a batch costs no more than its sentences
    patterns    lists of the blocks that a block visits, those that need no mask first; a window or causality alone
                needs none. An option that is not given is left out of the compiled kernel, and costs nothing

    look-ahead  on Hopper the forward issues a block's product of queries and keys before the softmax of the block
                before it, so that the tensor cores work while exponentials are computed; and the part of addresses
                that is the same in every turn is computed before the loop
    descriptors on Hopper keys and values may be loaded by descriptors of their tensors, made on the host: the tensor
                memory accelerator computes the addresses, so the loop is shorter and needs fewer registers: heads 64
                wide may have 128 keys a block beside the look-ahead. The value's load stands before the product of
                queries and keys; behind it the exponentials would no longer run beside the product. Only tuning
                chooses descriptors, and only on a GPU that computes the same numbers with them as without
    sharing     if queries are few, as in decoding, several programs share a query's keys, and a second kernel merges
                their results

Cycles of a block of 64 keys, for two warps of a scheduler that follow the loop's machine code together (sm_90,
Triton 3.6.0; `Warp` of `tests/support/kernels/sass.py`; what memory makes them wait is left out):

    heads                 128 wide    64 wide
    plain                     1790       1373
    + look-ahead              1690       1174
    + descriptors             1423       1197
    a bias, before            8973       7713    numbers of a bias one by one: `keys < Tk` could not be seen to be a
    a bias                    2143       1858    multiple of 8, and blocks without a mask need no such bound at all
    dquery, 2 stages          2501       1813
    dquery, 3 stages          2070       1372

In the backward descriptors gain nothing beside three stages: 2077 and 1365 cycles for dquery.

Tried and given up: warps with roles (`tl.range(…, warp_specialize=True)`), of which one group requests blocks from the
tensor memory accelerator and two compute. It compiled, and was right as AMD's machine code; but on an H200 the second
group's rows were wrong in all 48 cases that were tried (Triton 3.6.0).
"""

from .host import attention_backward, attention_forward
from .naive import attention_naive, attention_online

__all__ = ["attention_backward", "attention_forward", "attention_naive", "attention_online"]
