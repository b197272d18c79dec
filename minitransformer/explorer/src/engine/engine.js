/**
 * The engine: all that views call. See the types of `Engine` for what each function does.
 *
 * @module engine
 */

/** @import { Encoded, Engine, Payload } from "./types.js" */
import { comparePasses } from "./compare.js";
import { tokenGradient } from "./gradient.js";
import { NO_INTERVENTIONS } from "./interventions.js";
import { logitLens } from "./lens.js";
import { row } from "./matrix.js";
import { buildModel, modelForward } from "./model.js";
import { bestOf, probabilities, sampleText } from "./sampling.js";
import { beamSearch } from "./search.js";
import { isBlank, Tokenizer } from "./tokenizer.js";
import { Weights } from "./weights.js";

export { NO_INTERVENTIONS } from "./interventions.js";
export { penalty } from "./search.js";

/** @param {Payload} payload @returns {Engine} */
export function createEngine(payload) {
  const { config } = payload;
  const tokenizer = new Tokenizer(payload.tokenizer);
  const model = buildModel(config, new Weights(payload));
  const translates = config.kind === "transformer";

  /**
   * The first `longest` ids, with `end` as the last.
   * @param {number[]} ids @param {number} longest @param {number[]} end @returns {Encoded}
   */
  const cut = (ids, longest, end = []) => {
    const isCut = ids.length + end.length > longest;
    return { ids: [...ids.slice(0, longest - end.length), ...end], isCut };
  };

  return {
    payload,
    config,
    translates,
    encodeSource: (text) => {
      if (isBlank(text)) return { ids: [], isCut: false };
      return cut(tokenizer.encode(text), config.maxLength, config.eosId === null ? [] : [config.eosId]);
    },
    encodeTarget: (text) => {
      const ids = tokenizer.encode(text);
      if (translates) return cut([config.bosId ?? 0, ...ids], config.maxLength);
      // Where one mark ends a text and begins the next, as in GPT-2, only an empty prompt gets it.
      const first = config.bosId ?? config.eosId;
      const marked = first !== null && (first !== config.eosId || ids.length === 0) ? [first, ...ids] : ids;
      return cut(marked, Math.max(config.maxLength - 1, 1));
    },
    decode: (ids) => tokenizer.decode(ids),
    tokens: (ids) => tokenizer.tokens(ids),
    trace: (inputs, interventions = NO_INTERVENTIONS) => modelForward(model, inputs, interventions),
    lens: (trace, position, count = 5, target = null) => logitLens(model, tokenizer, trace, position, count, target),
    top: (trace, position, count = 10, temperature = 1) => {
      const shares = probabilities(row(trace.logits, position), temperature, null);
      return bestOf(tokenizer, shares, row(trace.logProbs, position), count);
    },
    compare: comparePasses,
    search: (inputs, options) => beamSearch(model, tokenizer, inputs, options),
    sample: (inputs, options) => sampleText(model, tokenizer, inputs, options),
    gradient: (trace, position, token) => tokenGradient(model, trace, position, token),
  };
}
