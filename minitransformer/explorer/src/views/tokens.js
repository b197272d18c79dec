/** Tokens as they are shown: their labels, and the words that they make. */

/** @typedef {import("../engine/types.js").Token} Token */

/**
 * A token's label: one that continues a word begins with `·`.
 * @param {readonly Token[]} tokens
 * @param {number} i
 */
export function labelOf(tokens, i) {
  const { text, isSpecial, word } = tokens[i];
  if (isSpecial) return text;
  const shown = [...text.replace(/^▁/, "")].map((letter) => (/\p{C}/u.test(letter) ? "�" : letter)).join("") || "▁";
  return i > 0 && tokens[i - 1].word === word && !tokens[i - 1].isSpecial ? `·${shown}` : shown;
}

/**
 * What stands on an axis of a figure: a token, or the tokens of a word.
 * @typedef {{ label: string, indices: number[], isSpecial: boolean }} Entry
 */

/**
 * @param {readonly Token[]} tokens
 * @param {boolean} words whether the tokens of a word stand together
 * @returns {Entry[]}
 */
export function entriesOf(tokens, words) {
  /** @type {Entry[]} */
  const entries = [];
  tokens.forEach((token, i) => {
    const before = i > 0 ? tokens[i - 1] : null;
    if (words && before && before.word === token.word && !token.isSpecial && !before.isSpecial) {
      const entry = /** @type {Entry} */ (entries.at(-1));
      entry.indices.push(i);
      entry.label += labelOf(tokens, i).slice(1);
    } else entries.push({ label: labelOf(tokens, i), indices: [i], isSpecial: token.isSpecial });
  });
  return entries;
}
