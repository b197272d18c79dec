"""Compares every gradient of the project with central differences: `python -m minitransformer check` runs this.

It needs only NumPy. (The other half of the proof, PyTorch's autograd, is in `tests/`.) It checks each op with its
options, each layer with its parameters, and every parameter of small whole models. You can put an op of your own in
place of ours; it is checked by itself, and inside every layer and model that uses it:

    run_checks(dataclasses.replace(numpy_ops, softmax=Pair(mine, mine_backward)))
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .gradcheck import GradientError, check_gradients
from .layers import (
    PLAIN,
    AdditiveAttention,
    AttendingConvolution,
    AttentionConfig,
    BiasConfig,
    Block,
    BlockConfig,
    Context,
    CrossAttention,
    DropoutStream,
    FeedForward,
    FeedForwardConfig,
    FlatParameters,
    GatedConvolution,
    LearnedPositions,
    Linear,
    LinearSelfAttention,
    Norm,
    NormConfig,
    OutputLayer,
    Parameter,
    PatchEmbedding,
    Recurrent,
    RelativeBias,
    ResidualConvolution,
    Rotary,
    RotaryConfig,
    SelfAttention,
    SparseConfig,
    StepAttention,
    TokenEmbedding,
)
from .models import (
    IGNORED,
    BERTConfig,
    CaptionerConfig,
    CLIPConfig,
    ConvolutionalConfig,
    GPTConfig,
    MarianConfig,
    ModelConfig,
    RecurrentConfig,
    T5Config,
    TransformerConfig,
    ViTConfig,
    build_model,
)
from .ops import Array, Dropout, Ops, Pattern, dropout_key, numpy_ops
from .ops.arguments import Declaration
from .ops.elementwise import ACTIVATIONS
from .ops.initialize import constant

TOLERANCE = 1e-6
SAMPLES = 8
"""The coordinates that are checked of each parameter of a model whose layers have been checked in full."""
WIDTH = 68
"""The width of a row's name in characters: the longest name of a parameter fits."""


@dataclass(frozen=True)
class CheckResult:
    """One row of the table; `complaint` is empty if the gradient is right."""

    component: str
    error: float
    complaint: str = ""

    @property
    def passed(self) -> bool:
        """True if backward and central differences agree."""
        return not self.complaint


@dataclass(frozen=True)
class Case:
    """A pair of functions and the arrays to check it at; with `rows`, each array gets a row of its own.

    With `samples`, only so many coordinates of each array, drawn at random, are checked.
    """

    component: str
    forward: Callable
    backward: Callable
    arrays: dict[str, Array | None]
    rows: bool = False
    samples: int | None = None


def run_checks(ops: Ops = numpy_ops, report: Callable[[str], Any] = print) -> list[CheckResult]:
    """Check everything, in a few seconds; return the rows. `report` gets each line of the table when it is known."""
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
    """Check one case; return its row or rows."""
    try:
        errors = check_gradients(case.forward, case.backward, case.arrays, tolerance=TOLERANCE, samples=case.samples)
    except GradientError as wrong:
        return [CheckResult(case.component, np.inf, str(wrong))]
    if case.rows:
        return [CheckResult(f"{case.component}: {name}", error) for name, error in errors.items()]
    return [CheckResult(case.component, max(errors.values()))]


SIZES: dict[str, Any] = {
    "...": (2, 4), "B": 2, "H": 2, "Hk": 2, "T": 4, "Tq": 3, "Tk": 4, "D": 3, "Dv": 2, "C": 5, "C_in": 4, "C_out": 3,
    "F": 3, "K": 3, "N": 8, "R/2": 2, "V": 5, "n": 5, "channels": 2, "height": 2, "width": 4,
}  # fmt: skip
"""The sizes of the axes that ops declare."""

