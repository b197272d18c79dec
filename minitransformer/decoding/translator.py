"""The translator from text to text: a model, its tokenizer, and the sorting, batching and search between them."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.batching import check_special_ids, pad
from ..data.tokenizer import BPETokenizer
from ..models import EncoderDecoder, Transformer
from ..ops import Ops, numpy_ops
from ..threads import Threads
from ..training.checkpoint import CheckpointError
from .opened import open_checkpoint, with_tokenizer
from .search import Hypothesis, beam_search, greedy_search
from .tokenizer import Tokenizer, check_vocabulary

SMALLEST_PART = 256
"""Padded source tokens: batches are not made smaller than this to give each thread one."""

MOST_LOGITS = 1 << 26
"""A batch of several sentences has at most this many logits at a step, however wide the beam is."""


class Translation(NamedTuple):
    """A translated sentence and its score, `log P / lp` (see `minitransformer.decoding.search`)."""

    text: str
    score: float


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one sentence pair, `(layers, heads, queries, keys)` each, with the labels of their axes.

    In the labels, a token that continues a word begins with `·`.

    encoder  queries and keys: source_tokens
    decoder  queries: target_tokens, which each position writes; keys: target_inputs, which it has read (`<s>` first)
    cross    queries: target_tokens; keys: source_tokens
    """

    source_tokens: list[str]
    target_tokens: list[str]
    target_inputs: list[str]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray


