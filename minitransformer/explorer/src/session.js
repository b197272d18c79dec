/** A sentence on its way through the model: what is read, what has been written so far, and the traces of both. */

import { NO_INTERVENTIONS } from "./engine/interventions.js";
import { visible } from "./engine/utf8.js";

/** @typedef {import("./engine/types.js").Engine} Engine */
/** @typedef {import("./engine/types.js").Interventions} Interventions */
/** @typedef {import("./engine/types.js").SearchNode} SearchNode */
/** @typedef {import("./engine/types.js").Source} Source */
/** @typedef {import("./engine/types.js").SearchStep} SearchStep */
/** @typedef {import("./engine/types.js").Token} Token */
/** @typedef {import("./engine/types.js").Trace} Trace */
/** @typedef {import("./state.js").State} State */

const GPT_TOKENS = { least: 8, most: 40 }; // that a language model writes in this page
const MOST_PRODUCTS = 2e9; // that it takes for them: a token takes one for each of its weights

/** The number of a model's weights. @param {Engine} engine */
export function sizeOf({ payload }) {
  return payload.tensors.reduce((sum, { shape }) => sum + shape.reduce((size, length) => size * length, 1), 0);
}

/** The most tokens that a language model writes. @param {Engine} engine */
function tokensOf(engine) {
  return Math.max(GPT_TOKENS.least, Math.min(GPT_TOKENS.most, Math.floor(MOST_PRODUCTS / sizeOf(engine))));
}

/** One search, or one text that is drawn, step by step. */
export class Writing {
  /**
   * @param {Engine} engine
   * @param {string} name the text, or the name of the picture
   * @param {Source | null} source
   * @param {number[]} start what stands in the decoder before anything is written
   * @param {{ beams: number, penalty: number, temperature: number, seed: number | null }} choice
   * @param {Interventions} interventions
   * @param {number[]} prefix
   */
  constructor(engine, name, source, start, choice, interventions, prefix) {
    const inputs = { source, target: start };
    this.engine = engine;
    this.name = name;
    this.source = source;
    this.start = start;
    this.interventions = interventions;
    /** @type {SearchNode[]} */
    this.nodes = [];
    /** @type {SearchStep | null} */
    this.last = null;
    /** @type {number[]} */
    this.written = [];
    this.best = 0; // the node that `written` ends in
    this.done = false;
    const room = engine.config.maxLength - start.length;
    const maxTokens = engine.hasEncoder ? null : Math.max(0, Math.min(tokensOf(engine), room));
    if (choice.seed !== null && !engine.hasEncoder) {
      const { temperature, seed } = choice;
      this.steps = this.sampled(
        engine.sample(inputs, { temperature, topK: 40, seed, maxTokens, prefix, interventions }),
      );
    } else {
      const { beams, penalty } = choice;
      this.steps = this.searched(
        engine.search(inputs, { beams, lengthPenalty: penalty, maxTokens, prefix, interventions }),
      );
    }
  }

  /** Take one step; false if there is none left. */
  step() {
    if (!this.done) this.done = Boolean(this.steps.next().done);
    return !this.done;
  }

  finish() {
    while (this.step());
    return this;
  }

  /** @param {import("./engine/types.js").Search} search */
  *searched(search) {
    for (;;) {
      const { value, done } = search.next();
      if (done) {
        const { hypotheses, nodes } = value;
        this.nodes = nodes;
        if (hypotheses.length) this.follow(hypotheses[0].node);
        return;
      }
      this.last = value;
      for (const node of value.nodes) this.nodes[node.id] = node;
      const kept = value.nodes.find(({ status }) => status === "kept" || status === "forced");
      if (kept) this.follow(kept.id);
      yield;
    }
  }

  /** @param {import("./engine/types.js").SampledText} text */
  *sampled(text) {
    for (;;) {
      const { value, done } = text.next();
      if (done) return;
      this.written.push(value.token.id);
      yield;
    }
  }

  /** @param {number} id of a node */
  follow(id) {
    this.best = id;
    this.written = this.path(id).map(({ token }) => /** @type {Token} */ (token).id);
  }

