"""A training step as a CUDA graph: captured once for each shape of batch, then replayed with one launch.

A step of a small model is hundreds of kernels of some microseconds, and launching each takes the host longer than
running it takes the GPU. A replay repeats the launches with the arguments they had, to the bit, so whatever changes
from step to step must stand in device memory: the batch, the number of the step, the learning rate, and the keys of all
dropout sites. A replay is then a new step and no repetition.

Batches are padded to buckets of shapes, so that few graphs serve all of them. On a CPU nothing is captured and the same
step runs each time: what is read from memory can be checked without a GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minitransformer.data.batching import Batch
from minitransformer.layers import DropoutStream
from minitransformer.models import Model
from minitransformer.ops import Dropout, dropout_key
from minitransformer.optimizer import Adam

SENTENCES, TOKENS = 8, 16
"""Batches are padded to multiples of these."""

WARM_UPS = 2
"""Steps before a capture, in which kernels are compiled and libraries set up."""


@dataclass(frozen=True)
class DeviceKeys(DropoutStream):
    """A stream whose keys are read from device memory: row `site` of `keys`, two int32 each."""

    keys: Tensor | None = None

    def at(self, site: int, rate: float) -> Dropout:
        """The dropout of one site."""
        assert self.keys is not None
        return Dropout(rate, self.keys[site], self.sentence)


class CapturedStep:
    """Loss, gradients, clipping and Adam of one batch; `step(batch, learning_rate)` returns the loss, a tensor.

    Equals what the trainer does with one batch a step, with the masks of `DropoutStream(seed, number of the step)`. The
    number is the optimiser's. The returned tensor is overwritten by the next call.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Adam,
        label_smoothing: float = 0.1,
        clip_norm: float | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.label_smoothing, self.clip_norm, self.seed = label_smoothing, clip_norm, seed
        self.device: torch.device = model.parameters.data.device
        self.number = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.learning_rate = torch.zeros_like(model.parameters.data[:1])
        self.keys = torch.zeros((model.num_dropout_sites, 2), dtype=torch.int32, device=self.device)
        self.pool: Any = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        self._replays: dict[tuple[int, int, int], tuple[list[Tensor], Callable[[], Tensor]]] = {}

    def __call__(self, batch: Batch, learning_rate: float) -> Tensor:
        """One optimiser step on `batch`. Raises `ValueError` for a sequence longer than the model takes."""
        shape = _bucket(batch, self.model.config.max_length)
        self.optimizer.num_steps += 1
        number = self.optimizer.num_steps
        keys = [dropout_key(self.seed, number, site) for site in range(len(self.keys))]
        halves = torch.tensor([[key & 0xFFFFFFFF, key >> 32] for key in keys], dtype=torch.int64)
        self.keys.copy_(halves.to(torch.int32).reshape(self.keys.shape))
        self.number.fill_(number)
        self.learning_rate.fill_(learning_rate)

        if shape not in self._replays:
            sizes = (shape[:2], shape[::2], shape[::2])  # (B, Ts), (B, Tt), (B, Tt)
            inputs = [torch.empty(size, dtype=torch.int64, device=self.device) for size in sizes]
            self._fill(inputs, batch)
            self._replays[shape] = inputs, self._captured(inputs)
        inputs, replay = self._replays[shape]
        self._fill(inputs, batch)
        return replay()

    def _run(self, inputs: list[Tensor]) -> Tensor:
        """The step itself, on whatever stands in device memory."""
        model, parameters = self.model, self.model.parameters
        parameters.zero_grad()
        dropout = DeviceKeys(self.seed, 0, keys=self.keys)
        source, target_in, target_out = inputs
        loss, cache = model.loss(source, target_in, target_out, self.label_smoothing, dropout)
        model.loss_backward(1.0, cache)
        scale: Any = 1.0
        if self.clip_norm is not None:
            scale = (self.clip_norm / model.ops.global_norm(parameters.grad)).clamp(max=1.0).to(parameters.data.dtype)
        self.optimizer.update(self.number, self.learning_rate, scale)
        return loss

    def _captured(self, inputs: list[Tensor]) -> Callable[[], Tensor]:
        """What repeats `_run` on these inputs."""
        if self.device.type != "cuda":
            return lambda: self._run(inputs)
        changed = (self.model.parameters.data, self.optimizer.m, self.optimizer.v)
        before = [tensor.clone() for tensor in changed]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(self.device):
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(WARM_UPS):
                        self._run(inputs)
                torch.cuda.current_stream().wait_stream(side)
                # One pool for all buckets: only one of them runs at a time, and nothing but the loss outlives its run.
                with torch.cuda.graph(graph, pool=self.pool, stream=side):
                    loss = self._run(inputs)
        finally:
            for tensor, old in zip(changed, before, strict=True):
                tensor.copy_(old)  # the warm-ups were no steps
            self.model.parameters.refresh()

        def replay() -> Tensor:
            graph.replay()
            return loss

        return replay

    def _fill(self, inputs: list[Tensor], batch: Batch) -> None:
        """The batch into the corner of the bucket, padding around it."""
        pad = self.model.config.pad_id
        for buffer, array in zip(inputs, (batch.source, batch.target_in, batch.target_out), strict=True):
            padded = np.full(buffer.shape, pad)
            padded[: array.shape[0], : array.shape[1]] = array
            buffer.copy_(torch.from_numpy(padded))


def _bucket(batch: Batch, max_length: int) -> tuple[int, int, int]:
    """Sentences, source tokens and target tokens, each rounded up; no sequence longer than the model takes."""
    sentences, source = batch.source.shape
    target = batch.target_in.shape[1]
    if (longest := max(source, target)) > max_length:
        raise ValueError(f"the batch has {longest} tokens, more than the model's max_length of {max_length}")
    source, target = (min(-(-length // TOKENS) * TOKENS, max_length) for length in (source, target))
    return -(-sentences // SENTENCES) * SENTENCES, source, target