DROPPING = {"dropout": Dropout(0.4, dropout_key(seed=1, step=2, site=3), sentence=5, position=1)}
PACKED = Dropout(0.4, 7, sentence=np.array([0, 0, 1, 4]), position=np.array([0, 1, 0, 9]))
PADDED = {"key_mask": np.array([[True, True, True, False], [False] * 4])}
LOSSES: dict[str, dict[str, Any]] = {
    "": {"weights": None},
    "label smoothing": {"weights": None, "label_smoothing": 0.1},
    "ignore_index": {"weights": None, "ignore_index": 0},
    "weights": {"label_smoothing": 0.1, "ignore_index": 0},
}
PROBABILITIES = {"targets": np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 4))}

PATTERNS = {
    "blocks": Pattern(causal=True, block=2, summary=1),
    "strided": Pattern(stride=2, window=(1, 0)),
    "global tokens": Pattern(window=0, global_tokens=(1,)),
}

VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "linear": {"": {}, "no bias": {"bias": None}},
    "gelu": {"": {}, "tanh": {"approximate": "tanh"}},
    "gated": {activation: {"activation": activation} for activation in ACTIVATIONS},
    "layernorm": {"": {}, "no beta": {"beta": None}},
    "add_layernorm": {"": {}, "dropout": DROPPING, "no beta": {"beta": None}},
    "add_rmsnorm": {"": {}, "dropout": DROPPING},
    "patches": {"": {"size": 2}},
    "rope": {label: {"D": 5, "interleaved": label == "neighbours"} for label in ("halves", "neighbours")},
    "dropout": {"": DROPPING, "packed rows": {"dropout": PACKED, "...": (4,)}},
    "embedding": {"repeated ids": {}, "scaled": {"scale": 3.0}},
    "attention": {
        "": {},
        "scale": {"scale": 0.3},
        "no bias": {"bias": None},
        "grouped heads": {"H": 4, "Hk": 2},
        "one key/value head": {"Hk": 1},
        "softcap": {"softcap": 0.7},
        "padding": PADDED,
        "causal": {"causal": True, "Tq": 4},
        "causal, Tq < Tk": {"causal": True, "Tq": 2},
        "causal, Tq > Tk": {"causal": True, "Tk": 2},
        "window": {"window": 1, "Tq": 4},
        "window, left and right": {"window": (0, 2), "Tq": 4},
        **{name: {"pattern": pattern, "Tq": 4} for name, pattern in PATTERNS.items()},
        "dropout": DROPPING,
        "all options": {"causal": True, "window": 1, "scale": 0.3, **PADDED, **DROPPING},
    },
    "linear_attention": {
        "": {},
        "causal": {"causal": True},
        "padding": {"key_mask": PADDED["key_mask"], "causal": True},
        "grouped heads": {"H": 4, "causal": True},
    },
    "cross_entropy": {
        **LOSSES,
        "probabilities": PROBABILITIES | LOSSES["label smoothing"],
        "probabilities, weights": PROBABILITIES | {"label_smoothing": 0.1},
    },
    "linear_cross_entropy": LOSSES,
    "conv1d": {**{kind: {"padding": kind} for kind in ("causal", "same", "valid")}, "no bias": {"bias": None}},
    "additive_attention": {"": {}, "padding": PADDED},
}
"""For each op with several rows: the label of each, and its differences: the size of an axis, an array or an option.
Another needs an entry only for an option that it can't do without: its declaration says which arrays it takes."""


def random_arguments(
    declaration: Declaration, sizes: Mapping[str, Any], rng: np.random.Generator, dtype: Any = "float64"
) -> dict[str, np.ndarray]:
    """Draw arrays as declared: standard normal numbers, ids below their limit, random booleans.

    `sizes` gives the size of each letter, and a tuple for `...`; a letter that divides another may be left out.
    """
    sizes = {small: sizes[large] for small, large in declaration.multiples.items() if large in sizes} | dict(sizes)
    drawn = {}
    for argument in declaration.arrays:
        lead = sizes["..."] if "..." in argument.axes else ()
        shape = (*lead, *(sizes[axis] for axis in argument.axes if axis != "..."))
        if argument.kind in ("float", "fixed"):
            drawn[argument.name] = np.asarray(rng.standard_normal(shape), dtype)
        else:
            numbers = np.asarray(rng.integers(sizes.get(argument.limit, 2), size=shape))
            drawn[argument.name] = numbers.astype(bool) if argument.kind == "mask" else numbers
    return drawn


