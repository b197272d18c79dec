"""The paper's arithmetic as printed: every op of `minitransformer.ops` in its plainest form, forward above backward.

Each backward follows its forward from the bottom up and quotes the line that it undoes. Nothing is checked and nothing
is made fast: `minitransformer.ops` does both, and tests prove it against these functions. `textbook_ops` is a complete
table, so any model runs and trains on it:

    model = Transformer(config, ops=textbook_ops)

The paper's own ops are in `paper`, those of other models of the family in `family`.

Shapes: B sentences, T positions (Tq queries, Tk keys), H heads (Hk of keys and values), D the width of a head (Dv of
its values), C any width, V the vocabulary, N rows, K the positions that a convolution sees.
"""

from ..ops import Ops, entries
from .family import *  # noqa: F403
from .paper import *  # noqa: F403

textbook_ops = Ops(**entries(globals()))
"""All of these ops as a table; functions that make and move arrays (`zeros`, `take`, `topk`, …) are `numpy_ops`'s."""
