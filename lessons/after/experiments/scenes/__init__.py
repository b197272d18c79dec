"""Pictures and words: a captioner describes scenes, and where its words look; a CLIP finds their captions."""

from collections.abc import Sequence
from typing import Any

from minitransformer.training.checkpoint import load_checkpoint
from study.experiment import Context, Findings
from study.trials.trial import Trial

from ...predictions import predictions_of
from ...task import Texts
from .clip import Finding, clip_runs
from .looking import example, looks
from .plan import LOOKED_AT, NAME, NEW_PAIRS, TEST, Describing, SceneTrial, trials_of
from .telling import draw, judge, percentages, report

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "judge", "report", "trials"]

TITLE, MINUTES, ALONE = "Pictures and words", 80.0, 80.0


def trials(task: Texts, scale: float) -> Sequence[Trial]:
    """The trainings of captioners, then those of CLIP."""
    return [trial for of_a_kind in planned(task, scale) for trial in of_a_kind]


def planned(task: Texts, scale: float) -> tuple[list[SceneTrial], list[SceneTrial]]:
    """The trainings of captioners, and those of CLIP."""
    captioner = trials_of("captioner", (Describing(TEST), Describing(NEW_PAIRS)), task, scale)
    return captioner, trials_of("clip", (Finding(TEST), Finding(NEW_PAIRS)), task, scale)


def find(context: Context[Texts]) -> Findings:
    """Return for each seed the verdicts on its captions, where its words look, and what a CLIP finds."""
    runs, (captioners, clips) = [], planned(context.task, context.scale)
    for trial in captioners:
        result = context.runner.result(trial)
        taken = ("steps", "flops", "seconds", "parameters", "diverged", "curve")
        run: dict[str, Any] = {name: getattr(result, name) for name in taken} | {"scenes": trial.scenes}
        if result.diverged is None:
            run |= {"right": {name: percentages(each.statistics) for name, each in result.evaluations.items()}}
            path = context.runner.model_path(trial)
            model = load_checkpoint(path, with_optimizer=False).model(context.runner.ops, context.runner.dtype)
            run |= {"looks": looks(model, LOOKED_AT)}
            run |= {"example": example(model, run["looks"])}
        runs.append(run)
    return {"predictions": predictions_of(NAME), "runs": runs, "clips": clip_runs(context, clips)}
