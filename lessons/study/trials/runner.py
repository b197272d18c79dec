"""Run trials side by side and keep their results: each runs once, and an interrupted one resumes.

data/<text>/           token ids, made once for all trials on this text
trainings/<trial>/     checkpoints of a training that has not ended
models/<trial>.safetensors
results/<trial>.json   written last: if it exists, the trial is done
"""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

from minitransformer.data.preparation import CorpusChoice, PreparedData, fingerprint_of, open_prepared, prepare
from minitransformer.ops import Ops, numpy_ops
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.system.atomic import atomic_write, remove_unfinished
from minitransformer.system.lock import locked
from minitransformer.system.sealed_json import seal, unseal
from minitransformer.system.visible import visible
from minitransformer.training import LOG_NAME
from minitransformer.training.checkpoint import CheckpointError, list_checkpoints, load_checkpoint
from minitransformer.training.terminal import stop_request

from .run import Interrupted, run_trial
from .trial import Trial, TrialResult, key_of

EDITION, CHANGE = 4, "dropout draws other masks"
"""Stands for the code, on which results depend beside a trial's description. If models, training or evaluations compute
something else, add 1, and say what differs from the edition before."""

TOLD_TO_STOP = 128 + signal.SIGTERM
"""The exit status of a trial's process after SIGTERM, as in shells."""


@dataclass(frozen=True)
class Runner:
    """Run trials in a folder, with a table of ops.

    workers  trials at a time, each in a process with one thread; backends other than NumPy run them in this process
    say      takes a line about each trial that is done
    """

    folder: Path
    workers: int = 2
    ops: Ops = numpy_ops
    dtype: str = "float32"
    backend: str = "NumPy, float32"
    say: Callable[[str], None] = print

    def run(self, trials: Sequence[Trial]) -> None:
        """Run the trials that are not done yet, with those that they need, the longest first.

        Raises `Interrupted` after Ctrl-C or SIGTERM, when unfinished training runs are saved; `BlockingIOError` if
        another run uses the folder; `FileNotFoundError` for a text without a test set; `ValueError` for a damaged
        result, and `CheckpointError` for a damaged model.
        """
        unique = {self.key(trial): trial for trial in _with_needed(trials)}
        with locked(self.folder):
            for kind in ("models", "results"):
                remove_unfinished(self.folder / kind, r"[\w.-]+")
            waiting = [trial for trial in unique.values() if not self._is_done(trial)]
            waiting.sort(key=lambda trial: -trial.weight)
            for choice in dict.fromkeys(trial.text for trial in unique.values()):
                next(choice.pairs("test"))  # raises if the text has no test set
                if not (self._data(choice) / "corpus.json").is_file():
                    self.say(f"preparing the text: {_describe(choice)}")
                prepare(self._data(choice), choice)
            at_once = self.workers if self.ops is numpy_ops else 1
            progress = _Progress(len(unique) - len(waiting), waiting, at_once, self.say)
            try:
                if at_once > 1:
                    self._run_side_by_side(waiting, progress)
                else:
                    while waiting:
                        trial, start = waiting.pop(self._first_ready(waiting, [])), perf_counter()
                        progress.done(trial, self._do(trial), perf_counter() - start)
            except Interrupted:
                self.say(f"stopped with {progress.number} of {progress.total} trials done; training runs are saved")
                raise

    def result(self, trial: Trial) -> TrialResult:
        """The result of a trial. Raises `FileNotFoundError` if it was not run, and `ValueError` for a damaged file."""
        path = self._result(self.key(trial))
        try:
            result = TrialResult.from_dict(unseal(path.read_bytes()))
            if result.diverged is None and result.evaluations.keys() != {
                evaluation.name for evaluation in trial.evaluations
            }:
                raise ValueError("not every evaluation is in it")
            return result
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is damaged ({error!r}): delete it, and the trial is done again") from None

    def model_path(self, trial: Trial) -> Path:
        """The checkpoint of the trial's model, with its tokenizer."""
        return self.folder / "models" / f"{self.key(trial)}.safetensors"

    def key(self, trial: Trial) -> str:
        """The name of the trial's files."""
        origin = {"backend": self.backend, "text": _fingerprint(trial.text), "edition": EDITION}
        return key_of(trial.name, {**trial.describe(), "origin": origin})

    def data(self, choice: CorpusChoice) -> PreparedData:
        """The data of a text that trials were run on."""
        return open_prepared(self._data(choice))

    def _is_done(self, trial: Trial) -> bool:
        """Return True if the trial's result exists, and its model unless it diverged. Raises if one is damaged."""
        if not self._result(self.key(trial)).is_file():
            return False
        if self.result(trial).diverged is not None:
            return True
        path = self.model_path(trial)
        if path.is_file():
            try:
                load_checkpoint(path, with_optimizer=False)
            except CheckpointError as error:
                raise CheckpointError(f"{error}: delete it, and the trial is done again") from None
        return path.is_file()

    def _result(self, key: str) -> Path:
        return self.folder / "results" / f"{key}.json"

    def _data(self, choice: CorpusChoice) -> Path:
        return self.folder / "data" / key_of(choice.name, {"text": _fingerprint(choice)})

    def _run_side_by_side(self, waiting: list[Trial], progress: "_Progress") -> None:
        """Run a process for each trial, `workers` at a time; after a signal all save and end."""
        from multiprocessing.connection import wait  # here: a browser lacks it

        context = multiprocessing.get_context("spawn")
        queue, running = list(waiting), dict[int, tuple[BaseProcess, Trial, float]]()
        with stop_request() as stop:
            while running or (queue and not stop.requested):
                under_way = [trial for _, trial, _ in running.values()]
                while queue and len(running) < self.workers and not stop.requested:
                    ready = self._first_ready(queue, under_way)
                    if ready is None:
                        break
                    trial = queue.pop(ready)
                    under_way.append(trial)
                    process = context.Process(target=_work, args=(replace(self, say=_silent), trial))
                    process.start()
                    running[process.sentinel] = process, trial, perf_counter()
                ended = wait(list(running), timeout=0.5)
                for sentinel in [each for each in running if each in ended]:
                    process, trial, start = running.pop(sentinel)
                    process.join()
                    if self._is_done(trial):
                        progress.done(trial, self.result(trial), perf_counter() - start)
                    elif not stop.requested:
                        _stop(running)
                        raise ChildProcessError(f"the trial {trial.name!r} failed: {_ending(process)}")
                if stop.requested:
                    _stop(running)
                    running.clear()
        if stop.requested:
            raise Interrupted

    def _first_ready(self, queue: Sequence[Trial], under_way: Sequence[Trial]) -> Any:
        """The place in the queue of the first trial whose needs are neither in it nor under way; None without one."""
        undone = {self.key(trial) for trial in (*queue, *under_way)}
        places = (n for n, trial in enumerate(queue) if undone.isdisjoint(map(self.key, trial.needs)))
        return next(places, None)

    def _do(self, trial: Trial) -> TrialResult:
        """Train, evaluate, and keep the result."""
        key = self.key(trial)
        training = self.folder / "trainings" / key
        data = self.data(trial.text)
        try:
            models = [self.model_path(each) for each in trial.needs]
            result = run_trial(trial, data, training, self.model_path(trial), self.ops, self.dtype, models)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; without {training}, the trial is done from its beginning") from None
        with atomic_write(self._result(key)) as file:
            file.write(seal(result.to_dict()))
        for path in (*list_checkpoints(training), training / LOG_NAME):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the folder is not empty
            training.rmdir()
        return result


