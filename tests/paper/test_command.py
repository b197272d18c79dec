"""`python -m paper`: budgets, results, the report, and what it refuses."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minitransformer.data.preparation import CorpusChoice
from minitransformer.models import TransformerConfig
from minitransformer.training import TrainingSettings
from paper import experiments
from paper.command import STUDY, main
from paper.task import GRAMMAR, Task
from study.experiment import Context
from study.trials.run import Interrupted
from study.trials.runner import Runner
from study.trials.translating import Translating
from study.trials.trial import Trial

TEXT = CorpusChoice(vocab_size=400, sentences=100, max_length=160)
CONFIG = TransformerConfig(400, d_model=16, num_heads=2, d_ff=32, num_layers=1, max_length=160)


def trials(task: Task, scale: float) -> Sequence[Trial]:
    settings = TrainingSettings(steps=round(4 * scale), tokens_per_batch=512, peak_lr=1e-3, threads=1)
    return [Trial("tiny", TEXT, CONFIG, settings, (Translating(sentences=4, beam=1),))]


def find(context: Context) -> dict[str, Any]:
    (trial,) = trials(context.task, context.scale)
    return {"steps": context.runner.result(trial).steps}


def draw(findings: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table1-x.png").write_bytes(b"a picture")


def report(findings: dict[str, Any]) -> list[str]:
    return [f"It took {findings['steps']} steps.", "![x](pictures/table1-x.png)"]


TINY = SimpleNamespace(
    NAME="table1", TITLE="A title", MINUTES=1.0, ALONE=2.0, trials=trials, find=find, draw=draw, report=report
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of trainings in which the tiny experiment's, with the default budget, is done."""
    folder = tmp_path_factory.mktemp("trained")
    Runner(folder, workers=1, say=lambda line: None).run(trials(GRAMMAR, 1.0))
    return folder


@pytest.fixture(autouse=True)
def one_tiny_experiment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trained: Path) -> None:
    monkeypatch.setitem(experiments.EXPERIMENTS, "table1", TINY)  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "runs/paper")


def test_a_budget_is_for_what_is_asked() -> None:
    everything = list(experiments.EXPERIMENTS.values())
    assert STUDY.budget(everything, None) == (60.0, 1.0)
    assert STUDY.budget(everything, 120.0) == (120.0, 2.0)
    assert STUDY.budget(everything[:1], None) == (2.0, 1.0)
    assert STUDY.budget(everything[:1], 3.0) == (3.0, 1.5)


def test_an_experiment_from_nothing_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["table1", "--minutes", "3", "--workers", "1", "--out", "out", "--work", "work"]
    assert main(arguments) == 0
    assert "report" in capsys.readouterr().out
    kept = json.loads((tmp_path / "out/results/table1.json").read_text(encoding="utf-8"))
    assert kept["findings"] == {"steps": 6}
    assert kept["origin"]["command"] == "PYTHONPATH=lessons python -m paper table1 --minutes 3"
    text = (tmp_path / "out/paper.md").read_text(encoding="utf-8")
    assert "## A title" in text
    assert "It took 6 steps." in text
    assert "a budget of 3 minutes" in text

    (tmp_path / "out/paper.md").unlink()
    assert main(["--report", "--out", "out"]) == 0
    assert (tmp_path / "out/paper.md").read_text(encoding="utf-8") == text


def test_a_result_that_cannot_be_shown_is_named_until_the_experiment_is_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = ["table1", "--out", "out", "--workers", "1"]
    assert main(experiment) == 0
    path = tmp_path / "out/results/table1.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    origin, deep = content["origin"], 900 * "[" + "1" + 900 * "]"

    def draw_curve(findings: dict[str, Any], folder: Path) -> None:
        draw({**findings, "curve": findings.get("curve", [1])[0]}, folder)

    monkeypatch.setattr(TINY, "draw", draw_curve)
    monkeypatch.setattr(TINY, "report", lambda findings: [*report(findings), findings.get("line", "")])
    damaged = [b"{}", 10**5 * b"[", 10**5 * b'{"a":', b"\xff", b'{"origin": 1, "findings": 2}']
    unfit = [{"findings": []}, {"origin": {**origin, "minutes": "x"}}]
    unfit += [{"findings": {"steps": 1, "curve": {}}}, {"findings": {"steps": 1, "line": json.loads(deep)}}]
    stray = [{"origin": {**origin, "task": task}} for task in ("../../elsewhere", "multi30k", 7, [])]
    for changes, says, advice in (
        *((each, "table1.json is damaged", "): delete it, and run the experiment again\n") for each in damaged),
        *((each, "table1.json does not fit its report", ": run the experiment again\n") for each in unfit),
        *((each, "it is of another task than its name says", "\n") for each in stray),
    ):
        path.write_bytes(changes if isinstance(changes, bytes) else json.dumps(content | changes).encode())
        assert main(["--report", "--out", "out"]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.endswith(advice)
        if "delete" in advice:
            path.unlink()
        if advice != "\n":
            assert main(experiment) == 0


def test_where_nothing_can_be_kept_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(Runner, "run", lambda self, wanted: pytest.fail("it trains first"))
    assert main(["table1", "--out", "file"]) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_somebody_s_own_paper_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table1", "--workers", "1", "--out", "out"]) == 0
    paper = tmp_path / "out/paper.md"
    paper.write_text("# My thesis")
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "run", lambda self, wanted: pytest.fail("it trains first"))
        for arguments in (["table1"], ["--report"]):
            assert main([*arguments, "--out", "out"]) == 2
            said = "paper.md is not this report: move it elsewhere, or choose another --out\n"
            assert capsys.readouterr().err.endswith(said)
    assert paper.read_text() == "# My thesis"
    paper.rename(tmp_path / "thesis.md")
    assert main(["--report", "--out", "out"]) == 0


