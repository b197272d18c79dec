"""Mistakes in the kernels and in PyTorch's arithmetic, each as a small patch: as in `breakages`, under `kernels/`."""

from breakages import Breakage

TRITON = "tests/kernels/test_triton_{}.py".format


def kernel(name: str, file: str, before: str, after: str, refused_by: str) -> Breakage:
    """A mistake in a file of `kernels/`."""
    return Breakage(name, file, before, after, refused_by, package="kernels")


KERNEL_BREAKAGES = [
    kernel(
        "softmax over sweeps: the running sum is not rescaled",
        "softmax.py",
        "total * below + 1",
        "total + 1",
        TRITON("softmax"),
    ),
    kernel(
        "softmax: a row of all −inf begins at −inf",
        "softmax.py",
        "tl.full((BLOCK,), LOWEST, tl.float32)",
        'tl.full((BLOCK,), float("-inf"), tl.float32)',
        TRITON("softmax"),
    ),
    kernel(
        "softmax's backward over sweeps keeps the last block's sum alone",
        "softmax.py",
        "along += dy * y",
        "along = dy * y",
        TRITON("softmax"),
    ),
    kernel(
        "a mean that is not exact where a row is constant",
        "layernorm.py",
        "tl.div_rn(tl.sum(x, axis=1), channels)",
        "tl.sum(x, axis=1) * (1.0 / channels)",
        TRITON("layernorm"),
    ),
    kernel(
        "dropout's mask forgotten in the backward of Add & Norm",
        "layernorm.py",
        "tl.where(keep, dx * scale, 0.0)",
        "dx * scale",
        TRITON("layernorm"),
    ),
    kernel(
        "sentence and position swapped",
        "layernorm.py",
        "row, key_ptr, key_low, key_high, sentence, position, sentences_ptr",
        "row, key_ptr, key_low, key_high, position, sentence, sentences_ptr",
        TRITON("layernorm"),
    ),
    kernel(
        "dgamma of a program's last tile alone",
        "layernorm.py",
        "dgamma += dy * normed",
        "dgamma = dy * normed",
        TRITON("layernorm"),
    ),
    kernel(
        "what lies beyond the row counts in its variance",
        "layernorm.py",
        "centred = tl.where(mask, x - mean[:, None], 0.0)",
        "centred = x - mean[:, None]",
        TRITON("layernorm"),
    ),
    kernel(
        "the variance of wide rows without that between blocks",
        "layernorm_wide.py",
        "tl.sum(centred * centred, axis=0) + beyond * beyond * share * start",
        "tl.sum(centred * centred, axis=0)",
        TRITON("layernorm"),
    ),
    kernel(
        "the partial sums of one block of programs alone",
        "_rows.py",
        "total += load_tile",
        "total = load_tile",
        TRITON("layernorm"),
    ),
    kernel(
        "the running sum of exponentials is not rescaled as the maximum grows",
        "cross_entropy.py",
        "total * lower + 1.0",
        "total + 1.0",
        TRITON("cross_entropy"),
    ),
    kernel(
        "a log-sum-exp that has lost its last digits before the logit is subtracted",
        "cross_entropy.py",
        "tl.log(total) + (highest - origin)",
        "(tl.log(total) + highest) - origin",
        TRITON("cross_entropy"),
    ),
    kernel(
        "the mean over all targets, ignored ones too",
        "cross_entropy.py",
        "rows = tl.maximum(tl.sum(count, axis=0), 1).to(tl.float32)",
        "rows = num_rows.to(tl.float32)",
        TRITON("cross_entropy"),
    ),
    kernel(
        "smoothing without the target's own share",
        "cross_entropy.py",
        "1.0 - label_smoothing + share, share",
        "1.0 - label_smoothing, share",
        TRITON("cross_entropy"),
    ),
    kernel(
        "out overwritten by the fused loss's gradient",
        "linear_cross_entropy.py",
        "y += tl.load(place, mask, other=0.0)",
        "y += 0.0",
        TRITON("linear_cross_entropy"),
    ),
    kernel(
        "the table's gradient summed in half precision",
        "linear_cross_entropy.py",
        "total.addmm_(a.to(total.dtype), b.to(total.dtype))",
        "total += a @ b",
        TRITON("linear_cross_entropy"),
    ),
    kernel(
        "a long segment of one token loses all but its first piece",
        "embedding.py",
        "goes_on = tl.sum(same.to(tl.int32), axis=0) == ROWS",
        "goes_on = tl.sum(same.to(tl.int32), axis=0) < 0",
        TRITON("embedding"),
    ),
    kernel(
        "out overwritten by the embedding's gradient",
        "embedding.py",
        "total = tl.load(place, channel < width, other=0.0) + gradient",
        "total = gradient",
        TRITON("embedding"),
    ),
    kernel(
        "Adam's bias correction by cancelling numbers",
        "adam.py",
        "result += c * (1.0 - result)",
        "result = 1.0 - (1.0 - result) * (1.0 - c)",
        TRITON("adam"),
    ),
    kernel(
        "a number in device memory that is not read",
        "scalars.py",
        "value = tl.load(pointer)",
        "value = value",
        TRITON("adam"),
    ),
    kernel(
        "dropout's even and odd channels swapped",
        "hashing.py",
        "(channel & 1) << 4",
        "(~channel & 1) << 4",
        TRITON("elementwise"),
    ),
    kernel(
        "dropout that takes the head for the sentence",
        "hashing.py",
        "hashed = mix_in(mix_in(low, row // (T * H) + sentence), (row // T) % H)",
        "hashed = mix_in(mix_in(low, row // T + sentence), (row // T) % H)",
        TRITON("elementwise"),
    ),
    kernel(
        "relu's gradient at 0",
        "relu.py",
        "tl.where(y > 0, dy, 0.0)",
        "tl.where(y >= 0, dy, 0.0)",
        TRITON("elementwise"),
    ),
    kernel(
        "PyTorch's attention masked by multiplying",
        "plain/attention.py",
        "scores.masked_fill_(~mask, -math.inf)",
        "scores.mul_(mask)",
        "tests/kernels/test_conformance.py",
    ),
    kernel(
        "the best tokens: ties by chance",
        "plain/arrays.py",
        "places, n).amin(-1, keepdim=True)",
        "places, -1).amax(-1, keepdim=True)",
        "tests/kernels/test_conformance.py",
    ),
    Breakage(
        "a narrow copy of the parameters that stays behind them",
        "layers/parameter.py",
        "self.shadow[...] = self.data",
        "pass",
        "tests/kernels/test_swap.py",
    ),
    kernel(
        "a replay that repeats the first step's dropout",
        "graph.py",
        "self.keys.copy_(halves",
        "self.keys.clone().copy_(halves",
        "tests/kernels/test_graph.py",
    ),
    kernel(
        "a replay that repeats the first step's number",
        "graph.py",
        "self.number.fill_(number)",
        "self.number.fill_(1)",
        "tests/kernels/test_graph.py",
    ),
]