  /**
   * @param {number} id
   * @returns {SearchNode[]} from the first token to this one
   */
  path(id) {
    const path = [];
    for (let node = this.nodes[id]; node?.token; node = this.nodes[node.parent]) path.push(node);
    return path.reverse();
  }

  /** What the decoder reads when it writes the last of these tokens. */
  get inputs() {
    return { source: this.source, target: [...this.start, ...this.written.slice(0, -1)] };
  }

  get text() {
    return visible(this.engine.decode(this.written));
  }
}

/**
 * What the model reads of a text: a translator's source, a GPT's start; or of a picture.
 * @typedef {{ source: Source | null, start: number[], isCut: boolean }} Read
 */

/** The model's run on the sentence, and the changed model's. */
export class Session {
  /** @param {Engine} engine */
  constructor(engine) {
    this.engine = engine;
    this.isCut = false;
    /** @type {Source} */
    this.source = [];
    /** @type {Writing | null} */
    this.original = null;
    /** @type {Map<string, Trace>} */
    this.traces = new Map();
    /** @type {Map<string, Writing>} */
    this.changes = new Map();
    this.key = "";
    /** @type {string | null} */
    this.text = null;
  }

  /**
   * Begin anew if the state asks for something else than before. Another text waits to be started; the same one,
   * searched in another way, is written at once.
   * @param {State} state
   */
  read(state) {
    const { text, beams, penalty, seed } = state;
    const key = JSON.stringify([text, beams, penalty, seed, seed === null ? 0 : state.temperature]);
    if (key === this.key) return;
    const again = this.text === text;
    [this.key, this.text] = [key, text];
    this.restart(state);
    if (again) this.original?.finish();
  }

  /**
   * The longest trace of a beginning of the target.
   * @param {import("./engine/types.js").Inputs} inputs
   * @param {Interventions} off
   */
  begun({ source, target }, off) {
    const begins = (/** @type {Trace} */ { inputs, interventions }) =>
      interventions === off &&
      inputs.target.length < target.length &&
      String(inputs.source) === String(source) &&
      inputs.target.every((id, i) => id === target[i]);
    const lengthOf = (/** @type {Trace | null} */ trace) => trace?.inputs.target.length ?? 0;
    return [...this.traces.values()]
      .filter(begins)
      .reduce((best, each) => (lengthOf(each) > lengthOf(best) ? each : best), /** @type {Trace | null} */ (null));
  }

  /** @param {State} state */
  restart(state) {
    this.traces.clear();
    this.changes.clear();
    const read = this.begin(state.text);
    this.isCut = read?.isCut ?? false;
    this.source = read?.source ?? [];
    this.original = read && new Writing(this.engine, state.text, read.source, read.start, state, NO_INTERVENTIONS, []);
  }

  /**
   * @param {string} text
   * @returns {Read | null} null where there is nothing to read
   */
  begin(text) {
    if (!this.engine.hasEncoder) {
      const { ids, isCut } = this.engine.encodeTarget(text);
      return ids.length ? { source: null, start: ids, isCut } : null;
    }
    const { ids, isCut } = this.engine.encodeSource(text);
    return ids.length ? { source: ids, start: this.engine.encodeTarget("").ids, isCut } : null;
  }

  /**
   * The changed model's own run, to its end; null where nothing has been changed.
   * @param {State} state
   */
  changed(state) {
    if (!this.original || !isChanged(state)) return null;
    const { off, prefix, edited, text, other, part, patch } = state;
    return this.finished(state, edited ?? text, [off, prefix, patch && [other, part, patch]], (read) => [
      this.patched(withinSentence(off, read), read, state),
      this.prefixIds(prefix),
    ]);
  }

  /**
   * With what the visitor chose of the other sentence, if this run and the model have that place.
   * @param {Interventions} off
   * @param {Read} read
   * @param {State} state
   */
  patched(off, read, state) {
    const { part, patch } = state;
    const other = patch && this.other(state);
    if (!patch || !other || positionsOf(other).length !== positionsOf(read).length) return off;
    const place = placeAt(this.engine, part, patch.layer, patch.position);
    return place && (patch.position ?? 0) < positionsOf(read).length
      ? this.engine.patch(off, this.donor(other), place)
      : off;
  }

