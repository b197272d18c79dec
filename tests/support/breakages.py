"""Mistakes that are easily made, each as a small patch: what the proof must refuse.

A table (see `tables`) under `[file: test]`, of a file under `minitransformer/` and a test under `tests/`: the name of a
mistake, and `function: before → after`, where `before` is code that stands exactly once in the function, however it is
spaced: a few whole words. `Class.method` names a method, `NAME` a variable of the module. The test must then fail:
`tests/house/test_breakages.py` tries them all.
"""

from typing import NamedTuple

from support.tables import before_and_after, sections


class Breakage(NamedTuple):
    """One mistake: `after` takes the place of `before` in a function of `file`, under the package's folder."""

    name: str
    package: str
    file: str
    function: str
    before: str
    after: str
    refused_by: str


TRANSFORMER = r"""
[ops/softmax.py: ops/test_op_gradients]
softmax gradient with the wrong sign | softmax_backward: - np.vecdot → + np.vecdot
[ops/softmax.py: ops/test_edges]
NaN for a row with nothing to attend to | total: np.maximum(np.add.reduce(exponentials, axis=-1, keepdims=True), 1) →
        np.add.reduce(exponentials, axis=-1, keepdims=True)
NaN for one of many rows with nothing to attend to | total: np.maximum(sums, 1) → sums
the maxima of short rows are those of the columns | row_maximum: (num_rows, width).T → (width, num_rows)
[ops/attention.py: ops/test_attention]
causal mask off by one: a query does not see itself
    attention_forward: query.shape[2], dtype → query.shape[2] - 1, dtype
causal mask aligned top-left where Tq and Tk differ | attention_forward: key.shape[2] - query.shape[2] → 0
padding attended to instead of words | attention_forward: else key_mask → else ~key_mask
scores of few queries left in the order of the keys
    scores_forward: np.ascontiguousarray((key @ rows.swapaxes(-1, -2)).swapaxes(-1, -2)) → (key @ rows.swapaxes(-1, -2))
pieces overwrite each other's gradients of shared keys | backward_in_pieces: += dkey_part → = dkey_part
each piece its own softmax
    forward_in_pieces: np.maximum(largest[:, :, queries], row_maximum(scores)) → row_maximum(scores)
dropout of a piece numbered from its own first key | _drop_part: + keys.astype → + (keys - keys[:1]).astype
[ops/attention.py: ops/test_op_gradients]
missing √d_k | attention_forward: 1 / math.sqrt(query.shape[-1]) → 1.0
query's gradient without the scale | scores_backward: \ndquery *= factor →
key/value head h % Hk serves query head h
    fold: batch, kv_heads → batch, heads // kv_heads, kv_heads, time, width).swapaxes(1, 2) .reshape(batch, kv_heads
bias added before the softcap, and bent by it
    scores_forward: scores / float(softcap) → (scores if bias is None else scores + bias) / float(softcap)
a bias's gradient not summed over an axis that was broadcast
    sum_to: .sum(axis=axes) → [tuple(slice(0, 1) if i in axes else slice(None) for i in range(4))]
the softcap's slope forgotten | scores_backward: (1 - capped * capped) → 1
[ops/pattern.py: ops/test_attention]
window off by one | Pattern._near: (back <= left) & (back >= -right) → (back < left) & (back > -right)
a window's left and right swapped | Pattern._near: (back <= left) & (back >= -right) → (back <= right) & (back >= -left)
a window's block does not reach the keys after it | Pattern._near_pieces: right + 1 → 1
a causal pattern in which a query does not see itself
    Pattern.allows: key <= query if mask is None else mask & (key <= query) →
        key < query if mask is None else mask & (key < query)
a global token that is not seen by all | Pattern._seen_by_all: key == token → (key == token) & (query == token)
a global token that does not see all | Pattern._seeing_all: query == token → (query == token) & (query == key)
pairs counted in two pieces | Pattern.pieces: ~earlier(query, key) → True
[ops/linear_attention.py: ops/test_attention]
linear attention's causal state one chunk late: it holds the chunk itself
    _chunks: state if causal → state + added if causal
linear attention in decoding divided by the newest keys alone | linear_attention_step: before[..., -1] = total → pass
linear attention's query does not see itself | _past: dtype=bool → k=-1, dtype=bool
[ops/linear_attention.py: ops/test_op_gradients]
linear attention's denominator not differentiated | linear_attention_backward: -np.vecdot → -0 * np.vecdot
[ops/elementwise.py: ops/test_op_gradients]
gelu's cubic term with a digit missing | CUBIC: 0.044715 → 0.04475
the approximation of gelu in place of erf | gelu_forward: approximate == "tanh" → approximate
silu's slope as if its gate were constant | silu_forward: gate + y * (1 - gate) → gate
the gate's gradient without what it is multiplied with | gated_backward: dy * up → dy
"gelu_tanh" taken for gelu | activations_of: approximate="tanh" → approximate="none"
[ops/normal.py: ops/test_edges]
erf's fraction for small numbers used too far out | NEAR: 0.46875 → 0.75
[ops/rope.py: ops/test_op_gradients]
rotary positions: neighbours paired for halves, and halves for neighbours
    pairs_of: if interleaved → if not interleaved
rotary positions that turn the other way | rope_forward: x, cos, sin → x, cos, -sin
rotary gradients turned once more, not back | rope_backward: cos, -sin → cos, sin
[ops/convolution.py: ops/test_patches]
a patch's rows and columns swapped | patches_forward: 1, 3, 5 → 1, 5, 3
[ops/norms.py: ops/test_op_gradients]
RMS normalisation that subtracts the mean | rmsnorm_forward: x * rstd → (x - x.mean(-1, keepdims=True)) * rstd
RMS normalisation with eps beside the root
    rmsnorm_forward: np.sqrt(mean_square + float(eps)) → (np.sqrt(mean_square) + float(eps))
variance with Bessel's correction (ddof=1) | layernorm_forward: x.shape[-1] → (x.shape[-1] - 1)
a gradient for a beta that is not there | layernorm_backward: None if no_beta else column_sums → column_sums
layernorm's mean not differentiated | layernorm_backward: \ndx -= row_means(dx) →
[ops/rope.py: pretrained/test_relative_buckets]
T5's bucket of the query's own position that of a later key | bucket_of: distance > 0 → distance >= 0
[layers/relative_positions.py: pretrained/test_relative_buckets]
ALiBi's first head without a slope of its own: h from 0 | RelativeBias._lines: 1, self.num_heads + 1 → self.num_heads
[ops/pattern.py: models/test_family]
global tokens and blocks of a prompt counted from its padding | Pattern.bias: before = padding → before = 0 * padding
[inside/recording.py: pretrained/test_inside]
attention maps without the bias of the scores | record: key, bias → key, None
attention maps in the order in which layers are declared, not computed
    record: names, weights → sorted(names), weights
a logit lens that cuts the encoder where there is a decoder
    record: stack: Any = stack_of(seen) → stack: Any = encoder or decoder
a logit lens one layer early
    Recording.lens: self.stream().states[:-1] → [self.stream().states[0], *self.stream().states[:-2]]
[inside/recording.py: models/test_recording]
what one sub-layer adds taken for what another adds | _watched: added[i :: → added[len(names) - 1 - i ::
a sub-layer's output before its norm taken for what is added | adds: "of_output" → "of_nothing"
what a feed-forward network reads taken for its neurons | _watched: network.contract → network.expand
a lens for which the blocks run again | record: \nstack.layers = [] →
a lens for which the encoder runs again | record: _give_output(encoder, memory[0]) → ()
a recording that keeps what a backward needs | _watch: return out, None → return out, _
what heads of one attention give taken for those of another | _watched: split[i :: → split[len(attentions) - 1 - i ::
[inside/attribution.py: models/test_attribution]
a term through a norm whose mean is not subtracted | Way.back_through_norm: not norm.rms → False
a term through a norm with the scale that it would have had without what is added
    logit_attribution: (x + added)[:, rows] → x[:, rows]
a term through a norm without its gain | Way.back_through_norm: gain_of(norm) * →
a norm's beta that is nobody's | Way.back_through_norm: \nself.constant(norm, norm.beta) →
a head's neighbour | _of_heads: btkhd->hbtk", heads → btkhd->hbtk", np.roll(heads, 1, axis=2)
layers in the order of the way back | logit_attribution: each[::-1] → each
logits before their softcap | _before_output: directions * factor[..., None] → directions
heads in a sandwich without the norm behind them | _of_heads: norm, "of_output" → norm, "of_nothing"
[inside/patching.py: models/test_activation_patching]
all places of a shared block patched, or the first | _place: layers[: site.layer].count(layer) → 0
an estimate with the wrong sign
    estimated_effects: _value(site, other) - site.of(own) → site.of(own) - _value(site, other)
an estimate with the gradient of another place of a shared block | estimated_effects: [-1 - turn] → [turn]
an estimate with the gradient of what a head's layer gives | _keep_gradients: gradients if of_input else dout → dout
the head before the one that was asked for | Site.within: places, self.head → places, self.head - 1
[inside/circuits.py: inside/test_circuits]
composition by queries taken for that by keys | composition_scores: way == "key" → way == "query"
induction score off by one: attention to the same token | induction_scores: last + 1 → last
induction score of the first earlier same token | induction_scores: ids.shape[1] - 1 - same[texts, queries, ::-1] →
        same[texts, queries]
a circuit with the keys of head h % Hk
    _maps: head // (attention.num_heads // attention.kv_heads) → head % attention.kv_heads
a circuit without what its norm subtracts | _normed: matrix - matrix.mean(-1, keepdims=True) → matrix
a circuit of a key at no distance | qk_circuit: query.shape[1], distance → query.shape[1], 0
a circuit of another head's part of the output | ov_circuit: head * width : (head + 1) * width → slice(width)
[inside/page.py: inside/test_inside_page]
a page with the maps of other heads | attention_of: weights[0] * 255 → weights[0, ::-1] * 255
a page whose lens is one layer late | lens_of: recording.lens() → [*[*recording.lens()][1:], recording.logits]
a page that leaves out what attention adds | payload: stream.contributions.items() → [*stream.contributions.items()][1:]
a page with the neurons that fire least | neurons_of: np.abs(neurons) → -np.abs(neurons)
a page with the tokens that a neuron lowers | raised_by: row[index] = sign → row[index] = -sign
a page with what neurons raise without the norm's gain | raised_by: * model.ops.to_numpy(norm.gain) →
a page whose texts can end the element that holds them | in_page: "\\u003c" → "<"
a page on which controls act | names_of: printed(tokenizer.tokens([id])[0]) → tokenizer.decode([id])
[costs.py: study/test_counting]
words that attend to as many patches as there are words
    flops_per_token: _stack(config.decoder, length, memory) → _stack(config.decoder, length, length)
keys and values counted for every head of queries
    _stack: (attention.num_heads, attention.kv_heads) → (attention.num_heads,) * 2
a gated network counted as one of two matrices | _stack: (2 + network.gated) → 2
[models/config.py: models/test_tree]
a parameter that all layers share counted in each of them
    ModelConfig._of_parameters: ".layers.1." → ".layers.0."
[costs.py: models/test_costs]
a window's scores without those of a softcap | reading_bytes: attention.softcap is None → True
keys that are counted and values that are not | cache_bytes: (attention.d_k + attention.d_v) * length →
        attention.d_k * length
a cache that grows with linear attention | cache_bytes: attention.kind == "linear" → False
[check.py: check/test_check]
a check that accepts whatever it is given | check: TOLERANCE → 1e9
[models/t5.py: pretrained/test_architectures]
T5's scores divided by √d_k | T5Config._stack: None if self.scaled_scores else 1.0 → None
[system/tensor_file.py: pretrained/test_folders]
a header that describes one tensor twice, of which the last description counts
    parse_json: len(values) < len(pairs) → False
[system/tensor_file.py: system/test_tensor_file]
tensors written in the order of their names | file_parts: [*kinds].index(item[1].dtype), item[0] → item[0]
[models/encoder_decoder.py: pretrained/test_architectures]
a source's mask inferred though targets begin with the padding token
    EncoderDecoder._source: self.config.pad_id != self.config.bos_id → True
[layers/embedding.py: models/test_tree]
a softcap of the logits without its slope
    OutputLayer.logits_backward: self.ops.tanh.backward(dlogits, tanh_cache) → dlogits
a bias of the logits without its gradient
    OutputLayer.logits_backward: self.bias.grad → self.bias.grad.copy()
[models/gpt.py: models/test_initial_values]
GPT-2's residual layers that start as large as all others
    GPTConfig.decoder: ((1 + (self.d_ff > 0)) * self.num_layers) ** -0.5 → 1.0
blocks of attention alone counted as two sub-layers | GPTConfig.decoder: 1 + (self.d_ff > 0) → 2
[models/bert.py: pretrained/test_architectures]
BERT's pooler on the second token | Pooler.pool: hidden[:, 0] → hidden[:, 1]
RoBERTa's positions from row 0 | BERT._encode: start=self.config.first_position → start=0
DistilBERT's pooler with BERT's tanh | Pooler.__init__: else ops.relu → else ops.tanh
[grammar/scenes.py: grammar/test_scenes]
left and right swapped in a scene | side_of: across < 0 → across > 0
a side that nobody could tell | side_of: < MARGIN → < 0
things that touch | is_clear: + GAP →
a pair that is held out shown in training | draw_scene: else "new pairs" → else split
the same scenes for every seed | _drawn: {seed} {number} → {number}
a thing in the row of its column
    draw: thing.y - radius : thing.y + radius + 1, thing.x - radius : thing.x + radius + 1 →
        thing.x - radius : thing.x + radius + 1, thing.y - radius : thing.y + radius + 1
[grammar/captions.py: grammar/test_scenes]
German's nominative after a preposition | _german: DATIVE if place else NOMINATIVE → NOMINATIVE
a relative pronoun of the noun before the last | _german: zip(shapes[1:] → zip(shapes
a judge that takes one order of the things alone
    judge: max(right, key=lambda parts: sum(map(sum, parts))) → right[0]
a judge that forgets where the things lie | judge: Verdict(all(parts), → Verdict(all(parts[:3]),
any spelling of a caption taken for it | parse: and spell(said, language) == text →
[data/scenes.py: data/test_scene_data]
the same pictures in every epoch | SceneDataset.batches: epoch * self.count + row → row
padding after a caption that counts | SceneDataset.batches: IGNORED → PAD_ID
[models/captioner.py: models/test_captioner]
words of a caption that see those after them | CaptionerConfig._stack: causal=decodes → causal=False
[models/clip.py: models/test_clip]
a text's vector taken at its first place, which has seen no word | CLIP._texts: ends.argmax(1) → 0 * ends.argmax(1)
pictures mapped by the projection of texts
    CLIP._pictures: self.picture_projection.forward → self.text_projection.forward
a scale that is never learned | CLIP.loss_backward: self.log_scale.add_grad(dlog_scale * → (dlog_scale *
a scale that never falls again once it is above 100 | CLIP.loss_backward: (dlog_scale > 0) → False
[models/contrastive.py: models/test_contrastive]
the second direction's gradient not turned back | contrastive_loss_backward: dcolumns.T → dcolumns
a gradient that would change a vector's length | _unit_backward: - (du * u).sum(-1, keepdims=True) * u →
the logarithm of the scale taken for the scale | contrastive_loss_backward: (dlogits * logits).sum() →
        (dlogits * logits).sum() / scale
[models/vit.py: pretrained/test_architectures]
ViT's classes read from the last patch | ViT.forward: hidden[:, 0] → hidden[:, -1]
DeiT's second classifier alone | ViT.forward: (logits + distilled) / 2 → distilled
[layers/patches.py: pretrained/test_architectures]
the distillation token's position forgotten: it stands behind the patches
    PatchEmbedding.forward: [*first, x] → [first[0], x, *first[1:]]
[decoding/embedder.py: pretrained/test_embedder]
padding in a text's mean | Embedder._pooled: (hidden * mask).sum(1) / mask.sum(1) → hidden.mean(1)
the first token's vector in place of the mean
    Embedder._pooled: (hidden * mask).sum(1) / mask.sum(1) → hidden[:, 0]
vectors that keep their lengths | Embedder._pooled: unit(vectors) if self.pooling.normalized else vectors → vectors
[decoding/images.py: pretrained/test_classifier]
each channel with the mean and the deviation of another
    ImageProcessor.__call__: np.array(self.mean, np.float32), np.array(self.std, np.float32) →
        np.array(self.mean[::-1], np.float32), np.array(self.std[::-1], np.float32)
[pretrained/llama.py: pretrained/test_architectures]
Llama's gate and up swapped | table: "gate", "up" → "up", "gate"
a window one too wide: theirs counts the token itself | read_window: window - 1 → window
[pretrained/gemma.py: pretrained/test_architectures]
Gemma 3's two rotations swapped
    _rotary: theta=thetas[1], full_theta=thetas[0] → theta=thetas[0], full_theta=thetas[1]
[pretrained/t5.py: pretrained/test_architectures]
mT5's output multiplied as T5's is | mt5_from_config: "scale_decoder_outputs": False → "scale_decoder_outputs": True
[layers/attention.py: pretrained/test_architectures]
queries turned before they are normalised
    SelfAttention.forward: self._normed(query_key) →
        self._normed(self.rotary.forward(query_key, context.position)[0])
Qwen 2's output with a bias | SelfAttention.__init__: config.bias is True → config.bias is not False
the first layer the full one, not the last of each turn
    AttentionConfig.of_layer: (number + 1) % self → number % self
[layers/norm.py: pretrained/test_architectures]
Gemma's gain without the one that is added to it | Norm.gain: self.gamma.value + 1 → self.gamma.value
[pretrained/vocabularies.py: pretrained/test_vocabularies]
T5's gaps numbered upwards | t5: reversed(range(count)) → range(count)
Llama's newest piece merged first | by_scores: -scores[piece] → scores[piece]
sentencepiece's own word on the space before a text ignored | llama: proto.normalizer_spec.add_dummy_prefix → True
[pretrained/pipeline.py: pretrained/test_pipeline]
a step that takes off all of a text, taken for the end of its growth
    check_pipeline: math.prod(max(1, _growth(step)) for step in steps) → math.prod(map(_growth, steps))
[pretrained/tokenizers.py: pretrained/test_vocabularies]
Marian's code of a language cut into pieces | MarianTokenizer.encode: part[code.end() :] if code else part → part
[decoding/generator.py: models/test_family]
tokens that have no text written all the same | Generator._tokens: logits[:, self.forbidden] = -np.inf → pass
[config.py: models/test_configurations]
a part of a configuration that may be anything | Config.__post_init__: each.name in parts → False
[pretrained/__init__.py: pretrained/test_folders]
a killed save that leaves an old configuration beside new weights | _save_folder: CONFIG, GENERATION → GENERATION
[system/tensor_file.py: pretrained/test_memory]
bfloat16 numbers in memory twice while they are widened
    widened: np.left_shift(array, 16, dtype=np.uint32) → (array.astype(np.uint32) << 16)
[pretrained/__init__.py: pretrained/test_memory]
a tensor in memory twice while it is turned
    _fill: row.to_ours(tensors[name].read(), place.shape) → row.to_ours(tensors[name].read(), place.shape).copy()
[pretrained/__init__.py: pretrained/test_keys]
another output layer taken for a copy of the tokens' table
    _without_copies: kept[original].equals(kept[name]) → True
[pretrained/pickles.py: pretrained/test_pickles]
an offset in bytes where entries are meant | _tensor: offset * storage.size → offset
a transposed tensor read as if it lay in order | _tensor: if plain or count == 0 else → if True else
a function of a stranger's choice taken for a known one | _run: argument not in → not argument and argument not in
[ops/quantized.py: pretrained/test_gguf]
the highest bits of a byte first
    fields: np.arange(0, 8, bits, dtype=np.uint8) → np.arange(8 - bits, -1, -bits).astype(np.uint8)
[ops/quantized.py: ops/test_quantized]
the two numbers of a byte in each other's half
    _packed: half = levels.shape[-1] // 2 → half = levels.shape[-1] // 2; levels = np.roll(levels, half, axis=-1)
the minimum of the group beside it | unpacked: zeros.astype(np.float32) → np.roll(zeros.astype(np.float32), 1, axis=-2)
a scale for all weights of an output | _rounded: 1 / steps → 1 / steps[:, :1]
four bits that are cut off, not rounded | _rounded: 8.5 if symmetric else 0.5 → 8.0 if symmetric else 0.0
eight bits that are cut off, not rounded | _rounded: np.float32(0.5), numbers → np.float32(0.0), numbers
a minimum beyond float16 taken as it is
    _rounded: scales if zeros is None else (scales, zeros) → scales
the whole matrix at once | columns: max(1, AT_ONCE // max(1, width_in)) → width_out
a gradient through the columns beside them | quantized_linear_backward: dy[:, part] → np.roll(dy, 1, axis=1)[:, part]
a gradient of the last columns alone | quantized_linear_backward: dx += → dx[:] =
the columns of a block multiplied as they lie, in the input's order
    quantized_linear_forward: y[:, part] = → y[:, part][:, ::-1] =
[pretrained/gguf.py: pretrained/test_gguf]
a file's minima before its scales | as_blocks: (weight.scales, weight.zeros) → (weight.zeros, weight.scales)
a scale from the end of the block before it | from_blocks: np.split(split → np.split(np.roll(split, 2, axis=-1)
the lowest level of a group of Q4_K taken for its step | _in_groups: s, t = parts → t, s = parts
the upper bits of a group's scale from the group before it
    _in_groups: low >> 6 << 4 → np.roll(low, 1, 1) >> 6 << 4
the fifth bits of Q5_K from the group beside it
    q5_k: fifth.reshape(-1, 4, 64) → np.roll(fifth, 32, 1).reshape(-1, 4, 64)
the upper bits of Q6_K from the half beside it
    q6_k: blocks[:, 128:192].reshape(-1, 2, 32) → blocks[:, 128:192].reshape(-1, 2, 32)[:, ::-1]
[pretrained/gguf_file.py: pretrained/test_gguf]
rows of queries and keys left as llama.cpp turns them | Packed._in_order: rows.swapaxes(1, 2) → rows
an offset in weights where bytes are meant | Packed._blocks: start // weights * size → start
a tensor that lies above another | opened: first + tensor.start != stop → first + tensor.start > stop
[pretrained/gguf_model.py: pretrained/test_gguf]
norms of Gemma as the file has them | folder_like: added=family.added → added=0.0
keys put in order as if they had as many heads as queries
    folder_like: "attn_k": "num_key_value_heads" → "attn_k": "num_attention_heads"
stretched rotations read as if they were plain | _rope: if tensor is None → if True
a Qwen whose biases are not loaded | _renamed: (weight|bias)" → (weight)"
a Qwen's queries shuffled as Llama's | folder_like: if family.turned and → if True and
[pretrained/gguf_tokenizer.py: pretrained/test_gguf]
digits that stay together | _bytes: individual_digits=True → individual_digits=False
[layers/cache.py: pretrained/test_chat]
a state that goes back over what a window let go | Cache.go_back: position < self.position and → position < 0 and
[decoding/generator.py: pretrained/test_chat]
the first token that differs taken for one in common | Generator._read: ids[common:-1] → ids[common + 1 : -1]
an answer that goes on behind the turn's mark | Generator._tokens: and token not in ends → and True
[decoding/tokenizer.py: pretrained/test_chat]
a chat without the line that asks for an answer
    encode_chat: apply_chat_template(messages) → apply_chat_template(messages, False)
[pretrained/tokenizers.py: pretrained/test_chat]
the mark of the user's turn taken for the answer's | PretrainedTokenizer.turn_ends: rpartition(said["assistant"]) →
        rpartition(said["user"])
[pretrained/chat.py: pretrained/test_chat]
lines of a template that end with a tag kept as lines | _compiled: trim_blocks=True → trim_blocks=False
JSON escaped as in HTML | _compiled: environment.filters["tojson"] = _as_json → pass
[cli/generate.py: pretrained/test_chat]
a system's message that is dropped in the second turn | converse: messages += [question → messages[:] = [question
[outline.py: pretrained/test_info]
a line for the first block's attention in place of each block's own | _blocks: of_layer(i) → of_layer(0)
[pretrained/unused.py: pretrained/test_info]
a key that is obeyed called unused | in_folder: {*keys.obeyed, *keys.aliases → {*keys.aliases
[pretrained/keys.py: pretrained/test_keys]
a key that nobody knows passed over | Keys.checked: values.keys() - self.known → ()
[pretrained/files.py: pretrained/test_marks]
a tensor taken from a shard where the index does not see it | _sharded: held.keys() - promised → set()
[decoding/search.py: pretrained/test_marks]
one of several end marks ends a text, the others don't | is_end: getattr(config, "other_eos_ids", ()) → ()
[decoding/tokenizer.py: pretrained/test_marks]
a mark put before a text that begins with it | encode_prompt: ids[: len(first)] == first → False
[inside/recording.py: models/test_tree]
a layer that stands in several places seen once for each of them | _watch: dict.fromkeys(layers) → list(layers)
[cli/recipes.py: cli/test_cli_family]
a mask for BERT alone and not for all that learn masked tokens
    sized: learned(name, reads) == "masked" → name == "bert"
[cli/recipes.py: cli/test_cli_captions]
captions of a validation judged in English | _true_captions: judge(text, scene, valid.language) → judge(text, scene)
[cli/caption.py: cli/test_cli_captions]
a German captioner judged in English | verdict: judge(text, scene, language) → judge(text, scene)
[cli/fine_tuning.py: cli/test_cli_fine_tuning]
adapters of an earlier step beside a merged model | write_folders: not merge or adapter.exists() → not merge
[data/preparation.py: cli/test_cli_fine_tuning]
a label that no line teaches | TableChoice.labels: number % HELD_OUT == 0 → False
[cli/similar.py: pretrained/test_embedder]
a blank line offered as the nearest | run: if each[2].strip() → if each[2] is not None
[cli/training_text.py: cli/test_cli_family]
a text that was deleted made again as pairs
    _lost_choice: TextChoice if reads == "lines" else CorpusChoice → CorpusChoice
[layers/lora.py: layers/test_layer_gradients]
an adapter without α/r | LoRA.forward: low * self.scale → low
an adapter's gradient without α/r | LoRA.backward: dlow * self.scale → dlow
A and B exchanged in an adapter's backward
    LoRA.backward: a_cache, b_cache = cache → b_cache, a_cache = cache
[layers/quantized.py: layers/test_quantized_layers]
tokens in few bits without their scale | QuantizedEmbedding.forward: self.scale * rows → rows
a table in as few bits as the maps | quantized_layers: table.shape, TABLE_BITS → table.shape, bits
the bias of logits in few bits without a gradient
    QuantizedOutput.logits_backward: self.bias.add_grad(dbias) → self.bias.add_grad(0 * dbias)
[layers/quantized.py: models/test_qlora]
the bias of a map in few bits without a gradient
    QuantizedLinear.backward: self.bias.add_grad(dbias) → self.bias.add_grad(0 * dbias)
what stays in float beside few bits trained, too | quantized_layers: trained = False → trained = True
[layers/lora.py: models/test_qlora]
an adapter beside few bits that takes them for floats | AdaptedLinear.forward: self.kind.forward → Linear.forward
[training/checkpoint.py: models/test_qlora]
the scales of the output before | _in_few_bits: scales.astype(np.float16) → np.roll(scales, 1, 0).astype(np.float16)
[pretrained/__init__.py: pretrained/test_few_bits]
a file's weights in few bits rounded again | _in_few_bits: len(kinds) == 1 → len(kinds) == 0
weights of two types side by side | _in_few_bits: len(kinds) == 1 → True
[pretrained/gguf_file.py: pretrained/test_few_bits]
bytes of rows left as llama.cpp turns them
    Packed.rows: self._in_order(np.fromfile → (lambda each: each.reshape(self.shape[0], -1))(np.fromfile
[pretrained/gguf_writing.py: pretrained/test_gguf_writing]
rows of queries and keys written as Llama has them | _turned: swapaxes(1, 2) → reshape(rows.shape)
a file's tokenizer that is not compared | _reads_alike: all(ours == theirs for ours, theirs in pairs) → True
tensors that follow each other without a gap | _write: file.write(bytes(-content.nbytes % ALIGN)) → pass
[layers/lora.py: models/test_tuning]
a merged adapter without α/r | LoRA.product: self.scale * (self.a.data @ self.b.data) → self.a.data @ self.b.data
[layers/linear.py: models/test_tuning]
a frozen weight's gradient that does not pass on
    frozen_backward: weight.value if transposed else weight.value.swapaxes(0, 1) → 0 * weight.value.swapaxes(0, 1)
[models/model.py: models/test_tuning]
adapters merged twice | Model._copied: += adapter.product() → += 2 * adapter.product()
[layers/parameter.py: models/test_tuning]
frozen parameters among those that Adam moves
    FlatParameters.__init__: key=lambda item: not item[1].trained → key=lambda item: False
[pretrained/adapters.py: pretrained/test_adapters]
an adapter saved transposed | write_adapter: lora_A.weight": a.T → lora_A.weight": a.reshape(a.T.shape)
GPT-2's adapters of queries and values in each other's columns | _of: wide[:, columns] → wide[:, ::-1][:, columns]
[training/checkpoint.py: cli/test_cli_fine_tuning]
a checkpoint whose adapters are not merged when it opens | Checkpoint.model: if self.has_adapters → if False
a checkpoint of adapters of any rank | Checkpoint.tuned_model: if held != → if not held and held !=
[training/objectives.py: training/test_objectives]
a text compared with a mean that holds its own reward | group_advantages: centred * (size / (size - 1)) → centred
the divergence from the reference with the wrong sign | reward_loss_backward: -= kl → += kl
a ratio clipped on the wrong side | reward_loss_forward: np.minimum(gain, clamped) → np.maximum(gain, clamped)
a clipped ratio that still has a slope | reward_loss_backward: np.where(gain <= clamped, gain, 0) → gain
the slope of a clipped ratio in the place of the others'
    reward_loss_backward: gain <= clamped → gain > clamped
preferences without their reference
    implicit_rewards: _differences(log_probs, reference, counted) → _differences(log_probs, 0 * reference, counted)
preferences pushed hardest where they are learned already
    preference_loss_backward: np.logaddexp(0, margin) → np.logaddexp(0, -margin)
padding that counts as drawn | _differences: where=counted → where=True
weights of targets without the number of targets
    target_weights: -max(1, np.count_nonzero(counted)) * dlog_probs → -dlog_probs
[training/rewards.py: training/test_rewards]
texts compared with those of other prompts | RolloutBatches.draw: else (-1, self.settings.group) → else (1, -1)
the tokens of a prompt rewarded | rows_of: targets[row, len(prompt) - 1 : len(both) - 1] = text →
        targets[row, : len(both) - 1] = both[1:]
each rollout draws the same texts | RolloutBatches.draw: default_rng([self.seed, number]) → default_rng(self.seed)
a second update on texts drawn anew | RolloutBatches.batch: // self.settings.updates → // 1
a second update with the ratio of the first
    RolloutBatches._batch_of: if settings.updates > 1 → if settings.updates > 2
[training/settings.py: training/test_rewards]
a rollout that is parted by the end of a training | TrainingSettings.check_weighted: value % together → value % 1
[training/preferences.py: training/test_rewards]
the worse texts preferred | Preferences.batch: *(pair[1] for pair in chosen), *(pair[2] for pair in chosen) →
        *(pair[2] for pair in chosen), *(pair[1] for pair in chosen)
[data/lines.py: cli/test_cli_fine_tuning]
RoBERTa's padding taken for a token | LineBatches.batch: pad(rows, self._pad_id) → pad(rows)
[data/text.py: cli/test_cli_fine_tuning]
a Llama's lines without the mark that begins a text | Marked.encode: *self.before, *self.tokenizer → *self.tokenizer
[decoding/generator.py: pretrained/test_vocabularies]
a stream that does not wait for the end of a run of bytes
    Generator.stream: not BYTE.match("".join(self.pieces(ids[-1:]))) → True
[layers/embedding.py: layers/test_layer_gradients]
missing √d_model | TokenEmbedding.__init__: math.sqrt(d_model) if → 1.0 if
[layers/positions.py: layers/test_layers]
sine and cosine swapped | SinusoidalPositions._encodings: ] = sines → ] = cosines
[layers/embedding.py: models/test_decoding_in_steps]
every step of a translation at position 0 | InputEmbedding.forward: x, context.position, context.padding → x
[ops/embedding.py: ops/test_op_gradients]
repeated ids overwrite each other's gradient
    embedding_backward: np.add.reduceat(dy.reshape(ids.size, table.shape[1])[order], starts, axis=0) →
        dy.reshape(ids.size, table.shape[1])[order][starts]
[ops/linear.py: layers/test_layer_gradients]
gradients overwritten instead of added | linear_backward: dweight_sum += → dweight_sum[...] =
[ops/elementwise.py: ops/test_edges]
rectifier with a gradient at 0 | relu_backward: y > 0 → y >= 0
[ops/dropout.py: ops/test_dropout]
one dropout key for all sites | dropout_key: step, site → step
a dropout mask that depends on how the batch is split | row_hashes: axes[0] + sentence → axes[0]
[ops/dropout.py: ops/test_op_gradients]
dropout's gradient without its scale | dropout_backward: kept * scale → kept
[ops/cross_entropy.py: ops/test_op_gradients]
label smoothing spread over V − 1 tokens | _loss_in_place: type(logits.shape[1]) → type(logits.shape[1] - 1)
smoothing forgotten in the loss | _loss_in_place: smoothing * logits.mean → 0 * logits.mean
a weight missing in the backward | _loss_in_place: probabilities *= weights[:, None] → pass
smoothing's part of a gradient unweighted | _loss_in_place: probabilities *= weights[:, None] →
        probabilities[:] = (probabilities + smoothing / len(logits.T)) * weights[:, None] - smoothing / len(logits.T)
a weighted loss towards probabilities whose gradient has no weight
    _towards_probabilities: softmax *= weights.reshape(-1, 1) → pass
[ops/cross_entropy.py: ops/test_cross_entropy]
loss averaged over padding too | linear_cross_entropy_forward: 1, len(rows) → 1, len(targets)
weighted losses divided by the sum of their weights | cross_entropy_forward: max(1, len(rows)) →
        max(1, len(rows)) if chosen is None else chosen.sum()
the weight of the neighbouring target | cross_entropy_forward: weights.reshape(-1)[counted] →
        np.roll(weights, 1).reshape(-1)[counted]
weights counted from the first target, ignored or not | linear_cross_entropy_forward: weights[counted] →
        weights[: len(targets[counted])]
probabilities that do not add up to 1 taken as if they did | _towards_probabilities: *= (mass / total) → /= total
small exponentials lost beside a large one
    _loss_in_place: probabilities.sum(axis=-1) → np.cumsum(probabilities, axis=-1)[:, -1]
[ops/log_probs.py: ops/test_op_gradients]
an entropy below 0 | entropy_forward: entropy = -np.vecdot → entropy = np.vecdot
an entropy whose gradient makes a model surer | entropy_backward: -dentropy → dentropy
log-probabilities without the chosen token's own part | log_probs_backward: += dlog_probs → += 0
[ops/log_probs.py: ops/test_log_probs]
the entropy of a token that is ruled out is NaN
    entropy_forward: np.where(p == 0, 0, below - log_sum) → below - log_sum
[models/gpt.py: models/test_weighted_losses]
a language model's loss without its weights | GPT.loss: IGNORED, with_grad, weights → IGNORED, with_grad
[models/model.py: models/test_weighted_losses]
weights rounded to the type of activations
    Model._weights: self.dtype) → self.dtype if self.ops.has_threads is False else "bfloat16")
[ops/adam.py: ops/test_adam]
Adam without the correction of its first moment | adam_step: root_correction / (1 - beta1**step) → root_correction
Adam's ε beside √v instead of √v̂ | adam_step: eps * root_correction → eps
[layers/norm.py: layers/test_layer_gradients]
a residual connection without its own gradient | ResidualNorm.leave_backward: return dy → return 0 * dy
the gradient of what a pre-norm sub-layer reads past its norm
    ResidualNorm.enter_backward: self.backward(dy, cache) if self.pre_norm else dy → dy
[layers/stack.py: models/test_model_gradients]
the memory's gradient from the first decoder layer only
    Stack.backward: here if dmemory is None else dmemory + here → here
[layers/embedding.py: models/test_model_gradients]
tied gradient counted once: the output layer's is lost
    OutputLayer.loss_backward: loss_cache, out=self.table.grad → loss_cache
[layers/cache.py: models/test_decoding_in_steps]
beams that keep another beam's keys and values | Cache.reorder: b, row in enumerate(beams.tolist()) for k in row →
        b in range(self.batch) for k in range(self.num_beams)
a cache that keeps the newest position alone
    Cache.extended: keys[:, :, seen], values[:, :, seen] → keys[:, :, start:stop], values[:, :, start:stop]
sentences that leave without their memory | Cache.select: moved(array, *moves) → array[: len(kept)]
rows that overwrite each other as they move | moved: content[rows] → content[places]
[decoding/translator.py: decoding/test_translator]
a window that is read before the one before it is translated
    Translator._windows: len(window) == size → len(window) == 2 * size
an error of a stream that swallows what came before it
    Translator._windows: if window: yield → if window and not error:\n            yield
[layers/cache.py: layers/test_cache]
keys in bytes cut off, not rounded | ByteCache._in_bytes: 127.5 → 127
keys in bytes with one scale for all heads
    ByteCache._in_bytes: self.ops.topk(abs(x), 1)[0] → (0 * self.ops.topk(abs(x), 1)[0] + abs(x).max())
keys in bytes divided by a scale that was rounded
    ByteCache._in_bytes: parts * 127 + 127.5 → x / (most * (1 / 127) + (most == 0)) + 127.5
a cache that forgets its past when its room is full
    Cache.extended: keys[:, :, old], room), self._with_room(values[:, :, old] →
        keys[:, :, :0], room), self._with_room(values[:, :, :0]
[layers/attention.py: models/test_decoding_in_steps]
one place in the cache for all layers | CrossAttention.forward: [self.name] = kept → ["memory"] = kept
[layers/attention.py: layers/test_attention_layers]
the memory's keys and values computed once more at every position
    CrossAttention.forward: if kept is None → if context.memory is not None
[layers/attention.py: layers/test_layer_gradients]
an encoder that attends to padding | SelfAttention.mix: context.mask → None
a memory looked at with the mask of the target | CrossAttention.forward: context.memory_mask → context.mask
[layers/context.py: layers/test_context]
a context that never drops
    Context.dropout_at: None if self.dropout is None or rate == 0 else self.dropout.at(site, rate) → None
[layers/parameter.py: models/test_invariances]
one dropout site for all layers | Layer.name_layers: site_of(name) → site_of("")
one dropout site for layers of one kind | Layer.name_layers: site_of(name) → site_of(name.split(".")[-1])
[layers/parameter.py: layers/test_context]
a site that is another one in every process
    site_of: int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) → hash(name) % 2**64
[models/model.py: models/test_replicas]
a copy of a model without its weights | Model._with_weights: model.parameters.data[...] = data → pass
a copy of a model without its gradients
    Model.__deepcopy__: twin.parameters.grad[...] = self.parameters.grad → pass
a replica with weights of its own | Model.replica: _place(self.parameters) → _place()
[training/step.py: training/test_training]
parts weighted by their sentences, 40 in all, however many words each has
    Worker.add_part: part.num_targets / num_targets → part.num_sentences / 40
[training/parallel/data_parallel.py: training/test_distributed]
a loss that is of one process's shards | DataParallel.gradients: losses = self.processes.sum(losses) → pass
[training/parallel/shards.py: training/test_distributed]
shards added in the order in which they come
    TreeSum.push: self._subtrees and self._subtrees[-1][1] == size and first % (2 * size) → self._subtrees
slices that leave the last piece to nobody
    slices: [*(piece.start for piece in pieces(size)), size] → [piece.start for piece in pieces(size)]
a norm of one slice only | ShardedAdam.grad_norm: self.processes.sum(squares) → squares
moments of one slice only in the checkpoint | ShardedAdam._whole: gather(self.processes, flat) return flat → return flat
16-bit parameters of the others' slices a step behind | ShardedAdam.step: self.parameters.refresh() → pass
[training/optimizer.py: training/test_distributed]
moments of a foreign slice | Adam.load_state_dict: m[self.part], v[self.part] → m[: len(self.m)], v[: len(self.v)]
[training/parallel/processes.py: training/test_distributed]
what stops one process is told to nobody | Processes.together: not self.any(error is not None) → error is None
orphans on one of several machines that stop all | Processes.reason_to_stop: orphans == self.size → orphans
a process that waits is heard in one collective only
    Processes._who_is_missing: waits/{self.rank} → waits/{self.size - self.rank}
[training/parallel/launch.py: training/test_launch]
activations that may have another type in each process | facts_of: {device}, {activations} → {device}
[training/trainer.py: training/test_distributed]
a request to stop that the other processes do not hear
    Trainer._train: self.processes.reason_to_stop(stop.requested and self._may_stop) →
        ("interrupted" if stop.requested else None)
[decoding/search.py: decoding/test_decoding]
a sentence that is done stays in the place of one that runs | _close_up: kept[~running[:count]] → kept[:0]
length penalty without the 5 of Wu et al. | penalty: return ((5 + length) / 6) → return (length / 6)
[training/optimizer.py: training/test_optimizer]
a cooldown that begins a step early, and rests at its end | Schedule.__call__: self.steps + 1 → self.steps
a warm-up that never decays | Schedule.__call__: (self.warmup_steps / step) ** 0.5 → 1.0
[training/checkpoint.py: training/test_checkpoint]
a damaged checkpoint accepted | _verify: hasher.hexdigest().encode() != start[_DIGEST_START:] → False
[evaluation.py: cli/test_cli_family]
a text's bits summed from probabilities in float32 | text_nats: row.astype(np.float64) → row
[data/text.py: data/test_family_data]
a target that is the token itself | TextDataset.batches: places - 1 → places
a validation that asks for the first tokens again to fill its last row
    TextDataset.batches: targets[beyond] = IGNORED → pass
rows cut at the same places in every epoch | TextDataset.batches: seed, epoch → seed, 0
[data/masked.py: data/test_family_data]
fewer masks than the paper draws, and more random tokens | CHOSEN: 0.8, 0.1 → 0.75, 0.15
<s> and </s> hidden as words are | hide: FIRST_BYTE, mask_id → 1, mask_id
special tokens drawn by chance
    hide: words[rng.integers(len(words), size=by_chance.sum())] → rng.integers(words[-1] + 1, size=by_chance.sum())
the loss of every token, as if all were masked | hide: chosen, ids → is_text, ids
a short text without a target | hide: np.maximum(1, → np.maximum(0,
[data/lines.py: data/test_family_data]
the same masks in every epoch | LineBatches.batch: 0, epoch, index → 0, index
padding attended to instead of text | LineBatches.batch: < lengths[:, None] → >= lengths[:, None]
[data/labelled.py: data/test_family_data]
classes in the order of the batch, not of its lines
    LabelledText.batches: self.classes[lines] → self.classes[: len(lines)]
[data/spans.py: data/test_family_data]
rows longer than the stream, which hold their own answers
    SpanText.batches: min(row_length(min(config.max_length, tokens_per_batch, len(stream))), len(stream)) →
        row_length(min(config.max_length, tokens_per_batch, len(stream)))
a gap without its sentinel in the target | corrupt: sentinel, row → row
sentinels that count up | corrupt: vocab_size - 1 - number → vocab_size - SENTINELS + number
gaps of length 0 | _pieces: count - 1, replace=False)) + 1 → count - 1))
[data/rows.py: data/test_family_data]
the parts of a batch whose rows are numbered from 0 each | Rows.split: first + start → first
[data/digits.py: data/test_family_data]
digits trained on that are held out too | digits: ~held_out → held_out >= 0
[models/bert.py: training/test_family_training]
a fine-tuning that begins from scratch | BERT.with_head: name.startswith("head.") → name
[data/batching.py: data/test_batching]
a T5 that learns from the padding of a source | collate: masks={"source_mask": source != marks.pad} → masks={}
[layers/attention.py: models/test_long_texts]
a block of queries that sees the keys after it
    SelfAttention._in_blocks: num_keys - num_queries + stop if self.causal else num_keys → num_keys
a block's window that begins one key too late
    SelfAttention._in_blocks: (stop - start) - self.window → (stop - start) - self.window + 1
an encoder's window that moves with the block
    SelfAttention.__init__: (causal or self.window is None) and → True and
every block with the mask of the first keys | SelfAttention._in_blocks: mask[:, seen] → mask[:, : last - seen.start]
[layers/stack.py: models/test_long_texts]
a loss without a gradient that keeps every block's cache | Stack.forward: cache if context.keep else None → cache
[layers/stack.py: models/test_costs]
what a block has computed kept while the next one computes | Stack.forward: del cache → pass
[decoding/sampling.py: decoding/test_decoding]
a nucleus with the token after the last one | nucleus: order] < p → order] <= p + 1e-3
a nucleus of the best few, whatever they have together | nucleus: or sums[-1] >= p → or True
[decoding/sampling.py: decoding/test_speculative]
weights drawn from as if their sum were 1 | drawn: uniform * cumulative[-1] → min(uniform, cumulative[-1] - 1e-9)
[decoding/speculative.py: decoding/test_speculative]
a proposal taken with the ratio the wrong way round
    take: uniforms[i] * q[i, token] >= p[i, token] → uniforms[i] * p[i, token] >= q[i, token]
a refused token replaced by one of the model's whole distribution | take: np.maximum(p[i] - q[i], 0) → p[i]
what the draft has too much of counted as what it lacks | take: np.maximum(p[i] - q[i], 0) → np.abs(p[i] - q[i])
one random number to refuse and to draw | take: (np.maximum(p[i] - q[i], 0), uniforms[-1]) →
        (np.maximum(p[i] - q[i], 0), uniforms[i])
the token after all proposals drawn as the last of them was | take: p[-1] → p[-2]
a token that was taken written again | speculate: [*proposals[:taken], last] → [*proposals[: taken + 1], last]
refused tokens that stay in the cache | speculate: state.cache.go_back(len(ids) + taken) → pass
probabilities that do not know the proposals before | speculate: ids + proposals[:i] → ids
a token more than was asked for | speculate: - len(ids) - 1 → - len(ids)
a token that the tokenizer lacks | speculate: logits[:, forbidden] = -np.inf → pass
a draft that goes on from a text that was refused
    ModelDraft.propose: common_length(self.known, ids[:-1]) → min(len(self.known), len(ids) - 1)
an n-gram looked up where it stood first | PromptDraft.propose: best[-1] → best[0]
one token alone looked up | PromptDraft.propose: if back and → if
"""

