"""The plan of the runs: the base, four ways to go on from it at equal cost, and runs with other weights and rewards."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minitransformer.cli.recipes import RECIPES
from minitransformer.costs import flops_per_token
from minitransformer.models import GPTConfig
from minitransformer.training import TrainingSettings
from minitransformer.training.preferences import PreferenceSettings
from minitransformer.training.rewards import RewardSettings
from study.trials.run import lasting
from study.trials.text_models import TextTrial
from study.trials.trial import Trial

from ...task import VOCAB_SIZE, Texts
from .arms import LENGTH, MOST_TOKENS, SAMPLES, Accepted, Continued, Ordinary, Preferred, Rewarded, Writing, seeded

NAME = "rewards"

SENTENCES = 120_000
"""Sentences of the base's text: as many as `train --kind gpt --dataset grammar` takes."""

OPERATIONS, LONGER = 4.0e12, 4
"""The operations of each run that goes on, at scale 1: some two minutes of one core; and by how much one is longer."""

SEEDS = (0, 1, 2)

RIGHT, TOKENS, LONGEST = 0.789, 18.6, 38
"""The base's share of grammatical texts, its mean tokens, and the longest of 64 texts: steps are planned with these."""

TEXTS = 64
"""Texts of a step of GRPO, in groups of 8 that are judged as one; DPO has as many, in pairs."""

KL, KLS = 0.5, (0.0, 0.05, 2.0)
"""The weight of the divergence in GRPO, and those that it is compared with."""

PART = 0.5
"""The part of the operations that runs with a forgetful reward, or with a loose DPO, get."""

BETA, LOOSE_BETA = 1.0, 0.1
"""β of DPO, and one with which it may go farther from the base."""

BASE, REWARDED, ORDINARY, ACCEPTED, PREFERRED = "base", "GRPO", "ordinary", "accepted", "DPO"

PEAKS = {REWARDED: 5e-4, ORDINARY: 1e-3, ACCEPTED: 1e-3, PREFERRED: 1e-4}
"""The peak of each learning rate, after 20 steps; then it falls as 1/√step."""

HACKS = (("no word twice", 0.0), ("many words", 0.0), ("many words", KL))
"""Rewards that forget something, with the weight of the divergence."""


def base_trial(task: Texts) -> TextTrial:
    """The training of the grammar's GPT, by the recipe of `train --kind gpt --dataset grammar`."""
    recipe = RECIPES["gpt"]
    config = GPTConfig(VOCAB_SIZE, **recipe.model)
    written = tuple(Writing(f"writing {seed}", SAMPLES, seed=len(SEEDS) + seed) for seed in SEEDS)
    return TextTrial(f"{NAME} {BASE}", task.english(SENTENCES), config, TrainingSettings(**recipe.settings), written)


def planned(task: Texts, scale: float) -> dict[str, Continued]:
    """The runs that go on, by name, each for about the same operations."""
    base, operations = base_trial(task), scale * OPERATIONS
    config = replace(base.config, dropout=0.0)
    forward, of_rows = (flops_per_token(config, length).target for length in (LONGEST, LENGTH))

    def fields(name: str, tokens_per_batch: int, steps: float) -> dict[str, Any]:
        settings = TrainingSettings(
            tokens_per_batch=tokens_per_batch,
            peak_lr=PEAKS[name],
            warmup_steps=20,
            label_smoothing=0.0,
            clip_norm=1.0,
            threads=1,
        )
        shared = {"text": base.text, "config": config, "evaluations": (Writing(samples=SAMPLES),), "base": base}
        return shared | {"name": f"{NAME} {name}", "settings": lasting(settings, steps), "operations": operations}

    rewards = RewardSettings(max_tokens=MOST_TOKENS, kl=KL)
    drawn, padded = TEXTS * TOKENS, TEXTS * LONGEST
    steps = operations / (forward * (5 * padded + drawn))
    rewarded = Rewarded(**fields(REWARDED, TEXTS * (1 + MOST_TOKENS), steps), reward="grammar", rewards=rewards)
    tokens = operations / (3 * of_rows)
    ordinary = Ordinary(**fields(ORDINARY, 2048, tokens / 2048), sentences=round(1.05 * tokens / TOKENS))
    draws = operations / (TOKENS * (forward + 3 * RIGHT * of_rows))
    accepted = Accepted(**fields(ACCEPTED, 2048, draws * RIGHT * TOKENS / 2048), draws=round(draws))
    draws = operations / (forward * (TOKENS + (1 - RIGHT) * 2 * 5 * LONGEST))
    preferred = Preferred(
        **fields(PREFERRED, TEXTS * MOST_TOKENS, draws * (1 - RIGHT) / (TEXTS / 2)),
        draws=round(draws),
        preferences=PreferenceSettings(BETA),
    )
    return {REWARDED: rewarded, ORDINARY: ordinary, ACCEPTED: accepted, PREFERRED: preferred}


def held(task: Texts, scale: float, kl: float) -> Continued:
    """GRPO with another weight of the divergence; without one it takes no forward of the reference."""
    return _rewarded(task, scale, "grammar", kl)


def hack(task: Texts, scale: float, reward: str, kl: float) -> Continued:
    """GRPO with a reward that forgets something."""
    return _rewarded(task, PART * scale, reward, kl)


def longer(task: Texts, scale: float) -> Continued:
    """GRPO for `LONGER` times the operations."""
    return replace(planned(task, LONGER * scale)[REWARDED], name=f"{NAME} longer")


def loose(task: Texts, scale: float) -> Continued:
    """DPO that may go farther from the base, with a higher learning rate."""
    trial = planned(task, PART * scale)[PREFERRED]
    assert isinstance(trial, Preferred)
    settings = replace(trial.settings, peak_lr=2e-4)
    return replace(trial, name=f"{NAME} loose", preferences=PreferenceSettings(LOOSE_BETA), settings=settings)


def _rewarded(task: Texts, scale: float, reward: str, kl: float) -> Continued:
    trial = planned(task, scale)[REWARDED]
    assert isinstance(trial, Rewarded)
    return replace(trial, name=f"{NAME} {reward}, kl {kl:g}", reward=reward, rewards=replace(trial.rewards, kl=kl))


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """The base, each arm with every seed, and one run for each other weight and each forgetful reward."""
    of_seeds = [seeded(trial, seed) for seed in SEEDS for trial in planned(task, scale).values()]
    once = [*(held(task, scale, kl) for kl in KLS), *(hack(task, scale, *each) for each in HACKS)]
    return [base_trial(task), *of_seeds, *once, loose(task, scale), longer(task, scale)]
