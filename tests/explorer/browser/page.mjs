// Opens a page as a visitor does: in Chromium, from the disk, without a network.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { readFileSync } from "node:fs";
import { after, before } from "node:test";

const require = createRequire(new URL("../../../minitransformer/explorer/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const PAGES = process.env.EXPLORER_PAGES;

export const axeSource = () => readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
export const expected = JSON.parse(readFileSync(join(PAGES, "expected.json"), "utf8"));

let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
});
after(() => browser?.close());

/** A visitor at a page; afterwards nothing must have asked for the network or failed. */
export async function visit(name, use, { fragment = "", width = 1024, height = 800, scheme = "light" } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: scheme,
    offline: true,
  });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("console", (message) => message.type() === "error" && faults.push(`console: ${message.text()}`));
  page.on("request", (request) => /^(file|data|blob):/.test(request.url()) || faults.push(`request: ${request.url()}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.goto(pathToFileURL(join(PAGES, name)).href + fragment);
  await page.waitForSelector("body[data-ready]", { timeout: 30_000 });
  await use(page);
  await context.close();
  if (faults.length) throw new Error(faults.join("\n"));
}

/** Type a sentence, have it translated to its end, and return what is written. */
export async function write(page, text) {
  await page.fill("#sentence", text);
  await page.press("#sentence", "Enter");
  return finished(page);
}

export async function finished(page) {
  await page.waitForFunction(() => document.querySelector("#bar button.main").textContent === "Replay", null, {
    timeout: 60_000,
  });
  return (await page.textContent("#bar .output bdi")).trim();
}

export const press = (page, group, name) =>
  page.getByRole("group", { name: group, exact: true }).getByRole("button", { name, exact: true }).click();
export const tab = (page, name) => page.getByRole("tab", { name, exact: true }).click();
export const readout = (page) => page.textContent("#figure .readout");
