"""Every gradient of the project against central differences: what `python -m minitransformer check` runs.

It needs NumPy alone. (The other half of the proof, PyTorch's autograd, is in `tests/`.) Each op is checked with its
options, each layer with its parameters, and every parameter of a small whole model. An op of your own can take the
place of ours, and is then checked by itself and inside everything that uses it:

    run_checks(dataclasses.replace(numpy_ops, softmax=Pair(mine, mine_backward)))
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .gradcheck import GradientError, check_gradients
from .layers import (
    AdditiveAttention,
    AttendingConvolution,
    Attention,
    AttentionConfig,
    Block,
    BlockConfig,
    Context,
    DropoutStream,
    FeedForward,
    FeedForwardConfig,
    FlatParameters,
    GatedConvolution,
    LayerNorm,
    LearnedPositions,
    Linear,
    NormConfig,
    Recurrent,
    ResidualConvolution,
    StepAttention,
    TokenEmbedding,
)
from .models import ConvolutionalConfig, RecurrentConfig, Transformer, TransformerConfig, build_model
from .ops import Array, Dropout, Ops, Pair, dropout_key, numpy_ops

TOLERANCE = 1e-6
WIDTH = 68
"""Characters: the longest name of a model's parameter fits."""


@dataclass(frozen=True)
class CheckResult:
    """One row of the table. `complaint` is empty where the gradient is right."""

    component: str
    error: float
    complaint: str = ""

    @property
    def passed(self) -> bool:
        """Whether backward and central differences agree."""
        return not self.complaint


@dataclass(frozen=True)
class Case:
    """A pair of functions and where to check it; with `rows`, each array is a row of the table."""

    component: str
    forward: Callable
    backward: Callable
    arrays: dict[str, Array | None]
    rows: bool = False


def run_checks(ops: Ops = numpy_ops, report: Callable[[str], Any] = print) -> list[CheckResult]:
    """Check everything, one line to `report` as each row is known; returns the rows. Takes a few seconds."""
    started = time.perf_counter()
    report(f"{'component':{WIDTH}} worst error")
    report(f"{'-' * WIDTH} -----------")
    results = []
    for cases in (op_cases, layer_cases, model_cases):
        for case in cases(ops, np.random.default_rng(0)):
            for result in check(case):
                results.append(result)
                report(f"{result.component:{WIDTH}} {result.error:11.1e}{'' if result.passed else '  WRONG'}")
                if result.complaint:
                    report(f"    {result.complaint}")
    wrong = sum(not result.passed for result in results)
    verdict = f"{wrong} of {len(results)} gradients are WRONG" if wrong else f"all {len(results)} gradients are right"
    report(f"{verdict}: central differences, tolerance {TOLERANCE:.0e}, {time.perf_counter() - started:.1f} s")
    return results


def check(case: Case) -> list[CheckResult]:
    """The row of a case, or its rows."""
    try:
        errors = check_gradients(case.forward, case.backward, case.arrays, tolerance=TOLERANCE)
    except GradientError as wrong:
        return [CheckResult(case.component, np.inf, str(wrong))]
    if case.rows:
        return [CheckResult(f"{case.component}: {name}", error) for name, error in errors.items()]
    return [CheckResult(case.component, max(errors.values()))]


