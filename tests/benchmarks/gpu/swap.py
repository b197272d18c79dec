"""A training step of the paper's base on its batch, with one kernel more at a time; and its training in hours.

Each contestant trains the same weights on the same batches of random tokens, which it fetches from host memory. Before
it is timed, its loss and the gradient of its embeddings, without dropout, must be those of the NumPy model.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from reference import Reference
from timing import Bench, Call, Found, Machine, Task
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.proof.ledger import OURS
from kernels.speedup import GRAPH, LEARNING_RATE, LENGTH, SEED, SENTENCES, SMOOTHING, TINY, ladder, step_of
from minitransformer.costs import flops_per_token
from minitransformer.data.batching import BOS_ID, EOS_ID, Batch
from minitransformer.layers import DropoutStream
from minitransformer.models import Transformer, TransformerConfig
from minitransformer.ops import Ops, numpy_ops
from minitransformer.training.optimizer import Adam
from minitransformer.training.step import loss_and_gradient

STEPS = 100_000
"""The paper's training (Vaswani 2017, §5.2)."""

LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-2, 0.05
"""How far off the loss may be, and the gradient beside its own length: bfloat16 alone makes 0.017 with base."""

NUMPY, PYTORCH, EAGER, COMPILED = "NumPy", "PyTorch", "PyTorch eager", "PyTorch, torch.compile"

SDPA = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
"""What PyTorch's model may use; the first that the GPU has."""


@dataclass(frozen=True)
class Setting:
    """A model, and batches whose sentences are all as long; NumPy gets a part of them."""

    config: TransformerConfig
    sentences: int
    length: int
    part: int

    @classmethod
    def of(cls, machine: Machine) -> "Setting":
        """The paper's base with 25,088 tokens on each side."""
        return machine.size(cls(TransformerConfig.base(), SENTENCES[0], LENGTH, 16), cls(TINY, 2, TINY.max_length, 1))

    @property
    def flops(self) -> float:
        """Floating-point operations of a step's matrix products, forward and backward."""
        return 2 * self.sentences * self.length * flops_per_token(self.config, self.length).training

    def batch(self, seed: int, sentences: int | None = None) -> Batch:
        """Random tokens, none of them padding."""
        shape = (sentences or self.sentences, self.length - 1)
        rng = np.random.default_rng(seed)
        source, target = (rng.integers(EOS_ID + 1, self.config.vocab_size, shape) for _ in range(2))
        begin, end = (np.full((len(source), 1), mark) for mark in (BOS_ID, EOS_ID))
        return Batch(np.hstack([source, end]), np.hstack([begin, target]), np.hstack([target, end]))

    def batches(self) -> Iterator[Batch]:
        """Two, in turn."""
        return itertools.cycle([self.batch(1), self.batch(2)])


def tasks(machine: Machine) -> Iterator[Task]:
    """NumPy, the rungs of the ladder, PyTorch's own."""
    setting, tables = Setting.of(machine), ladder(machine.ops)
    size, work = {"sentences": setting.sentences, "length": setting.length}, {"flops": setting.flops}
    numpy = cache(lambda: _numpy(setting))  # once in a process, when somebody needs it

    def alone(what: str, who: str, start: Callable[..., Sequence[Call]] | None = None, **beside: Any) -> Task:
        def measure(bench: Bench) -> Found:
            truth, found = numpy()
            if start is None:
                found = found | bench.rates(found["ms"], setting.flops)
            else:
                found = bench.timed(partial(start, truth=truth), **work)
            return found | beside | {"hours": found["ms"] * STEPS / 3.6e6}

        return Task("training step", what, size, work, {who: measure})

    yield alone(NUMPY, NUMPY)
    for name, ops in tables.items():
        yield alone(name, OURS, partial(_ours, setting, ops, captured=False))
    # A replay allocates nothing: what it needs, the graph has kept.
    last = list(tables.values())[-1]
    yield alone(GRAPH, OURS, partial(_ours, setting, last, captured=True), peak_mb=None)
    for name, compiled in ((EAGER, False), (COMPILED, True)):
        yield alone(name, PYTORCH, partial(_pytorch, setting, machine, compiled=compiled))


@dataclass(frozen=True)
class Truth:
    """What a part of a batch gives in NumPy: the loss, and the gradient of the embeddings `(V, C)`."""

    batch: Batch
    loss: float
    gradient: np.ndarray

    def require(self, loss: float, gradient: Tensor) -> None:
        """Raises `AssertionError` where a contestant computes something else."""
        far = np.linalg.norm(gradient.float().cpu().numpy() - self.gradient) / np.linalg.norm(self.gradient)
        if not (abs(loss - self.loss) <= LOSS_TOLERANCE and far <= GRADIENT_TOLERANCE):
            raise AssertionError(f"its loss is {loss:.4f}, NumPy's {self.loss:.4f}; its gradient is {far:.2g} away")


def _numpy(setting: Setting) -> tuple[Truth, dict[str, Any]]:
    """The truth; and a step's time, estimated from a part of the sentences and one update of all parameters."""
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
    estimate = {
        "sentences": setting.part, "gradients_ms": gradients_ms, "update_ms": update_ms, "cores": os.cpu_count()
    }  # fmt: skip
    return truth, {"ms": gradients_ms * setting.sentences / setting.part + update_ms, "estimated_from": estimate}


def _ours(setting: Setting, ops: Ops, truth: Truth, captured: bool) -> list[Call]:
    """Our model on a table of ops."""
    model = Transformer(setting.config, ops)
    loss = loss_and_gradient(model, truth.batch, 1.0, SMOOTHING, None)
    truth.require(float(loss), model.parameters.named["tokens.table"].grad)
    return [step_of(model, setting.batches(), captured)]


def _pytorch(setting: Setting, machine: Machine, truth: Truth, compiled: bool) -> list[Call]:
    """PyTorch's model with its autograd and its fused Adam."""
    weights = Transformer(setting.config).parameters.state_dict()
    model = Reference(setting.config, weights, machine.dtype).to(machine.device)
    optimizer = torch.optim.Adam([model.flat], LEARNING_RATE, (0.9, 0.98), 1e-9, fused=True)
    batches = setting.batches()

    def gradients(forward: Any, batch: Batch) -> Tensor:
        ids = [torch.from_numpy(a).to(machine.device) for a in (batch.source, batch.target_in, batch.target_out)]
        optimizer.zero_grad()
        with sdpa_kernel(SDPA):
            loss = forward(*ids, SMOOTHING)
        loss.backward()
        return loss

    loss = gradients(model.eval(), truth.batch)
    assert model.flat.grad is not None
    truth.require(float(loss), model.named(model.flat.grad)["tokens.table"])
    forward = machine.compiled(model.train()) if compiled else model.train()

    def step() -> None:
        gradients(forward, next(batches))
        optimizer.step()

    return [step]
