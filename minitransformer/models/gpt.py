"""Decoder-only language models: GPT-2, Llama and what lies between them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from ..config import SMALLEST, choice, flag, ids, positive, rate, whole
from ..layers import (
    IGNORED,
    AttentionConfig,
    BiasConfig,
    BlockConfig,
    ByteCache,
    Cache,
    Context,
    DropoutStream,
    FeedForwardConfig,
    InitConfig,
    NormConfig,
    OutputLayer,
    RotaryConfig,
    SparseConfig,
    Stack,
    StackConfig,
    TokenEmbedding,
)
from ..layers.attention import AttentionBias, AttentionKind
from ..layers.feed_forward import Activation, activation_field
from ..layers.norm import ExtraNorms, NormKind
from ..ops import Array, Ops, without_spurious_warnings
from .config import TextConfig, head_width, require_below
from .decoding import Decoding
from .model import Model

BIASES = {"alibi": BiasConfig("alibi"), "relative": BiasConfig("t5")}
"""The positions that are biases of attention's scores."""


@dataclass(frozen=True)
class GPTConfig(TextConfig):
    """The hyper-parameters of a language model; the defaults are GPT-2's (Radford et al. 2019).

    `decoder` is the configuration of its stack. `d_k`, the width of a head, defaults to `d_model / num_heads`. `rotary`
    belongs to the positions "rotary", `sparse` adds keys to those in the window, and `bias` is the feed-forward
    network's. `extra_norms` says where there are more of them, `scale` multiplies scores (default: 1/√d_k), and logits
    stay between plus and minus `logits_softcap`. A text ends with `eos_id` or one of `other_eos_ids`.
    With `embedding_scale = 1 / init_std` vectors of tokens are as large as the sinusoids that are added to them.
    With `d_ff = 0` blocks are attention alone. Matrices start as N(0, init_std²), those before a residual connection
    smaller by the root of how many there are, `√(2 · num_layers)`. Raises `ValueError` or `TypeError` for values that
    give no model.
    """

    kind: ClassVar[str] = "gpt"

    vocab_size: int = whole()
    d_model: int = whole(768, "width of the model")
    num_heads: int = whole(12, "attention heads")
    d_ff: int = whole(3072, "width inside the feed-forward layers; 0: there are none", least=0)
    num_layers: int = whole(12, "layers")
    num_kv_heads: int | None = whole(None, "heads of keys and values, which heads of queries share (default: all)")
    d_k: int | None = whole(None, "width of a head (default: d_model / num_heads)")
    max_length: int = whole(1024, "longest sequence in tokens")
    dropout: float = rate(0.1, "rate on the embeddings and on the output of each sub-layer")
    attention_dropout: float = rate(0.1, "rate on the attention weights")
    positions: Literal["learned", "rotary", "alibi", "relative", "sinusoidal", "none"] = choice(
        *("learned", "rotary", "alibi", "relative", "sinusoidal", "none"),
        default="learned",
        help="how the model knows positions; relative: T5's bias, learned for ranges of distances",
    )
    rotary: RotaryConfig | None = None
    embedding_scale: float = positive(1.0, "what multiplies embeddings; sinusoids go with 1 / init_std")
    norm: NormKind = choice(*get_args(NormKind), default="layernorm", help="normalisation")
    norm_first: bool = flag(True, "normalise before each sub-layer, not after it")
    norm_eps: float = positive(1e-5, "what normalisation adds to the variance", SMALLEST, 1)
    norm_bias: bool = flag(True, "layer normalisation has a bias")
    extra_norms: ExtraNorms = choice(*get_args(ExtraNorms), default="none")
    activation: Activation = activation_field("gelu_tanh")
    gated: bool = flag(False, "the activation gates a second map: SwiGLU, GEGLU")
    bias: bool = flag(True, "the feed-forward network has biases")
    attention_bias: AttentionBias = choice(*get_args(AttentionBias), default=True, help="attention has biases")
    attention: AttentionKind = choice(*get_args(AttentionKind), default="softmax", help="kind of attention")
    window: int | None = whole(None, "attention reaches this many tokens back (default: all)", least=0)
    sparse: SparseConfig | None = None
    scale: float | None = positive(None)
    softcap: float | None = positive(None, "scores stay between plus and minus this")
    logits_softcap: float | None = positive(None)
    tied: bool = flag(True, "the output layer shares the table of tokens")
    init_std: float = positive(0.02, "standard deviation of the matrices at the start", SMALLEST)
    bos_id: int | None = whole(None, least=0)
    eos_id: int | None = whole(None, least=0)
    other_eos_ids: tuple[int, ...] = ids()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_below(self, "bos_id", "eos_id", "other_eos_ids")
        _ = self.decoder  # each part checks itself

    @property
    def decoder(self) -> StackConfig:
        """The configuration of the stack: each position sees those at or before it."""
        width = self.d_k or head_width(self.d_model, self.num_heads)
        attention = AttentionConfig(
            self.num_heads,
            width,
            width,
            self.window,
            self.attention_dropout,
            self.num_kv_heads,
            self.attention_bias,
            scale=self.scale,
            softcap=self.softcap,
            rotary=(self.rotary or RotaryConfig()) if self.positions == "rotary" else None,
            relative=BIASES.get(self.positions),
            kind=self.attention,
            sparse=self.sparse,
        )
        block = BlockConfig(
            attention,
            FeedForwardConfig(self.d_ff, self.activation, self.gated, self.bias),
            NormConfig(self.norm_first, self.norm_eps, self.norm, self.norm_bias, self.extra_norms),
            d_model=self.d_model,
            causal=True,
            dropout=self.dropout,
            init=InitConfig(std=self.init_std, residual_gain=((1 + (self.d_ff > 0)) * self.num_layers) ** -0.5),
        )
        positions = self.positions if self.positions in ("learned", "sinusoidal") else "none"
        return StackConfig(block, self.num_layers, positions, self.max_length, embedding_std=self.init_std)

    @property
    def endless(self) -> bool:
        """True if no table holds a vector or an angle for each position."""
        return self.positions in ("alibi", "relative", "none")

    @classmethod
    def gpt2(cls, vocab_size: int = 50257, **overrides: Any) -> "GPTConfig":
        """Return GPT-2's smallest model, of 124 million parameters. Source: Radford et al. 2019, table 2."""
        marks: dict[str, Any] = {"bos_id": vocab_size - 1, "eos_id": vocab_size - 1}
        return cls(vocab_size, **marks | overrides)

    @classmethod
    def llama(cls, vocab_size: int = 32_000, **overrides: Any) -> "GPTConfig":
        """Return Llama's parts, with the sizes of its smallest model, 6.7 billion parameters. Source: Touvron 2023.

        Pre-norm with RMS normalisation, SwiGLU, rotary positions, no biases and no dropout.
        """
        values = {
            "d_model": 4096,
            "num_heads": 32,
            "d_ff": 11_008,
            "num_layers": 32,
            "max_length": 2048,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "positions": "rotary",
            "norm": "rmsnorm",
            "norm_eps": 1e-6,
            "activation": "silu",
            "gated": True,
            "bias": False,
            "attention_bias": False,
            "tied": False,
        }
        return cls(vocab_size, **values | overrides)


