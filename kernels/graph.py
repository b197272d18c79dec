"""The gradient of a batch as a CUDA graph: captured once for each shape of batch, then replayed with one launch.

A step of a small model is hundreds of kernels of a few microseconds each, and the host needs more time to launch a
kernel than the GPU to run it. A replay repeats the launches with exactly the same arguments. So everything that changes
from batch to batch must be in device memory: the ids, the batch's share of the step, and the keys of all dropout sites.
Then a replay computes a new batch.

Batches are padded to a few shapes, so that few graphs serve all of them. On a CPU nothing is captured, and the same
function runs each time, so that tests without a GPU can check the arguments in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minitransformer.data.batching import Batch
from minitransformer.layers import DropoutStream
from minitransformer.models import EncoderDecoder
from minitransformer.ops import Dropout, dropout_key

SENTENCES, TOKENS = 8, 16
"""Batches are padded to multiples of these."""

WARM_UPS = 2
"""Runs before a capture, during which kernels are compiled and libraries set up."""

Function = Callable[[EncoderDecoder, Batch, Any, float, DropoutStream | None], Tensor]
"""`function(model, batch, share, label_smoothing, dropout)`, as `minitransformer.training.step.loss_and_gradient`."""


@dataclass(frozen=True)
class DeviceKeys(DropoutStream):
    """A dropout stream with keys in device memory: the key of a site is row `rows[site]` of `keys`, two int32."""

    keys: Tensor | None = None
    rows: dict[int, int] = field(default_factory=dict)

    def at(self, site: int, rate: float) -> Dropout:
        """Return the dropout of one site."""
        assert self.keys is not None
        return Dropout(rate, self.keys[self.rows[site]], self.sentence)


class Captured:
    """A function of a model and a batch, which adds into the model's gradient, run as graphs of its kernels.

    It is called like the function itself and returns the same tensor, which the next call overwrites. A batch that does
    not begin a step (`first` is not 0) runs without a graph, because a graph does not hold the numbers of sentences;
    so do batches other than sentence pairs.
    Raises `ValueError` for a sequence longer than the model's max_length.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self._graphs: dict[tuple, _Graph] = {}
        self._pool: Any = None

    def __call__(
        self, model: EncoderDecoder, batch: Batch, share: float, label_smoothing: float, dropout: DropoutStream
    ) -> Tensor:
        """Call the function, or replay its graph; `share` is a number on the host."""
        if dropout.sentence or not isinstance(batch, Batch):
            return self.function(model, batch, share, label_smoothing, dropout)
        place = model, label_smoothing, _bucket(batch, model.config.max_length)
        if place not in self._graphs:
            device = model.parameters.data.device
            if self._pool is None and device.type == "cuda":
                # One pool for all graphs: only one runs at a time, and only the loss is needed after its run.
                self._pool = torch.cuda.graph_pool_handle()
            self._graphs[place] = _Graph(self.function, *place, device, self._pool)
        return self._graphs[place](batch, share, dropout)


class _Graph:
    """The function on batches of one shape: its inputs in device memory, and the graph that reads them."""

    def __init__(
        self,
        function: Function,
        model: EncoderDecoder,
        label_smoothing: float,
        shape: tuple[int, int, int],
        device: torch.device,
        pool: Any,
    ) -> None:
        sentences, source, target = shape
        self.ids = [
            torch.zeros((sentences, length), dtype=torch.int64, device=device) for length in (source, target, target)
        ]
        self.share = torch.zeros((), dtype=model.parameters.data.dtype, device=device)
        self.sites = model.dropout_sites
        self.keys = torch.zeros((len(self.sites), 2), dtype=torch.int32, device=device)
        self.pad_id = model.config.pad_id
        rows = {site: row for row, site in enumerate(self.sites)}
        batch: Any = Batch(*self.ids)  # type: ignore[arg-type] # tensors in the place of arrays
        stream = DeviceKeys(0, 0, keys=self.keys, rows=rows)
        self._model, self._pool = model, pool
        self._run = lambda: function(model, batch, self.share, label_smoothing, stream)
        self._replay: Callable[[], Tensor] | None = None

    def __call__(self, batch: Batch, share: float, dropout: DropoutStream) -> Tensor:
        for buffer, array in zip(self.ids, (batch.source, batch.target_in, batch.target_out), strict=True):
            padded = np.full(buffer.shape, self.pad_id)
            padded[: array.shape[0], : array.shape[1]] = array
            buffer.copy_(torch.from_numpy(padded))
        keys = [dropout_key(dropout.seed, dropout.step, site) for site in self.sites]
        halves = torch.tensor([[key & 0xFFFFFFFF, key >> 32] for key in keys], dtype=torch.int64)
        self.keys.copy_(halves.to(torch.int32).reshape(self.keys.shape))
        self.share.fill_(share)
        if self._replay is None:
            self._replay = self._run if self._pool is None else self._captured()
        return self._replay()

    def _captured(self) -> Callable[[], Tensor]:
        """Capture the run as a graph; return a function that replays it."""
        device, gradient = self.share.device, self._model.parameters.grad
        before = gradient.clone()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(device):
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(WARM_UPS):
                        self._run()
                torch.cuda.current_stream().wait_stream(side)
                with torch.cuda.graph(graph, pool=self._pool, stream=side):
                    loss = self._run()
        finally:
            gradient.copy_(before)  # the warm-ups must not count

        def replay() -> Tensor:
            graph.replay()
            return loss

        return replay


def _bucket(batch: Batch, max_length: int) -> tuple[int, int, int]:
    """Return the shape to pad a batch to: sentences, source and target tokens, rounded up, to max_length at most."""
    sentences, source = batch.source.shape
    target = batch.target_in.shape[1]
    if (longest := max(source, target)) > max_length:
        raise ValueError(f"the batch has {longest} tokens, more than the model's max_length of {max_length}")
    source, target = (min(-(-length // TOKENS) * TOKENS, max_length) for length in (source, target))
    return -(-sentences // SENTENCES) * SENTENCES, source, target
