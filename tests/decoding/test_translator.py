"""The translator: what comes back is in order, whole, and does not depend on what else was asked."""

import itertools
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import active_children
from threading import Event, Thread

import numpy as np
import pytest
from support.blas import blas_threads
from threadpoolctl import threadpool_limits

from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.decoding import Translation, Translator, beam_search, greedy_search, search
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.system.workers import Workers
from minitransformer.training.checkpoint import Checkpoint, CheckpointError, save_checkpoint

TEXT = [
    "the old dog sleeps in the garden .",
    "a small cat sees the old dog .",
    "der alte Hund schläft im Garten .",
    "eine kleine Katze sieht den alten Hund .",
]
SENTENCES = ["the dog .", "a small cat sees the old dog in the garden .", "cat", "the old cat sleeps .", "the dog ."]


@pytest.fixture(scope="module")
def translator() -> Translator:
    """A small float64 model that has learned nothing, but has sharp opinions."""
    tokenizer = BPETokenizer.train(TEXT, vocab_size=320)
    config = TransformerConfig(
        vocab_size=tokenizer.vocab_size, d_model=16, num_heads=2, d_ff=32, num_layers=2, max_length=30
    )
    model = Transformer(config, dtype="float64", seed=1)
    model.parameters.data *= 2.0
    return Translator(model, tokenizer)


def encoded(translator: Translator, sentence: str) -> np.ndarray:
    return np.array([[*translator.tokenizer.encode(sentence), translator.model.config.eos_id]])


@pytest.mark.parametrize("batch_tokens", [1, 25, 1000])
@pytest.mark.parametrize("beam", [1, 3])
def test_translations_come_back_in_order_whatever_the_batches(translator, beam, batch_tokens):
    alone = [beam_search(translator.model, encoded(translator, s), beam)[0][0] for s in SENTENCES]
    expected = [translator.tokenizer.decode(hypothesis.ids) for hypothesis in alone]
    assert len(set(expected)) > 1
    assert translator.translate(SENTENCES, beam=beam, batch_tokens=batch_tokens) == expected
    assert translator.translate(iter(SENTENCES), beam=beam, batch_tokens=batch_tokens) == expected


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_do_not_depend_on_the_number_of_threads(translator, beam, monkeypatch):
    monkeypatch.setattr("minitransformer.decoding.batches.SMALLEST_PART", 1)
    expected = translator.translate(SENTENCES, beam=beam)
    for threads in (1, 2, 3):
        shared = Translator(translator.model, translator.tokenizer, threads=threads)
        assert shared.translate(SENTENCES, beam=beam) == expected


@pytest.mark.skipif(not Workers.supported(), reason="needs Linux, where processes are forked")
def test_translations_do_not_depend_on_who_shares_them(translator, monkeypatch):
    monkeypatch.setattr("minitransformer.decoding.batches.SMALLEST_PART", 1)
    expected, others = translator.translate_n_best(SENTENCES, n_best=2, beam=3), set(active_children())
    forked = Translator(translator.model, translator.tokenizer, threads=2, forks=True)
    assert forked.translate_n_best(SENTENCES, n_best=2, beam=3) == expected
    streamed = itertools.chain.from_iterable(forked.stream(iter(SENTENCES), n_best=2, beam=3, first=1, window=3))
    assert [[best.text for best in each] for each in streamed] == [[best.text for best in each] for each in expected]
    assert set(active_children()) == others


def test_no_process_is_forked_beside_a_thread(translator, monkeypatch):
    """Its locks would stay locked in the new process, and a fork beside a matrix product never ends."""
    monkeypatch.setattr("minitransformer.decoding.batches.SMALLEST_PART", 1)
    monkeypatch.setattr(Workers, "_start", lambda workers: pytest.fail("a process is forked"))
    forked, done = Translator(translator.model, translator.tokenizer, threads=2, forks=True), Event()
    thread = Thread(target=done.wait)
    thread.start()
    try:
        assert forked.translate(SENTENCES) == translator.translate(SENTENCES)
    finally:
        done.set()
        thread.join()


def test_a_translator_can_be_pickled(translator):
    again = pickle.loads(pickle.dumps(translator))
    assert again.translate_n_best(SENTENCES) == translator.translate_n_best(SENTENCES)


class Clock:
    """The translator's, which stands still unless a test moves it."""

    now = 0.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("minitransformer.decoding.translator.perf_counter", lambda: self.now)


def test_a_stream_is_read_in_windows_that_grow(translator, monkeypatch):
    read, clock = [], Clock(monkeypatch)

    def sentences() -> Iterator[str]:
        for number in range(30):
            read.append(number)
            yield SENTENCES[number % len(SENTENCES)]

    expected = translator.translate(SENTENCES, beam=1)
    stream = translator.stream(sentences(), beam=1, first=2, window=8)
    found, sizes = [], []
    for translations in stream:
        found += [best.text for (best,) in translations]
        sizes.append(len(translations))
        assert len(read) == len(found)  # no more than what is translated
        clock.now += 1
    assert sizes == [2, 4, 8, 8, 8]
    assert found == [expected[number % len(SENTENCES)] for number in range(30)]


