/** Elements in one expression each. Text becomes text nodes: nothing that a visitor or a model writes is markup. */

/** @typedef {Node | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element. A property that begins with "on" is a listener; true is an attribute without a value; null,
 * undefined and false leave it out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown>} [properties]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown>} [properties]
 * @param {...(Child | Child[])} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, unknown>} properties
 * @param {(Child | Child[])[]} children
 * @returns {E}
 */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children.flat());
  return element;
}

/**
 * Replace what an element contains, and give the focus back to what had it: the element with the same `data-key`.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function replace(element, ...children) {
  const focused = element.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null;
  const key = focused?.dataset.key;
  const scrolled = [...element.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  element.replaceChildren();
  put(element, children.flat());
  element.querySelectorAll(".scroll").forEach((each, i) => (each.scrollLeft = scrolled[i] ?? 0));
  if (key) /** @type {HTMLElement | null} */ (element.querySelector(`[data-key="${CSS.escape(key)}"]`))?.focus();
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function put(element, children) {
  for (const child of children)
    if (child !== null && child !== undefined && child !== false)
      element.append(child instanceof Node ? child : String(child));
}

/** @param {string} id */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

const context = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));

/**
 * The width of a text in pixels.
 * @param {string} text
 * @param {number} [size] of the font, in pixels
 */
export function widthOf(text, size = 13) {
  context.font = `${size}px system-ui, sans-serif`;
  return context.measureText(text).width;
}

/**
 * A text that is not wider than `width`, with … at its end if it had to be cut.
 * @param {string} text
 * @param {number} width
 * @param {number} [size]
 */
export function fitted(text, width, size = 13) {
  if (widthOf(text, size) <= width) return text;
  const letters = [...text];
  while (letters.length && widthOf(letters.join("") + "…", size) > width) letters.pop();
  return letters.join("") + "…";
}

/** @param {number} value */
export function percent(value) {
  return value >= 0.0995
    ? `${Math.round(value * 100)} %`
    : value >= 0.00095
      ? `${(value * 100).toFixed(1)} %`
      : "< 0.1 %";
}

/**
 * @param {number} value
 * @param {number} [digits]
 */
export function signed(value, digits = 2) {
  const text = Math.abs(value).toFixed(digits);
  return +text === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
}

/**
 * Rounded; but a small negative number, as a log-probability, keeps its first digit: it would be a zero with a sign.
 * @param {number} value
 * @param {number} [digits]
 */
export function fixed(value, digits = 2) {
  if (value === -Infinity) return "−∞";
  const text = value.toFixed(digits);
  return (Object.is(+text, -0) ? value.toPrecision(1) : text).replaceAll("-", "−");
}
