/** Where the gradient of one written token goes: which tokens its log-probability depends on. */

import { choice, controls, tokenChoice } from "./controls.js";
import { fitted, fixed, h, replace, s, signed, widthOf } from "./dom.js";
import { drawing, explained, roomIn } from "./figure.js";
import { labelOf } from "./tokens.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../engine/types.js").InputGradient} InputGradient */
/** @typedef {import("../engine/types.js").Token} Token */

/**
 * @param {App} app
 * @returns {{ element: HTMLElement, update: () => void }}
 */
export function gradientView(app) {
  const { engine } = app;
  const position = tokenChoice(
    "Written token",
    () => app.written(),
    () => app.state.token,
    (token) => app.set({ token }),
  );
  const panel = controls(
    position,
    choice(
      "Measure",
      () => [
        {
          value: /** @type {"size" | "product"} */ ("size"),
          text: "Size",
          hint: "the length of the gradient with respect to a token’s vector",
        },
        {
          value: /** @type {"size" | "product"} */ ("product"),
          text: "× vector",
          hint: "the gradient times the vector: with its sign, about what the token adds",
        },
      ],
      () => app.state.measure,
      (measure) => app.set({ measure }),
    ),
  );
  const figure = h("div", { id: "figure" });
  const element = h("div", {}, panel.element, figure);

  function update() {
    panel.show();
    const writing = app.session.shown(app.state);
    if (!writing) return replace(figure, app.nothing());
    if (!writing.written.length)
      return replace(figure, h("p", { class: "nothing" }, "Nothing has been written yet: start above."));
    const trace = app.session.trace(writing);
    const index = position.current();
    const row = writing.start.length - 1 + index;
    const { logProb, source, target } = engine.gradient(trace, row, writing.written[index]);
    const written = engine.tokens(writing.written);
    const reads = engine.tokens(trace.inputs.target.slice(0, row + 1));
    const sources = engine.tokens(trace.inputs.source ?? []);
    replace(
      figure,
      h(
        "p",
        { class: "caption" },
        "The model writes “",
        h("bdi", {}, labelOf(written, index)),
        `” with log-probability ${fixed(logProb, 3)}. Which vectors would change it most?`,
      ),
      draw(
        [
          ...(source ? [{ title: "source", tokens: sources, gradient: source }] : []),
          { title: engine.translates ? "written before" : "text so far", tokens: reads, gradient: target },
        ],
        app.state.measure,
        roomIn(figure),
      ),
    );
  }
  return { element, update };
}

/**
 * @param {{ title: string, tokens: Token[], gradient: InputGradient }[]} parts
 * @param {"size" | "product"} measure
 * @param {number} available
 */
function draw(parts, measure, available) {
  const values = parts.map(({ gradient, tokens }) =>
    Array.from(measure === "size" ? gradient.norms : gradient.gradientTimesInput).slice(0, tokens.length),
  );
  const largest = Math.max(...values.flat().map(Math.abs), 1e-30);
  const width = Math.min(available, 760);
  const left =
    Math.min(130, Math.max(...parts.flatMap(({ tokens }) => tokens.map((_, i) => widthOf(labelOf(tokens, i)))))) + 12;
  const rows = parts.reduce((sum, { tokens }) => sum + tokens.length + 1.4, 0);
  const zero = measure === "size" ? left : left + (width - left) / 2;
  const most = (measure === "size" ? width - left : (width - left) / 2) - 62;
  const svg = drawing(width, 24 * rows + 8, "The gradient at each token");
  const { element, explain } = explained(
    svg,
    measure === "size"
      ? "A longer bar: a small change of this token’s vector changes the log-probability more."
      : "Blue speaks for the token that is written, orange against it.",
  );
  let y = 0;
  parts.forEach(({ title, tokens, gradient }, which) => {
    svg.append(s("text", { x: left, y: y + 22, class: "axis" }, title));
    y += 1.4 * 24;
    tokens.forEach((_, i) => {
      const value = values[which][i];
      const length = (most * Math.abs(value)) / largest;
      const x = value < 0 ? zero - length : zero;
      const group = s(
        "g",
        { class: "bar-row", tabindex: "0", role: "img" },
        s(
          "text",
          { x: left - 8, y: y + 15, "text-anchor": "end", class: tokens[i].isSpecial ? "special" : "" },
          fitted(labelOf(tokens, i), 130),
        ),
        s("rect", { x, y: y + 3, width: length, height: 16, rx: 2, class: value < 0 ? "negative" : "positive" }),
        s(
          "text",
          {
            x: value < 0 ? x - 6 : x + length + 6,
            y: y + 15,
            "text-anchor": value < 0 ? "end" : "start",
            class: "small",
          },
          measure === "size" ? fixed(value, 3) : signed(value, 3),
        ),
      );
      explain(
        group,
        `“${labelOf(tokens, i)}”: gradient of size ${fixed(gradient.norms[i], 4)}; ` +
          `gradient times vector ${signed(gradient.gradientTimesInput[i], 4)}.`,
      );
      svg.append(group);
      y += 24;
    });
  });
  return element;
}