def test_a_slow_writer_need_not_wait_for_large_windows(translator, monkeypatch):
    clock, sizes = Clock(monkeypatch), []

    def sentences() -> Iterator[str]:
        for number in range(20):
            clock.now += number >= 6
            yield SENTENCES[number % len(SENTENCES)]

    for translations in translator.stream(sentences(), beam=1, first=2, window=64):
        sizes.append(len(translations))
        clock.now += 1
    assert sizes == [2, 4, 8, 4, 2]


def test_a_stream_takes_a_sentence_alone_and_no_empty_window(translator):
    ((translation,),) = translator.stream(SENTENCES[0], beam=1)
    assert [translation[0].text] == translator.translate(SENTENCES[0], beam=1)
    for sizes in ({"first": 0}, {"window": 0}):
        with pytest.raises(ValueError, match="expected at least 1"):
            translator.stream(SENTENCES, **sizes)


def test_what_comes_before_an_error_is_translated(translator):
    def sentences() -> Iterator[str]:
        yield SENTENCES[0]
        raise ValueError("damaged")

    for given, message in ((sentences(), "damaged"), ([SENTENCES[0], "a " * 1000], "sentence 2 has .* tokens")):
        stream = translator.stream(given, beam=1)
        assert [best.text for (best,) in next(stream)] == translator.translate(SENTENCES[:1], beam=1)
        with pytest.raises(ValueError, match=message):
            next(stream)


def test_few_sentences_are_split_where_the_parts_stay_large_enough(translator):
    def sizes(sentences: int = 64, **options) -> list[int]:
        sources = [[5] * 10] * sentences
        return [len(batch) for batch, _ in search(translator.model, sources, max_extra=1, beam=1, **options)]

    assert sizes(threads=1) == [64]
    assert sizes(threads=2) == [32, 32]
    assert sizes(threads=4) == [32, 32]  # four would be of fewer than 256 tokens
    assert sizes(63, threads=2) == [32, 31]
    assert sizes(65, threads=2) == [33, 32]
    assert sizes(threads=2, batch_tokens=160) == [16] * 4


def test_a_wide_beam_takes_few_sentences_at_once_and_changes_nothing(translator, monkeypatch):
    sources, size = [[5, 6, 7, 2]] * 6, translator.model.config.vocab_size
    whole = dict(itertools.chain.from_iterable(zip(*batch, strict=True) for batch in search(translator.model, sources)))
    monkeypatch.setattr("minitransformer.decoding.batches.MOST_LOGITS", 2 * 4 * size)
    parts = list(search(translator.model, sources, beam=4))
    assert [len(batch) for batch, _ in parts] == [2, 2, 2]
    assert dict(itertools.chain.from_iterable(zip(*batch, strict=True) for batch in parts)) == whole
    assert [len(batch) for batch, _ in search(translator.model, sources, beam=1000, max_extra=1)] == [1] * 6


def test_searches_side_by_side_leave_blas_as_it_was(translator):
    with threadpool_limits(2):
        first, second = (search(translator.model, [[5]], max_extra=1, threads=2) for _ in range(2))
        next(first)
        next(second)
        first.close()
        assert blas_threads() == {1}
        second.close()
        assert blas_threads() == {2}


def test_a_beam_of_one_is_greedy(translator, monkeypatch):
    monkeypatch.delattr("minitransformer.decoding.beam_search")
    greedy = [greedy_search(translator.model, encoded(translator, s))[0].ids for s in SENTENCES]
    assert translator.translate(SENTENCES, beam=1) == [translator.tokenizer.decode(ids) for ids in greedy]


def test_a_str_is_one_sentence(translator):
    assert translator.translate(SENTENCES[1]) == translator.translate([SENTENCES[1]])
    assert translator.translate([]) == []


def test_n_best_come_with_their_scores_best_first(translator):
    (found,) = translator.translate_n_best("a small cat .", n_best=3, beam=4, length_penalty=1.0)
    hypotheses = beam_search(translator.model, encoded(translator, "a small cat ."), 4, 1.0, n_best=3)[0]
    assert [text for text, _ in found] == [translator.tokenizer.decode(h.ids) for h in hypotheses]
    assert [score for _, score in found] == pytest.approx([h.score for h in hypotheses], abs=1e-12)
    assert translator.translate("a small cat .", length_penalty=1.0) == [found[0].text]


def test_blank_sentences_translate_to_empty_ones(translator):
    blank = ["", "the dog .", " \t ", "\n"]
    assert translator.translate(blank) == ["", *translator.translate("the dog ."), "", ""]
    assert translator.translate_n_best("")[0] == [Translation("", 0.0)]


