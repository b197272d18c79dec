/**
 * The affine map, of which all projections are made.
 *
 * @module linear
 */

/** @import { Matrix, Weight } from "./types.js" */
import { product, productWithTransposed, row } from "./matrix.js";

/**
 * weight (C_in, C_out), bias (C_out) or null.
 * @typedef {{ weight: Weight, bias: Float32Array | null }} Linear
 */

/**
 * `y = x @ weight + bias`: (T, C_in) → (T, C_out).
 * @param {Linear} layer @param {Matrix} x @returns {Matrix}
 */
export function linearForward({ weight, bias }, x) {
  const y = product(x, weight);
  if (bias) {
    for (let i = 0; i < y.rows; i++) {
      const out = row(y, i);
      for (let j = 0; j < out.length; j++) out[j] += bias[j];
    }
  }
  return y;
}

/** Returns dx (T, C_in). @param {Linear} layer @param {Matrix} dy (T, C_out) @returns {Matrix} */
export function linearBackward({ weight }, dy) {
  return productWithTransposed(dy, weight); // y = x @ weight + bias
}
