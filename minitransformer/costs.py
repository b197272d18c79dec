"""The costs of a configuration: parameters, floating-point operations and memory, computed without the model."""

import math
from collections import Counter
from dataclasses import dataclass

from .layers import Stack, TokenEmbedding
from .models import ModelConfig, TransformerConfig
from .ops import numpy_ops

FLOAT_BYTES = 4
LAYER_BYTES = 20_000
"""The memory that the Python objects of a Transformer's layer take, beside its parameters."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations for one source token and for one target token, forward."""

    source: float
    target: float

    @property
    def training(self) -> float:
        """A training step's, per source or target token: the backward has two products for each of the forward."""
        return 3 * (self.source + self.target) / 2


def parameter_groups(config: TransformerConfig) -> dict[str, int]:
    """The number of parameters of each part, in the order of the model."""
    groups = Counter({"embeddings (source, target, output: one table)": config.vocab_size * config.d_model})
    tokens = TokenEmbedding(numpy_ops, config.vocab_size, config.d_model)
    for name, tree in (("encoder", config.encoder), ("decoder", config.decoder)):
        for path, parameter in Stack(numpy_ops, tree, tokens, "float32").named_parameters():
            if parameter is not tokens.table:
                groups[f"{name}: {_part(path)}"] += math.prod(parameter.shape)
    return dict(groups)


def num_parameters(config: TransformerConfig) -> int:
    """The number of parameters: the sum of `parameter_groups`, in closed form."""
    return config.num_parameters


def flops_per_token(config: TransformerConfig, length: int) -> Flops:
    """The forward's floating-point operations per token, with `length` tokens in source and in target.

    Only matrix products count; the rest is a few percent. `(m, k) @ (k, n)` takes 2·m·k·n operations. So a weight costs
    2 for each token, and a query over n keys costs 2·n·(d_k + d_v) in each of H heads, for `query keyᵀ` and for the
    weighted sum. Let A = 2·C·H·(d_k + d_v) be the cost of two of attention's four projections (query and output, or key
    and value), and S = 2·n·H·(d_k + d_v):

        encoder layer, for a source token    2A (projections) + S + 4·C·F (feed-forward)
        decoder layer, for a target token    2A + S (self) + A + S (cross: query, output) + 4·C·F
        decoder layer, for a source token    A (cross: keys and values of the memory)
        output layer, for a target token     2·C·V

    Masks save nothing: the products are computed in full and then masked. The saving by a window on long sequences is
    left out.
    """
    width = config.num_heads * (config.key_width + config.value_width)
    half = 2 * config.d_model * width  # A
    mixing = 2 * length * width  # S
    feed_forward = 4 * config.d_model * config.d_ff
    return Flops(
        source=config.num_layers * (2 * half + mixing + feed_forward) + config.decoder_layers * half,
        target=config.decoder_layers * (3 * half + 2 * mixing + feed_forward) + 2 * config.d_model * config.vocab_size,
    )


def training_bytes(config: TransformerConfig, num_parameters: int, tokens: int, length: int, threads: int) -> int:
    """Memory of a training step: weights, a gradient for each thread, Adam's two moments, and the activations.

    A batch has `tokens` source and `tokens` target tokens, in sentences of `length` tokens.
    """
    parameters = (1 + threads + 2) * num_parameters
    return FLOAT_BYTES * (parameters + tokens * activations(config, length))


def least_training_bytes(config: ModelConfig, threads: int, dtype: str = "float32") -> int:
    """The part of this memory that even the smallest batch needs, and that of the layers' objects in each thread."""
    parameters = (1 + threads + 2) * config.num_parameters * (2 if dtype == "float64" else 1)
    return FLOAT_BYTES * parameters + LAYER_BYTES * config.num_layers_in_all * threads


def activations(config: TransformerConfig, length: int) -> int:
    """Numbers kept for the backward of one source and one target token, with n = `length` tokens in each sentence.

        each attention            2·H·(d_k + d_v) + H·n    queries, keys, values, their results; a row of weights
        each feed-forward         F                        its hidden layer
        each residual connection  2·C                      the normalised sum, and the output
        each embedding            C

    Dropout adds a byte for each number that it may drop. The backward's temporary arrays add about a quarter more.
    """
    attention = config.num_heads * (2 * (config.key_width + config.value_width) + length)
    encoder_layer = attention + config.d_ff + 2 * 2 * config.d_model
    decoder_layer = 2 * attention + config.d_ff + 3 * 2 * config.d_model
    return config.num_layers * encoder_layer + config.decoder_layers * decoder_layer + 2 * config.d_model


def inference_bytes(config: TransformerConfig, num_parameters: int, length: int, beam: int) -> int:
    """Memory to translate a sentence: weights, the memory's keys and values, and those of each beam's output."""
    cached = config.decoder_layers * config.num_heads * (config.key_width + config.value_width) * length
    return FLOAT_BYTES * (num_parameters + (1 + beam) * cached)


def _part(path: str) -> str:
    """The part of a stack that a parameter such as `layers.0.feed_forward.expand.weight` belongs to."""
    names = path.split(".")
    part = names[2] if names[0] == "layers" else names[0]
    if part.endswith("norm"):
        return "layer normalisation"
    return "learned positions" if part == "embedding" else part.replace("_", "-")
