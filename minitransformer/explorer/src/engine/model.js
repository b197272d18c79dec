/**
 * The models: the encoder–decoder Transformer of Vaswani et al. 2017, figure 1, the captioner, whose encoder reads the
 * patches of a picture, and the decoder alone, GPT.
 *
 * @module model
 */

/**
 * @import { AttentionKind, ImageConfig, Inputs, Interventions, Matrix, ModelConfig } from "./types.js"
 * @import { Source, StackConfig, StackName, StackTrace, Trace, Weight } from "./types.js"
 */
/** @import { Attention, Pass } from "./attention.js" */
/** @import { Block, Sublayer } from "./block.js" */
/** @import { Linear } from "./linear.js" */
/** @import { Norm } from "./norm.js" */
/** @import { Stack } from "./stack.js" */
/** @import { Weights } from "./weights.js" */
import { NO_INTERVENTIONS } from "./interventions.js";
import { joined } from "./join.js";
import { capped, cappedBackward, columns, productWithTransposed, row, zeros } from "./matrix.js";
import { logSoftmax } from "./softmax.js";
import { stackBackward, stackForward } from "./stack.js";

/**
 * output: the output layer's table (V, C).
 * @typedef {object} Model
 * @property {ModelConfig} config
 * @property {Stack | null} encoder
 * @property {Stack} decoder
 * @property {Weight} output
 * @property {Float32Array | null} outputBias
 */

/**
 * An unfinished text: what the layers remember of its tokens is the trace of the last step. It never changes, so that
 * several texts can go on from one.
 * @typedef {{ position: number, past: StackTrace | null, memory: Matrix | null, off: Interventions }} Decoding
 */

/**
 * A whole pass, or the rest of one: `earlier` is the trace of the target's beginning.
 * @param {Model} model @param {Inputs} inputs @param {Interventions} [off] @param {Trace | null} [earlier]
 * @returns {Trace}
 */
export function modelForward(model, inputs, off = NO_INTERVENTIONS, earlier = null) {
  check(model.config, inputs);
  const source = inputs.source ?? [];
  const fresh = model.encoder && !earlier ? stackForward(model.encoder, source, passOf(null, off), null) : null;
  const encoder = earlier ? earlier.encoder : fresh;
  const start = earlier ? earlier.inputs.target.length : 0;
  const pass = { ...passOf(encoder && encoder.output, off), start };
  const decoder = stackForward(model.decoder, inputs.target.slice(start), pass, earlier && earlier.decoder);
  const logits = logitsOf(model, decoder.output); // (T, V)
  const logProbs = zeros(logits.rows, logits.cols);
  for (let t = 0; t < logits.rows; t++) row(logProbs, t).set(logSoftmax(row(logits, t)));
  const all = { decoder, logits, logProbs };
  return { inputs, interventions: off, encoder, ...(earlier ? joined({ ...earlier }, all) : all) };
}

/**
 * Goes back from dlogits (T, V) to the embeddings of the target and of the source.
 * @param {Model} model @param {Matrix} dlogits @param {Trace} trace
 * @returns {{ dtarget: Matrix, dsource: Matrix | null }}
 */
export function modelBackward(model, dlogits, trace) {
  const off = trace.interventions;
  const dhidden = logitsBackward(model, dlogits, trace.logits);
  const pass = passOf(trace.encoder && trace.encoder.output, off);
  const { dembedding: dtarget, dmemory } = stackBackward(model.decoder, dhidden, trace.decoder, pass);
  if (!model.encoder || !trace.encoder || !dmemory) {
    return { dtarget, dsource: trace.encoder && zeros(trace.encoder.output.rows, dtarget.cols) };
  }
  const { dembedding: dsource } = stackBackward(model.encoder, dmemory, trace.encoder, passOf(null, off));
  return { dtarget, dsource };
}

/**
 * hidden (T, C) → logits (T, V), which a softcap c bends to c · tanh(logits / c).
 * @param {Model} model @param {Matrix} hidden @returns {Matrix}
 */
export function logitsOf({ output, outputBias, config: { logitsSoftcap } }, hidden) {
  const logits = productWithTransposed(hidden, output);
  if (outputBias) logits.data.forEach((value, place) => (logits.data[place] = value + outputBias[place % logits.cols]));
  return logitsSoftcap ? capped(logits, logitsSoftcap) : logits;
}

