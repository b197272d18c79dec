"""Processes that share a training step, against threads of one: contestants, and what their exchange costs."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from race import Work
from workloads import LEARNING_RATE, SMOOTHING, configuration, training_batches

from minitransformer.layers import Stack
from minitransformer.models import Transformer
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.training import DataParallel
from minitransformer.training.distributed import torch_distributed
from minitransformer.training.parallel.processes import ALONE, Processes
from minitransformer.training.parallel.shards import ShardedAdam, exchange, gather, share, subtrees

BETAS, EPS = (0.9, 0.98), 1e-9


@contextmanager
def shared_training(
    threads: int, shape: str, processes: int, shards: int | None = None, computes: bool = True
) -> Iterator[tuple[list[float], Work]]:
    """A step of training with dropout, shared by processes with `threads` threads in all; the answer is its loss.

    Without `computes` it is what processes do together alone: gradients are exchanged and parameters gathered.
    """
    keep_freed_memory()
    with _group(processes) as group:
        options = {"shape": shape, "threads": max(1, threads // processes), "shards": shards, "computes": computes}
        others = [_start(rank, options) for rank in range(1, processes)]
        with _joined(0, group) as joined:
            step = _stepper(joined, **options)
            answer = step()

            def work() -> None:
                joined.any(True)  # all begin together
                step()

            try:
                yield [answer], work
            finally:
                joined.any(False)
        for process in others:
            process.wait()


def _stepper(processes: Processes, shape: str, threads: int, shards: int | None, computes: bool) -> Any:
    """A function that takes one step."""
    model, batches = Transformer(configuration(shape, dropout=0.1)), training_batches(shape, None)
    adam = ShardedAdam(model.parameters, model.ops, BETAS, EPS, processes)
    numbers, grad = itertools.count(1), model.parameters.grad
    workers = DataParallel(model, threads, shards, processes)
    workers.__enter__()  # until the process ends

    def step() -> float:
        loss = workers.gradients(batches, SMOOTHING, seed=0, step=next(numbers))
        adam.grad_norm()
        adam.step(LEARNING_RATE)
        return loss

    def talk() -> float:
        own = subtrees(share(shards or 1, processes.rank, processes.size))
        if processes.size > 1:
            exchange(processes, [grad] * len(own), shards or 1, grad)
        gather(processes, model.parameters.data)
        return 0.0

    return step if computes else talk


@contextmanager
def _group(processes: int) -> Iterator[int]:
    """The port of a store, as torchrun keeps one."""
    if processes == 1:
        yield 0
        return
    store = torch_distributed().TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    os.environ |= {"WORLD_SIZE": str(processes), "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    yield store.port


@contextmanager
def _joined(rank: int, port: int) -> Iterator[Processes]:
    os.environ["RANK"] = str(rank)
    with Processes.join() if port else ALONE as processes:
        yield processes


def _start(rank: int, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, __file__, json.dumps(options)],
        env=os.environ | {"RANK": str(rank), "TORCH_CPP_LOG_LEVEL": "ERROR"},
    )


@contextmanager
def overlapped(
    threads: int, shape: str, shards: int, megabytes_per_second: float, overlap: bool
) -> Iterator[tuple[list[float], Work]]:
    """A step of one process's `shards` shards, then an exchange on a link that is simulated: it sleeps.

    With `overlap` the gradients of everything above the encoder leave when the last shard's backward comes to the
    encoder. The answer is the share of the parameters that do.
    """
    keep_freed_memory()
    model, batches = Transformer(configuration(shape, dropout=0.1)), training_batches(shape, None)
    seconds = 4 * len(model.parameters.data) / (1e6 * megabytes_per_second)
    above = sum(p.grad.size for name, p in model.parameters.named.items() if name.startswith("decoder."))
    part = above / len(model.parameters.data)
    calls, sending = itertools.count(1), list[threading.Thread]()

    def backward(stack: Stack, *arguments: Any) -> Any:
        if overlap and stack.name == "encoder" and next(calls) % shards == 0:
            sending.append(threading.Thread(target=time.sleep, args=(part * seconds,)))
            sending[0].start()
        return original(stack, *arguments)

    original = Stack.backward
    setattr(Stack, "backward", backward)  # noqa: B010 - of every replica
    with DataParallel(model, 1, shards) as workers:
        numbers = itertools.count(1)

        def work() -> None:
            workers.gradients(batches, SMOOTHING, seed=0, step=next(numbers))
            while sending:  # the link carries one thing at a time
                sending.pop().join()
            time.sleep((1 - part) * seconds if overlap else seconds)

        yield [part], work


def _follow(options: dict[str, Any]) -> None:
    """Another process than the first: steps as long as the first one asks for them, or until it is killed."""
    keep_freed_memory()
    with suppress(ConnectionError), Processes.join() as processes:
        step = _stepper(processes, **options)
        step()
        while processes.any(False):
            step()


if __name__ == "__main__":
    _follow(json.loads(sys.argv[1]))
