"""Lesson 26: a small training shared by real processes on this machine, added along the tree and by gloo's all-reduce.

`python -m course.lesson_26.processes` is one of the processes, as torchrun would start it; `shared` starts them.
"""

import json
import os
import socket
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer import Transformer, TransformerConfig
from minitransformer.data.batching import Batch
from minitransformer.system.threads import blas_threads
from minitransformer.training import DataParallel, training_step
from minitransformer.training.optimizer import Adam
from minitransformer.training.parallel.processes import ALONE, Processes
from minitransformer.training.parallel.shards import ShardedAdam, TreeSum, share

SHARDS, STEPS, SENTENCES = 8, 10, 24
CONFIG = TransformerConfig(64, d_model=32, num_heads=4, d_ff=64, num_layers=1, max_length=16, dropout=0.0)
BETAS, EPS = (0.9, 0.98), 1e-9


def trained(processes: Processes = ALONE) -> dict[str, Any]:
    """Train in both ways; return checksums of their weights, and the bytes a step that this process sent in ours."""
    with blas_threads(1):
        ours, theirs = _along_the_tree(processes), _all_reduced(processes)
    return {"tree": ours, "all_reduce": theirs, "bytes": processes.bytes_sent / STEPS}


def shared(size: int) -> list[dict[str, Any]]:
    """Return the results of `trained` in `size` processes, by rank. Raises RuntimeError if one fails."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    paths = [str(Path(__file__).parents[2]), *sys.path]
    place = {"WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": port, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", __name__]
    started = [
        subprocess.Popen(
            command,
            env=os.environ | {name: str(value) for name, value in (place | {"RANK": rank}).items()},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    results = []
    try:
        for process in started:
            out, err = process.communicate(timeout=120)
            if process.returncode:
                raise RuntimeError(f"a process ended with {process.returncode}: {err[-500:]}")
            results.append(json.loads(out))
    finally:
        for process in started:
            process.kill()
    return results


def _batches() -> list[Batch]:
    rng = np.random.default_rng(0)
    return [Batch(*rng.integers(3, CONFIG.vocab_size, (3, SENTENCES, 12))) for _ in range(STEPS)]


def _along_the_tree(processes: Processes) -> int:
    model = Transformer(CONFIG)
    adam = ShardedAdam(model.parameters, model.ops, BETAS, EPS, processes)
    with DataParallel(model, 1, SHARDS, processes) as workers:
        for batch in _batches():
            training_step(workers, adam, [batch], learning_rate=1e-3)
    return zlib.crc32(model.parameters.data.tobytes())


def _all_reduced(processes: Processes) -> int:
    """Train with an all-reduce of gradients, after each process has added its shards along a tree of its own."""
    model = Transformer(CONFIG)
    adam, grad = Adam(model.parameters, model.ops, BETAS, EPS), model.parameters.grad

    def add(left: np.ndarray, right: np.ndarray) -> None:
        left += right

    for batch in _batches():
        tree, parts = TreeSum[np.ndarray](add), batch.split(SHARDS)
        for number, shard in enumerate(share(SHARDS, processes.rank, processes.size)):
            model.parameters.zero_grad()
            _, cache = model.loss(*parts[shard].inputs, label_smoothing=0.1)
            model.loss_backward(parts[shard].num_targets / batch.num_targets, cache)
            tree.push(number, grad.copy())
        grad[:] = tree.total()
        if processes.size > 1:
            import torch
            import torch.distributed as dist

            processes.collective(dist.all_reduce, torch.from_numpy(grad))
        adam.step(1e-3)
    return zlib.crc32(model.parameters.data.tobytes())


if __name__ == "__main__":
    with Processes.join(timeout=60) as joined:
        print(json.dumps(trained(joined)))