/** Returns dhidden. @param {Model} model @param {Matrix} dlogits @param {Matrix} logits @returns {Matrix} */
function logitsBackward({ output, config: { logitsSoftcap } }, dlogits, logits) {
  if (logitsSoftcap) dlogits = cappedBackward(dlogits, logits, logitsSoftcap);
  const dhidden = zeros(dlogits.rows, output.cols);
  for (let t = 0; t < dlogits.rows; t++) {
    const out = row(dhidden, t);
    for (let v = 0; v < dlogits.cols; v++) {
      const factor = dlogits.data[t * dlogits.cols + v] * (output.rowScales ? output.rowScales[v] : 1);
      if (factor === 0) continue;
      const first = v * output.cols; // logits = hidden @ tableᵀ + bias
      for (let c = 0; c < out.length; c++) out[c] += factor * output.data[first + c];
    }
  }
  return dhidden;
}

// --- Token by token --------------------------------------------------------------------------------------------------

/**
 * Reads the source, if the model has one.
 * @param {Model} model @param {Source | null} source @param {Interventions} [off] @returns {Decoding}
 */
export function startDecoding(model, source, off = NO_INTERVENTIONS) {
  const memory = model.encoder ? stackForward(model.encoder, source ?? [], passOf(null, off), null).output : null;
  return { position: 0, past: null, memory, off };
}

/**
 * Reads the next tokens of a text: the logits (V) of what follows them, and the text's new state.
 * @param {Model} model @param {Decoding} state @param {readonly number[]} ids
 * @returns {{ logits: Float32Array, state: Decoding }}
 */
export function decodeStep(model, state, ids) {
  const pass = { start: state.position, memory: state.memory, off: state.off };
  const past = stackForward(model.decoder, ids, pass, state.past);
  const last = { rows: 1, cols: past.output.cols, data: row(past.output, ids.length - 1) };
  return { logits: logitsOf(model, last).data, state: { ...state, position: state.position + ids.length, past } };
}

/** @param {Matrix | null} memory @param {Interventions} off @returns {Pass} */
function passOf(memory, off) {
  return { start: 0, memory, off };
}

/**
 * Throws RangeError for inputs that the model can't read.
 * @param {ModelConfig} config @param {Inputs} inputs
 */
export function check({ kind, vocabSize, maxLength, image }, { source, target }) {
  /** @type {[string, readonly number[]][]} */
  const sequences = [["target", target]];
  if (kind === "transformer") sequences.push(["source", /** @type {number[]} */ (source ?? [])]);
  if (image) checkPatches(/** @type {number[][]} */ (source ?? []), image);
  for (const [name, ids] of sequences) {
    if (ids.length === 0) throw new RangeError(`the ${name} has no tokens`);
    if (ids.length > maxLength) {
      throw new RangeError(`the ${name} has ${ids.length} tokens, more than the model's ${maxLength}`);
    }
    checkIds(name, ids, vocabSize);
  }
}

/**
 * Throws RangeError for what are not the patches of a picture.
 * @param {readonly number[][]} patches @param {ImageConfig} image
 */
function checkPatches(patches, { channels, size, patchSize }) {
  const [count, length] = [(size / patchSize) ** 2, channels * patchSize ** 2];
  if (patches.length !== count || patches.some((each) => each.length !== length)) {
    throw new RangeError(`the source is not ${count} patches of ${length} numbers`);
  }
}

/**
 * Throws RangeError for an id outside the vocabulary.
 * @param {string} name @param {readonly number[]} ids @param {number} vocabSize
 */
export function checkIds(name, ids, vocabSize) {
  const wrong = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (wrong !== undefined) {
    throw new RangeError(`the ${name} holds ${wrong}, which is no id of the ${vocabSize} tokens`);
  }
}

// --- Made of the payload's weights -----------------------------------------------------------------------------------

/** @param {ModelConfig} config @param {Weights} weights @returns {Model} */
export function buildModel(config, weights) {
  const tokens = weights.weight("tokens.table");
  return {
    config,
    encoder: config.encoder ? buildStack("encoder", config, config.encoder, tokens, weights) : null,
    decoder: buildStack("decoder", config, config.decoder, tokens, weights),
    output: config.tied ? tokens : weights.weight("output.table"),
    outputBias: config.outputBias ? weights.vector("logits_bias") : null,
  };
}

/**
 * @param {StackName} name @param {ModelConfig} model @param {StackConfig} config @param {Weight} tokens
 * @param {Weights} weights @returns {Stack}
 */
