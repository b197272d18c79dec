/** Who looks at whom: attention as lines between words, or as maps, of one head or of all. */

import { choice, checkbox, controls, rove } from "./controls.js";
import { fitted, fixed, h, replace, s, widthOf } from "./dom.js";
import { drawing, explained, roomIn } from "./figure.js";
import { openFormula } from "./formula.js";
import { attentionOf, axes, mapOf, NAMES } from "./maps.js";
import { drawPicture } from "./pictures.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../engine/types.js").AttentionTrace} AttentionTrace */
/** @typedef {import("../state.js").Display} Display */
/** @typedef {import("../state.js").MapName} MapName */
/** @typedef {import("./maps.js").Map2D} Map2D */

const FAINTEST = 0.02; // lines below this are left out
const LABEL = 130; // widest label, in pixels

/** @type {Record<MapName, string>} */
const CAPTIONS = {
  encoder: "Encoder: each source token looks at all source tokens.",
  decoder: "Decoder: to write a token, the model looks at the tokens before it.",
  cross: "Cross: to write a token, the decoder looks at the source.",
};

/** @type {Record<MapName, string>} of a captioner */
const OF_PICTURES = {
  ...CAPTIONS,
  encoder: "Encoder: each patch looks at all patches. They are named by row and column: “1,2” is right of “1,1”.",
  cross: "Cross: to write a token, the decoder looks at the patches of the picture.",
};

/**
 * @param {App} app
 * @returns {{ element: HTMLElement, update: () => void }}
 */
