"""The likelihood of the targets under a model, for every kind of model that is trained here."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import PAD_ID, Batch
from minitransformer.data.rows import Rows
from minitransformer.models import BERT, IGNORED


def question(model: Any, batch: Batch | Rows) -> tuple[tuple[Any, ...], dict[str, Any], NDArray[np.int64]]:
    """The arguments and options of `model.forward`, and the targets `(B, T)` of its logits: −100 does not count."""
    if isinstance(batch, Batch):
        targets = np.where(batch.target_out == PAD_ID, IGNORED, batch.target_out)
        return (batch.source, batch.target_in), {}, targets
    options = {"mask": batch.inputs[3]} if isinstance(model, BERT) else {}
    return batch.inputs[:1], options, batch.targets


def target_losses(logits: Any, targets: NDArray[np.int64], model: Any) -> NDArray[np.float64]:
    """Minus the log-probability of each target, logits `(B, T, V)`, targets `(B, T)`; 0 where it does not count."""
    log_probs = model.ops.to_numpy(model.ops.log_softmax(logits))
    real = targets != IGNORED
    picked = np.take_along_axis(log_probs, np.where(real, targets, 0)[..., None], axis=-1)[..., 0]
    return -(picked * real).astype(np.float64)


def row_losses(model: Any, batch: Batch | Rows, skip: int = 0) -> NDArray[np.float64]:
    """For each row minus the log-probability of its targets, but for the first `skip`, and their number: `(N, 2)`."""
    arguments, options, targets = question(model, batch)
    targets = np.where(np.arange(targets.shape[1]) >= skip, targets, IGNORED)
    losses = target_losses(model.forward(*arguments, **options)[0], targets, model)
    return np.stack([losses.sum(1), (targets != IGNORED).sum(1)], axis=1)
