"""Runs the explorer's engine in Node on a model, so that tests compare its numbers with the library's."""

import atexit
import base64
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from minitransformer.data.tokenizer import BPETokenizer
from minitransformer.decoding import Hypothesis, Translator, beam_search, greedy_search, open_checkpoint
from minitransformer.explorer.payload import check_model, payload
from minitransformer.grammar import sample

ROOT = Path(__file__).parents[2]
EXPLORER = ROOT / "minitransformer/explorer"
COURSE = ROOT / "lessons/weights/en-de.safetensors"
RUNNER = ROOT / "tests/explorer/run_engine.mjs"
NODE = shutil.which("node")

needs_node = pytest.mark.skipif(NODE is None, reason="Node, which runs JavaScript, is not installed: nodejs.org")


class Call(NamedTuple):
    """A call of an engine's function, or of a module's as "file.js:function"; `pick`: paths into what it returns."""

    name: str
    args: Sequence[Any]
    pick: Sequence[str] | None = None


class Result:
    """Stands in arguments for what an earlier call of the same run returned."""

    def __init__(self, number: int) -> None:
        self.number = number


class Course(NamedTuple):
    """The course's translator with its float64 twin and payload; sentences with their greedy and beam outputs."""

    model: Any
    exact: Any
    tokenizer: Any
    payload: dict[str, Any]
    sources: list[list[int]]
    greedy: list[Hypothesis]
    beam: list[Hypothesis]


@cache
def course_of(count: int) -> Course:
    """The course with so many sentences; nobody changes it."""
    opened = open_checkpoint(COURSE)
    model: Any = opened.model
    tokenizer = opened.tokenizer
    exact = open_checkpoint(COURSE, dtype="float64").model
    sentences = [each.english for each in islice(sample("test", seed=7), count)]
    sources = Translator(model, tokenizer).encode(sentences, truncate=False)
    rows = [np.array([ids]) for ids in sources]
    greedy = [greedy_search(model, row, length_penalty=0.6)[0] for row in rows]
    beam = [beam_search(model, row, num_beams=4)[0][0] for row in rows]
    return Course(model, exact, tokenizer, payload_of(model, tokenizer), sources, greedy, beam)


def run_engine(content: dict[str, Any] | None, calls: Sequence[Call]) -> list[Any]:
    """Return the calls' results, typed arrays as arrays and matrices as `(rows, cols)`. An error ends the test."""
    answers = timed_engine(content, calls)
    for call, answer in zip(calls, answers, strict=True):
        assert "error" not in answer, f"{call.name}: {answer['error']}"
    return [answer["value"] for answer in answers]


def timed_engine(content: dict[str, Any] | None, calls: Sequence[Call]) -> list[dict[str, Any]]:
    """For each call {"value", "milliseconds"} or {"error"}."""
    described = [{"name": call.name, "args": [_given(arg) for arg in call.args], "pick": call.pick} for call in calls]
    node = _node()
    print(json.dumps({"payload": content, "calls": described}), file=node.stdin, flush=True)
    answer = node.stdout.readline()
    assert answer, f"Node ended with status {node.wait()}"
    return [_restored(each) for each in json.loads(answer)]


@cache
def _node() -> Any:
    """The engine in one Node for all calls, which takes a while to start; it ends with this process."""
    command = [str(NODE), str(RUNNER), str(EXPLORER / "src/engine")]
    node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    atexit.register(node.communicate)
    return node


def payload_of(model: Any, tokenizer: Any, **options: Any) -> dict[str, Any]:
    """The payload of a model that the explorer accepts."""
    check_model(model, tokenizer)
    return payload(model, tokenizer, "test", None, **{"examples": [], **options})


def bytes_tokenizer(vocab_size: int) -> BPETokenizer:
    """A tokenizer without merges of at least 259 tokens."""
    return BPETokenizer("".join(map(chr, range(32, 32 + vocab_size - 259))), ())


def built_with_npm() -> bool:
    """Return True if the packages that build the page are here."""
    return NODE is not None and os.path.isdir(EXPLORER / "node_modules/esbuild")


def _given(arg: Any) -> Any:
    return {"result": arg.number} if isinstance(arg, Result) else arg


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(each) for each in value]
    if not isinstance(value, dict):
        return float(value.replace("Infinity", "inf")) if value in ("-Infinity", "Infinity", "NaN") else value
    for name in ("float32", "float64"):
        if value.keys() == {name}:
            return np.frombuffer(base64.b64decode(value[name]), name)
    restored = {name: _restored(each) for name, each in value.items()}
    if restored.keys() == {"rows", "cols", "data"}:
        return restored["data"].reshape(restored["rows"], restored["cols"])
    return restored


def input_gradients(model: Any, source: Sequence[int] | None, target: Sequence[int], position: int, token: int) -> Any:
    """NumPy's gradient of log P(token) after a position: of the source's embeddings (or `None`) and of the target's."""
    inputs = [np.array([ids]) for ids in (source, target) if ids is not None]
    found: list[np.ndarray] = []
    model.tokens.backward = lambda dout, cache: found.append(dout[0])  # the decoder comes first
    try:
        logits, cache = model.forward(*inputs)
        exponentials = np.exp(logits[0, position] - logits[0, position].max())
        dlogits = np.zeros_like(logits)
        dlogits[0, position] = -exponentials / exponentials.sum()
        dlogits[0, position, token] += 1
        model.backward(dlogits, cache)
    finally:
        del model.tokens.backward
    return (found[1] if source is not None else None), found[0]


def forward_of(model: Any, source: Sequence[int] | None, target: Sequence[int], **options: Any) -> np.ndarray:
    """NumPy's logits `(T, V)` of one sentence."""
    inputs = [np.array([ids]) for ids in (source, target) if ids is not None]
    return model.forward(*inputs, **options)[0][0]


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference over the largest expected value."""
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))
