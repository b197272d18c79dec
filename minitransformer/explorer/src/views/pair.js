/** Two texts, one beside the other: what differs is marked. */

import { h } from "./dom.js";

/**
 * A text, with the words marked that the other one does not have at this place.
 * @param {string} name
 * @param {string} text
 * @param {string} other
 */
export function pair(name, text, other) {
  const [words, others] = [text.split(" "), other.split(" ")];
  const kept = common(words, others);
  return h(
    "p",
    { class: "output" },
    h("span", { class: "label" }, name),
    h("bdi", {}, ...words.flatMap((word, i) => [kept.has(i) ? word : h("mark", {}, word), " "])),
  );
}

/**
 * The indices of `words` in the longest common subsequence with `others`.
 * @param {string[]} words
 * @param {string[]} others
 */
function common(words, others) {
  const length = words.map(() => new Uint16Array(others.length + 1));
  length.push(new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i -= 1)
    for (let j = others.length - 1; j >= 0; j -= 1)
      length[i][j] = words[i] === others[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const kept = new Set();
  for (let i = 0, j = 0; i < words.length && j < others.length;)
    if (words[i] === others[j]) {
      kept.add(i);
      i += 1;
      j += 1;
    } else if (length[i + 1][j] >= length[i][j + 1]) i += 1;
    else j += 1;
  return kept;
}
