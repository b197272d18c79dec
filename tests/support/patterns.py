"""A pattern of attention of every kind, for short sequences."""

from minitransformer.ops import Pattern

PATTERNS = {
    "window": Pattern(window=1),
    "window, left and right": Pattern(window=(2, 1)),
    "window, right": Pattern(window=(0, 3)),
    "causal window": Pattern(window=2, causal=True),
    "blocks": Pattern(block=3),
    "blocks and summaries, causal": Pattern(block=3, summary=1, causal=True),
    "strided": Pattern(stride=3, window=1),
    "strided, causal": Pattern(stride=2, window=(2, 0), causal=True),
    "global tokens": Pattern(window=1, global_tokens=(0, 4)),
    "global tokens alone, causal": Pattern(global_tokens=(1,), causal=True),
    "all parts": Pattern(window=1, block=2, summary=1, stride=4, global_tokens=(2, 20)),
}
"""Each costs what it keeps."""
