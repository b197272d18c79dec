/**
 * Draws each next token from the model's distribution, with temperature and top-k, as minitransformer/decoding/
 * sampling.py; the draws are another generator's.
 *
 * @module sampling
 */

/** @import { Candidate, Inputs, SampledText, SamplingOptions } from "./types.js" */
/** @import { Model } from "./model.js" */
/** @import { Reader } from "./search.js" */
import { NO_INTERVENTIONS } from "./interventions.js";
import { check, checkIds, decodeStep, startDecoding } from "./model.js";
import { longestOutput } from "./search.js";
import { largestPlaces, logSoftmax } from "./softmax.js";

const SHOWN = 20;

/**
 * @param {Model} model @param {Reader} reader @param {Inputs} inputs @param {SamplingOptions} [options]
 * @returns {SampledText}
 */
export function* sampleText(model, reader, inputs, options = {}) {
  const { prefix = [], seed = 0, temperature = 1, topK = null, interventions = NO_INTERVENTIONS } = options;
  if (!(temperature >= 0)) throw new RangeError(`temperature is ${temperature}, expected 0 or more`);
  check(model.config, inputs);
  checkIds("prefix", prefix, model.config.vocabSize);
  const limit = longestOutput(model, inputs, options.maxTokens);
  let state = startDecoding(model, inputs.source, interventions);
  /** @type {readonly number[]} */
  let reads = inputs.target;
  /** @type {number[]} */
  const ids = [];
  let logProb = 0;
  let ended = false;
  while (ids.length < limit && !ended) {
    const step = decodeStep(model, state, reads);
    state = step.state;
    const logProbs = logSoftmax(step.logits);
    const shares = probabilities(step.logits, temperature, topK, model.config.forbidden);
    const isForced = ids.length < prefix.length;
    const token = isForced ? prefix[ids.length] : choose(shares, uniform(seed, ids.length));
    ids.push(token);
    reads = [token];
    logProb += logProbs[token];
    ended = model.config.endIds.includes(token);
    yield {
      length: ids.length,
      token: reader.tokens([token])[0],
      probability: isForced ? 1 : shares[token],
      logProb: logProbs[token],
      top: bestOf(reader, shares, logProbs, SHOWN),
      isDone: ended || ids.length === limit,
    };
  }
  const written = ended ? ids.slice(0, -1) : ids;
  return { ids: written, text: reader.decode(written), score: logProb, logProb, ended, node: -1 };
}

/**
 * The distribution (V) that a token is drawn from: logits over the temperature, the k best of them (with equals of the
 * last), softmax. Temperature 0 gives the best token everything.
 * @param {Float32Array} logits @param {number} temperature @param {number | null} topK
 * @param {readonly number[]} forbidden
 * @returns {Float64Array}
 */
export function probabilities(logits, temperature, topK, forbidden = []) {
  const allowed = logits.slice();
  for (const token of forbidden) allowed[token] = -Infinity;
  if (temperature === 0) {
    const [best] = largestPlaces(allowed, 1);
    return new Float64Array(allowed.length).fill(1, best, best + 1);
  }
  if (topK !== null && topK < allowed.length) {
    const least = allowed[largestPlaces(allowed, topK)[topK - 1]];
    allowed.forEach((logit, token) => {
      if (logit < least) allowed[token] = -Infinity;
    });
  }
  return logSoftmax(allowed, temperature).map(Math.exp);
}

/**
 * The token at `drawn`, in [0, 1), of the distribution's sums.
 * @param {Float64Array} shares @param {number} drawn
 */
export function choose(shares, drawn) {
  const total = shares.reduce((sum, share) => sum + share, 0);
  let sum = 0;
  for (let token = 0; token < shares.length; token++) {
    sum += shares[token];
    if (sum > drawn * total) return token;
  }
  return largestPlaces(shares, 1)[0];
}

/**
 * The `count` best tokens.
 * @param {Reader} reader @param {Float64Array} shares @param {Float64Array | Float32Array} logProbs
 * @param {number} count @returns {Candidate[]}
 */
export function bestOf(reader, shares, logProbs, count) {
  return largestPlaces(shares, count).map((id) => {
    return { token: reader.tokens([id])[0], probability: shares[id], logProb: logProbs[id] };
  });
}

/**
 * A number in [0, 1) that depends on the seed and on its place alone, so that a text can be continued anywhere. Its
 * bits are mixed by multiplications and shifts, with the constants of MurmurHash3's last step.
 * @param {number} seed @param {number} place
 */
function uniform(seed, place) {
  let bits = 0;
  for (const word of [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0, place]) {
    bits = (bits ^ word) + 0x9e3779b9;
    bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
    bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
    bits ^= bits >>> 16;
  }
  return (bits >>> 0) / 2 ** 32;
}
