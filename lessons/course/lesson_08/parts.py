"""Lesson 08: the parts of a model as exercise 2 gets them, and a small training run that reverses tokens."""

from types import SimpleNamespace

import numpy as np

from minitransformer import Transformer, TransformerConfig
from minitransformer.ops import layernorm_forward, softmax_forward
from minitransformer.training.optimizer import Adam


class Layer:
    """The parts of one layer with their weights, which are found by name. All take and give arrays (B, T, C)."""

    def __init__(self, weights, num_heads):
        self.weights, self.num_heads = weights, num_heads

    def self_attention(self, x, mask):
        query, key, value = np.split(self._linear("self_attention.query_key_value", x), 3, axis=-1)
        return self._linear("self_attention.output", self._attend(query, key, value, mask))

    def cross_attention(self, x, memory, mask):
        query = self._linear("cross_attention.query", x)
        key, value = np.split(self._linear("cross_attention.key_value", memory), 2, axis=-1)
        return self._linear("cross_attention.output", self._attend(query, key, value, mask))

    def feed_forward(self, x):
        return self._linear("feed_forward.contract", np.maximum(0, self._linear("feed_forward.expand", x)))

    def self_attention_norm(self, x):
        return self._norm("self_attention_norm", x)

    def cross_attention_norm(self, x):
        return self._norm("cross_attention_norm", x)

    def feed_forward_norm(self, x):
        return self._norm("feed_forward_norm", x)

    def _linear(self, name, x):
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _norm(self, name, x):
        return layernorm_forward(x, self.weights[f"{name}.gamma"], self.weights[f"{name}.beta"])[0]

    def _attend(self, query, key, value, mask):
        B, T, C = query.shape
        D = C // self.num_heads
        query, key, value = (x.reshape(B, -1, self.num_heads, D).swapaxes(1, 2) for x in (query, key, value))
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)  # (B, H, Tq, Tk)
        mixed = softmax_forward(np.where(mask, scores, -np.inf))[0] @ value  # (B, H, Tq, D)
        return mixed.swapaxes(1, 2).reshape(B, T, C)


def parts_of(model):
    """Return the parts that a model of the package is made of: table, positions, pad, encoder and decoder."""
    config, weights = model.config, model.parameters.state_dict()

    def layers(stack):
        names = [f"{stack}.layers.{n}." for n in range(config.num_layers)]
        return [
            Layer({key.removeprefix(name): array for key, array in weights.items() if key.startswith(name)},
                  config.num_heads)
            for name in names
        ]  # fmt: skip

    C = config.d_model
    angles = np.arange(64)[:, None] / 10000 ** (np.arange(0, C, 2) / C)  # (64, C/2)
    positions = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(64, C)
    return SimpleNamespace(table=weights["tokens.table"], positions=positions, pad=config.pad_id,
                           encoder=layers("encoder"), decoder=layers("decoder"))  # fmt: skip


def learn_to_reverse(gain, steps=160):
    """Train a small model, its initial weights times `gain`, to write six tokens in reverse order.

    Return the losses, and the mean of the largest attention weight of each row before the first step.
    """
    draws = np.random.default_rng(0)
    small = TransformerConfig(24, d_model=32, num_heads=4, d_ff=64, num_layers=2, dropout=0.0, init_gain=gain)
    model = Transformer(small, seed=0)
    optimizer, losses, sharpness = Adam(model.parameters, model.ops), [], 0.0
    for step in range(1, steps + 1):
        ids = draws.integers(3, 24, (32, 6))
        answer = ids[:, ::-1]
        shifted = np.concatenate([np.ones((32, 1), int), answer[:, :-1]], axis=1)
        if step == 1:
            maps = model.attention_maps(ids, shifted)["cross"]
            sharpness = float(np.mean([weights.max(axis=-1).mean() for weights in maps]))
        model.parameters.zero_grad()
        loss, cache = model.loss(ids, shifted, answer)
        model.loss_backward(1.0, cache)
        optimizer.step(2e-3 * min(1, step / 50))
        losses.append(float(loss))
    return losses, sharpness
