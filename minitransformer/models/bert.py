"""BERT: an encoder alone, which fills gaps in a text or classifies it. Source: Devlin et al. 2019."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

from ..config import SMALLEST, choice, positive, rate, require, whole
from ..layers import (
    IGNORED,
    PLAIN,
    AttentionConfig,
    BlockConfig,
    Context,
    DropoutStream,
    FeedForwardConfig,
    InitConfig,
    Layer,
    Linear,
    Norm,
    NormConfig,
    OutputLayer,
    Parameter,
    Stack,
    StackConfig,
    TokenEmbedding,
)
from ..layers.feed_forward import Activation, activation_field
from ..ops import Array, Ops, without_spurious_warnings
from ..ops.initialize import constant
from .config import TextConfig, head_width, require_below
from .model import Model

HeadKind = Literal["masked", "classes", "tokens", "answer", "none", "hidden"]
"""The heads that a configuration may name."""


@dataclass(frozen=True)
class BERTConfig(TextConfig):
    """The hyper-parameters of a BERT; the defaults are its base model, of 110 million parameters.

    `head` says what the model gives:

        masked   the logits of each token that was masked
        classes  the logits of `num_classes` classes of the text, from the first token, pooled
        tokens   the logits of `num_classes` classes of each token
        answer   two logits of each token: that an answer begins here, and that it ends here
        none     the hidden states, with a pooler beside them
        hidden   the hidden states alone

    Position t has row `first_position + t` of the table of positions: RoBERTa leaves out its first rows. DistilBERT has
    no `token_types`, and its pooler has another activation. Raises `ValueError` or `TypeError` for values that give no
    model.
    """

    kind: ClassVar[str] = "bert"

    vocab_size: int = whole()
    d_model: int = whole(768, "width of the model")
    num_heads: int = whole(12, "attention heads; they share d_model")
    d_ff: int = whole(3072, "width inside the feed-forward layers")
    num_layers: int = whole(12, "layers")
    max_length: int = whole(512, "longest sequence in tokens")
    token_types: int = whole(2, "sentences that a text may have; 0: they are not told apart", least=0)
    first_position: int = whole(0, least=0)
    dropout: float = rate(0.1, "rate on the embeddings and on the output of each sub-layer")
    attention_dropout: float = rate(0.1, "rate on the attention weights")
    activation: Activation = activation_field("gelu")
    norm_eps: float = positive(1e-12, "what layer normalisation adds to the variance", SMALLEST, 1)
    init_std: float = positive(0.02, "standard deviation of the matrices at the start", SMALLEST)
    head: HeadKind = choice(*get_args(HeadKind), default="masked")
    pooler_activation: Literal["tanh", "relu"] = choice("tanh", "relu", default="tanh")
    num_classes: int = whole(2)
    pad_id: int = whole(0, least=0)
    mask_id: int | None = whole(None, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_below(self, "pad_id", "mask_id")
        fits = self.head != "answer" or self.num_classes == 2
        require(fits, f"num_classes is {self.num_classes}: an answer has two ends")
        _ = self.encoder  # each part checks itself

    @property
    def encoder(self) -> StackConfig:
        """The configuration of the stack: post-norm blocks, in which every position sees all others."""
        width = head_width(self.d_model, self.num_heads)
        block = BlockConfig(
            AttentionConfig(self.num_heads, width, width, dropout=self.attention_dropout),
            FeedForwardConfig(self.d_ff, self.activation),
            NormConfig(eps=self.norm_eps),
            d_model=self.d_model,
            dropout=self.dropout,
            init=InitConfig(std=self.init_std),
        )
        return StackConfig(
            block,
            self.num_layers,
            "learned",
            self.first_position + self.max_length,
            embedding_norm=True,
            token_types=self.token_types or None,
            embedding_std=self.init_std,
        )


class MaskedHead(Layer):
    """The logits of masked tokens: `LayerNorm(activation(h W + b)) tableᵀ + bias`. Source: Devlin et al. 2019, §3.1."""

    def __init__(self, ops: Ops, config: BERTConfig, tokens: TokenEmbedding) -> None:
        super().__init__(ops)
        self.transform = Linear(ops, config.d_model, config.d_model, std=config.init_std)
        self.activation = ops.activation_named(config.activation)
        self.norm = Norm(ops, config.d_model, config.encoder.block.norm)
        self.bias = Parameter((config.vocab_size,), constant(0.0))
        self.output = OutputLayer(ops, tokens.table, self.bias)

    def forward(self, hidden: Array, context: Context = PLAIN) -> tuple[Array, tuple]:
        """hidden `(..., C)` → logits `(..., V)`."""
        x, transform_cache = self.transform.forward(hidden)
        x, active_cache = self.activation.forward(x)
        x, norm_cache = self.norm.forward(x)
        logits, logits_cache = self.output.logits(x)
        return logits, (transform_cache, active_cache, norm_cache, logits_cache)

    def backward(self, dlogits: Array, cache: tuple) -> Array:
        """Return dhidden; add into the gradients of the parameters and of the table of tokens."""
        transform_cache, active_cache, norm_cache, logits_cache = cache
        dx = self.norm.backward(self.output.logits_backward(dlogits, logits_cache), norm_cache)
        return self.transform.backward(self.activation.backward(dx, active_cache), transform_cache)


class HiddenStates(Layer):
    """The hidden states as they are."""

    def __init__(self, ops: Ops, config: BERTConfig) -> None:
        super().__init__(ops)

    def forward(self, hidden: Array, context: Context) -> tuple[Array, Any]:
        """hidden `(B, T, C)` → the same."""
        return hidden, None

    def backward(self, dout: Array, cache: Any) -> Array:
        """Return dhidden `(B, T, C)`, which is dout."""
        return dout


class Pooler(HiddenStates):
    """The hidden states; beside them, `activation(h₀ W + b)` of the first token's stands for a whole text."""

    def __init__(self, ops: Ops, config: BERTConfig) -> None:
        super().__init__(ops, config)
        self.pooler = Linear(ops, config.d_model, config.d_model, std=config.init_std)
        self.activation = ops.tanh if config.pooler_activation == "tanh" else ops.relu

    def pool(self, hidden: Array) -> tuple[Array, tuple]:
        """hidden `(B, T, C)` → `(B, C)`. Raises ValueError for texts without a token."""
        require(hidden.shape[1] > 0, "ids has texts without a token, and a text's class is told by its first")
        x, pooler_cache = self.pooler.forward(hidden[:, 0])
        pooled, active_cache = self.activation.forward(x)
        return pooled, (pooler_cache, active_cache, hidden)

    def pool_backward(self, dpooled: Array, cache: tuple) -> Array:
        """Return dhidden, zero but for the first token; add into the parameters' gradients."""
        pooler_cache, active_cache, hidden = cache
        dhidden = self.ops.zeros(tuple(hidden.shape), hidden.dtype)
        dhidden[:, 0] = self.pooler.backward(self.activation.backward(dpooled, active_cache), pooler_cache)
        return dhidden


