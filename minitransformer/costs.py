"""The costs of a configuration: parameters, floating-point operations and memory, computed without the model."""

from collections import Counter
from dataclasses import dataclass

from .evaluation import ROWS
from .layers import StackConfig
from .layers.attention import BLOCK
from .models import (
    BERTConfig,
    CaptionerConfig,
    CLIPConfig,
    GPTConfig,
    ModelConfig,
    StacksConfig,
    TransformerConfig,
    ViTConfig,
)
from .training.parallel.shards import TreeSum

Counted = StacksConfig | GPTConfig | BERTConfig | ViTConfig | CLIPConfig
"""The configurations of models that are made of blocks, whose operations are counted here."""

FLOAT_BYTES = 4
LAYER_BYTES = 20_000
"""The memory that the Python objects of a Transformer's layer take, beside its parameters."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations for one source token and for one target token, forward.

    A model that only encodes has no targets, and one that only decodes no sources: there the number is 0.
    """

    source: float
    target: float

    @property
    def training(self) -> float:
        """A training step's, per source or target token: the backward has two products for each of the forward."""
        return 3 * (self.source + self.target) / ((self.source > 0) + (self.target > 0))


def parameter_groups(config: TransformerConfig) -> dict[str, int]:
    """Return the number of parameters of each part, in the order of the model."""
    groups = Counter[str]()
    for name, size in config.parameter_sizes().items():
        groups[_part(name)] += size
    return dict(groups)


def num_parameters(config: ModelConfig) -> int:
    """Return the number of parameters, tied ones once, without making the model."""
    return config.num_parameters


def flops_per_token(config: Counted, length: int) -> Flops:
    """Return the forward's floating-point operations per token, with `length` tokens in source and in target.

    Only matrix products count; the rest is a few percent. `(m, k) @ (k, n)` takes 2·m·k·n operations. So a weight costs
    2 for each token, and a query over n keys costs 2·n·(d_k + d_v) in each of H heads, for `query keyᵀ` and for the
    weighted sum. Let Q = 2·C·H·(d_k + d_v) be the cost of attention's projections of queries and outputs, K the same
    with H_k heads, that of keys and values, and S = 2·n·H·(d_k + d_v), or 2·(H + H_k)·d_k·(d_v + 1) where attention is
    linear, token by token: causal, a whole text takes 2·64·H·(d_k + d_v + 1) more, since 64 tokens at a time meet each
    other too. The feed-forward network has M = 2 matrices, or 3 where it is gated:

        encoder layer, for a source token    Q + K (projections) + S + 2·M·C·F (feed-forward)
        decoder layer, for a target token    Q + K + S (self) + Q + S (cross: query, output) + 2·M·C·F
        decoder layer, for a source token    K (cross: keys and values of the memory)
        output layer, for a target token     2·C·V

    BERT's masked head adds 2·C·(C + V) for each token, that of tokens' classes 2·C·classes. What happens once a text
    is divided by its tokens: BERT's pooler and classes, 2·C·(C + classes); ViT's patches and classes, for images, whose
    `length` is their own. A captioner's source tokens are patches: 2·C·channels·size² more for each. A CLIP's are
    its pictures' patches and class tokens, and its target tokens those of its texts; each picture and each text has a
    projection.

    Masks save nothing: the products are computed in full and then masked. The saving by a window or a sparse pattern on
    long sequences is left out.
    """
    width = config.d_model
    if isinstance(config, ViTConfig):
        tokens = config.num_tokens
        patches = 2 * config.num_patches * config.channels * config.patch_size**2 * width
        classes = 2 * width * config.num_classes * (1 + (config.distillation == "head"))
        return Flops(_stack(config.encoder, tokens)[0] + (patches + classes) / tokens, 0)
    if isinstance(config, CLIPConfig):
        vectors, projection = 1 + config.num_patches, 2 * width * config.embedding
        patches = 2 * config.num_patches * config.channels * config.patch_size**2 * width
        pictures, texts = _stack(config.picture_encoder, vectors)[0], _stack(config.text_encoder, length)[0]
        return Flops(pictures + (patches + projection) / vectors, texts + projection / length)
    if isinstance(config, BERTConfig):
        heads = {"masked": width + config.vocab_size, "classes": (width + config.num_classes) / length}
        heads |= dict.fromkeys(("tokens", "answer"), config.num_classes)
        return Flops(_stack(config.encoder, length)[0] + 2 * width * heads.get(config.head, 0), 0)
    memory, embedded = length, 0
    if isinstance(config, CaptionerConfig):
        memory, embedded = config.num_patches, 2 * config.channels * config.patch_size**2 * width
    encoded = 0 if isinstance(config, GPTConfig) else embedded + _stack(config.encoder, memory)[0]
    decoded, of_memory = _stack(config.decoder, length, memory)
    return Flops(encoded + of_memory, decoded + 2 * width * config.vocab_size)


