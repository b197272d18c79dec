/**
 * The block: self-attention, attention to the memory in a decoder that has one, then the feed-forward network; each in
 * a residual connection with its normalisation.
 *
 *     post-norm, the paper's    x = norm(x + sublayer(x))
 *     pre-norm                  x = x + sublayer(norm(x))
 *
 * Some normalise the sub-layer's output besides, before it is added. Source: Vaswani 2017, §3.1 and figure 1; pre-norm:
 * Xiong et al. 2020; norms of outputs: Ding et al. 2021.
 *
 * @module block
 */

/** @import { LayerTrace, Matrix, StackName, SublayerKind, SublayerTrace } from "./types.js" */
/** @import { Attention, Pass } from "./attention.js" */
/** @import { FeedForward } from "./feed_forward.js" */
/** @import { Norm } from "./norm.js" */
import { attentionBackward, attentionForward } from "./attention.js";
import { feedForwardBackward, feedForwardForward } from "./feed_forward.js";
import { isSublayerOff } from "./interventions.js";
import { add, zeros } from "./matrix.js";
import { normBackward, normForward } from "./norm.js";
import { patched, patchedBackward, patchesOf } from "./patches.js";

/**
 * @typedef {object} Sublayer
 * @property {SublayerKind} kind
 * @property {Norm} norm
 * @property {Norm | null} outputNorm
 * @property {Attention | null} attention
 * @property {FeedForward | null} feedForward
 */
/** @typedef {{ stack: StackName, layer: number, isPreNorm: boolean, sublayers: Sublayer[] }} Block */

/**
 * x (T, C) → (T, C).
 * @param {Block} block @param {Matrix} x @param {Pass} pass @param {LayerTrace | null} past @returns {LayerTrace}
 */
export function blockForward(block, x, pass, past) {
  /** @type {SublayerTrace[]} */
  const sublayers = [];
  block.sublayers.forEach((sublayer, i) => {
    const trace = sublayerForward(block, sublayer, x, pass, past ? past.sublayers[i] : null);
    sublayers.push(trace);
    x = trace.after;
  });
  x = patched(x, patchesOf(pass.off, block.stack, block.layer + 1), pass.start);
  sublayers[sublayers.length - 1].after = x;
  return { sublayers, output: x };
}

/**
 * Returns dx and dmemory, null without cross-attention.
 * @param {Block} block @param {Matrix} dx @param {LayerTrace} trace @param {Pass} pass
 * @returns {{ dx: Matrix, dmemory: Matrix | null }}
 */
export function blockBackward(block, dx, trace, pass) {
  /** @type {Matrix | null} */
  let dmemory = null;
  dx = patchedBackward(dx, patchesOf(pass.off, block.stack, block.layer + 1)); // x = patched(x)
  for (let i = block.sublayers.length - 1; i >= 0; i--) {
    const back = sublayerBackward(block, block.sublayers[i], dx, trace.sublayers[i], pass);
    dx = back.dx;
    dmemory = back.dmemory ?? dmemory;
  }
  return { dx, dmemory };
}

/**
 * @param {Block} block @param {Sublayer} sublayer @param {Matrix} before @param {Pass} pass
 * @param {SublayerTrace | null} past @returns {SublayerTrace}
 */
function sublayerForward(block, { kind, norm, outputNorm, attention, feedForward }, before, pass, past) {
  const entered = block.isPreNorm ? normForward(norm, before) : null;
  const read = entered ? entered.output : before;
  const attended = attention ? attentionForward(attention, read, pass, past ? past.attention : null) : null;
  const fed = feedForward ? feedForwardForward(feedForward, read) : null;
  const isOff = isSublayerOff(pass.off, block.stack, block.layer, kind);
  const { out } = /** @type {{ out: Matrix }} */ (attended ?? fed);
  const outputTrace = outputNorm ? normForward(outputNorm, out) : null;
  const contribution = isOff ? zeros(read.rows, read.cols) : (outputTrace?.output ?? out);
  const sum = add(before, contribution);
  const normTrace = entered ?? normForward(norm, sum);
  return {
    kind,
    before,
    read,
    contribution,
    sum,
    after: entered ? sum : normTrace.output,
    norm: normTrace,
    outputNorm: outputTrace,
    attention: attended ? attended.trace : null,
    feedForward: fed ? fed.trace : null,
    isOff,
  };
}

/**
 * @param {Block} block @param {Sublayer} sublayer @param {Matrix} dafter @param {SublayerTrace} trace
 * @param {Pass} pass
 * @returns {{ dx: Matrix, dmemory: Matrix | null }}
 */
function sublayerBackward(block, { norm, outputNorm, attention, feedForward }, dafter, trace, pass) {
  const dsum = block.isPreNorm ? dafter : normBackward(norm, dafter, trace.norm); // after = norm(sum), or sum
  if (trace.isOff) return { dx: dsum, dmemory: null }; // sum = before + 0
  /** @type {{ dx: Matrix, dmemory: Matrix | null }} */
  let back = { dx: dsum, dmemory: null }; // sum = before + contribution
  const dout = outputNorm && trace.outputNorm ? normBackward(outputNorm, dsum, trace.outputNorm) : dsum; // or norm(out)
  if (attention && trace.attention) back = attentionBackward(attention, dout, trace.attention, pass);
  if (feedForward && trace.feedForward) back.dx = feedForwardBackward(feedForward, dout, trace.feedForward);
  const dbefore = block.isPreNorm ? normBackward(norm, back.dx, trace.norm) : back.dx; // read = norm(before), or before
  return { dx: add(dsum, dbefore), dmemory: back.dmemory };
}
