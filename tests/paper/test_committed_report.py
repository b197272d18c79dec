"""The report in the repository: whole, in step with its results, and from a command that can be repeated."""

import json
import re
from pathlib import Path

import pytest

from minitransformer.cli import build_parser
from minitransformer.cli.paper import NAMES, TASKS, budget
from minitransformer.paper.experiments import EXPERIMENTS
from minitransformer.paper.report import report_lines

PAPER = Path(__file__).parents[2] / "lessons" / "paper"
TEXT = (PAPER / "paper.md").read_text(encoding="utf-8")


def test_the_report_is_what_its_results_make() -> None:
    """`python -m minitransformer paper --report` writes it again."""
    assert "\n".join(report_lines(PAPER, EXPERIMENTS, tuple(TASKS))) + "\n" == TEXT


def test_every_experiment_has_its_part() -> None:
    for name in NAMES:
        assert (PAPER / f"results/{name}.json").is_file()


def test_the_commands_would_take_as_many_steps_today() -> None:
    for path in PAPER.glob("results/*.json"):
        origin = json.loads(path.read_text(encoding="utf-8"))["origin"]
        args = build_parser().parse(origin["command"].removeprefix("python -m minitransformer ").split())
        chosen = [EXPERIMENTS[name] for name in args.experiments or NAMES]
        minutes, scale = budget(chosen, args.minutes, args.task)
        assert (minutes, scale) == (origin["minutes"], pytest.approx(origin["scale"])), path.name
        assert f"`{origin['command']}`" in TEXT


def test_every_picture_is_there_and_shown() -> None:
    shown = re.findall(r"\]\((pictures/[^)]+)\)", TEXT)
    assert sorted(shown) == sorted(str(path.relative_to(PAPER)) for path in PAPER.glob("pictures/**/*.png"))
