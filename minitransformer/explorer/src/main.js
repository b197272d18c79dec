/** The page: it opens the model that the file holds and shows it at work. */

import { App } from "./app.js";
import { createEngine } from "./engine/engine.js";
import { sizeOf } from "./session.js";
import { VIEWS } from "./state.js";
import { attentionView } from "./views/attention.js";
import { sentenceBar } from "./views/bar.js";
import { beamView } from "./views/beam.js";
import { byId, h, replace } from "./views/dom.js";
import { save } from "./views/figure.js";
import { gradientView } from "./views/gradient.js";
import { stackView } from "./views/stack.js";
import { whatIfView } from "./views/what_if.js";

/** @typedef {import("./state.js").ViewName} ViewName */

const SMALL = 2e7; // weights of a model that writes its first text at once

/** @type {Record<ViewName, { title: string, make: (app: App) => { element: HTMLElement, update: () => void } }>} */
const MADE = {
  attention: { title: "Attention", make: attentionView },
  stack: { title: "Stack", make: stackView },
  beam: { title: "Search", make: beamView },
  "what-if": { title: "What if", make: whatIfView },
  gradient: { title: "Gradient", make: gradientView },
};

function main() {
  const payload = JSON.parse(byId("payload").textContent ?? "");
  const app = new App(createEngine(payload));
  const { session } = app;
  document.title = `${payload.name}: see it think`;
  showHeader(app);
  showFooter(app);
  const bar = sentenceBar(app);
  const place = byId("view");
  /** @type {{ name: ViewName, update: () => void } | null} */
  let open = null;

  const tabs = VIEWS.map((name) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": "view",
        onclick: () => app.set({ view: name }),
      },
      MADE[name].title,
    ),
  );
  replace(
    byId("tabs"),
    h(
      "div",
      {
        role: "tablist",
        "aria-label": "Views",
        onkeydown: (/** @type {KeyboardEvent} */ { key }) => {
          const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
          if (!step) return;
          const next = (VIEWS.indexOf(app.state.view) + step + VIEWS.length) % VIEWS.length;
          app.set({ view: VIEWS[next] });
          tabs[next].focus();
        },
      },
      ...tabs,
    ),
  );
  place.setAttribute("role", "tabpanel");
  document.body.prepend(
    h("button", { type: "button", class: "skip", onclick: () => place.focus() }, "Skip to the figure"),
  );

  app.listeners.push(() => {
    session.read(app.state);
    bar.update();
    if (open?.name !== app.state.view) {
      const { element, update } = MADE[app.state.view].make(app);
      open = { name: app.state.view, update };
      const hasFocus = place.contains(document.activeElement);
      replace(place, element);
      if (hasFocus) place.focus(); // of what is gone
      place.setAttribute("aria-labelledby", `tab-${open.name}`);
      tabs.forEach((tab, i) => {
        tab.setAttribute("aria-selected", String(VIEWS[i] === open?.name));
        tab.tabIndex = VIEWS[i] === open?.name ? 0 : -1;
      });
    }
    byId("changed-note").hidden = open.name === "what-if" || app.session.shown(app.state) === app.session.original;
    open.update();
  });
  addEventListener("hashchange", () => app.reopen());
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width !== innerWidth) open?.update();
    width = innerWidth;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app.changed());
  session.read(app.state);
  if (sizeOf(app.engine) > SMALL)
    setTimeout(() => bar.start()); // token by token, when the page is there
  else session.original?.finish();
  app.changed();
  document.body.dataset.ready = "true";
}

/** @param {App} app */
function showHeader(app) {
  const { name, languages, config, storage } = app.engine.payload;
  const schemes = ["auto", "light", "dark"];
  let scheme = 0;
  const theme = h(
    "button",
    {
      type: "button",
      onclick: () => {
        scheme = (scheme + 1) % schemes.length;
        document.documentElement.dataset.scheme = schemes[scheme];
        theme.textContent = `Scheme: ${schemes[scheme]}`;
        app.changed();
      },
    },
    "Scheme: auto",
  );
  const said = h("span", { class: "said", role: "status" });
  const share = h(
    "button",
    {
      type: "button",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(location.href);
          said.textContent = "The link is copied.";
        } catch {
          said.textContent = "The address of this page is the link: copy it from the address bar.";
        }
      },
    },
    "Copy link",
  );
  const picture = (/** @type {"svg" | "png"} */ kind) =>
    h(
      "button",
      {
        type: "button",
        onclick: async () => {
          const svg = /** @type {SVGElement | null} */ (document.querySelector("#figure svg.drawing"));
          if (!svg) return void (said.textContent = "There is no figure to save.");
          await save(svg, `${name.replace(/[^\w.-]+/g, "-")}-${app.state.view}`, kind);
          said.textContent = "The picture is saved.";
        },
      },
      kind.toUpperCase(),
    );
  const layers = config.encoder
    ? `${config.encoder.numLayers} + ${config.decoder.numLayers}`
    : String(config.decoder.numLayers);
  replace(
    byId("header"),
    h(
      "div",
      {},
      h("h1", {}, "See it think"),
      h(
        "p",
        { class: "caption" },
        `${name}: ${languages ? `${languages.join(" → ")}, ` : ""}${layers} layers, ` +
          `${config.decoder.attentions[0].numHeads} heads, width ${config.dModel}, ` +
          `${config.vocabSize.toLocaleString("en")} tokens${storage === "int8" ? ", int8" : ""}. ` +
          "Everything is computed in this page.",
      ),
    ),
    h("div", { class: "buttons" }, share, picture("svg"), picture("png"), theme, said),
  );
}

/** @param {App} app */
function showFooter(app) {
  const { loss } = app.engine.payload;
  replace(
    byId("footer"),
    h(
      "p",
      {},
      "Made with minitransformer. The arithmetic is the library’s, in JavaScript; nothing leaves this page.",
      loss
        ? ` Stored as int8: on ${loss.sentences} ${app.engine.describes ? "pictures" : "sentences"} log-probabilities differ by ` +
            `${loss.meanDifference.toFixed(4)} on average and ${loss.maxDifference.toFixed(3)} at most; ` +
            `${loss.equalOutputs} outputs are equal.`
        : "",
    ),
  );
}

main();
