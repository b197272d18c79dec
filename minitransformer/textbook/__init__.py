"""The paper's arithmetic as printed: every op of `minitransformer.ops` in its plainest form, forward above backward.

The paper's own ops are in `paper`, which also says how to read a pair and the letters of shapes; those of other models
of the family are in `family`. Tests prove `minitransformer.ops` against these functions. `textbook_ops` is a complete
table, so any model runs and trains on it:

    model = Transformer(config, ops=textbook_ops)
"""

from ..ops import Ops, entries
from .family import *  # noqa: F403
from .paper import *  # noqa: F403

textbook_ops = Ops(**entries(globals()))
"""All of these ops as a table; functions that make and move arrays (`zeros`, `take`, `topk`, …) are `numpy_ops`'s."""
