"""Training on rewards: the texts of each step are drawn by the model as it is then, and somebody judges them.

    draw groups of texts → their rewards → advantages → weights of the drawn tokens → an ordinary training step

A rollout is what is drawn at once. With several `updates` of one rollout the policy moves away from the one that drew:
the ratio of the two corrects for it, and is clipped. All that is drawn follows from the seed, the number of the rollout
and the parameters, so a resumed training draws what the first one would have drawn.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any, Literal, Protocol

import numpy as np

from ..config import Config, choice, not_negative, positive, require, whole
from ..data.rows import Rows
from ..models import GPT, IGNORED, most_tokens
from .objectives import group_advantages, reward_loss_backward, reward_loss_forward, target_weights

Reward = Callable[[Sequence[str]], Sequence[float]]
"""What judges texts: it returns a number for each, higher for better ones."""

LARGEST = 1e30
"""The largest reward, above 0 or below: the square of a larger one is near the end of all numbers."""

MOST_TEXTS = 4096
"""The most texts of a group: all of a step are drawn together."""

VALIDATION = 1 << 62
"""The number of the rollout that validates: no step has it."""

BLOCK_LOGITS = 1 << 24
"""The logits that `score` computes at a time."""


class Writer(Protocol):
    """What draws texts from a language model: a `decoding.Generator`."""

    model: GPT
    forbidden: list[int]

    def encode(self, prompt: str) -> list[int]: ...
    def draw(self, prompts: Sequence[Sequence[int]], max_tokens: int, seed: int) -> list[list[int]]: ...
    def text_after(self, prompt: list[int], ids: list[int]) -> str: ...


@dataclass(frozen=True)
class RewardSettings(Config):
    """How a model is trained on rewards. Raises as `Config` does.

    kind     "reinforce" compares a text with the mean of the others in its group (Williams 1992, Kool et al. 2019);
             "grpo" also divides by the group's deviation, and clips (Shao et al. 2024)
    """

    kind: Literal["reinforce", "grpo"] = choice("reinforce", "grpo", default="grpo")
    group: int = whole(8, "texts of each prompt, which are compared with one another", least=2, most=MOST_TEXTS)
    max_tokens: int = whole(64, "the most tokens of a drawn text")
    updates: int = whole(1, "steps on the same texts before others are drawn; grpo")
    clip: float = positive(
        0.2, "how far the ratio of a token's probability to that at its drawing counts; grpo", most=1
    )
    kl: float = not_negative(0.5, "weight of the divergence from the model at the start, which keeps its language")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.kind == "grpo" or self.updates == 1, "updates is for grpo: reinforce draws texts for each step")


@dataclass(frozen=True, eq=False)
class WeightedRows(Rows):
    """A batch whose targets have weights, with its figures for the log."""

    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Rollout:
    """Texts that were drawn and judged: ids and targets `(B, T)`, log π_old and log π_ref of the targets `(B, T)`."""

    number: int
    ids: np.ndarray
    targets: np.ndarray
    advantages: np.ndarray
    log_probs: np.ndarray
    reference: np.ndarray | None
    figures: dict[str, float]


class Rollouts:
    """A dataset that a model writes itself: its batches are what `writer` draws, with weights from `reward`.

    prompts: the texts begin with these, drawn at random; the one prompt "" is a text's beginning. With one prompt all
    texts of a step are one group. reference: the model from which `settings.kl` keeps the policy; it is not trained.
    The reward gets the texts with their prompts. `kept` goes into the checkpoints. Raises `ValueError` for no prompt,
    for one that leaves no room, and for a `kl` without a reference.
    """

    def __init__(
        self,
        writer: Writer,
        reward: Reward,
        settings: RewardSettings,
        prompts: Sequence[str] = ("",),
        reference: GPT | None = None,
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        if not prompts:
            raise ValueError("there are no prompts, expected one or more")
        if writer.forbidden:  # a text is then drawn from another distribution than the model's
            raise ValueError(f"the model has {len(writer.forbidden)} tokens that its tokenizer lacks")
        if settings.kl and reference is None:
            raise ValueError(f"kl is {settings.kl}, which needs the reference from which it keeps the model")
        self.writer, self.reward, self.settings, self.reference = writer, reward, settings, reference
        self.kept, self.together = dict(kept or {}), settings.updates
        self.prompts, self.encoded = list(prompts), [writer.encode(prompt) for prompt in prompts]

    def __len__(self) -> int:
        """The number of prompts."""
        return len(self.prompts)

    def checksum(self) -> int:
        """Return the CRC-32 of the prompts, the settings and `kept`."""
        return zlib.crc32(json.dumps([self.prompts, self.settings.to_dict(), self.kept]).encode())

    def figures(self, tokens_per_batch: int) -> dict[str, float]:
        """Draw as many texts as a step has, the same ones for the same model; return their figures for the log."""
        rollout = RolloutBatches(self, tokens_per_batch, 0).draw(VALIDATION)
        return {f"validation_{name}": value for name, value in rollout.figures.items()}

    def batches(self, tokens_per_batch: int, seed: int | None, config: Any) -> "RolloutBatches":
        """Return the batches of a training: as many groups as fit into `tokens_per_batch`, at least one."""
        return RolloutBatches(self, tokens_per_batch, seed or 0)


class RolloutBatches:
    """The batches of `Rollouts`, each drawn when it is asked for."""

    def __init__(self, rollouts: Rollouts, tokens_per_batch: int, seed: int) -> None:
        self.rollouts, self.settings, self.seed = rollouts, rollouts.settings, seed
        longest = min(
            max(map(len, rollouts.encoded)) + self.settings.max_tokens, most_tokens(rollouts.writer.model.config)
        )
        self.num_groups = max(1, tokens_per_batch // (self.settings.group * longest))
        self._rollout: Rollout | None = None

    def __len__(self) -> int:
        """The number of batches in an epoch, in which each prompt is drawn about once."""
        return -(-len(self.rollouts) // self.num_groups) * self.settings.updates

    def batch(self, epoch: int, index: int) -> WeightedRows:
        """Return the batch of this number, with weights for the model as it is now."""
        number = (epoch * len(self) + index) // self.settings.updates
        if self._rollout is None or self._rollout.number != number:
            self._rollout = self.draw(number)
        return self._batch_of(self._rollout)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[WeightedRows]:
        """Return the batches of `epoch` in order, from batch `start` on."""
        return (self.batch(epoch, index) for index in range(start, len(self)))

    def draw(self, number: int) -> Rollout:
        """Draw the texts of a rollout, and judge them."""
        rollouts, rng = self.rollouts, np.random.default_rng([self.seed, number])
        there = len(rollouts)
        rounds = [rng.permutation(there) for _ in range(-(-self.num_groups // there))]
        chosen = np.concatenate(rounds)[: self.num_groups]
        rows = np.repeat(chosen, self.settings.group).tolist()
        prompts = [rollouts.encoded[row] for row in rows]
        seed = int(rng.integers(2**63 - 1))
        drawn = rollouts.writer.draw(prompts, self.settings.max_tokens, seed)
        texts = [
            rollouts.prompts[row] + rollouts.writer.text_after(prompt, ids)
            for row, prompt, ids in zip(rows, prompts, drawn, strict=True)
        ]
        rewards = judged(rollouts.reward, texts)
        groups = rewards.reshape((1, -1) if there == 1 else (-1, self.settings.group))
        advantages = group_advantages(groups, divided=self.settings.kind == "grpo").reshape(-1)
        ids, targets = rows_of(prompts, drawn)
        log_probs, entropy = score(rollouts.writer.model, ids, targets)
        counted = targets != IGNORED
        reference = None if rollouts.reference is None else score(rollouts.reference, ids, targets)[0]
        figures = {
            "reward": float(rewards.mean()),
            "entropy": float(entropy[counted].mean()),
            "length": float(np.mean([len(each) for each in drawn])),
            "distinct": len(set(texts)) / len(texts),
        }
        if reference is not None:
            delta = (reference - log_probs)[counted].astype(np.float64)
            figures["kl"] = float(np.mean(np.expm1(delta) - delta))
        return Rollout(number, ids, targets, advantages, log_probs, reference, figures)

    def _batch_of(self, rollout: Rollout) -> WeightedRows:
        """Return a rollout's rows with the weights that give its objective's gradient for the model as it is now."""
        settings, counted = self.settings, rollout.targets != IGNORED
        log_probs = rollout.log_probs
        if settings.updates > 1:
            log_probs = score(self.rollouts.writer.model, rollout.ids, rollout.targets)[0]
        clip = settings.clip if settings.kind == "grpo" else None
        loss, cache = reward_loss_forward(
            log_probs, rollout.log_probs, rollout.advantages, counted, rollout.reference, clip, settings.kl
        )
        weights = target_weights(reward_loss_backward(1.0, cache), counted).astype(log_probs.dtype)
        figures = {"loss": float(loss), **rollout.figures}
        return WeightedRows((rollout.ids, rollout.targets), masks={"weights": weights}, figures=figures)


def judged(reward: Reward, texts: Sequence[str]) -> np.ndarray:
    """Return the rewards of texts, `(B,)`. Raises `ValueError` unless the reward gives a finite number for each."""
    given, rewards = reward(list(texts)), None
    with suppress(TypeError, ValueError, OverflowError):
        rewards = np.asarray(given, np.float64)
    if rewards is None or rewards.shape != (len(texts),) or not (np.abs(rewards) <= LARGEST).all():
        raise ValueError(
            f"the reward returned {shortened(given)}, expected {len(texts)} numbers up to {LARGEST:g}, one a text"
        )
    return rewards


def rows_of(prompts: Sequence[Sequence[int]], drawn: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and targets `(B, T)` of texts: what was drawn is a target, a prompt and padding do not count."""
    length = max(len(prompt) + len(ids) for prompt, ids in zip(prompts, drawn, strict=True)) - 1
    ids, targets = np.zeros((len(drawn), length), np.int64), np.full((len(drawn), length), IGNORED, np.int64)
    for row, (prompt, text) in enumerate(zip(prompts, drawn, strict=True)):
        both = [*prompt, *text]
        ids[row, : len(both) - 1] = both[:-1]
        targets[row, len(prompt) - 1 : len(both) - 1] = text
    return ids, targets


def score(model: GPT, ids: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log π of the targets, and the entropy of π where they stand, `(B, T)`; 0 where a target does not count."""
    ops, counted = model.ops, targets != IGNORED
    log_probs, entropy = np.zeros((2, *ids.shape), model.dtype)
    rows = max(1, BLOCK_LOGITS // max(1, ids.shape[1] * model.config.vocab_size))
    for start in range(0, len(ids), rows):
        part = slice(start, start + rows)
        logits, _ = model.output.logits(model.hidden_states(ids[part]))
        wanted = ops.asarray(np.where(counted[part], targets[part], 0))
        log_probs[part] = ops.to_numpy(ops.log_probs.forward(logits, wanted)[0])
        entropy[part] = ops.to_numpy(ops.entropy.forward(logits)[0])
    return log_probs * counted, entropy * counted