def _stack(config: StackConfig, length: int, memory: int = 0) -> tuple[int, int]:
    """Return the operations of all blocks for one of their own tokens, and for one of the memory's."""
    block, attention, network = config.block, config.block.attention, config.block.feed_forward
    both = attention.d_k + attention.d_v
    queries, keys = (2 * block.d_model * heads * both for heads in (attention.num_heads, attention.kv_heads))  # Q, K
    within, across = (2 * keys * attention.num_heads * both for keys in (length, memory))  # S
    if attention.kind == "linear":
        within = 2 * (attention.num_heads + attention.kv_heads) * attention.d_k * (attention.d_v + 1)
    feed_forward = 2 * (2 + network.gated) * block.d_model * network.d_ff
    own = queries + keys + within + block.cross * (queries + across) + feed_forward
    return config.num_layers * own, config.num_layers * block.cross * keys


def training_bytes(config: TransformerConfig, num_parameters: int, tokens: int, length: int, threads: int) -> int:
    """Return the memory of a training step: weights, a gradient for each thread, Adam's two moments, activations.

    A batch has `tokens` source and `tokens` target tokens, in sentences of `length` tokens.
    """
    parameters = (1 + threads + 2) * num_parameters
    return FLOAT_BYTES * (parameters + tokens * activations(config, length))


def least_training_bytes(config: ModelConfig, threads: int, dtype: str = "float32") -> int:
    """Return the part of this memory that any batch needs, and that of the layers' objects in each thread.

    threads: how many gradients are kept, which for shards are those of `most_gradients`.
    """
    parameters = (1 + threads + 2) * config.num_parameters * (2 if dtype == "float64" else 1)
    return FLOAT_BYTES * parameters + LAYER_BYTES * config.num_layers_in_all * threads


def most_gradients(shards: range, threads: int) -> int:
    """Return the most gradients that a step keeps at a time: one for each thread, and the tree's sums of shards."""
    tree, most = TreeSum[None](lambda left, right: None), 0
    for start in range(shards.start, shards.stop, threads):
        together = range(start, min(start + threads, shards.stop))
        most = max(most, len(tree.sums) + len(together))
        for shard in together:
            tree.push(shard, None)
    return max(most, 1)


def activations(config: TransformerConfig, length: int) -> int:
    """Return how many numbers the backward needs of a source and a target token, with n = `length` tokens a sentence.

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


def cache_bytes(config: StacksConfig | GPTConfig, length: int = 1, in_bytes: bool = False) -> int:
    """Return the memory of the keys and values of `length` tokens, in all layers of the decoder.

    Linear attention keeps a state of one size instead. What a window lets go is left out. `in_bytes`: `ByteCache`.
    """
    attention = config.decoder.block.attention
    kept = FLOAT_BYTES * (attention.d_k + attention.d_v) * length
    if attention.kind == "linear":
        kept = FLOAT_BYTES * attention.d_k * (attention.d_v + 1)
    elif in_bytes:
        kept = (attention.d_k + attention.d_v + 2 * FLOAT_BYTES) * length
    return config.decoder.num_layers * attention.kv_heads * kept


def inference_bytes(
    config: StacksConfig | GPTConfig, num_parameters: int, length: int, beam: int, bits: int | None = None
) -> int:
    """Return the memory to write `length` tokens: weights, keys and values of each beam, and of an encoder's output.

    bits: 8 or 4, of a model whose matrices are in few bits.
    """
    weights = FLOAT_BYTES * num_parameters if bits is None else config.weight_bytes(bits=bits)
    memory = config.num_patches if isinstance(config, CaptionerConfig) else length
    return weights + config.decoder.block.cross * cache_bytes(config, memory) + beam * cache_bytes(config, length)


def reading_bytes(config: GPTConfig, length: int, in_blocks: bool = True, dtype: str = "float32") -> int:
    """Return the memory, beside the weights, in which `evaluation.text_nats` reads a window of `length` tokens.

    A token takes at most 8·C + 3·(queries, keys and values) + 8·F numbers, or in the place of 8·F two rows of scores in
    each head, four with a softcap or a bias; ROWS of them take 4·V for their logits. `in_blocks`: the backend computes
    the scores of BLOCK queries at a time where neither a bias nor a sparse pattern needs all of them.
    """
    block, attention = config.decoder.block, config.decoder.block.attention
    sparse = any(attention.of_layer(i).sparse is not None for i in range(config.num_layers))
    together = BLOCK if in_blocks and attention.relative is None and not sparse else length
    rows = 2 if attention.relative is None and attention.softcap is None else 4
    scores = rows * attention.num_heads * min(together, length)
    projected = attention.num_heads * attention.d_k + attention.kv_heads * (attention.d_k + attention.d_v)
    token = 8 * block.d_model + 3 * projected + max(8 * block.feed_forward.d_ff, scores)
    return (8 if dtype == "float64" else FLOAT_BYTES) * (length * token + 4 * min(ROWS, length) * config.vocab_size)


def _part(name: str) -> str:
    """Return the part that a parameter such as `encoder.layers.0.feed_forward.expand.weight` belongs to."""
    side, *names = name.split(".")
    if side == "tokens":
        return "embeddings (source, target, output: one table)"
    part = names[2] if names[0] == "layers" else names[0]
    part = "layer normalisation" if part.endswith("norm") else part.replace("_", "-")
    return f"{side}: {'learned positions' if part == 'embedding' else part}"
