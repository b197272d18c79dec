"""A training step (forward, backward, Adam) in NumPy against PyTorch eager, on this machine.

    python tests/benchmarks/training_step.py [--sizes S M B] [--dropout 0.1] [--rounds 5] [--threads 2]

Each measurement is a process of its own and the two systems take turns, so that both meet the same weather; the ratio
is taken pair by pair and the median is quoted. Before anything is timed, both losses on the same weights must agree.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.data.batching import Batch
from minitransformer.memory import keep_freed_memory
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.optimizer import Adam
from minitransformer.training import DataParallel

SIZES: dict[str, tuple[dict[str, Any], int, int]] = {
    "S": ({"vocab_size": 1000, "d_model": 128, "num_heads": 4, "d_ff": 512, "num_layers": 2}, 32, 32),
    "M": ({"vocab_size": 8000, "d_model": 256, "num_heads": 8, "d_ff": 1024, "num_layers": 3}, 32, 32),
    "B": ({"vocab_size": 8000, "d_model": 512, "num_heads": 8, "d_ff": 2048, "num_layers": 6}, 8, 64),
}
"""Shape, sentences a batch, and tokens a sentence (source and target each)."""

SMOOTHING, LEARNING_RATE, STEP_BUDGET = 0.1, 1e-4, 6.0


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
Step = tuple[float, Callable[[], None]]


def batch_of(size: str, dropout: float) -> tuple[TransformerConfig, Arrays]:
    """The configuration and a batch without padding: the same numbers for both systems."""
    shape, sentences, time_steps = SIZES[size]
    config = TransformerConfig(**shape, dropout=dropout, max_length=128)
    ids = np.random.default_rng(0).integers(3, config.vocab_size, (2, sentences, time_steps + 1))
    return config, (ids[0, :, 1:], ids[1, :, :-1], ids[1, :, 1:])


@contextmanager
def numpy_step(size: str, dropout: float, threads: int) -> Iterator[Step]:
    """The loss before training, without dropout, and a function that takes one step."""
    keep_freed_memory()
    config, arrays = batch_of(size, dropout)
    model = Transformer(config)
    loss, _ = model.loss(*arrays, SMOOTHING, with_grad=False)
    adam = Adam(model.parameters, model.ops)
    batch = Batch(*arrays)
    numbers = itertools.count(1)
    with DataParallel(model, threads) as workers:

        def step() -> None:
            workers.gradients([batch], SMOOTHING, seed=0, step=next(numbers))
            adam.step(LEARNING_RATE)

        yield float(loss), step


@contextmanager
def torch_step(size: str, dropout: float, threads: int) -> Iterator[Step]:
    """The same in PyTorch eager with `torch.optim.Adam`."""
    import torch
    from torch_step import TorchTransformer, copy_weights

    torch.set_num_threads(threads)
    config, arrays = batch_of(size, dropout)
    model = TorchTransformer(config)
    copy_weights(model, {k: torch.from_numpy(v) for k, v in Transformer(config).parameters.state_dict().items()})
    tensors = [torch.from_numpy(array) for array in arrays]
    model.eval()
    with torch.no_grad():
        loss = model(*tensors, SMOOTHING)
    model.train()
    adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9)

    def step() -> None:
        adam.zero_grad()
        model(*tensors, SMOOTHING).backward()
        adam.step()

    yield float(loss), step


def measure(system: str, size: str, dropout: float, threads: int) -> dict[str, float]:
    """Median seconds of a step, after a warm-up."""
    with {"numpy": numpy_step, "torch": torch_step}[system](size, dropout, threads) as (loss, step):
        for _ in range(3):
            step()
        times, deadline = [], time.perf_counter() + STEP_BUDGET
        while time.perf_counter() < deadline:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    return {"loss": loss, "seconds": statistics.median(times)}


def run(system: str, size: str, dropout: float, threads: int) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--measure", system, "--sizes", size, "--dropout", str(dropout)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    output = subprocess.run(
        [*command, "--threads", str(threads)], check=True, capture_output=True, text=True, env=environment
    )
    return json.loads(output.stdout.splitlines()[-1])


def main() -> None:
    """Prints a table row for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--measure", choices=["numpy", "torch"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        sys.path.insert(0, str(Path(__file__).parent))
        print(json.dumps(measure(arguments.measure, arguments.sizes[0], arguments.dropout, arguments.threads)))
        return
    print("| size | NumPy ms | PyTorch ms | PyTorch ÷ NumPy: median (least to most) |\n|---|---|---|---|")
    for size in arguments.sizes:
        pairs = [
            [run(system, size, arguments.dropout, arguments.threads) for system in ("numpy", "torch")]
            for _ in range(arguments.rounds)
        ]
        for ours, theirs in pairs:
            if abs(ours["loss"] - theirs["loss"]) > 1e-4:
                raise SystemExit(f"the losses differ: NumPy {ours['loss']}, PyTorch {theirs['loss']}")
        ratios = sorted(theirs["seconds"] / ours["seconds"] for ours, theirs in pairs)
        ours, theirs = (1000 * statistics.median(pair[index]["seconds"] for pair in pairs) for index in (0, 1))
        median, least, most = statistics.median(ratios), ratios[0], ratios[-1]
        print(f"| {size} | {ours:.1f} | {theirs:.1f} | {median:.2f} ({least:.2f} to {most:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
