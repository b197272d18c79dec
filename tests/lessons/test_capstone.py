"""The file that lesson 18 makes of a learner's answers: it is right, needs NumPy alone, and holds what is theirs."""

import ast
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from course import answers
from course.lesson_18.assembly import OURS, assembled, imported, part, run_with_numpy_alone, write
from course.lesson_18.trials import batch_of, gradient_errors
from course.sources import LESSONS
from minitransformer.decoding import Translator
from minitransformer.gradcheck import error

WEIGHTS = LESSONS / "weights" / "en-de.safetensors"
SENTENCES = ["The old teacher reads a book.", "She is not lazy if the green skirt is blue.", "Zebras? 42!"]


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(answers.FOLDER, str(tmp_path / "answers"))
    return tmp_path / "answers"


def answer(kept: Path, number: str, name: str, text: str) -> None:
    (kept / number).mkdir(parents=True, exist_ok=True)
    (kept / number / f"{name}.py").write_text(text)


def test_the_file_imports_numpy_alone(kept, capsys):
    path = write()
    names = {
        alias.name.split(".")[0] if isinstance(node, ast.Import) else (node.module or "")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert names - set(sys.stdlib_module_names) == {"numpy"}
    assert "0 of its" in capsys.readouterr().out
    run_with_numpy_alone(path)
    assert capsys.readouterr().out == "it needs NumPy alone\n"
    subprocess.run([sys.executable, "-I", "-W", "error", path], check=True)


def test_it_translates_as_the_package_does(kept):
    mine = imported(write())
    model, tokenizer = mine.load(WEIGHTS)
    package = Translator.from_checkpoint(WEIGHTS)
    for sentence in SENTENCES:
        assert tokenizer.encode(sentence) == package.tokenizer.encode(sentence)
        assert tokenizer.decode(tokenizer.encode(sentence)) == sentence
    theirs = package.translate(SENTENCES[:2], beam=4)
    assert [mine.translate(model, tokenizer, sentence) for sentence in SENTENCES[:2]] == theirs


def test_a_sentence_that_is_too_long_gets_one_clear_sentence(kept):
    mine = imported(write())
    model, _ = mine.load(WEIGHTS)
    short, long = np.full((1, 2), 3), np.full((1, mine.LONGEST + 1), 3)
    for source, target in ((short, long), (long, short)):
        for forward in (model.logits, partial(model.loss_and_gradients, target_out=target)):
            with pytest.raises(ValueError, match="a sentence has at most 1000 tokens, not 1001"):
                forward(source, target)


def test_its_gradients_are_the_packages(kept):
    mine = imported(write())
    package = Translator.from_checkpoint(WEIGHTS).model
    weights = {name: np.array(weight, np.float64) for name, weight in package.parameters.state_dict().items()}
    exact = type(package)(package.config, dtype="float64")
    exact.parameters.load_state_dict(weights)
    rng = np.random.default_rng(0)
    batch = rng.integers(3, 2000, (3, 5)), rng.integers(3, 2000, (3, 6)), rng.integers(3, 2000, (3, 6))
    batch[0][0, 3:], batch[1][1, 4:], batch[2][1, 4:] = 0, 0, 0
    model = mine.MyTransformer(weights, package.config.num_heads)
    model.loss_and_gradients(*batch)
    loss = model.loss_and_gradients(*batch)  # now gradients are there, which must not be added to
    expected, cache = exact.loss(*batch, 0.1)
    exact.loss_backward(1.0, cache)
    assert error(np.array(loss), np.asarray(expected)) < 1e-12
    for name, parameter in exact.parameters.named.items():
        assert error(model.gradients[name], parameter.grad) < 1e-9, name


def test_what_is_used_computes_what_is_trained(kept):
    mine = imported(write())
    rng = np.random.default_rng(0)
    weights = mine.load(WEIGHTS)[0].weights
    model = mine.MyTransformer({name: weight.astype(np.float64) for name, weight in weights.items()}, 6)
    source, target = rng.integers(3, 2000, (3, 5)), rng.integers(3, 2000, (3, 6))
    source[0, 3:] = 0
    memory, _ = model.encode(source)
    hidden, _ = model.decode(target, memory, source)
    assert error(hidden @ model.table.T, model.logits(source, target)) < 1e-12


def test_it_learns(kept, capsys):
    mine = imported(write())
    rng = np.random.default_rng(0)
    model, _ = mine.load(WEIGHTS)
    ids = rng.integers(3, 2000, (4, 6))

    def batches():
        while True:
            yield ids, ids[:, :-1], ids[:, 1:]

    losses = model.train(batches(), steps=20, warmup_steps=10)
    assert losses[-1] < losses[0]
    assert not model.rate, "dropout ends with the training"
    assert "loss" in capsys.readouterr().out


def test_central_differences_find_a_gradient_that_is_wrong(kept):
    mine = imported(write())
    rng = np.random.default_rng(0)
    weights = {name: np.float64(weight) for name, weight in mine.load(WEIGHTS)[0].weights.items()}
    model, batch = mine.MyTransformer(weights, 6), batch_of([([5, 6], [7, 8, 9]), ([5], [4])])
    assert max(gradient_errors(model, batch, rng, elements=1).values()) < 1e-7
    model.feed_forward_backward = lambda dout, cache: 0 * dout
    assert max(gradient_errors(model, batch, rng, elements=1).values()) > 1e-2


def test_the_learners_forwards_run_in_use_and_their_layers_in_training(kept, monkeypatch):
    mine, called = imported(write()), set()
    forwards = {"softmax", "attention", "encoder_layer", "decoder_layer", "transformer"}

    def spied(name, function):
        return lambda *arguments: called.add(name) or function(*arguments)

    for name in forwards:
        monkeypatch.setattr(mine, name, spied(name, getattr(mine, name)))
    model, tokenizer = mine.load(WEIGHTS)
    mine.translate(model, tokenizer, SENTENCES[0])
    assert called == forwards
    called.clear()
    model.loss_and_gradients(*batch_of([([5, 6], [7, 8, 9])]))
    assert {"encoder_layer", "decoder_layer"} <= called


# --- Whose parts they are -------------------------------------------------------------------------------------


def test_a_right_answer_takes_the_place_of_the_courses(kept):
    text = """import numpy as np
SIDE = 0
# What comes before.
def helper(x):
    return x.sum(axis=SIDE)
def linear_backward(dy, x, weight):
    \"\"\"Mine.\"\"\"
    return dy @ weight.T, x.T @ dy, helper(dy)  # my own words
"""
    answer(kept, "00", "linear_backward", text)
    text = """import numpy
def helper(n):
    return numpy.arange(n)
def causal_mask(a, b):
    return helper(b) <= helper(a)[:, None] + b - a
"""
    answer(kept, "04", "causal_mask", text)
    file, own, *_ = assembled()
    assert own["00", "linear_backward"]
    assert not own["04", "attention_backward"]
    assert "# my own words" in file
    assert "# What comes before." in file
    assert "# Lesson 00: mine\n" in file
    assert f"Mine: 2 of {len(own)} parts\n    lesson 00: linear_backward\n    lesson 04: causal_mask\n\n" in file
    assert "# Given by the course\nclass Layers:" in file
    assert file.count("    def helper(") == 2, "two helpers of one name stay two"
    mine = imported(write())
    assert mine.causal_mask(2, 3).tolist() == [[True, True, False], [True, True, True]]
    assert part("04", "causal_mask")(1, 2).tolist() == [[True, True]]
    assert part("00", "linear_backward")(np.ones((2, 1)), np.ones((2, 1)), np.ones((1, 1)))[2] == 2


def test_all_parts_can_be_the_learners(kept):
    for lesson, name in assembled().own:
        solution = getattr(import_module(f"course.lesson_{lesson}.solutions"), name)
        answers.save(lesson, solution, lambda alone: True)
    text, own, _, refused = assembled()
    assert all(own.values())
    assert not refused
    assert OURS.capitalize() not in text
    mine = imported(write())
    assert mine.translate(*mine.load(WEIGHTS), SENTENCES[0]) == "Der alte Lehrer liest ein Buch."


def test_an_answer_that_uses_the_packages_softmax_gets_the_learners(kept, monkeypatch):
    text = """from minitransformer.ops import softmax_forward as soft
import numpy as np
def masked_softmax(scores, mask):
    seen = mask.any(axis=-1, keepdims=True)
    return np.where(mask, soft(np.where(mask | ~seen, scores, -1e30))[0], 0)
"""
    answer(kept, "04", "masked_softmax", text)
    mine = imported(write())
    weights = mine.masked_softmax(np.zeros((1, 2)), np.array([[True, False]]))
    np.testing.assert_array_equal(weights, [[1, 0]])
    np.testing.assert_array_equal(
        mine.softmax_forward(np.array([[-np.inf, -np.inf], [0, -np.inf]]))[0], [[0, 0], [1, 0]]
    )
    monkeypatch.setattr(mine, "softmax", lambda x: 3 + 0 * x)
    assert (mine.masked_softmax(np.zeros((1, 2)), np.array([[True, True]])) == 3).all()


def test_an_answer_that_uses_the_package_gets_the_textbooks_op(kept):
    text = """from minitransformer.ops import relu_forward as relu
def feed_forward_forward(x, weight1, bias1, weight2, bias2):
    active, _ = relu(x @ weight1 + bias1)
    return active @ weight2 + bias2, (x, active, weight1, weight2)
"""
    answer(kept, "07", "feed_forward_forward", text)
    _, own, given, _ = assembled()
    assert own["07", "feed_forward_forward"]
    assert "relu_forward" in given


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import torch", "imports torch"),
        (
            "from minitransformer.ops import attention_mask",
            "uses minitransformer's attention_mask, which its textbook does not have",
        ),
    ],
)
def test_an_answer_that_needs_more_than_numpy_is_named_and_the_courses_stands_in(kept, line, said, capsys):
    answer(kept, "06", "sinusoids", f"{line}\ndef sinusoids(n, d):\n    return 1\n")
    mine = imported(write())
    assert mine.sinusoids(3, 4).shape == (3, 4)
    assert f"lesson 06, your sinusoids {said}: the course's stands in" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def sinusoids(:",
        "def sinusoids(n, d):\n    return 1\n",
        "def sinusoids(n, d):\n    return table[:n]\n",
        "\xff",
    ],
)
def test_an_answer_that_is_not_right_in_the_file_is_named_and_the_courses_stands_in(kept, text, capsys):
    answer(kept, "06", "sinusoids", "")
    (kept / "06" / "sinusoids.py").write_bytes(text.encode("latin-1"))
    mine = imported(write())
    assert mine.sinusoids(3, 4).shape == (3, 4)
    said = capsys.readouterr().out
    assert "lesson 06, your sinusoids " in said
    assert "the course's stands in" in said


