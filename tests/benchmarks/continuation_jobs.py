"""GPT-2 continues a prompt greedily: ours, and Hugging Face's `generate` with the same weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from race import Work

from minitransformer.system.allocator import keep_freed_memory


def prompt_of(vocab_size: int, length: int) -> np.ndarray:
    """A prompt's ids, `(1, length)`."""
    return np.random.default_rng(0).integers(0, vocab_size, (1, length))


@contextmanager
def numpy_continuation(threads: int, folder: str, prompt: int, new: int) -> Iterator[tuple[list[int], Work]]:
    """The ids that a beam of one writes after a prompt; BLAS has as many threads as the environment gives it."""
    from minitransformer.decoding.search import Start, beam_search
    from minitransformer.pretrained import load

    keep_freed_memory()
    model, _ = load(folder)
    ids = prompt_of(model.config.vocab_size, prompt)
    start = Start(ids[:, -1], np.array([new]))

    def work() -> list[int]:
        return beam_search(model, ids[:, :-1], 1, 0.0, start=start)[0][0].ids

    yield work(), work


@contextmanager
def torch_continuation(
    threads: int, folder: str, prompt: int, new: int, torch_threads: int | None = None
) -> Iterator[tuple[list[int], Work]]:
    """As `numpy_continuation`, by `generate` with its cache."""
    import torch
    from transformers import GPT2LMHeadModel  # pyright: ignore[reportMissingImports]

    keep_freed_memory()
    torch.set_num_threads(torch_threads or threads)
    model: Any = GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = torch.from_numpy(prompt_of(model.config.vocab_size, prompt))
    options = {"num_beams": 1, "do_sample": False, "min_new_tokens": new, "max_new_tokens": new, "pad_token_id": 0}

    @torch.inference_mode()
    def work() -> list[int]:
        return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, prompt:].tolist()

    yield work(), work
