"""An answer is right or wrong on any machine, however busy: no judge reads a clock, and no test measures a time."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLOCKS = {"time", "perf_counter", "process_time", "monotonic", "thread_time"}


def trees(folder, pattern):
    for path in (ROOT / folder).rglob(pattern):
        text = path.read_text(encoding="utf-8")
        calls = re.search(rf"\b({'|'.join(CLOCKS)})(_ns)?\(", text)
        for node in ast.walk(ast.parse(text)) if calls else ():
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node


def reads_a_clock(node):
    called = node.func if isinstance(node, ast.Call) else None
    name = getattr(called, "attr", getattr(called, "id", ""))  # time.monotonic(), or monotonic()
    return name.removesuffix("_ns") in CLOCKS


def test_no_judge_reads_a_clock():
    for place, node in trees("lessons/course", "exercises*.py"):
        assert not reads_a_clock(node), f"{place}: count what it costs (course.counting, course.checks)"


def test_no_test_measures_a_time():
    for place, node in trees("tests", "test_*.py"):
        measured = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
        assert not (measured and any(map(reads_a_clock, ast.walk(node)))), f"{place}: wait, with a deadline, or count"
