/** What if a part were missing, or the beginning or a word were another? The changed model beside the original one. */

import { NO_INTERVENTIONS } from "../engine/interventions.js";
import { isChanged } from "../session.js";
import { isOff, toggled } from "../state.js";
import { checkbox } from "./controls.js";
import { fitted, fixed, h, replace, s, signed, widthOf } from "./dom.js";
import { drawing, explained, roomIn } from "./figure.js";
import { PARTS } from "./maps.js";
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
    { type: "button", onclick: () => app.set({ off: NO_INTERVENTIONS, prefix: "", edited: null, changed: false }) },
    "Undo all changes",
  );
  const result = h("div", { id: "figure" });
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
        engine.translates ? "Force the beginning of the translation" : "Force what is written first",
      ),
    ),
    prefix,
    h("h3", {}, engine.translates ? "Edit a word of the sentence" : "Edit a word of the prompt"),
    edited,
  );

  function update() {
    carried.show();
    if (document.activeElement !== prefix) prefix.value = app.state.prefix;
    replace(switches, ...switchboard());
    showWords();
    const original = app.session.original;
    if (!original) return replace(result, app.nothing());
    const changed = app.session.changed(app.state);
    if (!changed) {
      const why = isChanged(app.state)
        ? "The changed sentence is empty."
        : "Nothing has been changed yet: switch a part off below, force a beginning, or edit a word.";
      return replace(result, pair("Original", original.text, original.text), h("p", { class: "nothing" }, why));
    }
    if (!original.done)
      return replace(result, h("p", { class: "nothing" }, "The comparison is made when the original is complete."));
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
    const sum = (/** @type {Float64Array} */ values) => fixed(values.subarray(first).reduce((a, b) => a + b, 0));
    const cells = [
      ["the original’s text", sum(originals.original), sum(originals.changed)],
      ["the changed one’s text", sum(changes.original), sum(changes.changed)],
    ];
    return [
      h(
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
          ...cells.map(([name, ...values]) =>
            h("tr", {}, h("th", { scope: "row" }, name), ...values.map((value) => h("td", {}, value))),
          ),
        ),
      ),
      draw(engine.tokens(original.written), originals, first, roomIn(result)),
    ];
  }

  function switchboard() {
    const { off } = app.state;
    /** @type {StackName[]} */
    const stacks = engine.translates ? ["encoder", "decoder"] : ["decoder"];
    const boards = stacks.map((stack) => {
      const { numLayers, block } = /** @type {import("../engine/types.js").StackConfig} */ (engine.config[stack]);
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
              ...[...Array(block.attention.numHeads).keys()].map((head) =>
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
    const stack = engine.translates ? "encoder" : "decoder";
    const tokens = engine.tokens((engine.translates ? read?.source : read?.start) ?? []);
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
        h("legend", {}, "Tokens"),
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
          const text = inputs.map((each, j) => (j % 2 ? parts[j] : each.value)).join("");
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
 * A listener that waits until nothing has been typed for a moment.
 * @param {() => void} act
 */
function later(act) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, 250);
  };
}

/**
 * A text, with the words marked that the other one does not have at this place.
 * @param {string} name
 * @param {string} text
 * @param {string} other
 */
function pair(name, text, other) {
  const [words, others] = [text.split(" "), other.split(" ")];
  const kept = common(words, others);
  return h(
    "p",
    { class: "output" },
    h("span", { class: "label" }, name),
    h("bdi", {}, ...words.flatMap((word, i) => [kept.has(i) ? word : h("mark", {}, word), " "])),
  );
}

/**
 * The indices of `words` in the longest common subsequence with `others`.
 * @param {string[]} words
 * @param {string[]} others
 */
function common(words, others) {
  const length = words.map(() => new Uint16Array(others.length + 1));
  length.push(new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i -= 1)
    for (let j = others.length - 1; j >= 0; j -= 1)
      length[i][j] = words[i] === others[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const kept = new Set();
  for (let i = 0, j = 0; i < words.length && j < others.length;)
    if (words[i] === others[j]) {
      kept.add(i);
      i += 1;
      j += 1;
    } else if (length[i + 1][j] >= length[i][j + 1]) i += 1;
    else j += 1;
  return kept;
}

/**
 * Bars: how much more or less probable each token of the original's text has become.
 * @param {import("../engine/types.js").Token[]} tokens
 * @param {Comparison} comparison
 * @param {number} first row of the first written token
 * @param {number} available
 */
function draw(tokens, comparison, first, available) {
  const differences = comparison.difference.subarray(first);
  const width = Math.min(available, 760);
  const left = Math.min(130, Math.max(...tokens.map((_, i) => widthOf(labelOf(tokens, i))))) + 12;
  const largest = Math.max(...Array.from(differences, Math.abs), 0.1);
  const [middle, half] = [left + (width - left) / 2, (width - left) / 2 - 52];
  const svg = drawing(
    width,
    24 * tokens.length + 30,
    "Change of each token’s log-probability",
    s("text", { x: middle, y: 14, "text-anchor": "middle", class: "axis" }, "less probable ← → more probable"),
    s("line", { x1: middle, x2: middle, y1: 20, y2: 24 * tokens.length + 26, class: "frame" }),
  );
  const { element, explain } = explained(
    svg,
    `All together: log-probability ${signed(differences.reduce((a, b) => a + b, 0))}.`,
  );
  tokens.forEach((_, i) => {
    const change = differences[i];
    const length = (half * Math.abs(change)) / largest;
    const y = 24 + 24 * i;
    const group = s(
      "g",
      { class: "bar-row", tabindex: "0", role: "img" },
      s("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, fitted(labelOf(tokens, i), 130)),
      s("rect", {
        x: change < 0 ? middle - length : middle,
        y: y + 3,
        width: length,
        height: 16,
        rx: 2,
        class: change < 0 ? "negative" : "positive",
      }),
      s(
        "text",
        {
          x: change < 0 ? middle - length - 6 : middle + length + 6,
          y: y + 15,
          "text-anchor": change < 0 ? "end" : "start",
          class: "small",
        },
        signed(change),
      ),
    );
    explain(
      group,
      `“${labelOf(tokens, i)}”: log-probability ${fixed(comparison.original[first + i], 3)} before, ` +
        `${fixed(comparison.changed[first + i], 3)} now.`,
    );
    svg.append(group);
  });
  return element;
}
