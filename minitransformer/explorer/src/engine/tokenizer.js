/**
 * The byte-pair tokenizer of minitransformer/data/tokenizer.py: the same ids for every text.
 *
 *     ids 0–2       <pad>, <s>, </s>
 *     ids 3–258     the 256 bytes: a character without a token is written as its UTF-8 bytes
 *     ids 259–…     characters, then merges, the oldest first
 *
 * Text is cut into words that keep the space before them; one space is put before the text. Within a word the oldest
 * merge that applies is made first, everywhere, until none applies.
 *
 * @module tokenizer
 */

/** @import { OwnTokenizer } from "./types.js" */
import { inBrackets, printed, textOf, utf8 } from "./utf8.js";
import { inWords, wordsOf } from "./words.js";

const SPECIAL_TOKENS = ["<pad>", "<s>", "</s>"];
const FIRST_BYTE = SPECIAL_TOKENS.length;
const FIRST_TEXT = FIRST_BYTE + 256;

export class Tokenizer {
  /** @type {Map<string, number>} */
  #idOf = new Map();
  /** @type {string[]} the text of each id from FIRST_TEXT on */
  #texts = [];
  /** @type {Map<string, number>} "left right" → the merge's id, smaller for an older one */
  #merged = new Map();
  /** @type {Map<string, number[]>} */
  #idsOfWord = new Map();

  /** @param {OwnTokenizer} tokenizer */
  constructor({ characters, merges }) {
    for (const character of characters) this.#addText(character);
    for (const [left, right] of merges) {
      const pair = `${this.#idOf.get(left)} ${this.#idOf.get(right)}`;
      this.#merged.set(pair, this.#addText(left + right));
    }
  }

  /** The ids of a text, without <s> and </s>. @param {string} text @returns {number[]} */
  encode(text) {
    return text === "" ? [] : wordsOf(" " + text).flatMap((word) => this.#encodeWord(word));
  }

  /**
   * The text of ids, without special tokens; bytes that are not UTF-8 become U+FFFD.
   * @param {readonly number[]} ids
   */
  decode(ids) {
    return textOf(ids.flatMap((id) => this.#bytesOf(id))).replace(/^ /, "");
  }

  /** Ids as tokens for display, in words. @param {readonly number[]} ids */
  tokens(ids) {
    return inWords(
      ids,
      (id) => this.#bytesOf(id),
      (id) => this.#readable(id),
      (id) => id < FIRST_BYTE,
    );
  }

  /** @param {string} text @returns {number} its id */
  #addText(text) {
    const id = FIRST_TEXT + this.#texts.length;
    this.#texts.push(text);
    this.#idOf.set(text, id);
    return id;
  }

  /** @param {string} word @returns {number[]} */
  #encodeWord(word) {
    const known = this.#idsOfWord.get(word);
    if (known) return known;
    let ids = [...word].flatMap((character) => {
      const id = this.#idOf.get(character);
      return id === undefined ? utf8(character).map((byte) => FIRST_BYTE + byte) : [id];
    });
    for (let best = this.#oldestMerge(ids); best; best = this.#oldestMerge(ids)) ids = merged(ids, best);
    this.#idsOfWord.set(word, ids);
    return ids;
  }

  /** The oldest merge of two neighbours, null if none applies. @param {number[]} ids */
  #oldestMerge(ids) {
    /** @type {{ left: number, right: number, id: number } | null} */
    let oldest = null;
    for (let i = 0; i + 1 < ids.length; i++) {
      const id = this.#merged.get(`${ids[i]} ${ids[i + 1]}`);
      if (id !== undefined && (!oldest || id < oldest.id)) oldest = { left: ids[i], right: ids[i + 1], id };
    }
    return oldest;
  }

  /** @param {number} id @returns {number[]} */
  #bytesOf(id) {
    if (id < FIRST_BYTE) return [];
    return id < FIRST_TEXT ? [id - FIRST_BYTE] : utf8(this.#texts[id - FIRST_TEXT] ?? "");
  }

  /** Python's `tokens`: ▁dog for " dog", <0xC3> for a byte, <s> itself. @param {number} id */
  #readable(id) {
    if (id < FIRST_BYTE) return SPECIAL_TOKENS[id];
    if (id < FIRST_TEXT) return inBrackets(id - FIRST_BYTE);
    return printed((this.#texts[id - FIRST_TEXT] ?? `<${id}>`).replaceAll(" ", "▁"));
  }
}

/**
 * ids with each pair replaced, from left to right.
 * @param {number[]} ids @param {{ left: number, right: number, id: number }} merge
 */
function merged(ids, { left, right, id }) {
  const result = [ids[0]];
  for (const next of ids.slice(1)) {
    if (next === right && result[result.length - 1] === left) result[result.length - 1] = id;
    else result.push(next);
  }
  return result;
}
