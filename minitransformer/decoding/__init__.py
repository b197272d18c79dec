"""Decoding: searches and sampling, and what goes from text to text: translator, generator, filler."""

from .filler import Filler, Guess
from .generator import Generator
from .sampling import Sampling
from .search import MOST_LENGTH_PENALTY, Decodable, Hypothesis, beam_search, greedy_search, penalty
from .translator import AttentionMaps, Translation, Translator, search

__all__ = [
    "MOST_LENGTH_PENALTY",
    "AttentionMaps",
    "Decodable",
    "Filler",
    "Generator",
    "Guess",
    "Hypothesis",
    "Sampling",
    "Translation",
    "Translator",
    "beam_search",
    "greedy_search",
    "penalty",
    "search",
]
