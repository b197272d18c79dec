"""Mistakes in the kernels and in PyTorch's arithmetic, each as a small patch: as in `breakages`, under `kernels/`."""

from support.breakages import Breakage, breakages

PARAMETERS = r"""
[layers/parameter.py: kernels/test_swap]
a narrow copy of the parameters that stays behind what is loaded
    FlatParameters.refresh: self.shadow[...] = self.data → pass
[training/optimizer.py: kernels/test_swap]
a narrow copy of the parameters that stays behind a step | Adam.step: {"shadow": parameters.shadow[part]} → {}
"""
"""Mistakes in `minitransformer` that only a table with narrow activations shows."""

MISTAKES = r"""
[eager/quantized.py: kernels/test_quantized_tensors]
the upper half of a byte before the lower one, in tensors | _rows: q & 15, q >> 4 → q >> 4, q & 15
a gradient of the last columns alone, in tensors | quantized_linear_backward: dx += → dx[:] =
[quantized.py: kernels/test_triton_quantized]
each group with the scale of an output's first
    unpack: (start if BYTES == GROUP_BYTES else byte) // GROUP_BYTES → 0
the halves of a byte meet each other's inputs | inputs_of: half * GROUP_BYTES → (1 - half) * GROUP_BYTES
four bits without their 8 | unpack: weight -= 8 → pass
a minimum times the scale | unpack: weight += → weight *=
a gradient of the lower halves alone | quantized_dx_kernel: tl.program_id(0) % (8 // BITS) → 0
[soft_cross_entropy.py: kernels/test_conformance]
label smoothing forgotten where targets are probabilities
    load_target: tl.fma(1.0 - label_smoothing, p, label_smoothing / V) → p
a gradient towards probabilities without its weight
    soft_cross_entropy_backward_kernel: dlogits *= tl.load(weights_ptr + row, present, other=0.0)[:, None] → pass
[soft_cross_entropy.py: kernels/test_triton_losses]
probabilities that do not sum to 1 taken as if they did
    soft_cross_entropy_forward_kernel: row_mass / row_total → 1.0 / row_total
the sum along probabilities is not corrected as the maximum grows
    soft_cross_entropy_forward_kernel: along += tl.where(mass == 0.0, 0.0, (maximum - higher) * mass) → pass
[machine/numbers.py: kernels/test_machine_opcodes]
a fused product rounded twice | fma: doubtful.any() → False
bfloat16 in the wrong half of a float32 | widened: (half << np.uint32(16)) → half
[machine/lanes.py: kernels/test_machine_opcodes]
a lane without a source reads 0 instead of keeping what it has | permuted: if zero → if True
lanes that are off are written to as well | permuted: on if before is None else before & on → on
[machine/matrix.py: kernels/test_machine_opcodes]
a product's rows halved instead of taken in turn
    step: reshape(-1, 8, 2, 16).transpose(1, 0, 2, 3) → reshape(-1, 2, 8, 16).transpose(2, 0, 1, 3)
[machine/watch.py: kernels/test_triton_machine]
a race between waves goes unnoticed | Ledger.only_others: == who.phase → > who.phase
a program that comes after another is not noticed | Ledger.foreign: < who.program → < -1
a program that comes before another is not noticed | Ledger.foreign: > who.program → < -1
[machine/execute.py: kernels/test_triton_machine]
a stray access goes unnoticed | Machine.index: stray |= on & ((first == 0)|(first != last)) → pass
[machine/memory.py: kernels/test_triton_machine]
lanes that disagree go unnoticed | watched: disagree.any() → False
[attention/forward.py: kernels/test_triton_attention]
parts merged as if each had seen as much | attention_merge_kernel: part_out * weight[:, None] → part_out
a part in which nothing was seen takes part in the maximum
    attention_merge_kernel: tl.where(lse == float("inf"), float("-inf"), lse) → lse
the accumulator is not rescaled as the maximum grows | attention_forward_kernel: acc * rescale[:, None] → acc
ALiBi's queries placed as if they began with the first key
    attention_forward_kernel: (queries[:, None] + (Tk - Tq), keys[None, :]) → (queries[:, None], keys[None, :])
the sum of weights is not rescaled as the maximum grows | attention_forward_kernel: l * rescale → l
the product that is ahead is of the same block again
    attention_forward_kernel: tl.minimum(n + 1, total - 1) if MASKED else n + 1 → n
the last inner block is left out where the product is ahead | attention_forward_kernel: tl.maximum(inner - 1, 0) → inner
NaN for a query whose first block of keys is all padding
    attention_forward_kernel: tl.where(new_m == float("-inf"), 0.0, new_m) → new_m
[attention/backward.py: kernels/test_triton_attention]
padding forgotten in the backward | attention_dquery_kernel: real_keys(key_mask, b, keys, Tk) → (keys < Tk)
padding's own gradients are not cleared
    attention_dkey_dvalue_kernel: tl.where(real[:, None], dkey_block * scale, 0.0) → dkey_block * scale
dropout forgotten in dvalue | attention_dkey_dvalue_kernel: tl.where(kept, weights, 0.0) → weights
dropout forgotten in dkey | attention_dkey_dvalue_kernel: tl.where(kept, dweights * dropout_scale, 0.0) → dweights
the log-sum-exp read beyond the last query
    attention_dkey_dvalue_kernel: load_numbers(lse_ptr + rows, present, float("inf")) → tl.load(lse_ptr + rows)
delta read beyond the last query
    attention_dkey_dvalue_kernel: load_numbers(delta_ptr + rows, present, 0.0) → tl.load(delta_ptr + rows)
a block of keys in another order than their scores
    attention_dkey_dvalue_kernel: + paired_order(KEYS) → + tl.arange(0, KEYS)
dkey of grouped heads from the first head of the group alone
    attention_dkey_dvalue_kernel: (head * GROUP + member) * Tq → head * GROUP * Tq
ALiBi forgotten in dkey and dvalue
    attention_dkey_dvalue_kernel: scores -= slope * distance(queries[None, :] + (Tk - Tq), keys[:, None]) → pass
ALiBi's slope of the group's first head for all of it
    attention_dkey_dvalue_kernel: b, h * GROUP + member) → b, h * GROUP)
softcap's slope forgotten in dkey
    attention_dkey_dvalue_kernel: delta[None, :]) if softcap is not None → delta[None, :])\n            if False
a mask for the queries of every block | attention_dkey_dvalue_kernel: Tq if MASKED else None → Tq
[attention/dbias.py: kernels/test_triton_attention]
a bias's gradient of the last sentence alone | attention_dbias_kernel: total += → total =
ALiBi forgotten in dbias
    attention_dbias_kernel: scores -= load_slope(slopes, b, h) * distance(queries[:, None] + (Tk - Tq), keys[None, :]) →
        pass
dropout forgotten in dbias
    attention_dbias_kernel: tl.where(kept_weights(pair_hash, threshold), dweights * dropout_scale, 0.0) → dweights
[attention/visits.py: kernels/test_triton_attention]
a block that a stride crosses between its edges is not visited
    _pairs: // pattern.stride * pattern.stride >= least → % pattern.stride == 0
a block at the end of the keys taken for one that needs no mask
    _pairs: (q + queries <= Tk) & (k + keys <= Tk) → (q + queries <= Tk)
padding forgotten in a pattern's whole blocks | visits_of: touched & (not padding) → touched
[attention/scores.py: kernels/test_triton_attention]
the bias in base e where scores are in base 2 | load_bias: to(tl.float32) * 1.4426950408889634 → to(tl.float32)
ALiBi's slope in base e where scores are in base 2 | load_slope: stride_b + h) * 1.4426950408889634 → stride_b + h)
ALiBi's distance with its sign
    distance: tl.abs(positions.to(tl.float32) - keys.to(tl.float32)) → positions.to(tl.float32) - keys.to(tl.float32)
ALiBi's slopes of the first sentence for all | load_slope: b * slopes.stride_b + h → h
[attention/tiles.py: kernels/test_triton_tuning]
descriptors as the default, which no GPU has compared with anything
    TILES: (128, 64, 8, 3), (128, 64, 8, 3, True), (128, 64, 8, 2) → (128, 64, 8, 3, True), (128, 64, 8, 2)
a product ahead of the softmax beside a bias, for which there are no registers | schedule: roomy and not bias → roomy
[attention/host.py: kernels/test_triton_tuning]
descriptors of packed sentences, which would reach into the next one
    _launch: [tile for tile in choices if not tile.descriptors] → choices
attention tuned once, with padding or without | Problem.tuning_key: padding, dropout → dropout
[attention/host.py: kernels/test_triton_attention]
a descriptor of an axis along which all numbers are the same | _described: all(x.shape) and all(x.stride()) → True
programs that share keys where each would have a block or two | parts_of: key_blocks // 4 → key_blocks
heads of one row that are neighbours no more in their gradients | _empty_gradients: 1 or _in_one_row(operands[:n]) → 1
gradients that share memory where PyTorch forbids it | attention_cache: replace(problem, apart=True) → problem
tf32 where float32 is promised | attention_forward: "ieee" → "tf32"
attention: the largest score taken before a negative scale turns it about
    attention_forward: _heads(-query, packed) if problem.scale < 0 else cache → cache
[attention/blocks.py: kernels/test_triton_attention]
the last block of a part is visited by the next program too | part_of: (part + 1) // parts → (part + 1) // parts + 1
the window is one key narrower | sees: keys >= → keys >
the blocks to visit as if queries began with the first key | blocks_of_keys: QUERIES + (Tk - Tq) → QUERIES
padding in the midst of a sentence taken for real keys | padding_ends_kernel: first_padding, keys → first_padding, Tk
the last real key is left out | padding_ends_kernel: keys + 1 → keys
attention: blocks before the band are visited | in_blocks: start // BLOCK → 0
attention: a block at the band's edge taken for one that needs no mask | reach: first + above + 1 → first + above + 2
[attention/blocks.py: kernels/test_triton_layouts]
attention: offsets in 32 bits
    locate: head.to(tl.int64), (head // H).to(tl.int64), (head % H).to(tl.int64) → head, head // H, head % H
[attention/blocks.py: kernels/test_packed_attention]
a packed sentence that ends where its last key stands among all
    locate_packed: tl.load(starts.keys + b + 1) - first_key → tl.load(starts.keys + b + 1)
[attention/forward.py: kernels/test_packed_attention]
packed sentences whose log-sum-exps overwrite each other
    attention_forward_kernel: h * num_queries + at_query → h * num_queries
programs beyond a packed sentence's end that go on | attention_forward_kernel: block * QUERIES >= Tq → False
[attention/backward.py: kernels/test_packed_attention]
dkey of each packed sentence from the first one's log-sum-exps
    attention_dkey_dvalue_kernel: num_queries + at_query + queries → num_queries + queries
[attention/host.py: kernels/test_packed_attention]
every packed sentence read where the first one lies | _heads: packed is None else stride_t → packed is None else 0
[eager/packed.py: kernels/test_packed_attention]
every packed sentence dropped like the first | packed_forward: replace(dropout, sentence=b) → dropout
[functional/attention.py: kernels/test_packed_attention]
a log-sum-exp in base 2 | attend: lse * math.log(2) → lse
[attention/dropping.py: kernels/test_triton_attention]
attention's dropout with head and sentence swapped
    hash_queries: mix_in(mix_in(low, b + sentence), h) → mix_in(mix_in(low, h), b + sentence)
[softmax.py: kernels/test_triton_softmax]
softmax over sweeps: the running sum is not rescaled | softmax_online_kernel: total * below → total
softmax: a row of all −inf begins at −inf | softmax_online_kernel: LOWEST → float("-inf")
softmax: the tiles that are loaded ahead are all the program's first | softmax_forward_kernel: first + further → first
softmax's backward over sweeps keeps the last block's sum alone
    softmax_backward_sweeps_kernel: along += dy → along = dy
[norms/whole.py: kernels/test_triton_norms]
a mean that is not exact where a row is constant
    norm_forward_kernel: quotient(tl.sum(x, axis=1), width, share) → tl.sum(x, axis=1) * share
dropout's mask forgotten in the backward of Add & Norm
    norm_backward_kernel: tl.where(keep, dx * scale, 0.0) → dx * scale
sentence and position swapped | kept_in_tile: key_high, sentence, position → key_high, position, sentence
dgamma of a program's last tile alone | norm_backward_kernel: dgamma += dy → dgamma = dy
what lies beyond the row counts in its variance
    norm_forward_kernel: tl.where(mask, x - mean[:, None], 0.0) → x - mean[:, None]
RMSNorm: dgamma without 1/rms | norm_backward_kernel: x * rstd[:, None] → x
RMSNorm: what lies along a row is not subtracted from its gradient
    norm_backward_kernel: dnormed - normed * along_normed[:, None] → dnormed
RMSNorm: eps outside the root | norm_forward_kernel: tl.rsqrt(tl.sum(rounded_product(x, x), axis=1) * share + eps) →
        1 / (tl.sqrt(tl.sum(rounded_product(x, x), axis=1) * share) + eps)
[norms/rmsnorm.py: kernels/test_triton_norms]
RMSNorm with LayerNorm's mean | rmsnorm_forward: centred=False → centred=True
[norms/whole.py: kernels/test_triton_machine_code]
LayerNorm: a product less its own mean, one of them not rounded
    norm_backward_kernel: rounded_product(dy, gamma[None, :]) → dy * gamma[None, :]
[norms/wide.py: kernels/test_triton_norms]
the variance of wide rows without that between blocks
    wide_forward_kernel: squares += beyond * beyond * share * start → pass
RMSNorm of wide rows: dgamma of a program's last tile alone | wide_partials_kernel: dgamma += dy → dgamma = dy
[rows.py: kernels/test_triton_softmax]
2^x for e^x | exp: x * 1.4426950408889634 → x
a product with log₂e of a few digits, which is wrong for small weights | exp: 1.4426950408889634 → 1.44269
a loop over a program's tiles that ends where the program after it begins | own_tiles: num_rows - first → ROWS
[rows.py: kernels/test_triton_norms]
the partial sums of one block of programs alone | sum_partials_kernel: total += → total =
[cross_entropy.py: kernels/test_triton_losses]
the running sum of exponentials is not rescaled as the maximum grows | row_losses: total * exp(maximum - higher) → total
a log-sum-exp that has lost its last digits before the logit is subtracted
    row_losses: tl.log(total) + (highest - origin) → (tl.log(total) + highest) - origin
the mean over all targets, ignored ones too | mean_kernel: tl.maximum(tl.sum(count, axis=0), 1) → num_rows
losses added up without their weights | mean_kernel: losses *= tl.load(weights_ptr + row, counted, other=0.0) → pass
a gradient that has the weight of the neighbouring target
    cross_entropy_backward_kernel: weights_ptr + row, counted → weights_ptr + row + 1, counted & (row + 1 < num_rows)
[cross_entropy.py: ops/test_cross_entropy]
the weight of an ignored target is read
    mean_kernel: weights_ptr + row, counted → weights_ptr + row, row < num_rows
smoothing without the target's own share
    logit_gradients: tl.fma(label_smoothing, share, label_smoothing - 1.0) → label_smoothing - 1.0
[cross_entropy.py: kernels/test_functional]
a z-loss whose gradient forgets the factor 2 | logit_gradients: 2.0 * z_loss → z_loss
a z-loss of the sum beside the maximum, not of all | row_losses: tl.log(total) + highest → tl.log(total)
[cross_entropy.py: kernels/test_ids]
the logit of a target that is no token is read | row_losses: counted & (token >= 0) → counted
a loss of a target that is no token
    row_losses: tl.where(token >= 0, tl.max(maximum, axis=1), float("nan")) → tl.max(maximum, axis=1)
[linear_cross_entropy.py: kernels/test_triton_losses]
chunks of too few rows where the vocabulary is large
    _chunks: max(most, min(CHUNK_ROWS, 2 * most)) → most
out overwritten by the fused loss's gradient | scale_kernel: tl.load(place, mask, other=0.0) → 0.0
rows of the fused loss's gradient without their weights
    scale_kernel: y *= tl.load(weights_ptr + row, row < num_rows, other=0.0) → pass
the fused loss's table has its gradient in parts of the largest weight
    linear_cross_entropy_forward: dtable *= largest → pass
[eager/linear.py: kernels/test_triton_losses]
the table's gradient summed in half precision
    add_product: total.addmm_(a.to(total.dtype), b.to(total.dtype)) → total += a @ b
[eager/linear.py: kernels/test_conformance]
a weight's gradient in float32 from copies in float32 on a GPU
    add_product: (total.is_cuda or total.is_meta) → total.is_cuda
a weight's gradient rounded before it is added to float32
    linear_backward: add_product(dweight, rows.mT, dy) → dweight += rows.mT @ dy
[embedding.py: kernels/test_triton_embedding]
a long segment of one token loses all but its first piece | join_pieces_kernel: axis=0) == ROWS → axis=0) < 0
out overwritten by the embedding's gradient | sum_pieces_kernel: entry + total → total
the gradient of a long segment of one token overwrites out | join_pieces_kernel: (entry + gradient) → gradient
a segment that began before a piece takes the rest of the piece with it
    sum_pieces_kernel: tl.where(id == before, total, head) → total
the beginning of a segment stored as if it were all of it
    sum_pieces_kernel: (ids[n] != before) & (ids[n] != behind) → (ids[n] != before)
[embedding.py: kernels/test_ids]
a row that the embedding's table does not have is read
    embedding_forward_kernel: mask & is_token(id, V)[:, None] → mask
an id that is none cut off to 32 bits, in which it is one | _narrow: ids.clamp(-1, vocab_size) → ids
a row that the table's gradient does not have is written
    id_at: (position < limit) & is_token(id, V) → (position < limit)
[adam.py: kernels/test_triton_adam]
Adam's bias correction by cancelling numbers
    one_minus_power: tl.fma(c, 1.0 - result, result) → 1.0 - (1.0 - result) * (1.0 - c)
[linear_attention.py: kernels/test_triton_machine_code]
linear attention: the product that splits a number is fused with the difference
    rounded: rounded_product(x, 8193.0) → x * 8193.0
[adam.py: kernels/test_triton_machine_code]
Adam's products, of which the compiler rounds whichever it likes
    adam_kernel: tl.fma(m, beta1, one_minus_beta1 * grad) → beta1 * m + one_minus_beta1 * grad
a quotient that NVIDIA's assembler fuses with the parameter it is taken from
    adam_kernel: data = tl.fma(rate * m, -1.0 / tl.fma(root_correction, eps, tl.sqrt(v)), data) →
        data -= rate * m / tl.fma(root_correction, eps, tl.sqrt(v))
[scalars.py: kernels/test_triton_adam]
a number in device memory that is not read | number: tl.load(pointer) → value
[hashing.py: kernels/test_triton_elementwise]
dropout's even and odd channels swapped | kept: channel & 1 → ~channel & 1
dropout that takes the head for the sentence | row_hashes: row // (T * H) → row // T
[elementwise.py: kernels/test_triton_elementwise]
relu's gradient at 0 | activated: x > 0 → x >= 0
a sigmoid whose exponential overflows | sigmoid: -tl.abs → tl.abs
gelu's slope without the density | activated: below + x * bell(x) * 0.3989422804014327 → below
the normal distribution's formula for negative numbers taken for positive ones too
    normal_below: tl.where(x < 0, above, 1 - above) → above
a bell as wide as its square | bell: 0.7213475204444817 → 1.4426950408889634
gelu's formula for half precision in float32 too
    activation_forward_kernel: x_ptr.dtype.element_ty != tl.float32 → True
the slope of gelu's formula with tanh is NaN where x³ overflows | activated: (product * x) * x → product * (x * x)
up's rows taken to be as far apart as gate's | activation_forward_kernel: stride_up, row → stride_x, row
dup's rows taken to be as far apart as they are wide | activation_backward_kernel: stride_dup, row → width, row
the gradients of halves in memory of their own | gated_forward: side_by_side([gate, up]) is not None → False
the gradient of gate without up
    activation_backward_kernel: dy *= load_block(up_ptr, stride_up, row, channel, mask) → dy = dy
[linear_attention.py: kernels/test_triton_linear_attention]
linear attention: a chunk's queries meet the state after it | add_up_kernel: running += added → pass
linear attention: each query sees the whole of its own chunk
    linear_attention_forward_kernel: weights = tl.where(rows[:, None] >= rows[None, :], weights, 0.0) numerator →
        numerator
linear attention: the features of padding are ones | chunk_states_kernel: keys, D → rows < T, D
linear attention: operands are not rounded | rounded: "tf32" → "never"
linear attention: NaN is rounded away
    rounded: far - (far - x) → ((x.to(tl.uint32, bitcast=True) + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)
linear attention: the features of NaN are 1 | features: 0.0, propagate_nan=tl.PropagateNan.ALL → 0.0
linear attention: a state's gradient from the last head of its group alone | chunk_dstates_kernel: += tl.dot → = tl.dot
linear attention: the denominator has no gradient | sums_gradient: -tl.sum → 0.0 * tl.sum
linear attention: the features' slope is 1 below 0 too
    slope: tl.minimum(x.to(tl.float32), 0.0) → 0.0 * x.to(tl.float32)
[rope.py: kernels/test_triton_rope]
rotary positions: the sine's sign in the first of a pair
    rope_kernel: y_ptr + pair, a * cos - b * sin → y_ptr + pair, a * cos + b * sin
rotary positions: neighbours paired for halves, and halves for neighbours
    rope_kernel: if INTERLEAVED → if not INTERLEAVED
rotary positions: the channels that stay are not copied | rope_kernel: PAIRS, D → PAIRS, 2 * PAIRS
rotary gradients turned forward | rope_kernel: if BACKWARD → if False
rotary positions: each sentence's first angles for all blocks of positions | rope_kernel: t * cos_t → t % TOKENS * cos_t
rotary positions: queries and keys copied out of their projection first
    _turned: if y.numel(): → if y.numel():\n        x = x.contiguous()
rotary positions: channels further apart than 32 bits reach
    channels: (start + tl.arange(0, BLOCK)[None, None, :]).to(tl.int64) → start + tl.arange(0, BLOCK)[None, None, :]
[eager/scores.py: kernels/test_conformance]
PyTorch's attention masked by multiplying | scores_forward: masked_fill_(~mask, -math.inf) → mul_(mask)
[eager/sparse_attention.py: kernels/test_pieces]
each piece of PyTorch's attention its own largest score
    forward_in_pieces: torch.maximum(largest[:, :, queries], scores.detach().amax(-1, keepdim=True)) →
        scores.detach().amax(-1, keepdim=True)
pieces of PyTorch's attention overwrite each other's gradients of shared keys
    backward_in_pieces: dvalue[:, :, keys] += → dvalue[:, :, keys] =
[eager/dropout.py: kernels/test_pieces]
PyTorch's dropout of a piece numbered from its own first query
    _row_hashes: axes[-1] if last is None else last → axes[-1]
[eager/arrays.py: kernels/test_conformance]
parts of two arrays taken for neighbours in one
    side_by_side: follows and part.untyped_storage() == first.untyped_storage() → follows
parts of one array taken for neighbours wherever they lie | side_by_side: alike and follows → alike
parts with other strides taken for neighbours
    side_by_side: first.shape[:-1] and part.stride() == first.stride() → first.shape[:-1]
the best tokens: ties by chance | topk: places, n).amin → places, -1).amax
[eager/cross_entropy.py: kernels/test_conformance]
PyTorch's gradient in half precision rounded before it meets the received one
    linear_cross_entropy_backward: (widened(dx) * _dlosses(dloss, count, weights)).to(dx.dtype) → dx / count * dloss
[weights.py: ops/test_cross_entropy]
weights that leave the range of half precision | balanced: (weights / largest) → weights
the fused loss's weights of ignored targets | flat_weights: flat if ignore_index is None → flat if True
[eager/cross_entropy.py: kernels/test_functional]
PyTorch's z-loss without a gradient | _dlogits: log_sum is not None → False
[eager/embedding.py: kernels/test_conformance]
PyTorch's gradients of equal ids added up in half precision | embedding_backward: widened(dy) * scale → dy * scale
[eager/norms.py: kernels/test_conformance]
PyTorch's Add & Norm with an eps of its own | add_rmsnorm_forward: x + dropped, gamma, eps → x + dropped, gamma
[graph.py: kernels/test_graph]
a replay that repeats the first step's dropout | _Graph.__call__: keys.copy_ → keys.clone().copy_
a replay that repeats the first step's number | _Graph.__call__: dropout.step → 1
[checks.py: kernels/test_autograd]
a tensor that autograd follows is taken all the same | check_no_gradients: torch.is_grad_enabled() → False
[functional/operators.py: kernels/test_functional]
gradients that share memory with each other | owned: x.contiguous() if alone → x.contiguous() if True
the gradients of a sum are one tensor | operator: gradient.clone() if again else gradient → gradient
saved tensors looked at twice under checkpointing | operator: iter(saved_tensors → iter(ctx.saved_tensors
outputs that PyTorch takes for views, and does not let be changed | operator: layout(out).detach() → layout(out)
every call pays for an operator of torch.library | is_seen: torch._C._len_torch_dispatch_stack() → True
a mode sees no operator | is_seen: torch._C._len_torch_dispatch_stack() → False
a derivative in forward mode lost | operator: forward_ad.unpack_dual(value).tangent is not None → False
each call of dropout with the same key | draw_key: torch.randint(-(2**31), 2**31, (2,) → torch.zeros((2,)
a dropout that drops nothing returns its own input | draw_key: Dropout(dropout_p, key=0).threshold > 0 → dropout_p
of two types the first one's | promoted: torch.promote_types(x.dtype, y.dtype) → x.dtype
autocast inside a pair, whose products in float32 become narrow
    without_autocast: torch.autocast(kind, enabled=False) if _autocasts(kind) else UNCHANGED → UNCHANGED
autocast's type forgotten | _cast: tensor.to(dtype) → tensor
each call of dropout with the same key | draw_key: torch.randint(-(2**31), 2**31, (2,) → torch.zeros((2,)
[functional/rows.py: kernels/test_functional]
half precision's own eps, a thousand times PyTorch's | rms_norm: torch.promote_types(x.dtype, torch.float32) → x.dtype
the softmax's backward from x instead of y | _softmax: lambda y, x: (y,) → lambda y, x: (x,)
Add & Norm of functional's: dropout's mask forgotten in the backward | _add_norm_kept: options["dropout"] → None
without a GPU a softmax of −inf alone is NaN | softmax: not y.detach().sum().isnan() → True
rope keeps what it turned | _rope: RECEIVED → x
what dropout made is kept, and must not be changed | _dropout: RECEIVED → y
rope's heads do not merge as a view | _rope: _rope_kept}, layout=heads_merge, → _rope_kept},
Add & Norm of rows in another order | _summands: x.shape != sublayer_out.shape → False
Add & Norm of two types | _summands: x, sublayer_out = promoted(x, sublayer_out) → pass
a norm that is compiled again for every length | _norm_kept: math.prod(x.shape[:-1]) → x.shape[:-1].numel()
a normalisation over nothing | _norm_shape: 0 in shape → False
[functional/attention.py: kernels/test_functional]
a compiled graph that must know the lengths of packed sentences
    attend: drawn is None and (packed is None or not is_seen("attention", query)) → drawn is None
PyTorch's causal mask aligned at the last key | scaled_dot_product_attention: is_causal and Tq != Tk → False
ALiBi's slopes forgotten without the kernels | _call: options["slopes"] = slopes → pass
a mask of another shape than the scores | _check_broadcasts: mask.ndim > len(whole) or → any([]) and
a mask in another type than the query | _masks: mask.to(query.dtype) → mask
[functional/flash.py: kernels/test_functional]
flash-attention's window of −1 is a window of 0 | _flash: None if side < 0 else side → max(side, 0)
[tuning.py: kernels/test_functional]
a T4 runs attention's slow kernels | lacks_tensor_cores: int(gpu.arch) < 80 → int(gpu.arch) < 75
[speedup.py: kernels/test_speedup]
a wrong kernel called right | check: not off <= allowed → False
a kernel that is known to be wrong is timed | ladder: not {*swapped} & {*wrong} → True
a row that computes something else is timed | measure: not abs(losses[name] - losses[FIRST]) <= TOLERANCE → False
bfloat16 on a T4 | measure: dtype = "float16" → pass
a speed-up upside down | line: times[0] / times[-1] → times[-1] / times[0]
small gradients scaled and never scaled back | step_of: 1 / scale → 1.0
[eager/scores.py: kernels/test_functional]
PyTorch's scores in half precision overflow | _exact: x if x.is_cuda else widened(x) → x
[eager/attention.py: kernels/test_functional]
ALiBi rounded to half precision | attention_from: alibi_bias(slopes, query.shape[2], key.shape[2]) →
        alibi_bias(slopes, query.shape[2], key.shape[2]).to(query.dtype)
[functional/losses.py: kernels/test_functional]
a sum of losses times ignored targets too | _count: (target.long() != ignore_index).sum() → target.numel()
the class that is −100 in 8 bits is not counted | _count: target.long() → target
without a GPU a loss of no target is NaN | _torchs: .clamp(min=1) → .clamp(min=0)
a z-loss that each loss lacks | _each_linear_loss: "z_loss": z_loss → "z_loss": 0.0
each loss's gradient divided by their number
    _each_linear_loss: found[2].reshape(-1)[-1] → 1.0
without a GPU a z-loss is forgotten | cross_entropy: runs_in_torch(input) and not z_loss → runs_in_torch(input)
classes in another order than the rows | linear_cross_entropy: target.shape != input.shape[:-1] → False
[patching.py: kernels/test_patching]
packed sequences see each other | _mask: (bidirectional or mask_function is causal_mask_function) → True
a static cache's empty places are keys
    _mask: bidirectional or (isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length) → True
labels not shifted | _causal_loss: [..., 1:] → [..., :-1]
the model's own attention is not given back | Patch.set: partial(setattr, owner, name, own[name]) → partial(bool)
a patch reaches every model that shares the config | _patch_attention: copy(config) → config
a model taken for patched because its config is
    patch: getattr(vars(module).get("forward"), "func", None) in norms →
        model.config._attn_implementation == NAME
Gemma's norm without the 1 | _rms_norm_about_one: 1 + module.weight.float() → module.weight.float()
a norm's type from what it reads alone | _rms_norm: x.dtype != module.weight.dtype → False
a pickled model's attention is not known where it is loaded
    if find_spec: find_spec("transformers") is not None → False
a forward that cannot be pickled
    _patch_modules: partial(norm, module) → lambda x, module=module: norm(module, x)
[tuning.py: kernels/test_triton_tuning]
a rank that does not wait for another's choice | Tuner._remembered_or_measured: fcntl.LOCK_EX → fcntl.LOCK_SH
a choice for each GPU by its number
    Tuner._remembered_or_measured: if not isinstance(part, torch.device) → if True
[attention/minimal.py: kernels/test_minimal_attention]
keys after a query seen | minimal_kernel: keys[None, :] <= queries[:, None] → keys[None, :] <= queries[:, None] + 1
keys beyond the last one seen | minimal_kernel: seen = (keys < T)[None, :] & → seen = (keys < T + 1)[None, :] &
a sum that a larger score does not shrink | minimal_kernel: l * rescale → l
an output that a larger score does not shrink | minimal_kernel: acc * rescale[:, None] → acc
[checks.py: kernels/test_ids]
300 beside ids in 8 bits is 44 | check_ids: ids.to(torch.int64) → ids
[eager/embedding.py: kernels/test_ids]
−1 is PyTorch's last row | embedding_forward: y.masked_fill_(~known[..., None], torch.nan) → y
"""

KERNEL_BREAKAGES: list[Breakage] = breakages(PARAMETERS) + breakages(MISTAKES, "kernels")