function buildStack(name, model, config, tokens, weights) {
  const { block } = config;
  const norm = (/** @type {string} */ place) => buildNorm(place, config, weights);
  return {
    name,
    config,
    tokens,
    embeddingScale: model.embeddingScale,
    patches: model.image && name === "encoder" ? buildLinear("patches.projection", weights) : null,
    positionTable: config.positions === "learned" ? weights.matrix(`${name}.embedding.positions.table`) : null,
    blocks: Array.from({ length: config.numLayers }, (_, layer) => buildBlock(name, layer, config, weights)),
    finalNorm: block.norm.first ? norm(`${name}.final_norm`) : null,
  };
}

/**
 * @param {StackName} stack @param {number} layer @param {StackConfig} config @param {Weights} weights
 * @returns {Block}
 */
function buildBlock(stack, layer, config, weights) {
  const place = `${stack}.layers.${layer}`;
  const { block } = config;
  const norm = (/** @type {string} */ kind) => buildNorm(`${place}.${kind}_norm`, config, weights);
  const outputNorm = (/** @type {string} */ kind) => optionalNorm(`${place}.${kind}_norm.of_output`, config, weights);
  /** @type {AttentionKind[]} */
  const kinds = block.cross ? ["self_attention", "cross_attention"] : ["self_attention"];
  /** @type {Sublayer[]} */
  const sublayers = kinds.map((kind) => {
    const attention = buildAttention(stack, layer, kind, config, weights);
    return { kind, norm: norm(kind), outputNorm: outputNorm(kind), attention, feedForward: null };
  });
  const feedForward = {
    config: block.feedForward,
    expand: buildLinear(`${place}.feed_forward.expand`, weights),
    contract: buildLinear(`${place}.feed_forward.contract`, weights),
  };
  const norms = { norm: norm("feed_forward"), outputNorm: outputNorm("feed_forward") };
  sublayers.push({ kind: "feed_forward", ...norms, attention: null, feedForward });
  return { stack, layer, isPreNorm: block.norm.first, sublayers };
}

/**
 * @param {StackName} stack @param {number} layer @param {AttentionKind} kind @param {StackConfig} stackConfig
 * @param {Weights} weights @returns {Attention}
 */
function buildAttention(stack, layer, kind, stackConfig, weights) {
  const config = stackConfig.attentions[layer];
  const place = `${stack}.layers.${layer}.${kind}`;
  const width = config.numHeads * config.dK;
  const together = kind === "self_attention" ? split(buildLinear(`${place}.query_key_value`, weights), width) : null;
  const name = relativeName(stack, weights);
  const [queryNorm, keyNorm] = [0, 1].map((i) => optionalNorm(`${place}.head_norms.${i}`, stackConfig, weights));
  return {
    stack,
    layer,
    kind,
    config,
    causal: stackConfig.block.causal,
    query: together ? together[0] : buildLinear(`${place}.query`, weights),
    keyValue: together ? together[1] : buildLinear(`${place}.key_value`, weights),
    output: buildLinear(`${place}.output`, weights),
    headNorms: queryNorm && keyNorm ? [queryNorm, keyNorm] : null,
    relativeTable: config.relative?.kind === "t5" && name ? weights.matrix(name) : null,
  };
}

/**
 * All blocks of a stack share T5's table, which stands in the first.
 * @param {StackName} stack @param {Weights} weights
 */
function relativeName(stack, weights) {
  const name = `${stack}.layers.0.self_attention.relative.table`;
  return weights.has(name) ? name : null;
}

/**
 * The map to the first `width` outputs, and to the others.
 * @param {Linear} linear @param {number} width @returns {[Linear, Linear]}
 */
function split({ weight, bias }, width) {
  const rest = weight.cols - width;
  return [
    { weight: columns(weight, 0, width), bias: bias && bias.subarray(0, width) },
    { weight: columns(weight, width, rest), bias: bias && bias.subarray(width) },
  ];
}

/** @param {string} place @param {Weights} weights @returns {Linear} */
function buildLinear(place, weights) {
  return { weight: weights.weight(`${place}.weight`), bias: weights.optionalVector(`${place}.bias`) };
}

/** @param {string} place @param {StackConfig} config @param {Weights} weights */
function optionalNorm(place, config, weights) {
  return weights.has(`${place}.gamma`) ? buildNorm(place, config, weights) : null;
}

/** @param {string} place @param {StackConfig} config @param {Weights} weights @returns {Norm} */
function buildNorm(place, { block }, weights) {
  return {
    gamma: weights.vector(`${place}.gamma`),
    beta: weights.optionalVector(`${place}.beta`),
    eps: block.norm.eps,
    isRms: block.norm.kind === "rmsnorm",
  };
}
