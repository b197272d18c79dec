"""Decoding: searches and sampling, and the classes that turn text into text: translator, generator, fillers."""

from .batches import BatchSearch
from .filler import Filler, Guess
from .generator import Generator
from .loading import Opened, open_checkpoint, tokenizer_of, with_origin, with_tokenizer
from .sampling import Sampling
from .search import MOST_LENGTH_PENALTY, Decodable, Hypothesis, beam_search, greedy_search, penalty
from .span_filler import SpanFiller
from .tokenizer import Tokenizer
from .translator import WINDOW, AttentionMaps, Translation, Translator, search

__all__ = [
    "MOST_LENGTH_PENALTY",
    "WINDOW",
    "AttentionMaps",
    "BatchSearch",
    "Decodable",
    "Filler",
    "Generator",
    "Guess",
    "Hypothesis",
    "Opened",
    "Sampling",
    "SpanFiller",
    "Tokenizer",
    "Translation",
    "Translator",
    "beam_search",
    "greedy_search",
    "open_checkpoint",
    "penalty",
    "search",
    "tokenizer_of",
    "with_origin",
    "with_tokenizer",
]
