/** One token's way through a stack: what each part adds to the residual stream, and what the model would say there. */

import { isPatched, patchesOf } from "../engine/patches.js";
import { choice, controls, rove, tokenChoice } from "./controls.js";
import { fitted, fixed, h, percent, replace, s, signed } from "./dom.js";
import { drawing, explained, roomIn } from "./figure.js";
import { openFormula } from "./formula.js";
import { axes, PARTS } from "./maps.js";
import { labelOf } from "./tokens.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../engine/types.js").LensEntry} LensEntry */
/** @typedef {import("../engine/types.js").Matrix} Matrix */
/** @typedef {import("../engine/types.js").StackTrace} StackTrace */
/** @typedef {import("../engine/types.js").SublayerTrace} SublayerTrace */
/** @typedef {import("../engine/types.js").Trace} Trace */
/** @typedef {import("../state.js").MapName} MapName */

const MOST_CELLS = 10_000; // of the figure

/**
 * A line of the figure: a vector of the token.
 * `adds`: it is added to the stream, else it is the stream itself. `lens`: what the output layer would say there.
 * @typedef {object} Stage
 * @property {string} name
 * @property {Float32Array} vector
 * @property {boolean} adds
 * @property {LensEntry | null} lens
 * @property {SublayerTrace | null} sublayer
 * @property {number} layer
 */

/**
 * @param {App} app
 * @returns {{ element: HTMLElement, update: () => void }}
 */
export function stackView(app) {
  const { engine } = app;
  const chosen = tokenChoice(
    "Token",
    () => {
      const writing = app.session.shown(app.state);
      return writing ? tokensOf(writing) : [];
    },
    () => app.state.row,
    (row) => app.set({ row }),
  );
  const panel = controls(
    ...(engine.hasEncoder
      ? [
          choice(
            "Stack",
            () => [
              { value: /** @type {"encoder" | "decoder"} */ ("encoder"), text: "Encoder" },
              { value: /** @type {"encoder" | "decoder"} */ ("decoder"), text: "Decoder" },
            ],
            () => app.state.stack,
            (stack) => app.set({ stack, row: 0 }),
          ),
        ]
      : []),
    chosen,
  );
  const figure = h("div", { id: "figure" });
  const element = h("div", {}, panel.element, figure);

  /** @param {import("../session.js").Writing} writing */
  function tokensOf(writing) {
    return axes(engine, writing, app.state.stack).queries;
  }

  function update() {
    panel.show();
    const writing = app.session.shown(app.state);
    if (!writing) return replace(figure, app.nothing());
    const trace = app.session.trace(writing);
    const stack = app.state.stack === "encoder" && trace.encoder ? trace.encoder : trace.decoder;
    const row = chosen.current();
    const ids = [...writing.start.slice(1), ...writing.written];
    const next = stack.name === "decoder" && ids.length > row ? ids[row] : null;
    const lens = stack.name === "decoder" ? engine.lens(trace, row, 3, next) : [];
    const tokens = tokensOf(writing);
    const reads = engine.tokens(stack.ids);
    const caption =
      stack.name === "encoder"
        ? [
            "The encoder’s stream of “",
            h("bdi", {}, labelOf(reads, row)),
            "”: what enters, what each part adds, what leaves as memory.",
          ]
        : [
            "The decoder has read “",
            h("bdi", {}, labelOf(reads, row)),
            ...(next === null ? ["”"] : ["” and writes “", h("bdi", {}, labelOf(tokens, row)), "”"]),
            ". With each part: what the output layer would say after it.",
          ];
    replace(
      figure,
      h("p", { class: "caption" }, ...caption),
      draw(stagesOf(stack, row, lens, trace.interventions), roomIn(figure), open),
      heads(trace, stack, row),
    );

    /** @param {Stage} stage */
    function open(stage) {
      const attention = stage.sublayer?.attention;
      if (attention) formula(trace, stack, stage.layer, attention.kind, row, 0);
    }
  }

  /**
   * What each head of each layer looks at most, from this token.
   * @param {Trace} trace
   * @param {StackTrace} stack
   * @param {number} row
   */
  function heads(trace, stack, row) {
    const buttons = stack.layers.flatMap(({ sublayers }, layer) =>
      sublayers.flatMap(({ attention }) =>
        (attention?.heads ?? []).map((head, number) => {
          const keys =
            attention?.kind === "cross_attention" ? engine.tokens(trace.inputs.source ?? []) : engine.tokens(stack.ids);
          const best = bestKey(head.weights, row);
          const weight = head.weights.data[row * head.weights.cols + best];
          return h(
            "button",
            { type: "button", onclick: () => formula(trace, stack, layer, attention?.kind ?? "", row, number) },
            `${layer + 1}.${number + 1} ${attention?.kind === "cross_attention" ? "cross" : "self"} → `,
            h("bdi", {}, labelOf(keys, best)),
            ` ${percent(weight)}`,
          );
        }),
      ),
    );
    return h(
      "div",
      { class: "heads" },
      h("h3", {}, "Where each head looks most (layer.head), and its formula"),
      ...buttons,
    );
  }

  /**
   * @param {Trace} trace
   * @param {StackTrace} stack
   * @param {number} layer
   * @param {string} kind
   * @param {number} row
   * @param {number} number
   */
  function formula(trace, stack, layer, kind, row, number) {
    const writing = app.session.shown(app.state);
    /** @type {MapName} */
    const map = kind === "cross_attention" ? "cross" : stack.name;
    const head = stack.layers[layer].sublayers.find((each) => each.kind === kind)?.attention?.heads[number];
    if (writing && head)
      openFormula(app, trace, map, layer, number, row, bestKey(head.weights, row), axes(engine, writing, map));
  }
  return { element, update };
}

