/** What of another sentence's run, put into this one's, makes the model say the other's word. */

import { NO_INTERVENTIONS } from "./engine/interventions.js";
import { leaningOf, shareOf } from "./engine/patches.js";
import { placeAt, positionsOf, sizeOf } from "./session.js";

/** @typedef {import("./engine/types.js").Leaning} Leaning */
/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./session.js").Writing} Writing */

const MOST_PRODUCTS = 3e9; // that all cells of a grid take: a token takes one for each weight

/**
 * Where the outputs of two sentences part.
 *
 * prefix    the tokens that both begin with
 * tokens    the first that differ: this sentence's, and the other's
 * leanings  what both runs say there
 * @typedef {object} Contrast
 * @property {Writing} own
 * @property {Writing} other
 * @property {number[]} prefix
 * @property {[number, number]} tokens
 * @property {[Leaning, Leaning]} leanings
 */

/**
 * A place with what its patch does; null: too much to compute for all places.
 * @typedef {{ layer: number, position: number | null, effect: { share: number, leaning: Leaning } | null }} Cell
 */

/**
 * @param {Session} session
 * @param {Writing} own
 * @param {Writing} other
 * @returns {Contrast | null} null where both write the same, or their positions don't fit together
 */
export function contrastOf(session, own, other) {
  if (positionsOf(own).length !== positionsOf(other).length) return null;
  const first = own.written.findIndex((token, i) => token !== other.written[i]);
  if (first < 0 || first >= other.written.length) return null;
  const prefix = own.written.slice(0, first);
  /** @type {[number, number]} */
  const tokens = [own.written[first], other.written[first]];
  const of = (/** @type {Writing} */ writing) => leaningIn(session, writing, { prefix, tokens });
  return { own, other, prefix, tokens, leanings: [of(own), of(other)] };
}

/**
 * What a run says where the outputs of two sentences part.
 * @param {Session} session
 * @param {Writing} writing
 * @param {Pick<Contrast, "prefix" | "tokens">} contrast
 */
export function leaningIn(session, writing, { prefix, tokens }) {
  return leaningOf(session.trace(writing, [...prefix, tokens[0]]), tokens);
}

/**
 * All places of the stack that reads the sentence: a row for each layer, a column for each position and one for all.
 * @param {Session} session
 * @param {Contrast} contrast
 * @param {number | null} part
 * @returns {Cell[][]}
 */
export function gridOf(session, { own, other, prefix, tokens, leanings }, part) {
  const { engine } = session;
  const { numLayers } = engine.config.encoder ?? engine.config.decoder;
  const positions = positionsOf(own).map((_, position) => position);
  const inputs = { source: own.source, target: [...own.start, ...prefix] };
  const length = (own.source ?? []).length + inputs.target.length;
  const cells = (numLayers + 1) * (positions.length + 1);
  const isLarge = cells * length * sizeOf(engine) > MOST_PRODUCTS;
  const donor = session.donor(other);

  /** @type {(layer: number, position: number | null) => Cell[]} */
  const cell = (layer, position) => {
    const place = placeAt(engine, part, layer, position);
    if (!place) return [];
    if (isLarge) return [{ layer, position, effect: null }];
    const trace = engine.trace(inputs, engine.patch(NO_INTERVENTIONS, donor, place));
    const leaning = leaningOf(trace, tokens);
    return [{ layer, position, effect: { share: shareOf(leaning, ...leanings), leaning } }];
  };
  const rows = Array.from({ length: numLayers + 1 }, (_, layer) =>
    [...positions, null].flatMap((position) => cell(layer, position)),
  );
  return rows.filter((row) => row.length);
}