def test_a_sentence_too_long_is_told_and_truncated_only_if_asked(translator):
    long = "dog " * 40
    length = len(translator.tokenizer.encode(long)) + 1
    with pytest.raises(ValueError, match=f"sentence 2 has {length} tokens with its end mark, .* at most 30"):
        translator.translate(["the dog .", long])
    cut = np.array([[*translator.tokenizer.encode(long)[:29], translator.tokenizer.eos_id]])
    expected = translator.tokenizer.decode(beam_search(translator.model, cut)[0][0].ids)
    assert translator.translate(["the dog .", long], truncate=True)[1] == expected
    longest = next(s for s in ("dog " * n for n in range(40, 0, -1)) if len(translator.tokenizer.encode(s)) <= 29)
    assert len(translator.translate(longest)) == 1


def test_wrong_kinds_are_named(translator):
    with pytest.raises(TypeError, match="sentence 2 must be a str, but is of type bytes"):
        translator.translate(["the dog .", b"the dog ."])
    with pytest.raises(ValueError, match="batch_tokens is 0"):
        translator.translate("the dog .", batch_tokens=0)
    with pytest.raises(ValueError, match="n_best is 5, expected 1 to num_beams, which is 4"):
        translator.translate_n_best("the dog .", n_best=5)
    other = BPETokenizer.train(TEXT, vocab_size=310)
    with pytest.raises(ValueError, match="the model has 320 tokens and the tokenizer 310"):
        Translator(translator.model, other)
    swapped = Transformer(replace(translator.model.config, bos_id=2, eos_id=1))
    with pytest.raises(ValueError, match="pad_id, bos_id, eos_id are 0, 2, 1 in the model, but 0, 1, 2 in the data"):
        Translator(swapped, translator.tokenizer)


def test_attention_maps_have_a_label_for_every_row_and_column(translator):
    maps = translator.attention("the old dog .", "der alte Hund .")
    assert "".join(maps.source_tokens).replace("·", "") == "theolddog.</s>"
    assert "".join(maps.target_tokens).replace("·", "") == "deralteHund.</s>"
    assert maps.target_inputs[0] == "<s>"
    assert len(maps.target_inputs) == len(maps.target_tokens)
    sources, targets = len(maps.source_tokens), len(maps.target_tokens)
    assert maps.encoder.shape == (2, 2, sources, sources)
    assert maps.decoder.shape == (2, 2, targets, targets)
    assert maps.cross.shape == (2, 2, targets, sources)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
    assert not np.triu(maps.decoder, k=1).any()  # nothing from the future


def test_attention_without_a_target_is_that_of_the_best_translation(translator):
    best = beam_search(translator.model, encoded(translator, "the old dog ."))[0][0]
    maps = translator.attention("the old dog .")
    assert maps.cross.shape[2] == len(maps.target_tokens) == len(best.ids) + best.ended
    with pytest.raises(ValueError, match="the source sentence is empty"):
        translator.attention(" ")
    assert translator.attention("the old dog .", "").target_tokens == ["</s>"]


def test_labels_show_words_as_they_stand_and_mark_what_goes_on_inside_one(translator):
    tokens = translator.tokenizer.tokens(translator.tokenizer.encode("Katzenhund schläft."))
    assert len(tokens) > 4  # the vocabulary is small, the words are in pieces
    labels = translator.attention("the old dog .", "Katzenhund schläft.").target_tokens
    assert [label.startswith("·") for label in labels[:-2]] == [not token.startswith("▁") for token in tokens[:-1]]
    assert labels[-2:] == [".", "</s>"]
    assert "".join(labels[:-1]).replace("·", "") == "Katzenhundschläft."


def test_a_translator_comes_back_from_its_checkpoint(translator, tmp_path):
    model = translator.model
    config, weights = model.config.to_dict(), model.parameters.state_dict()
    state = {"languages": ["en", "de"]}
    checkpoint = Checkpoint(config, weights, tokenizer=translator.tokenizer.to_json(), state=state)
    save_checkpoint(tmp_path / "model.safetensors", checkpoint)
    again = Translator.from_checkpoint(tmp_path / "model.safetensors", dtype="float64")
    assert again.languages == ("en", "de")
    assert again.translate_n_best(SENTENCES) == translator.translate_n_best(SENTENCES)
    checkpoint.tokenizer = None
    save_checkpoint(tmp_path / "model.safetensors", checkpoint)
    with pytest.raises(CheckpointError, match="holds no tokenizer"):
        Translator.from_checkpoint(tmp_path / "model.safetensors")


def test_the_bar_counts_every_sentence(translator, capsys, monkeypatch):
    translator.translate(SENTENCES, progress=True)
    assert not capsys.readouterr().err  # which is no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    translator.translate(["", *SENTENCES], progress=True)
    assert "6/6" in capsys.readouterr().err
