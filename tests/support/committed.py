"""Tests of every study's report in the repository: whole, in step with its results, from repeatable commands."""

import json
import re
from typing import Any

import pytest

from study.command import build_parser
from study.experiment import Study
from study.report import report_text


class CommittedReport:
    """The tests of a committed report: a test class of a study inherits them and names its study."""

    study: Study[Any]

    @property
    def text(self) -> str:
        return (self.study.out / self.study.report_name).read_text(encoding="utf-8")

    def test_the_report_is_what_its_results_make(self) -> None:
        """`make … ARGS=--report` writes it again."""
        assert report_text(self.study, self.study.out) + "\n" == self.text

    def test_the_commands_would_take_as_many_steps_today(self) -> None:
        for path in self.study.out.glob("results/*.json"):
            origin = json.loads(path.read_text(encoding="utf-8"))["origin"]
            assert origin["command"].startswith(self.study.program)
            args = build_parser(self.study).parse(origin["command"].removeprefix(self.study.program).split())
            chosen = [self.study.experiments[name] for name in args.experiments or self.study.experiments]
            minutes, scale = self.study.budget(chosen, args.minutes, args.task)
            assert (minutes, scale) == (origin["minutes"], pytest.approx(origin["scale"])), path.name
            assert f"`{origin['command']}`" in self.text

    def test_every_picture_is_there_and_shown(self) -> None:
        shown = re.findall(r"\]\((pictures/[^)]+)\)", self.text)
        kept = [str(path.relative_to(self.study.out)) for path in self.study.out.glob("pictures/**/*.png")]
        assert sorted(shown) == sorted(kept)
