"""Mistakes in the kernels and in PyTorch's arithmetic, each as a small patch: as in `breakages`, under `kernels/`."""

from support.breakages import Breakage

PARAMETERS = [
    Breakage(
        "a narrow copy of the parameters that stays behind what is loaded",
        "layers/parameter.py",
        "self.shadow[...] = self.data",
        "pass",
        "tests/kernels/test_swap.py",
    ),
    Breakage(
        "a narrow copy of the parameters that stays behind a step",
        "training/optimizer.py",
        '{"shadow": parameters.shadow}',
        "{}",
        "tests/kernels/test_swap.py",
    ),
]
"""Mistakes in `minitransformer` that only a table with narrow activations shows."""

# By file and by the test that refuses them: a name, what stands there, and what takes its place.
# fmt: off
MISTAKES: dict[tuple[str, str], list[tuple[str, str, str]]] = {
    ("attention/forward.py", "test_triton_attention"): [
        ("the accumulator is not rescaled as the maximum grows",
         "acc * rescale[:, None]", "acc"),
        ("the sum of weights is not rescaled as the maximum grows",
         "l = l * rescale + ", "l = l + "),
        ("NaN for a query whose first block of keys is all padding",
         'shift = tl.where(new_m == float("-inf"), 0.0, new_m)', "shift = new_m"),
    ],
    ("attention/backward.py", "test_triton_attention"): [
        ("padding forgotten in the backward",
         "seen & real_keys(key_mask, b, keys, Tk)[None, :]", "seen & (keys < Tk)[None, :]"),
        ("padding's own gradients are not cleared",
         "tl.where(real[:, None], dkey_block * scale, 0.0)", "dkey_block * scale"),
        ("dropout forgotten in dvalue",
         "dropped = tl.where(kept, weights, 0.0)", "dropped = weights"),
        ("dropout forgotten in dkey",
         "dweights = tl.where(kept, dweights * dropout_scale, 0.0)", "dweights = dweights"),
        ("the log-sum-exp read beyond the last query",
         'lse = load_numbers(lse_ptr + rows, present, float("inf"))', "lse = tl.load(lse_ptr + rows)"),
        ("delta read beyond the last query",
         "delta = load_numbers(delta_ptr + rows, present, 0.0)", "delta = tl.load(delta_ptr + rows)"),
        ("a block of keys in another order than their scores",
         "block * KEYS + paired_order(KEYS)", "block * KEYS + tl.arange(0, KEYS)"),
        ("a mask for the queries of every block",
         "present = queries < Tq if MASKED else None", "present = queries < Tq"),
    ],
    ("attention/tiles.py", "test_triton_tuning"): [
        ("two stages where Triton 3.6 makes each product wait for the one before",
         '("dkey_dvalue", 64): [(128, 64, 8, 3), (64, 64, 8, 3)',
         '("dkey_dvalue", 64): [(128, 64, 8, 2), (64, 64, 8, 3)'),
    ],
    ("attention/host.py", "test_triton_tuning"): [
        ("attention tuned once, with padding or without",
         "band, padding, dropout, self.device", "band, dropout, self.device"),
    ],
    ("attention/host.py", "test_triton_attention"): [
        ("tf32 where float32 is promised",
         'precision: str = "ieee"', 'precision: str = "tf32"'),
        ("attention: the largest score taken before a negative scale turns it about",
         "_heads(-query) if problem.scale < 0 else cache[1]", "cache[1]"),
    ],
    ("attention/blocks.py", "test_triton_attention"): [
        ("the window is one key narrower",
         "keys >= positions - below", "keys > positions - below"),
        ("the blocks to visit as if queries began with the first key",
         "first = block * QUERIES + (Tk - Tq)", "first = block * QUERIES"),
        ("attention: blocks before the band are visited",
         "    first = start // BLOCK\n", "    first = 0\n"),
        ("attention: a block at the band's edge taken for one that needs no mask",
         "tl.minimum(first + above + 1, length)", "tl.minimum(first + above + 2, length)"),
    ],
    ("attention/blocks.py", "test_triton_layouts"): [
        ("attention: offsets in 32 bits",
         "head.to(tl.int64), (head // H).to(tl.int64), (head % H).to(tl.int64)", "head, head // H, head % H"),
    ],
    ("attention/dropping.py", "test_triton_attention"): [
        ("attention's dropout with head and sentence swapped",
         "mix_in(mix_in(low, b + sentence), h)", "mix_in(mix_in(low, h), b + sentence)"),
    ],
    ("softmax.py", "test_triton_softmax"): [
        ("softmax over sweeps: the running sum is not rescaled",
         "total * below + 1", "total + 1"),
        ("softmax: a row of all −inf begins at −inf",
         "tl.full((BLOCK,), LOWEST, tl.float32)", 'tl.full((BLOCK,), float("-inf"), tl.float32)'),
        ("softmax's backward over sweeps keeps the last block's sum alone",
         "along += dy * y", "along = dy * y"),
    ],
    ("layernorm.py", "test_triton_layernorm"): [
        ("a mean that is not exact where a row is constant",
         "tl.div_rn(tl.sum(x, axis=1), channels)", "tl.sum(x, axis=1) * (1.0 / channels)"),
        ("dropout's mask forgotten in the backward of Add & Norm",
         "tl.where(keep, dx * scale, 0.0)", "dx * scale"),
        ("sentence and position swapped",
         "row, key_ptr, key_low, key_high, sentence, position, sentences_ptr",
         "row, key_ptr, key_low, key_high, position, sentence, sentences_ptr"),
        ("dgamma of a program's last tile alone",
         "dgamma += dy * normed", "dgamma = dy * normed"),
        ("what lies beyond the row counts in its variance",
         "centred = tl.where(mask, x - mean[:, None], 0.0)", "centred = x - mean[:, None]"),
    ],
    ("layernorm.py", "test_triton_machine_code"): [
        ("LayerNorm: a product less its own mean, one of them not rounded",
         "rounded_product(dy, gamma[None, :])", "dy * gamma[None, :]"),
    ],
    ("layernorm_wide.py", "test_triton_layernorm"): [
        ("the variance of wide rows without that between blocks",
         "tl.sum(centred * centred, axis=0) + beyond * beyond * share * start", "tl.sum(centred * centred, axis=0)"),
    ],
    ("_rows.py", "test_triton_layernorm"): [
        ("the partial sums of one block of programs alone",
         "total += load_tile", "total = load_tile"),
    ],
    ("cross_entropy.py", "test_triton_losses"): [
        ("the running sum of exponentials is not rescaled as the maximum grows",
         "total * lower + 1.0", "total + 1.0"),
        ("a log-sum-exp that has lost its last digits before the logit is subtracted",
         "tl.log(total) + (highest - origin)", "(tl.log(total) + highest) - origin"),
        ("the mean over all targets, ignored ones too",
         "rows = tl.maximum(tl.sum(count, axis=0), 1).to(tl.float32)", "rows = num_rows.to(tl.float32)"),
        ("smoothing without the target's own share",
         "tl.fma(label_smoothing, share, label_smoothing - 1.0)", "label_smoothing - 1.0"),
    ],
    ("cross_entropy.py", "test_ids"): [
        ("the logit of a target that is no token is read",
         "counted & (token >= 0)", "counted"),
        ("a loss of a target that is no token",
         'tl.where(token >= 0, tl.max(maximum, axis=1), float("nan"))', "tl.max(maximum, axis=1)"),
    ],
    ("linear_cross_entropy.py", "test_triton_losses"): [
        ("out overwritten by the fused loss's gradient",
         "y += tl.load(place, mask, other=0.0)", "y += 0.0"),
    ],
    ("eager/linear.py", "test_triton_losses"): [
        ("the table's gradient summed in half precision",
         "total.addmm_(a.to(total.dtype), b.to(total.dtype))", "total += a @ b"),
    ],
    ("eager/linear.py", "test_conformance"): [
        ("a weight's gradient rounded before it is added to float32",
         "add_product(dweight, rows.mT, dy)", "dweight += rows.mT @ dy"),
    ],
    ("embedding.py", "test_triton_embedding"): [
        ("a long segment of one token loses all but its first piece",
         "goes_on = tl.sum(same.to(tl.int32), axis=0) == ROWS", "goes_on = tl.sum(same.to(tl.int32), axis=0) < 0"),
        ("out overwritten by the embedding's gradient",
         "total = tl.load(place, mask, other=0.0) + gradient", "total = gradient"),
    ],
    ("embedding.py", "test_ids"): [
        ("a row that the embedding's table does not have is read",
         "mask & is_token(id, V)[:, None]", "mask"),
        ("a row that the table's gradient does not have is written",
         "(channel < width) & is_token(id, V)", "channel < width"),
    ],
    ("adam.py", "test_triton_adam"): [
        ("Adam's bias correction by cancelling numbers",
         "result = tl.fma(c, 1.0 - result, result)", "result = 1.0 - (1.0 - result) * (1.0 - c)"),
    ],
    ("adam.py", "test_triton_machine_code"): [
        ("Adam's products, of which the compiler rounds whichever it likes",
         "tl.fma(m, beta1, one_minus_beta1 * grad)", "beta1 * m + one_minus_beta1 * grad"),
        ("a quotient that NVIDIA's assembler fuses with the parameter it is taken from",
         "data = tl.fma(rate * m, -1.0 / tl.fma(root_correction, eps, tl.sqrt(v)), data)",
         "data -= rate * m / tl.fma(root_correction, eps, tl.sqrt(v))"),
    ],
    ("scalars.py", "test_triton_adam"): [
        ("a number in device memory that is not read",
         "value = tl.load(pointer)", "value = value"),
    ],
    ("hashing.py", "test_triton_elementwise"): [
        ("dropout's even and odd channels swapped",
         "(channel & 1) << 4", "(~channel & 1) << 4"),
        ("dropout that takes the head for the sentence",
         "hashed = mix_in(mix_in(low, row // (T * H) + sentence), (row // T) % H)",
         "hashed = mix_in(mix_in(low, row // T + sentence), (row // T) % H)"),
    ],
    ("relu.py", "test_triton_elementwise"): [
        ("relu's gradient at 0",
         "tl.where(y > 0, dy, 0.0)", "tl.where(y >= 0, dy, 0.0)"),
    ],
    ("eager/scores.py", "test_conformance"): [
        ("PyTorch's attention masked by multiplying",
         "scores.masked_fill_(~mask, -math.inf)", "scores.mul_(mask)"),
    ],
    ("eager/sparse_attention.py", "test_pieces"): [
        ("each piece of PyTorch's attention its own largest score",
         "torch.maximum(largest[:, :, queries], scores.detach().amax(-1, keepdim=True))",
         "scores.detach().amax(-1, keepdim=True)"),
        ("pieces of PyTorch's attention overwrite each other's gradients of shared keys",
         "dvalue[:, :, keys] += ", "dvalue[:, :, keys] = "),
    ],
    ("eager/dropout.py", "test_pieces"): [
        ("PyTorch's dropout of a piece numbered from its own first query",
         "axes[-1] if last is None else last", "axes[-1]"),
    ],
    ("eager/arrays.py", "test_conformance"): [
        ("the best tokens: ties by chance",
         "places, n).amin(-1, keepdim=True)", "places, -1).amax(-1, keepdim=True)"),
    ],
    ("graph.py", "test_graph"): [
        ("a replay that repeats the first step's dropout",
         "self.keys.copy_(halves", "self.keys.clone().copy_(halves"),
        ("a replay that repeats the first step's number",
         "dropout_key(dropout.seed, dropout.step, site)", "dropout_key(dropout.seed, 1, site)"),
    ],
    ("_checks.py", "test_autograd"): [
        ("a tensor that autograd follows is taken all the same",
         "    if torch.is_grad_enabled():", "    if False:"),
    ],
    ("_checks.py", "test_ids"): [
        ("300 beside ids in 8 bits is 44",
         "wide = ids.to(torch.int64)", "wide = ids"),
    ],
    ("eager/embedding.py", "test_ids"): [
        ("−1 is PyTorch's last row",
         "y.masked_fill_(~known[..., None], torch.nan)", "y"),
    ],
}
# fmt: on

KERNEL_BREAKAGES = PARAMETERS + [
    Breakage(name, file, before, after, f"tests/kernels/{test}.py", package="kernels")
    for (file, test), mistakes in MISTAKES.items()
    for name, before, after in mistakes
]
