/**
 * Softmax and its logarithm, row by row.
 *
 * @module softmax
 */

/** @import { Matrix } from "./types.js" */
import { row, zeros } from "./matrix.js";

/**
 * `y_j = exp(x_j) / Σ exp(x)`. A row of −Infinity alone (a query that may see no key) gives zeros.
 * @param {Matrix} x @returns {Matrix}
 */
export function softmaxForward(x) {
  const y = zeros(x.rows, x.cols);
  const exponentials = new Float64Array(x.cols);
  for (let i = 0; i < x.rows; i++) {
    const scores = row(x, i);
    const largest = maximum(scores);
    if (largest === -Infinity) continue;
    let total = 0;
    for (let j = 0; j < x.cols; j++) total += exponentials[j] = Math.exp(scores[j] - largest);
    for (let j = 0; j < x.cols; j++) y.data[i * x.cols + j] = exponentials[j] / total;
  }
  return y;
}

/**
 * `dx = y · (dy − Σ_j dy_j y_j)`, the Jacobian diag(y) − y yᵀ times dy; 0 where y is 0, behind a mask.
 * @param {Matrix} dy @param {Matrix} y @returns {Matrix}
 */
export function softmaxBackward(dy, y) {
  const dx = zeros(y.rows, y.cols);
  for (let i = 0; i < y.rows; i++) {
    const weights = row(y, i);
    const dweights = row(dy, i);
    const along = weights.reduce((sum, weight, j) => sum + weight * dweights[j], 0);
    for (let j = 0; j < y.cols; j++) dx.data[i * y.cols + j] = weights[j] * (dweights[j] - along);
  }
  return dx;
}

/**
 * `log softmax(x / temperature)` of one row, in double.
 * @param {Float32Array} logits @param {number} [temperature] @returns {Float64Array}
 */
export function logSoftmax(logits, temperature = 1) {
  const y = new Float64Array(logits.length);
  const largest = maximum(logits);
  let total = 0;
  for (let i = 0; i < y.length; i++) total += Math.exp((y[i] = (logits[i] - largest) / temperature));
  const logTotal = Math.log(total);
  for (let i = 0; i < y.length; i++) y[i] -= logTotal;
  return y;
}

/** @param {Float32Array} values */
function maximum(values) {
  let most = -Infinity;
  for (let i = 0; i < values.length; i++) if (values[i] > most || Number.isNaN(values[i])) most = values[i];
  return most;
}

/**
 * The places of the `count` largest numbers, the largest first; of equal ones the earlier place comes first.
 * @param {ArrayLike<number>} values @param {number} count @returns {number[]}
 */
export function largestPlaces(values, count) {
  /** @type {number[]} */
  const best = [];
  for (let place = 0; place < values.length; place++) {
    if (best.length === count && !(values[place] > values[best[count - 1]])) continue;
    let at = best.length;
    while (at > 0 && values[place] > values[best[at - 1]]) at--;
    best.splice(at, 0, place);
    if (best.length > count) best.pop();
  }
  return best;
}
