"""Batches of rows of one length, on which language models, masked models and classifiers are trained."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..models import IGNORED


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a batch. `inputs` are the arguments of the model's loss, B rows each or `None`; the second is targets.

    `masks` are arguments that it gets by name, B rows each. `first` is the number of the first row among all rows of a
    step: a row's dropout depends on its number.
    """

    inputs: tuple[NDArray[Any] | None, ...]
    first: int = 0
    masks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def targets(self) -> NDArray[np.int64]:
        """The targets `(B, …)`; −100 does not count."""
        targets = self.inputs[1]
        assert targets is not None
        return targets

    @property
    def num_sentences(self) -> int:
        """The number of rows, B."""
        return len(self.targets)

    @property
    def num_targets(self) -> int:
        """The number of targets that count."""
        return int(np.count_nonzero(self.targets != IGNORED))

    @property
    def num_tokens(self) -> int:
        """The number of tokens, padding included, or of images."""
        return self.targets.size

    def split(self, n: int) -> list[Self]:
        """Cut the rows into `n` parts, or fewer if there are not so many rows. Raises ValueError unless n ≥ 1."""
        return [
            replace(
                self,
                inputs=tuple(None if each is None else each[start:stop] for each in self.inputs),
                first=self.first + start,
                masks={name: each[start:stop] for name, each in self.masks.items()},
            )
            for start, stop in even_parts(self.num_sentences, n)
        ]


def even_parts(num_rows: int, n: int) -> Iterator[tuple[int, int]]:
    """Return the start and stop of each of `n` parts of about equally many rows; fewer parts if there are fewer rows.

    Raises ValueError unless n ≥ 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return pairwise(np.unique(np.linspace(0, num_rows, n + 1).round().astype(int)).tolist())


class RowBatches:
    """Batches of `size` rows out of `num_rows`, each row once an epoch; `seed` None keeps their order, for validation.

    `make(rows, epoch, rng)` makes the batch of the rows with these numbers; `rng` follows from the seed, the epoch and
    the number of the batch. Without a seed, all epochs equal the first.
    """

    def __init__(
        self,
        num_rows: int,
        size: int,
        seed: int | None,
        make: Callable[[NDArray[np.int64], int, np.random.Generator], Any],
    ) -> None:
        self._num_rows, self._size, self._seed, self._make = num_rows, size, seed, make
        self._order = lru_cache(maxsize=1)(self._shuffle)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return -(-self._num_rows // self._size)

    def batch(self, epoch: int, index: int) -> Any:
        """Return batch `index` of `epoch`. Raises IndexError if the epoch has fewer."""
        if not 0 <= index < len(self):
            raise IndexError(f"an epoch has batches 0 to {len(self) - 1}, got {index}")
        epoch = 0 if self._seed is None else epoch
        rows = self._order(epoch)[index * self._size : (index + 1) * self._size]
        return self._make(rows, epoch, np.random.default_rng([self._seed or 0, epoch, 1 + index]))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Return the batches of `epoch` in order, from batch `start` on."""
        return (self.batch(epoch, index) for index in range(start, len(self)))

    def _shuffle(self, epoch: int) -> NDArray[np.int64]:
        """Return the numbers of all rows in the order of the epoch."""
        if self._seed is None:
            return np.arange(self._num_rows)
        return np.random.default_rng([self._seed, epoch, 0]).permutation(self._num_rows)


def first_cut(seed: int | None, epoch: int, length: int) -> int:
    """Draw the first place at which an epoch cuts a stream into rows, the same for all batches; 0 without a seed."""
    return 0 if seed is None else int(np.random.default_rng([seed, epoch]).integers(length))
