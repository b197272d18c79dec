/**
 * Multi-head attention: of a sequence to itself, or of the decoder to the memory, which is the encoder's output.
 *
 *     headᵢ = softmax(scale · queryᵢ keyᵢᵀ + biasᵢ) valueᵢ        out = Concat(head₁, …, head_h) W^O
 *
 * Source: Vaswani 2017, §3.2; grouped heads: Ainslie et al. 2023; softcap: Gemma Team 2024.
 *
 * @module attention
 */

/**
 * @import { AttentionConfig, AttentionKind, AttentionTrace, HeadTrace } from "./types.js"
 * @import { Interventions, Matrix, StackName } from "./types.js"
 */
/** @import { Linear } from "./linear.js" */
/** @import { Norm } from "./norm.js" */
import { isHeadOff, maskedPositions, placesOf } from "./interventions.js";
import { linearBackward, linearForward } from "./linear.js";
import {
  add,
  addColumns,
  capped,
  cappedBackward,
  columns,
  product,
  productWithTransposed,
  rowNorms,
  scaled,
  stacked,
  transposedProduct,
  zeros,
} from "./matrix.js";
import { normBackward, normForward } from "./norm.js";
import { patched, patchedBackward, patchesOf } from "./patches.js";
import { allows } from "./pattern.js";
import { relativeBias, turned } from "./positions.js";
import { softmaxBackward, softmaxForward } from "./softmax.js";

/**
 * query reads x; keyValue, whose outputs are keys and then values, reads x or the memory; headNorms: those of queries
 * and of keys, before they are turned (Henry et al. 2020); relativeTable: T5's table of biases, (buckets, H).
 * @typedef {object} Attention
 * @property {StackName} stack
 * @property {number} layer
 * @property {AttentionKind} kind
 * @property {AttentionConfig} config
 * @property {boolean} causal
 * @property {Linear} query
 * @property {Linear} keyValue
 * @property {Linear} output
 * @property {[Norm, Norm] | null} headNorms
 * @property {Matrix | null} relativeTable
 */

/**
 * What a pass tells its layers. `start`: position of the first row of x; `memory` (Ts, C): the encoder's output.
 * @typedef {{ start: number, memory: Matrix | null, off: Interventions }} Pass
 */

/**
 * x (Tq, C) → (Tq, C). With `past`, the trace of the positions before, x holds those that follow.
 *
 * @param {Attention} layer @param {Matrix} x @param {Pass} pass @param {AttentionTrace | null} past
 * @returns {{ out: Matrix, trace: AttentionTrace }}
 */
export function attentionForward(layer, x, pass, past) {
  const { config, kind, stack } = layer;
  const { numHeads, numKvHeads, dK, dV } = config;
  const isSelf = kind === "self_attention";
  const rotary = isSelf ? config.rotary : null;
  const relative = isSelf ? config.relative : null;
  const places = placesOf(pass.off, stack, pass.start, x.rows);
  const queries = linearForward(layer.query, x); // (Tq, H·D)
  const { keys, keyNorms, values } = keysAndValues(layer, x, pass, past); // Hk of (Tk, D) and (Tk, Dv)
  const numKeys = keys[0].rows;
  const keyPlaces = isSelf ? placesOf(pass.off, stack, 0, numKeys) : [];
  const mask = maskOf(layer, pass, x.rows, numKeys);

  const mixed = zeros(x.rows, numHeads * dV);
  const heads = Array.from({ length: numHeads }, (_, head) => {
    const shared = Math.floor((head * numKvHeads) / numHeads);
    const key = keys[shared];
    const value = values[shared];
    let query = columns(queries, head * dK, dK); // (Tq, D)
    const queryNorm = layer.headNorms ? normForward(layer.headNorms[0], query) : null;
    if (queryNorm) query = queryNorm.output;
    if (rotary) query = turned(rotary, query, places);
    const bias = relative ? relativeBias(relative, layer.relativeTable, head, places, keyPlaces) : null;
    let scores = scaled(productWithTransposed(query, key), config.scale); // (Tq, Tk)
    if (config.softcap) scores = capped(scores, config.softcap);
    if (bias) scores = add(scores, bias);
    const masked = { ...scores, data: scores.data.map((score, place) => (mask[place] ? score : -Infinity)) };
    const weights = softmaxForward(masked);
    const output = product(weights, value); // (Tq, Dv)
    const isOff = isHeadOff(pass.off, stack, layer.layer, kind, head);
    const patches = patchesOf(pass.off, stack, layer.layer + 1, kind, head);
    if (!isOff) addColumns(mixed, head * dV, patched(output, patches, pass.start));
    const norms = { queryNorm, keyNorm: keyNorms[shared] ?? null };
    const all = { query, key, value, ...norms, bias, scores, masked, weights, output, isOff };
    return withNorms(all, layer.output, head * dV);
  });
  const out = linearForward(layer.output, mixed); // (Tq, C)
  return { out, trace: { kind, scale: config.scale, softcap: config.softcap, heads, mixed } };
}

/**
 * Returns dx and, of cross-attention, dmemory. It is for whole sequences: without a past.
 *
 * @param {Attention} layer @param {Matrix} dout (T, C) @param {AttentionTrace} trace @param {Pass} pass
 * @returns {{ dx: Matrix, dmemory: Matrix | null }}
 */
