"""GPT, Llama, BERT, T5 and ViT: decoding in steps, and the choice of the next token.

That their forwards and gradients are Hugging Face's is proved in tests/pretrained, their slopes in test_tree.py.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from minitransformer.data import BPETokenizer
from minitransformer.decoding import Filler, Generator, PromptDraft, Sampling, SpanFiller
from minitransformer.decoding.filler import encode_marks
from minitransformer.layers import ByteCache, RotaryConfig, SparseConfig
from minitransformer.models import GPT, IGNORED, BERTConfig, GPTConfig, T5Config, build_model

V = 23
SMALL: dict[str, Any] = {"d_model": 16, "num_heads": 4, "d_ff": 20, "num_layers": 2, "dropout": 0.2}
GPTS = {
    "gpt2": GPTConfig(V, **SMALL, max_length=12),
    "llama": GPTConfig.llama(V, **SMALL | {"dropout": 0.0}, num_kv_heads=2, max_length=12),
    "window": GPTConfig.llama(V, **SMALL, window=3, max_length=200),
    "alibi": GPTConfig(V, **SMALL, positions="alibi", softcap=2.0, max_length=12),
    "relative": GPTConfig(V, **SMALL, positions="relative", max_length=12),
    "global tokens": GPTConfig.llama(V, **SMALL, window=1, sparse=SparseConfig(global_tokens=2), max_length=12),
    "strided": GPTConfig(V, **SMALL, window=2, sparse=SparseConfig(stride=3), positions="alibi", max_length=12),
    "blocks": GPTConfig(V, **SMALL, sparse=SparseConfig(block=3, summary=1), max_length=12),
    "linear": GPTConfig(V, **SMALL, attention="linear", attention_dropout=0.0, max_length=12),
    "post-norm": GPTConfig(V, **SMALL, norm="rmsnorm", norm_first=False, max_length=12),
    "windows in turn": GPTConfig.llama(
        V,
        **SMALL,
        window=2,
        sparse=SparseConfig(full_every=2),
        rotary=RotaryConfig(theta=100.0, full_theta=10.0),
        norm="rmsnorm1p",
        extra_norms="heads and outputs",
        attention_bias="inputs",
        logits_softcap=3.0,
        max_length=12,
    ),
    "sinusoids": GPTConfig(V, **SMALL, positions="sinusoidal", embedding_scale=50.0, max_length=12),
}
RNG = np.random.default_rng(0)
IDS, TARGETS = RNG.integers(0, V, (3, 6)), RNG.integers(0, V, (3, 6))
TARGETS[0, 2:] = IGNORED


def perturbed(config: Any) -> Any:
    """A model in float64 whose every parameter differs from its start, so that nothing is 0 or 1 by chance."""
    model, rng = build_model(config, dtype="float64"), np.random.default_rng(1)
    for parameter in model.parameters.named.values():
        parameter.data += 0.1 * rng.standard_normal(parameter.shape)
    return model


def test_embedding_scale_multiplies_what_is_looked_up_and_not_the_output():
    config = replace(GPTS["sinusoids"], tied=False)
    scaled, plain = perturbed(config), perturbed(replace(config, embedding_scale=1.0))
    plain.parameters.load_state_dict(scaled.parameters.state_dict())
    plain.tokens.table.data *= 50.0
    np.testing.assert_allclose(scaled.forward(IDS)[0], plain.forward(IDS)[0], rtol=1e-12)


@pytest.mark.parametrize("name", GPTS)
def test_decoding_in_steps_is_the_forward_also_of_prompts_of_different_lengths(name):
    model = perturbed(GPTS[name])
    ids = np.concatenate([IDS, TARGETS % V], axis=1)[:, :10]  # (3, 10)
    lengths = [2, 4, 1]
    prompts = np.full((3, 4), IGNORED)
    for row, length in enumerate(lengths):
        prompts[row, 4 - length :] = ids[row, :length]
    state = model.start_decoding(prompts)
    for step in range(5):
        newest = np.array([[ids[row, length + step]] for row, length in enumerate(lengths)])
        logits = model.decode_step(newest, state)[:, 0]
        for row, length in enumerate(lengths):
            whole = model.forward(ids[row : row + 1, : length + step + 1])[0][0, -1]
            assert np.abs(logits[row] - whole).max() <= 1e-11
        if step == 2:
            state.select(np.array([2, 0]))
            ids, lengths = ids[[2, 0]], [lengths[2], lengths[0]]


def test_texts_of_different_lengths_are_refused_where_they_would_change_each_other():
    """φ of a vector that is turned depends on the place, which in a batch is counted from the longest text's start."""
    model = perturbed(GPTConfig(V, **SMALL, positions="rotary", attention="linear", attention_dropout=0.0))
    alone, padded = model.start_decoding([[3, 4]]), [[IGNORED, IGNORED, 3, 4], [5, 6, 7, 8]]
    model.decode_step([[5]], alone)
    with pytest.raises(ValueError, match="texts of one batch need the same length"):
        model.start_decoding(padded)


