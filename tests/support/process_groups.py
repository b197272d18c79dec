"""Processes that share a training on this machine, without torchrun."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from minitransformer.training.distributed import torch_distributed
from minitransformer.training.parallel.processes import Processes

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch.distributed", "minitransformer.cli", "support.toy_training", "support.process_groups"]
)

Result = Any
"""What a process returned, the exception that it raised, or None if it ended otherwise."""


def with_processes(
    size: int, function: Callable[..., Any], *arguments: Any, timeout: float = 60.0, joins: bool = True
) -> list[Result]:
    """Return the results of `function(processes, *arguments)` in each of `size` processes, by rank.

    joins: whether they have joined; otherwise the function gets its rank instead, and joins by itself.
    """
    store = torch_distributed().TCPStore(
        "localhost", 0, is_master=True, wait_for_workers=False
    )  # as torchrun keeps one
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": True}
    running = []
    for rank in range(size):
        here, there = CONTEXT.Pipe()
        variables = address | {"RANK": rank, "WORLD_SIZE": size}
        child = CONTEXT.Process(target=_work, args=(there, variables, timeout if joins else None, function, arguments))
        child.start()
        there.close()
        running.append((here, child))
    results = []
    for connection, child in running:
        try:
            results.append(connection.recv() if connection.poll(120) else TimeoutError("no result in two minutes"))
        except EOFError:
            results.append(None)
        child.join(20)
        assert not child.is_alive()
    return results


def returned(results: list[Result]) -> list[Any]:
    """The results, none of which is an exception."""
    for each in results:
        if isinstance(each, Exception):
            raise each
    return results


def _work(
    connection: Connection,
    variables: dict[str, Any],
    timeout: float | None,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        if timeout is None:
            connection.send(function(variables["RANK"], *arguments))
            return
        with Processes.join(timeout=timeout) as processes:
            connection.send(function(processes, *arguments))
    except Exception as error:
        traceback.print_exc()
        connection.send(error)
