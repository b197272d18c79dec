/** The pictures of a captioner: the choice of one, and which of its patches a word looks at, drawn over it. */

import { patchesAcross, pixelsOf } from "../engine/pictures.js";
import { rove } from "./controls.js";
import { fixed, h, replace, s } from "./dom.js";
import { drawing, explained } from "./figure.js";

/** @typedef {import("../app.js").App} App */
/** @typedef {import("../engine/types.js").Engine} Engine */
/** @typedef {import("../engine/types.js").ImageConfig} ImageConfig */
/** @typedef {import("./attention.js").Explain} Explain */
/** @typedef {import("./attention.js").Open} Open */
/** @typedef {import("./maps.js").Map2D} Map2D */

const DARKEST = 0.8; // the veil over a patch that is not looked at
const LARGEST = 416; // a drawn picture, in pixels

/**
 * A picture as it is, or dark where it is not looked at.
 * @param {Engine} engine
 * @param {string} name
 * @param {number[]} [weights] of the patches
 */
function canvasOf({ config, payload }, name, weights) {
  const image = /** @type {ImageConfig} */ (config.image);
  const { size, patchSize } = image;
  const pixels = pixelsOf(payload.pictures[payload.examples.indexOf(name)].pixels);
  const canvas = h("canvas", { width: size, height: size, "aria-hidden": "true" });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const shown = context.createImageData(size, size);
  for (let place = 0; place < size ** 2; place += 1)
    for (let channel = 0; channel < 4; channel += 1)
      shown.data[4 * place + channel] = channel < 3 ? 127.5 * (pixels[channel * size ** 2 + place] + 1) : 255;
  context.putImageData(shown, 0, 0);
  context.fillStyle = "black";
  veils(weights ?? []).forEach((veil, i) => {
    const [y, x] = placeOf(i, image);
    context.globalAlpha = veil;
    context.fillRect(x * patchSize, y * patchSize, patchSize, patchSize);
  });
  return canvas;
}

/** The row and the column of a patch. @param {number} i @param {ImageConfig} image */
function placeOf(i, image) {
  return [Math.floor(i / patchesAcross(image)), i % patchesAcross(image)];
}

/** How dark each patch is: the one that is looked at most is not. @param {number[]} weights */
function veils(weights) {
  const largest = Math.max(...weights, 1e-30);
  return weights.map((weight) => DARKEST * (1 - weight / largest));
}

/**
 * The pictures to choose from, and the chosen one with what it shows.
 * @param {App} app
 * @param {() => void} chosen what follows a choice
 */
export function pictureChoice(app, chosen) {
  const { engine } = app;
  const { examples, pictures } = engine.payload;
  const buttons = examples.map((name, i) =>
    h(
      "button",
      {
        type: "button",
        class: "picture",
        "aria-label": `${name}: ${pictures[i].caption}`,
        title: name,
        onclick: () => {
          app.set({ text: name, edited: null, row: 0, token: 0 });
          chosen();
        },
      },
      canvasOf(engine, name),
    ),
  );
  const shown = h("div", { class: "shown" });
  function update() {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(examples[i] === app.state.text)));
    const i = examples.indexOf(app.state.text);
    replace(
      shown,
      ...(i < 0
        ? []
        : [canvasOf(engine, examples[i]), h("p", { class: "caption" }, `One true caption: ${pictures[i].caption}`)]),
    );
  }
  return {
    choices: h("div", { class: "pictures", role: "group", "aria-label": "Pictures" }, ...buttons),
    shown,
    update,
  };
}

/**
 * The picture with the attention of one word drawn over it, and small ones of all words; of several heads the mean,
 * which has no formula.
 * @param {App} app
 * @param {Map2D[]} maps
 * @param {number[]} heads
 * @param {number} available
 * @param {Explain} explain
 * @param {Open} open
 */
export function drawPicture(app, maps, heads, available, explain, open) {
  const { engine, state } = app;
  const image = /** @type {ImageConfig} */ (engine.config.image);
  const { queries, keys } = maps[0];
  const name = app.session.shown(state)?.name ?? state.text;
  const means = queries.map((_, q) =>
    keys.map((_, k) => maps.reduce((sum, { rows }) => sum + rows[q][k], 0) / maps.length),
  );
  const found = queries.findIndex(({ indices }) => indices.includes(state.token));
  const chosen = found < 0 ? queries.length - 1 : found;
  const [weights, word] = [means[chosen], queries[chosen].label];
  const best = weights.indexOf(Math.max(...weights));
  const cell = Math.floor(Math.min(available, LARGEST) / patchesAcross(image));
  const side = cell * patchesAcross(image);
  const href = canvasOf(engine, name).toDataURL();
  const svg = drawing(
    side,
    side,
    `Where “${word}” looks`,
    s("image", { href, width: side, height: side, "image-rendering": "pixelated" }),
  );
  const isMean = maps.length > 1;
  const [most, measure] = state.sized ? ["takes most from", "relative size"] : ["looks most at", "weight"];
  const [row, column] = placeOf(best, image).map((each) => each + 1);
  const saysOf = (/** @type {number} */ k) =>
    `${measure} ${fixed(weights[k], 3)}${isMean ? " in the mean of all heads" : ""}`;
  const figure = explained(
    svg,
    `Writing “${word}”, the decoder ${most} the patch in row ${row}, column ${column} (${saysOf(best)}). ` +
      `The brighter a patch, the larger its ${measure}. Point at a patch, or move with the arrow keys` +
      (isMean ? "." : "; a click opens the formula."),
  );
  const cells = veils(weights).map((veil, k) => {
    const [y, x] = placeOf(k, image);
    const rect = s("rect", {
      x: x * cell,
      y: y * cell,
      width: cell,
      height: cell,
      "fill-opacity": veil,
      class: "veil",
      role: isMean ? "img" : "button",
      "data-key": `seen-${k}`,
      onclick: !isMean && (() => open(maps[0], heads[0], chosen, k)),
    });
    figure.explain(rect, isMean ? `Patch “${keys[k].label}”: ${saysOf(k)}.` : explain(maps[0], heads[0], chosen, k));
    return rect;
  });
  svg.append(...cells);
  const across = patchesAcross(image);
  rove(
    svg,
    Array.from({ length: across }, (_, y) => cells.slice(y * across, (y + 1) * across)),
  );
  const words = queries.map(({ label, indices: [token] }, q) =>
    h(
      "button",
      {
        type: "button",
        class: "picture",
        "aria-pressed": String(q === chosen),
        "data-key": `word-${q}`,
        onclick: () => app.set({ stack: "decoder", row: token, token }),
      },
      canvasOf(engine, name, means[q]),
      h("bdi", {}, label),
    ),
  );
  return h(
    "div",
    {},
    figure.element,
    h("div", { class: "pictures", role: "group", "aria-label": "Written words" }, ...words),
  );
}
