"""Decoding: the searches for the most probable target, and a translator from text to text."""

from .generator import Generator
from .sampling import Sampling
from .search import MOST_LENGTH_PENALTY, Decodable, Hypothesis, beam_search, greedy_search, penalty
from .translator import AttentionMaps, Translation, Translator, search

__all__ = [
    "MOST_LENGTH_PENALTY",
    "AttentionMaps",
    "Decodable",
    "Generator",
    "Hypothesis",
    "Sampling",
    "Translation",
    "Translator",
    "beam_search",
    "greedy_search",
    "penalty",
    "search",
]
