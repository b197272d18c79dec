"""The trainer: it takes training steps, and writes a log and checkpoints from which a training resumes exactly.

Step s depends only on the settings, the data and the parameters before it: its batches are numbers (s - 1)·accumulate,
… of an order that follows from the seed, and its dropout masks follow from (seed, s). So the number of the step is all
that a checkpoint needs to know about data and randomness, and a training that is stopped or killed, and then resumed,
ends with the same bits as one that never stopped.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from ..data import BPETokenizer
from ..models import Model
from ..system.atomic import remove_unfinished
from ..system.lock import locked
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
from .data import Dataset
from .optimizer import Adam
from .parallel.data_parallel import DataParallel
from .parallel.launch import facts_of
from .parallel.processes import ALONE, Processes
from .parallel.shards import ShardedAdam
from .settings import TrainingSettings
from .step import TrainingDiverged, training_step
from .terminal import progress_bar, say_above, show_step, stop_request
from .training_log import LOG_NAME, TrainingLog


@dataclass(frozen=True)
class TrainingOutcome:
    """The last step of a training, why it stopped there, and its checkpoint; `str` gives a line for the user."""

    step: int
    reason: Literal["finished", "out of time", "interrupted", "its launcher ended"]
    checkpoint: Path | None

    def __str__(self) -> str:
        saved = f"; saved {self.checkpoint}" if self.checkpoint else ""
        resume = "" if self.reason == "finished" or not self.checkpoint else "; --resume continues from there"
        return f"{self.reason} after step {self.step}{saved}{resume}"


class Trainer:
    """Trains `model`, of any kind, on a dataset that has batches for it: sentence pairs, a text, images.

    dataset, valid  what to train on, and what to validate on
    folder          for checkpoints (`step-*.safetensors`) and `log.jsonl`; None: nothing is written
    tokenizer       goes into the checkpoints, so that one file is enough to translate or to write
    languages       source and target of a translator; they go into the checkpoints too
    evaluate        takes the model and the figures of a validation so far (`validation_loss`, `perplexity`) and
                    returns more of them, such as {"bleu": 30.1}
    on_validation   called after a validation, once the log holds its figures
    progress        whether to draw a bar on a terminal, and to say how each validation went
    processes       those that share each step, by default this one alone (see `parallel/`). All of them have the
                    same data and settings; the first one writes, and a request to stop any of them stops all

    Raises ValueError if the data does not fit the batch size or the model's configuration, for several processes
    without a number of shards in the settings, and for parts of a batch whose rows the model compares.
    """

    def __init__(
        self,
        model: Model[Any],
        dataset: Dataset[Any],
        settings: TrainingSettings,
        *,
        folder: str | Path | None = None,
        valid: Dataset[Any] | None = None,
        tokenizer: BPETokenizer | None = None,
        languages: tuple[str, str] | None = None,
        evaluate: Callable[[Any, Mapping[str, float]], Mapping[str, float]] | None = None,
        on_validation: Callable[[], None] | None = None,
        progress: bool = True,
        processes: Processes = ALONE,
    ) -> None:
        if not len(model.parameters.grad):
            why = f"its matrices are in {model.bits} bits, so train adapters beside them: model.tuned(Tuning(rank=8))"
            raise ValueError(f"nothing of the model is trained: {why if model.bits else 'all of it is frozen'}")
        if processes.size > 1 and settings.shards is None:
            raise ValueError(f"{processes.size} processes share a training by its shards, but shards is None")
        self.model, self.dataset, self.settings = model, dataset, settings
        self.batches = dataset.batches(settings.tokens_per_batch, settings.seed, model.config)
        self.valid_batches = None if valid is None else valid.batches(settings.tokens_per_batch, None, model.config)
        self.folder = Path(folder) if folder is not None else None
        self.tokenizer = tokenizer.to_json() if tokenizer is not None else None
        self.languages = languages
        self.evaluate, self.on_validation = evaluate, on_validation
        self.progress, self.processes = progress and processes.first, processes
        if model.compares_rows:
            settings.check_undivided()
        together: int | None = getattr(dataset, "together", None)
        if together is not None:
            settings.check_weighted(together)
        self._together = together or 1
        self.schedule = settings.schedule(model.config.d_model)
        options = (settings.beta1, settings.beta2), settings.eps
        self.optimizer = (
            Adam(model.parameters, model.ops, *options)
            if settings.shards is None
            else ShardedAdam(model.parameters, model.ops, *options, processes)
        )
        self.tokens = self._moments_checksum = 0

    @property
    def step(self) -> int:
        """The number of steps so far, including those before a resumption."""
        return self.optimizer.num_steps

    @property
    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint in `folder`."""
        return latest(self.folder) if self.folder is not None else None

    @property
    def _may_stop(self) -> bool:
        """True after a step with which a training may end: its next batch is not drawn yet."""
        return self.step % self._together == 0

    def resume(self) -> None:
        """Continue the training in `folder` from its latest checkpoint.

        Raises FileNotFoundError if there is none, CheckpointError if it is damaged or has another model, dtype,
        tokenizer or data, and ValueError if a setting differs that a training must keep.
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
        for name, value in getattr(self.dataset, "kept", {}).items():
            if checkpoint.state.get(name) != value:
                raise CheckpointError(f"{path} was trained with another {name}")
        if checkpoint.state["data"] != self._data_identity:
            raise CheckpointError(f"{path} was trained on other data, not on these {len(self.dataset):,} examples")
        if checkpoint.tokenizer != self.tokenizer:
            raise CheckpointError(f"{path} was trained with another tokenizer")
        if path != checkpoint_path(path.parent, checkpoint.step):
            raise CheckpointError(f"{path} is not of the step that its name says, but of step {checkpoint.step}")
        checkpoint.restore(self.model)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        if self.step != checkpoint.step:
            raise CheckpointError(f"{path} is of step {checkpoint.step}, its optimiser of {self.step}")
        self.tokens = checkpoint.state["tokens"]
        self._moments_checksum = reduce(lambda crc, m: zlib.crc32(m.tobytes(), crc), checkpoint.optimizer.values(), 0)

    def train(self) -> TrainingOutcome:
        """Train up to `settings.steps`, or until the time is up or Ctrl-C (SIGINT, SIGTERM) asks to stop.

        It always finishes and saves the current step. Raises TrainingDiverged, naming the step, if the loss, the
        gradient or the parameters are no longer finite, and writes no such checkpoint; OSError if a file cannot be
        written; FileExistsError if `folder` holds a training that was not resumed, or another file under a name that it
        needs; ValueError if its log is damaged; BlockingIOError if another training writes there. What one of several
        processes raises, the others raise as `PeerError`; ValueError, naming it, if one has other data or settings;
        ConnectionError if one is lost.
        """
        with ExitStack() as lock:
            with self.processes.together():
                log = self._opened_log(lock)
            if self.processes.size > 1:
                self.processes.agree(**self._facts())
            return self._train(log)

    def _opened_log(self, lock: ExitStack) -> TrainingLog:
        """Return the log, once `lock` holds its folder; one that writes nothing in other processes than the first.

        Raises FileExistsError for files that this training did not write; removes what a kill left unfinished.
        """
        folder = self.folder
        if folder is None or not self.processes.first:
            return TrainingLog(None)
        lock.enter_context(locked(folder))
        path = latest(folder)
        if path is not None and path != checkpoint_path(folder, self.step):
            raise FileExistsError(
                f"{folder} already holds a training, up to {path.name}: resume it, or choose another folder"
            )
        for path in list_checkpoints(folder):
            if not self._is_own(path):
                raise FileExistsError(f"{path} is not a checkpoint of this training: move it elsewhere")
        remove_unfinished(folder, r"step-\d+\.safetensors|log\.jsonl|loss\.png")
        self._prune(folder)
        return TrainingLog(folder / LOG_NAME, self.step)

    def _facts(self) -> dict[str, Any]:
        """Return the facts that must be the same in all processes, or they would compute different trainings."""
        return {
            "settings": self.settings.to_dict() | {"threads": None},  # first: the parameters follow from the seed
            "training set": "{pairs:,} examples with the checksum {crc32}".format(**self._data_identity),
            "step": self.step,
            **facts_of(self.model),
            "checksum of the moments": self._moments_checksum,
        }

    def _train(self, log: TrainingLog) -> TrainingOutcome:
        settings, start = self.settings, perf_counter()
        earlier = log.seconds
        reason = "finished" if self.step >= settings.steps else None
        with (
            stop_request(self.progress) as stop,
            DataParallel(self.model, settings.threads, settings.shards, self.processes) as workers,
            progress_bar(self.step, settings.steps, self.progress) as bar,
        ):
            while reason is None:
                record = self._train_step(workers)
                if self.step == settings.steps:
                    reason = "finished"
                elif settings.minutes is not None and self.processes.any(
                    perf_counter() - start > 60 * settings.minutes
                ):
                    reason = "out of time" if self._may_stop else None
                validates = reason is not None or self.step % settings.valid_interval == 0
                if validates:
                    record |= self._validate(workers)
                reason = reason or self.processes.reason_to_stop(stop.requested and self._may_stop)
                saves = (
                    self.folder is not None
                    and self._may_stop
                    and (reason is not None or self.step % settings.checkpoint_interval == 0)
                )
                checkpoint = self._checkpoint() if saves else None
                with self.processes.together():
                    log.write(record | {"seconds": earlier + perf_counter() - start})
                    show_step(bar, record)
                    if checkpoint is not None:
                        log.sync()
                        self._save(checkpoint)
                    if validates and self.on_validation is not None and self.processes.first:
                        self.on_validation()
            outcome = TrainingOutcome(self.step, reason, self.last_checkpoint)
            if reason != "finished":
                say_above(bar, str(outcome))
        return outcome

    def _train_step(self, workers: DataParallel) -> dict[str, Any]:
        """Take one optimiser step; return its record for the log."""
        start = perf_counter()
        settings, step = self.settings, self.step + 1
        self.processes.where = f"in step {step}"
        numbers = range(self.step * settings.accumulate, step * settings.accumulate)  # counted through all epochs
        batches = [self.batches.batch(*divmod(number, len(self.batches))) for number in numbers]
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
        tokens = sum(batch.num_tokens for batch in batches)
        figures = [dict(getattr(batch, "figures", {})) for batch in batches]
        self.tokens += tokens
        return {
            "step": step,
            "epoch": (step * settings.accumulate - 1) // len(self.batches),
            "loss": loss,
            "grad_norm": norm,
            "learning_rate": learning_rate,
            "tokens": self.tokens,
            "tokens_per_second": tokens / (perf_counter() - start),
            **{name: sum(each[name] for each in figures) / len(figures) for name in figures[0]},
        }

    def _validate(self, workers: DataParallel) -> dict[str, float]:
        """Return the figures of a validation for the log; none without validation data."""
        figures = {}
        self.processes.where = f"in the validation after step {self.step}"
        if self.valid_batches is not None:
            loss = workers.mean_loss(self.valid_batches.epoch(0))
            figures |= {"validation_loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        if self.evaluate is not None:
            figures |= self.evaluate(self.model, figures)
        return figures

    def _what_helps(self) -> str:
        """Return advice after a divergence, with the last checkpoint in which every number is finite."""
        if self.folder is None:
            return "try a lower learning rate"
        left = next(filter(_holds_numbers, reversed(list_checkpoints(self.folder))), None)
        kept = f"{left} is from before" if left is not None else "there is no checkpoint from before"
        return f"try a lower learning rate, in another folder; {kept}"

    def _is_own(self, path: Path) -> bool:
        """Return True if a file is a checkpoint of this training, the one it resumed from included."""
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

    def _checkpoint(self) -> Checkpoint:
        """Return the checkpoint of this step; all processes make it, since each has a part of the moments."""
        model, ops = self.model, self.model.ops
        return Checkpoint(
            config=model.config.to_dict(),
            parameters=model.parameters.state_dict(),
            optimizer=self.optimizer.state_dict(),
            tokenizer=self.tokenizer,
            step=self.step,
            quantized={name: each.value.mapped(ops.to_numpy) for name, each in model.parameters.quantized.items()},
            state={
                "settings": self.settings.to_dict(),
                "data": self._data_identity,
                "languages": self.languages,
                "tokens": self.tokens,
                **kept_of(model),
                **getattr(self.dataset, "kept", {}),
            },
        )

    def _save(self, checkpoint: Checkpoint) -> None:
        if not _is_finite(checkpoint):
            raise TrainingDiverged(f"step {self.step} leaves numbers that are not finite: {self._what_helps()}")
        if self.folder is not None and self.processes.first:
            save_checkpoint(checkpoint_path(self.folder, self.step), checkpoint)
            self._prune(self.folder)

    def _prune(self, folder: Path) -> None:
        prune_checkpoints(folder, self.settings.keep, self.settings.checkpoint_interval, self._is_own)

    @cached_property
    def _data_identity(self) -> dict[str, int]:
        """The number of examples and their checksum: they show if a resumed training gets other data."""
        return {"pairs": len(self.dataset), "crc32": self.dataset.checksum()}


def kept_of(model: Model[Any]) -> dict[str, Any]:
    """Return what a checkpoint's state keeps of a model: what of it is trained, and the folder that it came from."""
    kept: dict[str, Any] = {} if model.tuning is None else {"tuning": model.tuning.to_dict()}
    kept |= {} if model.bits is None else {"bits": model.bits}
    return kept if model.origin is None else kept | {"origin": model.origin.to_json()}


def _is_finite(checkpoint: Checkpoint) -> bool:
    """Return True if all weights and all of the optimiser's moments are finite."""
    arrays = (*checkpoint.parameters.values(), *(checkpoint.optimizer or {}).values())
    return all(np.isfinite(array).all() for array in arrays)


def _holds_numbers(path: Path) -> bool:
    """Return True if a file is an undamaged checkpoint whose numbers are all finite."""
    try:
        return _is_finite(load_checkpoint(path))
    except CheckpointError:
        return False
