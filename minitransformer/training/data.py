"""The data that a trainer takes: batches that follow from a seed, an epoch and a number in it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar


class TrainingBatch(Protocol):
    """Rows that a model's loss takes together; a frozen dataclass, of which `first` is a field.

    inputs         the inputs of `model.loss`, in its order
    masks          those that it gets by name
    first          the number of the first row among all rows of a step: a row's dropout depends on its number
    num_sentences  the number of rows
    num_targets    the number of targets that count: the loss is their mean
    num_tokens     the number of tokens, or of images, that are read and written

    A batch may also have `figures`, numbers by name for the log; a `loss` among them takes the place of the model's.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def inputs(self) -> tuple[Any, ...]: ...
    @property
    def masks(self) -> Mapping[str, Any]: ...
    @property
    def first(self) -> int: ...
    @property
    def num_sentences(self) -> int: ...
    @property
    def num_targets(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...

    def split(self, n: int) -> Sequence[Self]:
        """Return at most `n` parts of about the same size, with their rows' numbers."""
        ...


BatchT = TypeVar("BatchT", bound=TrainingBatch, covariant=True)


class TrainingBatches(Protocol[BatchT]):
    """The batches of a dataset: batch i of a whole training is `batch(*divmod(i, len(batches)))`."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        ...

    def batch(self, epoch: int, index: int) -> BatchT:
        """Return batch `index` of `epoch`; it does not depend on the batches made before it."""
        ...

    def epoch(self, epoch: int, start: int = 0) -> Iterator[BatchT]:
        """Return the batches of `epoch` in order, from batch `start` on."""
        ...


class Dataset(Protocol[BatchT]):
    """Data on which a model is trained or validated.

    One whose targets have weights, so that the gradient is that of an objective, also has `kept`, which goes into the
    checkpoints and must be the same where the training goes on, and `together`, the number of steps with the same drawn
    texts: a training does not end between them, since the model of then could not draw them again.
    """

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def checksum(self) -> int:
        """Return a number by which a resumed training recognises its data."""
        ...

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> TrainingBatches[BatchT]:
        """Return the batches for a model of this configuration; without a `seed` a validation's, the same each time.

        Raises ValueError if the data does not fit the configuration or the size of a batch.
        """
        ...
