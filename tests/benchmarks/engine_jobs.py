"""Translating text with the same weights: ours, and CTranslate2, an engine in C++."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from race import Work

from minitransformer.decoding import Translator
from minitransformer.ops import numpy_ops
from minitransformer.pretrained import save
from minitransformer.probe import Call, probe
from minitransformer.system.allocator import keep_freed_memory

LENGTH_PENALTY = 0.6
ENGINE_TOKENS = 1024
"""A batch of CTranslate2's: of 512 to 4,096 tokens and 32 or 64 sentences the fastest, or within the noise of it."""


def convert(translator: Translator, folder: Path) -> Path:
    """Writes a translator's weights as a Marian's, and converts them; returns the folder of the engine's model.

    A loader tells the converter what differs from the Marians that Marian itself trains: those begin a target with a
    vector of zeros, and their last token, which it cuts off, is the padding.
    """
    import ctranslate2.converters.transformers as converters  # pyright: ignore[reportMissingImports]

    class Loader(converters.MarianMTLoader):
        set_decoder = converters.BartLoader.set_decoder
        get_vocabulary = converters.ModelLoader.get_vocabulary

        def _remove_pad_weights(self, spec: Any) -> None:
            pass

        def set_config(self, config: Any, model: Any, tokenizer: Any) -> None:
            start = tokenizer.convert_ids_to_tokens(model.config.decoder_start_token_id)
            config.bos_token = config.decoder_start_token = start
            config.eos_token, config.unk_token = tokenizer.eos_token, tokenizer.pad_token

    save(translator.model, folder / "marian", translator.tokenizer)
    theirs, converters._MODEL_LOADERS["MarianConfig"] = converters._MODEL_LOADERS["MarianConfig"], Loader()
    try:
        converters.TransformersConverter(str(folder / "marian")).convert(str(folder / "converted"))
    finally:
        converters._MODEL_LOADERS["MarianConfig"] = theirs
    return folder / "converted"


def engine(translator: Translator, converted: Path, workers: int, threads: int, longest: int = 100) -> Any:
    """A function of sentences and a beam that gives CTranslate2's translations: `workers` of so many `threads`."""
    import ctranslate2  # pyright: ignore[reportMissingImports]
    from transformers import AutoTokenizer  # pyright: ignore[reportMissingImports]

    names = AutoTokenizer.from_pretrained(converted.parent / "marian")
    pieces = names.convert_ids_to_tokens(range(translator.model.config.vocab_size))
    ids = {piece: number for number, piece in enumerate(pieces)}
    model = ctranslate2.Translator(str(converted), compute_type="float32", inter_threads=workers, intra_threads=threads)

    def translate(sentences: list[str], beam: int) -> list[str]:
        outputs = model.translate_batch(
            [[pieces[token] for token in source] for source in translator.encode(sentences, truncate=False)],
            beam_size=beam,
            length_penalty=LENGTH_PENALTY,
            max_decoding_length=longest,
            max_batch_size=ENGINE_TOKENS,
            batch_type="tokens",
        )
        return [translator.tokenizer.decode([ids[piece] for piece in each.hypotheses[0]]) for each in outputs]

    return translate


def profile(checkpoint: str, sentences: list[str], beam: int) -> dict[str, float]:
    """Return each op's share of the seconds of one thread, the output layer's product apart; the rest is Python's."""
    keep_freed_memory()
    seconds: dict[str, float] = defaultdict(float)

    def watch(call: Call) -> None:
        output = call.op == "linear" and call.arguments[1].shape[1] == translator.model.config.vocab_size
        seconds["output layer" if output else call.op] += call.seconds

    translator = Translator.from_checkpoint(checkpoint, probe(numpy_ops.unchecked(), watch), threads=1)
    translator.translate(sentences, beam=beam)
    seconds.clear()
    start = perf_counter()
    translator.translate(sentences, beam=beam)
    whole = perf_counter() - start
    return {op: seconds[op] / whole for op in sorted(seconds, key=lambda op: -seconds[op])}


@contextmanager
def numpy_sentences(threads: int, checkpoint: str, text: str, beam: int) -> Iterator[tuple[list[str], Work]]:
    """The sentences of a JSON file by `Translator.translate`, which processes share."""
    keep_freed_memory()
    sentences = json.loads(Path(text).read_text())
    translator = Translator.from_checkpoint(checkpoint, threads=threads, forks=True)

    def work() -> list[str]:
        return translator.translate(sentences, beam=beam, length_penalty=LENGTH_PENALTY)

    yield work(), work


@contextmanager
def engine_sentences(
    threads: int, checkpoint: str, converted: str, text: str, beam: int, workers: int
) -> Iterator[tuple[list[str], Work]]:
    """As `numpy_sentences`, by CTranslate2, whose `workers` share the threads."""
    sentences = json.loads(Path(text).read_text())
    translate = engine(Translator.from_checkpoint(checkpoint), Path(converted), workers, threads // workers)

    def work() -> list[str]:
        return translate(sentences, beam)

    yield work(), work
