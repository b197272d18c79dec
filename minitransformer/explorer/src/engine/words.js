/**
 * Words, as Python's regular expressions see them, and the tokens of each: for our own tokenizer, whose merges cross
 * none, and for the display of all.
 *
 * @module words
 */

/** @import { Token } from "./types.js" */
import { characters } from "./utf8.js";

// Python's classes of characters: \w is letters, numbers and _; \s lacks U+FEFF and has five control characters more.
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const LETTER = "[\\p{L}\\p{Nl}\\p{No}]"; // Python's [^\W\d_]
const OTHER = `[^\\p{L}\\p{N}_${SPACE}]`; // Python's [^\w\s]
const WORD = new RegExp(
  ` ?${LETTER}{1,63}| ?\\p{Nd}{1,63}| ?${OTHER}{1,63}| ?_{1,63}|[${SPACE}]{1,64}(?![^${SPACE}])|[${SPACE}]`,
  "gu",
);
const BLANK = new RegExp(`^[${SPACE}]*$`, "u");

/** Whether a text is empty or white space alone. @param {string} text */
export function isBlank(text) {
  return BLANK.test(text);
}

/** The words of a text; every character is in one. @param {string} text @returns {string[]} */
export function wordsOf(text) {
  return text.match(WORD) ?? [];
}

/**
 * Ids as tokens for display, in words. A character of several tokens is the first one's.
 * @param {readonly number[]} ids @param {(id: number) => number[]} bytesOf none of a special token
 * @param {(id: number) => string} label @param {(id: number) => boolean} isSpecial @returns {Token[]}
 */
export function inWords(ids, bytesOf, label, isSpecial) {
  const bytes = ids.map(bytesOf);
  const owners = bytes.flatMap((each, i) => each.map(() => i)); // of each byte
  const pieces = ids.map(() => "");
  let at = 0;
  for (const { character, length } of characters(bytes.flat())) {
    pieces[owners[at]] += character ?? "\ufffd";
    at += length;
  }
  const starts = new Set(); // where words start in the text of all pieces
  let length = 0;
  for (const word of wordsOf(pieces.join(""))) {
    starts.add(length);
    length += word.length;
  }
  let word = -1;
  let place = 0;
  return ids.map((id, i) => {
    const follows = i > 0 && !isSpecial(ids[i - 1]);
    const isPart = pieces[i] === "" && follows; // of a character that began before
    if (isSpecial(id) || !follows || (!isPart && starts.has(place))) word++;
    place += pieces[i].length;
    return { id, text: label(id), piece: pieces[i], word, isSpecial: isSpecial(id) };
  });
}
