/** The search as a tree: which prefixes were kept and which were dropped, and the candidates at each position. */

import { visible } from "../engine/utf8.js";
import { controls, rove, slider, tokenChoice } from "./controls.js";
import { fitted, fixed, h, percent, replace, s } from "./dom.js";
import { drawing, explained } from "./figure.js";
import { labelOf } from "./tokens.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../engine/types.js").SearchNode} SearchNode */
/** @typedef {import("../session.js").Writing} Writing */

const [WIDE, HIGH] = [122, 40];
const DROPPED = 3; // dropped prefixes that are drawn at each step

const FATES = {
  kept: "It was kept.",
  dropped: "It was dropped.",
  ended: "It is finished.",
  cut: "It reached the longest output.",
  forced: "It was given.",
};

/**
 * @param {App} app
 * @returns {{ element: HTMLElement, update: () => void }}
 */
export function beamView(app) {
  const { engine } = app;
  const panel = controls(
    slider(
      "Beams",
      { least: 1, most: 8, step: 1 },
      () => app.state.beams,
      (beams) => app.set({ beams, seed: null }),
    ),
    slider(
      "Length penalty α",
      { least: 0, most: 2, step: 0.1 },
      () => app.state.penalty,
      (penalty) => app.set({ penalty, seed: null }),
      (value) => value.toFixed(1),
    ),
  );
  const figure = h("div", { id: "figure" });
  const position = tokenChoice(
    "Position",
    () => app.written(),
    () => app.state.token,
    (token) => app.set({ token }),
  );
  const places = controls(
    position,
    slider(
      "Temperature",
      { least: 0.1, most: 3, step: 0.1 },
      () => app.state.temperature,
      (temperature) => app.set({ temperature }),
      (value) => value.toFixed(1),
    ),
  );
  const candidates = h("div", {});
  const element = h(
    "div",
    {},
    panel.element,
    figure,
    h("h3", {}, "What could stand at one position"),
    places.element,
    candidates,
  );

  function update() {
    panel.show();
    places.show();
    const writing = app.session.shown(app.state);
    replace(candidates);
    if (!writing) return replace(figure, app.nothing());
    if (writing.nodes.length) {
      const caption =
        "From left to right: each step keeps the best prefixes (solid) and drops the others (pale). " +
        "The best path is marked. A click continues another one in “What if”.";
      replace(figure, h("p", { class: "caption" }, caption), draw(app, writing));
    } else
      replace(
        figure,
        h(
          "p",
          { class: "nothing" },
          app.state.seed === null
            ? "Nothing has been searched yet: start above."
            : "This text was drawn, not searched: there is no tree. Move a slider to search.",
        ),
      );
    const trace = app.session.trace(writing);
    const row = Math.min(writing.start.length - 1 + position.current(), trace.logits.rows - 1);
    const top = engine.top(trace, row, 10, app.state.temperature);
    replace(
      candidates,
      h(
        "ol",
        { class: "bars" },
        ...top.map(({ token, probability, logProb }) =>
          h(
            "li",
            { title: `log-probability ${fixed(logProb, 3)}` },
            h("bdi", { class: "name" }, labelOf([token], 0)),
            h("span", { class: "bar" }, h("span", { style: `width:${(100 * probability).toFixed(2)}%` })),
            h("span", { class: "number" }, percent(probability)),
          ),
        ),
      ),
    );
  }
  return { element, update };
}

/**
 * @param {App} app
 * @param {Writing} writing
 */
function draw(app, writing) {
  /** @type {SearchNode[][]} */
  const levels = [];
  let dropped = 0;
  for (const node of writing.nodes) {
    if (!node?.token) continue;
    const level = (levels[node.depth - 1] ??= []);
    if (node.status !== "dropped") level.push(node);
    else if (level.filter(({ status }) => status === "dropped").length < DROPPED) level.push(node);
    else dropped += 1;
  }
  for (const level of levels) level.sort((a, b) => a.rank - b.rank);
  const best = new Set(writing.path(writing.best).map(({ id }) => id));
  const most = Math.max(1, ...levels.map((level) => level.length));
  const [width, height] = [60 + WIDE * levels.length, 16 + HIGH * most];
  const edges = s("g", { fill: "none" });
  const svg = drawing(
    width,
    height,
    "The search as a tree",
    edges,
    s("text", { x: 8, y: 26, class: "axis" }, app.engine.hasEncoder ? "<s>" : "…"),
  );
  const rest =
    `Scores are log-probabilities divided by ((5 + length) / 6)^${fixed(app.state.penalty, 1)}. ` +
    (dropped ? `${dropped} more dropped prefixes are not drawn.` : "");
  const { element, explain } = explained(svg, rest);
  /** @type {Map<number, { x: number, y: number }>} */
  const places = new Map([[0, { x: 38, y: 22 }]]);
  const cells = levels.map((level, depth) =>
    level.map((node, i) => {
      const [x, y] = [54 + WIDE * depth, 6 + HIGH * i];
      places.set(node.id, { x: x + WIDE - 18, y: y + 16 });
      const parent = places.get(node.parent);
      const marked = best.has(node.id);
      if (parent) {
        const middle = (parent.x + x) / 2;
        edges.append(
          s("path", {
            d: `M${parent.x},${parent.y} C${middle},${parent.y} ${middle},${y + 16} ${x},${y + 16}`,
            class: `edge ${node.status}${marked ? " best" : ""}`,
          }),
        );
      }
      const ids = writing
        .path(node.id)
        .map(({ token }) => /** @type {import("../engine/types.js").Token} */ (token).id);
      const tokens = app.engine.tokens(ids);
      const label = labelOf(tokens, tokens.length - 1);
      const shown = fitted(node.status === "ended" ? `${label} ✓` : label, WIDE - 32);
      const [score, share] = [fixed(node.score > -0.005 ? 0 : node.score), percent(Math.exp(node.tokenLogProb))];
      const group = s(
        "g",
        {
          class: `node ${node.status}${marked ? " best" : ""}`,
          role: "button",
          "data-key": `node-${node.id}`,
          onclick: () => app.set({ view: "what-if", prefix: app.engine.decode(ids) }),
        },
        s("rect", { x, y, width: WIDE - 18, height: 33, rx: 7 }),
        s("text", { x: x + 7, y: y + 14 }, shown),
        s(
          "text",
          { x: x + 7, y: y + 27, class: "small" },
          `${score} `,
          s("tspan", { x: x + WIDE - 25, "text-anchor": "end" }, share),
        ),
      );
      explain(
        group,
        `${shown} ${score} ${share}: score ${fixed(node.score, 3)} and log-probability ${fixed(node.logProb, 3)} ` +
          `of “${visible(app.engine.decode(ids))}”; the last token has probability ${share}, ` +
          `rank ${node.rank + 1} of its step. ${FATES[node.status]}`,
      );
      return group;
    }),
  );
  svg.append(...cells.flat());
  rove(
    svg,
    [...Array(most).keys()].map((i) => cells.map((column) => column[i])),
  );
  return element;
}
