"""The trainer: batches in, gradients, Adam, and a checkpoint and a log from which it can go on exactly.

What step s does depends only on the settings, the data and the parameters before it: its batches are numbers
(s - 1)·accumulate, … of the data's order, which comes from the seed; its dropout masks from (seed, s). So a
checkpoint's place in the data and random state are its step, and a run that is stopped, or killed, and resumed ends
with the same bits as one that never was.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from ..atomic import remove_unfinished
from ..data import BPETokenizer
from ..data.batching import Batch, Batches, check_special_ids
from ..data.token_dataset import TokenDataset
from ..lock import locked
from ..models import EncoderDecoder
from .checkpoint import (
    Checkpoint,
    CheckpointError,
    checkpoint_path,
    description_of,
    latest,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from .optimizer import Adam
from .settings import TrainingSettings
from .step import DataParallel, TrainingDiverged, training_step
from .terminal import progress_bar, say_above, show_step, stop_request
from .training_log import LOG_NAME, TrainingLog


@dataclass(frozen=True)
class TrainingOutcome:
    """Where a training stands and why it ended; as a string, a line for the user."""

    step: int
    reason: Literal["finished", "out of time", "interrupted"]
    checkpoint: Path | None

    def __str__(self) -> str:
        saved = f"; saved {self.checkpoint}" if self.checkpoint else ""
        resume = "" if self.reason == "finished" or not self.checkpoint else "; --resume continues from there"
        return f"{self.reason} after step {self.step}{saved}{resume}"


class Trainer:
    """Trains `model` on sentence pairs.

    dataset, valid  token ids of the training and of the validation pairs
    folder          where checkpoints (`step-*.safetensors`) and `log.jsonl` go; None keeps nothing
    tokenizer       goes into the checkpoints, so that one file is enough to translate
    languages       source and target, noted in the checkpoints for whoever evaluates them
    evaluate_bleu   takes the model and gives the validation BLEU
    on_validation   called after a validation, once the log holds its figures
    progress        whether to draw a bar on standard error

    Raises ValueError where the data does not fit the batch size or the model: its vocabulary, special ids or longest
    sentence.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        dataset: TokenDataset,
        settings: TrainingSettings,
        *,
        folder: str | Path | None = None,
        valid: TokenDataset | None = None,
        tokenizer: BPETokenizer | None = None,
        languages: tuple[str, str] | None = None,
        evaluate_bleu: Callable[[EncoderDecoder], float] | None = None,
        on_validation: Callable[[], None] | None = None,
        progress: bool = True,
    ) -> None:
        config = model.config
        check_special_ids(config.pad_id, config.bos_id, config.eos_id)
        self.model, self.dataset, self.settings = model, dataset, settings
        tokens, limits = settings.tokens_per_batch, (config.vocab_size, config.max_length)
        self.batches = Batches(dataset, tokens, settings.seed, *limits)
        self.valid_batches = Batches(valid, tokens, 0, *limits) if valid is not None else None
        self.folder = Path(folder) if folder is not None else None
        self.tokenizer = tokenizer.to_json() if tokenizer is not None else None
        self.languages = languages
        self.evaluate_bleu, self.on_validation = evaluate_bleu, on_validation
        self.progress = progress
        self.schedule = settings.schedule(model.config.d_model)
        self.optimizer = Adam(model.parameters, model.ops, (settings.beta1, settings.beta2), settings.eps)
        self.tokens = 0

    @property
    def step(self) -> int:
        """How many steps were taken, those before a resumption included."""
        return self.optimizer.num_steps

    @property
    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint in `folder`."""
        return latest(self.folder) if self.folder is not None else None

    def resume(self) -> None:
        """Take up the training in `folder` at its latest checkpoint.

        Raises FileNotFoundError without one, CheckpointError where it is damaged or of another model, dtype,
        tokenizer or data, and ValueError where a setting changed that the rest of the training depends on.
        """
        path = self.last_checkpoint
        if path is None:
            raise FileNotFoundError(f"there is no checkpoint to resume from in {self.folder}")
        checkpoint = load_checkpoint(path)
        settings = TrainingSettings.from_checkpoint(checkpoint, path)
        if checkpoint.optimizer is None:
            raise CheckpointError(f"{path} holds a model but no training to resume")
        self.settings.check_continues(settings)
        dtypes = {array.dtype.name for array in checkpoint.parameters.values()}
        if dtypes != {self.model.dtype}:
            raise CheckpointError(f"{path} holds {', '.join(sorted(dtypes))}, but the model is of {self.model.dtype}")
        if checkpoint.state["data"] != self._data_identity:
            raise CheckpointError(f"{path} was trained on other data, not on these {len(self.dataset):,} pairs")
        if checkpoint.tokenizer != self.tokenizer:
            raise CheckpointError(f"{path} was trained with another tokenizer")
        if path != checkpoint_path(path.parent, checkpoint.step):
            raise CheckpointError(f"{path} is not of the step that its name says, but of step {checkpoint.step}")
        checkpoint.restore(self.model)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        if self.step != checkpoint.step:
            raise CheckpointError(f"{path} is of step {checkpoint.step}, its optimiser of {self.step}")
        self.tokens = checkpoint.state["tokens"]

    def train(self) -> TrainingOutcome:
        """Train up to `settings.steps`, or until the time is up or Ctrl-C (SIGINT, SIGTERM) asks to stop.

        Either way the current step is finished and saved. Raises TrainingDiverged, naming the step, before a loss
        or gradient that is not finite reaches the parameters, or what is not finite a checkpoint; OSError where a file
        cannot be written; FileExistsError where `folder` holds a training that was not resumed, or a file in the place
        of one of its own; ValueError where its log is damaged; BlockingIOError where another process writes there.
        """
        with locked(self.folder) if self.folder is not None else nullcontext():
            return self._train()

    def _train(self) -> TrainingOutcome:
        settings, start = self.settings, perf_counter()
        self._prepare_folder()
        log = TrainingLog(self.folder / LOG_NAME if self.folder is not None else None, self.step)
        earlier = log.seconds
        reason = "finished" if self.step >= settings.steps else None
        with (
            stop_request() as stop,
            DataParallel(self.model, settings.threads) as workers,
            progress_bar(self.step, settings.steps, self.progress) as bar,
        ):
            while reason is None:
                record = self._train_step(workers)
                if self.step == settings.steps:
                    reason = "finished"
                elif settings.minutes is not None and perf_counter() - start > 60 * settings.minutes:
                    reason = "out of time"
                validates = reason is not None or self.step % settings.valid_interval == 0
                if validates:
                    record |= self._validate(workers)
                if reason is None and stop.requested:
                    reason = "interrupted"
                log.write(record | {"seconds": earlier + perf_counter() - start})
                show_step(bar, record)
                if reason is not None or self.step % settings.checkpoint_interval == 0:
                    log.sync()
                    self._save()
                if validates and self.on_validation is not None:
                    self.on_validation()
            outcome = TrainingOutcome(self.step, reason, self.last_checkpoint)
            if reason != "finished":
                say_above(bar, str(outcome))
        return outcome

    def _train_step(self, workers: DataParallel) -> dict[str, Any]:
        """One optimiser step; its line in the log."""
        start = perf_counter()
        settings, step = self.settings, self.step + 1
        batches = [self._batch(self.step * settings.accumulate + i) for i in range(settings.accumulate)]
        learning_rate = self.schedule(step)
        try:
            loss, norm = training_step(
                workers,
                self.optimizer,
                batches,
                learning_rate=learning_rate,
                label_smoothing=settings.label_smoothing,
                clip_norm=settings.clip_norm,
                seed=settings.seed,
            )
        except TrainingDiverged as error:
            raise TrainingDiverged(f"{error}: {self._what_helps()}") from None
        tokens = sum(batch.num_source_tokens + batch.num_target_tokens for batch in batches)
        self.tokens += tokens
        return {
            "step": step,
            "epoch": (step * settings.accumulate - 1) // len(self.batches),
            "loss": loss,
            "grad_norm": norm,
            "learning_rate": learning_rate,
            "tokens": self.tokens,
            "tokens_per_second": tokens / (perf_counter() - start),
        }

    def _batch(self, number: int) -> Batch:
        """Batch `number` of the whole training, epoch after epoch."""
        return self.batches.batch(*divmod(number, len(self.batches)))

    def _validate(self, workers: DataParallel) -> dict[str, float]:
        """What the log says about the validation pairs, where there are any."""
        figures = {}
        if self.valid_batches is not None:
            loss = workers.mean_loss(self.valid_batches.epoch(0))
            figures |= {"validation_loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        if self.evaluate_bleu is not None:
            figures["bleu"] = self.evaluate_bleu(self.model)
        return figures

    def _what_helps(self) -> str:
        """Advice after a divergence, and what is left: the last checkpoint in which every number is finite."""
        if self.folder is None:
            return "try a lower learning rate"
        left = next(filter(_holds_numbers, reversed(list_checkpoints(self.folder))), None)
        kept = f"{left} is from before" if left is not None else "there is no checkpoint from before"
        return f"try a lower learning rate, in another folder; {kept}"

    def _prepare_folder(self) -> None:
        """Refuse to write over what is not this training's own, and clear away what a kill left half written."""
        if self.folder is None:
            return
        path = latest(self.folder)
        if path is not None and path != checkpoint_path(self.folder, self.step):
            raise FileExistsError(
                f"{self.folder} already holds a training, up to {path.name}: resume it, or choose another folder"
            )
        for path in list_checkpoints(self.folder):
            if not self._is_own(path):
                raise FileExistsError(f"{path} is no checkpoint of this training: move it elsewhere")
        remove_unfinished(self.folder, r"step-\d+\.safetensors|log\.jsonl|loss\.png")
        self._prune()

    def _is_own(self, path: Path) -> bool:
        """Whether a file is a checkpoint that this training wrote, or the one that it goes on from."""
        description = description_of(path)
        try:
            settings = TrainingSettings.from_dict(description["state"]["settings"])
            self.settings.check_continues(settings)
            return (
                checkpoint_path(path.parent, description["step"]) == path
                and description["config"] == self.model.config.to_dict()
                and description["state"]["data"] == self._data_identity
            )
        except (ValueError, LookupError, TypeError):  # settings of another training, or none
            return False

    def _save(self) -> None:
        if self.folder is None:
            return
        checkpoint = Checkpoint(
            config=self.model.config.to_dict(),
            parameters=self.model.parameters.state_dict(),
            optimizer=self.optimizer.state_dict(),
            tokenizer=self.tokenizer,
            step=self.step,
            state={
                "settings": self.settings.to_dict(),
                "data": self._data_identity,
                "languages": self.languages,
                "tokens": self.tokens,
            },
        )
        if not _is_finite(checkpoint):
            raise TrainingDiverged(f"step {self.step} leaves numbers that are not finite: {self._what_helps()}")
        save_checkpoint(checkpoint_path(self.folder, self.step), checkpoint)
        self._prune()

    def _prune(self) -> None:
        if self.folder is not None:
            prune_checkpoints(self.folder, self.settings.keep, self.settings.checkpoint_interval, self._is_own)

    @cached_property
    def _data_identity(self) -> dict[str, int]:
        """Enough to notice that a resumed training was given other data."""
        return {"pairs": len(self.dataset), "crc32": self.dataset.checksum()}


def _is_finite(checkpoint: Checkpoint) -> bool:
    """Whether the weights and the optimiser's moments are numbers."""
    arrays = (*checkpoint.parameters.values(), *(checkpoint.optimizer or {}).values())
    return all(np.isfinite(array).all() for array in arrays)


def _holds_numbers(path: Path) -> bool:
    """Whether a file is an undamaged checkpoint, and finite."""
    try:
        return _is_finite(load_checkpoint(path))
    except CheckpointError:
        return False