def op_cases(ops: Ops, rng: np.random.Generator) -> Iterator[Case]:
    """Yield a case for every op with its options, on small arrays drawn from its declaration."""
    for name, pair in ops.pairs():
        declaration: Declaration = vars(getattr(numpy_ops, name).forward)["declaration"]
        for label, changes in VARIANTS.get(name, {"": {}}).items():
            drawn = random_arguments(declaration, SIZES | changes, rng)
            options = {key: value for key, value in changes.items() if key not in SIZES}
            arrays = {}
            for argument in declaration.arrays:
                if argument.kind == "mask":
                    continue
                array = options.pop(argument.name, drawn[argument.name])
                if argument.kind == "fixed" or (argument.or_probabilities and array.dtype.kind == "f"):
                    options[argument.name] = array  # it has no gradient
                elif array is not None or not argument.broadcast:  # a missing bias of attention has no gradient either
                    arrays[argument.name] = array
            yield Case(f"{name}{label and ', '}{label}", partial(pair.forward, **options), pair.backward, arrays)


def layer_cases(ops: Ops, rng: np.random.Generator) -> Iterator[Case]:
    """Yield a case for every layer, with its inputs and its parameters."""
    case = partial(layer_case, rng=rng)
    inputs = {"x": rng.standard_normal((2, 3, 4))}
    memory = {"memory": rng.standard_normal((2, 4, 4))}
    longer = {"x": memory["memory"]}
    mask = np.array([[True, True, False, False], [True] * 4])
    stream = DropoutStream(seed=1, step=2)
    masked, dropping = Context(mask=mask), Context(mask=mask, memory_mask=mask, dropout=stream)

    yield case("Linear", Linear(ops, 4, 3, 2), inputs)
    yield case("FeedForward", FeedForward(ops, 4, FeedForwardConfig(6)), inputs)
    gated = FeedForwardConfig(6, "silu", gated=True, bias=False)
    yield case("FeedForward, gated", FeedForward(ops, 4, gated), inputs)
    yield case("LayerNorm", Norm(ops, 4, NormConfig()), inputs)
    yield case("RMSNorm", Norm(ops, 4, NormConfig(kind="rmsnorm")), inputs)
    embedding = TokenEmbedding(ops, vocab_size=6, d_model=4)
    yield case("TokenEmbedding", embedding, {"ids": rng.integers(6, size=(2, 3))})
    output = OutputLayer(ops, embedding.table, Parameter((6,), constant(0.0)))
    yield case("OutputLayer", output, inputs, pair=(output.logits, output.logits_backward))
    capped = OutputLayer(ops, embedding.table, softcap=0.7)
    yield case("OutputLayer, softcap", capped, inputs, pair=(capped.logits, capped.logits_backward))
    yield case("LearnedPositions", LearnedPositions(ops, max_length=4, d_model=4), inputs)
    patches = PatchEmbedding(ops, channels=2, size=2, d_model=4)
    yield case("PatchEmbedding", patches, {"images": rng.standard_normal((2, 2, 2, 4))})

    heads = AttentionConfig(num_heads=2, d_k=3, d_v=2)
    yield case("Attention", SelfAttention(ops, 4, heads), longer, masked)
    yield case("Attention, causal", SelfAttention(ops, 4, replace(heads, num_heads=1), causal=True), inputs, PLAIN)
    yield case("Attention, window", SelfAttention(ops, 4, replace(heads, window=1)), inputs, PLAIN)
    attention = CrossAttention(ops, 4, replace(heads, dropout=0.3))
    yield case("Attention, to the memory, dropout", attention, inputs | memory, dropping)
    shared = AttentionConfig(num_heads=4, d_k=2, d_v=2, num_kv_heads=2, bias=False)
    yield case("Attention, grouped heads", SelfAttention(ops, 4, shared), longer, masked)
    rotary = Rotary(ops, RotaryConfig(), shared.d_k, 4, "float64")
    yield case("Attention, rotary positions", SelfAttention(ops, 4, shared, causal=True, rotary=rotary), inputs, PLAIN)
    relative = RelativeBias(ops, BiasConfig(buckets=4, max_distance=3), heads.num_heads, causal=False, dtype="float64")
    normed = SelfAttention(ops, 4, shared, causal=True, rotary=rotary, head_norm=NormConfig(kind="rmsnorm"))
    yield case("Attention, norms of the heads", normed, inputs, PLAIN)
    yield case("Attention, relative bias", SelfAttention(ops, 4, heads, relative=relative), longer, masked)
    sparse = replace(heads, window=0, sparse=SparseConfig(global_tokens=1))
    yield case("Attention, sparse", SelfAttention(ops, 4, sparse), longer, masked)
    linear = replace(shared, kind="linear")
    yield case("Attention, linear, causal", LinearSelfAttention(ops, 4, linear, causal=True), longer, masked)
    for label, norm in (
        ("post-norm", NormConfig()),
        ("pre-norm", NormConfig(first=True)),
        ("post-norm, RMS", NormConfig(kind="rmsnorm")),
        ("pre-norm, norms of the outputs", NormConfig(first=True, kind="rmsnorm1p", extra="outputs")),
    ):
        config = BlockConfig(heads, FeedForwardConfig(6), norm, d_model=4, dropout=0.3)
        yield case(f"Block, {label}", Block(ops, config), longer, dropping)
        decoder = Block(ops, replace(config, causal=True, cross=True))
        yield case(f"Block of a decoder, {label}", decoder, inputs | memory, replace(dropping, mask=None))

    for cell in ("tanh", "lstm"):
        recurrent = Recurrent(ops, cell, 4, 3, dropout=0.3)
        yield case(f"Recurrent, {cell}", recurrent, longer, pair=_over_time(recurrent, dropping))
    states = {"states": memory["memory"]}
    yield case("AdditiveAttention", AdditiveAttention(ops, 4), inputs | states, Context(memory_mask=mask))
    convolution = GatedConvolution(ops, 4, 2, causal=True, dropout=0.3)
    yield case("GatedConvolution, causal", convolution, inputs, Context(dropout=stream))
    yield case("ResidualConvolution", ResidualConvolution(ops, 4, 3), longer, masked)
    keys_and_values = {"keys": memory["memory"], "values": memory["memory"] + 1}
    for layer in (StepAttention(ops, 4), AttendingConvolution(ops, 4, 3)):
        several = inputs | {"embedded": inputs["x"][::-1].copy()} | keys_and_values
        yield case(type(layer).__name__, layer, several, Context(memory_mask=mask))


