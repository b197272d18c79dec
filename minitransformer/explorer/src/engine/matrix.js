/**
 * Numbers in rows, and the products of them that a Transformer is made of. Stored as float32; sums are in double.
 *
 * @module matrix
 */

/** @import { Matrix, Weight } from "./types.js" */

/** @param {number} rows @param {number} cols @returns {Matrix} */
export function zeros(rows, cols) {
  return { rows, cols, data: new Float32Array(rows * cols) };
}

/**
 * A matrix over these numbers, which it shares.
 * @param {number} rows @param {number} cols @param {Float32Array} data
 */
export function matrixOf(rows, cols, data) {
  if (data.length !== rows * cols) throw new RangeError(`${data.length} numbers are no ${rows} × ${cols} matrix`);
  return { rows, cols, data };
}

/** A view of one row. @param {Matrix} x @param {number} i */
export function row(x, i) {
  return x.data.subarray(i * x.cols, (i + 1) * x.cols);
}

/** One row of weights, times a factor. @param {Weight} x @param {number} i @param {number} factor */
export function scaledRow({ cols, data, rowScales, columnScales }, i, factor) {
  const size = rowScales ? factor * rowScales[i] : factor;
  return Float32Array.from(
    data.subarray(i * cols, (i + 1) * cols),
    (value, j) => value * size * (columnScales?.[j] ?? 1),
  );
}

/** @param {Matrix} a @param {Matrix} b @returns {Matrix} */
export function add(a, b) {
  const sum = zeros(a.rows, a.cols);
  for (let i = 0; i < sum.data.length; i++) sum.data[i] = a.data[i] + b.data[i];
  return sum;
}

/** @param {Matrix} x @param {number} factor @returns {Matrix} */
export function scaled(x, factor) {
  const y = zeros(x.rows, x.cols);
  for (let i = 0; i < y.data.length; i++) y.data[i] = x.data[i] * factor;
  return y;
}

/** `softcap · tanh(x / softcap)`. @param {Matrix} x @param {number} softcap @returns {Matrix} */
export function capped(x, softcap) {
  return { ...x, data: x.data.map((each) => softcap * Math.tanh(each / softcap)) };
}

/** Returns dx. @param {Matrix} dy @param {Matrix} y what `capped` returned @param {number} softcap @returns {Matrix} */
export function cappedBackward(dy, y, softcap) {
  return { ...dy, data: dy.data.map((each, place) => each * (1 - (y.data[place] / softcap) ** 2)) }; // tanh' = 1 − tanh²
}

/** The rows of `a`, then those of `b`. @param {Matrix} a @param {Matrix} b @returns {Matrix} */
export function stacked(a, b) {
  const data = new Float32Array(a.data.length + b.data.length);
  data.set(a.data);
  data.set(b.data, a.data.length);
  return matrixOf(a.rows + b.rows, a.cols, data);
}

/**
 * A copy of columns first … first + width − 1.
 * @template {Weight} W @param {W} x @param {number} first @param {number} width @returns {W}
 */
export function columns(x, first, width) {
  const data = x.data.slice(0, x.rows * width);
  for (let i = 0; i < x.rows; i++) data.set(x.data.subarray(i * x.cols + first, i * x.cols + first + width), i * width);
  return { ...x, cols: width, data, columnScales: x.columnScales?.subarray(first, first + width) };
}

/**
 * Adds `part` into the columns of x from `first` on.
 * @param {Matrix} x @param {number} first @param {Matrix} part
 */
export function addColumns(x, first, part) {
  for (let i = 0; i < x.rows; i++) {
    for (let j = 0; j < part.cols; j++) x.data[i * x.cols + first + j] += part.data[i * part.cols + j];
  }
}

/** @param {Float32Array} a @param {Float32Array} b both of one length */
export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** The Euclidean length of each row. @param {Matrix} x */
export function rowNorms(x) {
  return Float32Array.from({ length: x.rows }, (_, i) => Math.sqrt(dot(row(x, i), row(x, i))));
}

/** `a @ b`: (n, k) and (k, m), without scales of its rows → (n, m). @param {Matrix} a @param {Weight} b @returns {Matrix} */
export function product(a, b) {
  const y = zeros(a.rows, b.cols);
  const sums = new Float64Array(b.cols);
  for (let i = 0; i < a.rows; i++) {
    sumOfRows(sums, a.data, i * a.cols, 1, b);
    if (b.columnScales) for (let j = 0; j < b.cols; j++) sums[j] *= b.columnScales[j];
    y.data.set(sums, i * b.cols);
  }
  return y;
}

/** `a @ bᵀ`: (n, k) and (m, k) → (n, m). @param {Matrix} a @param {Weight} b @returns {Matrix} */
export function productWithTransposed(a, b) {
  const y = zeros(a.rows, b.rows);
  const { columnScales } = b;
  if (columnScales) a = { ...a, data: a.data.map((each, place) => each * columnScales[place % a.cols]) };
  for (let j = 0; j < b.rows; j++) {
    const scale = b.rowScales ? b.rowScales[j] : 1;
    for (let i = 0; i < a.rows; i++) {
      y.data[i * b.rows + j] = scale * dotAt(a.data, i * a.cols, b.data, j * b.cols, a.cols);
    }
  }
  return y;
}

/** `aᵀ @ b`: (k, n) and (k, m) → (n, m). @param {Matrix} a @param {Matrix} b @returns {Matrix} */
export function transposedProduct(a, b) {
  const y = zeros(a.cols, b.cols);
  const sums = new Float64Array(b.cols);
  for (let i = 0; i < a.cols; i++) {
    sumOfRows(sums, a.data, i, a.cols, b);
    y.data.set(sums, i * b.cols);
  }
  return y;
}

/**
 * The rows of b, row k times `factors[first + k * step]`, summed. Four rows at a time: so a sum is read and written a
 * quarter as often.
 * @param {Float64Array} sums @param {Float32Array} factors @param {number} first @param {number} step @param {Weight} b
 */
function sumOfRows(sums, factors, first, step, { rows, cols, data }) {
  sums.fill(0);
  let k = 0;
  for (; k + 3 < rows; k += 4) {
    const place = first + k * step;
    const f0 = factors[place];
    const f1 = factors[place + step];
    const f2 = factors[place + 2 * step];
    const f3 = factors[place + 3 * step];
    for (let j = 0, r = k * cols; j < cols; j++, r++) {
      sums[j] += f0 * data[r] + f1 * data[r + cols] + f2 * data[r + 2 * cols] + f3 * data[r + 3 * cols];
    }
  }
  for (; k < rows; k++) {
    const factor = factors[first + k * step];
    for (let j = 0; j < cols; j++) sums[j] += factor * data[k * cols + j];
  }
}

/**
 * The product of `count` numbers from `i` and from `j` on.
 * @param {Float32Array} a @param {number} i @param {Float32Array | Int8Array} b @param {number} j
 * @param {number} count
 */
function dotAt(a, i, b, j, count) {
  let s0 = 0; // four sums side by side: a processor need not wait for one addition before the next
  let s1 = 0;
  let s2 = 0;
  let s3 = 0;
  let k = 0;
  for (; k + 3 < count; k += 4) {
    s0 += a[i + k] * b[j + k];
    s1 += a[i + k + 1] * b[j + k + 1];
    s2 += a[i + k + 2] * b[j + k + 2];
    s3 += a[i + k + 3] * b[j + k + 3];
  }
  for (; k < count; k++) s0 += a[i + k] * b[j + k];
  return s0 + s1 + s2 + s3;
}
