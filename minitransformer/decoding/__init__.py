"""Uses of a trained model: texts are searched, drawn, filled, classified, made vectors; pictures too."""

from .batches import BatchSearch
from .classifier import Classifier
from .describer import Describer
from .embedder import Embedder, Pooling, unit
from .filler import Filler, Guess
from .generator import Generator
from .images import ImageProcessor
from .loading import Opened, open_checkpoint, tokenizer_of, with_origin, with_tokenizer
from .matcher import Matcher
from .sampling import Sampling
from .search import MOST_LENGTH_PENALTY, Decodable, Hypothesis, beam_search, greedy_search, penalty
from .span_filler import SpanFiller
from .speculative import Draft, LayersDraft, ModelDraft, PromptDraft
from .tokenizer import Tokenizer
from .translator import WINDOW, AttentionMaps, Translation, Translator, search

__all__ = [
    "MOST_LENGTH_PENALTY",
    "WINDOW",
    "AttentionMaps",
    "BatchSearch",
    "Classifier",
    "Decodable",
    "Describer",
    "Draft",
    "Embedder",
    "Filler",
    "Generator",
    "Guess",
    "Hypothesis",
    "ImageProcessor",
    "LayersDraft",
    "Matcher",
    "ModelDraft",
    "Opened",
    "Pooling",
    "PromptDraft",
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
    "unit",
    "with_origin",
    "with_tokenizer",
]
