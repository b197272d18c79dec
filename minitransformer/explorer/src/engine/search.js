/**
 * Searches for the most probable output, one token a step, as minitransformer/decoding/search.py does: the same tokens,
 * scores and choices between equals. A beam of one is greedy.
 *
 * Every step extends each prefix by its best tokens and keeps the best extensions, one a slot. A prefix that takes </s>
 * leaves the beam, and its slot closes. A finished output scores `log P / lp`, `lp = ((5 + length) / 6)^α` (Wu 2016,
 * eq. 14). The search ends when no slot is left or no prefix can win: its score can't exceed `log P / lp(longest)`.
 *
 * It is a generator: each step yields the nodes that it looked at, and a view stops, goes on and plays it again.
 *
 * @module search
 */

/** @import { Hypothesis, Inputs, Search, SearchNode, SearchOptions, Token } from "./types.js" */
/** @import { Decoding, Model } from "./model.js" */
import { NO_INTERVENTIONS } from "./interventions.js";
import { check, checkIds, decodeStep, startDecoding } from "./model.js";
import { largestPlaces, logSoftmax } from "./softmax.js";

const MAX_EXTRA = 50; // Vaswani 2017, §6.1: outputs are at most so many tokens longer than their source
const MAX_CONTINUATION = 100;

/**
 * What a search must know of a tokenizer.
 * @typedef {{ tokens: (ids: readonly number[]) => Token[], decode: (ids: readonly number[]) => string }} Reader
 */

/**
 * A prefix in the beam: its node, its tokens, and the state from which it goes on.
 * @typedef {{ node: SearchNode, ids: number[], state: Decoding, reads: readonly number[] }} Prefix
 */

/** `lp = ((5 + length) / 6)^α`. @param {number} length @param {number} alpha */
export function penalty(length, alpha) {
  return ((5 + length) / 6) ** alpha;
}

/**
 * @param {Model} model @param {Reader} reader @param {Inputs} inputs @param {SearchOptions} [options]
 * @returns {Search}
 */
export function* beamSearch(model, reader, inputs, options = {}) {
  const { config } = model;
  const { beams = 4, prefix = [], interventions = NO_INTERVENTIONS } = options;
  const alpha = options.lengthPenalty ?? (config.encoder ? 0.6 : 0);
  if (!Number.isInteger(beams) || beams < 1) throw new RangeError(`beams is ${beams}, expected 1 or more`);
  check(config, inputs);
  checkIds("prefix", prefix, config.vocabSize);
  const limit = longestOutput(model, inputs, options.maxTokens);
  const first = node(0, -1, 0, null, 0, 0, 1, "kept", 0);
  const nodes = [first];
  /** @type {Hypothesis[]} */
  const found = [];
  /** @type {Prefix[]} */
  let running = [
    { node: first, ids: [], state: startDecoding(model, inputs.source, interventions), reads: inputs.target },
  ];
  let slots = beams;
  let toBeat = -Infinity;

  for (let length = 1; length <= limit && running.length > 0; length++) {
    const isForced = length <= prefix.length;
    const extensions = isForced
      ? [forcedExtension(model, running[0], prefix[length - 1])]
      : running.flatMap((each) => bestExtensions(model, each, beams));
    extensions.sort((a, b) => b.logProb - a.logProb); // stable: of equals the better prefix, then the smaller id
    running = [];
    /** @type {SearchNode[]} */
    const looked = [];
    const kept = isForced ? 1 : slots;
    extensions.forEach(({ before, state, token, tokenLogProb, logProb }, rank) => {
      const isEnd = config.endIds.includes(token);
      /** @type {SearchNode["status"]} */
      let status = isForced ? "forced" : "kept";
      if (rank >= kept) status = "dropped";
      else if (isEnd) status = "ended";
      else if (length === limit) status = "cut";
      const ids = [...before.ids, token];
      const [shown] = reader.tokens([token]);
      const parent = before.node.id;
      const lp = penalty(length, alpha);
      const made = node(nodes.length, parent, length, shown, tokenLogProb, logProb, lp, status, rank);
      nodes.push(made);
      looked.push(made);
      if (status === "ended" || status === "cut") {
        slots--;
        found.push(hypothesisOf(reader, made, isEnd ? before.ids : ids, isEnd));
        toBeat = Math.max(toBeat, made.score);
      } else if (status !== "dropped") {
        running.push({ node: made, ids, state, reads: [token] });
      }
    });
    const bound = running.length ? running[0].node.logProb / penalty(limit, alpha) : -Infinity;
    const isDone = length === limit || !(bound > toBeat);
    yield { length, nodes: looked, openSlots: slots, toBeat, bound, isDone };
    if (isDone) break;
  }
  found.sort((a, b) => Number(b.ended) - Number(a.ended) || b.score - a.score); // those that ended come first
  return { hypotheses: found, nodes };
}

/**
 * The most tokens that may be written.
 * @param {Model} model @param {Inputs} inputs @param {number | null} [maxTokens]
 */
export function longestOutput({ config }, { source, target }, maxTokens) {
  if (config.kind === "gpt") return Math.min(maxTokens ?? MAX_CONTINUATION, config.maxLength - target.length);
  const room = config.maxLength + 1 - target.length;
  if (config.kind === "captioner") return Math.min(maxTokens ?? room, room);
  const real = (source ?? []).filter((id) => id !== config.padId).length;
  return Math.min(maxTokens ?? real + MAX_EXTRA, room);
}

/**
 * Log-probabilities (V) of the tokens after a prefix as float32, as Python has them; and the prefix's new state.
 * @param {Model} model @param {Prefix} prefix
 */
function nextTokens(model, prefix) {
  const { logits, state } = decodeStep(model, prefix.state, prefix.reads);
  const logProbs = Float32Array.from(logSoftmax(logits));
  if (Number.isNaN(logProbs[0])) throw new Error("the model's logits are NaN: its weights are far too large");
  return { logProbs, state };
}

/**
 * The best extensions of one prefix: a beam can't hold more than its width.
 * @param {Model} model @param {Prefix} before @param {number} count
 */
function bestExtensions(model, before, count) {
  const { logProbs, state } = nextTokens(model, before);
  for (const token of model.config.forbidden) logProbs[token] = -Infinity;
  return largestPlaces(logProbs, count)
    .filter((token) => logProbs[token] > -Infinity)
    .map((token) => extension(before, state, token, logProbs[token]));
}

/** @param {Model} model @param {Prefix} before @param {number} token */
function forcedExtension(model, before, token) {
  const { logProbs, state } = nextTokens(model, before);
  return extension(before, state, token, logProbs[token]);
}

/** @param {Prefix} before @param {Decoding} state @param {number} token @param {number} tokenLogProb */
function extension(before, state, token, tokenLogProb) {
  return { before, state, token, tokenLogProb, logProb: before.node.logProb + tokenLogProb };
}

/**
 * @param {number} id @param {number} parent @param {number} depth @param {Token | null} token
 * @param {number} tokenLogProb @param {number} logProb @param {number} lp @param {SearchNode["status"]} status
 * @param {number} rank @returns {SearchNode}
 */
function node(id, parent, depth, token, tokenLogProb, logProb, lp, status, rank) {
  return { id, parent, depth, token, tokenLogProb, logProb, score: logProb / lp, status, rank };
}

/**
 * @param {Reader} reader @param {SearchNode} made @param {number[]} ids @param {boolean} ended @returns {Hypothesis}
 */
function hypothesisOf(reader, { id, score, logProb }, ids, ended) {
  return { ids, text: reader.decode(ids), score, logProb, ended, node: id };
}
