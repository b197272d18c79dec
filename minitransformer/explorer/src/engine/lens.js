/**
 * The logit lens: what the output layer would say if the decoder ended earlier. Source: nostalgebraist 2020,
 * "interpreting GPT".
 *
 * @module lens
 */

/** @import { LensEntry, Matrix, SublayerKind, Trace } from "./types.js" */
/** @import { Model } from "./model.js" */
/** @import { Reader } from "./search.js" */
import { logitsOf } from "./model.js";
import { matrixOf, row } from "./matrix.js";
import { bestOf } from "./sampling.js";
import { logSoftmax } from "./softmax.js";
import { leave } from "./stack.js";

const MOST_PRODUCTS = 1e9; // about a second

/**
 * One entry for the decoder's input and one for each sub-layer, at one position of the target.
 * @param {Model} model @param {Reader} reader @param {Trace} trace @param {number} position @param {number} count
 * @param {number | null} target @returns {LensEntry[]}
 */
export function logitLens(model, reader, trace, position, count, target) {
  /**
   * @type {(layer: number, sublayer: SublayerKind | null, isLayer: boolean, residual: Matrix) => LensEntry}
   */
  const entry = (layer, sublayer, isLayer, residual) => {
    const here = matrixOf(1, residual.cols, row(residual, position)); // (1, C)
    const logProbs = logSoftmax(logitsOf(model, leave(model.decoder, here).output).data); // (V)
    const top = bestOf(reader, logProbs.map(Math.exp), logProbs, count);
    return { layer, sublayer, isLayer, top, target: target === null ? null : standing(logProbs, target) };
  };
  const { layers, input } = trace.decoder;
  const isLarge = 2 * layers.length * model.output.data.length > MOST_PRODUCTS; // then layers alone are read out
  const entries = [entry(0, null, true, input)];
  layers.forEach(({ sublayers }, layer) => {
    sublayers.forEach(({ kind, after }, i) => {
      const isLayer = i === sublayers.length - 1;
      if (isLayer || !isLarge) entries.push(entry(layer + 1, kind, isLayer, after));
    });
  });
  return entries;
}

/** @param {Float64Array} logProbs @param {number} target */
function standing(logProbs, target) {
  const logProb = logProbs[target];
  const rank = logProbs.filter((value, id) => value > logProb || (value === logProb && id < target)).length;
  return { logProb, rank };
}
