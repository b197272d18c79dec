"""A training step of the paper's base on its batch, with one kernel more at a time; and its training in hours.

Each contestant trains the same weights on the same batches of random tokens, which it fetches from host memory. Before
it is timed, its loss and the gradient of its embeddings, without dropout, must be those of the NumPy model.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import Call, Found, Machine, Task
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.proof.ledger import OURS
from kernels.speedup import (
    FIRST,
    GRAPH,
    LEARNING_RATE,
    LENGTH,
    RUNGS,
    SEED,
    SENTENCES,
    SMOOTHING,
    TINY,
    ladder,
    step_of,
)
from minitransformer.costs import flops_per_token
from minitransformer.data.batching import EOS_ID, Batch, collate
from minitransformer.layers import DropoutStream
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.ops import numpy_ops
from minitransformer.training.optimizer import Adam
from minitransformer.training.step import loss_and_gradient

sys.path.append(str(Path(__file__).parents[1]))  # where the races on CPUs are

from torch_transformer import TorchTransformer, copy_weights

STEPS = 100_000
"""The paper's training (Vaswani 2017, §5.2)."""

LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-2, 0.05
"""The most that the loss may be off, and the gradient beside its own length: bfloat16 alone makes 0.017 with base."""

NUMPY, PYTORCH, EAGER, COMPILED = "NumPy", "PyTorch", "PyTorch eager", "PyTorch, torch.compile"

SDPA = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
"""The ways that PyTorch's model may attend; the first that the GPU has."""


@dataclass(frozen=True)
class Setting:
    """A model, and batches whose sentences are all as long; NumPy gets a part of them."""

    config: TransformerConfig
    sentences: int
    length: int
    part: int

    @classmethod
    def of(cls, machine: Machine) -> "Setting":
        """Return the paper's base with 25,088 tokens on each side."""
        return machine.size(cls(TransformerConfig.base(), SENTENCES[0], LENGTH, 16), cls(TINY, 2, TINY.max_length, 1))

    def batch(self, seed: int, sentences: int | None = None) -> Batch:
        """Return random tokens, none of them padding."""
        shape = (2, sentences or self.sentences, self.length - 1)
        return collate(*np.random.default_rng(seed).integers(EOS_ID + 1, self.config.vocab_size, shape))

    def batches(self) -> Iterator[Batch]:
        """Return two, in turn."""
        return itertools.cycle([self.batch(1), self.batch(2)])


def tasks(machine: Machine) -> Iterator[Task]:
    """Yield NumPy, the rungs of the ladder, PyTorch's own."""
    setting = Setting.of(machine)
    size = {"sentences": setting.sentences, "length": setting.length}
    # Floating-point operations of the matrix products, forward and backward.
    each = flops_per_token(setting.config, setting.length).training
    work = {"flops": 2 * setting.sentences * setting.length * each}
    numpy = cache(lambda: _numpy(setting))  # once in a process, when somebody needs it

    def alone(what: str, who: str, start: Callable[["Truth", Machine], Call] | None = None, **beside: Any) -> Task:
        def measure(on: Machine) -> Found:
            truth, found = numpy()
            if start is None:
                found = found | on.rates(found["ms"], **work)
            else:
                ready = partial(start, truth, on)
                found = on.timed(lambda: [ready()], **work)
            return found | beside | {"hours": found["ms"] * STEPS / 3.6e6}

        return Task("training step", what, size, work, {who: measure})

    yield alone(NUMPY, NUMPY)
    for rung in (FIRST, *RUNGS):
        yield alone(rung, OURS, partial(_ours, setting, rung, False))
    # A replay allocates nothing: what it needs, the graph has kept.
    yield alone(GRAPH, OURS, partial(_ours, setting, [*RUNGS][-1], True), peak_mb=None)
    for name, compiled in ((EAGER, False), (COMPILED, True)):
        yield alone(name, PYTORCH, partial(_pytorch, setting, compiled))


