"""The encoder–decoder Transformer of Vaswani et al. 2017, figure 1, with its backward pass."""

from ..inside import attention_maps
from ..layers import SinusoidalPositions, Stack
from ..ops import Array, Ops
from .config import StacksConfig
from .encoder_decoder import EncoderDecoder

SIDES = ("encoder", "decoder")


class Transformer(EncoderDecoder[StacksConfig, Stack, Stack]):
    """Two stacks of blocks over token ids `(B, T)`, padded on the right: the paper's, T5 or Marian.

    Its forward, loss and backward are those of every `EncoderDecoder`.
    """

    def _stacks(self, ops: Ops) -> tuple[Stack, Stack]:
        encoder = Stack(ops, self.config.encoder, self.tokens, self.dtype)
        positions = encoder.embedding.positions
        shared = positions if isinstance(positions, SinusoidalPositions) else None  # one table of sinusoids for both
        return encoder, Stack(ops, self.config.decoder, self.tokens, self.dtype, shared)

    def attention_maps(self, source: Array, target: Array) -> dict[str, list[Array]]:
        """Return every layer's attention weights in host memory, by kind: `encoder`, `decoder` and `cross`.

        A layer's array is `(B, H, Tq, Tk)`: how much each query takes from each key.
        """
        maps = attention_maps(self, source, target)
        cross = [name for name in maps if "cross" in name]
        own = {side: [name for name in maps if name.startswith(side) and name not in cross] for side in SIDES}
        return {kind: [maps[name] for name in names] for kind, names in {**own, "cross": cross}.items()}


StacksConfig.model = Transformer  # the class that `models.build_model` makes of such a configuration