export function attentionBackward(layer, dout, trace, pass) {
  const { config, kind, stack } = layer;
  const { numHeads, numKvHeads, dK, dV, softcap } = config;
  const isSelf = kind === "self_attention";
  const rotary = isSelf ? config.rotary : null;
  const numKeys = trace.heads[0].key.rows;
  const dmixed = linearBackward(layer.output, dout); // out = mixed @ W^O + b
  const dqueries = zeros(dout.rows, numHeads * dK);
  const dkeysValues = zeros(numKeys, numKvHeads * (dK + dV));

  trace.heads.forEach(({ query, key, value, queryNorm, keyNorm, bias, scores, weights, isOff }, head) => {
    if (isOff) return; // mixed += patched(output), unless the head is off
    const shared = Math.floor((head * numKvHeads) / numHeads);
    const patches = patchesOf(pass.off, stack, layer.layer + 1, kind, head);
    const doutput = patchedBackward(columns(dmixed, head * dV, dV), patches); // (Tq, Dv)
    const dvalue = transposedProduct(weights, doutput); // output = weights @ value
    const dweights = productWithTransposed(doutput, value); // output = weights @ value
    let dscores = softmaxBackward(dweights, weights); // weights = softmax(masked)
    // scores = softcap · tanh(scores / softcap) + bias
    if (softcap) dscores = cappedBackward(dscores, bias ? add(scores, scaled(bias, -1)) : scores, softcap);
    dscores = scaled(dscores, config.scale); // scores = scale · query keyᵀ
    let dquery = product(dscores, key); // scores = query keyᵀ
    let dkey = transposedProduct(dscores, query); // scores = query keyᵀ
    if (rotary) {
      dquery = turned(rotary, dquery, placesOf(pass.off, stack, 0, dquery.rows), -1); // query = turned(query)
      dkey = turned(rotary, dkey, placesOf(pass.off, stack, 0, numKeys), -1); // key = turned(key)
    }
    if (layer.headNorms && queryNorm && keyNorm) {
      dquery = normBackward(layer.headNorms[0], dquery, queryNorm); // query = norm(query)
      dkey = normBackward(layer.headNorms[1], dkey, keyNorm); // key = norm(key)
    }
    addColumns(dqueries, head * dK, dquery);
    addColumns(dkeysValues, shared * dK, dkey);
    addColumns(dkeysValues, numKvHeads * dK + shared * dV, dvalue);
  });
  const dx = linearBackward(layer.query, dqueries); // queries = x @ W^Q + b
  const dread = linearBackward(layer.keyValue, dkeysValues); // keys and values = (x or memory) @ W^KV + b
  return isSelf ? { dx: add(dx, dread), dmemory: null } : { dx, dmemory: dread };
}

/**
 * The keys and values of every key head, those of the past first. The memory's are computed once.
 * @param {Attention} layer @param {Matrix} x @param {Pass} pass @param {AttentionTrace | null} past
 */
function keysAndValues({ config, kind, stack, keyValue, headNorms }, x, pass, past) {
  const { numHeads, numKvHeads, dK, dV } = config;
  const isSelf = kind === "self_attention";
  const earlier = past ? past.heads.filter((_, head) => head % (numHeads / numKvHeads) === 0) : null; // one a key head
  if (earlier && !isSelf)
    return { keys: earlier.map(({ key }) => key), keyNorms: [], values: earlier.map(({ value }) => value) };

  const read = isSelf ? x : /** @type {Matrix} */ (pass.memory);
  const projected = linearForward(keyValue, read); // (Tk, Hk(D + Dv))
  const places = placesOf(pass.off, stack, pass.start, read.rows);
  const projectedKeys = Array.from({ length: numKvHeads }, (_, i) => columns(projected, i * dK, dK));
  const keyNorms = headNorms ? projectedKeys.map((key) => normForward(headNorms[1], key)) : [];
  const keys = projectedKeys.map((each, i) => {
    const key = keyNorms[i]?.output ?? each;
    const placed = isSelf && config.rotary ? turned(config.rotary, key, places) : key;
    return earlier ? stacked(earlier[i].key, placed) : placed;
  });
  const values = Array.from({ length: numKvHeads }, (_, i) => {
    const value = columns(projected, numKvHeads * dK + i * dV, dV);
    return earlier ? stacked(earlier[i].value, value) : value;
  });
  return { keys, keyNorms, values };
}

/**
 * Which keys each query may attend to, row by row, (Tq · Tk).
 * @param {Attention} layer @param {Pass} pass @param {number} numQueries @param {number} numKeys @returns {boolean[]}
 */
function maskOf({ config, kind, stack, causal }, pass, numQueries, numKeys) {
  const isSelf = kind === "self_attention";
  const isMasked = maskedPositions(pass.off, isSelf ? stack : "encoder", numKeys);
  const pattern = { causal, window: config.window, sparse: config.sparse };
  return Array.from({ length: numQueries * numKeys }, (_, place) => {
    const query = pass.start + Math.floor(place / numKeys);
    const key = place % numKeys;
    return !isMasked[key] && (!isSelf || allows(pattern, query, key));
  });
}

/**
 * A head's trace with the sizes of its values, which are computed when somebody looks.
 * @param {Omit<HeadTrace, "valueNorms" | "projectedNorms">} head @param {Linear} output
 * @param {number} first row of W^O @returns {HeadTrace}
 */
function withNorms(head, { weight }, first) {
  /** @type {Float32Array | null} */
  let projected = null;
  return {
    ...head,
    get valueNorms() {
      return rowNorms(head.value);
    },
    get projectedNorms() {
      const last = first + head.value.cols;
      const data = weight.data.subarray(first * weight.cols, last * weight.cols);
      const own = { ...weight, rows: last - first, data };
      projected ??= rowNorms(product(head.value, own)); // (Tk, C)
      return projected;
    },
  };
}