def _over_time(layer: Recurrent, context: Context) -> tuple[Callable, Callable]:
    """Return a recurrent layer's forward and backward, with its output and its final state in one array along time."""

    def forward(x: Array) -> tuple[Array, Any]:
        (out, final), cache = layer.forward(x, None, context)
        return np.concatenate([out, *(state[:, None] for state in final)], axis=1), (cache, out.shape[1])

    def backward(dout: Array, cache: Any) -> Array:
        cache, time = cache
        dfinal = tuple(dout[:, t] for t in range(time, dout.shape[1]))
        return layer.backward(dout[:, :time], dfinal, cache)[0]

    return forward, backward


def model_cases(ops: Ops, rng: np.random.Generator) -> Iterator[Case]:
    """Yield a case for every whole model: with all entries of the paper's parameters, and samples of the others'."""
    source, target_in = np.array([[5, 6, 7, 2], [8, 2, 0, 0]]), np.array([[1, 3, 4], [1, 5, 0]])
    pairs = source, target_in, np.array([[3, 4, 2], [5, 2, 0]])
    text = source, np.array([[6, 7, 2, IGNORED], [2, 8, IGNORED, IGNORED]])
    images = rng.standard_normal((2, 1, 4, 4)), np.array([2, 0])
    pictures: dict[str, Any] = {"image_size": 4, "patch_size": 2, "channels": 1}
    baseline: dict[str, Any] = {"d_model": 4, "num_layers": 1, "dropout": 0.2}
    small: dict[str, Any] = baseline | {"num_heads": 2, "d_ff": 5}
    paper = TransformerConfig(9, **{**small, "num_layers": 2}, max_length=4)
    others = replace(
        paper, num_layers=1, norm_first=True, positions="learned", window=1, attention_dropout=0.2, d_k=3, d_v=1
    )
    configs: dict[str, tuple[ModelConfig, tuple]] = {
        "Transformer": (paper, pairs),
        "Transformer, pre-norm, learned positions": (others, pairs),
        "GPT": (GPTConfig(9, **small, max_length=4), text),
        "GPT, Llama's parts": (GPTConfig.llama(9, **small, num_kv_heads=1, max_length=4), text),
        "GPT, linear attention": (GPTConfig(9, **small, attention="linear", attention_dropout=0.0, max_length=4), text),
        "BERT": (BERTConfig(9, **small, max_length=4), (*text, source % 2)),
        "BERT, classes": (BERTConfig(9, **small, max_length=4, head="classes"), (source, np.array([1, 0]))),
        "T5": (T5Config(9, **small, d_k=2, buckets=4, max_distance=3), pairs),
        "Marian": (MarianConfig(9, **small, num_decoder_heads=1, max_length=4), pairs),
        "ViT": (ViTConfig(3, **pictures, **small), images),
        "Captioner": (CaptionerConfig(9, **pictures, **small, max_length=4), (images[0], *pairs[1:])),
        "CLIP": (CLIPConfig(9, **pictures, **small, embedding=3, max_length=4), (images[0], source)),
        "RecurrentTranslator, tanh": (RecurrentConfig(9, **baseline, cell="tanh", attention=False), pairs),
        "RecurrentTranslator, lstm, attention": (RecurrentConfig(9, **baseline, cell="lstm"), pairs),
        "ConvolutionalTranslator": (ConvolutionalConfig(9, **baseline, max_length=4), pairs),
    }
    options: dict[str, Any] = {"label_smoothing": 0.1, "dropout": DropoutStream(seed=1, step=2)}
    for name, (config, batch) in configs.items():
        model = build_model(config, ops, dtype="float64")
        pair = partial(model.loss, *batch, **options), model.loss_backward
        case = layer_case(name, model, {}, rng=rng, pair=pair)
        yield replace(case, rows=True) if config is paper else replace(case, samples=SAMPLES)


