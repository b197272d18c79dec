"""Text to batches: the tokenizer, the corpora and the batching."""

from minitransformer.data.tokenizer import BPETokenizer

__all__ = ["BPETokenizer"]
