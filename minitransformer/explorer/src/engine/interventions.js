/**
 * What a visitor switched off, as questions that the layers ask.
 *
 * @module interventions
 */

/** @import { AttentionKind, Interventions, StackName, SublayerKind } from "./types.js" */
/** @import { Place } from "./positions.js" */

/** @type {Interventions} */
export const NO_INTERVENTIONS = Object.freeze({
  heads: Object.freeze([]),
  sublayers: Object.freeze([]),
  masked: Object.freeze([]),
  unplaced: Object.freeze([]),
  patches: Object.freeze([]),
});

/**
 * @param {Interventions} off @param {StackName} stack @param {number} layer @param {AttentionKind} kind
 * @param {number} head
 */
export function isHeadOff(off, stack, layer, kind, head) {
  return off.heads.some(
    (each) => each.stack === stack && each.layer === layer && each.kind === kind && each.head === head,
  );
}

/** @param {Interventions} off @param {StackName} stack @param {number} layer @param {SublayerKind} kind */
export function isSublayerOff(off, stack, layer, kind) {
  return off.sublayers.some(
    (each) => each.stack === stack && each.layer === layer && (each.kind === null || each.kind === kind),
  );
}

/**
 * For each of the first `count` positions whether no query sees it.
 * @param {Interventions} off @param {StackName} stack @param {number} count
 */
export function maskedPositions(off, stack, count) {
  const isMasked = new Array(count).fill(false);
  for (const each of off.masked) if (each.stack === stack && each.position < count) isMasked[each.position] = true;
  return /** @type {boolean[]} */ (isMasked);
}

/**
 * The places of positions start … start + count − 1, null where the model is not told.
 * @param {Interventions} off @param {StackName} stack @param {number} start @param {number} count @returns {Place[]}
 */
export function placesOf(off, stack, start, count) {
  /** @type {Place[]} */
  const places = Array.from({ length: count }, (_, t) => start + t);
  for (const { stack: where, position } of off.unplaced) {
    if (where === stack && position >= start && position < start + count) places[position - start] = null;
  }
  return places;
}
