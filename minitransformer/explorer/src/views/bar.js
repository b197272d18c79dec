/** The sentence, its tokens, or the picture, and what is written of it, token by token. */

import { LONGEST } from "../state.js";
import { byId, fixed, h, percent, replace } from "./dom.js";
import { pictureChoice } from "./pictures.js";
import { labelOf } from "./tokens.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../engine/types.js").Token} Token */

const PAUSE = 160; // milliseconds between two tokens, so that one can see them come

/** @param {App} app */
export function sentenceBar(app) {
  const { engine, session } = app;
  const { examples } = engine.payload;
  let timer = 0;
  const input = h("textarea", {
    id: "sentence",
    rows: 2,
    spellcheck: "false",
    dir: "auto",
    autocomplete: "off",
    maxlength: LONGEST,
    oninput: () => read(),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      replay();
    },
  });
  const picker = h(
    "select",
    {
      id: "examples",
      "aria-label": "Examples",
      onchange: () => {
        app.set({ text: examples[Number(picker.value)], edited: null });
        picker.value = ""; // so that the same one can be chosen again
        replay();
      },
    },
    h("option", { value: "", disabled: true, selected: true }, "Examples"),
    ...examples.map((each, i) => h("option", { value: i }, each)),
  );
  const play = h("button", {
    type: "button",
    class: "main",
    onclick: () => (timer ? pause() : session.original?.done ? replay() : start()),
  });
  const forward = h(
    "button",
    {
      type: "button",
      onclick: () => {
        pause();
        take();
      },
    },
    "Step",
  );
  const again = h(
    "button",
    {
      type: "button",
      onclick: () => {
        pause();
        session.restart(app.state);
        app.changed();
      },
    },
    "Back to the start",
  );
  const draw = h(
    "button",
    {
      type: "button",
      onclick: () => {
        app.set({ seed: (app.state.seed ?? -1) + 1 });
        replay();
      },
    },
    "Draw another",
  );
  const pictures = engine.describes ? pictureChoice(app, () => replay()) : null;
  const source = h("div", { class: "tokens", role: "list", "aria-label": "Tokens that the model reads" });
  const written = h("div", { class: "tokens", role: "list", "aria-label": "Tokens that the model writes" });
  const output = h("p", { class: "output", "aria-live": "polite" });
  const note = h("p", { class: "note", role: "status" });
  const [from, to] = engine.describes ? ["picture", "caption"] : (engine.payload.languages ?? ["source", "target"]);
  replace(
    byId("bar"),
    h(
      "div",
      { class: "entry" },
      ...(pictures
        ? [pictures.choices]
        : [h("label", { for: "sentence" }, engine.hasEncoder ? `Sentence (${from})` : "Prompt"), input]),
      h(
        "div",
        { class: "buttons" },
        examples.length && !pictures ? picker : null,
        play,
        forward,
        again,
        engine.hasEncoder ? null : draw,
      ),
    ),
    note,
    h(
      "div",
      { class: "line" },
      h("span", { class: "label" }, engine.hasEncoder ? from : "prompt"),
      pictures?.shown ?? source,
    ),
    h("div", { class: "line" }, h("span", { class: "label" }, engine.hasEncoder ? to : "text"), written),
    output,
  );

  function read() {
    app.set({ text: input.value, edited: null });
  }
  function start() {
    if (!session.original) return;
    const tick = () => {
      take();
      timer = session.original && !session.original.done ? setTimeout(tick, PAUSE) : 0;
      update();
    };
    tick();
  }
  function pause() {
    clearTimeout(timer);
    timer = 0;
    update();
  }
  function replay() {
    pause();
    session.restart(app.state);
    app.changed();
    start();
  }
  function take() {
    session.original?.step();
    const token = Math.max(0, (session.original?.written.length ?? 0) - 1);
    if (pictures) app.set({ stack: "decoder", row: token, token });
    else app.changed();
  }

  /** @param {Token[]} tokens */
  const chips = (
    tokens,
    /** @type {(i: number) => Record<string, unknown>} */ more,
    /** @type {(i: number) => Node | null} */ inside,
  ) =>
    tokens.map((token, i) => {
      const joins = i > 0 && tokens[i - 1].word === token.word && !token.isSpecial && !tokens[i - 1].isSpecial;
      return h(
        "span",
        { role: "listitem", class: joins ? "joins" : "" },
        h(
          "button",
          { type: "button", class: `chip${token.isSpecial ? " special" : ""}`, ...more(i) },
          h("bdi", {}, labelOf(tokens, i)),
          inside(i),
        ),
      );
    });

  function update() {
    if (document.activeElement !== input || input.value !== app.state.text) input.value = app.state.text;
    pictures?.update();
    const writing = session.original;
    const begin = pictures ? "Describe" : engine.hasEncoder ? "Translate" : "Continue";
    play.textContent = timer ? "Pause" : writing?.done ? "Replay" : begin;
    play.disabled = forward.disabled = again.disabled = !writing;
    if (writing?.done) forward.disabled = true;
    note.textContent = session.isCut ? "The text is too long: its end was cut off." : "";
    if (!writing) return [source, written, output].forEach((each) => replace(each));
    const reads = engine.tokens(pictures ? [] : (writing.source ?? writing.start));
    replace(
      source,
      ...chips(
        reads,
        (i) => ({
          "data-key": `source-${i}`,
          title: `token ${reads[i].id}`,
          "aria-pressed": String(app.state.stack === "encoder" && app.state.row === i),
          onclick: () => app.set({ view: "stack", stack: engine.hasEncoder ? "encoder" : "decoder", row: i }),
        }),
        () => null,
      ),
    );
    const writes = engine.tokens(writing.written);
    const trace = writes.length ? session.trace(writing) : null;
    const logProb = (/** @type {number} */ i) => {
      const row = writing.start.length - 1 + i;
      return trace ? trace.logProbs.data[row * trace.logProbs.cols + writes[i].id] : 0;
    };
    replace(
      written,
      ...chips(
        writes,
        (i) => ({
          "data-key": `written-${i}`,
          title: `token ${writes[i].id}, probability ${percent(Math.exp(logProb(i)))}`,
          "aria-pressed": String(app.state.stack === "decoder" && app.state.row === writing.start.length - 1 + i),
          onclick: () => app.set({ stack: "decoder", row: writing.start.length - 1 + i, token: i }),
        }),
        (i) =>
          h("span", {
            class: "probability",
            "aria-hidden": "true",
            style: `width:${(100 * Math.exp(logProb(i))).toFixed(1)}%`,
          }),
      ),
    );
    const total = writes.reduce((sum, _, i) => sum + logProb(i), 0);
    replace(
      output,
      h("bdi", { lang: engine.payload.languages?.[1] }, writing.text),
      writing.done ? h("span", { class: "axis" }, `  log-probability ${fixed(total)}`) : null,
    );
  }
  return { update, start };
}
