/**
 * What a visitor has chosen, and its form in the address: everything that is not as at the start stands after the `#`,
 * so that a link shows another visitor the same.
 */

import { NO_INTERVENTIONS } from "./engine/interventions.js";

/** @typedef {import("./engine/types.js").Interventions} Interventions */
/** @typedef {import("./engine/types.js").StackName} StackName */

/** @typedef {"attention" | "stack" | "beam" | "what-if" | "gradient"} ViewName */
/** @typedef {"encoder" | "decoder" | "cross"} MapName */
/** @typedef {"lines" | "map" | "picture"} Display */

/**
 * text          the sentence, a GPT's prompt, or the name of a picture
 * view          the open view
 * map           which attention: the encoder's, the decoder's own, or the decoder's to the source
 * layer, head   of the attention that is shown; head null: all of them
 * display       how attention is drawn; over a picture, if the source is one
 * words         tokens are grouped into words
 * sized         weights are multiplied by the sizes of the values
 * sink          </s> is shown among what is looked at
 * stack, row    the token that the stack view follows: one of the source (encoder), or one that was written (decoder)
 * token         the written token whose gradient is shown, and the place of the candidates
 * measure       of a gradient
 * beams, penalty   of the search
 * temperature   of the candidates
 * seed          null: the search writes; else a GPT's text is drawn
 * prefix        what the changed model writes first
 * edited        the sentence that the changed model reads; null: the same
 * off           what is switched off in the changed model; patches are made of the next three
 * other         the sentence whose run gives its numbers to the changed model
 * part          what is patched: a head's output, or null: the residual stream
 * patch         where: after how many layers, and at which position, null: at all
 * changed       the other views show the changed model
 * @typedef {object} State
 * @property {string} text
 * @property {ViewName} view
 * @property {MapName} map
 * @property {number} layer
 * @property {number | null} head
 * @property {Display} display
 * @property {boolean} words
 * @property {boolean} sized
 * @property {boolean} sink
 * @property {StackName} stack
 * @property {number} row
 * @property {number} token
 * @property {"size" | "product"} measure
 * @property {number} beams
 * @property {number} penalty
 * @property {number} temperature
 * @property {number | null} seed
 * @property {string} prefix
 * @property {string | null} edited
 * @property {Interventions} off
 * @property {string} other
 * @property {number | null} part
 * @property {{ layer: number, position: number | null } | null} patch
 * @property {boolean} changed
 */

export const VIEWS = /** @type {const} */ (["attention", "stack", "beam", "what-if", "gradient"]);
const MAPS = /** @type {const} */ (["encoder", "decoder", "cross"]);
const STACKS = ["encoder", "decoder"];
const ATTENTIONS = ["self_attention", "cross_attention"];
const SUBLAYERS = [...ATTENTIONS, "feed_forward"];
export const LONGEST = 5000; // characters of a text in a link

/**
 * @param {import("./engine/types.js").Engine} engine
 * @returns {State}
 */
export function initialState({ hasEncoder, describes, config, payload }) {
  return {
    text: payload.examples[0] ?? "",
    view: "attention",
    map: hasEncoder ? "cross" : "decoder",
    layer: config.decoder.numLayers - 1,
    head: describes ? null : 0,
    display: describes ? "picture" : "lines",
    words: false,
    sized: false,
    sink: true,
    stack: "decoder",
    row: 0,
    token: 0,
    measure: "size",
    beams: hasEncoder ? 4 : 1,
    penalty: hasEncoder ? 0.6 : 0,
    temperature: 1,
    seed: null,
    prefix: "",
    edited: null,
    off: NO_INTERVENTIONS,
    other: "",
    part: null,
    patch: null,
    changed: false,
  };
}

/** @typedef {(text: string) => unknown} Reader reads a value, or undefined where the text is none */

/** @type {(values: readonly string[]) => Reader} */
const oneOf = (values) => (text) => (values.includes(text) ? text : undefined);
/** @type {(least: number, most: number) => Reader} */
const whole = (least, most) => (text) =>
  /^\d{1,6}$/.test(text) && +text >= least && +text <= most ? +text : undefined;
/** @type {(least: number, most: number) => Reader} */
const between = (least, most) => (text) =>
  /^\d{1,3}(\.\d{1,4})?$/.test(text) && +text >= least && +text <= most ? +text : undefined;
/** @type {Reader} */
const flag = (text) => (text === "1" ? true : text === "0" ? false : undefined);
/** @type {Reader} */
const words = (text) => (text.length <= LONGEST ? text : undefined);
/** @type {(read: Reader) => Reader} */
const orAll = (read) => (text) => (text === "all" ? null : read(text));

