/** The formula of one cell of attention with its real numbers, in a dialog. */

import { isPatched, patchesOf } from "../engine/patches.js";
import { byId, fixed, h, percent, replace, s } from "./dom.js";
import { attentionOf, NAMES } from "./maps.js";
import { labelOf } from "./tokens.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../engine/types.js").Matrix} Matrix */
/** @typedef {import("../engine/types.js").Token} Token */
/** @typedef {import("../engine/types.js").Trace} Trace */
/** @typedef {import("../state.js").MapName} MapName */

/**
 * @param {App} app
 * @param {Trace} trace
 * @param {MapName} map
 * @param {number} layer
 * @param {number} number of the head
 * @param {number} q the position that looks
 * @param {number} k the position that is looked at
 * @param {{ queries: Token[], keys: Token[] }} tokens
 */
export function openFormula(app, trace, map, layer, number, q, k, tokens) {
  const attention = attentionOf(trace, map, layer);
  const head = attention?.heads[number];
  if (!attention || !head) return;
  const dialog = /** @type {HTMLDialogElement} */ (byId("formula"));
  const [query, key, value] = [row(head.query, q), row(head.key, k), row(head.value, k)];
  const products = query.map((each, i) => each * key[i]);
  const dot = products.reduce((sum, each) => sum + each, 0);
  const at = q * head.scores.cols + k;
  const [score, masked, weight] = [head.scores.data[at], head.masked.data[at], head.weights.data[at]];
  const bias = head.bias?.data[at] ?? null;
  const visible = row(head.masked, q);
  const highest = Math.max(...visible);
  const total = visible.reduce((sum, each) => sum + Math.exp(each - highest), 0);
  const [looks, seen] = [labelOf(tokens.queries, q), labelOf(tokens.keys, k)];
  const softcap = attention.softcap;
  const stack = map === "encoder" ? "encoder" : "decoder";
  const patches = patchesOf(trace.interventions, stack, layer + 1, attention.kind, number);
  const go = (/** @type {number} */ down, /** @type {number} */ right) => () =>
    openFormula(
      app,
      trace,
      map,
      layer,
      number,
      clamp(q + down, head.scores.rows),
      clamp(k + right, head.scores.cols),
      tokens,
    );
  replace(
    dialog,
    h(
      "header",
      {},
      h("h2", { id: "formula-title" }, "“", h("bdi", {}, looks), "” looks at “", h("bdi", {}, seen), "”"),
      h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() }, "×"),
    ),
    h("p", { class: "caption" }, `${NAMES[map]} attention, layer ${layer + 1}, head ${number + 1}.`),
    h(
      "div",
      { class: "steps", role: "group", "aria-label": "Another cell" },
      step("query-before", "‹ query", go(-1, 0)),
      step("query-after", "query ›", go(1, 0)),
      step("key-before", "‹ key", go(0, -1)),
      step("key-after", "key ›", go(0, 1)),
    ),
    h(
      "ol",
      { class: "formula" },
      item(
        "The query of the token that looks and the key of the token that is seen",
        strip("query", query),
        strip("key", key),
      ),
      item(
        "Their products, number by number, add up to the dot product",
        strip("query × key", products),
        equation("query · key", fixed(dot, 4)),
      ),
      item(
        "The scale keeps the scores small where vectors are long",
        equation(`query · key × ${fixed(attention.scale, 4)}`, fixed(dot * attention.scale, 4)),
      ),
      softcap !== null &&
        item(
          "The cap bends large scores",
          equation(
            `${fixed(softcap)} · tanh(score / ${fixed(softcap)})`,
            fixed(softcap * Math.tanh((dot * attention.scale) / softcap), 4),
          ),
        ),
      bias !== null &&
        item("The distance of the two tokens adds a bias", equation(`score + ${fixed(bias, 4)}`, fixed(score, 4))),
      masked === -Infinity
        ? item("The mask forbids this look: the score becomes −∞, the weight 0", equation("weight", "0"))
        : item(
            "Softmax: e to the score, divided by the sum over all that may be seen",
            equation(
              `e^(${fixed(masked)} − ${fixed(highest)}) / ${fixed(total, 4)}`,
              `${fixed(weight, 4)}, ${percent(weight)}`,
            ),
          ),
      item(
        "The value of the token that is seen, times the weight, is what comes over",
        strip("value", value),
        strip(
          "weight × value",
          value.map((each) => each * weight),
        ),
      ),
      item(
        "The sum over all tokens is the head’s output",
        strip("output", row(head.output, q)),
        head.isOff && h("p", {}, "This head is switched off: zeros go on in place of its output."),
        isPatched(patches, q) && h("p", {}, "This head is patched: the other run’s output goes on in its place."),
      ),
    ),
  );
  if (!dialog.open) dialog.showModal();
}

/**
 * @param {string} key
 * @param {string} text
 * @param {() => void} go
 */
function step(key, text, go) {
  return h("button", { type: "button", "data-key": key, onclick: go }, text);
}

/** @type {(value: number, size: number) => number} */
const clamp = (value, size) => Math.max(0, Math.min(size - 1, value));

/**
 * @param {string} title
 * @param {...(Node | false | null)} children
 */
function item(title, ...children) {
  return h("li", {}, h("p", {}, title), ...children);
}

/**
 * @param {string} left
 * @param {string} right
 */
function equation(left, right) {
  return h("p", { class: "equation" }, left, " = ", h("strong", {}, right));
}

/**
 * @param {Matrix} matrix
 * @param {number} i
 */
function row({ cols, data }, i) {
  return [...data.subarray(i * cols, (i + 1) * cols)];
}

/**
 * A vector as coloured cells, its numbers below.
 * @param {string} name
 * @param {number[]} vector
 */
function strip(name, vector) {
  const largest = Math.max(...vector.map(Math.abs), 1e-30);
  const cells = vector.map((each, i) =>
    s(
      "rect",
      {
        x: i * 10,
        y: 0,
        width: 10,
        height: 18,
        class: each < 0 ? "negative" : "positive",
        "fill-opacity": Math.abs(each) / largest,
      },
      s("title", {}, `${name}[${i}] = ${fixed(each, 4)}`),
    ),
  );
  const numbers = vector.map((each) => fixed(Math.abs(each) < 0.005 ? 0 : each)).join("  ");
  return h(
    "div",
    { class: "strip" },
    h("span", { class: "name" }, name),
    s(
      "svg",
      {
        viewBox: `0 0 ${vector.length * 10} 18`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${name}, ${vector.length} numbers`,
      },
      ...cells,
    ),
    h("details", {}, h("summary", {}, `${vector.length} numbers`), h("p", { class: "numbers" }, numbers)),
  );
}
