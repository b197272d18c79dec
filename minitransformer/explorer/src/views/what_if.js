/** What if a part were missing, or the beginning or a word were another? The changed model beside the original one. */

import { NO_INTERVENTIONS } from "../engine/interventions.js";
import { isChanged } from "../session.js";
import { isOff, toggled } from "../state.js";
import { drawBars } from "./bars.js";
import { checkbox, later } from "./controls.js";
import { fixed, h, replace, signed, widthOf } from "./dom.js";
import { roomIn } from "./figure.js";
import { PARTS } from "./maps.js";
import { pair } from "./pair.js";
import { patchingPanel } from "./patching.js";
import { labelOf } from "./tokens.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../engine/types.js").AttentionKind} AttentionKind */
/** @typedef {import("../engine/types.js").Comparison} Comparison */
/** @typedef {import("../engine/types.js").Interventions} Interventions */
/** @typedef {import("../engine/types.js").StackName} StackName */
/** @typedef {import("../session.js").Writing} Writing */

/**
 * @param {App} app
 * @returns {{ element: HTMLElement, update: () => void }}
 */
export function whatIfView(app) {
  const { engine } = app;
  const [written, editing] = engine.describes ? ["caption", ""] : ["translation", "edit a word, "];
  const switches = h("div", { class: "switches" });
  const prefix = h("input", {
    id: "prefix",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    oninput: later(() => app.set({ prefix: prefix.value })),
  });
  const edited = h("div", { class: "words", role: "group", "aria-label": "Edit the words of the sentence" });
  const carried = checkbox(
    "Show the changed model in the other views too",
    () => app.state.changed,
    (changed) => app.set({ changed }),
  );
  const reset = h(
    "button",
    {
      type: "button",
      onclick: () => app.set({ off: NO_INTERVENTIONS, prefix: "", edited: null, patch: null, changed: false }),
    },
    "Undo all changes",
  );
  const result = h("div", { id: "figure" });
  const patching = patchingPanel(app);
  const element = h(
    "div",
    { class: "what-if" },
    result,
    h("div", { class: "controls" }, carried.element, reset),
    h("h3", {}, "Switch parts off"),
    switches,
    h(
      "h3",
      {},
      h(
        "label",
        { for: "prefix" },
        `Force ${engine.hasEncoder ? `the beginning of the ${written}` : "what is written first"}`,
      ),
    ),
    prefix,
    ...(engine.describes
      ? []
      : [h("h3", {}, engine.hasEncoder ? "Edit a word of the sentence" : "Edit a word of the prompt"), edited]),
    patching.element,
  );

  function update() {
    carried.show();
    patching.update();
    if (document.activeElement !== prefix) prefix.value = app.state.prefix;
    replace(switches, ...switchboard());
    showWords();
    const original = app.session.original;
    if (!original) return replace(result, app.nothing());
    if (isChanged(app.state) && !original.done)
      return replace(result, h("p", { class: "nothing" }, "The comparison is made when the original is complete."));
    const changed = app.session.changed(app.state);
    if (!changed) {
      const why = isChanged(app.state)
        ? "The changed model reads nothing."
        : `Nothing has been changed yet: switch a part off below, force a beginning, ${editing}or patch.`;
      return replace(result, pair("Original", original.text, original.text), h("p", { class: "nothing" }, why));
    }
    replace(
      result,
      pair("Original", original.text, changed.text),
      pair("Changed", changed.text, original.text),
      ...comparison(original, changed),
    );
  }

  /**
   * @param {Writing} original
   * @param {Writing} changed
   */
  function comparison(original, changed) {
    const { session } = app;
    if (!original.written.length || !changed.written.length)
      return [h("p", { class: "nothing" }, "One of the two writes nothing.")];
    const sameStart = original.start.length === changed.start.length;
    const of = (/** @type {number[]} */ written) => [...original.start.slice(1), ...written];
    const first = original.start.length - 1;
    if (!sameStart)
      return [
        h(
          "p",
          { class: "nothing" },
          "The prompt has another length now: the two texts are not compared token by token.",
        ),
      ];
    const originals = engine.compare(
      session.trace(original),
      session.trace(changed, original.written),
      of(original.written),
    );
    const changes = engine.compare(
      session.trace(original, changed.written),
      session.trace(changed),
      of(changed.written),
    );
    const sum = (/** @type {Float64Array} */ values) => values.subarray(first).reduce((a, b) => a + b, 0);
    const cells = [
      { name: "the original’s text", sums: [sum(originals.original), sum(originals.changed)] },
      { name: "the changed one’s text", sums: [sum(changes.original), sum(changes.changed)] },
    ];
    const table = h(
      "table",
      { class: "figures" },
      h("caption", {}, "Log-probability of each text, to each model"),
      h(
        "thead",
        {},
        h("tr", {}, h("td", {}), h("th", { scope: "col" }, "original"), h("th", { scope: "col" }, "changed")),
      ),
      h(
        "tbody",
        {},
        ...cells.map(({ name, sums }) =>
          h("tr", {}, h("th", { scope: "row" }, name), ...sums.map((each) => h("td", {}, fixed(each)))),
        ),
      ),
    );
    if (runsOn(original) !== runsOn(changed)) return [table, differences(original, originals, first)];
    const forced = session.prefixIds(app.state.prefix).length;
    const why = "The model and what it reads are the same as before, so that no token has become more or less probable";
    if (!forced) return [table, h("p", { class: "nothing" }, `${why}.`)];
    return [
      table,
      h("p", { class: "caption" }, `${why}: the bars show what the forced beginning costs, token by token.`),
      costs(changed, changes, first, forced),
    ];
  }

  /**
   * How much more or less probable each token of the original's text has become.
   * @param {Writing} original
   * @param {Comparison} comparison
   * @param {number} first row of the first written token
   */
  function differences(original, comparison, first) {
    const bars = Array.from(comparison.difference.subarray(first), (value, i) => {
      const [before, now] = [comparison.original[first + i], comparison.changed[first + i]];
      return { value, says: `: log-probability ${fixed(before, 3)} before, ${fixed(now, 3)} now.` };
    });
    const all = bars.reduce((sum, { value }) => sum + value, 0);
    return drawBars(
      "Change of each token’s log-probability",
      [{ heading: "less probable ← → more probable", tokens: engine.tokens(original.written), bars }],
      { isSided: true, least: 0.1, figure: signed, rest: `All together: log-probability ${signed(all)}.` },
      roomIn(result),
    );
  }

  /**
   * How improbable each token of the changed text was, the forced ones marked.
   * @param {Writing} changed
   * @param {Comparison} comparison
   * @param {number} first row of the first written token
   * @param {number} forced how many tokens
   */
  function costs(changed, comparison, first, forced) {
    const trace = app.session.trace(changed);
    const bars = Array.from(comparison.changed.subarray(first), (value, i) => {
      const [{ token, logProb }] = engine.top(trace, first + i, 1, 1);
      const best =
        token.id === changed.written[i] ? "" : ` Most probable was “${labelOf([token], 0)}”, ${fixed(logProb, 3)}.`;
      return {
        value: -value,
        says: `${i < forced ? ", which was forced" : ""}: log-probability ${fixed(value, 3)}.${best}`,
        isMarked: i < forced,
      };
    });
    const all = bars.slice(0, forced).reduce((sum, { value }) => sum - value, 0);
    return drawBars(
      "Log-probability of each token",
      [{ heading: "log-probability", tokens: engine.tokens(changed.written), bars }],
      {
        isSided: false,
        least: 0.1,
        figure: (value) => signed(-value),
        rest: `Orange is what was forced: log-probability ${fixed(all)} in all. Point at a bar for what was more probable there.`,
      },
      roomIn(result),
    );
  }

  function switchboard() {
    const { off } = app.state;
    /** @type {StackName[]} */
    const stacks = engine.hasEncoder ? ["encoder", "decoder"] : ["decoder"];
    const boards = stacks.map((stack) => {
      const { numLayers, block, attentions } = /** @type {import("../engine/types.js").StackConfig} */ (
        engine.config[stack]
      );
      /** @type {AttentionKind[]} */
      const kinds = block.cross ? ["self_attention", "cross_attention"] : ["self_attention"];
      const rows = [...Array(numLayers).keys()].map((layer) =>
        h(
          "div",
          { class: "layer" },
          press(`Layer ${layer + 1}`, `all of the ${stack}’s layer ${layer + 1}`, "sublayers", {
            stack,
            layer,
            kind: null,
          }),
          ...kinds.map((kind) =>
            h(
              "div",
              { class: "part" },
              press(PARTS[kind], `${stack}, layer ${layer + 1}, ${PARTS[kind]}`, "sublayers", { stack, layer, kind }),
              ...[...Array(attentions[0].numHeads).keys()].map((head) =>
                press(String(head + 1), `${stack}, layer ${layer + 1}, ${PARTS[kind]}, head ${head + 1}`, "heads", {
                  stack,
                  layer,
                  kind,
                  head,
                }),
              ),
            ),
          ),
          h(
            "div",
            { class: "part" },
            press(PARTS.feed_forward, `${stack}, layer ${layer + 1}, feed-forward`, "sublayers", {
              stack,
              layer,
              kind: "feed_forward",
            }),
          ),
        ),
      );
      return h("fieldset", {}, h("legend", {}, stack === "encoder" ? "Encoder" : "Decoder"), ...rows);
    });
    const read = app.session.begin(app.state.edited ?? app.state.text);
    /** @type {StackName} */
    const stack = engine.hasEncoder ? "encoder" : "decoder";
    const tokens = engine.tokens((engine.hasEncoder ? read?.source : read?.start) ?? []);
    /** @type {(kind: "masked" | "unplaced", says: string) => HTMLElement[]} */
    const presses = (kind, says) =>
      tokens.map((_, position) =>
        press(labelOf(tokens, position), `“${labelOf(tokens, position)}” ${says}`, kind, { stack, position }),
      );
    return [
      ...boards,
      h(
        "fieldset",
        {},
        h("legend", {}, engine.describes ? "Patches" : "Tokens"),
        h(
          "div",
          { class: "part" },
          h("span", { class: "label" }, "hidden from all"),
          ...presses("masked", "is hidden"),
        ),
        h(
          "div",
          { class: "part" },
          h("span", { class: "label" }, "without its place"),
          ...presses("unplaced", "has no place"),
        ),
      ),
    ];

    /** @type {(text: string, says: string, kind: keyof Interventions, place: any) => HTMLElement} */
    function press(text, says, kind, place) {
      const pressed = isOff(off, kind, place);
      return h(
        "button",
        {
          type: "button",
          class: "switch",
          "aria-pressed": String(pressed),
          "aria-label": `Switch off: ${says}`,
          title: says,
          "data-key": `${kind}-${JSON.stringify(place)}`,
          onclick: () => app.set({ off: toggled(app.state.off, kind, place) }),
        },
        h("bdi", {}, text),
      );
    }
  }

  function showWords() {
    const now = app.state.edited ?? app.state.text;
    if (edited.contains(document.activeElement) || edited.dataset.text === now) return;
    edited.dataset.text = now;
    const parts = now.split(/(\s+)/);
    const inputs = parts.map((part, i) =>
      h("input", {
        type: "text",
        value: part,
        "aria-label": `Word ${i / 2 + 1}`,
        autocomplete: "off",
        spellcheck: "false",
        dir: "auto",
        style: `width:${Math.ceil(widthOf(part, 16)) + 26}px`,
        oninput: later(() => {
          const text = joined(
            inputs.map(({ value }) => value),
            parts,
          );
          edited.dataset.text = text;
          app.set({ edited: text === app.state.text ? null : text });
        }),
      }),
    );
    edited.replaceChildren(...inputs.filter((_, i) => i % 2 === 0));
  }
  return { element, update };
}

/**
 * The text of edited words, `parts` being every word and what stood after it. A word that was removed takes the space
 * before it along, and at the beginning the one after it: a model reads two spaces as something else than one.
 * @param {string[]} values
 * @param {string[]} parts
 */
function joined(values, parts) {
  /** @type {(i: number) => boolean} */
  const removed = (i) => values[i] === "" && parts[i] !== "";
  let text = "";
  values.forEach((value, i) => {
    if (i % 2 === 0) text += value;
    else if (!removed(i + 1) && !(text === "" && removed(0))) text += parts[i];
  });
  return text;
}

/**
 * What a text's log-probabilities depend on, besides the text.
 * @param {Writing} writing
 */
function runsOn({ source, start, interventions }) {
  return JSON.stringify([source, start, interventions]);
}
