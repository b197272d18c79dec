/**
 * Layer normalisation, and RMS normalisation, which subtracts no mean and has no beta.
 *
 *     normed = (x − mean) · rstd,   rstd = 1 / √(var + eps),   y = gamma · normed + beta
 *
 * Source: Ba, Kiros, Hinton 2016, eq. 4; Zhang & Sennrich 2019, eq. 4.
 *
 * @module norm
 */

/** @import { Matrix, NormTrace } from "./types.js" */
import { row, zeros } from "./matrix.js";

/**
 * gamma, beta (C).
 * @typedef {{ gamma: Float32Array, beta: Float32Array | null, eps: number, isRms: boolean }} Norm
 */

/** x (T, C). @param {Norm} norm @param {Matrix} x @returns {NormTrace} */
export function normForward({ gamma, beta, eps, isRms }, x) {
  const normed = zeros(x.rows, x.cols);
  const output = zeros(x.rows, x.cols);
  const mean = new Float32Array(x.rows);
  const rstd = new Float32Array(x.rows);
  for (let t = 0; t < x.rows; t++) {
    const values = row(x, t); // (C)
    let centre = 0;
    for (let c = 0; c < x.cols && !isRms; c++) centre += values[c] / x.cols;
    let variance = 0;
    for (let c = 0; c < x.cols; c++) variance += (values[c] - centre) ** 2 / x.cols;
    const scale = 1 / Math.sqrt(variance + eps);
    mean[t] = centre;
    rstd[t] = scale;
    for (let c = 0; c < x.cols; c++) {
      const value = (values[c] - centre) * scale;
      normed.data[t * x.cols + c] = value;
      output.data[t * x.cols + c] = gamma[c] * value + (beta ? beta[c] : 0);
    }
  }
  return { input: x, mean, rstd, normed, output };
}

/**
 * Returns dx (T, C). y does not change when x moves along (1, …, 1), since the mean is subtracted, or along `normed`,
 * since the deviation is divided out: two means take these directions out of the gradient.
 *
 * @param {Norm} norm @param {Matrix} dy (T, C) @param {NormTrace} trace @returns {Matrix}
 */
export function normBackward({ gamma, isRms }, dy, { normed, rstd }) {
  const dx = zeros(dy.rows, dy.cols);
  for (let t = 0; t < dy.rows; t++) {
    const n = row(normed, t);
    const dn = Float64Array.from(row(dy, t), (value, c) => value * gamma[c]); // y = gamma * normed + beta
    const meanOfDn = isRms ? 0 : dn.reduce((sum, value) => sum + value, 0) / dy.cols;
    const alongNormed = dn.reduce((sum, value, c) => sum + value * n[c], 0) / dy.cols;
    for (let c = 0; c < dy.cols; c++) {
      dx.data[t * dy.cols + c] = (dn[c] - meanOfDn - n[c] * alongNormed) * rstd[t]; // normed = (x − mean) · rstd
    }
  }
  return dx;
}