def layer_case(
    component: str,
    layer: Any,
    inputs: dict[str, Array],
    context: Context | None = None,
    *,
    rng: np.random.Generator,
    pair: tuple[Callable, Callable] | None = None,
) -> Case:
    """Return the case of a `Layer`, as a function of its inputs and its parameters.

    Parameters are drawn at random, since biases of 0 would hide mistakes. A `context`, if given, is passed after the
    inputs, and `memory`, or `keys` and `values`, go into it. `pair` replaces the layer's `forward` and `backward`.
    """
    layer.name_layers()  # so that each layer with dropout has a mask of its own
    call, call_backward = pair or (layer.forward, layer.backward)
    parameters = FlatParameters(dict(layer.named_parameters()), layer.ops, "float64")

    def layer_forward(*arrays: Array) -> tuple[Array, Any]:
        for parameter, value in zip(parameters.named.values(), arrays[len(inputs) :], strict=True):
            parameter.data[...] = value
        given = dict(zip(inputs, arrays, strict=False))
        if context is None:
            return call(*given.values())
        memory = (given.pop("keys"), given.pop("values")) if "keys" in given else given.pop("memory", None)
        return call(*given.values(), replace(context, memory=memory))

    def layer_backward(dout: Array, cache: Any) -> list[Array]:
        parameters.zero_grad()
        returned = call_backward(dout, cache)
        dinputs = returned if isinstance(returned, tuple) else (returned,)
        return [*(d for d in dinputs if d is not None), *(parameter.grad for parameter in parameters.named.values())]

    drawn = {name: 0.7 * rng.standard_normal(parameter.shape) for name, parameter in parameters.named.items()}
    return Case(component, layer_forward, layer_backward, {**inputs, **drawn})