def test_a_cache_with_a_window_does_not_grow():
    model = perturbed(GPTS["window"])
    state = model.start_decoding(IDS)
    for _ in range(150):
        model.decode_step(IDS[:, :1], state)
    assert state.position == 156
    assert max(keys.shape[2] for keys, _, _ in state.cache.grown.values()) <= 32


def test_a_cache_of_linear_attention_does_not_grow():
    """Each of the two layers keeps one state of every head, `(D, Dv)` and `(D,)`, however long the text is."""
    model = perturbed(replace(GPTS["linear"], max_length=200))
    state, sizes = model.start_decoding(IDS), set()
    for _ in range(150):
        model.decode_step(IDS[:, :1], state)
        sizes.add(sum(array.nbytes for arrays in state.cache.rows.values() for array in arrays))
    assert state.position == 156
    assert not state.cache.grown
    heads, width = SMALL["num_heads"], SMALL["d_model"] // SMALL["num_heads"]
    assert sizes == {SMALL["num_layers"] * len(IDS) * heads * width * (width + 1) * 8}


def texts() -> tuple[GPT, BPETokenizer]:
    tokenizer = BPETokenizer(" abc", [("a", "b")])
    config = GPTConfig(tokenizer.vocab_size, **SMALL, max_length=40, bos_id=1, eos_id=2)
    return perturbed(config), tokenizer


def test_a_text_does_not_depend_on_the_others_and_streams_as_it_is_generated():
    model, tokenizer = texts()
    generator, sampling = Generator(model, tokenizer), Sampling(temperature=2.0, top_k=200, seed=3)
    prompts = ["ab", "c a b", "b"]
    together = generator.generate(prompts, 12, sampling)
    assert together[0] == generator.generate("ab", 12, sampling)[0]
    assert "".join(generator.stream("ab", 12, sampling)) == together[0]
    assert together != generator.generate(prompts, 12, Sampling(temperature=2.0, top_k=200, seed=4))
    greedy = generator.generate(prompts, 6, Sampling(temperature=0))
    assert greedy == generator.generate(prompts, 6, beam=1)
    with pytest.raises(ValueError, match="a prompt has 41 tokens, and the model's texts have at most 40"):
        generator.generate("c" * 39, 5)


@pytest.mark.parametrize("way", ["generate", "stream", "beam", "draft", "chat"])
def test_keys_and_values_are_in_bytes_whatever_is_written(way: str, monkeypatch: pytest.MonkeyPatch):
    model, tokenizer = texts()
    draft = PromptDraft(model.config.vocab_size) if way == "draft" else None
    generator, begun = Generator(model, tokenizer, draft, cache_in_bytes=True), []
    start = model.start_decoding

    def watched(*arguments: Any) -> Any:
        begun.append(start(*arguments))
        return begun[-1]

    monkeypatch.setattr(model, "start_decoding", watched)
    if way in ("stream", "chat"):
        state = generator._read(generator.encode("ab"), []) if way == "chat" else None
        assert "".join(generator.stream("ab", 12)) if state is None else state.position
    else:
        assert generator.generate("ab", 12, beam=3 if way == "beam" else None)[0]
    assert begun
    for each in begun:
        assert isinstance(each.cache, ByteCache)
        assert {array.dtype for keys, values, _ in each.cache.grown.values() for array in (keys, values)} == {
            np.dtype("uint8"), np.dtype("float64"),
        }  # fmt: skip
    linear = perturbed(replace(model.config, attention="linear", attention_dropout=0.0))
    with pytest.raises(ValueError, match="linear attention keeps sums of what it reads: there are no keys"):
        Generator(linear, tokenizer, cache_in_bytes=True)


def test_no_work_is_no_text():
    generator = Generator(*texts())
    assert generator.generate([]) == []
    assert generator.generate("ab", 0) == generator.generate("ab", 0, beam=4) == [""]


