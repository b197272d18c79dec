"""`python -m kernels.speedup`: the gain by each kernel in a training step on your own GPU, within two minutes.

It checks the kernels against float64, trains the paper's base with PyTorch's arithmetic, then with one kernel more at a
time and in a CUDA graph, prints the times and draws them. Kernels that are wrong are named and not timed. Without a GPU
it shows recorded times. With TRITON_INTERPRET=1 it rehearses at a tiny size, without a clock.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.data.batching import EOS_ID, Batch, collate
from minitransformer.layers import DropoutStream
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.ops import Dropout, Ops
from minitransformer.plots.page import GREY, VERMILION, Page
from minitransformer.training.optimizer import Adam
from minitransformer.training.step import loss_and_gradient

from .availability import gpu_memory, require_triton, triton_device
from .proof import cases, ledger

STEPS, SMOOTHING, LEARNING_RATE, SEED, TOLERANCE = 3, 0.1, 1e-4, 1, 1e-2
"""After STEPS steps a row's loss must be that of PyTorch's arithmetic, within the tolerance."""
SENTENCES, LENGTH, SENTENCE_BYTES, SECONDS = (784, 392, 200, 96, 48), 32, 45_000_000, 105
"""The sentence pairs of a batch (the paper's, or fewer on a GPU with less memory), the tokens of a sentence, the memory
that a pair needs, and the time after which no row begins."""
TINY = TransformerConfig(vocab_size=30, d_model=16, num_heads=1, d_ff=32, num_layers=1, max_length=4)
FIRST, GRAPH, DROPOUT = "torch arithmetic", "+ CUDA graph", {"dropout": Dropout(0.1, key=SEED)}
RUNGS: dict[str, dict[str, dict[str, Any]]] = {
    "+ Triton softmax": {"softmax": {}},
    "+ flash attention": {"attention": {"causal": True}},
    "+ add_layernorm": {"add_layernorm": DROPOUT},
    "+ linear_cross_entropy": {"linear_cross_entropy": {"label_smoothing": SMOOTHING}},
    "+ Adam": {"adam": {}},
    "+ embedding, dropout, relu": {"embedding": {}, "dropout": DROPOUT, "relu": {}},
}
"""The ops that each row swaps in, and the options with which they are checked."""
HEAD = f"{'':<28}{'ms':>9}{'before ÷':>9}{'first ÷':>9}"
OLD = """This is float16: it has no fast bfloat16. Below compute capability 8.0 Triton uses no tensor cores, so
attention, the kernel with products of its own, is slow here; kernels.functional takes PyTorch's instead."""


def ladder(ops: Ops, wrong: Collection[str] = ()) -> dict[str, Ops]:
    """Return tables: PyTorch's arithmetic, `ops`, then with one kernel more at a time, without those that are wrong."""
    from .tables import attention_from, triton_entries

    triton, tables = triton_entries(), {FIRST: ops}
    for rung, swapped in RUNGS.items():
        if not {*swapped} & {*wrong}:
            ours = {name: triton[name] for name in (("adam_step", "global_norm") if "adam" in swapped else swapped)}
            ours = {"attention": attention_from(ours["softmax"])} if "softmax" in ours else ours
            tables[rung] = ops = replace(ops, **ours)
    return tables


def step_of(model: Transformer, batches: Iterator[Batch], captured: bool, scale: float = 1.0) -> Callable[[], Any]:
    """Return a training step on the next batch, which returns its loss; `scale` keeps small gradients from being 0."""
    from .graph import Captured

    optimizer, run = Adam(model.parameters, model.ops), Captured(loss_and_gradient) if captured else loss_and_gradient

    def step() -> Any:
        model.parameters.zero_grad()
        loss = run(model, next(batches), scale, SMOOTHING, DropoutStream(SEED, optimizer.num_steps + 1))
        optimizer.step(LEARNING_RATE, 1 / scale)
        return loss

    return step


def check(op: str, options: dict[str, Any], config: TransformerConfig, length: int, dtype: Any, device: str) -> str:
    """Return "right" if an op's kernels are, at the shapes of a training step. Raises `ArithmeticError` otherwise."""
    from .proof import checks

    sizes = {"B": 4, "H": config.num_heads, "Tq": length, "Tk": length, "D": config.key_width, "Dv": config.key_width}
    sizes |= {"n": length, "C": config.d_model, "V": config.vocab_size, "N": 4 * length, "P": 1000 * length}
    rows = {"relu": (4, length, config.d_ff), "softmax": (4, config.num_heads, length)}.get(op, (4, length))
    case = cases.Case(op, cases.draw(op, np.random.default_rng(SEED), rows, **sizes), options)
    with checks.poisoned():
        for what, off, allowed in checks.findings_of(op, case, dtype, device):
            if not off <= allowed:
                raise ArithmeticError(f"{what} is off by {off:.2g}, allowed {allowed:.2g}")
    return "right"


def attempt(name: str, call: Callable[[], str], failed: list[str]) -> None:
    """Print the name, then the call's result or error; if it raises, append the name to `failed`."""
    print(f"{name:<28}", end="", flush=True)
    try:
        print(call(), flush=True)
    except Exception as problem:  # any error of the GPU or the compiler
        failed.append(name)
        print(f"WRONG, not timed: {type(problem).__name__}: {problem}", flush=True)


def measure(device: str, out: Path) -> list[str]:
    """Check, train, print and draw; return the names of the rows that failed."""
    import torch
    from triton.testing import do_bench

    from .tables import torch_ops
    from .tuning import capability, lacks_tensor_cores

    gpu, config, length, sentences, dtype = "a tiny rehearsal (nothing is timed)", TINY, TINY.max_length, 2, "float32"
    if device == "cuda":
        gpu, config, length, dtype = torch.cuda.get_device_name(), TransformerConfig.base(), LENGTH, "bfloat16"
        sentences = next(n for n in SENTENCES if n * SENTENCE_BYTES < gpu_memory(device))
    if old := lacks_tensor_cores(capability(torch.device(device, 0))):
        dtype = "float16"
    scale, began, wrong = 4096.0 if old else 1.0, time.monotonic(), list[str]()
    print(said := title(gpu, dtype, sentences, length) if device == "cuda" else gpu, *[OLD] * old, sep="\n")
    for op, options in [each for ops in RUNGS.values() for each in ops.items()]:
        attempt(op, partial(check, op, options, config, length, getattr(torch, dtype), device), wrong)
    tables = ladder(torch_ops(device, dtype), wrong)
    tables[GRAPH] = list(tables.values())[-1]
    words = np.random.default_rng(SEED).integers(EOS_ID + 1, config.vocab_size, (4, 2, sentences, length - 1))
    batches, model = [collate(*each) for each in words], Transformer(config, tables[FIRST])
    start, losses, rows = model.parameters.state_dict(), {}, {}

    def row(name: str) -> str:
        if time.monotonic() - began > SECONDS or (name != FIRST and FIRST not in losses):
            return f"not timed: {SECONDS} seconds are over, or the first row failed"
        model.parameters.load_state_dict(start)
        step = step_of(model.replica(tables[name]), itertools.cycle(batches), name == GRAPH, scale)
        losses[name] = [float(step()) for _ in range(STEPS)][-1]
        if not abs(losses[name] - losses[FIRST]) <= TOLERANCE:
            raise ArithmeticError(f"the loss is {losses[name]:.4f}, with PyTorch's arithmetic {losses[FIRST]:.4f}")
        if device == "cpu":
            return f"loss {losses[name]:.4f}"
        rows[name] = do_bench(step, warmup=1, rep=1000, return_mode="median")
        return line(rows, name)

    print(HEAD)
    for name in tables:
        attempt(name, partial(row, name), wrong)
    if rows:
        draw(rows, said).save(out)
        print("drawn:", out)
    return wrong


def line(rows: dict[str, float], name: str) -> str:
    """Return a row's time, and the times of the row before and of the first row as multiples of it."""
    times = [*rows.values()][: [*rows].index(name) + 1]
    return "".join(f"{x:9.4g}" for x in (times[-1], times[-2:][0] / times[-1], times[0] / times[-1]))


def title(gpu: str, dtype: str, sentences: int, length: int) -> str:
    """Return the title of a table."""
    return f"{gpu}, {dtype}: a training step of the paper's base, {sentences} pairs of sentences of {length} tokens"


def draw(rows: dict[str, float], said: str) -> Page:
    """Return a page with a bar for each row."""
    page = Page(9.0, 1.0 + 0.36 * len(rows), layout="constrained")
    axes = page.figure.subplots()
    bars = axes.barh([*rows], [*rows.values()], 0.66, color=[GREY, *[VERMILION] * (len(rows) - 1)])
    axes.bar_label(bars, [f" {ms:.4g} ms, {rows[FIRST] / ms:.3g} ×" for ms in rows.values()], fontsize=8)
    axes.set(xlabel="milliseconds a step", xmargin=0.15, ylim=(len(rows) - 0.5, -0.5))
    page.figure.suptitle(said, fontsize=9, x=0.01, ha="left")
    return page


def recorded() -> Iterator[str]:
    """Yield the lines of the tables that were measured on other GPUs."""
    for gpu, found in ledger.ledgers().items():
        entries = [entry for entry in ledger.entries(found, "swap") if ledger.timed(entry) and entry["what"] != "NumPy"]
        rows = {entry["what"]: each["ms"] for entry in entries for each in ledger.timed(entry).values()}
        if rows and not found["smoke"]:
            dtype = [dtype for op in found["ops"].values() for dtype in op.get("errors", {})][-1]
            yield f"{title(gpu, dtype, **entries[0]['size'])}, on {entries[0]['date']}\n{HEAD}"
            yield from (f"{name:<28}{line(rows, name)}" for name in rows)
            if (picture := ledger.RESULTS / f"{ledger.path_of(ledger.RESULTS, gpu).stem}-swap.png").exists():
                yield f"drawn: kernels/results/{picture.name}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m kernels.speedup", description="Time the kernels on this GPU.")
    parser.add_argument("--out", type=Path, default=Path("speedup.png"), help="the picture (default: speedup.png)")
    args = parser.parse_args(argv)
    try:
        require_triton()
        device = triton_device()
    except (ModuleNotFoundError, RuntimeError) as why:
        print(f"Nothing is timed here: {str(why).split(':')[0]}. Timed elsewhere:", *recorded(), sep="\n")
        return 0
    return int(bool(measure(device, args.out)))


if __name__ == "__main__":
    raise SystemExit(main())
