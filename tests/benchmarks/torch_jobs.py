"""PyTorch's side of the races."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from race import Work
from torch_transformer import TorchTransformer, beam_search, copy_weights
from workloads import (
    LEARNING_RATE,
    SMOOTHING,
    TARGET_TOKENS,
    TRANSLATION_SHAPE,
    configuration,
    sources,
    training_batches,
)

from minitransformer.data.batching import PAD_ID, Batch
from minitransformer.models import Transformer
from minitransformer.system.allocator import keep_freed_memory


@contextmanager
def training(
    threads: int,
    shape: str,
    dropout: float,
    token_file: str | None = None,
    fused: bool = False,
    compiled: bool = False,
    keeps_memory: bool = False,
) -> Iterator[tuple[list[float], Work]]:
    """As `numpy_jobs.training`, from the same weights.

    Adam as it comes or fused; the model eager or compiled; memory as the system has it, or kept for reuse as we do.
    """
    if keeps_memory:
        keep_freed_memory()
    torch.set_num_threads(threads)
    model = _model(shape, dropout)
    batches = [_tensors(batch) for batch in training_batches(shape, token_file)]
    adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9, fused=fused or None)
    loss_of: Any = torch.compile(model) if compiled else model

    def work() -> None:
        for batch in batches:
            adam.zero_grad()
            loss_of(*batch, SMOOTHING).backward()
            adam.step()

    def losses() -> list[float]:
        model.eval()
        with torch.no_grad():
            values = [float(model(*batch, SMOOTHING)) for batch in batches]
        model.train()
        return values

    answer = losses()
    if not dropout:
        for _ in range(3):
            work()
        answer += losses()
    yield answer, work


@contextmanager
def translation(
    threads: int, num_sentences: int, num_beams: int, torch_threads: int | None = None
) -> Iterator[tuple[list[list[int]], Work]]:
    """As `numpy_jobs.translation`, from the same weights, with a key/value cache."""
    keep_freed_memory()
    torch.set_num_threads(torch_threads or threads)
    model = _model(TRANSLATION_SHAPE, dropout=0.0).eval()
    source = torch.from_numpy(sources(num_sentences))

    def work() -> torch.Tensor:
        return beam_search(model, source, num_beams, TARGET_TOKENS)

    yield work().tolist(), work


def _tensors(batch: Batch) -> tuple[torch.Tensor | None, ...]:
    """Source, target in and out, and the source's mask, `None` where nothing is padded."""
    arrays = (torch.from_numpy(array) for array in (batch.source, batch.target_in, batch.target_out))
    real = torch.from_numpy(batch.source != PAD_ID)
    return *arrays, None if bool(real.all()) else real[:, None, None, :]


def _model(shape: str, dropout: float) -> TorchTransformer:
    """With the weights that ours starts from."""
    config = configuration(shape, dropout)
    model = TorchTransformer(config)
    copy_weights(model, {k: torch.from_numpy(v) for k, v in Transformer(config).parameters.state_dict().items()})
    return model