@pytest.mark.parametrize("beam", [None, 3])
def test_rows_that_fill_up_a_table_are_never_written(beam):
    """nanoGPT's table of 50,257 tokens has 50,304 rows. Here such a row has the highest logit of all."""
    small, tokenizer = texts()
    config = replace(small.config, vocab_size=small.config.vocab_size + 7, tied=False)
    model = perturbed(config)
    table = model.parameters.named["output.table"].data
    table[-7:] = 50 * np.sign(table[-7:])
    table[-1] = -table[-2]  # one of the two logits is positive
    Generator(model, tokenizer).generate(["ab", "b"], 8, Sampling(temperature=2.0), beam=beam)  # else this would raise
    logits = model.forward(np.array([tokenizer.encode("ab")]))[0][0, -1]
    assert logits.argmax() >= tokenizer.vocab_size


def test_a_gap_is_not_filled_with_the_mask_itself():
    _, tokenizer = texts()
    number = tokenizer.vocab_size
    model = build_model(BERTConfig(number + 1, **SMALL, max_length=40, mask_id=number), dtype="float64")
    model.parameters.named["head.bias"].data[number] = 30.0
    (guesses,) = Filler(model, tokenizer).fill("ab [MASK]", 2 * number)
    assert len(guesses) == number
    assert sum(guess.probability for guess in guesses) < 1e-6


@pytest.mark.parametrize("private", ["\ue000", "\ue001", "\uf8ff", "\U000f0000"])
@pytest.mark.parametrize("known", [False, True], ids=["in bytes", "a token"])
def test_no_character_of_a_text_stands_for_a_gap(private: str, known: bool) -> None:
    """Not even one for private use, whether it is written in bytes or is with its space one token."""
    characters, merges = (" .ab" + private, [(" ", private)]) if known else (" .ab", [])
    tokenizer = BPETokenizer(characters, merges)
    text = f"{private} a <0>{private} <1>. {private}{private}<0>"
    pieces = f"{private} a", private, ".", f" {private}{private}"
    first, second, third, fourth = (tokenizer.encode_words(piece) for piece in (" " + pieces[0], *pieces[1:]))
    marks = {"<0>": 900, "<1>": 901}
    assert encode_marks(tokenizer, text, marks) == [*first, 900, *second, 901, *third, *fourth, 900]


@pytest.mark.parametrize("gap", ["<extra_id_00>", "<extra_id_٠>"])
def test_a_gap_is_written_in_one_way(gap: str) -> None:
    tokenizer = BPETokenizer(" ab", [])
    model: Any = build_model(T5Config(tokenizer.vocab_size + 100, **SMALL))
    with pytest.raises(ValueError, match="gaps of a text"):
        SpanFiller(model, tokenizer).fill(f"a {gap} b")


def test_prompts_are_padded_on_the_left():
    model = perturbed(GPTS["gpt2"])
    model.start_decoding(np.array([[IGNORED, 5, 9], [5, 9, 7]]))
    for rows in ([[5, 9, IGNORED], [5, 9, 7]], [[5, IGNORED, 9], [5, 9, 7]]):
        with pytest.raises(ValueError, match="prompts has -100 after a token: shorter prompts are padded on the left"):
            model.start_decoding(np.array(rows))


def test_targets_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"^the targets have shape \(2, 4\), expected \(2, 5\)"):
        perturbed(GPTS["gpt2"]).loss(np.ones((2, 5), int), np.ones((2, 4), int))


@pytest.mark.parametrize("rules", [Sampling(temperature=1e-310), Sampling(repetition_penalty=1e-310)])
def test_an_extreme_rule_leaves_one_token(rules):
    """An overflow is not the model's fault."""
    assert rules.probabilities(np.array([1.0, 3.0, -np.inf]), np.array([1])).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
def test_probabilities_are_those_of_hugging_faces_rules(seed):
    rng = np.random.default_rng(seed)
    logits, earlier = 3 * rng.standard_normal(30), rng.integers(0, 30, 8)
    rules = Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.02, repetition_penalty=1.3)
    scores: Any = torch.from_numpy(logits)[None]
    ids: Any = torch.from_numpy(earlier)[None]
    for rule in (
        RepetitionPenaltyLogitsProcessor(1.3),
        TemperatureLogitsWarper(0.7),
        TopKLogitsWarper(20),
        TopPLogitsWarper(0.9),
        MinPLogitsWarper(0.02),
    ):
        scores = rule(ids, scores)
    expected = torch.softmax(scores, -1)[0].numpy()
    np.testing.assert_allclose(rules.probabilities(logits, earlier), expected, rtol=0, atol=1e-12)
    drawn = [rules.choose(logits, earlier, text) for text in range(4000)]
    frequencies = np.bincount(drawn, minlength=30) / len(drawn)
    assert np.abs(frequencies - expected).max() < 0.04
