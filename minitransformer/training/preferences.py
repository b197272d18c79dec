"""Training on preferences: pairs of texts of which one is better, without a reward (DPO; Rafailov et al. 2023).

The model becomes its own judge: `β log(π(y) / π_ref(y))` is the reward for which it is the best policy near the model
at the start, and the loss is that of a classifier which tells the better text by this reward.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..config import Config, positive
from ..data.rows import RowBatches
from ..models import GPT, IGNORED
from .objectives import implicit_rewards, preference_loss_backward, preference_loss_forward, target_weights
from .rewards import WeightedRows, rows_of, score

Pair = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""The ids of a prompt, of the better text after it, and of the worse one, with their end marks."""


@dataclass(frozen=True)
class PreferenceSettings(Config):
    """How a model is trained on preferences; `beta` is β. Raises as `Config` does."""

    beta: float = positive(0.1, "β of dpo: smaller lets the model go farther from that at the start")


class Preferences:
    """A dataset of pairs, for a model that is held near a `reference`, which is not trained.

    `kept` goes into the checkpoints. Raises `ValueError` for no pairs, and for an empty prompt or text.
    """

    together = 1

    def __init__(
        self,
        model: GPT,
        reference: GPT,
        pairs: Sequence[Pair],
        settings: PreferenceSettings,
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        if not pairs:
            raise ValueError("there are no pairs, expected one or more")
        for number, pair in enumerate(pairs, start=1):
            if not all(map(len, pair)):
                raise ValueError(f"pair {number} has an empty prompt or text")
        self.model, self.reference, self.pairs, self.settings = model, reference, list(pairs), settings
        self.kept = dict(kept or {})

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.pairs)

    def checksum(self) -> int:
        """Return the CRC-32 of all ids, the settings and `kept`."""
        ids = [[list(map(int, each)) for each in pair] for pair in self.pairs]
        return zlib.crc32(repr([ids, self.settings, self.kept]).encode())

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> RowBatches:
        """Return batches of as many pairs as fit into `tokens_per_batch`, at least one, each pair once an epoch.

        Raises `ValueError` for a text that is longer than the model's longest.
        """
        longest = max(len(prompt) + max(map(len, texts)) for prompt, *texts in self.pairs) - 1
        if longest > config.max_length:
            raise ValueError(f"a text has {longest} tokens, and the model's texts have at most {config.max_length}")
        size = max(1, tokens_per_batch // (2 * longest))
        return RowBatches(len(self), size, seed, lambda rows, epoch, rng: self.batch(rows.tolist()))

    def batch(self, rows: Sequence[int]) -> WeightedRows:
        """Return the texts of some pairs, the better ones first, with weights for the model as it is now."""
        chosen = [self.pairs[row] for row in rows]
        prompts = [pair[0] for pair in chosen] * 2
        ids, targets = rows_of(prompts, [*(pair[1] for pair in chosen), *(pair[2] for pair in chosen)])
        counted, beta = targets != IGNORED, self.settings.beta
        log_probs, reference = (score(model, ids, targets)[0] for model in (self.model, self.reference))
        loss, cache = preference_loss_forward(log_probs, reference, counted, beta)
        weights = target_weights(preference_loss_backward(1.0, cache), counted).astype(log_probs.dtype)
        better, worse = np.split(implicit_rewards(log_probs, reference, counted, beta), 2)
        figures = {
            "loss": loss,
            "margin": (better - worse).mean(),
            "agreement": ((better > worse) + 0.5 * (better == worse)).mean(),
        }
        return WeightedRows(
            (ids, targets), masks={"weights": weights}, figures={name: float(value) for name, value in figures.items()}
        )

    def figures(self, tokens_per_batch: int) -> dict[str, float]:
        """Return the loss of all pairs, and the share in which the better text has the higher implicit reward."""
        batches = self.batches(tokens_per_batch, None, self.model.config)
        found = [(batch.num_sentences, batch.figures) for batch in batches.epoch(0)]
        total = sum(size for size, _ in found)
        names = ("loss", "agreement")
        return {f"validation_{name}": sum(size * each[name] for size, each in found) / total for name in names}