class Translator:
    """Translates text with a trained model: `Translator.from_checkpoint(path).translate(["A dog runs."])`.

    A Marian or a T5 of another library's comes with its tokenizer: `Translator(*load(folder)).translate(…)`.

    languages: those that the model translates from and into, if they are known; threads: how many share the sentences,
    one for each core by default. Raises `ValueError` if the vocabularies or special ids of model and tokenizer differ.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: Tokenizer,
        languages: tuple[str, str] | None = None,
        threads: int | None = None,
    ) -> None:
        own = isinstance(tokenizer, BPETokenizer)
        check_vocabulary(model.config, tokenizer, exactly=own)
        if own:
            check_special_ids(model.config.pad_id, model.config.bos_id, model.config.eos_id)
        self.model = model
        self.tokenizer = tokenizer
        self.languages = languages
        self.threads = threads

    @classmethod
    def from_checkpoint(
        cls, path: str | Path, ops: Ops = numpy_ops, dtype: str = "float32", threads: int | None = None
    ) -> "Translator":
        """The translator with the model and tokenizer of a checkpoint.

        Raises as `load_checkpoint` does, and `CheckpointError` if the checkpoint has no tokenizer or one that does not
        belong to its model.
        """
        model, tokenizer, languages = with_tokenizer(path, open_checkpoint(path, ops, dtype))
        try:
            if not isinstance(model, EncoderDecoder):
                raise ValueError(f"it holds a model of kind {model.config.kind!r}, which does not translate")
            return cls(model, tokenizer, languages, threads)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error

    def translate(
        self,
        sentences: str | Iterable[str],
        beam: int = 4,
        length_penalty: float = 0.6,
        batch_tokens: int = 1024,
        truncate: bool = False,
        progress: bool = False,
    ) -> list[str]:
        """The best translation of each sentence, in the same order; a single sentence may be given as a str.

        beam: prefixes kept by the search, 1 is greedy; batch_tokens: padded source tokens searched at once; truncate:
        cut a sentence that is too long for the model; progress: show a bar. The translation of an empty sentence is
        empty. Raises `TypeError` for a sentence that is not a str, and `ValueError` for one that is too long.
        """
        best = self.translate_n_best(sentences, 1, beam, length_penalty, batch_tokens, truncate, progress)
        return [translations[0].text for translations in best]

    def translate_n_best(
        self,
        sentences: str | Iterable[str],
        n_best: int = 4,
        beam: int = 4,
        length_penalty: float = 0.6,
        batch_tokens: int = 1024,
        truncate: bool = False,
        progress: bool = False,
    ) -> list[list[Translation]]:
        """The n_best ≤ beam best translations of each sentence, best first, with scores; the rest as in `translate`."""
        from tqdm.std import tqdm

        sources = self.encode(sentences, truncate)
        results: list[list[Translation]] = [[Translation("", 0.0)] for _ in sources]
        with tqdm(total=len(sources), unit=" sentences", desc="translate", disable=not progress) as bar:
            options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best}
            with closing(search(self.model, sources, batch_tokens, self.threads, **options)) as batches:
                for batch, found in batches:
                    for i, hypotheses in zip(batch, found, strict=True):
                        results[i] = [Translation(self.tokenizer.decode(h.ids), h.score) for h in hypotheses]
                    bar.update(len(batch))
            bar.update(len(sources) - bar.n)  # the empty ones
        return results

    def attention(
        self,
        source: str,
        target: str | None = None,
        beam: int = 4,
        length_penalty: float = 0.6,
        truncate: bool = False,
    ) -> AttentionMaps:
        """The attention weights as the model writes `target`, by default its own best translation of `source`.

        The other options are those of `translate`. Raises `ValueError` if source is blank, source or target is too
        long, or the model is not a Transformer.
        """
        if not isinstance(self.model, Transformer):
            raise ValueError(f"a {self.model.config.kind} model has no attention maps: a Transformer has")
        (source_ids,) = self.encode([source], truncate)
        if not source_ids:
            raise ValueError("the source sentence is empty: there is nothing to attend to")
        eos = self.model.config.eos_id
        if target is None:
            ((_, ((best,),)),) = search(self.model, [source_ids], beam=beam, length_penalty=length_penalty)
            target_ids = best.ids + [eos] * best.ended
        else:
            target_ids = self.encode([target], truncate=False)[0] or [eos]
        target_inputs = [self.model.config.bos_id, *target_ids[:-1]]
        maps = self.model.attention_maps(pad([source_ids]), pad([target_inputs]))
        weights = {kind: np.stack([layer[0] for layer in layers]) for kind, layers in maps.items()}
        sources, targets, inputs = (
            _labels(self.tokenizer.tokens(ids)) for ids in (source_ids, target_ids, target_inputs)
        )
        return AttentionMaps(sources, targets, inputs, weights["encoder"], weights["decoder"], weights["cross"])

    def encode(self, sentences: str | Iterable[str], truncate: bool) -> list[list[int]]:
        """Token ids of each sentence with `</s>`, none for a blank one. Raises as `translate` does."""
        longest, eos = self.model.config.max_length, self.model.config.eos_id
        encoded = []
        for number, sentence in enumerate([sentences] if isinstance(sentences, str) else sentences, start=1):
            if not isinstance(sentence, str):
                raise TypeError(f"sentence {number} must be a str, but is of type {type(sentence).__name__}")
            ids = [*self.tokenizer.encode(sentence), eos] if sentence.strip() else []
            if len(ids) > longest:
                if not truncate:
                    raise ValueError(
                        f"sentence {number} has {len(ids)} tokens with its end mark, but the model takes at most "
                        f"{longest}: split it, or ask for it to be truncated"
                    )
                ids = [*ids[: longest - 1], eos]
            encoded.append(ids)
        return encoded


def search(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    batch_tokens: int = 1024,
    threads: int | None = None,
    *,
    beam: int = 4,
    length_penalty: float = 0.6,
    n_best: int = 1,
    max_extra: int = 50,
) -> Generator[tuple[list[int], list[list[Hypothesis]]], None, None]:
    """Searches sources, token ids with `</s>`, in batches; yields the indices of a batch and their hypotheses.

    Sources of about the same length go together, the longest first; empty ones are left out. Each batch goes to the
    next free thread: by default there is one for each core, and only one if the backend has threads of its own. A beam
    of one is greedy search. Raises as `beam_search` does, and `ValueError` for batch_tokens below 1.
    """
    options = {"length_penalty": length_penalty, "max_extra": max_extra}

    def search_batch(batch: list[int]) -> list[list[Hypothesis]]:
        padded = pad([sources[i] for i in batch], model.config.pad_id)
        if beam == n_best == 1:
            return [[hypothesis] for hypothesis in greedy_search(model, padded, **options)]
        return beam_search(model, padded, beam, n_best=n_best, **options)

    with Threads(1 if model.ops.has_threads else threads) as pool:
        most = max(1, MOST_LOGITS // (max(beam, 1) * model.config.vocab_size))
        batches = list(_batches([len(ids) for ids in sources], batch_tokens, pool.count, most))
        found = pool.map(search_batch, batches) if len(batches) > 1 else map(search_batch, batches)
        yield from zip(batches, found, strict=True)


def _batches(lengths: list[int], batch_tokens: int, num_threads: int, most: int) -> Iterator[list[int]]:
    """Yields batches of indices of non-empty sentences, the longest first, padded to at most batch_tokens tokens.

    A batch has at most `most` sentences. If there would be fewer batches than threads, batches are smaller, but not
    below SMALLEST_PART tokens. A sentence longer than batch_tokens is a batch of its own. Raises `ValueError` for
    batch_tokens below 1.
    """
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens is {batch_tokens}, expected at least 1")
    by_length = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    total, longest = sum(lengths), max(lengths, default=0)
    num_parts = min(num_threads, max(1, total // SMALLEST_PART))
    batch_tokens = min(batch_tokens, -(-total // num_parts) + longest - 1)  # so that there is no small last batch
    start = 0
    while start < len(by_length):
        count = min(max(1, batch_tokens // lengths[by_length[start]]), most)
        yield by_length[start : start + count]
        start += count


def _labels(tokens: list[str]) -> list[str]:
    """Tokens as labels: `▁Straßen`, `rand`, `.` become `Straßen`, `·rand`, `.`."""
    labels = []
    for before, token in zip(["", *tokens], tokens, strict=False):
        inside_word = before[-1:].isalnum() and token[:1].isalnum()
        labels.append("·" + token if inside_word else token.removeprefix("▁") or token)
    return labels
