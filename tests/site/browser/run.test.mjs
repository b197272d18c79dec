// A lesson that runs in the browser, as far as Python itself: NumPy, which is compiled, can't be had without a network.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";

const require = createRequire(new URL("../../../minitransformer/explorer/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const { SITE, CHROMIUM, PYODIDE } = process.env;
const HOST = "https://cdn.jsdelivr.net/pyodide/";
const TYPES = { mjs: "text/javascript", wasm: "application/wasm", json: "application/json" };
const WAIT = { timeout: 180_000 };

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
});
after(() => browser?.close());

/** A lesson's notebook, whose kernel runs. */
class Lesson {
  constructor(page) {
    this.page = page;
  }

  async open() {
    await this.page.goto(`${SITE}run/notebooks/index.html?path=04_attention.ipynb`);
    const idle = () => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === "idle";
    await this.page.waitForFunction(idle, null, WAIT);
  }

  cell(number) {
    return this.page.locator(".jp-Notebook .jp-CodeCell").nth(number);
  }

  /** Begin to run a cell, with other code if some is given. */
  async start(number, code) {
    await this.cell(number).locator(".cm-content").click();
    if (code) {
      await this.page.keyboard.press("Control+a");
      await this.page.keyboard.insertText(code);
    }
    await this.page.keyboard.press("Shift+Enter");
  }

  /** What a cell says when it has run the given time; cells are numbered as they run. */
  async said(number, time) {
    await this.cell(number).locator(".jp-InputPrompt", { hasText: `[${time}]:` }).waitFor(WAIT);
    return this.cell(number).locator(".jp-OutputArea").innerText();
  }

  async run(number, time, code) {
    await this.start(number, code);
    return this.said(number, time);
  }
}

test("a lesson's first cell gets the course, an endless cell is stopped, and answers are kept", async () => {
  const context = await browser.newContext({ acceptDownloads: true });
  const foreign = [];
  await context.route(/^https:/, (route) => {
    const url = route.request().url();
    const path = join(PYODIDE, new URL(url).pathname.split("/").at(-1));
    if (!url.startsWith(HOST)) foreign.push(url);
    if (!url.startsWith(HOST) || !existsSync(path)) return route.abort();
    const contentType = TYPES[path.split(".").at(-1)] ?? "application/octet-stream";
    return route.fulfill({ body: readFileSync(path), contentType, headers: { "access-control-allow-origin": "*" } });
  });
  const page = await context.newPage();
  const lesson = new Lesson(page);
  await lesson.open();
  assert.equal(await lesson.run(0, 1), "");
  assert.match(await lesson.run(1, 2, "import minitransformer\nprint(minitransformer.__file__)"), /site-packages/);

  await lesson.start(1, "print('it runs', flush=True)\nwhile True:\n    pass");
  await lesson.cell(1).locator(".jp-OutputArea").getByText("it runs").waitFor(WAIT);
  await page.getByRole("button", { name: "Interrupt the kernel" }).click();
  assert.match(await lesson.said(1, 3), /KeyboardInterrupt/);
  assert.match(await lesson.run(1, 4, "print(6 * 7)"), /42/);

  const answer = "def causal_mask(n):\n    return n\n";
  const keep = `
from course import answers, progress
from course.browser import download
from minitransformer.system.atomic import atomic_write
with atomic_write(answers.folder("04") / "causal_mask.py") as file:
    file.write(${JSON.stringify(answer)}.encode())
download()`;
  await lesson.run(1, 5, keep);
  const saved = page.waitForEvent("download");
  await page.getByRole("link", { name: "Save your answers" }).click();
  const zip = readFileSync(await (await saved).path(), "latin1");
  assert.ok(zip.includes("answers/04/causal_mask.py") && zip.includes(answer));

  await lesson.open(); // begin anew: what was written has stayed in the browser
  await lesson.run(0, 1);
  assert.match(await lesson.run(1, 2, 'from course import progress\nprogress("04")'), /✓ causal_mask/);

  const imports = await page.evaluate(async () => {
    const { commands, serviceManager } = window.jupyterapp;
    const imports = async () =>
      (await serviceManager.contents.get("04_attention.ipynb", { content: true })).content.cells[2].source;
    await commands.execute("docmanager:save");
    const mine = await imports();
    await serviceManager.contents.delete("04_attention.ipynb"); // begin again
    return [mine, await imports()];
  });
  assert.match(imports[0], /^from course import progress/);
  assert.match(imports[1], /^import math/);
  assert.deepEqual(foreign, []);
  await context.close();
});
