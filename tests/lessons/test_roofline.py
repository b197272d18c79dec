"""Lesson 17's counts: those of the benchmark's tasks, and of the package's formula."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from course.lesson_17.roofline import GPUS, WORKS
from minitransformer.costs import flops_per_token
from minitransformer.models import TransformerConfig


@pytest.fixture(scope="module")
def tasks():
    """The benchmark's, by op, direction and size: what it counts, in float32 where the lesson has half precision."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "gpu"))
    import attention
    import rows
    from timing import Machine

    machine = Machine("cpu", smoke=False)
    every = (*rows.tasks(machine), *attention.tasks(machine))
    alone = {"group": 1}.items()  # as many key/value heads as query heads, as in the lesson
    return {(task.op, task.what, frozenset(task.size.items() - alone)): task.work for task in every}


@pytest.mark.parametrize("work", WORKS, ids=lambda work: f"{work.name}, {work.what}")
def test_a_work_is_a_task_of_the_benchmark(work, tasks):
    counted = tasks[work.op, work.what, frozenset(work.size.items())]
    if "moved" in counted:
        assert work.moved == counted["moved"] / (1 if work.op == "adam" else 2)
    else:
        assert work.flops == pytest.approx(counted["flops"], rel=0.01)


def test_the_ladder_counts_the_products_of_a_step():
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[kernels]'")
    from course.lesson_17.traffic import base_step

    first, *_, last = base_step().values()
    formula = 2 * 25_088 * flops_per_token(TransformerConfig.base(), 32).training
    assert sum(flops * number for part in first.values() for flops, _, number in part) == pytest.approx(formula)
    for name, launches in last.items():
        for gpu in GPUS[1:]:
            before, after = (
                sum(number * max(flops / gpu.flops, moved / gpu.bandwidth) for flops, moved, number in each)
                for each in (first[name], launches)
            )
            assert after <= before, name


@pytest.mark.parametrize(
    "work", [work for work in WORKS if work.op in ("relu", "add_layernorm", "dropout", "attention")]
)
def test_a_gpu_would_be_given_each_direction_of_a_kernel(work):
    """At a tiny size, in the interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")
    from course.lesson_17.live import call_of

    tiny = {"kind": "full", "B": 1, "H": 1, "Tq": 3, "D": 16, "rows": 3, "columns": 8}
    shape = (1, 1, 3, 16) if work.op == "attention" else (3, 8)
    found = call_of(replace(work, size=tiny))()
    assert (found[0] if isinstance(found, tuple) else found).shape == shape


def test_a_work_of_another_kind_is_left_out():
    pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[kernels]'")
    from course.lesson_17.live import call_of

    with pytest.raises(KeyError):
        call_of(next(work for work in WORKS if work.op == "adam"))