def op_cases(ops: Ops, rng: np.random.Generator) -> Iterator[Case]:
    """Every op with its options, on small arrays."""
    n = rng.standard_normal
    drop = Dropout(0.4, dropout_key(seed=1, step=2, site=3), sentence=5, position=1)
    packed = Dropout(0.4, 7, sentence=np.array([0, 0, 1, 4]), position=np.array([0, 1, 0, 9]))
    ids = rng.integers(5, size=(2, 4))
    off_kink = n((3, 5))
    off_kink += 0.1 * np.sign(off_kink)

    def case(name: str, label: str, arrays: dict[str, Array | None], **options: Any) -> Case:
        pair: Pair = getattr(ops, name)
        return Case(f"{name}{label and ', '}{label}", partial(pair.forward, **options), pair.backward, arrays)

    affine = {"x": n((2, 3, 4)), "weight": n((4, 5)), "bias": n(5)}
    yield case("linear", "", affine)
    yield case("linear", "no bias", {**affine, "bias": None})
    yield case("relu", "", {"x": off_kink})
    yield case("tanh", "", {"x": n((3, 5))})
    yield case("sigmoid", "", {"x": n((3, 5))})
    yield case("softmax", "", {"x": n((2, 3, 5))})
    rows = {"x": n((2, 3, 5)), "gamma": n(5), "beta": n(5)}
    yield case("layernorm", "", rows)
    add = {"x": n((2, 3, 5)), "sublayer_out": n((2, 3, 5)), "gamma": n(5), "beta": n(5)}
    yield case("add_layernorm", "", add)
    yield case("add_layernorm", "dropout", add, dropout=drop)
    yield case("dropout", "", {"x": n((2, 3, 5))}, dropout=drop)
    yield case("dropout", "packed rows", {"x": n((4, 5))}, dropout=packed)
    yield case("embedding", "repeated ids", {"ids": ids, "table": n((5, 3))})
    yield case("embedding", "scaled", {"ids": ids, "table": n((5, 3))}, scale=3.0)

    def qkv(tq: int, tk: int) -> dict[str, Array | None]:
        return {"query": n((2, 2, tq, 3)), "key": n((2, 2, tk, 3)), "value": n((2, 2, tk, 2))}

    padding = np.array([[True, True, True, False], [False] * 4])
    yield case("attention", "", qkv(3, 4))
    yield case("attention", "scale", qkv(3, 4), scale=0.3)
    yield case("attention", "padding", qkv(3, 4), key_mask=padding)
    yield case("attention", "causal", qkv(4, 4), causal=True)
    yield case("attention", "causal, Tq < Tk", qkv(2, 4), causal=True)
    yield case("attention", "causal, Tq > Tk", qkv(4, 2), causal=True)
    yield case("attention", "window", qkv(4, 4), window=1)
    yield case("attention", "dropout", qkv(3, 4), dropout=drop)
    yield case("attention", "all options", qkv(3, 4), key_mask=padding, causal=True, window=1, scale=0.3, dropout=drop)

    additive = {"query": n((2, 3, 3)), "key": n((2, 4, 3)), "value": n((2, 4, 2)), "score_weight": n(3)}
    yield case("additive_attention", "", additive)
    yield case("additive_attention", "padding", additive, key_mask=padding)
    convolved = {"x": n((2, 4, 3)), "weight": n((3, 3, 2)), "bias": n(2)}
    for kind in ("causal", "same", "valid"):
        yield case("conv1d", kind, convolved, padding=kind)
    yield case("conv1d", "no bias", {**convolved, "bias": None})

    logits = {"logits": n((2, 4, 5)), "targets": ids}
    fused = {"x": n((8, 3)), "table": n((5, 3)), "targets": ids.reshape(-1)}
    for name, arrays in (("cross_entropy", logits), ("linear_cross_entropy", fused)):
        yield case(name, "", arrays)
        yield case(name, "label smoothing", arrays, label_smoothing=0.1)
        yield case(name, "ignore_index", arrays, ignore_index=0)


