"""The encoder–decoder Transformer of Vaswani et al. 2017, figure 1, with its backward pass."""

from collections.abc import Iterator

from ..ops import Array
from .config import TransformerConfig
from .model import Model
from .stacks import Decoder, Encoder, make_positions


class Transformer(Model[TransformerConfig]):
    """A model over token ids `(B, T)`, padded on the right with `config.pad_id`: see `Model` for the rest."""

    encoder: Encoder
    decoder: Decoder

    def _stacks(self, sites: Iterator[int]) -> tuple[Encoder, Decoder]:
        source_positions, target_positions = make_positions(self.ops, self.config, self.dtype)
        encoder = Encoder(self.ops, self.config, source_positions, sites)
        return encoder, Decoder(self.ops, self.config, target_positions, sites)

    def attention_maps(self, source: Array, target: Array) -> dict[str, list[Array]]:
        """Every layer's attention weights in host memory, by kind: `encoder`, `decoder` and `cross`.

        Each is `(B, H, Tq, Tk)`: how much each query takes from each key.
        """
        _, (encoder_cache, decoder_cache) = self._hidden(source, target, None)
        decoder, cross = self.decoder.weights(decoder_cache)
        maps = {"encoder": self.encoder.weights(encoder_cache), "decoder": decoder, "cross": cross}
        return {kind: [self.ops.to_numpy(weights) for weights in layers] for kind, layers in maps.items()}
