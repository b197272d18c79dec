"""Mistakes that are easily made, each as a small patch: what the proof must refuse.

A table (see `tables`) under `[file: test]`, of a file under `minitransformer/` and a test under `tests/`: the name of a
mistake, and an edit whose `before` stands exactly once in the file; the test must then fail. `tests/test_breakages.py`
tries them all.
"""

from typing import NamedTuple

from support.tables import before_and_after, sections


class Breakage(NamedTuple):
    """One mistake: `after` takes the place of `before` in `file`, under the package's folder."""

    name: str
    file: str
    before: str
    after: str
    refused_by: str
    package: str = "minitransformer"


TRANSFORMER = r"""
[ops/softmax.py: ops/test_op_gradients]
softmax gradient with the wrong sign | dx = dy - np.vecdot → dx = dy + np.vecdot
[ops/softmax.py: ops/test_edges]
NaN for a row with nothing to attend to
    return np.maximum(np.add.reduce(exponentials, axis=-1, keepdims=True), 1) →
        return np.add.reduce(exponentials, axis=-1, keepdims=True)
NaN for one of many rows with nothing to attend to | np.maximum(sums, 1).reshape → sums.reshape
the maxima of short rows are those of the columns
    columns = x.reshape(num_rows, width).T.copy() → columns = x.reshape(width, num_rows).copy()
[ops/attention.py: ops/test_attention]
causal mask off by one: a query does not see itself
    past = np.tri(query.shape[2], key.shape[2], key.shape[2] - query.shape[2], dtype=bool) →
        past = np.tri(query.shape[2], key.shape[2], key.shape[2] - query.shape[2] - 1, dtype=bool)
causal mask aligned top-left where Tq and Tk differ
    past = np.tri(query.shape[2], key.shape[2], key.shape[2] - query.shape[2], dtype=bool) →
        past = np.tri(query.shape[2], key.shape[2], 0, dtype=bool)
padding attended to instead of words
    mask = None if key_mask is None else key_mask[:, None, None, :] →
        mask = None if key_mask is None else ~key_mask[:, None, None, :]
scores of few queries left in the order of the keys
    np.ascontiguousarray((key @ rows.swapaxes(-1, -2)).swapaxes(-1, -2)) → (key @ rows.swapaxes(-1, -2))
[ops/attention.py: ops/test_op_gradients]
missing √d_k
    factor = query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)\n    if window is not None →
        factor = query.dtype.type(1.0 if scale is None else scale)\n    if window is not None
query's gradient without the scale | \n    dquery *= factor →
key/value head h % Hk serves query head h
    return x if heads == kv_heads else x.reshape(batch, kv_heads, heads // kv_heads * time, width) →
        return x if heads == kv_heads else x.reshape(batch, heads // kv_heads, kv_heads, time, width).swapaxes(1, 2)
        .reshape(batch, kv_heads, heads // kv_heads * time, width)
bias added before the softcap, and bent by it
    capped = np.tanh(scores / float(softcap)) →
        capped = np.tanh((scores if bias is None else scores + bias) / float(softcap))
a bias's gradient not summed over an axis that was broadcast
    return gradient.sum(axis=axes).reshape(shape) →
        return gradient[tuple(slice(0, 1) if i in axes else slice(None) for i in range(4))].reshape(shape)
the softcap's slope forgotten | dscores = dscores * (1 - capped * capped) → dscores = dscores * 1
[ops/pattern.py: ops/test_attention]
window off by one | (back <= left) & (back >= -right) → (back < left) & (back > -right)
a window's left and right swapped | masks.append((back <= left) & (back >= -right)) →
        masks.append((back <= right) & (back >= -left))
a window's block does not reach the keys after it | end = first - left, last + right + 1 → end = first - left, last + 1
a causal pattern in which a query does not see itself
    return key <= query if mask is None else mask & (key <= query) →
        return key < query if mask is None else mask & (key < query)
a global token that is not seen by all | masks = [key == token for token in self.global_tokens] →
        masks = [(key == token) & (query == token) for token in self.global_tokens]
a global token that does not see all
    return reduce(or_, [query == token for token in self.global_tokens]) →
        return reduce(or_, [(query == token) & (query == key) for token in self.global_tokens])
pairs counted in two pieces | mask = mask & ~earlier(query, key) → mask = mask & True
[ops/sparse_attention.py: ops/test_attention]
pieces overwrite each other's gradients of shared keys
    dkey[:, :, keys] += dkey_part → dkey[:, :, keys] = dkey_part
each piece its own softmax
    largest[:, :, queries] = np.maximum(largest[:, :, queries], row_maximum(scores)) →
        largest[:, :, queries] = row_maximum(scores)
dropout of a piece numbered from its own first key | words = mix(rows[:, None] + keys.astype(np.uint32) // 2 →
        words = mix(rows[:, None] + (keys - keys[:1]).astype(np.uint32) // 2
[ops/linear_attention.py: ops/test_attention]
linear attention's causal state one chunk late: it holds the chunk itself
    yield part, past, state\n → yield part, past, state + added\n
linear attention in decoding divided by the newest keys alone | \n        before[..., -1] = total → \n        pass
linear attention's query does not see itself | np.tri(size, dtype=bool) → np.tri(size, k=-1, dtype=bool)
[ops/linear_attention.py: ops/test_op_gradients]
linear attention's denominator not differentiated | ddenominator = -np.vecdot → ddenominator = -0 * np.vecdot
[ops/gelu.py: ops/test_op_gradients]
gelu's cubic term with a digit missing | CUBIC = 0.044715 → CUBIC = 0.04475
the approximation of gelu in place of erf | if approximate == "tanh": → if approximate:
[ops/normal.py: ops/test_edges]
erf's fraction for small numbers used too far out | NEAR = 0.46875 → NEAR = 0.75
[ops/silu.py: ops/test_op_gradients]
silu's slope as if its gate were constant | return y, gate + y * (1 - gate) → return y, gate
[ops/gated.py: ops/test_op_gradients]
the gate's gradient without what it is multiplied with | dgate = backward(dy * up, → dgate = backward(dy,
[ops/rope.py: ops/test_op_gradients]
rotary positions: neighbours paired for halves, and halves for neighbours | if interleaved: → if not interleaved:
rotary positions that turn the other way
    return turned(x, cos, sin, interleaved), → return turned(x, cos, -sin, interleaved),
rotary gradients turned once more, not back | return turned(dy, cos, -sin, → return turned(dy, cos, sin,
[ops/patches.py: ops/test_patches]
a patch's rows and columns swapped | split.transpose(0, 2, 4, 1, 3, 5) → split.transpose(0, 2, 4, 1, 5, 3)
[ops/rmsnorm.py: ops/test_op_gradients]
RMS normalisation that subtracts the mean | normed = x * rstd → normed = (x - x.mean(-1, keepdims=True)) * rstd
RMS normalisation with eps beside the root
    rstd = 1 / np.sqrt(mean_square + float(eps)) → rstd = 1 / (np.sqrt(mean_square) + float(eps))
[ops/buckets.py: pretrained/test_relative_buckets]
T5's bucket of the query's own position that of a later key | if distance > 0 → if distance >= 0
[layers/positions.py: pretrained/test_relative_buckets]
ALiBi's first head without a slope of its own: h from 0 | for h in range(1, self.num_heads + 1)] →
        for h in range(self.num_heads)]
[layers/sparse.py: models/test_family]
global tokens and blocks of a prompt counted from its padding
    before = padding[:, None, None, None] → before = 0 * padding[:, None, None, None]
[inside.py: pretrained/test_inside]
attention maps without the bias of the scores
    model.ops.attention_weights(query, key, bias, **kept) → model.ops.attention_weights(query, key, None, **kept)
attention maps in the order in which layers are declared, not computed
    return dict(zip(names, seen, strict=True)) → return dict(zip(sorted(names), seen, strict=True))
a logit lens that cuts the encoder where there is a decoder
    getattr(cut, "decoder", None) or getattr(cut, "encoder", None) →
        getattr(cut, "encoder", None) or getattr(cut, "decoder", None)
a logit lens one layer late | in range(len(layers) + 1): → in range(1, len(layers) + 2):
[costs.py: study/test_counting]
keys and values counted for every head of queries
    (attention.num_heads, attention.kv_heads)) → (attention.num_heads,) * 2)
a gated network counted as one of two matrices | 2 * (2 + network.gated) → 2 * 2
[costs.py: test_costs]
a cache that grows with linear attention | if attention.kind == "linear":\n        kept → if False:\n        kept
[check.py: test_check]
a check that accepts whatever it is given | tolerance=TOLERANCE, samples → tolerance=1e9, samples
[models/t5.py: pretrained/test_architectures]
T5's scores divided by √d_k | scale=None if self.scaled_scores else 1.0 → scale=None
[pretrained/files.py: pretrained/test_folders]
a header that describes one tensor twice, of which the last description counts
    if len(values) < len(pairs): → if False:
[models/encoder_decoder.py: pretrained/test_architectures]
a source's mask inferred though targets begin with the padding token
    given is None and self.config.pad_id != self.config.bos_id → given is None
[models/encoder_decoder.py: models/test_family]
a bias of the logits without its gradient
    self.logits_bias.grad += dlogits.reshape(-1, dlogits.shape[-1]).sum(0) → pass
[models/gpt.py: models/test_initial_values]
GPT-2's residual layers that start as large as all others
    residual_gain=(2 * self.num_layers) ** -0.5 → residual_gain=1.0
[models/bert.py: pretrained/test_architectures]
BERT's pooler on the second token | x, pooler_cache = self.pooler.forward(hidden[:, 0]) →
        x, pooler_cache = self.pooler.forward(hidden[:, 1])
[models/vit.py: pretrained/test_architectures]
ViT's classes read from the last patch | self.classes.forward(hidden[:, 0]) → self.classes.forward(hidden[:, -1])
[pretrained/llama.py: pretrained/test_architectures]
Llama's gate and up swapped | for each in ("gate", "up")] → for each in ("up", "gate")]
[pretrained/vocabularies.py: pretrained/test_vocabularies]
T5's gaps numbered upwards | for number in reversed(range(count))] → for number in range(count)]
Llama's newest piece merged first | for piece in ids\n → for piece in reversed(ids)\n
[pretrained/tokenizers.py: pretrained/test_vocabularies]
Marian's code of a language cut into pieces | part[code.end() :] if code else part → part
[decoding/generator.py: models/test_family]
tokens that have no text written all the same
    logits[:, self.forbidden] = -np.inf → pass
[config.py: test_configurations]
a part of a configuration that may be anything
    elif each.name in parts and not isinstance( → elif False and not isinstance(
[pretrained/__init__.py: pretrained/test_folders]
a killed save that leaves an old configuration beside new weights
    for name in (CONFIG, GENERATION, → for name in (GENERATION,
[cli/train.py: cli/test_cli_family]
a text that was deleted made again as pairs
    return TextChoice if reads == "lines" else CorpusChoice, known → return CorpusChoice, known
[decoding/generator.py: pretrained/test_vocabularies]
a stream that does not wait for the end of a run of bytes
    and not BYTE.match("".join(self.tokenizer.tokens(ids[-1:]))) → and True
[ops/layernorm.py: ops/test_op_gradients]
variance with Bessel's correction (ddof=1) | [..., None] / x.shape[-1] → [..., None] / (x.shape[-1] - 1)
a gradient for a beta that is not there | dbeta = None if no_beta else column_sums(dy) → dbeta = column_sums(dy)
layernorm's mean not differentiated | \n    dx -= row_means(dx) →
[layers/embedding.py: layers/test_layer_gradients]
missing √d_model | self.scale = math.sqrt(d_model) → self.scale = 1.0
[layers/positions.py: layers/test_layers]
sine and cosine swapped
    else slice(0, None, 2)] = sines → else slice(0, None, 2)] = cosines
[layers/embedding.py: models/test_decoding_in_steps]
every step of a translation at position 0
    self.positions.forward(x, context.position, context.padding) → self.positions.forward(x)
[ops/embedding.py: ops/test_op_gradients]
repeated ids overwrite each other's gradient
    sums = np.add.reduceat(dy.reshape(ids.size, table.shape[1])[order], starts, axis=0) →
        sums = dy.reshape(ids.size, table.shape[1])[order][starts]
[ops/linear.py: layers/test_layer_gradients]
gradients overwritten instead of added | \n    dweight_sum += dweight → \n    dweight_sum[...] = dweight
[ops/relu.py: ops/test_edges]
rectifier with a gradient at 0 | dy * (y > 0) → dy * (y >= 0)
[ops/dropout.py: ops/test_dropout]
one dropout key for all sites | for number in (seed, step, site): → for number in (seed, step):
a dropout mask that depends on how the batch is split | coordinates = [axes[0] + sentence, → coordinates = [axes[0],
[ops/dropout.py: ops/test_op_gradients]
dropout's gradient without its scale | return dy * kept * scale → return dy * kept
[ops/cross_entropy.py: ops/test_op_gradients]
label smoothing spread over V − 1 tokens
    probabilities -= smoothing / dtype.type(logits.shape[1]) →
        probabilities -= smoothing / dtype.type(logits.shape[1] - 1)
smoothing forgotten in the loss | expected += smoothing * logits.mean(axis=-1) → expected += 0 * logits.mean(axis=-1)
[ops/cross_entropy.py: ops/test_cross_entropy]
loss averaged over padding too | count = x.dtype.type(max(1, len(rows))) → count = x.dtype.type(max(1, len(targets)))
probabilities that do not add up to 1 taken as if they did
    softmax *= (weight / total)[:, None] → softmax /= total[:, None]
small exponentials lost beside a large one
    total = probabilities.sum(axis=-1) → total = probabilities @ np.ones(logits.shape[1], dtype)
[ops/adam.py: ops/test_adam]
Adam without the correction of its first moment | root_correction / (1 - beta1**step) → root_correction
Adam's ε beside √v instead of √v̂ | eps * root_correction → eps
[layers/norm.py: layers/test_layer_gradients]
a residual connection without its own gradient
    return dy, self.ops.dropout.backward(dy, cache) → return 0 * dy, self.ops.dropout.backward(dy, cache)
the gradient of what a pre-norm sub-layer reads past its norm
    return self.backward(dy, cache) if self.pre_norm else dy → return dy
[layers/stack.py: models/test_model_gradients]
the memory's gradient from the first decoder layer only
    dmemory = here if dmemory is None else dmemory + here → dmemory = here
[models/objectives.py: models/test_model_gradients]
tied gradient counted once: the output layer's is lost
    dhidden, _ = tokens.ops.linear_cross_entropy.backward(dloss, loss_cache, out=tokens.table.grad) →
        dhidden, _ = tokens.ops.linear_cross_entropy.backward(dloss, loss_cache)
[layers/cache.py: models/test_decoding_in_steps]
beams that keep another beam's keys and values
    for b, row in enumerate(beams.tolist()) for k in row] → for b in range(self.batch) for k in range(self.num_beams)]
a cache that keeps the newest position alone
    return keys[:, :, seen], values[:, :, seen] → return keys[:, :, start:stop], values[:, :, start:stop]
sentences that leave without their memory
    moved(array, *moves) for array in each → array[: len(kept)] for array in each
rows that overwrite each other as they move
    content[places] = content[rows] → content[places] = content[places]
[decoding/translator.py: test_translator]
a window that is read before the one before it is translated
    if len(window) == size: → if len(window) == 2 * size:
an error of a stream that swallows what came before it
    if window:\n            yield window → if window and not error:\n            yield window
[layers/cache.py: layers/test_cache]
a cache that forgets its past when its room is full
    self._with_room(keys[:, :, old], room), self._with_room(values[:, :, old], room) →
        self._with_room(keys[:, :, :0], room), self._with_room(values[:, :, :0], room)
[layers/attention.py: models/test_decoding_in_steps]
one place in the cache for all layers | past.shared[self.name] = key, value → past.shared["memory"] = key, value
[layers/attention.py: layers/test_attention_layers]
the memory's keys and values computed once more at every position
    \n            if past is None or self.name not in past.shared: →
        \n            if context.memory is not None or self.name not in past.shared:
[layers/attention.py: layers/test_layer_gradients]
an encoder that attends to padding
    context.cache, context.mask, None, None → context.cache, None, None, None
a memory looked at with the mask of the target | mask = context.memory_mask → mask = context.mask
[layers/context.py: layers/test_context]
a context that never drops
    return None if self.dropout is None or rate == 0 else self.dropout.at(site, rate) → return None
[layers/parameter.py: models/test_invariances]
one dropout site for all layers
    layer.name, layer.site = name, site_of(name) → layer.name, layer.site = name, site_of("")
one dropout site for layers of one kind
    layer.name, layer.site = name, site_of(name) → layer.name, layer.site = name, site_of(name.split(".")[-1])
[layers/parameter.py: layers/test_context]
a site that is another one in every process
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) → return hash(name) % 2**64
[models/model.py: models/test_replicas]
a copy of a model whose layers no longer read the flat array | def __deepcopy__( → def _deepcopy(
a replica with weights of its own | self.ops, self.dtype, self.parameters) → self.ops, self.dtype)
[training/step.py: test_training]
shards weighted by their sentences, however many words each has
    weight = part.num_targets / num_targets →
        weight = part.num_sentences / sum(batch.num_sentences for batch in batches)
[training/step.py: test_distributed]
a loss that is of one process's shards | losses = self.processes.sum(losses) → pass
[training/shards.py: test_distributed]
shards added in the order in which they come
    while self._subtrees and self._subtrees[-1][1] == size and first % (2 * size): → while self._subtrees:
slices that leave the last piece to nobody | edges = [*(piece.start for piece in pieces(size)), size] →
        edges = [piece.start for piece in pieces(size)]
[training/sharded_adam.py: test_distributed]
a norm of one slice only | sum(self.processes.sum(squares).tolist()) → sum(squares.tolist())
moments of one slice only in the checkpoint | gather(self.processes, flat)\n        return flat → return flat
16-bit parameters of the others' slices a step behind | self.parameters.refresh() → pass
[training/optimizer.py: test_distributed]
moments of a foreign slice
    self.m[...], self.v[...] = m[self.part], v[self.part] →
        self.m[...], self.v[...] = m[: len(self.m)], v[: len(self.v)]
[training/distributed.py: test_distributed]
what stops one process is told to nobody | if not self.any(error is not None): → if error is None:
orphans on one of several machines that stop all
    return "interrupted" if requests else "its launcher ended" if orphans == self.size else None →
        return "interrupted" if requests else "its launcher ended" if orphans else None
a process that waits is heard in one collective only | f"waits/{self.rank}", "") → f"waits/{self.size - self.rank}", "")
[training/agreement.py: test_launch]
activations that may have another type in each process | on {device}, {activations}" → on {device}"
[training/trainer.py: test_distributed]
a request to stop that the other processes do not hear
    reason = reason or self.processes.reason_to_stop(stop.requested) →
        reason = reason or ("interrupted" if stop.requested else None)
[decoding/search.py: test_decoding]
a sentence that is done stays in the place of one that runs | kept[~running[:count]] = → kept[:0] =
length penalty without the 5 of Wu et al. | return ((5 + length) / 6) ** alpha → return (length / 6) ** alpha
[training/optimizer.py: test_optimizer]
a warm-up that never decays
    min(step / self.warmup_steps, (self.warmup_steps / step) ** 0.5) → min(step / self.warmup_steps, 1.0)
[training/checkpoint.py: test_checkpoint]
a damaged checkpoint accepted | if hasher.hexdigest().encode() != start[_DIGEST_START:]: → if False:
[evaluation.py: cli/test_cli_family]
a text's bits summed from probabilities in float32 | row.astype(np.float64) → row
[data/text.py: data/test_family_data]
a target that is the token itself | ids, targets = stream[places - 1].astype → ids, targets = stream[places].astype
a validation that asks for the first tokens again to fill its last row | targets[beyond] = IGNORED → pass
rows cut at the same places in every epoch | first_cut(seed, epoch, length) → first_cut(seed, 0, length)
[data/masked.py: data/test_family_data]
fewer masks than the paper draws, and more random tokens
    CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1 → CHOSEN, MASKED, RANDOM = 0.15, 0.75, 0.15
<s> and </s> hidden as words are | words = np.arange(FIRST_BYTE, mask_id) → words = np.arange(1, mask_id)
special tokens drawn by chance
    words[rng.integers(len(words), size=by_chance.sum())] → rng.integers(words[-1] + 1, size=by_chance.sum())
the loss of every token, as if all were masked
    return hidden, np.where(chosen, ids, IGNORED) → return hidden, np.where(is_text, ids, IGNORED)
a short text without a target | counts = np.maximum(1, → counts = np.maximum(0,
[data/lines.py: data/test_family_data]
the same masks in every epoch | [self._seed or 0, epoch, index] → [self._seed or 0, index]
padding attended to instead of text | (seen, targets, None, ids != PAD_ID) → (seen, targets, None, ids == PAD_ID)
[data/labelled.py: data/test_family_data]
classes in the order of the batch, not of its lines | self.classes[lines]) → self.classes[: len(lines)])
[data/spans.py: data/test_family_data]
rows longer than the stream, which hold their own answers
    length = min(row_length(min(config.max_length, tokens_per_batch, len(stream))), len(stream)) →
        length = row_length(min(config.max_length, tokens_per_batch, len(stream)))
a gap without its sentinel in the target | target += [sentinel, row → target += [row
sentinels that count up | sentinel = [vocab_size - 1 - number] → sentinel = [vocab_size - SENTINELS + number]
gaps of length 0 | rng.choice(total - 1, count - 1, replace=False)) + 1 → rng.choice(total - 1, count - 1))
[data/rows.py: data/test_family_data]
the parts of a batch whose rows are numbered from 0 each | self.first + start) → self.first)
[data/digits.py: data/test_family_data]
digits trained on that are held out too | for which in (~held_out, held_out)) → for which in (held_out >= 0, held_out))
[models/bert.py: test_family_training]
a fine-tuning that begins from scratch
    name: value if name.startswith("head.") else ours[name] → name: value if name else ours[name]
"""

