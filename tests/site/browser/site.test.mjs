// The built site as a visitor sees it: on a dozen kinds of pages, light and dark, wide and narrow, without a network.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";

const require = createRequire(new URL("../../../minitransformer/explorer/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const { SITE, CHROMIUM } = process.env;
const READ = 3_000_000; // bytes that a visitor loads to read a lesson, at most
const KINDS = [
  "index.html",
  "README.html",
  "lessons/README.html",
  "lessons/weekend.html",
  "lessons/04_attention.html",
  "lessons/16_flash_attention.html",
  "lessons/cheat-sheet.html",
  "lessons/glossary.html",
  "lessons/paper/paper.html",
  "lessons/after/after.html",
  "source/minitransformer/ops/attention.py.html",
  "search.html?q=attention",
];

let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
  });
});
after(() => browser?.close());

/** A promise of two frames: in the first, observers of sizes have run. */
const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));

/** A visitor at a page; afterwards nothing must have asked another host or failed. */
async function visit(name, use, { width = 1024, scheme = "light" } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 844 }, colorScheme: scheme });
  const page = await context.newPage();
  const faults = [];
  const loaded = [];
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("console", (message) => message.type() === "error" && faults.push(`console: ${message.text()}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(SITE) && !/^(data|blob):/.test(request.url()))
      faults.push(`request: ${request.url()}`);
  });
  page.on("response", (response) => {
    if (response.status() >= 400) faults.push(`${response.status()}: ${response.url()}`);
    loaded.push(
      response
        .body()
        .then((body) => body.length)
        .catch(() => 0),
    );
  });
  await page.goto(SITE + name, { waitUntil: "networkidle" });
  await page.waitForLoadState("load");
  await page.evaluate(drawn);
  await use(page, loaded);
  await context.close();
  assert.deepEqual(faults, [], name);
}

/** Visit pages, a few at a time. */
async function each(names, use, options) {
  for (let first = 0; first < names.length; first += 4) {
    const some = names.slice(first, first + 4);
    await Promise.all(some.map((name) => visit(name, (page, loaded) => use(page, name, loaded), options)));
  }
}

const tooWide = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

for (const [scheme, width] of Object.entries({ light: 1440, dark: 768 })) {
  test(`axe finds nothing serious in the ${scheme}, and nothing is too wide at ${width} pixels`, async () => {
    const told = [];
    await each(
      KINDS,
      async (page, name) => {
        if (await tooWide(page)) told.push(`${name}: wider than ${width}`);
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => axe.run({ exclude: ["iframe"] }));
        for (const { id, impact, nodes } of violations)
          if (["serious", "critical"].includes(impact))
            told.push(`${name}: ${id}: ${nodes.slice(0, 3).map((node) => node.html)}`);
      },
      { scheme, width },
    );
    assert.deepEqual(told, []);
  });
}

test("no page is wider than a phone, and no lesson weighs more than 3 MB", async () =>
  each(
    [...KINDS, ...(await lessons())],
    async (page, name, loaded) => {
      assert.equal(await tooWide(page), 0, name);
      const bytes = (await Promise.all(loaded)).reduce((sum, each) => sum + each, 0);
      if (name.startsWith("lessons/")) assert.ok(bytes <= READ, `${name}: ${bytes}`);
      if (process.env.SITE_BYTES) console.log(bytes, name);
    },
    { width: 390 },
  ));

test("the explorer on the front page thinks", () =>
  visit("index.html", async (page) => {
    await page.locator("iframe.explorer").scrollIntoViewIfNeeded();
    const explorer = page.frameLocator("iframe.explorer");
    await explorer.locator("body[data-ready]").waitFor();
    await explorer.locator("#sentence").fill("The old teacher reads a book.");
    await explorer.locator("#sentence").press("Enter");
    await explorer.getByRole("button", { name: "Replay" }).waitFor({ timeout: 60_000 });
    assert.match(await explorer.locator("#bar .output bdi").textContent(), /Lehrer/);
  }));

test("a word of the glossary says what it means", () =>
  visit("lessons/04_attention.html", async (page) => {
    await page.locator('article a[href="glossary.html#mask"]').first().focus();
    await page.locator(".tippy-box").waitFor();
    assert.match(await page.locator(".tippy-box").textContent(), /which keys a query may see/);
  }));

test("hints and solutions unfold, and the keyboard reaches the text first", () =>
  visit("lessons/04_attention.html", async (page) => {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), "Skip to content");
    const solution = page.locator("details", { has: page.getByText("The solution", { exact: true }) }).first();
    assert.equal(await solution.locator("pre").isVisible(), false);
    await solution.locator("summary").press("Enter");
    assert.equal(await solution.locator("pre").isVisible(), true);
  }));

test("the search finds", () =>
  visit("search.html?q=perplexity", async (page) => {
    await page.locator("#search-results li a", { hasText: "Glossary" }).first().waitFor();
  }));

/** The names of the lessons' pages. */
async function lessons() {
  let found;
  await visit("lessons/whole-course.html", async (page) => {
    const links = await page.$$eval("article a", (all) => all.map((each) => each.href.split("#")[0]));
    found = [...new Set(links.filter((link) => /lessons\/\d\d_/.test(link)).map((link) => link.slice(SITE.length)))];
  });
  assert.ok(found.length > 20);
  return found;
}
