"""The report in the repository: whole, in step with its results, and from a command that can be repeated."""

import json
import re
from pathlib import Path

import pytest

from paper.command import PROGRAM, TASKS, budget, build_parser
from paper.experiments import EXPERIMENTS
from paper.report import report_text

PAPER = Path(__file__).parents[2] / "lessons" / "paper"
TEXT = (PAPER / "paper.md").read_text(encoding="utf-8")


def test_the_report_is_what_its_results_make() -> None:
    """`make paper ARGS=--report` writes it again."""
    assert report_text(PAPER, EXPERIMENTS, tuple(TASKS)) + "\n" == TEXT


def test_every_experiment_has_its_part() -> None:
    for name in EXPERIMENTS:
        assert (PAPER / f"results/{name}.json").is_file()


def test_the_commands_would_take_as_many_steps_today() -> None:
    for path in PAPER.glob("results/*.json"):
        origin = json.loads(path.read_text(encoding="utf-8"))["origin"]
        assert origin["command"].startswith(PROGRAM)
        args = build_parser().parse(origin["command"].removeprefix(PROGRAM).split())
        chosen = [EXPERIMENTS[name] for name in args.experiments or EXPERIMENTS]
        minutes, scale = budget(chosen, args.minutes, args.task)
        assert (minutes, scale) == (origin["minutes"], pytest.approx(origin["scale"])), path.name
        assert f"`{origin['command']}`" in TEXT


def test_every_picture_is_there_and_shown() -> None:
    shown = re.findall(r"\]\((pictures/[^)]+)\)", TEXT)
    assert sorted(shown) == sorted(str(path.relative_to(PAPER)) for path in PAPER.glob("pictures/**/*.png"))
