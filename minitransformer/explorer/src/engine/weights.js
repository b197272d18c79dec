/**
 * The weights of a payload: base64 of raw float32, or of int8 with a float32 scale for each row, as named arrays.
 *
 * @module weights
 */

/** @import { Matrix, Payload } from "./types.js" */
import { matrixOf } from "./matrix.js";

/** Finds arrays by their names in Python; vectors and matrices. */
export class Weights {
  /** @type {Map<string, { shape: number[], data: Float32Array }>} */
  #arrays = new Map();

  /** @param {Pick<Payload, "tensors" | "weights">} payload */
  constructor({ tensors, weights }) {
    const bytes = bytesOf(weights);
    for (const { name, shape, offset, scalesOffset } of tensors) {
      const size = shape.reduce((product, length) => product * length, 1);
      let data = new Float32Array(bytes.buffer, offset, scalesOffset === null ? size : 0);
      if (scalesOffset !== null) {
        const scales = new Float32Array(bytes.buffer, scalesOffset, shape[0]);
        data = dequantised(new Int8Array(bytes.buffer, offset, size), scales);
      }
      this.#arrays.set(name, { shape, data });
    }
  }

  /** @param {string} name */
  has(name) {
    return this.#arrays.has(name);
  }

  /** @param {string} name @returns {Matrix} */
  matrix(name) {
    const { shape, data } = this.#find(name);
    return matrixOf(shape[0], shape[1], data);
  }

  /** @param {string} name @returns {Float32Array} */
  vector(name) {
    return this.#find(name).data;
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
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/**
 * Entry (i, j) is its byte times the scale of row i.
 * @param {Int8Array} bytes @param {Float32Array} scales
 */
function dequantised(bytes, scales) {
  const width = bytes.length / scales.length;
  return Float32Array.from(bytes, (byte, place) => byte * scales[Math.floor(place / width)]);
}
