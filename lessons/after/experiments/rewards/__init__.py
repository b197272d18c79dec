"""Training on rewards: the grammar's GPT goes on with GRPO, and beside it with other lessons at equal cost.

Source: Shao et al. 2024 (GRPO); Rafailov et al. 2023 (DPO).
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from minitransformer.grammar import CONSTRUCTIONS, translate
from study.experiment import Context, Findings
from study.trials.bootstrap import MEAN, interval
from study.trials.trial import Answers, Trial, TrialResult

from ...predictions import predictions_of
from ...task import Texts
from . import plan
from .arms import REWARDS, seeded
from .judging import judge
from .plan import NAME, base_trial, hack, held, longer, loose, planned, trials
from .telling import draw, report

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "judge", "report", "trials"]

TITLE, MINUTES, ALONE = "Training on rewards", 30.0, 30.0


def find(context: Context[Texts]) -> Findings:
    """Return figures of the base's and every run's texts, and curves. Runs that were not made yet are left out."""
    task, scale, runner = context.task, context.scale, context.runner
    base = runner.result(base_trial(task))

    def made(trial: Trial, reward: str | None = None) -> list[dict[str, Any]]:
        try:
            result = runner.result(trial)
        except FileNotFoundError:
            return []
        found = summary(result)
        if reward is not None:
            found |= {"reward": reward, "before": rewarded(reward, base.answers())}
            found |= {} if result.diverged else {"after": rewarded(reward, result.answers())}
        return [found]

    return {
        "predictions": predictions_of(NAME),
        "base": {
            "parameters": base.parameters,
            "flops": base.flops,
            "perplexity": base.curve[-1]["perplexity"],
            "runs": [written(base.answers(name)) for name in base.evaluations],
        },
        "arms": {
            name: [run for seed in plan.SEEDS for run in made(seeded(trial, seed))]
            for name, trial in planned(task, scale).items()
        },
        "longer": made(longer(task, scale)),
        "loose": made(loose(task, scale)),
        "held": {f"{kl:g}": run for kl in plan.KLS for run in made(held(task, scale, kl))},
        "hacks": [
            {"weight": kl} | run for reward, kl in plan.HACKS for run in made(hack(task, scale, reward, kl), reward)
        ],
    }


def written(answers: Answers) -> dict[str, Any]:
    """Return the figures of one model's texts; `constructions` are the shares of texts that have each."""
    right, tokens, entropy = answers.statistics.T
    accepted = [text for text, each in zip(answers.hypotheses, right, strict=True) if each]
    used = [translate(text.strip()).constructions for text in accepted]
    return {
        "right": mean_of(right),
        "distinct": len(set(answers.hypotheses)) / len(right),
        "length": mean_of(tokens),
        "entropy": float(entropy.sum() / tokens.sum()),
        "constructions": {name: sum(name in each for each in used) / len(right) for name in CONSTRUCTIONS},
        "examples": answers.hypotheses[:6],
    }


def mean_of(values: Sequence[float]) -> dict[str, float]:
    """The mean over texts, with the interval of the texts."""
    return asdict(interval(MEAN, np.stack([np.asarray(values, np.float64), np.ones(len(values))], axis=1)))


def summary(result: TrialResult) -> dict[str, Any]:
    """Return a run's texts and cost in figures, and its curve: operations, share, divergence, reward of a step."""
    taken = ("steps", "flops", "seconds", "diverged")
    found: dict[str, Any] = {name: getattr(result, name) for name in taken}
    if result.diverged is None:
        names = ("operations", "validation_reward", "validation_kl", "reward")
        found["curve"] = [[point.get(name) for name in names] for point in result.curve]
        last = result.curve[-1]
        found |= {"kl": last["validation_kl"], "perplexity": last["perplexity"], **written(result.answers())}
    return found


def rewarded(reward: str, answers: Answers) -> dict[str, float]:
    """The mean of a reward of texts, with the interval of the texts."""
    return mean_of(REWARDS[reward](answers.hypotheses))
