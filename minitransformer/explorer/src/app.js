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
    this.initial = initialState(engine);
    this.state = this.fromAddress();
    /** @type {(() => void)[]} */
    this.listeners = [];
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.again = undefined;
  }

  /** @param {Partial<State>} changes */
  set(changes) {
    this.state = { ...this.state, ...changes };
    this.toAddress();
    this.changed();
  }

  /** The state that the address names; a model without an encoder has one stack and one map, and none has all heads. */
  fromAddress() {
    const { hasEncoder, describes, config } = this.engine;
    const state = fromFragment(location.hash, this.initial);
    const { map, stack } = hasEncoder ? state : this.initial;
    const display = state.display === "picture" && !describes ? this.initial.display : state.display;
    const { numHeads } = (config.encoder ?? config.decoder).attentions[0];
    return { ...state, map, stack, display, part: (state.part ?? 0) < numHeads ? state.part : null };
  }

  /** Put the state into the address. Safari and Firefox refuse more than some changes in half a minute: then later. */
  toAddress() {
    clearTimeout(this.again);
    const fragment = toFragment(this.state, this.initial);
    try {
      history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname + location.search);
    } catch {
      this.again = setTimeout(() => this.toAddress(), 5000);
    }
  }

  /** Show what the address names, which the visitor or the browser has changed. */
  reopen() {
    this.state = this.fromAddress();
    this.session.read(this.state);
    this.session.original?.finish();
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
    const { hasEncoder, describes } = this.engine;
    const asks = hasEncoder ? "Type a sentence above." : "Type the beginning of a text above.";
    return h("p", { class: "nothing" }, describes ? "Choose a picture above." : asks);
  }
}