/** @type {Record<Exclude<keyof State, "off" | "patch">, Reader>} */
const READERS = {
  text: words,
  view: oneOf(VIEWS),
  map: oneOf(MAPS),
  layer: whole(0, 999),
  head: orAll(whole(0, 999)),
  display: oneOf(["lines", "map", "picture"]),
  words: flag,
  sized: flag,
  sink: flag,
  stack: oneOf(["encoder", "decoder"]),
  row: whole(0, 99999),
  token: whole(0, 99999),
  measure: oneOf(["size", "product"]),
  beams: whole(1, 12),
  penalty: between(0, 4),
  temperature: between(0, 9),
  seed: orAll(whole(0, 999999)),
  prefix: words,
  edited: words,
  other: words,
  part: orAll(whole(0, 999)),
  changed: flag,
};

/** @param {unknown} value */
function written(value) {
  return value === null ? "all" : typeof value === "boolean" ? String(+value) : String(value);
}

/**
 * A state as the part of an address after the `#`.
 * @param {State} state
 * @param {State} initial
 * @returns {string}
 */
export function toFragment(state, initial) {
  const values = new URLSearchParams();
  for (const name of /** @type {(keyof typeof READERS)[]} */ (Object.keys(READERS)))
    if (state[name] !== initial[name]) values.set(name, written(state[name]));
  const off = [
    ...state.off.heads.map(({ stack, layer, kind, head }) => `h.${stack}.${layer}.${kind}.${head}`),
    ...state.off.sublayers.map(({ stack, layer, kind }) => `s.${stack}.${layer}.${kind ?? "all"}`),
    ...state.off.masked.map(({ stack, position }) => `m.${stack}.${position}`),
    ...state.off.unplaced.map(({ stack, position }) => `u.${stack}.${position}`),
  ];
  if (off.length) values.set("off", off.join(" "));
  if (state.patch) values.set("patch", `${state.patch.layer}.${state.patch.position ?? "all"}`);
  return values.toString();
}

/**
 * The state of such a part of an address. What makes no sense in it is left out.
 * @param {string} fragment
 * @param {State} initial
 * @returns {State}
 */
export function fromFragment(fragment, initial) {
  const values = new URLSearchParams(fragment.replace(/^#/, ""));
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const [name, read] of Object.entries(READERS)) {
    const text = values.get(name);
    const value = text === null ? undefined : read(text);
    if (value !== undefined) found[name] = value;
  }
  const [, layer, position] = /^(\d{1,3})\.(\d{1,5}|all)$/.exec(values.get("patch") ?? "") ?? [];
  const patch = layer ? { layer: +layer, position: position === "all" ? null : +position } : null;
  return /** @type {State} */ ({ ...initial, ...found, off: placesIn(values.get("off") ?? ""), patch });
}

/**
 * @param {string} text
 * @returns {Interventions}
 */
function placesIn(text) {
  const off = /** @type {{ -readonly [K in keyof Interventions]: Interventions[K][number][] }} */ ({
    heads: [],
    sublayers: [],
    masked: [],
    unplaced: [],
    patches: [],
  });
  for (const place of text.split(" ").slice(0, 1000)) {
    const [what, stack, number, kind, head] = /** @type {any[]} */ (place.split("."));
    if (!STACKS.includes(stack) || !/^\d{1,5}$/.test(number)) continue;
    if (what === "m") off.masked.push({ stack, position: +number });
    else if (what === "u") off.unplaced.push({ stack, position: +number });
    else if (what === "s" && kind === "all") off.sublayers.push({ stack, layer: +number, kind: null });
    else if (what === "s" && SUBLAYERS.includes(kind)) off.sublayers.push({ stack, layer: +number, kind });
    else if (what === "h" && ATTENTIONS.includes(kind) && /^\d{1,3}$/.test(head))
      off.heads.push({ stack, layer: +number, kind, head: +head });
  }
  return off;
}

/**
 * Interventions with one place more, or without it if it was there.
 * @template {keyof Interventions} K
 * @param {Interventions} off
 * @param {K} kind
 * @param {Interventions[K][number]} place
 * @returns {Interventions}
 */
export function toggled(off, kind, place) {
  const same = JSON.stringify(place);
  const without = off[kind].filter((each) => JSON.stringify(each) !== same);
  return { ...off, [kind]: without.length < off[kind].length ? without : [...without, place] };
}

/**
 * @template {keyof Interventions} K
 * @param {Interventions} off
 * @param {K} kind
 * @param {Interventions[K][number]} place
 */
export function isOff(off, kind, place) {
  const same = JSON.stringify(place);
  return off[kind].some((each) => JSON.stringify(each) === same);
}
