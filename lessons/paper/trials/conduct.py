"""Conducting one trial: train, go on where a training stopped, and ask the model."""

from dataclasses import replace
from pathlib import Path

from minitransformer.checkpoint import average_checkpoints, latest, list_checkpoints, save_checkpoint
from minitransformer.data.batching import Batches
from minitransformer.data.preparation import PreparedData
from minitransformer.models import Model, build_model
from minitransformer.ops import Ops, numpy_ops
from minitransformer.training import LOG_NAME, Trainer, TrainingDiverged, TrainingSettings, read_log

from .counting import counting
from .exam import ask
from .trial import ExamResult, Trial, TrialResult

COUNTED_BATCHES = 8
VALIDATIONS, FEWEST_STEPS = 10, 50
"""Of a training, if there are at least so many steps from one to the next."""

CHECKPOINTS, AVERAGED = 20, 5
"""Of a training, and how many of the last ones are averaged: from 80 % of its steps on.

Paper: §6.1's five were written in the last 50 minutes of 12 hours; so short a training is still learning then.
"""


class Interrupted(Exception):
    """Trials were stopped before the last was done; the same call goes on."""


def conduct(trial: Trial, data: PreparedData, folder: Path, kept: Path, ops: Ops, dtype: str) -> TrialResult:
    """The result of a trial whose training keeps its checkpoints in `folder`; the model goes to `kept`.

    Raises `Interrupted` where Ctrl-C or SIGTERM stopped the training, which is saved.
    """
    model = build_model(trial.config, ops, dtype, trial.settings.seed)
    settings = _with_intervals(trial.settings)
    languages = data.choice.languages
    trainer = Trainer(
        model,
        data.train,
        settings,
        folder=folder,
        valid=data.valid,
        tokenizer=data.tokenizer,
        languages=languages,
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
    log = read_log(folder / LOG_NAME) if (folder / LOG_NAME).exists() else []  # none where the first step diverged
    return TrialResult(
        parameters=model.parameters.count,
        steps=trainer.step,
        tokens=trainer.tokens,
        seconds=log[-1]["seconds"] if log else 0.0,
        pairs=len(data.train),
        epochs=trainer.step * settings.accumulate / len(trainer.batches),
        flops=trainer.step * settings.accumulate * _batch_flops(trial, data),
        curve=[
            {name: record[name] for name in ("step", "loss", "perplexity", "seconds")}
            for record in log
            if "perplexity" in record
        ],
        diverged=diverged,
        exams={} if diverged else _examine(trial, data, model, folder, kept),
    )


def _with_intervals(settings: TrainingSettings) -> TrainingSettings:
    return replace(
        settings,
        valid_interval=max(FEWEST_STEPS, settings.steps // VALIDATIONS),
        checkpoint_interval=max(1, settings.steps // CHECKPOINTS),
        keep=AVERAGED,
    )


def _examine(trial: Trial, data: PreparedData, model: Model, folder: Path, kept: Path) -> dict[str, ExamResult]:
    """The results of all exams; the first one's model is kept."""
    checkpoints, results = list_checkpoints(folder), {}
    for number, exam in enumerate(trial.exams):
        checkpoint = average_checkpoints(checkpoints[-AVERAGED:] if exam.averaged else checkpoints[-1:])
        if number == 0:
            save_checkpoint(kept, checkpoint)
        checkpoint.restore(model)
        results[exam.name] = ask(model, data, exam)
    return results


def _batch_flops(trial: Trial, data: PreparedData) -> float:
    """Operations of a batch's forward and backward, padding included: the mean of some spread over an epoch."""
    ops, tally = counting(numpy_ops)
    model = build_model(trial.config, ops)
    batches = Batches(data.train, trial.settings.tokens_per_batch, trial.settings.seed)
    chosen = range(0, len(batches), max(1, len(batches) // COUNTED_BATCHES))
    for number in chosen:
        batch = batches.batch(0, number)
        model.loss(batch.source, batch.target_in, batch.target_out, with_grad=False)
    return tally.training / len(chosen)
