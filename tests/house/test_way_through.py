"""The length of a reader's way through the library along a training step; a change that makes it longer says so.

Counted are Python calls inside `minitransformer`, and the lines of what is called: its neighbours in a file are not on
the way. A check is a function whose name begins with that word.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from inspect import getsourcelines
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import minitransformer
from minitransformer import Transformer, TransformerConfig
from minitransformer.data.batching import collate
from minitransformer.training.optimizer import Adam
from minitransformer.training.step import Worker, training_step

HOME = str(Path(minitransformer.__file__).parent)


class Walk:
    """The calls of each function while `run` runs, by file and name; all calls in `num_calls`, NumPy's too."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.code: set[CodeType] = set()
        self.num_calls = 0
        self.depth_of_a_product = 0
        self._depth = 0
        threading.setprofile(self._note)  # of the thread that the step starts
        sys.setprofile(self._note)
        try:
            run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        self.num_calls += event == "call"
        if event not in ("call", "return") or not file.startswith(HOME):
            return
        if event == "return":
            self._depth -= 1
            return
        self._depth += 1
        self.calls[file, name] += 1
        self.code.add(frame.f_code)
        if name == "linear_forward":
            self.depth_of_a_product = max(self.depth_of_a_product, self._depth)

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.calls}

    @property
    def lines(self) -> int:
        """The lines of these functions, with their docstrings."""
        lengths = ((code, len(getsourcelines(code)[0])) for code in self.code)
        return len({(code.co_filename, code.co_firstlineno + n) for code, length in lengths for n in range(length)})

    @property
    def share_of_checks(self) -> float:
        checks = (n for (_, name), n in self.calls.items() if name.split(".")[-1].lstrip("_").startswith("check"))
        return sum(checks) / self.calls.total()


LONGER = "a training step became longer to read: shorten it, or raise this number and say in the commit why"


@pytest.fixture(scope="module")
def model() -> Transformer:
    return Transformer(TransformerConfig(50, d_model=16, num_heads=2, d_ff=32, num_layers=2, max_length=64))


def test_a_training_step(model):
    batch = collate([np.array([5, 6, 7, 8])] * 4, [np.array([9, 10, 11])] * 4)
    worker, adam = Worker(model), Adam(model.parameters, model.ops)
    walk = Walk(lambda: training_step(worker, adam, [batch], learning_rate=1e-3))
    assert len(walk.calls) <= 93, LONGER
    assert len(walk.files) <= 26, LONGER
    assert walk.lines <= 970, LONGER
    assert walk.share_of_checks <= 0.03


def test_from_the_forward_to_a_matrix_product_it_is_six_calls(model):
    walk = Walk(lambda: model.forward(np.array([[3, 4]]), np.array([[5, 6, 7]])))
    assert walk.depth_of_a_product == 6
    assert walk.share_of_checks <= 0.03


def test_a_decoded_position(model):
    state = model.start_decoding(np.array([[3, 4], [5, 6]]), 4)
    ids = np.full((2, 4), 1)
    model.decode_step(ids, state)
    assert Walk(lambda: model.decode_step(ids, state)).num_calls <= 169
