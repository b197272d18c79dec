/** What the views share: the engine, the visitor's choices and the model's run; a change of one tells all. */

import { Session } from "./session.js";
import { fromFragment, initialState, toFragment } from "./state.js";
import { h } from "./views/dom.js";

/** @typedef {import("./engine/types.js").Engine} Engine */
/** @typedef {import("./state.js").State} State */

export class App {
  /** @param {Engine} engine */
  constructor(engine) {
    this.engine = engine;
    this.session = new Session(engine);
    const text = engine.payload.examples[0] ?? "";
    this.initial = initialState(engine.translates, engine.config.decoder.numLayers, text);
    this.state = fromFragment(location.hash, this.initial);
    /** @type {(() => void)[]} */
    this.listeners = [];
  }

  /** @param {Partial<State>} changes */
  set(changes) {
    this.state = { ...this.state, ...changes };
    const fragment = toFragment(this.state, this.initial);
    history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname + location.search);
    this.changed();
  }

  /** Take the state from the address, which the visitor or the browser has changed. */
  reopen() {
    this.state = fromFragment(location.hash, this.initial);
    this.changed();
  }

  changed() {
    for (const listen of this.listeners) listen();
  }

  /** The tokens that the model has written, as the views show it. */
  written() {
    return this.engine.tokens(this.session.shown(this.state)?.written ?? []);
  }

  /** What stands in place of a figure while there is nothing to show. */
  nothing() {
    return h(
      "p",
      { class: "nothing" },
      this.engine.translates ? "Type a sentence above." : "Type the beginning of a text above.",
    );
  }
}
