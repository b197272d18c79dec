"""A synchronous grammar: one derivation gives an English sentence, its German, its French and its parse tree."""

from .constructions import CONSTRUCTIONS
from .generation import Example, count_sentences, pairs, sample, translate

__all__ = ["CONSTRUCTIONS", "Example", "count_sentences", "pairs", "sample", "translate"]
