"""The results of `make after` that this lesson shows."""

from typing import Any

from after.command import STUDY
from after.experiments import ablation
from study.report import sections

PARTS = "RMSNorm", "SwiGLU", "rotary", "ALiBi", "relative bias", "grouped"
"""The variants of the experiment that this lesson is about."""

COLOURS = {name: ablation.COLOURS[ablation.BY_NAME[name].group] for name in PARTS}


def measured(experiment: str) -> dict[str, Any] | None:
    """Return the findings of an experiment of `lessons/after`; if there are none yet, print a line and return None."""
    try:
        found = [each for each in sections(STUDY, STUDY.out) if each.at_home and experiment == each.experiment.NAME]
    except FileNotFoundError:
        found = []
    if not found:
        print(f"not measured yet: make after ARGS={experiment}")
        return None
    return found[0].findings


def gaps(found: dict[str, Any]) -> dict[str, Any]:
    """Return for each part the loss with it minus the base's, with its interval; None if a training diverged."""
    return {name: ablation.gap_of(found, name) for name in PARTS}


def beyond(found: dict[str, Any]) -> dict[str, Any]:
    """Return perplexity beyond the length of training divided by that within, for each kind of positions.

    Each has its interval, and is None if a training diverged.
    """
    return {name: ablation.stretched(found, name) for name in ("learned", "rotary", "ALiBi", "relative bias")}
