/**
 * Two passes side by side: how much more or less probable the same tokens are.
 *
 * @module compare
 */

/** @import { Comparison, Trace } from "./types.js" */
import { checkIds } from "./model.js";

/** @param {Trace} original @param {Trace} changed @param {number[]} tokens @returns {Comparison} */
export function comparePasses(original, changed, tokens) {
  const lengths = [original.logProbs.rows, changed.logProbs.rows, tokens.length];
  if (new Set(lengths).size > 1) throw new RangeError(`the passes and the tokens have lengths ${lengths.join(", ")}`);
  checkIds("comparison", tokens, original.logProbs.cols);
  const before = logProbsOf(original, tokens);
  const after = logProbsOf(changed, tokens);
  const difference = after.map((value, t) => value - before[t]);
  return {
    tokens,
    original: before,
    changed: after,
    difference,
    totalOriginal: sum(before),
    totalChanged: sum(after),
    totalDifference: sum(difference),
  };
}

/** @param {Trace} trace @param {number[]} tokens */
function logProbsOf({ logProbs }, tokens) {
  return Float64Array.from(tokens, (token, t) => logProbs.data[t * logProbs.cols + token]);
}

/** @param {Float64Array} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
