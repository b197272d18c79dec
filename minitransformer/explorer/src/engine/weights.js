/**
 * The weights of a payload: base64 of raw float32, or of int8 with float32 scales, as named arrays.
 *
 * @module weights
 */

/** @import { Matrix, Payload, Weight } from "./types.js" */
import { row, scaledRow, zeros } from "./matrix.js";

/** Finds arrays by their names in Python; vectors and matrices. */
export class Weights {
  /** @type {Map<string, { shape: number[], data: Float32Array | Int8Array, scales: Pick<Weight, "rowScales" | "columnScales"> }>} */
  #arrays = new Map();

  /** @param {Pick<Payload, "tensors" | "weights">} payload */
  constructor({ tensors, weights }) {
    const bytes = bytesOf(weights);
    for (const { name, shape, offset, scalesOffset, scalesOf } of tensors) {
      const size = shape.reduce((product, length) => product * length, 1);
      const isInt8 = scalesOffset !== null;
      const data = isInt8 ? new Int8Array(bytes.buffer, offset, size) : new Float32Array(bytes.buffer, offset, size);
      const isOfRows = scalesOf === "rows";
      const each = isInt8 ? new Float32Array(bytes.buffer, scalesOffset, shape[isOfRows ? 0 : 1]) : null;
      const scales = isOfRows ? { rowScales: each } : { columnScales: each };
      this.#arrays.set(name, { shape, data, scales });
    }
  }

  /** @param {string} name */
  has(name) {
    return this.#arrays.has(name);
  }

  /** A matrix as it is stored. @param {string} name @returns {Weight} */
  weight(name) {
    const { shape, data, scales } = this.#find(name);
    return { rows: shape[0], cols: shape[1], data, ...scales };
  }

  /** A matrix in float32. @param {string} name @returns {Matrix} */
  matrix(name) {
    const weight = this.weight(name);
    const matrix = zeros(weight.rows, weight.cols);
    for (let i = 0; i < weight.rows; i++) row(matrix, i).set(scaledRow(weight, i, 1));
    return matrix;
  }

  /** @param {string} name @returns {Float32Array} */
  vector(name) {
    return /** @type {Float32Array} */ (this.#find(name).data); // only matrices are int8
  }

  /** A vector that may be missing. @param {string} name @returns {Float32Array | null} */
  optionalVector(name) {
    return this.has(name) ? this.vector(name) : null;
  }

  /** @param {string} name */
  #find(name) {
    const found = this.#arrays.get(name);
    if (!found) throw new Error(`the page holds no weights named ${name}`);
    return found;
  }
}

/** @param {string} base64 */
export function bytesOf(base64) {
  const inOne = /** @type {any} */ (Uint8Array).fromBase64; // in new browsers, and twice as fast
  if (inOne) return /** @type {Uint8Array<ArrayBuffer>} */ (inOne.call(Uint8Array, base64));
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}