BASELINES = r"""
[ops/elementwise.py: ops/test_op_gradients]
tanh's slope as 1 − y | tanh_backward: y * y → y
a sigmoid's slope without its second factor | sigmoid_backward: y * (1 - y) → y
[ops/convolution.py: ops/test_op_gradients]
a causal convolution that sees the future | check_convolution: - 1, 0 → // 2, taps - 1 - taps // 2
a convolution's windows overwrite each other's gradient | conv1d_backward: += dwindows → = dwindows
[ops/additive_attention.py: ops/test_op_gradients]
additive attention without its mask
    additive_attention_forward: scores = np.where(key_mask[:, None], scores, scores.dtype.type(-np.inf)) → pass
additive attention's features not squared in their slope
    additive_attention_backward: 1 - features * features → 1 - features
[layers/recurrent.py: layers/test_layer_gradients]
the state not carried past padding
    Recurrent.forward: real * new + padding * old for new, old in zip(after, current, strict=True) →
        real * new for new in after
the gradient not carried past padding
    Recurrent.backward: tuple(old + padding * d for old, d in zip(dold, dafter, strict=True)) → dold
back through time: what the later positions send is dropped | Recurrent.backward: dbefore[0] + dhidden → dhidden
the recurrent map's gradient from the states after, not before | Recurrent.backward: hidden[:, :-1] → hidden[:, 1:]
dropout on what goes to the next position
    Recurrent.forward: hidden[:, t + 1] = →
        drop = context.dropout_at(self.site, self.rate)\n            current = (self.ops.dropout.forward(current[0],
        drop)[0], *current[1:])\n            hidden[:, t + 1] =
[layers/cells.py: layers/test_layer_gradients]
the forget gate's gradient taken for the other gate's | LSTMCell.backward: dmemory * memory → dmemory * candidate
the memory's gradient from its output alone, not from later positions
    LSTMCell.backward: dmemory + self.ops.tanh → self.ops.tanh
the memory's gradient passes the forget gate as if it were open | LSTMCell.backward: dmemory * keep → dmemory
[layers/additive_attention.py: layers/test_layer_gradients]
a memory that is keys and values, its gradient from the keys alone
    AdditiveAttention.backward: dmemory + dvalue → dmemory
[layers/additive_attention.py: models/test_decoding_in_steps]
a recurrent decoder that attends to padding | AdditiveAttention.forward: key_mask=context.memory_mask → key_mask=None
[layers/convolution.py: layers/test_layer_gradients]
the encoder's convolutions see what stands in padding | GatedConvolution.forward: \nx = x * real →
[layers/convolution.py: models/test_decoding_in_steps]
a search that forgets the newest position instead of the oldest
    GatedConvolution.forward: x[:, x.shape[1] - past.shape[1] :] → x[:, : past.shape[1]]
[models/baselines/recurrent.py: models/test_model_gradients]
nothing goes back through the single context vector
    RecurrentDecoder.backward: dstates, dfinals → dstates, [tuple(0 * d for d in final) for final in dfinals]
[models/baselines/convolutional.py: models/test_model_gradients]
the encoder's values without the gradient of its input | ConvolutionalEncoder.backward: dhidden + dembedded → dhidden
[layers/cache.py: models/test_decoding_in_steps]
beams that keep another beam's state
    Cache._keep_rows: self.rows = {name: tuple(self.ops.take(array, all_rows) for array in kept) for name, kept in
        self.rows.items()} → pass
"""


def breakages(table: str, package: str = "minitransformer") -> list[Breakage]:
    """The mistakes one by one."""
    found = []
    for heading, rows in sections(table).items():
        file, test = heading.split(": ")
        for name, edit in rows:
            function, patch = edit.split(": ", 1)
            before, after = before_and_after(patch)
            found.append(Breakage(name, package, file, function, before, after, f"tests/{test}.py"))
    return found


BREAKAGES, BASELINE_BREAKAGES = breakages(TRANSFORMER), breakages(BASELINES)
