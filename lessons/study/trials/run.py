"""Runs one trial: trains a model, or resumes its training, and evaluates it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from minitransformer.data.batching import PAD_ID, Batch, Batches, collate
from minitransformer.data.preparation import PreparedData
from minitransformer.data.sentence_pairs import SentencePair
from minitransformer.decoding import search
from minitransformer.models import EncoderDecoder, build_model
from minitransformer.ops import Ops, numpy_ops
from minitransformer.training import LOG_NAME, Trainer, TrainingDiverged, TrainingSettings, read_log
from minitransformer.training.checkpoint import average_checkpoints, latest, list_checkpoints, save_checkpoint

from .bootstrap import bleu_statistics, bracket_statistics
from .counting import counting
from .trial import Answers, Evaluation, Trial, TrialResult

COUNTED_BATCHES = 8
VALIDATIONS, FEWEST_STEPS = 10, 50
"""The number of validations of a training, and the fewest steps between two of them."""

CHECKPOINTS, AVERAGED = 20, 5
"""How many checkpoints a training writes, and how many of the last are averaged: those after 80 % of its steps.

Paper: §6.1's five were written in the last 50 minutes of 12 hours. A short training still learns in its last part.
"""


class Interrupted(Exception):
    """The user stopped the trials before the last was done; the same call continues them."""


def run_trial(trial: Trial, data: PreparedData, folder: Path, kept: Path, ops: Ops, dtype: str) -> TrialResult:
    """Run a trial and return its result. Its training keeps checkpoints in `folder`; the model is saved as `kept`.

    Raises `Interrupted` if Ctrl-C or SIGTERM stopped the training, which is saved then.
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
    log = read_log(folder / LOG_NAME) if (folder / LOG_NAME).exists() else []  # no log if the first step diverged
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
        evaluations={} if diverged else _evaluate_all(trial, data, model, folder, kept),
    )


def lasting(settings: TrainingSettings, steps: float) -> TrainingSettings:
    """The settings for about `steps` steps, at most a third of them warm-up; checkpoints divide them evenly."""
    count = CHECKPOINTS * max(1, round(steps / CHECKPOINTS))
    return replace(settings, steps=count, warmup_steps=min(settings.warmup_steps, count // 3))


def _with_intervals(settings: TrainingSettings) -> TrainingSettings:
    return replace(
        settings,
        valid_interval=max(FEWEST_STEPS, settings.steps // VALIDATIONS),
        checkpoint_interval=max(1, settings.steps // CHECKPOINTS),
        keep=AVERAGED,
    )


def _evaluate_all(
    trial: Trial, data: PreparedData, model: EncoderDecoder, folder: Path, kept: Path
) -> dict[str, Answers]:
    """The results of all evaluations; the model of the first is saved as `kept`."""
    checkpoints, results = list_checkpoints(folder), {}
    for number, evaluation in enumerate(trial.evaluations):
        checkpoint = average_checkpoints(checkpoints[-AVERAGED:] if evaluation.averaged else checkpoints[-1:])
        if number == 0:
            save_checkpoint(kept, checkpoint)
        checkpoint.restore(model)
        results[evaluation.name] = evaluate(model, data, evaluation)
    return results


def _batch_flops(trial: Trial, data: PreparedData) -> float:
    """Operations of a batch's forward and backward, with padding: the mean of some batches spread over an epoch."""
    ops, tally = counting(numpy_ops)
    model = build_model(trial.config, ops)
    batches = Batches(data.train, trial.settings.tokens_per_batch, trial.settings.seed)
    chosen = range(0, len(batches), max(1, len(batches) // COUNTED_BATCHES))
    for number in chosen:
        batch = batches.batch(0, number)
        model.loss(batch.source, batch.target_in, batch.target_out, with_grad=False)
    return tally.training / len(chosen)


SENTENCES_AT_ONCE = 32
BATCH_TOKENS = 1024


def evaluate(model: EncoderDecoder, data: PreparedData, evaluation: Evaluation) -> Answers:
    """The result of one evaluation. Raises `ValueError` if no test sentence is within its lengths."""
    start = perf_counter()
    pairs = _sentences(data, evaluation)
    encode, eos = data.tokenizer.encode, data.tokenizer.eos_id
    sources, targets = ([encode(text) for text in side] for side in zip(*pairs, strict=True))
    hypotheses = [""] * len(pairs)
    options = {"beam": evaluation.beam, "length_penalty": evaluation.length_penalty, "max_extra": evaluation.max_extra}
    asked = [[*ids, eos] for ids in sources]
    for numbers, found in search(model, asked, BATCH_TOKENS, threads=1, **options):
        for number, (best, *_) in zip(numbers, found, strict=True):
            hypotheses[number] = data.tokenizer.decode(best.ids)
    references = [pair.target for pair in pairs]
    statistics = bracket_statistics if data.choice.target == "tree" else bleu_statistics
    return Answers(
        statistics=statistics(hypotheses, references),
        likelihood=likelihood(model, sources, targets),
        hypotheses=hypotheses,
        references=references,
        seconds=perf_counter() - start,
    )


def likelihood(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """For each target minus its log-probability, and its number of tokens with `</s>`: `(N, 2)`."""
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i])))
    rows = np.zeros((len(sources), 2))
    for start in range(0, len(order), SENTENCES_AT_ONCE):
        chosen = order[start : start + SENTENCES_AT_ONCE]
        batch = collate([np.array(sources[i]) for i in chosen], [np.array(targets[i]) for i in chosen])
        rows[chosen] = _losses(model, batch)
    return rows


def _losses(model: EncoderDecoder, batch: Batch) -> NDArray[np.float64]:
    logits, _ = model.forward(batch.source, batch.target_in)  # (B, Tt, V)
    log_probs = model.ops.to_numpy(model.ops.log_softmax(logits))
    picked = np.take_along_axis(log_probs, batch.target_out[..., None], axis=-1)[..., 0]  # (B, Tt)
    real = batch.target_out != PAD_ID
    return np.stack([-(picked * real).sum(1, dtype=np.float64), real.sum(1)], axis=1)


def _sentences(data: PreparedData, evaluation: Evaluation) -> list[SentencePair]:
    pairs = data.choice.pairs("test")
    if evaluation.lengths is not None:
        low, high = evaluation.lengths
        encode = data.tokenizer.encode
        pairs = (pair for pair in pairs if all(low <= len(encode(text)) + 1 <= high for text in pair))
    chosen = list(islice(pairs, evaluation.sentences))
    if not chosen:
        raise ValueError(f"no pair of the test set has {evaluation.lengths} tokens on both sides")
    return chosen
