/**
 * Pictures as a captioner's encoder reads them. Source: Dosovitskiy et al. 2021, §3.1.
 *
 * @module pictures
 */

/** @import { ImageConfig, Token } from "./types.js" */
import { bytesOf } from "./weights.js";

/** base64 of float32 → pixels (channels, height, width). @param {string} base64 */
export function pixelsOf(base64) {
  return new Float32Array(bytesOf(base64).buffer);
}

/** The patches of a side. @param {ImageConfig} image */
export function patchesAcross({ size, patchSize }) {
  return size / patchSize;
}

/**
 * Pixels → patches row by row, (T, channels · patchSize²): the numbers of each channel by channel, row by row.
 * @param {Float32Array} pixels @param {ImageConfig} image @returns {number[][]}
 */
export function cutIntoPatches(pixels, image) {
  const { channels, size, patchSize } = image;
  const across = patchesAcross(image);
  return Array.from({ length: across ** 2 }, (_, patch) => {
    const [top, left] = [Math.floor(patch / across) * patchSize, (patch % across) * patchSize];
    return Array.from({ length: channels * patchSize ** 2 }, (_, i) => {
      const [channel, inside] = [Math.floor(i / patchSize ** 2), i % patchSize ** 2];
      const [y, x] = [top + Math.floor(inside / patchSize), left + (inside % patchSize)];
      return pixels[(channel * size + y) * size + x];
    });
  });
}

/**
 * Patches as tokens, which are named by their row and column, both from 1.
 * @param {number} count @param {ImageConfig} image @returns {Token[]}
 */
export function patchTokens(count, image) {
  const across = patchesAcross(image);
  return Array.from({ length: count }, (_, i) => {
    const text = `${Math.floor(i / across) + 1},${(i % across) + 1}`;
    return { id: i, text, piece: "", word: i, isSpecial: false };
  });
}