export function attentionView(app) {
  const { engine } = app;
  const stackOf = () => (app.state.map === "encoder" ? engine.config.encoder : engine.config.decoder);
  const numLayers = () => stackOf()?.numLayers ?? 0;
  const numHeads = () => stackOf()?.attentions[0].numHeads ?? 0;
  const counted = (/** @type {number} */ count) =>
    [...Array(count).keys()].map((value) => ({ value, text: String(value + 1) }));
  /** @type {MapName[]} */
  const maps = engine.hasEncoder ? ["encoder", "decoder", "cross"] : ["decoder"];
  const panel = controls(
    ...(engine.hasEncoder
      ? [
          choice(
            "Attention",
            () => maps.map((value) => ({ value, text: NAMES[value] })),
            () => app.state.map,
            (map) => app.set({ map, head: engine.describes && map === "encoder" ? (headOf() ?? 0) : app.state.head }),
          ),
        ]
      : []),
    choice(
      "Layer",
      () => counted(numLayers()),
      () => layerOf(),
      (layer) => app.set({ layer }),
    ),
    choice(
      "Head",
      () => [
        ...counted(numHeads()),
        { value: /** @type {number | null} */ (null), text: displayOf() === "picture" ? "Mean" : "All" },
      ],
      () => headOf(),
      (head) => app.set({ head }),
    ),
    choice(
      "Show",
      () => [
        ...(engine.describes && app.state.map === "cross"
          ? [{ value: /** @type {Display} */ ("picture"), text: "Picture" }]
          : []),
        { value: /** @type {Display} */ ("lines"), text: "Lines" },
        { value: /** @type {Display} */ ("map"), text: "Map" },
      ],
      () => displayOf(),
      (display) => app.set({ display }),
    ),
    controls(
      checkbox(
        "Words",
        () => app.state.words,
        (words) => app.set({ words }),
        "Group the tokens of a word",
      ),
      checkbox(
        "Size of values",
        () => app.state.sized,
        (sized) => app.set({ sized }),
        "Multiply each weight by the size of what it brings: the value after the output projection",
      ),
      ...(engine.describes
        ? []
        : [
            checkbox(
              "End mark",
              () => app.state.sink,
              (sink) => app.set({ sink }),
              "Show </s>, where a head that has nothing to do often looks",
            ),
          ]),
    ),
  );
  const figure = h("div", { id: "figure" });
  const thumbs = h("div", { class: "thumbnails" });
  const element = h(
    "div",
    {},
    panel.element,
    h("div", { class: "beside" }, figure, h("div", {}, h("h3", {}, "All heads"), thumbs)),
  );

  function displayOf() {
    return app.state.display === "picture" && app.state.map !== "cross" ? "map" : app.state.display;
  }
  function layerOf() {
    return Math.min(app.state.layer, numLayers() - 1);
  }
  function headOf() {
    return app.state.head === null ? null : Math.min(app.state.head, numHeads() - 1);
  }

  function nothing() {
    replace(thumbs);
    replace(figure, app.nothing());
  }

  function update() {
    panel.show();
    const writing = app.session.shown(app.state);
    if (!writing) return nothing();
    const trace = app.session.trace(writing);
    const tokens = axes(engine, writing, app.state.map);
    const attention = attentionOf(trace, app.state.map, layerOf());
    if (!attention) return nothing();
    const head = headOf();
    const shown = head === null ? attention.heads.map((_, i) => i) : [head];
    const drawn = shown.map((i) => mapOf(attention.heads[i], tokens, app.state));
    replace(thumbs, ...thumbnails());
    const width = roomIn(figure); // what the thumbnails beside it leave
    const draw = { lines: drawLines, map: drawMaps, picture: drawPicture.bind(null, app) }[displayOf()];
    const caption = (engine.describes ? OF_PICTURES : CAPTIONS)[app.state.map];
    replace(figure, h("p", { class: "caption" }, caption), draw(drawn, shown, width, explain, open));

    /** @type {(map: Map2D, head: number, q: number, k: number) => string} */
    function explain(map, head, q, k) {
      const each = /** @type {AttentionTrace} */ (attention).heads[head];
      const [query, key] = [map.queries[q], map.keys[k]];
      /** @type {(factor: (i: number) => number) => number} of the weights: summed over keys, averaged over queries */
      const sumOf = (factor) =>
        key.indices.reduce(
          (sum, i) =>
            sum +
            query.indices.reduce((inner, j) => inner + each.weights.data[j * each.weights.cols + i], 0) * factor(i),
          0,
        ) / query.indices.length;
      const weight = sumOf(() => 1);
      const product = sumOf((i) => each.projectedNorms[i]);
      const one = query.indices.length === 1 && key.indices.length === 1;
      const at = query.indices[0] * each.scores.cols + key.indices[0];
      const score = !one
        ? ""
        : each.masked.data[at] === -Infinity
          ? " It may not look there."
          : ` Score ${fixed(each.scores.data[at])}.`;
      return (
        `Head ${head + 1}: “${query.label}” looks at “${key.label}” with weight ${fixed(weight, 3)}.${score}` +
        (key.indices.length === 1
          ? ` Size of the value ${fixed(each.projectedNorms[key.indices[0]])}, times the weight ${fixed(product)}.`
          : ` Sizes of the values, each times its weight: ${fixed(product)}.`)
      );
    }

    /** @type {(map: Map2D, head: number, q: number, k: number) => void} */
    function open(map, head, q, k) {
      openFormula(
        app,
        trace,
        app.state.map,
        layerOf(),
        head,
        map.queries[q].indices[0],
        map.keys[k].indices[0],
        tokens,
      );
    }

    function thumbnails() {
      const rows = [];
      for (let layer = 0; layer < numLayers(); layer += 1) {
        const heads = attentionOf(trace, app.state.map, layer)?.heads ?? [];
        rows.push(
          h(
            "div",
            { class: "row" },
            h("span", { class: "label" }, `Layer ${layer + 1}`),
            ...heads.map((each, number) => {
              const chosen = layer === layerOf() && (head === null || number === head);
              return h(
                "button",
                {
                  type: "button",
                  class: "thumbnail",
                  "aria-pressed": String(chosen),
                  "data-key": `thumb-${layer}-${number}`,
                  "aria-label": `Layer ${layer + 1}, head ${number + 1}`,
                  onclick: () => app.set({ layer, head: number }),
                },
                picture(mapOf(each, tokens, app.state)),
                h("span", { "aria-hidden": "true", style: `color:var(--head-${number % 8})` }, String(number + 1)),
              );
            }),
          ),
        );
      }
      return rows;
    }
  }
  return { element, update };
}

