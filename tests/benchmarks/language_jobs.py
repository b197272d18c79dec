"""A language model trained by the recipe of `train --kind gpt`: ours, and the same in PyTorch as one would write it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from race import Work

from minitransformer.cli.recipes import RECIPES
from minitransformer.data.preparation import open_prepared
from minitransformer.data.text import TextDataset
from minitransformer.models import GPT, GPTConfig
from minitransformer.system.allocator import keep_freed_memory
from minitransformer.training import DataParallel, TrainingSettings, training_step
from minitransformer.training.optimizer import Adam


@dataclass(frozen=True)
class Recipe:
    """The model, the settings and the batches that both train with; `bytes` are those of the validation text."""

    config: GPTConfig
    settings: TrainingSettings
    train: Any
    valid: Any
    tokens_per_byte: float

    @classmethod
    def read(cls, folder: str, threads: int) -> "Recipe":
        """From the data that `prepare` left in a folder."""
        data, kind = open_prepared(Path(folder)), RECIPES["gpt"]
        config = GPTConfig(data.tokenizer.vocab_size, **kind.model)
        settings = TrainingSettings(**dict(kind.settings) | {"threads": threads})
        train, valid = TextDataset(data.train), TextDataset(data.valid)
        num_bytes = sum(len(data.tokenizer.decode(line).encode()) + 1 for line in valid)
        first, held_out = train.batches(settings.tokens_per_batch, 0, config), valid.batches(4096, None, config)
        return cls(config, settings, first, held_out, len(valid.stream) / num_bytes)

    def batch(self, step: int) -> Any:
        """The batch of a step, counted from 1."""
        return self.train.batch(*divmod(step - 1, len(self.train)))

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return self.settings.schedule(self.config.d_model)(step)

    def bits_per_byte(self, loss: float) -> float:
        """From the mean loss of the validation's tokens."""
        return loss * self.tokens_per_byte / math.log(2)


@contextmanager
def numpy_training(threads: int, folder: str, steps: int) -> Iterator[tuple[float, Work]]:
    """Trains for so many steps; the answer is the bits for a byte of the validation text, the work another step."""
    keep_freed_memory()
    recipe = Recipe.read(folder, threads)
    model, settings = GPT(recipe.config), recipe.settings
    adam = Adam(model.parameters, model.ops, (settings.beta1, settings.beta2), settings.eps)
    with DataParallel(model, threads) as workers:

        def work() -> None:
            step = adam.num_steps + 1
            training_step(
                workers,
                adam,
                [recipe.batch(step)],
                learning_rate=recipe.rate(step),
                label_smoothing=settings.label_smoothing,
                clip_norm=settings.clip_norm,
            )

        for _ in range(steps):
            work()
        yield recipe.bits_per_byte(workers.mean_loss(recipe.valid.epoch(0))), work


@contextmanager
def torch_training(threads: int, folder: str, steps: int, fused: bool = False) -> Iterator[tuple[float, Work]]:
    """As `numpy_training`, with dropout of its own; memory is kept for reuse, as ours."""
    import torch
    from torch_gpt import TorchGPT, copy_weights

    keep_freed_memory()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    recipe = Recipe.read(folder, threads)
    settings, model = recipe.settings, TorchGPT(recipe.config)
    copy_weights(model, GPT(recipe.config).parameters.state_dict())
    adam = torch.optim.Adam(
        model.parameters(), betas=(settings.beta1, settings.beta2), eps=settings.eps, fused=fused or None
    )
    taken = 0

    def work() -> None:
        nonlocal taken
        taken += 1
        adam.param_groups[0]["lr"] = recipe.rate(taken)
        adam.zero_grad()
        model(*map(torch.from_numpy, recipe.batch(taken).inputs)).backward()
        if settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        adam.step()

    for _ in range(steps):
        work()
    model.eval()
    with torch.no_grad():
        losses = [(float(model(*map(torch.from_numpy, b.inputs))), b.num_targets) for b in recipe.valid.epoch(0)]
    model.train()
    values, weights = np.array(losses).T
    yield recipe.bits_per_byte(float(np.average(values, weights=weights))), work
