/**
 * A trace of some positions and a trace of those that follow them, as one: so a text that grows is not computed again.
 *
 * @module join
 */

import { matrixOf, stacked } from "./matrix.js";

/** @import { Matrix } from "./types.js" */

const WHOLE = new Set(["key", "value"]); // of the later trace, which hold all positions

/**
 * Matrices have a row for each position, and are put below one another; so is all that they stand in.
 * @template T @param {T} past @param {T} next @param {string} [name] of what is joined @returns {T}
 */
export function joined(past, next, name = "") {
  const [before, after] = /** @type {any[]} */ ([past, next]);
  if (after === null || typeof after !== "object" || WHOLE.has(name)) return after;
  if (after instanceof Float32Array) return /** @type {any} */ (Float32Array.of(...before, ...after));
  if (Array.isArray(after)) {
    const isIds = typeof after[0] === "number";
    return /** @type {any} */ (isIds ? [...before, ...after] : after.map((each, i) => joined(before[i], each)));
  }
  if ("rows" in after) return /** @type {any} */ (stacked(widened(before, after.cols, name), after));
  const properties = Object.getOwnPropertyDescriptors(after);
  for (const [each, property] of Object.entries(properties))
    if ("value" in property) property.value = joined(before[each], property.value, each);
  return /** @type {any} */ (Object.defineProperties({}, properties));
}

/**
 * Of attention: with columns for the later keys, which no earlier query sees.
 * @param {Matrix} x @param {number} cols @param {string} name
 */
function widened(x, cols, name) {
  if (x.cols === cols) return x;
  const wide = matrixOf(x.rows, cols, new Float32Array(x.rows * cols).fill(name === "masked" ? -Infinity : 0));
  for (let i = 0; i < x.rows; i++) wide.data.set(x.data.subarray(i * x.cols, (i + 1) * x.cols), i * cols);
  return wide;
}
