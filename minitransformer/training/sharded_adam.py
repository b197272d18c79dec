"""A training shared by the processes that `torchrun` starts; its bits do not depend on their number.

A step's batches are cut into a fixed number of shards (`TrainingSettings.shards`), and each process computes the
gradients of some of them. All gradients are added along one binary tree over the shards (see `shards.py`). The flat
array of the P parameters is cut into a slice for each of the n processes:

    exchange  each process sends, for each slice, the sums of the largest subtrees that its shards make up, and adds
              what it receives for its own slice along the rest of the tree
    Adam      each process updates its slice, with its slice of the moments: 1/n of them in each process's memory
              (Rajbhandari et al. 2020, ZeRO, stage 1)
    gather    each process sends its slice of the parameters to all others

If every process has one whole subtree, it sends (n - 1)/n · P numbers twice, as in a ring all-reduce (Patarasuk & Yuan
2009).
"""

import math
import operator
from collections.abc import Sequence
from itertools import chain

import numpy as np

from ..layers import FlatParameters
from ..ops import Array, Ops
from .distributed import Processes
from .optimizer import Adam
from .shards import PIECES, TreeSum, pieces, share, slices, subtrees


def exchange(processes: Processes, sums: Sequence[Array], shards: int, grad: Array) -> None:
    """Write the sum of all shards' gradients into this process's slice of `grad`, a flat array.

    sums: the flat gradients of the largest subtrees that this process's shards make up, in order.
    """
    parts = slices(len(grad), processes.size)
    mine = parts[processes.rank]
    made = [subtrees(share(shards, rank, processes.size)) for rank in range(processes.size)]
    widths = [len(of_one) * _width(mine) for of_one in made]
    received = processes.all_to_all([[each[part] for each in sums] for part in parts], widths, like=grad)
    tree = TreeSum[Array](operator.iadd)
    rows = received.reshape(sum(map(len, made)), _width(mine))
    for (first, size), row in zip(chain.from_iterable(made), rows, strict=True):
        tree.push(first, row, size)
    grad[mine] = tree.total()


def gather(processes: Processes, flat: Array) -> None:
    """Bring every process's slice of a flat array to all others."""
    if processes.size > 1:
        parts = slices(len(flat), processes.size)
        mine = flat[parts[processes.rank]]
        flat[...] = processes.all_to_all([[mine]] * processes.size, list(map(_width, parts)), like=flat)


def _width(part: slice) -> int:
    return part.stop - part.start


class ShardedAdam(Adam):
    """Adam, of which this process holds the moments of its slice of the parameters (Rajbhandari 2020, ZeRO, stage 1).

    `step`, `grad_norm`, `state_dict` are collective: all processes call them. The results have the same bits for every
    number of processes.
    """

    def __init__(
        self, parameters: FlatParameters, ops: Ops, betas: tuple[float, float], eps: float, processes: Processes
    ) -> None:
        self.processes = processes
        super().__init__(parameters, ops, betas, eps, slices(len(parameters.data), processes.size)[processes.rank])

    def step(self, learning_rate: float, grad_scale: float = 1.0) -> None:
        """Update this process's slice from `grad_scale` times its gradient, and gather those of the others."""
        super().step(learning_rate, grad_scale)
        gather(self.processes, self.parameters.data)
        self.parameters.refresh()

    def grad_norm(self) -> float:
        """The norm of the whole gradient: the squares of its pieces are added in order, in float64."""
        grad, squares = self.parameters.grad, np.zeros(PIECES)
        for number, piece in enumerate(pieces(len(grad))):
            if self.part.start <= piece.start < self.part.stop:
                squares[number] = float(self.ops.global_norm(grad[piece])) ** 2
        return math.sqrt(sum(self.processes.sum(squares).tolist()))

    def _whole(self, moment: Array) -> Array:
        flat = super()._whole(moment)
        gather(self.processes, flat)
        return flat
