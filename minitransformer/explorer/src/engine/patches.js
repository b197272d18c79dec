/**
 * Activation patching: numbers of another run, the donor, in the place of this one's; and how far they carry the model
 * towards what it says in the donor. Sources: Vig et al. 2020; Meng et al. 2022, "causal tracing"; the share is that of
 * Wang et al. 2023.
 *
 * @module patches
 */

/**
 * @import { AttentionKind, Interventions, Leaning, Matrix, Patch, PatchPlace } from "./types.js"
 * @import { StackName, StackTrace, Trace } from "./types.js"
 */
import { row } from "./matrix.js";

/**
 * Interventions with one patch more: what the donor has in this place.
 * @param {Interventions} off @param {Trace} donor @param {PatchPlace} place @returns {Interventions}
 */
export function withPatch(off, donor, place) {
  return { ...off, patches: [...off.patches, { ...place, values: valuesAt(donor, place) }] };
}

/** @param {Trace} donor @param {PatchPlace} place @returns {Matrix} */
function valuesAt(donor, { stack: name, layer, kind, head }) {
  const stack = /** @type {StackTrace} */ (donor[name]);
  if (head === null) return layer === 0 ? stack.input : stack.layers[layer - 1].output; // (T, C)
  const sublayer = stack.layers[layer - 1].sublayers.find((each) => each.kind === kind);
  return /** @type {Matrix} */ (sublayer?.attention?.heads[head].output); // (T, Dv)
}

/**
 * The patches of the residual stream after `layer` layers, or of a head's output in that layer.
 * @param {Interventions} off @param {StackName} stack @param {number} layer @param {AttentionKind | null} [kind]
 * @param {number | null} [head]
 */
export function patchesOf(off, stack, layer, kind = null, head = null) {
  return off.patches.filter(
    (each) => each.stack === stack && each.layer === layer && each.kind === kind && each.head === head,
  );
}

/** Whether one of these patches replaces what position t has. @param {readonly Patch[]} patches @param {number} t */
export function isPatched(patches, t) {
  return patches.some((patch) => covers(patch, t));
}

/** @param {Patch} patch @param {number} t */
function covers({ position, values }, t) {
  return t < values.rows && (position === null || position === t);
}

/**
 * x (T, C), whose first row is that of position `start`, with the donor's rows where they are patched in.
 * @param {Matrix} x @param {readonly Patch[]} patches @param {number} start @returns {Matrix}
 */
export function patched(x, patches, start) {
  if (!patches.length) return x;
  const y = { ...x, data: x.data.slice() };
  for (const patch of patches) {
    for (let t = 0; t < x.rows; t++) if (covers(patch, start + t)) row(y, t).set(row(patch.values, start + t));
  }
  return y;
}

/** Returns dx, for whole sequences. @param {Matrix} dy @param {readonly Patch[]} patches @returns {Matrix} */
export function patchedBackward(dy, patches) {
  if (!patches.length) return dy;
  const dx = { ...dy, data: dy.data.slice() };
  for (let t = 0; t < dy.rows; t++) if (isPatched(patches, t)) row(dx, t).fill(0); // y[t] = values[t]
  return dx;
}

/**
 * What a pass says after its last token of two tokens: this run's own and the donor's.
 * @param {Trace} trace @param {readonly [number, number]} tokens @returns {Leaning}
 */
export function leaningOf({ logits, logProbs }, tokens) {
  const last = logits.rows - 1;
  const [own, other] = tokens.map((token) => row(logits, last)[token]);
  const probabilities = tokens.map((token) => Math.exp(row(logProbs, last)[token]));
  return { difference: other - own, probabilities };
}

/**
 * How much of the way from one run's logit difference to the donor's a patch goes: 0 changes nothing, 1 is all.
 * @param {Leaning} patched @param {Leaning} own @param {Leaning} donor
 */
export function shareOf(patched, own, donor) {
  return (patched.difference - own.difference) / (donor.difference - own.difference);
}