def layer_cases(ops: Ops, rng: np.random.Generator) -> Iterator[Case]:
    """Every layer, with its inputs and its parameters."""
    x, memory = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 4, 4))
    padding = np.array([[True, True, False, False], [True] * 4])
    dropout = DropoutStream(seed=1, step=2)
    case = partial(layer_case, rng=rng)

    yield case("Linear", Linear(ops, 4, 3, 2), {"x": x})
    yield case("FeedForward", FeedForward(ops, 4, FeedForwardConfig(6)), {"x": x})
    yield case("LayerNorm", LayerNorm(ops, 4, NormConfig()), {"x": x})
    embedding = TokenEmbedding(ops, vocab_size=6, d_model=4)
    yield case("TokenEmbedding", embedding, {"ids": rng.integers(6, size=(2, 3))})
    yield case("TokenEmbedding, output layer", embedding, {"x": x}, embedding.logits, embedding.logits_backward)
    yield case("LearnedPositions", LearnedPositions(ops, max_length=4, d_model=4), {"x": x})

    def of_itself(layer: Attention | Block, **context: Any) -> tuple[Callable, Callable]:
        return partial(layer.forward, context=Context(**context)), lambda dout, cache: layer.backward(dout, cache)[0]

    def of_memory(layer: Attention | Block) -> Callable:
        return lambda x, memory: layer.forward(x, Context(memory=memory, memory_mask=padding, dropout=dropout))

    attention = Attention(ops, 4, AttentionConfig(num_heads=2, d_k=3, d_v=2))
    yield case("Attention", attention, {"x": memory}, *of_itself(attention, mask=padding))
    attention = Attention(ops, 4, AttentionConfig(num_heads=1, d_k=3, d_v=2), causal=True)
    yield case("Attention, causal", attention, {"x": x}, *of_itself(attention))
    attention = Attention(ops, 4, AttentionConfig(num_heads=2, d_k=2, d_v=2, window=1))
    yield case("Attention, window", attention, {"x": x}, *of_itself(attention))
    attention = Attention(ops, 4, AttentionConfig(num_heads=2, d_k=3, d_v=2, dropout=0.3), cross=True)
    yield case("Attention, to the memory, dropout", attention, {"x": x, "memory": memory}, of_memory(attention))
    for label, norm in (("post-norm", NormConfig()), ("pre-norm", NormConfig(first=True))):
        parts = AttentionConfig(num_heads=2, d_k=2, d_v=2), FeedForwardConfig(6), norm, 4
        block = named(Block(ops, BlockConfig(*parts, dropout=0.3)))
        yield case(f"Block, {label}", block, {"x": memory}, *of_itself(block, mask=padding, dropout=dropout))
        block = named(Block(ops, BlockConfig(*parts, causal=True, cross=True, dropout=0.3)))
        yield case(f"Block of a decoder, {label}", block, {"x": x, "memory": memory}, of_memory(block))

    yield from baseline_layer_cases(ops, rng)


def baseline_layer_cases(ops: Ops, rng: np.random.Generator) -> Iterator[Case]:
    """The layers of the recurrent and the convolutional models."""
    x, memory = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 4, 4))
    padding = np.array([[True, True, False, False], [True] * 4])
    dropout = DropoutStream(seed=1, step=2)
    case = partial(layer_case, rng=rng)

    for cell in ("tanh", "lstm"):
        recurrent = Recurrent(ops, cell, 4, 3, dropout=0.3)
        context = Context(mask=padding, dropout=dropout)
        yield case(f"Recurrent, {cell}", recurrent, {"x": memory}, *_over_time(recurrent, context))
    additive = AdditiveAttention(ops, 4)
    attend = partial(additive.forward, context=Context(memory_mask=padding))
    yield case("AdditiveAttention", additive, {"x": x, "memory": memory}, attend)
    gated = GatedConvolution(ops, 4, 2, causal=True, dropout=0.3)
    yield case("GatedConvolution, causal", gated, {"x": x}, partial(gated.forward, context=Context(dropout=dropout)))
    residual = ResidualConvolution(ops, 4, 3)
    masked = partial(residual.forward, context=Context(mask=padding))
    yield case("ResidualConvolution", residual, {"x": memory}, masked)
    inputs = {"x": x, "embedded": x[::-1].copy(), "keys": memory, "values": memory + 1}
    for layer in (StepAttention(ops, 4), AttendingConvolution(ops, 4, 3)):
        yield case(type(layer).__name__, layer, inputs, _with_memory(layer, padding))


def named(layer: Block) -> Block:
    """The layer once every layer in it has its name, and so a dropout mask of its own."""
    layer.name_layers()
    return layer


def _with_memory(layer: StepAttention | AttendingConvolution, mask: Array) -> Callable:
    """A layer's forward as a function of the keys and values that are its memory."""

    def forward(x: Array, embedded: Array, keys: Array, values: Array) -> tuple[Array, tuple]:
        return layer.forward(x, embedded, Context(memory=(keys, values), memory_mask=mask))

    return forward


