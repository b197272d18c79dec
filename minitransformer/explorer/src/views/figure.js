/** A figure: one SVG, and a line below that explains what the pointer or the focus is on; it can be saved. */

import { h, s } from "./dom.js";

const PROPERTIES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-opacity",
  "stroke-width",
  "opacity",
  "font-size",
  "font-weight",
  "font-family",
  "font-style",
  "text-anchor",
  "stroke-dasharray",
];

/**
 * @param {number} width
 * @param {number} height
 * @param {string} label what the figure shows
 * @param {...(Node | null)} children
 */
export function drawing(width, height, label, ...children) {
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label, class: "drawing" },
    ...children,
  );
}

/**
 * The width of a drawing in this element, in pixels: what its frame leaves.
 * @param {HTMLElement} element
 */
export function roomIn(element) {
  return Math.max(280, (element.clientWidth || 640) - 28);
}

/** @typedef {(target: Element, text: string) => void} Explain */

/**
 * A drawing that may be wider than the screen, and the line that explains.
 * @param {SVGElement} svg
 * @param {string} rest what the line says while nothing is explained
 * @returns {{ element: HTMLElement, explain: Explain, point: Explain }} `point`: the pointer alone explains. In
 *     Chromium an SVG element that listens to the focus is a stop of Tab, with a tabindex or without.
 */
export function explained(svg, rest) {
  const line = h("p", { class: "readout", "aria-live": "polite" }, rest);
  const element = h(
    "div",
    { class: "figure" },
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Figure" }, svg),
    line,
  );
  /** @type {(target: Element, text: string, begin: string, end: string) => void} */
  const listen = (target, text, begin, end) => {
    target.addEventListener(begin, () => void (line.textContent = text));
    target.addEventListener(end, () => void (line.textContent = rest));
  };
  /** @type {Explain} */
  const point = (target, text) => listen(target, text, "pointerenter", "pointerleave");
  return {
    element,
    point,
    explain(target, text) {
      target.setAttribute("aria-label", text);
      point(target, text);
      listen(target, text, "focus", "blur");
    },
  };
}

/**
 * The SVG as a file of its own: every style that the page gives it is written into it.
 * @param {SVGElement} svg
 */
function alone(svg) {
  const copy = /** @type {SVGElement} */ (svg.cloneNode(true));
  const [from, to] = [svg, copy].map((each) => [
    each,
    .../** @type {NodeListOf<SVGElement>} */ (each.querySelectorAll("*")),
  ]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of PROPERTIES) to[i].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "style", "tabindex", "data-key", "role"]) to[i].removeAttribute(name);
  });
  const paper = s("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor });
  copy.prepend(paper);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

/**
 * @param {SVGElement} svg
 * @param {string} name of the file, without its end
 * @param {"svg" | "png"} kind
 */
export async function save(svg, name, kind) {
  const text = alone(svg);
  const blob = kind === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await asPng(svg, text);
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: `${name}.${kind}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * @param {SVGElement} svg
 * @param {string} text
 * @returns {Promise<Blob>}
 */
async function asPng(svg, text) {
  const { width, height } = /** @type {SVGSVGElement} */ (svg).viewBox.baseVal;
  const scale = Math.min(2, 8192 / Math.max(width, height));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = h("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large for this browser")))),
  );
}