@dataclass(frozen=True)
class Truth:
    """A part of a batch and what it gives in NumPy: the loss, and the gradient of the embeddings `(V, C)`."""

    batch: Batch
    loss: float
    gradient: np.ndarray

    def require(self, loss: float, gradient: Tensor) -> None:
        """Raise `AssertionError` where a contestant computes something else."""
        far = np.linalg.norm(gradient.float().cpu().numpy() - self.gradient) / np.linalg.norm(self.gradient)
        if not (abs(loss - self.loss) <= LOSS_TOLERANCE and far <= GRADIENT_TOLERANCE):
            raise AssertionError(f"its loss is {loss:.4f}, NumPy's {self.loss:.4f}; its gradient is {far:.2g} away")


def _numpy(setting: Setting) -> tuple[Truth, Found]:
    """Return the truth; and a step's time, estimated from a part of the sentences and one update of all parameters."""
    model = Transformer(setting.config)
    optimizer = Adam(model.parameters, numpy_ops)
    batch = setting.batch(0, setting.part)
    loss = loss_and_gradient(model, batch, 1.0, SMOOTHING, None)  # and all pages of memory have been touched
    truth = Truth(batch, float(loss), model.parameters.named["tokens.table"].grad.copy())
    optimizer.step(LEARNING_RATE)
    start = time.perf_counter()
    model.parameters.zero_grad()
    loss_and_gradient(model, batch, 1.0, SMOOTHING, DropoutStream(SEED, 1))
    between = time.perf_counter()
    optimizer.step(LEARNING_RATE)
    gradients_ms, update_ms = 1000 * (between - start), 1000 * (time.perf_counter() - between)
    estimate = {"sentences": setting.part, "gradients_ms": gradients_ms, "update_ms": update_ms}
    found = {"ms": gradients_ms * setting.sentences / setting.part + update_ms}
    return truth, found | {"estimated_from": estimate | {"cores": os.cpu_count()}}


def _ours(setting: Setting, rung: str, captured: bool, truth: Truth, machine: Machine) -> Call:
    """Return a step of our model on a table of ops."""
    model = Transformer(setting.config, ladder(machine.ops)[rung])
    loss = loss_and_gradient(model, truth.batch, 1.0, SMOOTHING, None)
    truth.require(float(loss), model.parameters.named["tokens.table"].grad)
    return step_of(model, setting.batches(), captured)


def _pytorch(setting: Setting, compiled: bool, truth: Truth, machine: Machine) -> Call:
    """Return a step of PyTorch's model with its autograd and its fused Adam, which updates weights in float32."""
    model = TorchTransformer(setting.config)
    state = Transformer(setting.config).parameters.state_dict()
    copy_weights(model, {name: torch.from_numpy(array) for name, array in state.items()})
    masters = [weight.detach().to(machine.device, copy=True) for weight in model.parameters()]
    for master in masters:
        master.grad = torch.empty_like(master)
    copy: Any = torch._foreach_copy_  # pyright: ignore - of all weights, in a few kernels
    model.to(machine.device, machine.dtype)
    optimizer = torch.optim.Adam(masters, LEARNING_RATE, (0.9, 0.98), 1e-9, fused=True)
    weights, batches = list(model.parameters()), setting.batches()

    def gradients(forward: Any, batch: Batch) -> Tensor:
        ids = [torch.from_numpy(a).to(machine.device) for a in (batch.source, batch.target_in, batch.target_out)]
        model.zero_grad()
        with sdpa_kernel(SDPA):
            loss = forward(*ids, None, SMOOTHING)
        loss.backward()
        return loss

    loss = gradients(model.eval(), truth.batch)
    assert model.table.grad is not None
    truth.require(float(loss), model.table.grad)
    forward = machine.compiled(model.train()) if compiled else model.train()

    def step() -> None:
        gradients(forward, next(batches))
        with torch.no_grad():
            copy([master.grad for master in masters], [weight.grad for weight in weights])
            optimizer.step()
            copy(weights, masters)

    return step