def test_the_text_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text/train.en").write_text("A dog.")
    for name in ("paper.md", "results/table1-multi30k.json", "pictures/multi30k/table1-x.png"):
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.hardlink_to(tmp_path / "text/train.en")
        assert main(["table1", "--task", "multi30k", "--data", "text", "--out", "out"]) == 2
        assert "would replace what is read, text/train.en: choose another name" in capsys.readouterr().err
        path.unlink()


def test_results_of_longer_trainings_are_not_replaced_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    for minutes, said in (("3", 0), ("3", 0), ("2", 1), ("3", 0)):
        assert main(["table1", "--minutes", minutes, "--workers", "1", "--out", "out"]) == 0
        warning = "table1.json came from longer training runs and will be replaced; --out FOLDER keeps it"
        assert capsys.readouterr().out.count(warning) == said


def test_an_interruption_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(self: Runner, wanted: Sequence[Trial]) -> None:
        raise Interrupted

    monkeypatch.setattr(Runner, "run", interrupted)
    assert main(["table1"]) == 130
    assert "the same command goes on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table9"], "there is no experiment 'table9': choose from table1"),
        (["table1", "--minutes", "0"], "--minutes must be positive and at most 525,600, a year, got 0"),
        (["table1", "--minutes", "nan"], "--minutes: expected a finite number, got 'nan'"),
        (["table1", "--minutes", "1e300"], "a year, got 1e+300"),
        (["table1", "--report"], "--report takes no experiment, task or budget"),
        (["--report", "--minutes", "5"], "--report takes no experiment, task or budget"),
        (["--data", ""], "--data: expected the name of a file or folder"),
        (["table1", "--data", "x"], "--data goes with --task multi30k"),
        (["table1", "--task", "multi30k", "--data", "nowhere"], "nowhere is not a folder"),
        (["table1", "--workers", "0"], "--workers: expected at least 1, got 0"),
        (["--report", "--out", "empty"], "empty holds no results of the paper's experiments"),
    ],
)
def test_what_is_refused(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_the_text(task: Task, scale: float) -> Sequence[Trial]:
        (trial,) = trials(task, scale)
        return [replace(trial, text=task.text)]

    monkeypatch.setattr(TINY, "trials", on_the_text)
    assert main([*arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_results_of_another_task_stand_beside_the_grammar_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TINY, "trials", lambda task, scale: [])
    monkeypatch.setattr(TINY, "find", lambda context: {"steps": 7})
    assert main(["table1", "--task", "multi30k", "--out", "out"]) == 0
    assert (tmp_path / "out/results/table1-multi30k.json").is_file()
    assert (tmp_path / "out/pictures/multi30k/table1-x.png").is_file()
    text = (tmp_path / "out/paper.md").read_text(encoding="utf-8")
    assert "## A title, on Multi30k" in text
    assert "](pictures/multi30k/table1-x.png)" in text


def test_what_both_tasks_end_with_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TINY, "trials", lambda task, scale: [])
    monkeypatch.setattr(TINY, "find", lambda context: {"steps": 7 if context.task.name == "grammar" else 8})
    ends = ["The paper's own table:", "| a |\n| --- |\n| 1 |"]
    monkeypatch.setattr(TINY, "report", lambda findings: [*report(findings), *ends])
    assert main(["table1", "--task", "multi30k", "--out", "out"]) == 0
    assert "The paper's own table:\n\n| a |" in (tmp_path / "out/paper.md").read_text(encoding="utf-8")
    assert main(["table1", "--out", "out"]) == 0
    text = (tmp_path / "out/paper.md").read_text(encoding="utf-8")
    assert text.count("The paper's own table:") == text.count("| a |") == 1
    assert text.index("It took 7 steps.") < text.index("| a |") < text.index("It took 8 steps.")
