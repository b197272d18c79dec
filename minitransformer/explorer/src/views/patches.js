/** A grid of patches: a row for each layer, a column for each position, and in a cell what its patch brings over. */

import { rove } from "./controls.js";
import { fitted, s, widthOf } from "./dom.js";
import { drawing, explained } from "./figure.js";

/** @typedef {import("../patching.js").Cell} Cell */

const [LABEL, ROW] = [130, 32]; // widest label, height of a row, in pixels

/**
 * @param {Cell[][]} grid
 * @param {string[]} positions labels of all columns but the last
 * @param {Cell | undefined} chosen
 * @param {(cell: Cell) => string} says
 * @param {(cell: Cell) => void} choose
 * @param {number} available width
 */
export function drawPatches(grid, positions, chosen, says, choose, available) {
  const columns = [...positions, "all"];
  const rows = grid.map(([{ layer }]) => (layer ? `layer ${layer}` : "input"));
  const left = Math.max(...rows.map((each) => widthOf(each))) + 10;
  const top = Math.min(LABEL, Math.max(...columns.map((each) => widthOf(each)))) + 10;
  const wide = Math.max(26, Math.min(46, Math.floor((available - left - 4) / columns.length)));
  const svg = drawing(left + wide * columns.length + 4, top + ROW * rows.length + 4, "What each patch brings over");
  const rest = chosen ? says(chosen) : "Click a cell, and the output is written with its patch.";
  const { element, explain } = explained(svg, rest);
  columns.forEach((label, j) => {
    const transform = `translate(${left + wide * (j + 0.5) + 5} ${top - 6}) rotate(-90)`;
    svg.append(s("text", { transform }, fitted(label, LABEL)));
  });
  const squares = grid.map((row, i) => {
    svg.append(s("text", { x: left - 6, y: top + ROW * (i + 0.5) + 5, "text-anchor": "end" }, rows[i]));
    return row.map((cell, j) => {
      const properties = { "aria-pressed": String(cell === chosen), onclick: () => choose(cell) };
      const group = square(cell, left + wide * j, top + ROW * i, wide, properties);
      explain(group, says(cell));
      return group;
    });
  });
  svg.append(...squares.flat());
  rove(svg, squares);
  return element;
}

/**
 * @param {Cell} cell
 * @param {number} x
 * @param {number} y
 * @param {number} wide
 * @param {Record<string, unknown>} properties
 */
function square({ layer, position, effect }, x, y, wide, properties) {
  const share = effect?.share ?? 0;
  return s(
    "g",
    { class: "square", role: "button", "data-key": `patch-${layer}-${position ?? "all"}`, ...properties },
    s("rect", {
      x: x + 1,
      y: y + 1,
      width: wide - 2,
      height: ROW - 2,
      class: share < 0 ? "negative" : "positive",
      "fill-opacity": 0.5 * Math.min(1, Math.abs(share)), // its number stays legible
    }),
    s(
      "text",
      { x: x + wide / 2, y: y + ROW / 2 + 4, "text-anchor": "middle", class: "small" },
      effect ? percents(share) : "·",
    ),
  );
}

/** In percent. @param {number} share */
export function percents(share) {
  const rounded = Math.round(100 * share);
  return `${rounded < 0 ? "−" : ""}${Math.abs(rounded)}`;
}
