"""Run one trial: train a model, or resume its training, and evaluate it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from minitransformer.data.preparation import PreparedData
from minitransformer.models import Model
from minitransformer.ops import Ops, numpy_ops
from minitransformer.training import LOG_NAME, Dataset, Trainer, TrainingDiverged, TrainingSettings, read_log
from minitransformer.training.checkpoint import average_checkpoints, latest, list_checkpoints, save_checkpoint

from .counting import counting
from .trial import Answers, Trial, TrialResult

COUNTED_BATCHES = 8
VALIDATIONS = 10
"""The number of validations of a training."""

CHECKPOINTS, AVERAGED = 20, 5
"""The numbers of checkpoints that a training writes, and of the last ones that are averaged: after 80 % of its steps.

Paper: §6.1's five were written in the last 50 minutes of 12 hours. A short training still learns in its last part.
"""


class Interrupted(Exception):
    """The user stopped the trials before the last was done; the same call continues them."""


def run_trial(
    trial: Trial,
    data: PreparedData,
    folder: Path,
    kept: Path,
    ops: Ops,
    dtype: str,
    models: Sequence[Path] = (),
) -> TrialResult:
    """Run a trial and return its result. Its training keeps checkpoints in `folder`; the model is saved as `kept`.

    models: the checkpoints of the trials that this one needs.

    Raises `Interrupted` if Ctrl-C or SIGTERM stopped the training, which is saved then.
    """
    begun, settings = trial.begin(data, models, ops, dtype), _with_intervals(trial)
    trainer = Trainer(
        begun.model,
        begun.train,
        settings,
        folder=folder,
        valid=begun.valid,
        tokenizer=data.tokenizer,
        languages=data.choice.languages,
        evaluate=begun.figures,
        progress=False,
    )
    if latest(folder) is not None:
        trainer.resume()
    diverged = None
    try:
        if trainer.train().reason == "interrupted":
            raise Interrupted
    except TrainingDiverged as error:
        diverged = str(error)
    log = read_log(folder / LOG_NAME) if (folder / LOG_NAME).exists() else []  # no log if the first step diverged
    counted = _counted(log) if log and "operations" in log[0] else None
    return TrialResult(
        parameters=begun.model.parameters.count,
        steps=trainer.step,
        tokens=trainer.tokens,
        seconds=log[-1]["seconds"] if log else 0.0,
        pairs=len(begun.train),
        epochs=trainer.step * settings.accumulate / len(trainer.batches),
        flops=trainer.step * settings.accumulate * _batch_flops(trial, begun.train)
        if counted is None
        else counted[-1]["operations"],
        curve=[
            {name: record[name] for name in ("step", "loss", "perplexity", "seconds")} if counted is None else record
            for record in counted or log
            if "perplexity" in record
        ],
        diverged=diverged,
        evaluations={} if diverged else _evaluate_all(trial, data, begun.model, folder, kept),
    )


def lasting(settings: TrainingSettings, steps: float) -> TrainingSettings:
    """The settings for about `steps` steps, at most a third of them warm-up; checkpoints divide them evenly."""
    count = CHECKPOINTS * max(1, round(steps / CHECKPOINTS))
    return replace(settings, steps=count, warmup_steps=min(settings.warmup_steps, count // 3))


def _counted(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The records of a log whose batches log their operations, with all operations up to each step."""
    so_far = accumulate(record["operations"] for record in log)
    return [{**record, "operations": operations} for record, operations in zip(log, so_far, strict=True)]


def _with_intervals(trial: Trial) -> TrainingSettings:
    settings = trial.settings
    return replace(
        settings,
        valid_interval=max(trial.fewest_steps, settings.steps // VALIDATIONS),
        checkpoint_interval=max(1, settings.steps // CHECKPOINTS),
        keep=AVERAGED,
    )


def _evaluate_all(trial: Trial, data: PreparedData, model: Model[Any], folder: Path, kept: Path) -> dict[str, Answers]:
    """The results of all evaluations; the model of the first is saved as `kept`."""
    checkpoints, results = list_checkpoints(folder), {}
    for number, evaluation in enumerate(trial.evaluations):
        checkpoint = average_checkpoints(checkpoints[-AVERAGED:] if evaluation.averaged else checkpoints[-1:])
        if number == 0:
            save_checkpoint(kept, checkpoint)
        checkpoint.restore(model)
        results[evaluation.name] = evaluation.answer(model, data)
    return results


def _batch_flops(trial: Trial, train: Dataset[Any]) -> float:
    """Operations of a batch's forward and backward, with padding: the mean of some batches spread over an epoch."""
    ops, tally = counting(numpy_ops)
    model = trial.model(ops, "float32")
    batches = train.batches(trial.settings.tokens_per_batch, trial.settings.seed, trial.config)
    chosen = range(0, len(batches), max(1, len(batches) // COUNTED_BATCHES))
    for number in chosen:
        model.loss(*batches.batch(0, number).inputs, with_grad=False)
    return tally.training / len(chosen)
