// A captioner's page: a picture is chosen, described word by word, and shows where each word looks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { axeSource, expected, finished, press, readout, tab, visit } from "./page.mjs";

const { texts, tokens, cross, ...captioner } = expected.captioner;
const words = '[aria-label="Tokens that the model writes"] bdi';

/** How bright each pixel of the drawn picture's patches is, under what lies over it: 1 − its opacity. */
const light = (page) =>
  page.$$eval("#figure rect.veil", (all) => all.map((each) => 1 - Number(each.getAttribute("fill-opacity"))));

test("pictures are chosen with the keyboard and described", () =>
  visit("captioner.html", async (page) => {
    assert.equal(new Set(texts).size, texts.length);
    assert.equal(await finished(page), texts[0].trim());
    const pictures = page.getByRole("group", { name: "Pictures" }).getByRole("button");
    assert.equal(await pictures.count(), texts.length);
    await pictures.first().focus();
    for (const [number, text] of texts.slice(1, 3).entries()) {
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      assert.equal(await finished(page), text.trim());
      assert.equal(await pictures.nth(number + 1).getAttribute("aria-pressed"), "true");
      assert.ok((await page.textContent("#bar .shown")).includes(captioner.true[number + 1]));
    }
    const [red, , , opacity] = await page.$eval("#bar .shown canvas", (canvas) => [
      ...canvas.getContext("2d").getImageData(0, 0, 1, 1).data,
    ]);
    assert.deepEqual([red, opacity], [128, 255]); // grey, where nothing is
  }));

test("as one steps, the attention of each word is drawn over the picture", () =>
  visit(
    "captioner.html",
    async (page) => {
      await page.getByRole("button", { name: "Back to the start" }).click();
      const step = page.getByRole("button", { name: "Step", exact: true });
      for (let written = 1; written <= 3; written += 1) {
        await step.click();
        const last = (await page.locator(words).allTextContents()).at(-1);
        assert.ok((await page.getAttribute("#figure svg", "aria-label")).includes(last));
      }
      await page.locator("#bar button.main").click();
      await finished(page);
      for (const [name, weights] of [
        ["2", cross[1]],
        ["Mean", cross[0].map((row, q) => row.map((_, k) => cross.reduce((sum, head) => sum + head[q][k], 0) / 4))],
      ]) {
        await press(page, "Head", name);
        await page.getByRole("group", { name: "Written words" }).getByRole("button").nth(2).click();
        const largest = Math.max(...weights[2]);
        const seen = await light(page);
        assert.equal(seen.length, weights[2].length);
        seen.forEach((each, k) => assert.ok(Math.abs(each - 0.2 - (0.8 * weights[2][k]) / largest) < 1e-3));
        const best = weights[2].indexOf(largest);
        const [, row, column, weight] = /row (\d), column (\d) \(weight (0\.\d+)/.exec(await readout(page));
        assert.deepEqual([+row, +column], [Math.floor(best / 8) + 1, (best % 8) + 1]);
        assert.ok(Math.abs(weight - largest) < 1e-3);
      }
      await page.focus('[data-key="seen-0"]');
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowRight");
      assert.equal(await page.evaluate(() => document.activeElement.dataset.key), "seen-9");
      assert.match(await readout(page), /“2,2”: weight 0\.\d+ in the mean/);
      const formula = page.locator("#formula");
      await page.keyboard.press("Enter");
      assert.ok(!(await formula.isVisible())); // a mean has none
      await page.getByLabel("Size of values").check();
      assert.match(await readout(page), /\(relative size 0\.\d+ in the mean/);
      for (const each of await page.$$eval("#figure rect.veil", (all) => all.map((rect) => rect.ariaLabel)))
        assert.doesNotMatch(each, /weight/);
      await page.getByLabel("Size of values").uncheck();
      await press(page, "Attention", "Encoder"); // all heads would be 16,384 cells
      assert.equal(await page.locator("#figure rect.cell").count(), 64 * 64);
      assert.match(await page.getAttribute('[data-key="cell-0-0-63"]', "aria-label"), /“1,1” looks at “8,8”/);
      await press(page, "Attention", "Cross");
      await page.focus('[data-key="seen-9"]');
      await page.keyboard.press("Enter");
      await formula.waitFor({ state: "visible" });
    },
    { fragment: "#text=scene+1" },
  ));

test("the other views show pictures too", () =>
  visit("captioner.html", async (page) => {
    for (const name of ["Stack", "Search", "Gradient", "What if"]) {
      await tab(page, name);
      assert.ok(await page.locator("#figure svg, #figure .nothing").count(), name);
    }
    await page.getByLabel("Patch in a vector of another picture").selectOption("scene 1");
    await page.locator('[data-key="patch-2-all"]').click(); // all of the memory is the other's
    const changed = page.locator(".what-if .output", { hasText: "Changed" }).locator("bdi");
    assert.equal((await changed.first().textContent()).trim(), texts[1].trim());
    assert.equal(await page.getByText("Edit a word").count(), 0);
  }));

test("a small log-probability is no zero with a sign", async () => {
  globalThis.document = { createElement: () => ({ getContext: () => null }) }; // with which texts are measured
  const { fixed } = await import("../../../minitransformer/explorer/src/views/dom.js");
  const shown = [-0.0004, -1e-7, -0.005001, 0.0004, 0].map((each) => fixed(each));
  assert.deepEqual(shown, ["−0.0004", "−1e−7", "−0.01", "0.00", "0.00"]);
});

test("a link that names no picture asks for one", () =>
  visit("captioner.html", async (page) => assert.match(await page.textContent("#figure"), /Choose a picture/), {
    fragment: "#text=scene+99",
  }));

for (const scheme of ["light", "dark"])
  test(`390 pixels, ${scheme}: everything fits, and axe finds nothing serious`, () =>
    visit(
      "captioner.html",
      async (page) => {
        await page.evaluate(axeSource());
        for (const view of ["Attention", "Stack", "What if"]) {
          await tab(page, view);
          const width = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(width <= 390, `${view}: ${width}`);
          const { violations } = await page.evaluate(() => axe.run());
          const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
          assert.deepEqual(
            serious.map(({ id, nodes }) => `${view} ${id}: ${nodes[0].html}`),
            [],
          );
        }
      },
      { width: 390, scheme },
    ));