BASELINES = r"""
[ops/tanh.py: ops/test_op_gradients]
tanh's slope as 1 − y | return dy * (1 - y * y) → return dy * (1 - y)
[ops/sigmoid.py: ops/test_op_gradients]
a sigmoid's slope without its second factor | return dy * y * (1 - y) → return dy * y
[ops/conv1d.py: ops/test_op_gradients]
a causal convolution that sees the future | "causal": (taps - 1, 0) → "causal": (taps // 2, taps - 1 - taps // 2)
a convolution's windows overwrite each other's gradient
    dpadded[:, k : k + length] += dwindows → dpadded[:, k : k + length] = dwindows
[ops/additive_attention.py: ops/test_op_gradients]
additive attention without its mask | scores = np.where(key_mask[:, None], scores, scores.dtype.type(-np.inf)) → pass
additive attention's features not squared in their slope | dsum = 1 - features * features → dsum = 1 - features
[layers/recurrent.py: layers/test_layer_gradients]
the state not carried past padding
    tuple(real * new + padding * old for new, old in zip(after, current, strict=True)) →
        tuple(real * new for new in after)
the gradient not carried past padding | tuple(old + padding * d for old, d in zip(dold, dafter, strict=True)) → dold
back through time: what the later positions send is dropped
    dafter = (dbefore[0] + dhidden[:, t], *dbefore[1:]) → dafter = (dhidden[:, t], *dbefore[1:])
the recurrent map's gradient from the states after, not before
    before, dgates = hidden[:, :-1] → before, dgates = hidden[:, 1:]
dropout on what goes to the next position
    \n            hidden[:, t + 1] = current[0] →
        \n            drop = context.dropout_at(self.site, self.rate)\n            current =
        (self.ops.dropout.forward(current[0], drop)[0], *current[1:])\n            hidden[:, t + 1] = current[0]
[layers/cells.py: layers/test_layer_gradients]
the forget gate's gradient taken for the other gate's | dkeep = dmemory * memory → dkeep = dmemory * candidate
the memory's gradient from its output alone, not from later positions
    dmemory = dmemory + self.ops.tanh.backward(dhidden * read, squashed_cache) →
        dmemory = self.ops.tanh.backward(dhidden * read, squashed_cache)
the memory's gradient passes the forget gate as if it were open | dmemory * keep) → dmemory)
[layers/additive_attention.py: layers/test_layer_gradients]
a memory that is keys and values, its gradient from the keys alone | return dx, dmemory + dvalue → return dx, dmemory
[layers/additive_attention.py: models/test_decoding_in_steps]
a recurrent decoder that attends to padding | key_mask=context.memory_mask → key_mask=None
[layers/convolution.py: layers/test_layer_gradients]
the encoder's convolutions see what stands in padding | \n            x = x * real →
[layers/convolution.py: models/test_decoding_in_steps]
a search that forgets the newest position instead of the oldest
    (x[:, x.shape[1] - past.shape[1] :],) → (x[:, : past.shape[1]],)
[models/baselines/recurrent.py: models/test_model_gradients]
nothing goes back through the single context vector
    return dstates, dfinals → return dstates, [tuple(0 * d for d in final) for final in dfinals]
[models/baselines/convolutional.py: models/test_model_gradients]
the encoder's values without the gradient of its input
    self.embedding.backward(dhidden + dembedded, embedding_cache) → self.embedding.backward(dhidden, embedding_cache)
[layers/cache.py: models/test_decoding_in_steps]
beams that keep another beam's state
    self.rows = {name: tuple(self.ops.take(array, all_rows) for array in kept) for name, kept in self.rows.items()} →
        pass
"""


def breakages(table: str) -> list[Breakage]:
    """The mistakes one by one."""
    found = []
    for heading, rows in sections(table).items():
        file, test = heading.split(": ")
        for name, edit in rows:
            before, after = before_and_after(edit)
            found.append(Breakage(name, file, before, after, f"tests/{test}.py"))
    return found


BREAKAGES, BASELINE_BREAKAGES = breakages(TRANSFORMER), breakages(BASELINES)
