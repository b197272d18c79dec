"""The progress bar: loss, speed, learning rate and the time left, on standard error."""

import sys
from typing import Any, Self

from ..visible import visible


class Progress:
    """A bar over the optimiser steps, drawn rarely if standard error is a file."""

    def __init__(self, step: int, steps: int, enabled: bool = True) -> None:
        from tqdm.std import tqdm

        interval = 0.2 if sys.stderr.isatty() else 30.0
        self._bar = tqdm(
            total=steps, initial=step, unit="step", disable=not enabled, mininterval=interval, dynamic_ncols=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def show(self, record: dict[str, Any]) -> None:
        """Advance by one step and show its log record; the figures of a validation get a line above the bar."""
        self._bar.set_postfix_str(
            f"loss {record['loss']:.3f}, {record['tokens_per_second']:,.0f} tokens/s, lr {record['learning_rate']:.2e}",
            refresh=False,
        )
        self._bar.update()
        labels = {"validation_loss": "validation loss", "perplexity": "perplexity", "bleu": "BLEU"}
        figures = [f"{label} {record[key]:.2f}" for key, label in labels.items() if key in record]
        if figures:
            self.say(f"step {record['step']}: {', '.join(figures)}")

    def say(self, line: str) -> None:
        """Write a line above the bar."""
        if not self._bar.disable:
            self._bar.write(visible(line), file=sys.stderr)
