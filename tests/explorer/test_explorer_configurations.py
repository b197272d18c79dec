"""The engine in JavaScript against NumPy over what configurations can say, on small models with random weights."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from support.explorer_engine import (
    Call,
    Result,
    bytes_tokenizer,
    forward_of,
    input_gradients,
    needs_node,
    payload_of,
    relative_error,
    run_engine,
)
from support.explorer_patches import patch_at, patched, values_in

from minitransformer import Transformer, TransformerConfig
from minitransformer.decoding import Generator, beam_search
from minitransformer.decoding.search import Start
from minitransformer.explorer.payload import check_model
from minitransformer.inside import attention_maps, logit_lens
from minitransformer.layers import RotaryConfig, SparseConfig
from minitransformer.models import BERT, GPT, BERTConfig, GPTConfig, MarianConfig, T5Config

VOCAB = 270
SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 4, "d_ff": 24, "num_layers": 2, "max_length": 40}
MARKS: dict[str, Any] = {"bos_id": 1, "eos_id": 2}
LLAMA: dict[str, Any] = {"norm": "rmsnorm", "activation": "silu", "gated": True, "bias": False, "attention_bias": False}
QWEN: dict[str, Any] = LLAMA | {"attention_bias": "inputs"}
QWEN3: dict[str, Any] = {"extra_norms": "heads", "d_k": 6}
GEMMA: dict[str, Any] = LLAMA | {"norm": "rmsnorm1p", "activation": "gelu_tanh", "embedding_scale": 4.0}
SPARSE = SparseConfig(block=3, summary=1)

CONFIGS: dict[str, Callable[[], Any]] = {
    "paper": lambda: TransformerConfig(VOCAB, **SIZES),
    "paper, pre-norm": lambda: TransformerConfig(VOCAB, **SIZES, norm_first=True),
    "paper, learned positions": lambda: TransformerConfig(VOCAB, **SIZES, positions="learned"),
    "paper, window": lambda: TransformerConfig(VOCAB, **SIZES, window=2),
    "paper, no neighbours": lambda: TransformerConfig(VOCAB, **SIZES, window=0),
    "paper, widths": lambda: TransformerConfig(VOCAB, **SIZES, d_k=3, d_v=5, num_decoder_layers=1, layernorm_eps=0.1),
    "T5": lambda: T5Config(VOCAB, **SIZES, **MARKS, d_k=3),
    "T5 1.1": lambda: T5Config(
        VOCAB, **SIZES, **MARKS, d_k=4, activation="gelu_tanh", gated=True, tied=False, scale_output=False
    ),
    "T5, few buckets": lambda: T5Config(
        VOCAB, **SIZES, **MARKS, d_k=4, buckets=8, max_distance=9, scaled_scores=True, scale_output=False
    ),
    "Marian": lambda: MarianConfig(VOCAB, **SIZES, **MARKS),
    "Marian, others": lambda: MarianConfig(
        VOCAB, **SIZES, **MARKS, num_decoder_heads=2, d_decoder_ff=8, activation="gelu", embedding_scale=2.0
    ),
    "GPT-2": lambda: GPTConfig(VOCAB, **SIZES, bos_id=2, eos_id=2),
    "Llama": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, **LLAMA, num_kv_heads=2, positions="rotary", tied=False),
    "Qwen 2": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, **QWEN, positions="rotary"),
    "Qwen 3": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, **LLAMA, **QWEN3, num_kv_heads=2, positions="rotary"),
    "Gemma 2": lambda: GPTConfig(
        VOCAB, **SIZES, **MARKS, **GEMMA, extra_norms="outputs", positions="alibi", softcap=1.5, logits_softcap=2.0
    ),
    "Gemma 3": lambda: GPTConfig(
        VOCAB,
        **SIZES,
        **MARKS,
        **GEMMA,
        extra_norms="heads and outputs",
        positions="rotary",
        window=2,
        sparse=SparseConfig(full_every=2),
        rotary=RotaryConfig(full_theta=99.0),
    ),
    "GPT, norms of heads and outputs, post-norm": lambda: GPTConfig(
        VOCAB, **SIZES, **MARKS, norm_first=False, extra_norms="heads and outputs", other_eos_ids=(77, 31)
    ),
    "GPT, one key head": lambda: GPTConfig(
        VOCAB, **SIZES, **MARKS, num_kv_heads=1, positions="sinusoidal", embedding_scale=3.0, d_k=6
    ),
    "GPT, neighbouring pairs turn": lambda: GPTConfig(
        VOCAB, **SIZES, **MARKS, positions="rotary", rotary=RotaryConfig(2, 100.0, interleaved=True)
    ),
    "GPT, stretched rotations": lambda: GPTConfig(
        VOCAB, **SIZES, **MARKS, positions="rotary", rotary=RotaryConfig(factor=8.0, original_max_length=16)
    ),
    "GPT, ALiBi and softcap": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, positions="alibi", softcap=0.7),
    "GPT, relative bias": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, positions="relative"),
    "GPT, softcap alone": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, positions="none", softcap=0.4),
    "GPT, post-norm": lambda: GPTConfig(
        VOCAB, **SIZES, **MARKS, norm_first=False, norm_bias=False, activation="relu", window=3
    ),
    "GPT, RMS post-norm": lambda: GPTConfig(
        VOCAB, **SIZES, **MARKS, norm_first=False, norm="rmsnorm", activation="silu"
    ),
    "GPT, GEGLU": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, activation="gelu", gated=True),
    "GPT, ReGLU": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, activation="relu", gated=True),
    "GPT, fixed pattern": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, sparse=SPARSE),
    "GPT, strided pattern": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, window=2, sparse=SparseConfig(stride=3)),
    "GPT, global tokens": lambda: GPTConfig(VOCAB, **SIZES, **MARKS, window=1, sparse=SparseConfig(global_tokens=2)),
}
NOTHING: dict[str, Any] = {"heads": [], "sublayers": [], "masked": [], "unplaced": [], "patches": []}
SOURCE = [50, 260, 17, 200, 3, 99, 261, 120, 2]
TARGET = [1, 77, 260, 31, 240, 5, 265, 80]
OTHER = [50, 44, 17, 200, 133, 99, 261, 8, 2]
PROMPT = [7, 44, 201]
PLACES = [
    ("paper", patch_at("encoder", 0, 4)),
    ("paper", patch_at("encoder", 1, 3)),
    ("paper", patch_at("encoder", 2, None)),
    ("paper", patch_at("encoder", 2, 1, head=3)),
    ("paper, pre-norm", patch_at("encoder", 1, 4)),
    ("paper, pre-norm", patch_at("decoder", 2, 1)),
    ("paper, widths", patch_at("encoder", 1, None, head=1)),
    ("T5", patch_at("encoder", 1, 0)),
    ("GPT-2", patch_at("decoder", 0, 1)),
    ("GPT-2", patch_at("decoder", 1, None)),
    ("Llama", patch_at("decoder", 1, 2, head=3)),
    ("Gemma 3", patch_at("decoder", 2, 2)),
]


def made(config: Any, dtype: str) -> Any:
    """A model with weights at which every part matters."""
    kind: Any = GPT if isinstance(config, GPTConfig) else Transformer
    model = kind(config, dtype=dtype, seed=4)
    rng = np.random.default_rng(11)
    for name, parameter in model.parameters.named.items():
        noise = rng.normal(size=parameter.value.shape)
        parameter.value[...] = 1 + 0.3 * noise if "gamma" in name else 0.35 * noise
    return model


def choices_not_shown() -> Iterator[tuple[str, str]]:
    shown = [each for each in (make() for make in CONFIGS.values()) if isinstance(each, GPTConfig)]
    for name, hint in get_type_hints(GPTConfig).items():
        if get_origin(hint) is Literal:
            yield from ((name, each) for each in get_args(hint) if each not in {getattr(one, name) for one in shown})


@pytest.mark.parametrize(("name", "choice"), list(choices_not_shown()))
def test_a_choice_of_a_gpt_that_is_not_in_configs_is_refused(name: str, choice: Any) -> None:
    """The page would show wrong numbers for one that its engine does not compute."""
    config = GPTConfig(VOCAB, **SIZES, **MARKS, attention_dropout=0.0, **{name: choice})
    with pytest.raises(ValueError, match="the explorer shows"):
        check_model(GPT(config), bytes_tokenizer(VOCAB))


def test_blocks_of_attention_alone_are_refused() -> None:
    config = GPTConfig(VOCAB, **{**SIZES, "d_ff": 0}, **MARKS, attention_dropout=0.0)
    with pytest.raises(ValueError, match="the model's blocks are attention alone: the explorer shows those with"):
        check_model(GPT(config), bytes_tokenizer(VOCAB))


@needs_node
@pytest.mark.parametrize("name", CONFIGS)
def test_the_engine_computes_what_numpy_computes(name: str) -> None:
    model, exact = (made(CONFIGS[name](), dtype) for dtype in ("float32", "float64"))
    is_gpt = isinstance(model, GPT)
    source = None if is_gpt else SOURCE
    inputs, position, token = {"source": source, "target": TARGET}, len(TARGET) - 2, 123
    start = {"source": source, "target": TARGET[:3] if is_gpt else TARGET[:1]}
    begun = {"source": source, "target": TARGET[:3]}
    _, trace, whole, gradient, lens, search = run_engine(
        payload_of(model, bytes_tokenizer(VOCAB)),
        [
            Call("trace", [begun, NOTHING]),
            Call("trace", [inputs, NOTHING, Result(0)]),
            Call("trace", [inputs], ["logits"]),
            Call("gradient", [Result(1), position, token]),
            Call("lens", [Result(1), position, 3]),
            Call("search", [start, {"beams": 3, "maxTokens": 12, "lengthPenalty": 0}], ["result.hypotheses.0"]),
        ],
    )
    arrays = [np.array([ids]) for ids in (source, TARGET) if ids is not None]
    expected = forward_of(exact, source, TARGET)
    for logits in (trace["logits"], whole[0]):  # that of a longer text goes on from that of its beginning
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)

    sides = input_gradients(exact, source, TARGET, position, token)
    assert relative_error(gradient["target"]["vectors"], sides[1]) <= 1e-4
    if not is_gpt:
        assert relative_error(gradient["source"]["vectors"], sides[0]) <= 1e-4

    for place, weights in attention_maps(exact, *arrays).items():
        stack, _, layer, kind = place.split(".")
        sublayers = trace[stack]["layers"][int(layer)]["sublayers"]
        heads = next(each["attention"]["heads"] for each in sublayers if each["kind"] == kind)
        np.testing.assert_allclose(np.stack([head["weights"] for head in heads]), weights[0], rtol=0, atol=1e-5)

    layers = [entry for entry in lens if entry["isLayer"]]
    log_probs = exact.ops.log_softmax(logit_lens(exact, *arrays)[:, 0, position])  # (layers + 1, V)
    for entry, row in zip(layers, log_probs, strict=True):
        best = np.argsort(-row, kind="stable")[:3]
        assert [candidate["token"]["id"] for candidate in entry["top"]] == best.tolist()

    found = search[0]
    if is_gpt:
        begin = Start(first=np.array([TARGET[2]]), limits=np.array([12]))
        best = beam_search(exact, np.array([TARGET[:2]]), 3, 0.0, start=begin)[0][0]
    else:
        best = beam_search(exact, np.array([SOURCE]), 3, 0.0, max_extra=12 - len(SOURCE))[0][0]
    assert found["ids"] == best.ids
    assert found["ended"] == best.ended
    assert found["score"] == pytest.approx(best.score, abs=1e-4)


@needs_node
@pytest.mark.parametrize("name", ["Llama", "GPT, ALiBi and softcap", "T5", "GPT-2"])
def test_a_token_without_a_place(name: str) -> None:
    """A place in nothing but the positions: queries and keys are not turned, scores get no bias, nothing is added."""
    exact = made(CONFIGS[name](), "float64")
    source = None if isinstance(exact, GPT) else SOURCE
    stack, place = "decoder", 4
    off = NOTHING | {"unplaced": [{"stack": stack, "position": place}]}
    (found,) = run_engine(
        payload_of(exact, bytes_tokenizer(VOCAB)),
        [Call("trace", [{"source": source, "target": TARGET}, off], ["logits"])],
    )
    _forget(exact.decoder, place)
    np.testing.assert_allclose(found[0], forward_of(exact, source, TARGET), rtol=0, atol=1e-4)


def _forget(stack: Any, place: int) -> None:
    """Takes one position's place from whatever tells it to a stack of NumPy's."""
    positions, attention = stack.embedding.positions, stack.layers[0].self_attention
    if positions is not None:
        positions.table.value[place] = 0
    if attention.rotary is not None:
        cos, sin = attention.rotary.tables
        cos[place], sin[place] = 1, 0
    if attention.relative is not None:
        forward = attention.relative.forward

        def without(num_queries: int, num_keys: int) -> Any:
            bias, cache = forward(num_queries, num_keys)
            bias = bias.copy()
            bias[:, :, place] = 0
            bias[:, :, :, place] = 0
            return bias, cache

        attention.relative.forward = without


@needs_node
@pytest.mark.parametrize(("name", "spot"), PLACES)
def test_a_patch_changes_what_it_changes_in_numpy(name: str, spot: dict[str, Any]) -> None:
    """The logits, also where a text goes on from its beginning, and the gradient."""
    exact = made(CONFIGS[name](), "float64")
    source, donor = (None, None) if isinstance(exact, GPT) else (SOURCE, OTHER)
    inputs, position, token = {"source": source, "target": TARGET}, len(TARGET) - 2, 123
    plain, _, _, whole, _, rest, gradient = run_engine(
        payload_of(exact, bytes_tokenizer(VOCAB)),
        [
            Call("trace", [inputs], ["logits"]),
            Call("trace", [{"source": donor, "target": PROMPT}], []),
            Call("patch", [NOTHING, Result(1), spot], []),
            Call("trace", [inputs, Result(2)], ["logits"]),
            Call("trace", [{"source": source, "target": TARGET[:2]}, Result(2)], []),
            Call("trace", [inputs, Result(2), Result(4)], ["logits"]),
            Call("gradient", [Result(3), position, token]),
        ],
    )
    with patched(exact, spot, values_in(exact, spot, donor, PROMPT)):
        expected = forward_of(exact, source, TARGET)
        sides = input_gradients(exact, source, TARGET, position, token)
    for (logits,) in (whole, rest):
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
    assert np.abs(whole[0] - plain[0]).max() > 0.01
    for side, vectors in zip(("source", "target"), sides, strict=True):
        assert vectors is None or relative_error(gradient[side]["vectors"], vectors) <= 1e-4


@needs_node
def test_a_masked_token_of_a_gpt_is_seen_by_nobody() -> None:
    exact = made(CONFIGS["GPT-2"](), "float64")
    mask = np.ones((1, len(TARGET)), bool)
    mask[0, [0, 3]] = False
    off = NOTHING | {"masked": [{"stack": "decoder", "position": place} for place in (0, 3)]}
    calls = [
        Call("trace", [{"source": None, "target": TARGET}, off], ["logits", "decoder.layers.0.sublayers.0.attention"])
    ]
    ((logits, attention),) = run_engine(payload_of(exact, bytes_tokenizer(VOCAB)), calls)
    np.testing.assert_allclose(logits, forward_of(exact, None, TARGET, mask=mask), rtol=0, atol=1e-4)
    assert not attention["heads"][0]["weights"][0].any(), "the first token sees no key at all"


@needs_node
@pytest.mark.parametrize("marks", [{"bos_id": 1, "eos_id": 2}, {"bos_id": 2, "eos_id": 2}, {}, {"eos_id": 2}])
def test_prompts_get_the_marks_that_the_library_gives_them(marks: dict[str, Any]) -> None:
    model, tokenizer = GPT(GPTConfig(VOCAB, **SIZES, **marks)), bytes_tokenizer(VOCAB)
    generator, prompts = Generator(model, tokenizer), ["", "ab", " a", "<s>"][not marks :]
    calls = [Call("encodeTarget", [prompt]) for prompt in (*prompts, "x" * 50)]
    *found, long = run_engine(payload_of(model, tokenizer), calls)
    assert [each["ids"] for each in found] == [generator.encode(prompt) for prompt in prompts]
    assert len(long["ids"]) == 39, "there is room for one more token"
    assert long["isCut"]


def test_models_that_the_page_cannot_show_are_refused() -> None:
    tokenizer = bytes_tokenizer(VOCAB)
    linear = GPT(GPTConfig(VOCAB, **SIZES, attention="linear", positions="learned", attention_dropout=0.0))
    bert = BERT(BERTConfig(VOCAB, **SIZES, mask_id=269))
    large = Transformer.blank(TransformerConfig(VOCAB, d_model=512, num_heads=8, d_ff=2048, num_layers=6))
    broken = Transformer(TransformerConfig(VOCAB, **SIZES))
    broken.parameters.data[5] = np.nan
    other = Transformer(TransformerConfig(VOCAB + 1, **SIZES))
    for model, says in [
        (linear, "attention is 'linear'"),
        (bert, "not one of kind 'bert'"),
        (large, "44,276,736 parameters and its page would weigh 236 MB, or 59 MB as int8"),
        (broken, "not finite"),
        (other, "don't belong together"),
    ]:
        with pytest.raises(ValueError, match=says):
            payload_of(model, tokenizer)
    with pytest.raises(ValueError, match="tokenizer, object, is none of those"):
        payload_of(Transformer(TransformerConfig(VOCAB, **SIZES)), object())
