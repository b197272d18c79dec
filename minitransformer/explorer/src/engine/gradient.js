/**
 * Where the gradient of one token's log-probability goes: the backward pass through the whole model.
 *
 * @module gradient
 */

/** @import { GradientResult, InputGradient, Matrix, Trace } from "./types.js" */
/** @import { Model } from "./model.js" */
import { dot, row, rowNorms, zeros } from "./matrix.js";
import { checkIds, modelBackward } from "./model.js";
import { logSoftmax } from "./softmax.js";

/**
 * The gradient of log P(token) after the target's `position`, with respect to the embeddings.
 * @param {Model} model @param {Trace} trace @param {number} position @param {number} token @returns {GradientResult}
 */
export function tokenGradient(model, trace, position, token) {
  const { logits } = trace;
  if (!(position >= 0 && position < logits.rows)) throw new RangeError(`the target has no position ${position}`);
  checkIds("question", [token], logits.cols);
  const logProbs = logSoftmax(row(logits, position));
  const dlogits = zeros(logits.rows, logits.cols);
  row(dlogits, position).set(logProbs.map((value) => -Math.exp(value))); // log P = logits[token] − log Σ exp(logits)
  dlogits.data[position * logits.cols + token] += 1;
  const { dtarget, dsource } = modelBackward(model, dlogits, trace);
  return {
    logProb: logProbs[token],
    source: dsource && trace.encoder ? inputGradient(dsource, trace.encoder.embedding) : null,
    target: inputGradient(dtarget, trace.decoder.embedding),
  };
}

/** @param {Matrix} vectors @param {Matrix} embedding @returns {InputGradient} */
function inputGradient(vectors, embedding) {
  const along = (/** @type {any} */ _, /** @type {number} */ t) => dot(row(vectors, t), row(embedding, t));
  const gradientTimesInput = Float32Array.from({ length: vectors.rows }, along);
  return { vectors, norms: rowNorms(vectors), gradientTimesInput };
}
