"""A student and its teacher: pairs with the teacher's translations or probabilities, and the loss towards these.

Source: Kim & Rush 2016, "Sequence-Level Knowledge Distillation"; Hinton, Vinyals, Dean 2015.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import PAD_ID, Batch
from minitransformer.data.preparation import PreparedData
from minitransformer.data.rows import even_parts
from minitransformer.data.token_dataset import Batches, TokenDataset
from minitransformer.layers import DropoutStream
from minitransformer.models import Model, Transformer
from minitransformer.ops import Array, Ops
from minitransformer.training import Dataset
from minitransformer.training.checkpoint import load_checkpoint
from study.trials.translating import translations
from study.trials.trial import Trial, step_flops

SHARE = 0.5
"""The teacher's share of a target at word level; the other half is the right token. Source: Kim & Rush 2016, §3.1."""

BEAM = 4
"""The beam with which the teacher translates the training set."""


class _Soft(NamedTuple):
    """The cache of a loss towards probabilities, for its backward."""

    forward_cache: tuple
    loss_cache: tuple
    scale: float


class Student(Transformer):
    """A Transformer whose targets may be probabilities of all tokens, such as a teacher's."""

    def loss(
        self,
        source: Array,
        target_in: Array,
        target_out: Array,
        label_smoothing: float = 0.0,
        dropout: DropoutStream | None = None,
        with_grad: bool = True,
        *,
        source_mask: Array | None = None,
        weights: Array | None = None,
    ) -> tuple[Array, Any]:
        """The mean of `−Σ_v q_v log p_v` over the targets; target_out q `(B, Tt, V)`, 0 for all v where it is padding.

        For ids `(B, Tt)` it is the loss of every Transformer.
        """
        target_out = self.ops.asarray(target_out)
        if target_out.ndim == 2:
            options = {"source_mask": source_mask, "weights": weights}
            return super().loss(source, target_in, target_out, label_smoothing, dropout, with_grad, **options)
        logits, forward_cache = self.forward(source, target_in, dropout, source_mask=source_mask)
        loss, loss_cache = self.ops.cross_entropy.forward(logits, target_out, label_smoothing, weights=weights)
        # The op's mean is over all rows, padding included; rows of padding add 0, and must not count.
        real = (target_out.sum(-1) > 0).sum()
        scale = float(logits.shape[0] * logits.shape[1] / max(1, int(real)))
        return loss * logits.dtype.type(scale), _Soft(forward_cache, loss_cache, scale)

    def loss_backward(self, dloss: float, cache: Any) -> None:
        """Add `dloss` times the loss's gradient into the gradient of every parameter."""
        if not isinstance(cache, _Soft):
            super().loss_backward(dloss, cache)
            return
        self.backward(self.ops.cross_entropy.backward(dloss * cache.scale, cache.loss_cache), cache.forward_cache)


@dataclass(frozen=True, eq=False, kw_only=True)
class TaughtBatch(Batch):
    """Sentence pairs with the probabilities that are the student's targets, `wanted (B, Tt, V)`; 0 for padding."""

    wanted: NDArray[np.float32]

    @property
    def inputs(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:  # type: ignore[override]
        """The arguments of a student's loss."""
        return self.source, self.target_in, self.wanted

    def split(self, n: int) -> list["TaughtBatch"]:  # type: ignore[override]
        """Cut the rows into `n` parts, or fewer if there are not so many rows. Raises ValueError unless n ≥ 1."""
        return [
            TaughtBatch(
                self.source[start:stop],
                self.target_in[start:stop],
                self.target_out[start:stop],
                self.first + start,
                wanted=self.wanted[start:stop],
            )
            for start, stop in even_parts(self.num_sentences, n)
        ]


@dataclass(frozen=True)
class TaughtPairs:
    """Sentence pairs whose targets are `q = (1 − SHARE) · onehot + SHARE · softmax(logits of the teacher)`.

    The teacher's temperature is 1, so its gradients need no factor T² (Hinton, Vinyals, Dean 2015, §2).
    """

    pairs: TokenDataset
    teacher: Any

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.pairs)

    def checksum(self) -> int:
        """The CRC-32 of all ids and lengths."""
        return self.pairs.checksum()

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> "TaughtBatches":
        """The pairs' batches, each with its targets."""
        return TaughtBatches(self.pairs.batches(tokens_per_batch, seed, config), self.teacher)


@dataclass(frozen=True)
class TaughtBatches:
    """Batches to which the teacher adds its probabilities."""

    batches: Batches
    teacher: Any

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self.batches)

    def batch(self, epoch: int, index: int) -> TaughtBatch:
        """Batch `index` of `epoch`, with its targets."""
        batch = self.batches.batch(epoch, index)
        logits, _ = self.teacher.forward(batch.source, batch.target_in)  # (B, Tt, V)
        wanted = SHARE * self.teacher.ops.softmax.forward(logits)[0]
        rows, columns = np.indices(batch.target_out.shape)
        wanted[rows, columns, batch.target_out] += 1 - SHARE
        wanted[batch.target_out == PAD_ID] = 0
        return TaughtBatch(batch.source, batch.target_in, batch.target_out, batch.first, wanted=wanted)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TaughtBatch]:
        """The batches of `epoch` in order, from batch `start` on."""
        return (self.batch(epoch, index) for index in range(start, len(self)))


@dataclass(frozen=True, kw_only=True)
class StudentTrial(Trial):
    """The training of a student: on the teacher's translations (`sequences`), towards its probabilities (`words`)."""

    teacher: Trial
    words: bool = False
    sequences: bool = False

    @property
    def needs(self) -> tuple[Trial, ...]:
        """The teacher's training."""
        return (self.teacher,)

    def model(self, ops: Ops, dtype: str) -> Model[Any]:
        """The student."""
        return Student(self.config, ops, dtype, self.settings.seed)

    def material(self, data: PreparedData, models: Sequence[Path]) -> tuple[Dataset[Any], Dataset[Any]]:
        """The pairs, with the teacher's part in them; the validation set is the one of everybody."""
        (path,) = models
        teacher, train = load_checkpoint(path, with_optimizer=False).model(), data.train
        if self.sequences:
            sources = [source.tolist() for source, _ in train]
            train = TokenDataset.from_pairs(zip(sources, translations(teacher, sources, beam=BEAM), strict=True))
        return (TaughtPairs(train, teacher) if self.words else train), data.valid

    def describe(self) -> dict[str, Any]:
        """Everything that the result depends on, for JSON."""
        of_teacher = {"teacher": self.teacher.describe(), "words": self.words, "sequences": self.sequences}
        return super().describe() | of_teacher | {"share": SHARE, "beam": BEAM}

    @cached_property
    def weight(self) -> float:
        """The operations of the training, roughly, and of the teacher's forwards at word level."""
        own = super().weight
        return own * (1 + self.words * step_flops(self.teacher.config) / 3 / step_flops(self.config))