  /** What a run makes of all that it has read. @param {Writing} writing */
  donor(writing) {
    return this.trace(writing, []);
  }

  /**
   * The model's run on the other sentence, to its end; null where there is none.
   * @param {State} state
   */
  other(state) {
    return state.other.trim() ? this.finished(state, state.other, "other", () => [NO_INTERVENTIONS, []]) : null;
  }

  /**
   * A run to its end, kept for the next time; null where there is nothing to read.
   * @param {State} state
   * @param {string} text
   * @param {unknown} choices all that it depends on besides
   * @param {(read: Read) => [Interventions, number[]]} change what is changed in it, and what it writes first
   */
  finished(state, text, choices, change) {
    const { beams, penalty, seed, temperature } = state;
    const key = JSON.stringify([text, choices, beams, penalty, seed, temperature]);
    let writing = this.changes.get(key);
    if (!writing) {
      const read = this.begin(text);
      if (!read) return null;
      writing = new Writing(this.engine, text, read.source, read.start, state, ...change(read)).finish();
      if (this.changes.size > 8) this.changes.clear();
      this.changes.set(key, writing);
    }
    return writing;
  }

  /** @param {string} prefix */
  prefixIds(prefix) {
    const { ids } = this.engine.encodeTarget(prefix);
    const mark = this.engine.encodeTarget("").ids; // which some models have before an empty text alone
    return prefix.trim() ? ids.slice(ids[0] === mark[0] ? mark.length : 0) : [];
  }

  /**
   * The run that the views show.
   * @param {State} state
   */
  shown(state) {
    return (state.changed && this.changed(state)) || this.original;
  }

  /**
   * @param {Writing} writing
   * @param {number[]} [written] what is written in place of its own tokens
   */
  trace(writing, written = writing.written) {
    const inputs = { source: writing.source, target: [...writing.start, ...written.slice(0, -1)] };
    const key = JSON.stringify([inputs, writing.interventions]);
    let trace = this.traces.get(key);
    if (!trace) {
      trace = this.engine.trace(inputs, writing.interventions, this.begun(inputs, writing.interventions));
      if (this.traces.size > 8) this.traces.clear();
      this.traces.set(key, trace);
    }
    return trace;
  }
}

/** The tokens whose positions can be patched. @param {Pick<Read, "source" | "start">} run */
export function positionsOf({ source, start }) {
  return source ?? start;
}

/**
 * A place of the stack that reads the sentence; null where the model has none such.
 * @param {Engine} engine
 * @param {number | null} part
 * @param {number} layer
 * @param {number | null} position
 * @returns {import("./engine/types.js").PatchPlace | null}
 */
export function placeAt({ config }, part, layer, position) {
  const stack = config.encoder ? "encoder" : "decoder";
  const { numLayers, attentions } = config.encoder ?? config.decoder;
  if (layer > numLayers || (part !== null && (layer === 0 || part >= attentions[0].numHeads))) return null;
  return { stack, layer, kind: part === null ? null : "self_attention", head: part, position };
}

/** @param {State} state */
export function isChanged({ off, prefix, edited, text, other, patch }) {
  const isPatched = Boolean(patch && other.trim());
  return (
    isPatched ||
    Object.values(off).some((places) => places.length) ||
    Boolean(prefix.trim()) ||
    (edited ?? text) !== text
  );
}

/**
 * The places of positions that this sentence has: an edited one may be shorter.
 * @param {Interventions} off
 * @param {Read} read
 * @returns {Interventions}
 */
function withinSentence(off, { source, start }) {
  /** @param {{ stack: string, position: number }} place */
  const exists = ({ stack, position }) => position < (stack === "encoder" ? (source ?? []).length : start.length);
  return { ...off, masked: off.masked.filter(exists), unplaced: off.unplaced.filter(exists) };
}
