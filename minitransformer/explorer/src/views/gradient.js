/** Where the gradient of one written token goes: which tokens its log-probability depends on. */

import { drawBars } from "./bars.js";
import { choice, controls, tokenChoice } from "./controls.js";
import { fixed, h, replace, signed } from "./dom.js";
import { roomIn } from "./figure.js";
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
      drawBars(
        "The gradient at each token",
        [
          ...(source ? [part("source", sources, source)] : []),
          part(engine.hasEncoder ? "written before" : "text so far", reads, target),
        ],
        app.state.measure === "size"
          ? {
              isSided: false,
              least: 1e-30,
              figure: (value) => fixed(value, 3),
              rest: "A longer bar: a small change of this token’s vector changes the log-probability more.",
            }
          : {
              isSided: true,
              least: 1e-30,
              figure: (value) => signed(value, 3),
              rest: "Blue speaks for the token that is written, orange against it.",
            },
        roomIn(figure),
      ),
    );
  }

  /**
   * @param {string} heading
   * @param {Token[]} tokens
   * @param {InputGradient} gradient
   */
  function part(heading, tokens, { norms, gradientTimesInput }) {
    const bars = tokens.map((_, i) => ({
      value: (app.state.measure === "size" ? norms : gradientTimesInput)[i],
      says: `: gradient of size ${fixed(norms[i], 4)}; gradient times vector ${signed(gradientTimesInput[i], 4)}.`,
    }));
    return { heading, tokens, bars };
  }
  return { element, update };
}
