"""Mistakes that are easily made, each as a small patch: what the proof must refuse.

`file`, under the package's folder, holds `before` exactly once; `after` takes its place, and the tests in `refused_by`
must then fail. `tests/test_breakages.py` tries them all.
"""

from typing import NamedTuple


class Breakage(NamedTuple):
    """One mistake."""

    name: str
    file: str
    before: str
    after: str
    refused_by: str
    package: str = "minitransformer"


DECODING = "tests/models/test_decoding_in_steps.py"

BREAKAGES = [
    Breakage(
        "softmax gradient with the wrong sign",
        "ops/softmax.py",
        "dx = dy - np.vecdot",
        "dx = dy + np.vecdot",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "causal mask off by one: a query does not see itself",
        "ops/attention.py",
        "mask &= back >= 0",
        "mask &= back > 0",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "window off by one",
        "ops/attention.py",
        "abs(back) <= window",
        "abs(back) < window",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "causal mask aligned top-left where Tq and Tk differ",
        "ops/attention.py",
        "first = int(num_keys) - int(num_queries) if offset is None",
        "first = 0 if offset is None",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "a window's block does not reach the keys after it",
        "ops/attention.py",
        "last + 1 + (0 if causal else window)",
        "last + 1",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "a window's blocks overwrite each other's gradients of shared keys",
        "ops/attention.py",
        "dkey[:, :, keys] += dkey_block",
        "dkey[:, :, keys] = dkey_block",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "missing √d_k",
        "ops/attention.py",
        "1 / math.sqrt(query.shape[-1]) if scale is None",
        "1.0 if scale is None",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "query's gradient without the scale",
        "ops/attention.py",
        "    dquery *= factor\n",
        "",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "padding attended to instead of words",
        "ops/attention.py",
        "real = key_mask[:, None, None, :]",
        "real = ~key_mask[:, None, None, :]",
        "tests/ops/test_attention.py",
    ),
    Breakage(
        "variance with Bessel's correction (ddof=1)",
        "ops/layernorm.py",
        "[..., None] / x.shape[-1]",
        "[..., None] / (x.shape[-1] - 1)",
        "tests/ops/test_layernorm.py",
    ),
    Breakage(
        "layernorm's mean not differentiated",
        "ops/layernorm.py",
        "    dx -= row_means(dx)\n",
        "",
        "tests/ops/test_layernorm.py",
    ),
    Breakage(
        "missing √d_model",
        "layers/embedding.py",
        "self.scale = math.sqrt(d_model)",
        "self.scale = 1.0",
        "tests/layers/test_embedding_layers.py",
    ),
    Breakage(
        "repeated ids overwrite each other's gradient",
        "ops/embedding.py",
        "sums = np.add.reduceat(dy.reshape(ids.size, table.shape[1])[order], starts, axis=0)",
        "sums = dy.reshape(ids.size, table.shape[1])[order][starts]",
        "tests/ops/test_embedding.py",
    ),
    Breakage(
        "gradients overwritten instead of added",
        "ops/linear.py",
        "    dweight_sum += dweight",
        "    dweight_sum[...] = dweight",
        "tests/layers/test_linear_layers.py",
    ),
    Breakage(
        "rectifier with a gradient at 0",
        "ops/relu.py",
        "dy * (y > 0)",
        "dy * (y >= 0)",
        "tests/ops/test_relu.py",
    ),
    Breakage(
        "NaN for a row with nothing to attend to",
        "ops/softmax.py",
        "return np.maximum(np.add.reduce(exponentials, axis=-1, keepdims=True), 1)",
        "return np.add.reduce(exponentials, axis=-1, keepdims=True)",
        "tests/ops/test_softmax.py",
    ),
    Breakage(
        "one dropout key for all sites",
        "ops/dropout.py",
        "for number in (seed, step, site):",
        "for number in (seed, step):",
        "tests/ops/test_dropout.py",
    ),
    Breakage(
        "a dropout mask that depends on how the batch is split",
        "ops/dropout.py",
        "coordinates = [axes[0] + sentence,",
        "coordinates = [axes[0],",
        "tests/ops/test_dropout.py",
    ),
    Breakage(
        "dropout's gradient without its scale",
        "ops/dropout.py",
        "return dy * kept * scale",
        "return dy * kept",
        "tests/ops/test_dropout.py",
    ),
    Breakage(
        "label smoothing spread over V − 1 tokens",
        "ops/cross_entropy.py",
        "probabilities -= smoothing / dtype.type(logits.shape[1])",
        "probabilities -= smoothing / dtype.type(logits.shape[1] - 1)",
        "tests/ops/test_cross_entropy.py",
    ),
    Breakage(
        "loss averaged over padding too",
        "ops/cross_entropy.py",
        "count = x.dtype.type(max(1, len(rows)))",
        "count = x.dtype.type(max(1, len(targets)))",
        "tests/ops/test_cross_entropy.py",
    ),
    Breakage(
        "small exponentials lost beside a large one",
        "ops/cross_entropy.py",
        "total = probabilities.sum(axis=-1)",
        "total = probabilities @ np.ones(logits.shape[1], dtype)",
        "tests/ops/test_cross_entropy.py",
    ),
    Breakage(
        "smoothing forgotten in the loss",
        "ops/cross_entropy.py",
        "expected += smoothing * logits.mean(axis=-1)",
        "expected += 0 * logits.mean(axis=-1)",
        "tests/ops/test_cross_entropy.py",
    ),
    Breakage(
        "Adam without the correction of its first moment",
        "ops/adam.py",
        "root_correction / (1 - beta1**step)",
        "root_correction",
        "tests/ops/test_adam.py",
    ),
    Breakage(
        "Adam's ε beside √v instead of √v̂",
        "ops/adam.py",
        "eps * root_correction",
        "eps",
        "tests/ops/test_adam.py",
    ),
    Breakage(
        "a residual connection without its own gradient",
        "layers/norm.py",
        "return dy, self.ops.dropout.backward(dy, cache)",
        "return 0 * dy, self.ops.dropout.backward(dy, cache)",
        "tests/layers/test_norm_layers.py",
    ),
    Breakage(
        "the memory's gradient from the first decoder layer only",
        "layers/stack.py",
        "dmemory = here if dmemory is None else dmemory + here",
        "dmemory = here",
        "tests/models/test_model_gradients.py",
    ),
    Breakage(
        "tied gradient counted once: the output layer's is lost",
        "models/objectives.py",
        "dhidden, _ = tokens.ops.linear_cross_entropy.backward(dloss, loss_cache, out=tokens.table.grad)",
        "dhidden, _ = tokens.ops.linear_cross_entropy.backward(dloss, loss_cache)",
        "tests/models/test_model_gradients.py",
    ),
    Breakage(
        "sine and cosine swapped",
        "layers/embedding.py",
        "table[:, 0::2] = self.ops.sin(angles)",
        "table[:, 0::2] = self.ops.cos(angles)",
        "tests/layers/test_embedding_layers.py",
    ),
    Breakage(
        "every step of a translation at position 0",
        "layers/embedding.py",
        "self.positions.forward(x, context.position)",
        "self.positions.forward(x)",
        DECODING,
    ),
    Breakage(
        "beams that keep another beam's keys and values",
        "layers/cache.py",
        '(first + self.ops.asarray(beams, "int64"))',
        '(first + 0 * self.ops.asarray(beams, "int64"))',
        DECODING,
    ),
    Breakage(
        "a cache that keeps the newest position alone",
        "layers/cache.py",
        "return keys[:, :, :stop], values[:, :, :stop]",
        "return keys[:, :, start:stop], values[:, :, start:stop]",
        DECODING,
    ),
    Breakage(
        "a cache that forgets its past when its room is full",
        "layers/cache.py",
        "self._with_room(keys[:, :, :start], room), self._with_room(values[:, :, :start], room)",
        "self._with_room(keys[:, :, :0], room), self._with_room(values[:, :, :0], room)",
        "tests/layers/test_cache.py",
    ),
    Breakage(
        "sentences that leave without their memory",
        "layers/cache.py",
        "self.shared = {name: tuple(take(array, sentences) for array in kept) for name, kept in self.shared.items()}",
        "self.shared = {name: tuple(array[: len(sentences)] for array in kept) for name, kept in self.shared.items()}",
        DECODING,
    ),
    Breakage(
        "one place in the cache for all layers",
        "layers/attention.py",
        "past.shared[self.name] = key, value",
        'past.shared["memory"] = key, value',
        DECODING,
    ),
    Breakage(
        "the memory's keys and values computed once more at every position",
        "layers/attention.py",
        "            if past is None or self.name not in past.shared:",
        "            if context.memory is not None or self.name not in past.shared:",
        "tests/layers/test_attention_layers.py",
    ),
    Breakage(
        "an encoder that attends to padding",
        "layers/attention.py",
        "context.memory_mask if self.cross else context.mask",
        "context.memory_mask if self.cross else None",
        "tests/layers/test_attention_layers.py",
    ),
    Breakage(
        "a memory looked at with the mask of the target",
        "layers/attention.py",
        "context.memory_mask if self.cross else context.mask",
        "context.mask",
        "tests/layers/test_attention_layers.py",
    ),
    Breakage(
        "a context that never drops",
        "layers/context.py",
        "return None if self.dropout is None or rate == 0 else self.dropout.at(site, rate)",
        "return None",
        "tests/layers/test_context.py",
    ),
    Breakage(
        "one dropout site for all layers",
        "layers/parameter.py",
        "layer.name, layer.site = name, site_of(name)",
        'layer.name, layer.site = name, site_of("")',
        "tests/models/test_invariances.py",
    ),
    Breakage(
        "one dropout site for layers of one kind",
        "layers/parameter.py",
        "layer.name, layer.site = name, site_of(name)",
        'layer.name, layer.site = name, site_of(name.split(".")[-1])',
        "tests/models/test_invariances.py",
    ),
    Breakage(
        "a site that is another one in every process",
        "layers/parameter.py",
        "return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())",
        "return hash(name) % 2**64",
        "tests/layers/test_context.py",
    ),
    Breakage(
        "the gradient of what a pre-norm sub-layer reads past its norm",
        "layers/norm.py",
        "return self.backward(dy, cache) if self.pre_norm else dy",
        "return dy",
        "tests/layers/test_norm_layers.py",
    ),
    Breakage(
        "a replica with weights of its own",
        "models/model.py",
        "self.ops, self.dtype, self.parameters)",
        "self.ops, self.dtype)",
        "tests/models/test_replicas.py",
    ),
    Breakage(
        "halves of a batch weighted alike, however many words each has",
        "training/step.py",
        "share = part.num_target_tokens / num_targets",
        "share = 1 / len(self.replicas)",
        "tests/test_training.py",
    ),
    Breakage(
        "length penalty without the 5 of Wu et al.",
        "decoding/search.py",
        "return ((5 + length) / 6) ** alpha",
        "return (length / 6) ** alpha",
        "tests/test_decoding.py",
    ),
    Breakage(
        "a warm-up that never decays",
        "training/optimizer.py",
        "min(step / self.warmup_steps, (self.warmup_steps / step) ** 0.5)",
        "min(step / self.warmup_steps, 1.0)",
        "tests/test_optimizer.py",
    ),
    Breakage(
        "a damaged checkpoint accepted",
        "training/checkpoint.py",
        "if hasher.hexdigest().encode() != start[_DIGEST_START:]:",
        "if False:",
        "tests/test_checkpoint.py",
    ),
]
