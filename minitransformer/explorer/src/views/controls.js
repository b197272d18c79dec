/** What a visitor presses and moves. A control is made once and changes the state; `show` brings it in step. */

import { h } from "./dom.js";
import { labelOf } from "./tokens.js";

/** @typedef {{ element: HTMLElement, show: () => void }} Control */

let numbers = 0;

/**
 * One of several: a row of buttons.
 * @template T
 * @param {string} label
 * @param {() => { value: T, text: string, hint?: string }[]} options
 * @param {() => T} get
 * @param {(value: T) => void} set
 * @returns {Control}
 */
export function choice(label, options, get, set) {
  const element = h("div", { class: "choice", role: "group", "aria-label": label });
  const show = () => {
    const focused = [...element.querySelectorAll("button")].findIndex((each) => each === document.activeElement);
    element.replaceChildren(
      h("span", { class: "label", "aria-hidden": "true" }, label),
      h(
        "span",
        { class: "segments" },
        ...options().map(({ value, text, hint }) =>
          h(
            "button",
            {
              type: "button",
              title: hint,
              "aria-pressed": String(value === get()),
              onclick: () => set(value),
            },
            text,
          ),
        ),
      ),
    );
    element.querySelectorAll("button")[focused]?.focus();
  };
  return { element, show };
}

/**
 * One of the tokens of a text. `current` is the number of the chosen one, or of the last where there are fewer.
 * @param {string} label
 * @param {() => import("../engine/types.js").Token[]} tokens
 * @param {() => number} get
 * @param {(number: number) => void} set
 * @returns {Control & { current: () => number }}
 */
export function tokenChoice(label, tokens, get, set) {
  const current = () => Math.min(get(), Math.max(0, tokens().length - 1));
  const options = () => {
    const shown = tokens();
    return shown.map((_, value) => ({ value, text: labelOf(shown, value) }));
  };
  return { ...choice(label, options, current, set), current };
}

/**
 * @param {string} label
 * @param {() => boolean} get
 * @param {(value: boolean) => void} set
 * @param {string} [hint]
 * @returns {Control}
 */
export function checkbox(label, get, set, hint) {
  const box = h("input", { type: "checkbox", onchange: () => set(box.checked) });
  return { element: h("label", { class: "check", title: hint }, box, label), show: () => void (box.checked = get()) };
}

/**
 * @param {string} label
 * @param {{ least: number, most: number, step: number }} range
 * @param {() => number} get
 * @param {(value: number) => void} set
 * @param {(value: number) => string} [text]
 * @returns {Control}
 */
export function slider(label, { least, most, step }, get, set, text = String) {
  const id = `slider-${(numbers += 1)}`;
  const output = h("output", { for: id });
  const bar = h("input", { id, type: "range", min: least, max: most, step, oninput: () => set(Number(bar.value)) });
  const show = () => {
    bar.value = String(get());
    output.textContent = text(get());
  };
  return { element: h("div", { class: "slider" }, h("label", { for: id }, label), bar, output), show };
}

/**
 * A listener that waits until nothing has been typed for a moment.
 * @param {() => void} act
 */
export function later(act) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, 250);
  };
}

/**
 * @param {...Control} controls
 * @returns {Control}
 */
export function controls(...controls) {
  const element = h("div", { class: "controls" }, ...controls.map((each) => each.element));
  return { element, show: () => controls.forEach((each) => each.show()) };
}

/**
 * Arrow keys move the focus among elements that stand in rows and columns, where some may be missing; one of them is
 * in the order of Tab: the one that had the focus last.
 * @param {Element} parent
 * @param {(SVGElement | undefined)[][]} rows
 */
export function rove(parent, rows) {
  const cells = rows.flat().filter((cell) => cell !== undefined);
  const stop = (/** @type {SVGElement} */ chosen) => {
    for (const cell of cells) cell.setAttribute("tabindex", cell === chosen ? "0" : "-1");
  };
  if (cells.length) stop(cells[0]);
  for (const cell of cells) cell.addEventListener("focus", () => stop(cell));
  parent.addEventListener("keydown", (event) => {
    const { key } = /** @type {KeyboardEvent} */ (event);
    const target = /** @type {SVGElement} */ (event.target);
    const row = rows.findIndex((cells) => cells.includes(target));
    if (row < 0) return;
    const column = rows[row].indexOf(target);
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key] ?? [
      0, 0,
    ];
    if (key === "Enter" || key === " ") target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    else if (!down && !right) return;
    event.preventDefault();
    rows[row + down]?.[column + right]?.focus();
  });
}
