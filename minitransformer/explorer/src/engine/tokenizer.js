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

/** @import { Payload, Token } from "./types.js" */

const SPECIAL_TOKENS = ["<pad>", "<s>", "</s>"];
const FIRST_BYTE = SPECIAL_TOKENS.length;
const FIRST_TEXT = FIRST_BYTE + 256;

// Python's classes of characters: \w is letters, numbers and _; \s lacks U+FEFF and has five control characters more.
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const LETTER = "[\\p{L}\\p{Nl}\\p{No}]"; // Python's [^\W\d_]
const OTHER = `[^\\p{L}\\p{N}_${SPACE}]`; // Python's [^\w\s]
const WORD = new RegExp(
  ` ?${LETTER}{1,63}| ?\\p{Nd}{1,63}| ?${OTHER}{1,63}| ?_{1,63}|[${SPACE}]{1,64}(?![^${SPACE}])|[${SPACE}]`,
  "gu",
);
const BLANK = new RegExp(`^[${SPACE}]*$`, "u");
const UNPRINTABLE = /[\p{C}\p{Z}]/gu;

/** Whether a text is empty or white space alone. @param {string} text */
export function isBlank(text) {
  return BLANK.test(text);
}

export class Tokenizer {
  /** @type {Map<string, number>} */
  #idOf = new Map();
  /** @type {string[]} the text of each id from FIRST_TEXT on */
  #texts = [];
  /** @type {Map<string, number>} "left right" → the merge's id, smaller for an older one */
  #merged = new Map();
  /** @type {Map<string, number[]>} */
  #idsOfWord = new Map();

  /** @param {Payload["tokenizer"]} tokenizer */
  constructor({ characters, merges }) {
    for (const character of characters) this.#addText(character);
    for (const [left, right] of merges) {
      const pair = `${this.#idOf.get(left)} ${this.#idOf.get(right)}`;
      this.#merged.set(pair, this.#addText(left + right));
    }
  }

  /** The number of ids. */
  get vocabSize() {
    return FIRST_TEXT + this.#texts.length;
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
    const bytes = ids.flatMap((id) => this.#bytesOf(id));
    return textOf(bytes).replace(/^ /, "");
  }

  /** Ids as tokens for display, in words. @param {readonly number[]} ids @returns {Token[]} */
  tokens(ids) {
    const pieces = this.#pieces(ids);
    const starts = new Set(); // where words start in the text of all pieces
    let length = 0;
    for (const word of wordsOf(pieces.join(""))) {
      starts.add(length);
      length += word.length;
    }
    let word = -1;
    let place = 0;
    return ids.map((id, i) => {
      const isSpecial = id < FIRST_BYTE;
      const follows = i > 0 && !(ids[i - 1] < FIRST_BYTE);
      const isPart = pieces[i] === "" && follows; // of a character that began before
      if (isSpecial || !follows || (!isPart && starts.has(place))) word++;
      place += pieces[i].length;
      return { id, text: this.#readable(id), piece: pieces[i], word, isSpecial };
    });
  }

  /** @param {string} text @returns {number} its id */
  #addText(text) {
    const id = this.vocabSize;
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

  /**
   * The characters of each token; bytes that make one together give it to the first.
   * @param {readonly number[]} ids
   */
  #pieces(ids) {
    const pieces = ids.map((id) => this.#texts[id - FIRST_TEXT] ?? "");
    const isByte = (/** @type {number} */ i) => i < ids.length && ids[i] >= FIRST_BYTE && ids[i] < FIRST_TEXT;
    for (let i = 0; i < ids.length;) {
      if (!isByte(i)) {
        i++;
        continue;
      }
      let length = 4;
      while (length > 0 && !wholeCharacter(ids, i, length, isByte)) length--;
      pieces[i] = length ? textOf(ids.slice(i, i + length).map((id) => id - FIRST_BYTE)) : "\ufffd";
      i += Math.max(length, 1);
    }
    return pieces;
  }

  /** @param {number} id @returns {number[]} */
  #bytesOf(id) {
    if (id < FIRST_BYTE) return [];
    return id < FIRST_TEXT ? [id - FIRST_BYTE] : utf8(this.#texts[id - FIRST_TEXT] ?? "");
  }

  /** Python's `tokens`: ▁dog for " dog", <0xC3> for a byte, <s> itself. @param {number} id */
  #readable(id) {
    if (id < FIRST_BYTE) return SPECIAL_TOKENS[id];
    if (id < FIRST_TEXT) return `<0x${(id - FIRST_BYTE).toString(16).toUpperCase().padStart(2, "0")}>`;
    return (this.#texts[id - FIRST_TEXT] ?? `<${id}>`).replaceAll(" ", "▁").replace(UNPRINTABLE, escaped);
  }
}

/** The words that no merge crosses; every character is in one. @param {string} text @returns {string[]} */
export function wordsOf(text) {
  return text.match(WORD) ?? [];
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

/**
 * Whether these bytes are one character in UTF-8.
 * @param {readonly number[]} ids @param {number} i @param {number} length @param {(i: number) => boolean} isByte
 */
function wholeCharacter(ids, i, length, isByte) {
  if (!isByte(i + length - 1)) return false;
  for (let j = i; j < i + length; j++) if (!isByte(j)) return false;
  const text = strictText(ids.slice(i, i + length).map((id) => id - FIRST_BYTE));
  return text !== null && [...text].length === 1;
}

// --- UTF-8, which may hold lone surrogates as Python's "surrogatepass" does ------------------------------------------

/** @param {string} text @returns {number[]} */
function utf8(text) {
  return [...text].flatMap((character) => {
    const code = /** @type {number} */ (character.codePointAt(0));
    const tail = (/** @type {number} */ shift) => 0x80 | ((code >> shift) & 0x3f);
    if (code < 0x80) return [code];
    if (code < 0x800) return [0xc0 | (code >> 6), tail(0)];
    if (code < 0x10000) return [0xe0 | (code >> 12), tail(6), tail(0)];
    return [0xf0 | (code >> 18), tail(12), tail(6), tail(0)];
  });
}

/** @param {number[]} bytes @returns {string} */
function textOf(bytes) {
  return strictText(bytes) ?? new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
}

/** The text, null if the bytes are no UTF-8. @param {number[]} bytes @returns {string | null} */
function strictText(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length;) {
    const lead = bytes[i];
    const length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    const tail = bytes.slice(i + 1, i + length);
    if (length === 0 || tail.length !== length - 1 || tail.some((byte) => byte >> 6 !== 2)) return null;
    const first = length === 1 ? lead : lead & (0xff >> (length + 1));
    const code = tail.reduce((sum, byte) => (sum << 6) | (byte & 0x3f), first);
    if (code < [0, 0, 0x80, 0x800, 0x10000][length] || code > 0x10ffff) return null;
    text += String.fromCodePoint(code);
    i += length;
  }
  return text;
}

/** Python's "unicode_escape". @param {string} character */
function escaped(character) {
  const code = /** @type {number} */ (character.codePointAt(0));
  const short = { 9: "\\t", 10: "\\n", 13: "\\r" }[code];
  if (short) return short;
  const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
}
