"""A training at a terminal: the progress bar on standard error, and a clean stop on Ctrl-C."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any

from ..system.progress import tqdm
from ..system.visible import visible

FIGURES = {
    "validation_loss": "validation loss",
    "perplexity": "perplexity",
    "bleu": "BLEU",
    "bits_per_byte": "bits per byte",
    "accuracy": "accuracy in percent",
    "true_captions": "captions exactly true in percent",
    "recall": "pictures that find their caption in percent",
    "validation_reward": "reward",
    "validation_kl": "divergence from the start",
    "validation_entropy": "entropy",
    "validation_length": "tokens a text",
    "validation_distinct": "share of different texts",
    "validation_agreement": "share of pairs in which the better text wins",
}
"""The figures of a validation, as a user reads them."""

STOPPING = b"\nstopping after this step; another Ctrl-C stops at once, without what came after the last checkpoint\n"


@contextmanager
def stop_request(speaks: bool = False) -> Iterator[SimpleNamespace]:
    """Yield an object whose `requested` the first SIGINT (Ctrl-C) or SIGTERM sets; a second one acts as usual.

    One that speaks says so on standard error, since the step that is under way ends first.
    A signal that was ignored, as SIGINT is for a shell's background jobs, stays ignored. Outside the main thread,
    where Python allows no handlers, nothing changes.
    """
    stop, previous = SimpleNamespace(requested=False), dict[int, Any]()

    def request(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        signal.signal(number, previous[number])
        if speaks:
            os.write(2, STOPPING)  # a handler may run within a write to sys.stderr, which can't be entered twice

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, request) or signal.SIG_DFL
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def progress_bar(step: int, steps: int, enabled: bool = True) -> Any:
    """Return tqdm's bar over the optimiser steps; where standard error is no terminal, `say_above` alone is seen."""
    bar: Any = tqdm(
        total=steps, initial=step, unit="step", disable=None if enabled else True, mininterval=0.2, dynamic_ncols=True
    )
    bar.speaks = enabled
    return bar


def show_step(bar: Any, record: dict[str, Any]) -> None:
    """Advance the bar by one step and show the step's log record; a validation's figures get a line above the bar."""
    loss, speed, rate = record["loss"], record["tokens_per_second"], record["learning_rate"]
    reward = f"reward {record['reward']:.3f}, " if "reward" in record else ""
    bar.set_postfix_str(f"{reward}loss {loss:.3f}, {speed:,.0f} tokens/s, lr {rate:.2e}", refresh=False)
    bar.update()
    figures = ", ".join(f"{label} {record[key]:.2f}" for key, label in FIGURES.items() if key in record)
    if figures:
        say_above(bar, f"step {record['step']}: {figures}")


def say_above(bar: Any, line: str) -> None:
    """Write a line above the bar, or where it would be."""
    if bar.speaks:
        bar.write(visible(line), file=sys.stderr)
