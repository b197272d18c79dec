"""From text to batches: the tokenizer, the corpora and the batching."""

from .tokenizer import BPETokenizer

__all__ = ["BPETokenizer"]
