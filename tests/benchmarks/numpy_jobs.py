"""minitransformer's side of the races."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from race import Work
from threadpoolctl import threadpool_limits
from workloads import (
    LEARNING_RATE,
    SMOOTHING,
    SOURCE_TOKENS,
    TARGET_TOKENS,
    TRANSLATION_SHAPE,
    configuration,
    full_batch,
    sources,
    training_batches,
)

from minitransformer.decoding import greedy_search, search
from minitransformer.models import Decoding, Transformer, TransformerConfig
from minitransformer.ops import attention_backward, attention_forward, numpy_ops
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.system.threads import Threads
from minitransformer.textbook import textbook_ops
from minitransformer.training import DataParallel
from minitransformer.training.optimizer import Adam


@contextmanager
def training(
    threads: int,
    shape: str,
    dropout: float,
    token_file: str | None = None,
    undone: str | None = None,
) -> Iterator[tuple[list[float], Work]]:
    """A step of training on each batch; the answer is the batches' losses before any, without dropout.

    Where the steps have no dropout either, the losses after three of them follow: the gradients and Adam agree too.
    `undone` names what is left out of the speed: an op, which is then the textbook's; "memory", which is then not kept;
    or "threads", whose place BLAS's own threads take.
    """
    if undone != "memory":
        keep_freed_memory()
    batches = training_batches(shape, token_file)
    ops = numpy_ops
    if undone in vars(ops):
        ops = replace(ops, **{undone: getattr(textbook_ops, undone)})
    model = Transformer(configuration(shape, dropout), ops)
    adam = Adam(model.parameters, model.ops)
    numbers = itertools.count(1)
    with DataParallel(model, 1 if undone == "threads" else threads) as workers:
        if undone == "threads":
            threadpool_limits(threads)

        def work() -> None:
            for batch in batches:
                workers.gradients([batch], SMOOTHING, seed=0, step=next(numbers))
                adam.step(LEARNING_RATE)

        def losses() -> list[float]:
            parts = ((batch.source, batch.target_in, batch.target_out) for batch in batches)
            return [float(model.loss(*part, SMOOTHING, with_grad=False)[0]) for part in parts]

        answer = losses()
        if not dropout:
            for _ in range(3):
                work()
            answer += losses()
        yield answer, work


class Endless(Transformer):
    """A model that never ends a sentence of itself, so that every translation has the longest length."""

    def decode_step(self, ids: np.ndarray, state: Decoding) -> np.ndarray:
        """As the model's own, with the end-of-sentence token ruled out."""
        logits = super().decode_step(ids, state)
        logits[..., self.config.eos_id] = -np.inf
        return logits


@contextmanager
def translation(
    threads: int, num_sentences: int, num_beams: int, blas_threads: bool = False
) -> Iterator[tuple[list[list[int]], Work]]:
    """Translates sentences of random tokens into as many as are asked for; the answer is their ids.

    With `blas_threads` all sentences are one batch, and BLAS's own threads share its products.
    """
    keep_freed_memory()
    model = Endless(configuration(TRANSLATION_SHAPE))
    ids, max_extra = sources(num_sentences), TARGET_TOKENS - SOURCE_TOKENS

    def work() -> list[list[int]]:
        if blas_threads:
            return [best.ids for best in greedy_search(model, ids, max_extra)]
        found = search(model, ids.tolist(), threads=threads, beam=num_beams, max_extra=max_extra)
        translations = {i: best.ids for batch, results in found for i, (best,) in zip(batch, results, strict=True)}
        return [translations[i] for i in range(num_sentences)]

    yield work(), work


@contextmanager
def growth(threads: int, sentences: int, length: int, **shape: Any) -> Iterator[tuple[float, Work]]:
    """A training step of one size, without dropout; the answer is its loss before."""
    keep_freed_memory()
    config = TransformerConfig(dropout=0.0, max_length=length, **shape)
    batch = full_batch(config.vocab_size, sentences, length)
    model = Transformer(config)
    adam = Adam(model.parameters, model.ops)
    with DataParallel(model, threads) as workers:

        def work() -> float:
            loss = workers.gradients([batch], SMOOTHING, seed=0, step=1)
            adam.step(LEARNING_RATE)
            return loss

        yield work(), work


@contextmanager
def attention(threads: int, length: int, window: int | None = None) -> Iterator[tuple[None, Work]]:
    """Attention alone, forward and backward, one sentence in 4 heads of width 32."""
    keep_freed_memory()
    query, key, value = np.random.default_rng(0).standard_normal((3, 1, 4, length, 32)).astype(np.float32)

    def work() -> None:
        out, cache = attention_forward(query, key, value, window=window)
        attention_backward(out, cache)

    with Threads(threads):
        yield None, work
