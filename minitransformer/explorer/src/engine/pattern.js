/**
 * Who may attend to whom, by position alone.
 *
 * Without a window and a sparse pattern every key is allowed. With them the keys in any of their parts are: those
 * within the window, those of the query's own block, the last ones of every block, those whose distance is a multiple
 * of the stride, and global tokens, which all see and which see all. `causal` then hides keys after the query.
 * Sources: Child et al. 2019, §4.2 and §4.3; Beltagy et al. 2020, §3.1.
 *
 * @module pattern
 */

/** @import { SparseConfig } from "./types.js" */

/** @typedef {{ causal: boolean, window: number | null, sparse: SparseConfig | null }} Pattern */

/** @param {Pattern} pattern @param {number} query @param {number} key @returns {boolean} */
export function allows({ causal, window, sparse }, query, key) {
  if (causal && key > query) return false;
  if (window === null && !sparse) return true;
  if (window !== null && Math.abs(query - key) <= window) return true;
  if (!sparse) return false;
  const { block, summary, stride, globalTokens } = sparse;
  return (
    (block !== null && Math.floor(query / block) === Math.floor(key / block)) ||
    (block !== null && key % block >= block - summary) ||
    (stride !== null && (query - key) % stride === 0) ||
    query < globalTokens ||
    key < globalTokens
  );
}