def _over_time(layer: Recurrent, context: Context) -> tuple[Callable, Callable]:
    """A recurrent layer's pair with its output and its final state as one array, over time."""

    def forward(x: Array) -> tuple[Array, Any]:
        (out, final), cache = layer.forward(x, None, context)
        return np.concatenate([out, *(state[:, None] for state in final)], axis=1), (cache, out.shape[1])

    def backward(dout: Array, cache: Any) -> Array:
        cache, time = cache
        dfinal = tuple(dout[:, t] for t in range(time, dout.shape[1]))
        return layer.backward(dout[:, :time], dfinal, cache)[0]

    return forward, backward


def model_cases(ops: Ops, rng: np.random.Generator) -> Iterator[Case]:
    """Every parameter of a whole model: the paper's, one by one; then one with every switch the other way."""
    source, target_in = np.array([[5, 6, 7, 2], [8, 2, 0, 0]]), np.array([[1, 3, 4], [1, 5, 0]])
    batch = {"source": source, "target_in": target_in, "target_out": np.array([[3, 4, 2], [5, 2, 0]])}
    options = {**batch, "label_smoothing": 0.1, "dropout": DropoutStream(seed=1, step=2)}
    sizes = {"vocab_size": 9, "d_model": 4, "num_heads": 2, "d_ff": 5, "num_layers": 2, "dropout": 0.2, "max_length": 4}
    others = {"norm_first": True, "positions": "learned", "window": 1, "attention_dropout": 0.2, "d_k": 3, "d_v": 1}

    paper = Transformer(TransformerConfig(**sizes), ops, dtype="float64")
    loss = partial(paper.loss, **options)
    yield layer_case("Transformer", paper, {}, loss, paper.loss_backward, rng=rng, rows=True)
    other = Transformer(TransformerConfig(**sizes, **others), ops, dtype="float64")
    loss = partial(other.loss, **options)
    yield layer_case("Transformer, pre-norm, learned positions", other, {}, loss, other.loss_backward, rng=rng)

    small = {"vocab_size": 9, "d_model": 4, "num_layers": 1, "dropout": 0.2, "max_length": 4}
    for name, config in {
        "RecurrentTranslator, tanh": RecurrentConfig(**small, cell="tanh", attention=False),
        "RecurrentTranslator, lstm, attention": RecurrentConfig(**small, cell="lstm"),
        "ConvolutionalTranslator": ConvolutionalConfig(**small),
    }.items():
        model = build_model(config, ops, dtype="float64")
        yield layer_case(name, model, {}, partial(model.loss, **options), model.loss_backward, rng=rng)


def layer_case(
    component: str,
    layer: Any,
    inputs: dict[str, Array],
    forward: Callable | None = None,
    backward: Callable | None = None,
    *,
    rng: np.random.Generator,
    rows: bool = False,
) -> Case:
    """A `Layer` as a function of its inputs and parameters; these are drawn anew, since biases of 0 hide mistakes.

    `forward` and `backward` are given where they are not the methods of these names, or have options bound.
    """
    call, call_backward = forward or layer.forward, backward or layer.backward
    parameters = FlatParameters(dict(layer.named_parameters()), layer.ops, "float64")

    def layer_forward(*arrays: Array) -> tuple[Array, Any]:
        for parameter, value in zip(parameters.named.values(), arrays[len(inputs) :], strict=True):
            parameter.data[...] = value
        return call(*arrays[: len(inputs)])

    def layer_backward(dout: Array, cache: Any) -> list[Array]:
        parameters.zero_grad()
        returned = call_backward(dout, cache)
        dinputs = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
        return [*dinputs, *(parameter.grad for parameter in parameters.named.values())]

    drawn = {name: 0.7 * rng.standard_normal(parameter.shape) for name, parameter in parameters.named.items()}
    return Case(component, layer_forward, layer_backward, {**inputs, **drawn}, rows)
