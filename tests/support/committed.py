"""Tests of every study: its command, and its report in the repository, which is in step with results and commands."""

import importlib
import json
import re
from typing import Any

import pytest

from study import command
from study.experiment import Study
from study.report import report_text


class CommittedReport:
    """The tests of a study: a test class inherits them and names its study."""

    study: Study[Any]

    @property
    def text(self) -> str:
        return (self.study.out / self.study.report_name).read_text(encoding="utf-8")

    def test_no_two_experiments_have_the_same_name(self) -> None:
        modules = importlib.import_module(f"{self.study.name}.experiments").MODULES
        assert len(self.study.experiments) == len(modules)

    def test_the_default_budget_is_what_its_parts_need(self) -> None:
        parts = self.study.experiments.values()
        assert 0 <= self.study.minutes - sum(each.MINUTES for each in parts) <= 3
        assert all(each.ALONE >= each.MINUTES for each in parts)

    def test_help_has_examples(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as end:
            command.main(self.study, ["--help"])
        assert end.value.code == 0
        said = capsys.readouterr().out
        assert f" -m {self.study.name} " in said.partition("example")[2]
        assert ("--task" in said) == (len(self.study.tasks) > 1)

    def test_the_report_is_what_its_results_make(self) -> None:
        """`make … ARGS=--report` writes it again."""
        assert report_text(self.study, self.study.out) + "\n" == self.text

    def test_the_commands_would_take_as_many_steps_today(self) -> None:
        """A study that got another experiment since has more minutes, for as many steps of the others."""
        for path in self.study.out.glob("results/*.json"):
            origin = json.loads(path.read_text(encoding="utf-8"))["origin"]
            assert origin["command"].startswith(self.study.program)
            args = command.build_parser(self.study).parse(origin["command"].removeprefix(self.study.program).split())
            chosen = [self.study.experiments[name] for name in args.experiments or self.study.experiments]
            _, scale = self.study.budget(chosen, args.minutes, args.task)
            assert scale == pytest.approx(origin["scale"]), path.name
            assert f"`{origin['command']}`" in self.text

    def test_every_picture_is_there_and_shown(self) -> None:
        shown = re.findall(r"\]\((pictures/[^)]+)\)", self.text)
        kept = [str(path.relative_to(self.study.out)) for path in self.study.out.glob("pictures/**/*.png")]
        assert sorted(shown) == sorted(kept)
