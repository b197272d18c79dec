"""Sparse self-attention: which pairs of positions it keeps beside those within a window."""

from dataclasses import dataclass

from ..config import Config, require, whole
from ..ops import Pattern


@dataclass(frozen=True)
class SparseConfig(Config):
    """The keys that a query sees besides those in attention's window; the cost is that of the pairs that are kept.

    block, summary  the query's own block of positions, and the last `summary` positions of every block: the Sparse
                    Transformer's fixed pattern
    stride          keys whose distance is a multiple of it: the strided one, with a window of the same size
    global_tokens   so many tokens at the start, which all see and which see all: Longformer's, with a window
    full_every      every n-th layer sees all keys, as if it had no window and no pattern: Gemma 2's, with a window

    Sources: Child et al. 2019, §4.2 and §4.3; Beltagy et al. 2020, §3.1.
    """

    block: int | None = whole(None)
    summary: int = whole(0, least=0)
    stride: int | None = whole(None)
    global_tokens: int = whole(0, least=0, most=2**16)  # each is a number in the pattern, of every layer
    full_every: int | None = whole(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        block = self.block or 0
        require(self.summary <= block, f"summary is {self.summary}, expected at most block, which is {self.block}")

    def pattern(self, window: int | None) -> Pattern:
        """These parts and the window as the value that ops take."""
        everywhere = tuple(range(self.global_tokens))
        return Pattern(False, window, self.block, self.summary, self.stride, everywhere)
