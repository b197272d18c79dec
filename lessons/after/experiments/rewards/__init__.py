"""Training on rewards: the grammar's GPT goes on with GRPO, and beside it with other lessons at equal cost.

Source: Shao et al. 2024 (GRPO); Rafailov et al. 2023 (DPO).
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from minitransformer.grammar import CONSTRUCTIONS, translate
from study.experiment import Context, Findings
from study.trials.bootstrap import MEAN, interval
from study.trials.trial import Answers, TrialResult

from ...predictions import predictions_of
from ...task import Texts
from . import plan
from .arms import REWARDS, seeded
from .plan import NAME, base_trial, hack, held, longer, loose, planned, trials

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "find", "trials"]

TITLE, MINUTES, ALONE = "Training on rewards", 30.0, 30.0


def find(context: Context[Texts]) -> Findings:
    """What the base and every run write, and the curves of the runs."""
    task, scale, runner = context.task, context.scale, context.runner
    base = runner.result(base_trial(task))
    whole = [written(base.answers(name)) for name in base.evaluations]
    return {
        "predictions": predictions_of(NAME),
        "operations": scale * plan.OPERATIONS,
        "base": {"flops": base.flops, "seconds": base.seconds, "parameters": base.parameters, "runs": whole},
        "arms": {
            name: [summary(runner.result(seeded(trial, seed))) for seed in plan.SEEDS]
            for name, trial in planned(task, scale).items()
        },
        "longer": summary(runner.result(longer(task, scale))),
        "loose": summary(runner.result(loose(task, scale))),
        "held": {f"{kl:g}": summary(runner.result(held(task, scale, kl))) for kl in plan.KLS},
        "hacks": [
            {
                "reward": reward,
                "kl": kl,
                "before": rewarded(reward, base.answers()),
                **summary(result := runner.result(hack(task, scale, reward, kl))),
                "after": rewarded(reward, result.answers()) if result.diverged is None else None,
            }
            for reward, kl in plan.HACKS
        ],
    }


def written(answers: Answers) -> dict[str, Any]:
    """What is said of the texts of one model."""
    right, tokens, entropy = answers.statistics.T
    accepted = [text for text, each in zip(answers.hypotheses, right, strict=True) if each]
    used = [translate(text.strip()).constructions for text in accepted]
    return {
        "right": asdict(interval(MEAN, np.stack([right, np.ones_like(right)], axis=1))),
        "distinct": len(set(answers.hypotheses)) / len(right),
        "length": float(tokens.mean()),
        "accepted length": float(tokens[right == 1].mean()) if accepted else 0.0,
        "entropy": float(entropy.sum() / tokens.sum()),
        "constructions": {name: sum(name in each for each in used) / len(right) for name in CONSTRUCTIONS},
        "examples": answers.hypotheses[:6],
    }


def summary(result: TrialResult) -> dict[str, Any]:
    """What a run's model writes, what the run took, and its curve: operations, share, divergence, length, reward."""
    taken = ("steps", "flops", "seconds", "diverged")
    found: dict[str, Any] = {name: getattr(result, name) for name in taken}
    names = ("operations", "validation_reward", "validation_kl", "validation_length", "reward")
    found["curve"] = [[point.get(name) for name in names] for point in result.curve]
    if result.diverged is None:
        last = result.curve[-1]
        found |= {"kl": last["validation_kl"], "perplexity": last["perplexity"], **written(result.answers())}
    return found


def rewarded(reward: str, answers: Answers) -> dict[str, float]:
    """The mean of a reward of texts, with the interval of the texts."""
    values = np.array(REWARDS[reward](answers.hypotheses))
    return asdict(interval(MEAN, np.stack([values, np.ones_like(values)], axis=1)))
