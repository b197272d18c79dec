"""The experiment on Python: the library's functions as lines, their judges, bits a byte, and what its results say."""

import json
import re
import warnings
from math import log
from pathlib import Path

import numpy as np
import pytest

from after.experiments import code
from after.experiments.code import plan, telling
from after.experiments.code.library import compiles, functions, line_of, parses, text_of
from after.experiments.code.plan import Reading, Writing
from after.task import Texts
from minitransformer.cli.recipes import Recipe
from minitransformer.data.preparation import PreparedData, prepare
from minitransformer.models import GPT, GPTConfig
from study.experiment import Context, Findings
from study.trials.runner import Runner
from study.trials.trial import Answers

pytestmark = pytest.mark.usefixtures("few_samples")
SOURCE = '''
@cache
def first(a, *, b="x"):
    """A docstring."""
    def inner():
        "Another."
    return (a)  # a comment

class Some:
    async def method(self): await self.{name}
    def empty(self):
        """Nothing else."""
    def accent(self): return "é"
'''
CONFIG = GPTConfig(320, d_model=16, num_heads=2, d_ff=16, num_layers=1, max_length=64, dropout=0.0, bos_id=2, eos_id=2)


@pytest.fixture
def small_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of 40 modules, each with one method of its own, and a folder of tests."""
    root = tmp_path / "library"
    for number in range(40):
        path = root / "package" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE.format(name=f"name{number}"), encoding="utf-8")
    (root / "test").mkdir()
    (root / "test" / "some.py").write_text("def of_a_test(): pass")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(root))
    return root


@pytest.mark.usefixtures("small_library")
def test_functions_of_the_library() -> None:
    found = list(functions())
    texts = {text_of(line) for line, _ in found}
    once = {
        "@cache\ndef first(a, *, b='x'):\n\n    def inner():\n        pass\n    return a",
        "def empty(self):\n    pass",
    }
    assert texts == once | {f"async def method(self):\n    await self.name{number}" for number in range(40)}
    assert len(found) == len(texts)
    trains = [each for _, each in found]
    assert trains == sorted(trains, reverse=True)  # those that validate come last
    assert 30 < sum(trains) < 42


def test_modules_do_not_move_to_the_other_side(small_library: Path) -> None:
    before = dict(functions())
    for path in list(small_library.rglob("module1*.py")):
        path.unlink()
    after = dict(functions())
    assert after.items() < before.items()


@pytest.mark.parametrize("text", ["x", "if x:\n    y\n\nz", 'f"""\n   {x}\n     """', "def f():\n        return 1"])
def test_a_line_gives_its_function_back(text: str) -> None:
    assert "\n" not in line_of(text)
    assert text_of(line_of(text)) == text


def test_judges(recwarn: pytest.WarningsRecorder) -> None:
    accepted = ["def f(a):¶→return a", "", r"x = '\d' is 1"]
    parsed = ["def f(a, a):¶→pass", "return 1", "def f():¶→nonlocal x"]
    refused = ["def f(:", "def f():¶return 1", "a→b", "x\0", "(" * 1000, "-" * 200_000 + "1"]
    lines = [*accepted, *parsed, *refused]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert parses(lines) == [1] * 6 + [0] * 6
        assert compiles(lines) == [1] * 3 + [0] * 9
    assert not recwarn.list


def test_figures_of_lines() -> None:
    lines = ["def f():¶→return 1", "def f(a, a):¶→if a:¶→→pass", "def f("]
    assert Writing.judged(lines, {lines[0]}).tolist() == [[1, 1, 1, 1, 21], [1, 0, 0, 0, 35], [0, 0, 0, 1, 6]]
    found = code.shares(lines, Writing.judged(lines, {lines[0]}))
    assert found["parses"] == pytest.approx(2 / 3)
    assert found["new"] == pytest.approx(1 / 3)


def test_what_is_added_to_a_packed_text() -> None:
    assert code.bits_packed(bytes, b"abc", b"ab") == {"alone": 8, "after": 8}
    assert code.bits_packed(lambda data: bytes(set(data)), b"abc", b"aabd") == {"alone": 6, "after": 2}


@pytest.fixture
def data(tmp_path: Path, small_library: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedData:
    monkeypatch.setattr(plan, "VOCAB_SIZE", 320)
    return prepare(tmp_path / "data", plan.text_choice())


def test_bits_are_those_of_whole_functions(data: PreparedData) -> None:
    model = GPT(CONFIG, seed=1)
    answers = Reading().answer(model, data)
    bits, sizes = answers.statistics.T
    for (ids, _), found, size in zip(data.valid, bits, sizes, strict=True):
        loss, _ = model.loss(np.array([[2, *ids[:-1]]]), ids[None].astype(np.int64), with_grad=False)
        assert found == pytest.approx(float(loss) * len(ids) / log(2), rel=1e-5)
        assert size == len(text_of(data.tokenizer.decode(ids))) + 1


@pytest.fixture
def found(small_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Findings:
    """Findings of two seeds of a small model."""
    model = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "bos_id": 2, "eos_id": 2}
    settings = {"tokens_per_batch": 512, "warmup_steps": 2, "peak_lr": 1e-2, "label_smoothing": 0.0}
    monkeypatch.setitem(plan.RECIPES, "gpt", Recipe(("next",), model, settings))
    monkeypatch.setattr("study.trials.run.CHECKPOINTS", 5)
    small = {"VOCAB_SIZE": 320, "LENGTH": 64, "MOST_TOKENS": 20, "STEPS": 5, "REWARDED_STEPS": 5, "SAMPLES": 6}
    for name, value in {**small, "SEEDS": (0, 1), "TEXTS": 8}.items():
        monkeypatch.setattr(plan, name, value)
    monkeypatch.setattr(plan.Judged, "fewest_steps", 5)
    monkeypatch.setattr(plan, "parses", lambda lines: [float(len(line) % 2) for line in lines])  # so small, none does
    runner = Runner(tmp_path / "work", workers=1, say=lambda line: None)
    runner.run(code.trials(Texts(), 1.0))
    return json.loads(json.dumps(code.find(Context(Texts(), 1.0, runner))))


def test_it_runs_from_nothing(found: Findings, tmp_path: Path) -> None:
    assert found["library"]["compiles"] == 1
    for runs in (found["models"][name] for name in ("0.5", "0")):
        assert [run["curve"][-1][0] for run in runs] == [5, 5]
        assert all(run["curve"][-1][3] > 0 for run in runs)  # the divergence is told without its weight too
    text = "\n\n".join(telling.report(found))
    assert telling.judge(found).keys() == found["predictions"].keys()
    telling.draw(found, tmp_path)
    assert set(re.findall(r"pictures/(.+?)\.png", text)) == {path.stem for path in tmp_path.glob("*.png")}


def test_runs_are_compared_with_their_own_bases() -> None:
    runs = {"base": [100, 200], "0.5": [90, 160]}
    models = {
        name: [{"length": each, "writing": {"1": {"parses": 0.97 + each / 1e4}}} for each in lengths]
        for name, lengths in runs.items()
    }
    ratio = telling.against_base({"models": models}, "0.5", lambda run, base: run["length"] / base["length"])
    assert ratio.value == pytest.approx(0.85)
    shown = telling.written({"models": models}, "base", "parses")
    assert shown.high == 100 > shown.value > shown.low


def test_no_line_of_the_training_text_is_shown() -> None:
    lines = [f"def f():¶→return {number}" for number in range(9)]
    answers = Answers(np.empty((0, 2)), Writing.judged(lines, {lines[0], lines[3]}), 1.0, lines)
    assert code.written(answers)["examples"] == [lines[number] for number in (1, 2, 4, 5, 6, 7)]
