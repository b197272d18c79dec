// Takes the frames of the film in the explorer's README: node film.mjs PAGE.html FOLDER. A frame's name ends in its milliseconds.

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(new URL("../../../minitransformer/explorer/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const [file, folder] = process.argv.slice(2);

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 940, height: 1080 } });
let frames = 0;
async function frame(milliseconds) {
  await page.waitForTimeout(200);
  const name = `${String((frames += 1)).padStart(3, "0")}-${milliseconds}.png`;
  await page.screenshot({ path: join(folder, name), clip: { x: 0, y: 140, width: 940, height: 930 } });
}
const tab = (name) => page.getByRole("tab", { name, exact: true }).click();

await page.goto(pathToFileURL(resolve(file)).href);
await page.waitForSelector("body[data-ready]");
await page.fill("#sentence", "The old teacher reads a book in the garden.");
await frame(900);
const step = page.getByRole("button", { name: "Step", exact: true });
while (await step.isEnabled()) {
  await step.click();
  await frame(220);
}
await frame(1200);
await page.hover('[data-key="query-2"]');
await frame(1500);
await page.getByRole("button", { name: "Map", exact: true }).click();
await frame(1500);
for (const name of ["Stack", "Search", "What if", "Gradient"]) {
  await tab(name);
  if (name === "What if")
    await page.getByRole("button", { name: /Switch off: encoder, layer 1, feed-forward/ }).click();
  if (name === "Gradient")
    await page.getByRole("group", { name: "Written token" }).getByRole("button", { name: "Lehrer" }).click();
  await frame(2000);
}
await browser.close();
