/**
 * A tokenizer of the package tokenizers, with the same ids for every text: Python gives its steps in the small
 * operations of minitransformer/explorer/cutting.py.
 *
 *     text → added tokens, and between them → normalizer → cuts → model → ids         ids → pieces → decoder → text
 *
 * Sources of the models: Sennrich 2016 (BPE), Kudo 2018 (Unigram).
 *
 * @module pretrained
 */

/** @import { AddedToken, BpeModel, PretrainedTokenizer, Step, Token, UnigramModel } from "./types.js" */
import { characters, inBrackets, printed, strictText, textOf, utf8 } from "./utf8.js";
import { bytesOf } from "./weights.js";
import { inWords } from "./words.js";

/** A part of a text, or a token that was found in it. `isFirst`: it begins the text. */
/** @typedef {{ text: string, isFirst: boolean, id: number | null }} Part */

const SPACE = "\\p{White_Space}";
const UNKNOWN_PENALTY = 10; // Unigram: an unknown character is so much less probable than the rarest piece

/** The byte of each character with which GPT-2 writes bytes, and back: Ġ is the space. @type {Map<string, number>} */
const BYTE_OF = new Map();
const isPlain = (/** @type {number} */ b) => (b > 0x20 && b < 0x7f) || (b > 0xa0 && b !== 0xad);
for (let byte = 0, others = 0; byte < 256; byte++)
  BYTE_OF.set(String.fromCharCode(isPlain(byte) ? byte : 0x100 + others++), byte);
const CHARACTER_OF = [...BYTE_OF.keys()];

/** The bytes of a piece in those characters, null if it has others. @param {string} piece */
function bytesIn(piece) {
  const bytes = [...piece].map((character) => BYTE_OF.get(character));
  return bytes.includes(undefined) ? null : /** @type {number[]} */ (bytes);
}

export class Pretrained {
  /** @type {Map<string, number>} of what the model may cut a text into */
  #idOf = new Map();
  /** @type {Map<number, AddedToken>} */
  #added = new Map();
  /** @type {(word: string) => number[]} */
  #encodeWord;
  /** @type {Map<string, number[]>} */
  #idsOfWord = new Map();