/**
 * @param {Matrix} weights
 * @param {number} row
 */
function bestKey({ cols, data }, row) {
  const weights = data.subarray(row * cols, (row + 1) * cols);
  return weights.indexOf(Math.max(...weights));
}

/**
 * @param {StackTrace} stack
 * @param {number} row
 * @param {LensEntry[]} lens
 * @param {import("../engine/types.js").Interventions} off
 * @returns {Stage[]}
 */
function stagesOf(stack, row, lens, off) {
  const of = (/** @type {Matrix} */ { cols, data }) => data.subarray(row * cols, (row + 1) * cols);
  const at = (/** @type {number} */ layer, /** @type {string | null} */ sublayer) =>
    lens.find((each) => each.layer === layer && each.sublayer === sublayer) ?? null;
  const named = (/** @type {string} */ name, /** @type {number} */ layer) =>
    isPatched(patchesOf(off, stack.name, layer), row) ? `${name}, patched` : name;
  /** @type {Stage[]} */
  const stages = [{ name: "embedding", vector: of(stack.embedding), adds: true, lens: null, sublayer: null, layer: 0 }];
  if (stack.positions) {
    stages.push({ name: "position", vector: of(stack.positions), adds: true, lens: null, sublayer: null, layer: 0 });
    stages.push({
      name: named("embedding + position", 0),
      vector: of(stack.input),
      adds: false,
      lens: at(0, null),
      sublayer: null,
      layer: 0,
    });
  } else stages[0] = { ...stages[0], name: named("embedding", 0), vector: of(stack.input), lens: at(0, null) };
  stack.layers.forEach(({ sublayers }, layer) =>
    sublayers.forEach((sublayer, i) => {
      const name = `${layer + 1} ${PARTS[sublayer.kind]}`;
      stages.push({
        name: sublayer.isOff ? `${name}, off` : name,
        vector: of(sublayer.contribution),
        adds: true,
        lens: null,
        sublayer,
        layer,
      });
      stages.push({
        name: i === sublayers.length - 1 ? named("stream", layer + 1) : "stream",
        vector: of(sublayer.after),
        adds: false,
        lens: at(layer + 1, sublayer.kind),
        sublayer: null,
        layer,
      });
    }),
  );
  if (stack.finalNorm)
    stages.push({
      name: "final norm",
      vector: of(stack.output),
      adds: false,
      lens: null,
      sublayer: null,
      layer: stack.layers.length,
    });
  return stages;
}

/** @param {ArrayLike<number>} vector */
function sizeOf(vector) {
  return Math.hypot(...Array.from(vector));
}

/**
 * @param {Stage[]} stages
 * @param {number} available
 * @param {(stage: Stage) => void} open
 */
