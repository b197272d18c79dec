"""The steps towards speed: what each is, and what was expected of it before it was measured."""

import time
import tracemalloc
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

SHAPES = ("S", "M", "B")
LEAST_PAIRS, SECONDS = 4, 6.0
"""Pairs of turns are taken for at least so many seconds of computing, and at least so many."""


@dataclass(frozen=True)
class Step:
    """`predicted`: how many times as long a training step of S and of M was expected to take without it."""

    name: str
    what: str
    predicted: tuple[float, float]
    why: str


STEPS = [
    Step(
        "threads",
        "two Python threads, each half of the batch; without it, BLAS's own two threads",
        (1.3, 1.2),
        "NumPy's loops run on one core whatever BLAS does; replicas put all of the arithmetic on both",
    ),
    Step(
        "memory",
        "freed memory stays with the process; without it, glibc returns large arrays to the system",
        (1.2, 1.3),
        "every page that comes back from the system is zeroed on first touch",
    ),
]
"""Those of the whole process: `name` is what `numpy_jobs.training` leaves out."""


@dataclass(frozen=True)
class Trick:
    """An op that is not its formula as printed: `op` is the entry of the table, `kept` why it stays so."""

    op: str
    what: str
    kept: str


PRODUCT_WITH_ONES = "sums over rows as a product with ones"
TRICKS = [
    Trick("linear", f"all positions as the rows of one product; {PRODUCT_WITH_ONES}", "time; accuracy"),
    Trick("relu", "keeps its output, as the next layer does; `dy * (y > 0)`, not `np.where`", "time; memory"),
    Trick("add_layernorm", f"row sums as `np.vecdot`, few new arrays; {PRODUCT_WITH_ONES}", "time; accuracy"),
    Trick("attention", "weights written over the scores; a window in blocks", "windows; few calls in decoding"),
    Trick("linear_cross_entropy", "logits of real targets, in blocks, overwritten by their gradient", "time; memory"),
    Trick("adam_step", "in place, in blocks that stay in the cache", "time; memory"),
]
"""Those of one op, in the order of a step."""


def compare(op: str, shape: str, dropout: float = 0.1) -> dict[str, dict[str, Any]]:
    """A training step on one thread with the table as it is ("ours") and with this op from the textbook ("printed").

    Both are set up in one process and take turns, whose order alternates; a turn's seconds are those of computing, so
    that what else the machine does is not counted. The memory is the most that NumPy's arrays took in one step.
    """
    from numpy_jobs import training  # which reads this file

    with ExitStack() as stack:
        works = {}
        for name, undone in (("ours", None), ("printed", op)):
            (losses, works[name]) = stack.enter_context(training(1, shape, dropout, undone=undone))
            assert all(0 < loss < 20 for loss in losses)
        found: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in works}
        for name, work in works.items():
            work()
            tracemalloc.start()
            work()
            found[name]["memory_mb"] = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
        start, order = time.process_time(), list(works)
        while len(found["ours"]["seconds"]) < LEAST_PAIRS or time.process_time() < start + SECONDS:
            for name in order:
                began = time.process_time()
                works[name]()
                found[name]["seconds"].append(time.process_time() - began)
            order.reverse()
    return found
