"""Every layer, one body for all: its output, and the gradients of its inputs and of every parameter."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import oracles, torch_twins
from support.prove import Proof, normal
from support.prove_layer import prove_layer

from minitransformer.layers import (
    AdaptedLinear,
    AdditiveAttention,
    AttendingConvolution,
    AttentionConfig,
    Block,
    BlockConfig,
    Context,
    CrossAttention,
    DropoutStream,
    FeedForward,
    FeedForwardConfig,
    GatedConvolution,
    InputEmbedding,
    Layer,
    LearnedPositions,
    Linear,
    LoRA,
    Norm,
    NormConfig,
    OutputLayer,
    Parameter,
    Recurrent,
    RecurrentStack,
    ResidualConvolution,
    SelfAttention,
    StepAttention,
    TokenEmbedding,
)
from minitransformer.ops import numpy_ops
from minitransformer.ops.initialize import constant

C, V = 4, 5
STREAM = DropoutStream(seed=5, step=2, sentence=3)
MASK = np.array([[True, True, False], [False, False, False]])
MASKS = {"full": None, "padded": MASK}
RATES = (0.0, 0.5)
IDS = np.array([[1, 3, 3], [4, 1, 0]])

Case = tuple[Callable[[], Layer], dict[str, Any], Context | None]
"""How a layer is made, the shapes of its inputs, and the context that it is called with."""


def options(*values: Any) -> Iterator[tuple]:
    """All combinations, and at the end of each what they are as text."""
    return ((*each, "-".join(map(str, each))) for each in itertools.product(*values))


def layer_cases() -> Iterator[tuple[str, Case]]:
    ops, x, memory = numpy_ops, {"x": (2, 3, C)}, {"memory": (2, 3, C)}
    for shape in ((3, C), (2, 1, C), (1, 3, C), (C,)):
        yield f"Linear {shape}", (partial(Linear, ops, C, 3, 2), {"x": shape}, None)
        yield f"FeedForward {shape}", (partial(FeedForward, ops, C, FeedForwardConfig(5)), {"x": shape}, None)
        yield f"LoRA {shape}", (partial(LoRA, ops, C, 3, 2, 1.5), {"x": shape}, None)

        def adapted() -> AdaptedLinear:
            return AdaptedLinear(Linear(ops, C, 3, 2, 4), [LoRA(ops, C, 3, 2, 1.5), None, LoRA(ops, C, 4, 1, 0.5)])

        yield f"AdaptedLinear {shape}", (adapted, {"x": shape}, None)
    for shape, eps, text in options([(5, C), (2, 1, C), (1, 3, C)], [1e-5, 0.1]):
        yield f"LayerNorm {text}", (partial(Norm, ops, C, NormConfig(eps=eps)), {"x": shape}, None)

    widths = [(2, 2, 2), (1, 4, 4), (2, 3, 1), (4, 1, 2)]
    for heads, rate, causal, window, mask, text in options(widths, RATES, [False, True], [None, 1], MASKS):
        config, context = AttentionConfig(*heads, window=window, dropout=rate), Context(MASKS[mask], dropout=STREAM)
        yield f"Attention {text}", (partial(SelfAttention, ops, C, config, causal=causal), x, context)
    for heads, rate, mask, text in options(widths, RATES, MASKS):
        # The mask is the memory's; neither the mask of the sequence nor its window has a say here.
        config, own = AttentionConfig(*heads, window=0, dropout=rate), np.zeros((2, 2), bool)
        context = Context(own, memory_mask=MASKS[mask], dropout=STREAM)
        inputs = {"x": (2, 2, C)} | memory
        yield f"Attention to the memory {text}", (partial(CrossAttention, ops, C, config), inputs, context)

    post_norm = BlockConfig(AttentionConfig(num_heads=2, d_k=2, d_v=1), FeedForwardConfig(5), NormConfig(), d_model=C)
    dropping = replace(post_norm, attention=replace(post_norm.attention, dropout=0.4), dropout=0.3)
    window = replace(dropping.attention, window=1)
    configs = {
        "post-norm": replace(post_norm, norm=NormConfig(eps=0.1)),
        "pre-norm": replace(post_norm, norm=NormConfig(first=True)),
        "dropout": dropping,
        "pre-norm, dropout, window": replace(dropping, norm=NormConfig(first=True), attention=window),
    }
    for name, mask, text in options(configs, MASKS):
        yield f"Block {text}", (partial(Block, ops, configs[name]), x, Context(MASKS[mask], dropout=STREAM))
        make = partial(Block, ops, replace(configs[name], causal=True, cross=True))
        context = Context(memory_mask=MASKS[mask], dropout=STREAM)
        yield f"Block of a decoder {text}", (make, {"x": (2, 2, C)} | memory, context)

    yield "TokenEmbedding", (partial(TokenEmbedding, ops, V, C), {"ids": IDS}, None)
    for shape in ((2, 3, C), (1, 1, C), (3, 6, C)):
        yield f"LearnedPositions {shape}", (partial(LearnedPositions, ops, 6, C), {"x": shape}, None)
    for rate in RATES:

        def embedding(rate: float = rate) -> InputEmbedding:
            return InputEmbedding(ops, TokenEmbedding(ops, V, C), LearnedPositions(ops, 6, C), rate)

        yield f"InputEmbedding {rate}", (embedding, {"ids": IDS}, Context(dropout=STREAM))

    for mask in MASKS:
        inputs, context = {"x": (2, 2, C), "states": (2, 3, C)}, Context(memory_mask=MASKS[mask])
        yield f"AdditiveAttention {mask}", (partial(AdditiveAttention, ops, C), inputs, context)
        keys_and_values = {"keys": (2, 3, C), "values": (2, 3, C)}
        inputs = {"x": (2, 4, C), "embedded": (2, 4, C)} | keys_and_values
        yield f"StepAttention {mask}", (partial(StepAttention, ops, C), inputs, context)
        for rate in RATES:
            make = partial(AttendingConvolution, ops, C, 3, dropout=rate)
            yield f"AttendingConvolution {mask}-{rate}", (make, inputs, replace(context, dropout=STREAM))
            make = partial(ResidualConvolution, ops, C, 3, dropout=rate)
            context_of_x = Context(MASKS[mask], dropout=STREAM)
            yield f"ResidualConvolution {mask}-{rate}", (make, x, context_of_x)
            for taps, causal in ((1, True), (2, True), (3, True), (3, False), (5, False)):
                make = partial(GatedConvolution, ops, C, taps, causal=causal, dropout=rate)
                yield f"GatedConvolution {taps}-{causal}-{mask}-{rate}", (make, x, context_of_x)


CASES = dict(layer_cases())


@pytest.mark.parametrize("name", CASES)
def test_a_layer_and_every_gradient(proof: Proof, name):
    make, inputs, context = CASES[name]
    rng = np.random.default_rng(len(name))
    arrays = {key: normal(rng, *given) if isinstance(given, tuple) else given for key, given in inputs.items()}
    prove_layer(make, arrays, proof, context, component=name.split(" ")[0])


# --- Layers that are called otherwise -------------------------------------------------------------------------


def output_layer(bias: bool) -> OutputLayer:
    return OutputLayer(
        numpy_ops, TokenEmbedding(numpy_ops, V, C).table, Parameter((V,), constant(0.0)) if bias else None
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, C), (1, 1, C), (3, C)])
def test_logits(proof: Proof, shape, bias):
    prove_layer(
        partial(output_layer, bias),
        {"hidden": normal(np.random.default_rng(0), *shape)},
        proof,
        component="OutputLayer, logits",
        call=OutputLayer.logits,
        back=OutputLayer.logits_backward,
        oracle=lambda w, hidden: F.linear(hidden, w["table"], w.get("bias")),
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("targets", [[[1, 2], [0, 4]], [[0, 0], [0, 0]]], ids=str)
def test_the_loss_of_the_next_tokens(proof: Proof, label_smoothing, targets, bias):
    wanted = np.array(targets)
    prove_layer(
        partial(output_layer, bias),
        {"hidden": normal(np.random.default_rng(0), 2, 2, C)},
        proof,
        component="OutputLayer, loss",
        call=lambda layer, hidden: layer.loss(hidden, wanted, label_smoothing, ignored=0),
        back=OutputLayer.loss_backward,
        oracle=lambda w, hidden: oracles.cross_entropy(
            F.linear(hidden, w["table"], w.get("bias")), torch.tensor(wanted), label_smoothing, ignore_index=0
        ),
    )


def test_learned_positions_from_a_later_one_on(proof: Proof):
    prove_layer(
        lambda: LearnedPositions(numpy_ops, 6, C),
        {"x": normal(np.random.default_rng(0), 2, 3, C)},
        proof,
        call=lambda layer, x: layer.forward(x, 2),
        oracle=lambda w, x: x + w["table"][2:5],
    )


def test_feed_forward_is_two_convolutions_with_kernel_size_one(proof: Proof):
    """Vaswani 2017, §3.3: "Another way of describing this is as two convolutions with kernel size 1"."""

    def convolution(w: torch_twins.Weights, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, w[f"{name}.weight"].T[:, :, None], w[f"{name}.bias"])  # over (B, C, T)

    prove_layer(
        lambda: FeedForward(numpy_ops, C, FeedForwardConfig(7)),
        {"x": normal(np.random.default_rng(0), 2, 5, C)},
        proof,
        oracle=lambda w, x: convolution(w, "contract", F.relu(convolution(w, "expand", x.mT))).mT,
    )


def joined(out: Any, finals: Any) -> Any:
    """The output and the final states of some layers as one array, over time: `(B, T + states, C)`."""
    parts = [out, *(state[:, None] for final in finals for state in final)]
    return torch.cat(parts, dim=1) if isinstance(out, torch.Tensor) else np.concatenate(parts, axis=1)


@pytest.mark.parametrize("stacked", [False, True], ids=["one layer, with a state before it", "two layers"])
@pytest.mark.parametrize(("cell", "states"), [("tanh", 1), ("lstm", 2)])
@pytest.mark.parametrize("mask", [None, [[True] * 4, [True, True, False, False], [False] * 4]], ids=MASKS)
@pytest.mark.parametrize("rate", RATES)
def test_recurrent(proof: Proof, stacked, cell, states, mask, rate):
    rng, context = np.random.default_rng(0), Context(None if mask is None else np.array(mask), dropout=STREAM)

    def make() -> Recurrent | RecurrentStack:
        one = partial(Recurrent, numpy_ops, cell, 2, 3, dropout=rate)
        layer = RecurrentStack(numpy_ops, cell, 3, 2, dropout=rate) if stacked else one()
        layer.name_layers()
        return layer

    def call(layer: Any, x: np.ndarray, *state: np.ndarray) -> tuple:
        (out, final), cache = layer.forward(x, state or None, context)
        return joined(out, final if stacked else [final]), cache

    def back(layer: Any, dout: np.ndarray, cache: Any) -> tuple:
        dfinal = tuple(dout[:, t] for t in range(4, dout.shape[1]))
        dx, dstate = layer.backward(dout[:, :4], [dfinal[:states], dfinal[states:]] if stacked else dfinal, cache)
        return (dx,) if stacked else (dx, *dstate)

    def oracle(w: torch_twins.Weights, x: torch.Tensor, *state: torch.Tensor) -> torch.Tensor:
        out, final = torch_twins.torch_layer(make(), w, x, state or None, context=context)
        return joined(out, final if stacked else [final])

    inputs = {"x": normal(rng, 3, 4, 3 if stacked else 2)}
    if not stacked:
        inputs |= {f"state {i}": normal(rng, 3, 3) for i in range(states)}
    prove_layer(make, inputs, proof, component=f"{type(make()).__name__}, {cell}", call=call, back=back, oracle=oracle)
