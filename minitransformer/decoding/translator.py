"""The translator from text to text: a model, its tokenizer, and the sorting, batching and search between them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ..data.batching import check_special_ids, pad
from ..data.spans import SENTINELS
from ..data.tokenizer import BPETokenizer
from ..models import Captioner, EncoderDecoder, T5Config, Transformer, most_tokens
from ..ops import Ops, numpy_ops
from ..system.progress import tqdm
from ..training.checkpoint import CheckpointError
from .batches import BatchSearch, search
from .loading import open_checkpoint, with_tokenizer
from .tokenizer import Tokenizer, check_vocabulary, encode_whole

WINDOW = 4096
"""The sentences that are read from a stream at a time, so that a batch has sentences of about the same length."""


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

    A Marian or a T5 of another library comes with its tokenizer: `Translator(*load(folder)).translate(…)`.

    languages: those that the model translates from and into, if they are known; threads: how many share the sentences,
    one for each core by default; forks: processes forked from this one share them, which is faster for many sentences
    (on Linux, in a program without threads of its own; elsewhere threads share them). Raises `ValueError` if the
    vocabularies or special ids of model and tokenizer differ, and for a captioner, whose sources are pictures.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: Tokenizer,
        languages: tuple[str, str] | None = None,
        threads: int | None = None,
        forks: bool = False,
    ) -> None:
        if isinstance(model, Captioner):
            raise ValueError("the model describes pictures, and does not translate: `caption` asks it")
        own = isinstance(tokenizer, BPETokenizer)
        if own and isinstance(model.config, T5Config) and model.config.vocab_size == tokenizer.vocab_size + SENTINELS:
            raise ValueError("the model was trained to fill the gaps of a text, not to translate: `fill` asks it")
        check_vocabulary(model.config, tokenizer, exactly=own)
        if own:
            check_special_ids(model.config.pad_id, model.config.bos_id, model.config.eos_id)
        self.model = model
        self.tokenizer = tokenizer
        self.languages = languages
        self.threads, self.forks = threads, forks

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        ops: Ops = numpy_ops,
        dtype: str = "float32",
        threads: int | None = None,
        forks: bool = False,
    ) -> "Translator":
        """Make a translator of a checkpoint's model and tokenizer.

        Raises as `load_checkpoint` does, and `CheckpointError` if the checkpoint has no tokenizer or one that does not
        belong to its model.
        """
        model, tokenizer, languages = with_tokenizer(path, open_checkpoint(path, ops, dtype))
        try:
            if not isinstance(model, EncoderDecoder):
                raise ValueError(f"it holds a model of kind {model.config.kind!r}, which does not translate")
            return cls(model, tokenizer, languages, threads, forks)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error

    def translate(
        self,
        sentences: str | Iterable[str],
        beam: int = 4,
        length_penalty: float = 0.6,
        batch_tokens: int = 2048,
        truncate: bool = False,
        progress: bool = False,
    ) -> list[str]:
        """Return the best translation of each sentence, in the same order; a single sentence may be given as a str.

        beam: prefixes kept by the search, 1 is greedy; batch_tokens: padded source tokens searched at once; truncate:
        cut a sentence that is too long for the model; progress: show a bar on a terminal. An empty sentence's
        translation is empty. Raises `TypeError` for a sentence that is no str, `ValueError` for one that is too long.
        """
        best = self.translate_n_best(sentences, 1, beam, length_penalty, batch_tokens, truncate, progress)
        return [translations[0].text for translations in best]

    def translate_n_best(
        self,
        sentences: str | Iterable[str],
        n_best: int = 4,
        beam: int = 4,
        length_penalty: float = 0.6,
        batch_tokens: int = 2048,
        truncate: bool = False,
        progress: bool = False,
    ) -> list[list[Translation]]:
        """Return the n_best ≤ beam best translations of each sentence, best first, with scores; else as `translate`."""
        sources = self.encode(sentences, truncate)
        windows = self._translated([sources], len(sources), n_best, beam, length_penalty, batch_tokens, progress)
        (results,) = windows
        return results

    def stream(
        self,
        sentences: str | Iterable[str],
        n_best: int = 1,
        beam: int = 4,
        length_penalty: float = 0.6,
        batch_tokens: int = 2048,
        truncate: bool = False,
        progress: bool = False,
        first: int = WINDOW,
        window: int = WINDOW,
    ) -> Iterator[list[list[Translation]]]:
        """Translate any number of sentences in constant memory; yield the n_best of some at a time, in order.

        The `first` sentences are read before any is translated, then twice as many, up to a whole `window`; fewer again
        if reading takes longer than translating, so that a slow writer need not wait. Other options are those of
        `translate`. If `sentences` raises, or one is too long, those before it are translated first. Raises
        `ValueError` for a first or a window below 1.
        """
        if first < 1 or window < 1:
            raise ValueError(f"first is {first} and window {window}, expected at least 1")
        given = [sentences] if isinstance(sentences, str) else sentences
        sources = self._windows(given, min(first, window), window, truncate)
        return self._translated(sources, None, n_best, beam, length_penalty, batch_tokens, progress)

    def _windows(self, sentences: Iterable[str], first: int, most: int, truncate: bool) -> Iterator[list[list[int]]]:
        """Yield the token ids of `first` sentences, then of twice as many, up to `most`, unless reading is slow."""
        window: list[list[int]] = []
        size, error, began = first, None, perf_counter()
        try:
            for number, sentence in enumerate(sentences, start=1):
                window.append(self._encoded(sentence, number, truncate))
                if len(window) == size:
                    read = perf_counter()
                    yield window
                    now = perf_counter()
                    size = min(2 * size, most) if now - read > read - began else max(first, size // 2)
                    window, began = [], now
        except Exception as caught:
            error = caught
        if window:
            yield window
        if error is not None:
            raise error

    def _translated(
        self,
        windows: Iterable[list[list[int]]],
        total: int | None,
        n_best: int,
        beam: int,
        length_penalty: float,
        batch_tokens: int,
        progress: bool,
    ) -> Iterator[list[list[Translation]]]:
        options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "forks": self.forks}
        with (
            tqdm(total=total, unit=" sentences", desc="translate", disable=None if progress else True) as bar,
            BatchSearch(self.model, batch_tokens, self.threads, **options) as batches,
        ):
            for sources in windows:
                results: list[list[Translation]] = [[Translation("", 0.0)] for _ in sources]
                for batch, found in batches(sources):
                    for i, hypotheses in zip(batch, found, strict=True):
                        results[i] = [Translation(self.tokenizer.decode(h.ids), h.score) for h in hypotheses]
                    bar.update(len(batch))
                bar.update(sources.count([]))
                yield results

    def attention(
        self,
        source: str,
        target: str | None = None,
        beam: int = 4,
        length_penalty: float = 0.6,
        truncate: bool = False,
    ) -> AttentionMaps:
        """Return the attention weights while the model writes `target`, by default its best translation of `source`.

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
        """Return the token ids of each sentence with `</s>`, none for a blank one. Raises as `translate` does."""
        given = [sentences] if isinstance(sentences, str) else sentences
        return [self._encoded(sentence, number, truncate) for number, sentence in enumerate(given, start=1)]

    def _encoded(self, sentence: str, number: int, truncate: bool) -> list[int]:
        if not isinstance(sentence, str):
            raise TypeError(f"sentence {number} must be a str, but is of type {type(sentence).__name__}")
        longest = most_tokens(self.model.config)
        ids = encode_whole(self.model.config, self.tokenizer, sentence) if sentence.strip() else []
        if len(ids) <= longest:
            return ids
        if not truncate:
            raise ValueError(
                f"sentence {number} has {len(ids)} tokens with its end mark, but the model takes at most {longest}: "
                "split it, or ask for it to be truncated"
            )
        return [*ids[: longest - 1], ids[-1]]


def _labels(tokens: list[str]) -> list[str]:
    """Return tokens as labels: `▁Straßen`, `rand`, `.` become `Straßen`, `·rand`, `.`."""
    labels = []
    for before, token in zip(["", *tokens], tokens, strict=False):
        inside_word = before[-1:].isalnum() and token[:1].isalnum()
        labels.append("·" + token if inside_word else token.removeprefix("▁") or token)
    return labels