class ClassHead(Pooler):
    """The logits of a text's classes: `Dropout(p) W + b` of the pooled first token p."""

    def __init__(self, ops: Ops, config: BERTConfig) -> None:
        super().__init__(ops, config)
        self.rate = config.dropout
        self.classes = Linear(ops, config.d_model, config.num_classes, std=config.init_std)

    def forward(self, hidden: Array, context: Context) -> tuple[Array, tuple]:
        """hidden `(B, T, C)` → logits `(B, classes)`."""
        pooled, pool_cache = self.pool(hidden)
        # A mask belongs to a text's number, so each text is a row of one token: (B, 1, C).
        pooled, dropout_cache = self.ops.dropout.forward(pooled[:, None], context.dropout_at(self.site, self.rate))
        logits, classes_cache = self.classes.forward(pooled[:, 0])
        return logits, (pool_cache, dropout_cache, classes_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dhidden `(B, T, C)`; add into the parameters' gradients."""
        pool_cache, dropout_cache, classes_cache = cache
        dpooled = self.classes.backward(dout, classes_cache)[:, None]
        return self.pool_backward(self.ops.dropout.backward(dpooled, dropout_cache)[:, 0], pool_cache)


class TokenHead(Layer):
    """The logits of each token's classes, `Dropout(h) W + b`, or of both ends of an answer, `h W + b`."""

    def __init__(self, ops: Ops, config: BERTConfig) -> None:
        super().__init__(ops)
        self.rate = config.dropout if config.head == "tokens" else 0.0
        self.classes = Linear(ops, config.d_model, config.num_classes, std=config.init_std)

    def forward(self, hidden: Array, context: Context) -> tuple[Array, tuple]:
        """hidden `(B, T, C)` → logits `(B, T, classes)`."""
        dropped, dropout_cache = self.ops.dropout.forward(hidden, context.dropout_at(self.site, self.rate))
        logits, classes_cache = self.classes.forward(dropped)
        return logits, (dropout_cache, classes_cache)

    def backward(self, dout: Array, cache: tuple) -> Array:
        """Return dhidden `(B, T, C)`; add into the parameters' gradients."""
        dropout_cache, classes_cache = cache
        return self.ops.dropout.backward(self.classes.backward(dout, classes_cache), dropout_cache)


HEADS = {"classes": ClassHead, "tokens": TokenHead, "answer": TokenHead, "none": Pooler, "hidden": HiddenStates}
"""The heads that need no table of tokens."""


class BERT(Model[BERTConfig]):
    """A stack of blocks over token ids `(B, T)` in which every position sees all others, and a head."""

    def _build(self, ops: Ops) -> None:
        config = self.config
        self.tokens = TokenEmbedding(ops, config.vocab_size, config.d_model, 1.0, config.init_std)
        self.encoder = Stack(ops, config.encoder, self.tokens, self.dtype)
        masked = config.head == "masked"
        self.head = MaskedHead(ops, config, self.tokens) if masked else HEADS[config.head](ops, config)

    def with_head(self, head: HeadKind, num_classes: int = 2, seed: int = 0) -> Self:
        """Return a model with a copy of this one's encoder and a new head, drawn from `seed`: a fine-tuning's start.

        Source: Devlin 2019, §3.2.
        """
        if self.bits is not None:
            raise ValueError(f"a model in {self.bits} bits gets no new head: give one to the model in float")
        config = replace(self.config, head=head, num_classes=num_classes)
        model = type(self)(config, self.ops, self.dtype, seed)
        ours, theirs = self.parameters.state_dict(), model.parameters.state_dict()
        model.parameters.load_state_dict(
            {name: value if name.startswith("head.") else ours[name] for name, value in theirs.items()}
        )
        return model

    @without_spurious_warnings
    def forward(
        self,
        ids: Array,
        token_types: Array | None = None,
        mask: Array | None = None,
        dropout: DropoutStream | None = None,
    ) -> tuple[Array, tuple]:
        """ids `(B, T)` → logits `(B, T, V)`, `(B, classes)`, `(B, T, classes)`, or hidden states `(B, T, C)`.

        token_types `(B, T)` are 0 for the first sentence of a text and 1 for the second, by default all 0; mask
        `(B, T)` is `True` where a token is real. Raises `ValueError` for an id outside the vocabulary and for a
        sequence longer than `config.max_length`.
        """
        hidden, encoder_cache, context = self._encode(ids, token_types, mask, dropout)
        out, head_cache = self.head.forward(hidden, context)
        return out, (encoder_cache, head_cache, out.shape)

    @without_spurious_warnings
    def backward(self, dout: Array, cache: tuple) -> None:
        """Take the gradient of what `forward` returned; add into the gradient of every parameter."""
        encoder_cache, head_cache, shape = cache
        self.encoder.backward(self.head.backward(self._received(dout, shape), head_cache), encoder_cache)

    @without_spurious_warnings
    def loss(
        self,
        ids: Array,
        targets: Array,
        token_types: Array | None = None,
        mask: Array | None = None,
        label_smoothing: float = 0.0,
        dropout: DropoutStream | None = None,
        with_grad: bool = True,
    ) -> tuple[Array, tuple]:
        """Return the mean cross-entropy of masked tokens or of tokens' classes, targets `(B, T)` with −100 elsewhere.

        Or of texts' classes `(B,)`, or of the places of an answer's first and last token `(B, 2)`. Only masked
        positions go through the masked head.
        """
        hidden, encoder_cache, context = self._encode(ids, token_types, mask, dropout, with_grad is not False)
        targets = self.ops.asarray(targets)
        if isinstance(self.head, MaskedHead):
            if tuple(targets.shape) != tuple(hidden.shape[:2]):
                raise ValueError(f"targets have shape {tuple(targets.shape)}, expected that of ids")
            wanted = targets.reshape(-1)
            places = self.ops.asarray((self.ops.to_numpy(wanted) != IGNORED).nonzero()[0], "int64")
            table = hidden.reshape(len(wanted), hidden.shape[2])
            rows, rows_cache = self.ops.embedding.forward(places, table)  # (N, C)
            logits, head_cache = self.head.forward(rows)
            loss, loss_cache = self.ops.cross_entropy.forward(logits, self.ops.take(wanted, places), label_smoothing)
            return loss, (encoder_cache, (hidden.shape, rows_cache), head_cache, loss_cache)
        if not isinstance(self.head, ClassHead | TokenHead):
            raise ValueError("a model without a head has no loss")
        logits, head_cache = self.head.forward(hidden, context)
        logits = logits.swapaxes(1, 2) if self.config.head == "answer" else logits  # (B, 2, T): classes are places
        ignored = IGNORED if self.config.head == "tokens" else None
        loss, loss_cache = self.ops.cross_entropy.forward(logits, targets, label_smoothing, ignored)
        return loss, (encoder_cache, None, head_cache, loss_cache)

    @without_spurious_warnings
    def loss_backward(self, dloss: float, cache: tuple) -> None:
        """Add `dloss` times the loss's gradient into the gradient of every parameter."""
        encoder_cache, rows_cache, head_cache, loss_cache = cache
        dlogits = self.ops.cross_entropy.backward(dloss, loss_cache)
        dlogits = dlogits.swapaxes(1, 2) if self.config.head == "answer" else dlogits
        dhidden = self.head.backward(dlogits, head_cache)
        if rows_cache is not None:
            shape, rows_cache = rows_cache
            dhidden = self.ops.embedding.backward(dhidden, rows_cache).reshape(shape)
        self.encoder.backward(dhidden, encoder_cache)

    @without_spurious_warnings
    def hidden_states(self, ids: Array, token_types: Array | None = None, mask: Array | None = None) -> Array:
        """Return the last layer's output `(B, T, C)` for inputs as `forward` takes them, whichever head there is."""
        return self._encode(ids, token_types, mask, None, keep=False)[0]

    def pooled(self, hidden: Array) -> Array:
        """Hidden states `(B, T, C)` → `(B, C)`, what stands for the whole text; not for a model without a pooler."""
        if not isinstance(self.head, Pooler):
            raise ValueError(f"a model with the head {self.config.head!r} has no pooler")
        return self.head.pool(hidden)[0]

    def _encode(
        self, ids: Any, token_types: Any, mask: Any, dropout: DropoutStream | None, keep: bool = True
    ) -> tuple[Array, tuple, Context]:
        ids = self._ids("ids", ids)
        if token_types is None:
            token_types = ids * 0
        context = Context(
            self._mask("mask", mask, ids),
            dropout=dropout,
            token_types=self._shaped("token_types", token_types, ids),
            start=self.config.first_position,
            keep=keep,
        )
        hidden, cache = self.encoder.forward(ids, context)
        return hidden, cache, context


BERTConfig.model = BERT