function draw(stages, available, open) {
  const width = Math.min(available, 980);
  const narrow = width < 560;
  const hasLens = stages.some(({ lens }) => lens);
  const split = narrow || !hasLens ? width : width * 0.62;
  const heights = stages.map(({ lens }) => (narrow && lens ? 64 : 44));
  const height = heights.reduce((sum, each) => sum + each, 0);
  const svg = drawing(width, height + 12, "The residual stream of one token");
  const { element, explain } = explained(
    svg,
    "Each strip is a vector: blue is positive, orange negative. Point at one, or move with the arrow keys.",
  );
  const largest = Math.max(...stages.map(({ vector }) => sizeOf(vector)));
  const most = Math.max(48, Math.floor(MOST_CELLS / stages.length)); // cells of a strip
  let bottom = 0;
  const rows = stages.map((stage, i) => {
    const { name, vector, adds, lens } = stage;
    const y = bottom;
    bottom += heights[i];
    const x0 = adds ? 28 : 8;
    const room = split - x0 - 12;
    const peak = Math.max(...Array.from(vector, Math.abs), 1e-30);
    const size = sizeOf(vector);
    const group = s(
      "g",
      {
        class: `stage${adds ? " adds" : ""}${stage.sublayer?.attention ? " opens" : ""}`,
        transform: `translate(0 ${y})`,
        role: "img",
        onclick: () => open(stage),
      },
      s("rect", { x: 0, y: 1, width: split, height: 40, rx: 6, class: "row" }),
      s("text", { x: 10, y: 30, class: "sign" }, adds && i > 0 ? "+" : ""),
      s("text", { x: x0, y: 15, class: "name" }, fitted(name, room - 70)),
      s("text", { x: split - 12, y: 15, "text-anchor": "end", class: "axis" }, `size ${fixed(size, 1)}`),
      s("rect", { x: x0, y: 36, width: (room * size) / largest, height: 3, class: "size" }),
    );
    const wide = Math.ceil(vector.length / most); // channels in a cell, which shows the largest of them
    const cell = (room * wide) / vector.length;
    const peaks = Array.from({ length: Math.ceil(vector.length / wide) }, (_, i) =>
      vector.subarray(i * wide, (i + 1) * wide).reduce((best, each) => (Math.abs(each) > Math.abs(best) ? each : best)),
    );
    peaks.forEach((each, i) =>
      group.append(
        s("rect", {
          x: x0 + cell * i,
          y: 20,
          width: cell,
          height: 14,
          class: each < 0 ? "negative" : "positive",
          "fill-opacity": Math.abs(each) / peak,
        }),
      ),
    );
    const channel = Array.from(vector, Math.abs).indexOf(peak);
    const top = lens?.top.map(({ token, probability }) => `“${token.text}” ${percent(probability)}`).join(", ");
    const says = lens
      ? ` The output layer would say ${top}.` +
        (lens.target
          ? ` The token that is written has rank ${lens.target.rank + 1}, log-probability ${fixed(lens.target.logProb)}.`
          : "")
      : "";
    explain(
      group,
      `${name}: ${vector.length} numbers of size ${fixed(size)}; the largest is ${signed(vector[channel])}, ` +
        `in channel ${channel + 1}.${says}` +
        (stage.sublayer?.attention ? " A click opens the formula." : ""),
    );
    if (lens) {
      const [x, above, space] = narrow ? [x0, 44, room] : [split + 10, 4, width - split - 18];
      lens.top.forEach(({ token, probability }, rank) => {
        const label = fitted(labelOf([token], 0), narrow ? space / 3 - 48 : space - 60);
        const [cx, cy] = narrow ? [x + (space / 3) * rank, above] : [x, above + 13 * rank];
        group.append(
          s("rect", {
            x: cx,
            y: cy,
            width: (narrow ? space / 3 - 4 : space) * probability,
            height: 12,
            rx: 2,
            class: "candidate",
          }),
          s("text", { x: cx + 3, y: cy + 10, class: "small" }, label),
          s(
            "text",
            { x: narrow ? cx + space / 3 - 6 : x + space, y: cy + 10, "text-anchor": "end", class: "small" },
            percent(probability),
          ),
        );
      });
    }
    svg.append(group);
    return [group];
  });
  rove(svg, rows);
  return element;
}