def _with_needed(trials: Sequence[Trial]) -> Iterator[Trial]:
    """The trials, each after those that it needs."""
    for trial in trials:
        yield from _with_needed(trial.needs)
        yield trial


class _Progress:
    """Reports which trials are done, and about how long the rest takes."""

    def __init__(self, done: int, waiting: Sequence[Trial], at_once: int, say: Callable[[str], None]) -> None:
        self.number, self.total = done, done + len(waiting)
        self.work, self.at_once = sum(trial.weight for trial in waiting), at_once
        self.worked = self.seconds = 0.0  # of finished trials only
        self.say, self.start = say, perf_counter()
        if done:
            say(f"{done} of {self.total} trials are done already")
        if waiting:
            say(f"{len(waiting)} to do, {at_once} at a time, the longest first")

    def done(self, trial: Trial, result: TrialResult, seconds: float) -> None:
        """Report a trial's result, and how long the rest takes at the speed of the finished trials."""
        self.number += 1
        self.worked += trial.weight
        self.seconds += seconds
        in_all = self.work * self.seconds / self.worked / self.at_once
        minutes = round((in_all - (perf_counter() - self.start)) / 60)
        left = f"about {minutes} minutes" if minutes > 1 else "a minute or less"
        came_to = result.diverged or f"{result.steps:,} steps in {result.seconds:,.0f} s"
        self.say(f"[{self.number}/{self.total}] {trial.name}: {came_to}; {left} of training left")


def _describe(choice: CorpusChoice) -> str:
    size = f"{choice.sentences:,} sentences" if choice.dataset == "grammar" else "its sentences"
    return f"{choice.name}, {size} of up to {choice.max_length} tokens, a vocabulary of {choice.vocab_size:,}"


@cache
def _fingerprint(text: CorpusChoice) -> str:
    return fingerprint_of(text)


def _work(runner: Runner, trial: Trial) -> None:
    """Run a trial in its own process, which stops if its parent asks or dies, but ignores a Ctrl-C, meant for both."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TOLD_TO_STOP))  # unlike the default it cleans up
    Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    with contextlib.suppress(Interrupted):
        try:
            runner._do(trial)
        except (OSError, CheckpointError) as error:
            sys.exit(visible(f"{trial.name}: {error}"))  # one line for the reason; the parent reports the failure


def _end_with_parent() -> None:
    """Send SIGTERM to this process when its parent has died."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _ending(process: BaseProcess) -> str:
    """The reason why a process ended without a result."""
    code = process.exitcode or 0
    if code == TOLD_TO_STOP:
        return "stopped by SIGTERM"
    return f"killed by signal {-code} (out of memory?)" if code < 0 else "see above"


def _stop(running: dict[int, tuple[BaseProcess, Trial, float]]) -> None:
    for process, *_ in running.values():
        process.terminate()  # SIGTERM, after which a training saves
    for process, *_ in running.values():
        process.join()


def _silent(line: str) -> None:
    """Report nothing: of parallel processes only the parent reports."""
