/**
 * How a model knows where tokens stand: vectors added to them, rotations of queries and keys, biases of scores.
 *
 * A token's place is its position, or null where the model is not told (an intervention).
 *
 * @module positions
 */

/** @import { Matrix, RelativeConfig, RotaryConfig, StackConfig } from "./types.js" */
import { row, zeros } from "./matrix.js";

/** @typedef {number | null} Place */

// --- Added to the tokens ---------------------------------------------------------------------------------------------

/**
 * The vectors of places, (T, C), zeros where a place is null; null if the stack adds none.
 *
 * Sinusoids: `PE(pos, 2i) = sin(pos / 10000^{2i/C})`, `PE(pos, 2i+1) = cos(…)`, or in halves all sines first. Source:
 * Vaswani 2017, §3.5. The backward is the identity: a constant is added.
 *
 * @param {StackConfig["positions"]} kind @param {number} width @param {Matrix | null} table of learned ones
 * @param {readonly Place[]} places @returns {Matrix | null}
 */
export function positionVectors(kind, width, table, places) {
  if (kind === "none") return null;
  const vectors = zeros(places.length, width);
  places.forEach((place, t) => {
    if (place === null) return;
    const vector = row(vectors, t);
    if (table) {
      vector.set(row(table, place));
      return;
    }
    for (let i = 0; i < width / 2; i++) {
      const angle = angleOf(place, 10000 ** ((-2 * i) / width));
      const [sine, cosine] = kind === "sinusoidal_halves" ? [i, width / 2 + i] : [2 * i, 2 * i + 1];
      vector[sine] = Math.sin(angle);
      vector[cosine] = Math.cos(angle);
    }
  });
  return vectors;
}

/**
 * Position times frequency without whole turns, as float32.
 * @param {number} position @param {number} frequency
 */
function angleOf(position, frequency) {
  return Math.fround((position * frequency) % (2 * Math.PI));
}

// --- Rotations of queries and keys -----------------------------------------------------------------------------------

/**
 * Turns each pair of channels by its angle: `(a, b) → (a·cos − b·sin, b·cos + a·sin)`. `way` −1 turns back, which is
 * the backward: a rotation's transpose is the opposite rotation. Source: Su et al. 2021, eq. 34.
 *
 * @param {RotaryConfig} config @param {Matrix} x (T, D) @param {readonly Place[]} places @param {1 | -1} way
 * @returns {Matrix}
 */
export function turned({ frequencies, interleaved }, x, places, way = 1) {
  const y = { ...x, data: x.data.slice() };
  places.forEach((place, t) => {
    if (place === null) return;
    frequencies.forEach((frequency, i) => {
      const [first, second] = interleaved ? [2 * i, 2 * i + 1] : [i, frequencies.length + i];
      const angle = angleOf(place, frequency);
      const cos = Math.cos(angle);
      const sin = way * Math.sin(angle);
      const a = x.data[t * x.cols + first];
      const b = x.data[t * x.cols + second];
      y.data[t * x.cols + first] = a * cos - b * sin;
      y.data[t * x.cols + second] = b * cos + a * sin;
    });
  });
  return y;
}

// --- Biases of the scores --------------------------------------------------------------------------------------------

/**
 * The bias (Tq, Tk) of one head, by the distance of a key after its query. Source: Raffel et al. 2020, §2.1; Press,
 * Smith, Lewis 2022, §3. The backward needs nothing: the bias does not depend on the tokens.
 *
 * @param {RelativeConfig} config @param {Matrix | null} table T5's, (buckets, H) @param {number} head
 * @param {readonly Place[]} queries @param {readonly Place[]} keys @returns {Matrix}
 */
export function relativeBias(config, table, head, queries, keys) {
  const bias = zeros(queries.length, keys.length);
  queries.forEach((query, i) => {
    keys.forEach((key, j) => {
      if (query === null || key === null) return;
      const distance = key - query;
      if (config.kind === "alibi") {
        bias.data[i * keys.length + j] = -config.slopes[head] * Math.abs(distance);
      } else if (table) {
        const bucket = config.buckets[Math.max(0, Math.min(distance + config.reach, 2 * config.reach))];
        bias.data[i * keys.length + j] = table.data[bucket * table.cols + head];
      }
    });
  });
  return bias;
}