class GPT(Model[GPTConfig]):
    """A stack of causal blocks over token ids `(B, T)`, which gives the logits of each next token."""

    def _build(self, ops: Ops) -> None:
        config = self.config
        self.tokens = TokenEmbedding(ops, config.vocab_size, config.d_model, config.embedding_scale, config.init_std)
        self.decoder = Stack(ops, config.decoder, self.tokens, self.dtype)
        own = None if config.tied else TokenEmbedding(ops, config.vocab_size, config.d_model, std=config.init_std)
        self.output = OutputLayer(ops, (own or self.tokens).table, softcap=config.logits_softcap)

    @without_spurious_warnings
    def forward(
        self, ids: Array, mask: Array | None = None, dropout: DropoutStream | None = None
    ) -> tuple[Array, tuple]:
        """ids `(B, T)` → logits `(B, T, V)` of each next token.

        mask `(B, T)` is `True` where a token is real; ids padded on the right need none. Raises `ValueError` for an id
        outside the vocabulary and for a sequence longer than `config.max_length`.
        """
        ids = self._ids("ids", ids)
        hidden, decoder_cache = self.decoder.forward(ids, Context(self._mask("mask", mask, ids), dropout=dropout))
        logits, logits_cache = self.output.logits(hidden)
        return logits, (decoder_cache, logits_cache, logits.shape)

    @without_spurious_warnings
    def backward(self, dlogits: Array, cache: tuple) -> None:
        """dlogits `(B, T, V)`: add into the gradient of every parameter."""
        decoder_cache, logits_cache, shape = cache
        self.decoder.backward(self.output.logits_backward(self._received(dlogits, shape), logits_cache), decoder_cache)

    @without_spurious_warnings
    def hidden_states(self, ids: Array) -> Array:
        """ids `(B, T)` → what the output layer turns into logits, `(B, T, C)`, with nothing kept for a backward."""
        return self.decoder.forward(self._ids("ids", ids), Context(keep=False))[0]

    @without_spurious_warnings
    def loss(
        self,
        ids: Array,
        targets: Array,
        label_smoothing: float = 0.0,
        dropout: DropoutStream | None = None,
        with_grad: bool = True,
        *,
        weights: Array | None = None,
    ) -> tuple[Array, tuple]:
        """Return the mean cross-entropy of targets `(B, T)`, the tokens after those of ids; −100 does not count.

        Weights `(B, T)` multiply the tokens' losses, such as by what a text was worth; the mean still divides by the
        number of targets.
        """
        ids = self._ids("ids", ids)
        hidden, decoder_cache = self.decoder.forward(ids, Context(dropout=dropout, keep=with_grad is not False))
        weights = None if weights is None else self._weights(weights, ids)
        loss, loss_cache = self.output.loss(hidden, targets, label_smoothing, IGNORED, with_grad, weights)
        return loss, (decoder_cache, loss_cache)

    @without_spurious_warnings
    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Add `dloss` times the loss's gradient into the gradient of every parameter."""
        decoder_cache, loss_cache = cache
        self.decoder.backward(self.output.loss_backward(dloss, loss_cache), decoder_cache)

    @without_spurious_warnings
    def start_decoding(self, source: Array, num_beams: int = 1, cache_in_bytes: bool = False) -> Decoding:
        """Read prompts `(B, T)`; return the state with which `decode_step` continues each prompt's K beams.

        With `cache_in_bytes` keys and values are kept in a byte each: see `ByteCache`.
        Shorter prompts are padded on the left with −100; T may be 0. Raises `ValueError` for −100 elsewhere, and as
        `forward` does.
        """
        if num_beams < 1:
            raise ValueError(f"num_beams is {num_beams}, expected 1 or more")
        prompts = self._ids("prompts", source)
        is_padding = prompts == IGNORED
        padded = bool(is_padding.any())
        if padded and (is_padding[:, 1:] & ~is_padding[:, :-1]).any():
            raise ValueError(f"prompts has {IGNORED} after a token: shorter prompts are padded on the left")
        cache = (ByteCache if cache_in_bytes else Cache)(self.ops, len(prompts), 1)
        state = Decoding(cache, padding=is_padding.sum(1) if padded else None)
        if prompts.shape[1]:
            self.read(prompts - prompts * is_padding, state)
        state.cache.spread(num_beams)
        return state

    @without_spurious_warnings
    def decode_step(self, ids: Array, state: Decoding) -> Array:
        """ids `(B, K)`, each beam's newest token → logits `(B, K, V)` of the next one.

        `state` moves on by one position. Raises `ValueError` beyond `config.max_length`.
        """
        hidden = self.read(state.newest(ids, self.most_tokens), state)  # (B·K, 1, C)
        return self.output.logits(hidden.reshape(*state.shape, hidden.shape[-1]))[0]

    @without_spurious_warnings
    def read(self, ids: Array, state: Decoding) -> Array:
        """Read the next tokens `(B·K, T)` of every beam; return their hidden states `(B·K, T, C)`."""
        hidden, _ = self.decoder.forward(ids, state.context(ids.shape[1]))
        state.cache.position += ids.shape[1]
        return hidden


GPTConfig.model = GPT
