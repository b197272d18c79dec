/**
 * A stack of blocks over token ids or patches: an encoder, or a decoder. Source: Vaswani 2017, §3.1.
 *
 * @module stack
 */

/** @import { LayerTrace, Matrix, Source, StackConfig, StackName, StackTrace, Weight } from "./types.js" */
/** @import { Pass } from "./attention.js" */
/** @import { Block } from "./block.js" */
/** @import { Linear } from "./linear.js" */
/** @import { Norm } from "./norm.js" */
import { blockBackward, blockForward } from "./block.js";
import { placesOf } from "./interventions.js";
import { linearForward } from "./linear.js";
import { add, matrixOf, row, scaled, scaledRow, zeros } from "./matrix.js";
import { normBackward, normForward } from "./norm.js";
import { patched, patchedBackward, patchesOf } from "./patches.js";
import { positionVectors } from "./positions.js";

/**
 * tokens: the table of tokens, (V, C), whose rows are multiplied by `embeddingScale`; patches: the map that makes vectors
 * of patches where the stack reads these; positionTable: learned positions.
 * @typedef {object} Stack
 * @property {StackName} name
 * @property {StackConfig} config
 * @property {Weight} tokens
 * @property {number} embeddingScale
 * @property {Linear | null} patches
 * @property {Matrix | null} positionTable
 * @property {Block[]} blocks
 * @property {Norm | null} finalNorm
 */

/**
 * ids (T) → a trace whose `output` is (T, C). With `past`, the trace of the positions before, ids follow those.
 * @param {Stack} stack @param {Readonly<Source>} ids @param {Pass} pass @param {StackTrace | null} past
 * @returns {StackTrace}
 */
export function stackForward(stack, ids, pass, past) {
  const embedding = embed(stack, ids); // (T, C)
  const places = placesOf(pass.off, stack.name, pass.start, ids.length);
  const positions = positionVectors(stack.config.positions, embedding.cols, stack.positionTable, places);
  const entered = positions ? add(embedding, positions) : embedding;
  const input = patched(entered, patchesOf(pass.off, stack.name, 0), pass.start);
  /** @type {LayerTrace[]} */
  const layers = [];
  let x = input;
  stack.blocks.forEach((block, i) => {
    layers.push(blockForward(block, x, pass, past ? past.layers[i] : null));
    x = layers[i].output;
  });
  const { finalNorm, output } = leave(stack, x);
  return {
    name: stack.name,
    ids: /** @type {Source} */ ([...ids]),
    embedding,
    positions,
    input,
    layers,
    finalNorm,
    output,
  };
}

/**
 * Returns dembedding (T, C), before positions are added, and dmemory, the sum over the blocks.
 * @param {Stack} stack @param {Matrix} doutput (T, C) @param {StackTrace} trace @param {Pass} pass
 * @returns {{ dembedding: Matrix, dmemory: Matrix | null }}
 */
export function stackBackward(stack, doutput, trace, pass) {
  let dx = scaled(doutput, stack.config.outputScale); // output = outputScale · finalNorm(x)
  if (stack.finalNorm && trace.finalNorm) dx = normBackward(stack.finalNorm, dx, trace.finalNorm);
  /** @type {Matrix | null} */
  let dmemory = null;
  for (let i = stack.blocks.length - 1; i >= 0; i--) {
    const back = blockBackward(stack.blocks[i], dx, trace.layers[i], pass);
    dx = back.dx;
    if (back.dmemory) dmemory = dmemory ? add(dmemory, back.dmemory) : back.dmemory; // every block reads the memory
  }
  dx = patchedBackward(dx, patchesOf(pass.off, stack.name, 0)); // input = patched(embedding + positions)
  return { dembedding: dx, dmemory };
}

/**
 * How a residual stream x (T, C) leaves the stack: through the final norm of pre-norm stacks, times the output's scale.
 * @param {Stack} stack @param {Matrix} x
 */
export function leave(stack, x) {
  const finalNorm = stack.finalNorm ? normForward(stack.finalNorm, x) : null;
  const normed = finalNorm ? finalNorm.output : x;
  return { finalNorm, output: stack.config.outputScale === 1 ? normed : scaled(normed, stack.config.outputScale) };
}

/**
 * `embeddingScale · table[ids]`, or the projected patches.
 * @param {Stack} stack @param {Readonly<Source>} source @returns {Matrix}
 */
function embed({ tokens, embeddingScale, patches }, source) {
  if (patches) {
    const pixels = Float32Array.from(source.flat());
    return linearForward(patches, matrixOf(source.length, patches.weight.rows, pixels));
  }
  const ids = /** @type {readonly number[]} */ (source);
  const x = zeros(ids.length, tokens.cols);
  ids.forEach((id, t) => row(x, t).set(scaledRow(tokens, id, embeddingScale)));
  return x;
}
