"""Pictures and words: a captioner learns to describe scenes; where its words look. Source: Xu et al. 2015."""

from typing import Any

from minitransformer.training.checkpoint import load_checkpoint
from study.experiment import Context, Findings

from ...predictions import predictions_of
from ...task import Texts
from .looking import example, looks
from .plan import LOOKED_AT, NAME, SceneTrial, trials
from .telling import draw, judge, report

__all__ = ["ALONE", "MINUTES", "NAME", "TITLE", "draw", "find", "judge", "report", "trials"]

TITLE, MINUTES, ALONE = "Pictures and words", 60.0, 60.0


def find(context: Context[Texts]) -> Findings:
    """Return for each seed the verdicts on its captions, and where its words look."""
    runs = []
    for trial in trials(context.task, context.scale):
        assert isinstance(trial, SceneTrial)
        result = context.runner.result(trial)
        taken = ("steps", "flops", "seconds", "parameters", "diverged", "curve")
        run: dict[str, Any] = {name: getattr(result, name) for name in taken} | {"scenes": trial.scenes}
        if result.diverged is None:
            run |= {"verdicts": {name: each.statistics.tolist() for name, each in result.evaluations.items()}}
            path = context.runner.model_path(trial)
            model = load_checkpoint(path, with_optimizer=False).model(context.runner.ops, context.runner.dtype)
            run |= {"looks": looks(model, LOOKED_AT)}
            run |= {"example": example(model, run["looks"])}
        runs.append(run)
    return {"predictions": predictions_of(NAME), "runs": runs}