/** @param {Map2D} map */
function picture({ rows }) {
  const [height, width] = [rows.length, rows[0]?.length ?? 0];
  const canvas = h("canvas", { width: Math.max(1, width), height: Math.max(1, height), "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  if (!context || !width) return canvas;
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  rows.forEach((row, i) =>
    row.forEach((weight, j) => {
      context.globalAlpha = Math.min(1, weight);
      context.fillRect(j, i, 1, 1);
    }),
  );
  return canvas;
}

/**
 * @typedef {(map: Map2D, head: number, q: number, k: number) => string} Explain
 * @typedef {(map: Map2D, head: number, q: number, k: number) => void} Open
 */

/**
 * Two columns of tokens, the ones that look and the ones that are looked at, and a line for each pair.
 * @param {Map2D[]} maps
 * @param {number[]} heads
 * @param {number} available
 * @param {Explain} explain
 * @param {Open} open
 */
function drawLines(maps, heads, available, explain, open) {
  const { queries, keys } = maps[0];
  const width = Math.min(available, 640);
  const label = Math.min(LABEL, width * 0.34);
  const [left, right] = [label, width - label];
  const pitch = 26;
  const height = 30 + pitch * Math.max(queries.length, keys.length);
  const y = (/** @type {number} */ i) => 36 + pitch * i;
  const many = maps.length > 1;
  const lines = s("g", { fill: "none" });
  const svg = drawing(
    width,
    height + 12,
    "Attention as lines",
    s("text", { x: left - 8, y: 14, "text-anchor": "end", class: "axis" }, "looks"),
    s("text", { x: right + 8, y: 14, class: "axis" }, "is looked at"),
    lines,
  );
  const {
    element,
    explain: attach,
    point,
  } = explained(
    svg,
    (many ? "Lines have the colours of the heads’ numbers. " : "") +
      "Point at a token or a line, or move through the tokens with Tab and the arrow keys. The map has each pair.",
  );
  maps.forEach(({ rows }, which) => {
    const beside = (which - (maps.length - 1) / 2) * Math.min(3, 20 / maps.length); // so that none hides another
    rows.forEach((row, i) =>
      row.forEach((weight, j) => {
        if (weight < FAINTEST) return;
        const middle = (left + right) / 2;
        const [from, to] = [y(i) + beside, y(j) + beside];
        const line = s("path", {
          d: `M${left},${from} C${middle},${from} ${middle},${to} ${right},${to}`,
          "data-query": i,
          "data-key-index": j,
          "stroke-width": 0.6 + (many ? 2.4 : 4.4) * Math.min(1, weight),
          "stroke-opacity": 0.12 + 0.88 * Math.min(1, weight),
          class: `ray head-${heads[which] % 8}`,
          onclick: () => open(maps[which], heads[which], i, j),
        });
        point(line, explain(maps[which], heads[which], i, j));
        lines.append(line);
      }),
    );
  });

  /** @type {(attribute: string, index: number) => (() => void)} */
  const only = (attribute, index) => () => {
    for (const line of lines.children) line.classList.toggle("faded", line.getAttribute(attribute) !== String(index));
  };
  const all = () => [...lines.children].forEach((line) => line.classList.remove("faded"));
  /** @type {(side: "query" | "key", entry: import("./tokens.js").Entry, i: number) => SVGElement} */
  const token = (side, entry, i) => {
    const isQuery = side === "query";
    const sums = maps.map(({ rows }) => (isQuery ? rows[i] : rows.map((row) => row[i])));
    const average = sums[0].map((_, j) => sums.reduce((sum, row) => sum + row[j], 0) / sums.length);
    const others = isQuery ? keys : queries;
    const best = average
      .map((weight, j) => ({ weight, j }))
      .sort((a, b) => b.weight - a.weight)
      .slice(0, 3);
    const said = best.map(({ weight, j }) => `“${others[j].label}” ${fixed(weight, 2)}`).join(", ");
    const group = s(
      "g",
      {
        class: "token",
        role: "button",
        "data-key": `${side}-${i}`,
        onclick: () => {
          const [q, k] = isQuery ? [i, best[0].j] : [best[0].j, i];
          open(maps[0], heads[0], q, k);
        },
      },
      s("rect", { x: isQuery ? 0 : right, y: y(i) - 12, width: label, height: 24, rx: 6 }),
      s(
        "text",
        {
          x: isQuery ? left - 8 : right + 8,
          y: y(i) + 4,
          "text-anchor": isQuery ? "end" : "start",
          class: entry.isSpecial ? "special" : "",
        },
        fitted(entry.label, label - 12),
      ),
    );
    attach(group, isQuery ? `“${entry.label}” looks at ${said}.` : `“${entry.label}” is looked at by ${said}.`);
    for (const event of ["pointerenter", "focus"])
      group.addEventListener(event, only(isQuery ? "data-query" : "data-key-index", i));
    for (const event of ["pointerleave", "blur"]) group.addEventListener(event, all);
    return group;
  };
  const sides = [queries.map((entry, i) => token("query", entry, i)), keys.map((entry, j) => token("key", entry, j))];
  svg.append(...sides.flat());
  rove(
    svg,
    [...Array(Math.max(queries.length, keys.length)).keys()].map((i) => sides.map((side) => side[i])),
  );
  return element;
}

/**
 * Maps side by side: a row for each token that looks, a column for each that is looked at.
 * @param {Map2D[]} maps
 * @param {number[]} heads
 * @param {number} available
 * @param {Explain} explain
 * @param {Open} open
 */
function drawMaps(maps, heads, available, explain, open) {
  const { queries, keys } = maps[0];
  const left = Math.min(LABEL, Math.max(...queries.map(({ label }) => widthOf(label)))) + 10;
  const top = Math.min(LABEL, Math.max(...keys.map(({ label }) => widthOf(label)))) + 10;
  const many = maps.length > 1;
  const room = (/** @type {number} */ columns) => Math.floor((available / columns - left - 12) / keys.length);
  let columns = maps.length;
  while (columns > 1 && room(columns) < 15) columns -= 1;
  const cell = Math.max(many ? 10 : 14, Math.min(many ? 18 : 34, room(columns)));
  const [wide, high] = [left + cell * keys.length + 12, top + cell * queries.length + (many ? 30 : 8)];
  const width = wide * columns,
    height = high * Math.ceil(maps.length / columns);
  const svg = drawing(width, height, "Attention as a map");
  const { element, explain: attach } = explained(
    svg,
    "Point at a cell, or move with the arrow keys; a click opens the formula.",
  );
  maps.forEach((map, which) => {
    const [x0, y0] = [(which % columns) * wide, Math.floor(which / columns) * high + (many ? 20 : 0)];
    const size = Math.min(13, cell - 1);
    const group = s("g", { transform: `translate(${x0} ${y0})` });
    if (many) group.append(s("text", { x: left, y: -6, class: "axis" }, `Head ${heads[which] + 1}`));
    if (cell >= 10) {
      queries.forEach(({ label, isSpecial }, i) =>
        group.append(
          s(
            "text",
            {
              x: left - 6,
              y: top + cell * (i + 0.5) + size * 0.35,
              "text-anchor": "end",
              style: `font-size:${size}px`,
              class: isSpecial ? "special" : "",
            },
            fitted(label, LABEL, size),
          ),
        ),
      );
      keys.forEach(({ label, isSpecial }, j) =>
        group.append(
          s(
            "text",
            {
              transform: `translate(${left + cell * (j + 0.5) + size * 0.35} ${top - 6}) rotate(-90)`,
              style: `font-size:${size}px`,
              class: isSpecial ? "special" : "",
            },
            fitted(label, LABEL, size),
          ),
        ),
      );
    }
    group.append(
      s("rect", { x: left, y: top, width: cell * keys.length, height: cell * queries.length, class: "frame" }),
    );
    const cells = map.rows.map((row, i) =>
      row.map((weight, j) => {
        const rect = s("rect", {
          x: left + cell * j,
          y: top + cell * i,
          width: cell,
          height: cell,
          "fill-opacity": Math.min(1, weight),
          class: "cell",
          role: "button",
          "data-key": `cell-${which}-${i}-${j}`,
          onclick: () => open(map, heads[which], i, j),
        });
        attach(rect, explain(map, heads[which], i, j));
        return rect;
      }),
    );
    group.append(...cells.flat());
    rove(group, cells);
    svg.append(group);
  });
  return element;
}
