/**
 * UTF-8, which may hold lone surrogates as Python's "surrogatepass" does, and labels of what does not print.
 *
 * @module utf8
 */

/** @param {string} text @returns {number[]} */
export function utf8(text) {
  return [...text].flatMap((character) => {
    const code = /** @type {number} */ (character.codePointAt(0));
    const tail = (/** @type {number} */ shift) => 0x80 | ((code >> shift) & 0x3f);
    if (code < 0x80) return [code];
    if (code < 0x800) return [0xc0 | (code >> 6), tail(0)];
    if (code < 0x10000) return [0xe0 | (code >> 12), tail(6), tail(0)];
    return [0xf0 | (code >> 18), tail(12), tail(6), tail(0)];
  });
}

/**
 * The characters that bytes are, each with the number of its bytes; a byte that belongs to none is null.
 * @param {readonly number[]} bytes @returns {{ character: string | null, length: number }[]}
 */
export function characters(bytes) {
  const found = [];
  for (let i = 0; i < bytes.length;) {
    const lead = bytes[i];
    const length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    const tail = bytes.slice(i + 1, i + length);
    const first = length === 1 ? lead : lead & (0xff >> (length + 1));
    const code = tail.reduce((sum, byte) => (sum << 6) | (byte & 0x3f), first);
    const isWhole = length > 0 && tail.length === length - 1 && tail.every((byte) => byte >> 6 === 2);
    const isOne = isWhole && code >= [0, 0, 0x80, 0x800, 0x10000][length] && code <= 0x10ffff;
    found.push(isOne ? { character: String.fromCodePoint(code), length } : { character: null, length: 1 });
    i += isOne ? length : 1;
  }
  return found;
}

/** The text, null if the bytes are no UTF-8. @param {readonly number[]} bytes @returns {string | null} */
export function strictText(bytes) {
  const found = characters(bytes);
  return found.every(({ character }) => character !== null) ? found.map(({ character }) => character).join("") : null;
}

/** The text; what is no UTF-8 becomes U+FFFD. @param {readonly number[]} bytes @returns {string} */
export function textOf(bytes) {
  return strictText(bytes) ?? new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
}

/** As Python's vocabularies write a byte: <0xC3>. @param {number} byte */
export function inBrackets(byte) {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
}

/** A text with all that does not print as Python writes it. @param {string} text */
export function printed(text) {
  return text.replace(/(?! )[\p{C}\p{Z}]/gu, escaped);
}

/** A text without characters that turn its direction or that nobody sees: those as Python writes them. @param {string} text */
export function visible(text) {
  return text.replace(/[\0-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\p{Cs}]/gu, escaped);
}

/** Python's "unicode_escape". @param {string} character */
function escaped(character) {
  const code = /** @type {number} */ (character.codePointAt(0));
  const short = { 9: "\\t", 10: "\\n", 13: "\\r" }[code];
  if (short) return short;
  const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
}