@pytest.mark.parametrize("line", ["ROWS = 1 / 0", "raise SystemExit", "while True: pass", "print('mine')"])
def test_an_answer_that_cannot_be_loaded_does_not_take_the_others_with_it(kept, line, capsys):
    answer(
        kept, "04", "causal_mask", "import numpy as np\ndef causal_mask(a, b):\n    return np.tri(a, b, b - a) > 0\n"
    )
    answer(kept, "06", "sinusoids", f"{line}\ndef sinusoids(n, d):\n    return 1\n")
    _, own, _, refused = assembled()
    assert own["04", "causal_mask"]
    assert not own["06", "sinusoids"]
    assert len(refused) == 1
    assert refused[0].startswith("lesson 06, your sinusoids ")
    assert part("06", "sinusoids")(3, 4).shape == (3, 4)
    assert not capsys.readouterr().out


def test_names_of_one_answer_do_not_reach_another(kept):
    text = """from numpy import max, sum
import math as m
load = 3
def causal_mask(a, b):
    return sum(max([[0]]) + [[1]]) + m.floor(0.5) > 0 if load > 3 else __import__("numpy").tri(a, b, b - a, bool)
"""
    answer(kept, "04", "causal_mask", text)
    mine = imported(write())
    assert mine.causal_mask(1, 2).tolist() == [[True, True]]
    assert mine.load is not None
    assert mine.max is max if hasattr(mine, "max") else True
    assert mine.load(WEIGHTS)[0].decoder


def test_changes_of_the_file_are_not_lost(kept, capsys):
    path = write()
    first = path.read_bytes()
    assert write().read_bytes() == first
    path.write_bytes(first + b"# mine\n")
    write()
    assert (path.parent / "my_transformer_1.py").read_bytes() == first + b"# mine\n"
    assert "my_transformer_1.py" in capsys.readouterr().out
