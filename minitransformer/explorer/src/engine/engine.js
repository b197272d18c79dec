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
import { withPatch } from "./patches.js";
import { cutIntoPatches, patchTokens, pixelsOf } from "./pictures.js";
import { bestOf, probabilities, sampleText } from "./sampling.js";
import { beamSearch } from "./search.js";
import { Pretrained } from "./pretrained.js";
import { Tokenizer } from "./tokenizer.js";
import { Weights } from "./weights.js";
import { isBlank } from "./words.js";

export { NO_INTERVENTIONS } from "./interventions.js";
export { penalty } from "./search.js";

/** @param {Payload} payload @returns {Engine} */
export function createEngine(payload) {
  const { config } = payload;
  const { before, after } = payload.tokenizer;
  const tokenizer =
    "pieces" in payload.tokenizer ? new Pretrained(payload.tokenizer) : new Tokenizer(payload.tokenizer);
  const model = buildModel(config, new Weights(payload));
  const hasEncoder = config.encoder !== null;
  const { image } = config;

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
    hasEncoder,
    describes: image !== null,
    encodeSource: (text) => {
      if (image) {
        const picture = payload.pictures[payload.examples.indexOf(text)];
        return { ids: picture ? cutIntoPatches(pixelsOf(picture.pixels), image) : [], isCut: false };
      }
      if (isBlank(text)) return { ids: [], isCut: false };
      return cut([...before, ...tokenizer.encode(text)], config.maxLength, after);
    },
    encodeTarget: (text) => {
      const ids = tokenizer.encode(text);
      if (hasEncoder) return cut([config.bosId ?? 0, ...ids], config.maxLength);
      // Without a mark of its own, an empty prompt alone gets one. A text that begins with the mark gets no second one.
      const alone = [config.bosId, config.eosId].filter((id) => id !== null).slice(0, 1);
      const first = before.length || ids.length ? before : alone;
      const marked = first.every((id, i) => ids[i] === id) ? ids : [...first, ...ids];
      return cut(marked, Math.max(config.maxLength - 1, 1));
    },
    decode: (ids) => tokenizer.decode(ids),
    tokens: (ids) =>
      image && Array.isArray(ids[0]) ? patchTokens(ids.length, image) : tokenizer.tokens(/** @type {number[]} */ (ids)),
    trace: (inputs, interventions = NO_INTERVENTIONS, earlier = null) =>
      modelForward(model, inputs, interventions, earlier),
    lens: (trace, position, count = 5, target = null) => logitLens(model, tokenizer, trace, position, count, target),
    top: (trace, position, count = 10, temperature = 1) => {
      const shares = probabilities(row(trace.logits, position), temperature, null);
      return bestOf(tokenizer, shares, row(trace.logProbs, position), count);
    },
    compare: comparePasses,
    patch: withPatch,
    search: (inputs, options) => beamSearch(model, tokenizer, inputs, options),
    sample: (inputs, options) => sampleText(model, tokenizer, inputs, options),
    gradient: (trace, position, token) => tokenGradient(model, trace, position, token),
  };
}
