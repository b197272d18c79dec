/** One vector of another sentence's run in this one's: a grid of all places, and what a chosen one changes. */

import { visible } from "../engine/utf8.js";
import { contrastOf, gridOf, leaningIn } from "../patching.js";
import { positionsOf } from "../session.js";
import { LONGEST } from "../state.js";
import { choice, later } from "./controls.js";
import { h, percent, replace } from "./dom.js";
import { roomIn } from "./figure.js";
import { pair } from "./pair.js";
import { drawPatches, percents } from "./patches.js";
import { labelOf } from "./tokens.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../patching.js").Cell} Cell */
/** @typedef {import("../patching.js").Contrast} Contrast */
/** @typedef {import("../session.js").Writing} Writing */

/**
 * @param {App} app
 * @returns {{ element: HTMLElement, update: () => void }}
 */
export function patchingPanel(app) {
  const { engine, session } = app;
  const text = engine.describes ? "picture" : engine.hasEncoder ? "sentence" : "prompt";
  const { attentions } = engine.config.encoder ?? engine.config.decoder;
  /** @type {HTMLInputElement | HTMLSelectElement} */
  const input = engine.describes
    ? h(
        "select",
        { id: "other", onchange: () => app.set({ other: input.value }) },
        h("option", { value: "" }, "none"),
        ...engine.payload.examples.map((name) => h("option", {}, name)),
      )
    : h("input", {
        id: "other",
        type: "text",
        autocomplete: "off",
        spellcheck: "false",
        dir: "auto",
        maxlength: LONGEST,
        oninput: later(() => app.set({ other: input.value })),
      });
  const copy = h(
    "button",
    {
      type: "button",
      onclick: () => {
        input.value = app.state.text;
        input.focus();
        app.set({ other: input.value });
      },
    },
    `Copy the ${text} from above`,
  );
  const part = choice(
    "Replace",
    () => [
      { value: /** @type {number | null} */ (null), text: "Whole vector", hint: "the residual stream after a layer" },
      ...Array.from({ length: attentions[0].numHeads }, (_, head) => ({ value: head, text: `Head ${head + 1}` })),
    ],
    () => app.state.part,
    (value) => app.set({ part: value }),
  );
  const outputs = h("div");
  const figure = h("div");
  const effect = h("div");
  const places = h("div", { class: "patching", hidden: true }, part.element, figure);
  /** @type {{ key: string, grid: Cell[][] }} */
  let last = { key: "", grid: [] };
  const element = h(
    "div",
    {},
    h("h3", {}, h("label", { for: "other" }, `Patch in a vector of another ${text}`)),
    h(
      "p",
      { class: "caption" },
      `The page runs the other ${text} too, and puts one of its vectors in the place of this one’s. ` +
        "If the model then says the other’s word, that vector carries the difference.",
    ),
    h("div", { class: "buttons" }, input, engine.describes ? null : copy),
    outputs,
    places,
    effect,
  );

  function update() {
    if (document.activeElement !== input) input.value = app.state.other;
    const own = session.original;
    const other = session.other(app.state);
    const contrast = own?.done && other ? contrastOf(session, own, other) : null;
    places.hidden = effect.hidden = !contrast;
    if (!own || !other) return replace(outputs);
    if (!contrast) return replace(outputs, h("p", { class: "nothing" }, ...whyNothing(own, other)));
    const cells = grid(contrast);
    const chosen = cells.flat().find(({ layer, position }) => {
      return app.state.patch?.layer === layer && app.state.patch.position === position;
    });
    const changed = chosen ? session.changed(app.state) : null;
    replace(
      outputs,
      pair("Original", own.text, other.text),
      pair("Other", other.text, own.text),
      h("p", { class: "caption" }, "The outputs of the two differ ", ...whereOf(contrast)),
    );
    part.show();
    const columns = columnsOf(own, other);
    replace(
      figure,
      h("p", { class: "caption" }, meaning(contrast, cells)),
      drawPatches(cells, columns, chosen, says(contrast, columns), choose, roomIn(figure)),
    );
    replace(effect, changed && pair("Changed", changed.text, own.text), table(contrast, changed));

    /** @param {Cell} cell */
    function choose(cell) {
      app.set({ patch: cell === chosen ? null : { layer: cell.layer, position: cell.position } });
    }
  }

  /**
   * @param {Writing} own
   * @param {Writing} other
   */
  function whyNothing(own, other) {
    if (!own.done) return ["The comparison is made when the original is complete."];
    const [here, there] = [own, other].map((each) => engine.tokens(positionsOf(each)));
    if (here.length === there.length) return ["Both give the same output: there is no difference to bring over."];
    return [
      `This ${text} has ${here.length} tokens and the other one ${there.length}, so that their positions don’t belong ` +
        "together. Write one of as many tokens; these are ",
      h("bdi", {}, there.map((_, i) => labelOf(there, i)).join(" ")),
    ];
  }

  /**
   * The positions, with the tokens of both where they differ.
   * @param {Writing} own
   * @param {Writing} other
   */
  function columnsOf(own, other) {
    const [here, there] = [own, other].map((each) => engine.tokens(positionsOf(each)));
    return here.map((_, i) => {
      const [from, to] = [labelOf(here, i), labelOf(there, i)];
      return from === to ? from : `${from} → ${to}`;
    });
  }

  /** @param {Contrast} contrast */
  function grid(contrast) {
    const key = JSON.stringify([contrast.own.inputs, contrast.other.inputs, app.state.part]);
    if (last.key !== key) last = { key, grid: gridOf(session, contrast, app.state.part) };
    return last.grid;
  }

  /** What the numbers of the grid are. @param {Contrast} contrast @param {Cell[][]} cells */
  function meaning(contrast, cells) {
    const [word, otherWord] = words(contrast);
    return cells[0][0].effect
      ? "A cell’s number says how much of the difference its patch brings over, in percent: at 0 nothing changes, " +
          `at 100 the model prefers ${otherWord} to ${word} as it does for the other ${text}.`
      : "To try all cells would take too long here: click one.";
  }

  /** @param {Contrast} contrast */
  function whereOf({ prefix }) {
    return prefix.length
      ? ["after “", h("bdi", {}, visible(engine.decode(prefix)).trim()), "”."]
      : ["at the first token."];
  }

  /** The two tokens as they are shown. @param {Contrast} contrast */
  function words({ prefix, tokens }) {
    return tokens.map((token) => `“${labelOf(engine.tokens([...prefix, token]), prefix.length)}”`);
  }

  /**
   * @param {Contrast} contrast
   * @param {Writing | null} changed
   */
  function table(contrast, changed) {
    const rows = [
      { name: `this ${text}`, leaning: contrast.leanings[0] },
      { name: `the other ${text}`, leaning: contrast.leanings[1] },
      ...(changed ? [{ name: "changed", leaning: leaningIn(session, changed, contrast) }] : []),
    ];
    return h(
      "table",
      { class: "figures" },
      h("caption", {}, "Probability of the token"),
      h(
        "thead",
        {},
        h("tr", {}, h("td", {}), ...words(contrast).map((word) => h("th", { scope: "col" }, h("bdi", {}, word)))),
      ),
      h(
        "tbody",
        {},
        ...rows.map(({ name, leaning }) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, name),
            ...leaning.probabilities.map((each) => h("td", {}, percent(each))),
          ),
        ),
      ),
    );
  }

  /** What the grid explains. @param {Contrast} contrast @param {string[]} columns @returns {(cell: Cell) => string} */
  function says(contrast, columns) {
    const [word, otherWord] = words(contrast);
    return ({ layer, position, effect }) => {
      const head = app.state.part === null ? "" : `, head ${app.state.part + 1}`;
      const where = position === null ? "all positions" : `“${columns[position]}”`;
      const place = `${layer ? `Layer ${layer}` : "Input"}${head}, ${where}`;
      if (!effect) return `${place}.`;
      const [now, others] = effect.leaning.probabilities.map(percent);
      return (
        `${place}: ${percents(effect.share)} % of the difference comes over; ` +
        `${word} has probability ${now} then, ${otherWord} ${others}.`
      );
    };
  }
  return { element, update };
}
