"""Where a model's dropout keys come from."""

from dataclasses import dataclass

from ..ops import Dropout, dropout_key


@dataclass(frozen=True)
class DropoutStream:
    """The dropout of one training step: its seed, its number, and the number of the batch's first sentence.

    The model numbers its dropout sites; each takes its own mask from the stream. Replicas that work on parts of a batch
    get the same seed and step and the number of their first sentence, and so the masks that the whole batch would get.
    """

    seed: int
    step: int
    sentence: int = 0

    def at(self, site: int, rate: float) -> Dropout:
        """The dropout of one site."""
        return Dropout(rate, dropout_key(self.seed, self.step, site), self.sentence)


def dropout_at(stream: DropoutStream | None, site: int, rate: float) -> Dropout | None:
    """As `stream.at`; `None` without a stream (evaluation) or without a rate."""
    if not isinstance(stream, DropoutStream | None):
        raise TypeError(f"dropout must be a DropoutStream or None, got {type(stream).__name__}")
    return None if stream is None or rate == 0 else stream.at(site, rate)
