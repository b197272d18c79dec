"""The encoder–decoder Transformer of Vaswani et al. 2017, figure 1, with its backward pass."""

from ..layers import SinusoidalPositions, Stack
from ..ops import Array, Ops
from ..probe import Call, probe
from .config import TransformerConfig
from .encoder_decoder import EncoderDecoder


class Transformer(EncoderDecoder[TransformerConfig, Stack, Stack]):
    """Two stacks of blocks over token ids `(B, T)`, padded on the right: the paper's, T5 or Marian."""

    def _stacks(self, ops: Ops) -> tuple[Stack, Stack]:
        encoder = Stack(ops, self.config.encoder, self.tokens, self.dtype)
        places = encoder.embedding.positions
        shared = places if isinstance(places, SinusoidalPositions) else None
        return encoder, Stack(ops, self.config.decoder, self.tokens, self.dtype, shared)

    def attention_maps(self, source: Array, target: Array) -> dict[str, list[Array]]:
        """Every layer's attention weights in host memory, by kind: `encoder`, `decoder` and `cross`.

        A layer's array is `(B, H, Tq, Tk)`: how much each query takes from each key.
        """
        seen: list[Array] = []

        def note(call: Call) -> None:
            if call.op == "attention" and call.way == "forward":
                query, key, _, bias = call.arguments
                options = {name: value for name, value in call.options.items() if name != "dropout"}
                weights = self.ops.attention_weights(query, key, bias, **options)
                seen.append(self.ops.to_numpy(weights))

        self.replica(probe(self.ops, note)).forward(source, target)
        encoder, decoder = seen[: self.config.num_layers], seen[self.config.num_layers :]
        return {"encoder": encoder, "decoder": decoder[0::2], "cross": decoder[1::2]}