  /** @param {PretrainedTokenizer} tokenizer */
  constructor(tokenizer) {
    const { pieces, added, model, normalizer, decoder } = tokenizer;
    this.tokenizer = tokenizer;
    for (const token of added) this.#added.set(token.id, token);
    pieces.forEach((piece, id) => {
      if (piece !== null && this.#added.get(id)?.isPiece !== false) this.#idOf.set(piece, id);
    });
    this.#encodeWord = model.type === "BPE" ? bpe(model, pieces, this.#idOf) : unigram(model, this.#idOf);
    const texts = (/** @type {boolean} */ isNormalized) =>
      added.filter(({ content, normalized }) => content && normalized === isNormalized);
    this.raw = finder(texts(false), ({ content }) => content);
    this.normalized = finder(texts(true), ({ content }) => apply(normalizer, content));
    this.isOfBytes = decoder.some(([kind]) => kind === "ByteLevel");
  }

  /** The ids of a text, without the marks around it. @param {string} text @returns {number[]} */
  encode(text) {
    const { normalizer, cuts } = this.tokenizer;
    const whole = { text: text.replace(/\p{Cs}/gu, "\ufffd"), isFirst: true, id: null };
    return this.raw(whole)
      .map((part) => (part.id === null ? { ...part, text: apply(normalizer, part.text) } : part))
      .flatMap(this.normalized)
      .flatMap((part) => (part.id === null ? cut(cuts, part).flatMap((each) => this.#ids(each.text)) : [part.id]));
  }

  /** The text of ids, without special tokens. @param {readonly number[]} ids */
  decode(ids) {
    const known = ids.filter((id) => this.tokenizer.pieces[id] && !this.#added.get(id)?.special);
    const pieces = known.map((id) => /** @type {string} */ (this.tokenizer.pieces[id]));
    return this.tokenizer.decoder.reduce(decoded, pieces).join("");
  }

  /** Ids as tokens for display, in words. @param {readonly number[]} ids @returns {Token[]} */
  tokens(ids) {
    const isSpecial = (/** @type {number} */ id) => this.#added.get(id)?.special ?? false;
    return inWords(
      ids,
      (id) => (isSpecial(id) ? [] : this.#bytesOf(id)),
      (id) => this.#label(id),
      isSpecial,
    );
  }

  /** @param {string} word @returns {number[]} */
  #ids(word) {
    const known = this.#idsOfWord.get(word) ?? this.#encodeWord(word);
    this.#idsOfWord.set(word, known);
    return known;
  }

  /** @param {number} id */
  #bytesOf(id) {
    const piece = this.tokenizer.pieces[id] ?? "";
    const byte = /^<0x([0-9A-F]{2})>$/.exec(piece);
    if (this.isOfBytes) return (this.#added.has(id) ? null : bytesIn(piece)) ?? utf8(piece);
    return byte ? [parseInt(byte[1], 16)] : utf8(piece.replaceAll("▁", " "));
  }

  /** Python's `tokens`: ▁dog where a word begins, <0xC3> for a byte. @param {number} id */
  #label(id) {
    const piece = this.tokenizer.pieces[id];
    if (!piece) return `<${id}>`;
    if (this.#added.has(id)) return printed(piece);
    const bytes = this.isOfBytes ? bytesIn(piece) : null;
    return printed((bytes ? textOr(bytes, inBrackets) : piece).replaceAll(" ", "▁"));
  }
}

// --- Steps -----------------------------------------------------------------------------------------------------------

/** The text after operations that only change it. @param {Step[]} steps @param {string} text @returns {string} */
function apply(steps, text) {
  return steps.reduce((before, step) => changed(step, before, true), text);
}

/** @param {Step} step @param {string} text @param {boolean} isFirst @returns {string} */
function changed([kind, ...given], text, isFirst) {
  if (kind === "form") return text.normalize(given[0]);
  if (kind === "lower") return [...text].map((each) => each.toLowerCase()).join("");
  if (kind === "replace") return text.replace(new RegExp(given[0], "gu"), () => given[1]);
  if (kind === "map") {
    const normalize = NORMALIZERS.get(given[0]) ?? sentencepiece(given[0]);
    NORMALIZERS.set(given[0], normalize);
    return normalize(text);
  }
  if (kind === "bytes")
    return utf8(text)
      .map((byte) => CHARACTER_OF[byte])
      .join("");
  const [prefix, when] = given; // any: before all but an empty text; always and first: not twice
  const asked = when === "any" ? text !== "" : !text.startsWith(prefix) && (isFirst || when === "always");
  return asked ? prefix + text : text;
}

/**
 * The pieces of a part that no merge crosses.
 * @param {Step[]} steps @param {Part} part @returns {Part[]}
 */
function cut(steps, part) {
  let parts = [part];
  for (const step of steps)
    parts = parts.flatMap((each) =>
      step[0] === "split" ? split(step, each) : [{ ...each, text: changed(step, each.text, each.isFirst) }],
    );
  return parts.filter(({ text }) => text !== "");
}

/**
 * A part at the places that a pattern matches. Exported for tests.
 * @param {Step} step @param {Part} part @returns {Part[]}
 */
export function split([, pattern, behavior, invert], { text, isFirst }) {
  const bounds = [...text.matchAll(new RegExp(pattern, "gu"))].flatMap((found) => [
    found.index,
    found.index + found[0].length,
  ]);
  /** @type {Part[]} */
  const parts = [];
  let joins = false; // the next part is joined to the last
  [...bounds, text.length].reduce((start, end, i) => {
    const isMatch = (i % 2 === 1) !== invert;
    const part = { text: text.slice(start, end), isFirst: isFirst && start === 0, id: null };
    if (part.text === "" || (behavior === "Removed" && isMatch)) return end;
    const last = parts.at(-1);
    if (last && (joins || (behavior === "MergedWithPrevious" && isMatch))) last.text += part.text;
    else parts.push(part);
    joins = behavior === "MergedWithNext" && isMatch;
    return end;
  }, 0);
  return parts;
}

/**
 * Finds tokens in a part: at each place the longest, with the white space around it that it takes.
 * @param {AddedToken[]} tokens @param {(token: AddedToken) => string} textOfToken
 * @returns {(part: Part) => Part[]}
 */
function finder(tokens, textOfToken) {
  const byText = new Map(tokens.map((token) => [textOfToken(token), token]));
  const escaped = [...byText.keys()]
    .sort((a, b) => b.length - a.length)
    .map((each) => each.replace(/[^\p{L}\p{N}]/gu, literal));
  const pattern = new RegExp(escaped.join("|") || "(?!)", "gu");
  const before = new RegExp(`${SPACE}*$`, "u");
  const after = new RegExp(`^${SPACE}*`, "u");
  return ({ text, isFirst, id }) => {
    if (id !== null) return [{ text, isFirst, id }];
    /** @type {Part[]} */
    const parts = [];
    const add = (/** @type {number} */ start, /** @type {number} */ end, /** @type {number | null} */ found) => {
      if (start < end) parts.push({ text: text.slice(start, end), isFirst: isFirst && start === 0, id: found });
    };
    let done = 0;
    for (const { 0: found, index } of text.matchAll(pattern)) {
      const token = /** @type {AddedToken} */ (byText.get(found));
      let [start, end] = [index, index + found.length];
      if (token.lstrip) start = Math.max(done, start - lengthOf(before, text.slice(0, start)));
      if (token.rstrip) end += lengthOf(after, text.slice(end));
      add(done, start, null);
      add(start, end, token.id);
      done = end;
    }
    add(done, text.length, null);
    return parts;
  };
}

/** @param {RegExp} pattern @param {string} text */
function lengthOf(pattern, text) {
  return pattern.exec(text)?.[0].length ?? 0;
}

/** A character as a regular expression. @param {string} character */
function literal(character) {
  return `\\u{${/** @type {number} */ (character.codePointAt(0)).toString(16)}}`;
}

/** The normaliser of each table that was given. @type {Map<string, (text: string) => string>} */
const NORMALIZERS = new Map();

/**
 * Sentencepiece's normalisation, as the package does it: a short grapheme gives way as a whole to what replaces its
 * beginning, a long one character by character. The table is a double array (Darts) and the texts to which it points.
 * @param {string} base64 @returns {(text: string) => string}
 */
function sentencepiece(base64) {
  const bytes = bytesOf(base64);
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const units = new Uint32Array(bytes.slice(4, 4 + size).buffer);
  const texts = bytes.subarray(4 + size);
  const after = (/** @type {number} */ node) => node ^ ((units[node] >>> 10) << ((units[node] & 0x200) >>> 6));
  /** What replaces the shortest beginning that something replaces. @type {(chunk: string) => string | null} */
  const replaced = (chunk) => {
    let node = after(0);
    for (const byte of utf8(chunk)) {
      node ^= byte;
      if ((units[node] & 0x800000ff) !== byte) return null;
      const isEnd = units[node] & 0x100;
      node = after(node);
      if (!isEnd) continue;
      const start = units[node] & 0x7fffffff;
      return textOf([...texts.subarray(start, texts.indexOf(0, start))]);
    }
    return null;
  };
  const graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
  return (text) =>
    [...graphemes.segment(text)]
      .flatMap(({ segment }) => (utf8(segment).length < 6 && replaced(segment) !== null ? [segment] : [...segment]))
      .map((chunk) => replaced(chunk) ?? chunk)
      .join("");
}

// --- Models ----------------------------------------------------------------------------------------------------------

/** The ids of a character's bytes, null if one of them has none. @param {Map<string, number>} idOf @param {string} text */
function fallback(idOf, text) {
  const ids = utf8(text).map((byte) => idOf.get(inBrackets(byte)));
  return ids.includes(undefined) ? null : /** @type {number[]} */ (ids);
}

/**
 * Byte pairs: of all neighbours that have a merge the pair with the oldest one, and of its places the first, is merged.
 * @param {BpeModel} model @param {PretrainedTokenizer["pieces"]} pieces @param {Map<string, number>} idOf
 * @returns {(word: string) => number[]}
 */
function bpe({ merges, unknown, fuseUnknown, byteFallback, ignoreMerges }, pieces, idOf) {
  const count = pieces.length;
  /** @type {Map<number, number>} left · count + right → age */
  const ages = new Map();
  for (let i = 0; i < merges.length; i += 2) ages.set(merges[i] * count + merges[i + 1], i);
  return (word) => {
    const whole = ignoreMerges ? idOf.get(word) : undefined;
    if (whole !== undefined) return [whole];
    /** @type {number[]} */
    const ids = [];
    let waiting = 0; // unknown characters that have no token yet
    const settle = () => {
      for (; waiting > 0; waiting--) ids.push(/** @type {number} */ (unknown));
    };
    for (const character of word) {
      const id = idOf.get(character);
      const bytes = id === undefined && byteFallback ? fallback(idOf, character) : null;
      if (id !== undefined) settle();
      if (id !== undefined) ids.push(id);
      else if (bytes) ids.push(...bytes);
      else if (unknown !== null) waiting = fuseUnknown ? 1 : waiting + 1;
    }
    settle();
    const age = (/** @type {number} */ i) => ages.get(ids[i] * count + ids[i + 1]) ?? Infinity;
    const waits = ids.map((_, i) => age(i)); // of the pair that begins at each place
    for (;;) {
      let best = 0;
      for (let i = 1; i < waits.length; i++) if (waits[i] < waits[best]) best = i;
      if (!(waits[best] < Infinity)) return ids;
      const merged = idOf.get(/** @type {any} */ (pieces[ids[best]]) + pieces[ids[best + 1]]);
      ids.splice(best, 2, /** @type {number} */ (merged));
      waits.splice(best, 1);
      for (const i of [best - 1, best]) if (i >= 0) waits[i] = age(i);
    }
  };
}

/**
 * The pieces of the most probable way to cut a word, whose scores are log-probabilities (Viterbi's algorithm).
 * @param {UnigramModel} model @param {Map<string, number>} idOf @returns {(word: string) => number[]}
 */
function unigram({ scores, unknown, byteFallback }, idOf) {
  let longest = 0;
  for (const piece of idOf.keys()) longest = Math.max(longest, piece.length);
  const least = scores.reduce((lowest, score) => Math.min(lowest, score)) - UNKNOWN_PENALTY;
  return (word) => {
    /** @type {{ score: number, start: number, id: number | null }[]} best ways to each place */
    const ways = [{ score: 0, start: -1, id: null }];
    for (let start = 0; start < word.length;) {
      const next = start + /** @type {string} */ (String.fromCodePoint(word.codePointAt(start) ?? 0)).length;
      let isKnown = false;
      for (let end = start + 1; end <= Math.min(word.length, start + longest); end++) {
        const id = idOf.get(word.slice(start, end));
        if (id === undefined) continue;
        isKnown ||= end === next;
        const score = scores[id] + ways[start].score;
        if (!ways[end] || score > ways[end].score) ways[end] = { score, start, id };
      }
      const score = least + ways[start].score;
      if (!isKnown && (!ways[next] || score > ways[next].score)) ways[next] = { score, start, id: null };
      start = next;
    }
    /** @type {{ text: string, id: number | null }[]} */
    const found = [];
    for (let end = word.length; end > 0; end = ways[end].start) {
      const { start, id } = ways[end];
      const text = word.slice(start, end);
      const isUnknown = id === null || id === unknown; // neighbours that are unknown are one token
      if (isUnknown && found[0]?.id === null) found[0].text = text + found[0].text;
      else found.unshift({ text, id: isUnknown ? null : id });
    }
    return found.flatMap(({ text, id }) => {
      if (id !== null) return [id];
      const known = idOf.get(text);
      if (known !== undefined) return [known];
      const bytes = byteFallback ? fallback(idOf, text) : null;
      return bytes ?? (unknown === null ? [] : [unknown]);
    });
  };
}

// --- Decoding --------------------------------------------------------------------------------------------------------

/** @param {readonly number[]} bytes @param {(byte: number) => string} odd of a byte that is no UTF-8 */
function textOr(bytes, odd) {
  let at = 0;
  return characters(bytes)
    .map(({ character, length }) => {
      const byte = bytes[at];
      at += length;
      return character ?? odd(byte);
    })
    .join("");
}

/** One step of the decoder. @param {string[]} pieces @param {Step} step @returns {string[]} */
function decoded(pieces, [kind, ...given]) {
  if (kind === "replace") return pieces.map((piece) => changed([kind, ...given], piece, true));
  if (kind === "Fuse") return [pieces.join("")];
  if (kind === "ByteLevel") return [textOf(pieces.flatMap((piece) => bytesIn(piece) ?? utf8(piece)))];
  if (kind === "ByteFallback") return joinedBytes(pieces);
  if (kind === "Strip") {
    const [character, start, stop] = given;
    const ends = new RegExp(`^${literal(character)}{0,${start}}|${literal(character)}{0,${stop}}$`, "gu");
    return pieces.map((piece) => piece.replace(ends, ""));
  }
  const [space, drops] = given; // Metaspace: the first piece loses the space before the text
  return pieces.map((piece, i) => piece.replaceAll(space, i === 0 && drops ? "" : " "));
}

/** Runs of <0xC3> as the characters that they are, or each as U+FFFD. @param {string[]} pieces @returns {string[]} */
function joinedBytes(pieces) {
  /** @type {string[]} */
  const found = [];
  /** @type {number[]} */
  let bytes = [];
  const flush = () => {
    if (bytes.length) {
      const text = strictText(bytes);
      found.push(...(text === null ? bytes.map(() => "\ufffd") : [text]));
    }
    bytes = [];
  };
  for (const piece of pieces) {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(piece);
    if (byte) bytes.push(parseInt(byte[1], 16));
    else {
      flush();
      found.push(piece);
    }
  }
  flush();
  return found;
}
