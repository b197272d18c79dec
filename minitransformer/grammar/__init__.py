"""A synchronous grammar: English with its German, its French and its parse tree, all from one derivation."""

from .constructions import CONSTRUCTIONS
from .generation import Example, count_sentences, pairs, sample, translate

__all__ = ["CONSTRUCTIONS", "Example", "count_sentences", "pairs", "sample", "translate"]
