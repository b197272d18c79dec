/** Attention as figures show it: which head, in words or tokens, weighted by values or not, with or without </s>. */

import { entriesOf } from "./tokens.js";

/** @typedef {import("../engine/types.js").AttentionTrace} AttentionTrace */
/** @typedef {import("../engine/types.js").Engine} Engine */
/** @typedef {import("../engine/types.js").HeadTrace} HeadTrace */
/** @typedef {import("../engine/types.js").Token} Token */
/** @typedef {import("../engine/types.js").Trace} Trace */
/** @typedef {import("../state.js").MapName} MapName */
/** @typedef {import("../session.js").Writing} Writing */
/** @typedef {import("./tokens.js").Entry} Entry */

/** @type {Record<MapName, string>} */
export const NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };

/** @type {Record<import("../engine/types.js").SublayerKind, string>} */
export const PARTS = {
  self_attention: "self-attention",
  cross_attention: "cross-attention",
  feed_forward: "feed-forward",
};

/**
 * The tokens that look, and those that are looked at. A query of the decoder is named by the token that it writes; the
 * last one by an ellipsis while that is not written yet.
 * @param {Engine} engine
 * @param {Writing} writing
 * @param {MapName} map
 * @returns {{ queries: Token[], keys: Token[] }}
 */
export function axes(engine, writing, map) {
  const { source, target } = writing.inputs;
  const written = [...writing.start.slice(1), ...writing.written].slice(0, target.length);
  const reads = engine.tokens(target);
  const writes = engine.tokens(written);
  if (writes.length < target.length) writes.push({ id: -1, text: "…", piece: "…", word: -1, isSpecial: false });
  const sources = engine.tokens(source ?? []);
  return {
    queries: map === "encoder" ? sources : writes,
    keys: map === "decoder" ? reads : sources,
  };
}

/**
 * @param {Trace} trace
 * @param {MapName} map
 * @param {number} layer
 * @returns {AttentionTrace | null}
 */
export function attentionOf(trace, map, layer) {
  const stack = map === "encoder" ? trace.encoder : trace.decoder;
  const kind = map === "cross" ? "cross_attention" : "self_attention";
  return stack?.layers[layer]?.sublayers.find((each) => each.kind === kind)?.attention ?? null;
}

/**
 * A map ready to be drawn: `rows[i][j]`, from 0 to 1, how much entry i of the queries looks at entry j of the keys.
 * @typedef {{ queries: Entry[], keys: Entry[], rows: number[][] }} Map2D
 */

/**
 * Weights of a word's tokens: those of its keys are added, those of its queries averaged. Weighted by the values'
 * sizes (Kobayashi et al. 2020) the largest entry is 1. Without </s> each row is divided by what is left of it.
 * @param {HeadTrace} head
 * @param {{ queries: Token[], keys: Token[] }} tokens
 * @param {{ words: boolean, sized: boolean, sink: boolean }} choice
 * @returns {Map2D}
 */
export function mapOf(head, tokens, { words, sized, sink }) {
  const queries = entriesOf(tokens.queries, words).filter(({ indices }) => indices[0] < head.weights.rows);
  const all = entriesOf(tokens.keys, words);
  const keys = sink ? all : all.filter(({ label }) => label !== "</s>");
  const { cols, data } = head.weights;
  /** @type {(q: number, k: number) => number} */
  const weight = (q, k) => data[q * cols + k] * (sized ? head.projectedNorms[k] : 1);
  const rows = queries.map((query) => {
    const row = keys.map((key) => {
      let sum = 0;
      for (const q of query.indices) for (const k of key.indices) sum += weight(q, k);
      return sum / query.indices.length;
    });
    const left = row.reduce((sum, each) => sum + each, 0);
    return sink || sized || left === 0 ? row : row.map((each) => each / left);
  });
  if (sized) {
    const largest = Math.max(...rows.flat(), 1e-30);
    return { queries, keys, rows: rows.map((row) => row.map((each) => each / largest)) };
  }
  return { queries, keys, rows };
}
