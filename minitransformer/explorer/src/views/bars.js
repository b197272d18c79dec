/** A bar for each token: to the right of the axis what is positive, to the left what is negative. */

import { rove } from "./controls.js";
import { fitted, s, widthOf } from "./dom.js";
import { drawing, explained } from "./figure.js";
import { labelOf } from "./tokens.js";

/** @typedef {import("../engine/types.js").Token} Token */

const [LABEL, ROW, HEADING, FIGURE] = [130, 24, 34, 58]; // widest label, heights, room for a figure, in pixels

/**
 * says       what is explained, after the token's label
 * isMarked   it has the colour of negative ones, as these have
 * @typedef {{ value: number, says: string, isMarked?: boolean }} Bar
 * @typedef {{ heading: string, tokens: Token[], bars: Bar[] }} Part
 */

/**
 * isSided   values may be negative
 * least     what the longest bar stands for at least
 * figure    what is written at a bar's end
 * rest      what the line below says while nothing is explained
 * @typedef {{ isSided: boolean, least: number, figure: (value: number) => string, rest: string }} Choice
 */

/**
 * @param {string} label what the figure shows
 * @param {Part[]} parts
 * @param {Choice} choice
 * @param {number} available width
 */
export function drawBars(label, parts, { isSided, least, figure, rest }, available) {
  const labels = parts.map(({ tokens }) => tokens.map((_, i) => labelOf(tokens, i)));
  const width = Math.min(available, 760);
  const left = Math.min(LABEL, Math.max(...labels.flat().map((each) => widthOf(each)))) + 12;
  const zero = isSided ? (left + width) / 2 : left;
  const scale =
    (width - zero - FIGURE) / Math.max(least, ...parts.flatMap(({ bars }) => bars.map(({ value }) => Math.abs(value))));
  const svg = drawing(width, HEADING * parts.length + ROW * labels.flat().length + 8, label);
  const { element, explain } = explained(svg, rest);
  /** @type {SVGElement[][]} */
  const rows = [];
  let y = 0;
  parts.forEach(({ heading, tokens, bars }, part) => {
    const anchor = isSided ? "middle" : "start";
    svg.append(s("text", { x: zero, y: y + 22, "text-anchor": anchor, class: "axis" }, heading));
    y += HEADING;
    svg.append(s("line", { x1: zero, x2: zero, y1: y, y2: y + ROW * bars.length, class: "frame" }));
    bars.forEach(({ value, says, isMarked = value < 0 }, i) => {
      const length = scale * Math.abs(value);
      const [x, end, side] = value < 0 ? [zero - length, zero - length - 6, "end"] : [zero, zero + length + 6, "start"];
      const [name, style] = [labels[part][i], tokens[i].isSpecial ? "special" : ""];
      const group = s(
        "g",
        { class: "bar-row", role: "img" },
        s("text", { x: left - 8, y: y + 16, "text-anchor": "end", class: style }, fitted(name, LABEL)),
        s("rect", { x, y: y + 4, width: length, height: 16, rx: 2, class: isMarked ? "negative" : "positive" }),
        s("text", { x: end, y: y + 16, "text-anchor": side, class: "small" }, figure(value)),
      );
      explain(group, `“${name}”${says}`);
      svg.append(group);
      rows.push([group]);
      y += ROW;
    });
  });
  rove(svg, rows);
  return element;
}
