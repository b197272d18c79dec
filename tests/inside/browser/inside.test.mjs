// What a visitor of the page of a recorded run sees, against the run's numbers in expected.json; and what nobody can do.

import assert from "node:assert/strict";
import { test } from "node:test";
import { axeSource, expected, visit } from "../../explorer/browser/page.mjs";

const { tokens, cross, lens, norms, neurons } = expected;
const texts = (page, selector) => page.$$eval(selector, (found) => found.map((each) => each.textContent));
const text = (page, selector) => page.textContent(selector);
const strip = (page, side) => page.getByRole("group", { name: `Tokens of the ${side}` }).getByRole("button");
const setLayer = (page, layer) => page.locator("#layer").fill(String(layer));

test("everything follows the chosen token, layer and head", () =>
  visit("translator.html", async (page) => {
    assert.deepEqual(await texts(page, '[aria-label="Tokens of the encoder"] bdi'), tokens.encoder);
    assert.deepEqual(await texts(page, '[aria-label="Tokens of the decoder"] bdi'), tokens.decoder);
    assert.deepEqual(await texts(page, "#cells thead bdi"), tokens.decoder);
    assert.deepEqual(await texts(page, "#cells tbody bdi"), lens.toReversed().flat());
    assert.equal(await page.locator("#heads canvas").count(), 2 * cross.length);

    const [t, head] = [2, 3];
    await strip(page, "decoder").nth(t).click();
    await page.getByRole("button", { name: `layer 1, head ${head + 1}`, exact: true }).click();
    const weights = cross[head][t];
    const order = weights.map((_, i) => i).sort((a, b) => weights[b] - weights[a]);
    const most = order.slice(0, 5).map((i) => `${tokens.encoder[i]}${shown(weights[i])}`);
    assert.deepEqual(await texts(page, "#most li"), most);
    const shades = await strip(page, "encoder").evaluateAll((all) => all.map((each) => each.style.getPropertyValue("--p")));
    assert.deepEqual(shades.map(Number), weights.map((each) => Math.round((100 * Math.round(each * 255)) / 255)));

    await page.locator("#map").hover({ position: await cell(page, t, order[0]) });
    assert.equal(
      await text(page, "#said"),
      `“${tokens.decoder[t]}” looks at “${tokens.encoder[order[0]]}”: ${(Math.round(weights[order[0]] * 255) / 255).toFixed(3)}`,
    );
    const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
    assert.ok((await text(page, "#lengths")).startsWith(`“${tokens.decoder[t]}” after layer 1: length ${number(norms[1][t])},`));
    assert.match(await text(page, "#neurons li"), new RegExp(`^neuron ${neurons[0][t]}:`));

    await page.locator("#map").click({ position: await cell(page, 4, 0) });
    assert.equal(await text(page, '[aria-label="Tokens of the decoder"] [aria-pressed="true"]'), tokens.decoder[4]);
    await page.locator("#looks").uncheck();
    assert.ok((await strip(page, "encoder").evaluateAll((all) => all.map((each) => each.style.getPropertyValue("--p")))).every((p) => p === "0"));
    await strip(page, "encoder").nth(1).click(); // a token of the encoder opens the encoder
    assert.equal(await text(page, '#parts [aria-pressed="true"]'), "encoder");
    await page.getByRole("button", { name: "decoder", exact: true }).click();
    assert.equal(await text(page, '#parts [aria-pressed="true"]'), "decoder");
  }));

/** The list says a weight of bytes, rounded; it orders equal ones by their place. */
function shown(weight) {
  const share = Math.round(weight * 255) / 255;
  return share < 0.0005 ? "< 0.001" : share.toFixed(3);
}
/** The middle of a cell of the large map. */
const cell = (page, row, column) =>
  page.evaluate(([r, c]) => ({ x: plan.edge + (c + 0.5) * plan.cell, y: plan.edge + (r + 0.5) * plan.cell }), [row, column]);

test("the keyboard alone reaches tokens, heads and cells", () =>
  visit("translator.html", async (page) => {
    const pressed = (group) => page.locator(`${group} [aria-pressed="true"]`);
    await strip(page, "decoder").last().focus();
    await page.keyboard.press("ArrowLeft");
    assert.equal(await pressed('[aria-label="Tokens of the decoder"]').textContent(), tokens.decoder.at(-2));
    await pressed("#heads").focus();
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowRight");
    assert.equal(await pressed("#heads").getAttribute("aria-label"), "layer 1, head 2");
    await pressed("#cells").focus();
    await page.keyboard.press("ArrowDown");
    assert.equal(await text(page, "#where"), "0: the embedding");
    assert.match(await text(page, "#lengths"), /after the embedding: length/);
    assert.equal(await page.locator("button:focus").textContent(), lens[0].at(-2));
    assert.equal(await page.locator('button[tabindex="0"]').count(), 5); // one in each group: parts, two strips, heads, cells
  }));

test("a GPT's own tokens are marked, and neurons raise tokens", () =>
  visit("gpt.html", async (page) => {
    assert.ok((await page.locator(".written").count()) === 3);
    assert.match(await text(page, "#legend"), /The model wrote the underlined ones/);
    await setLayer(page, 1);
    assert.match(await text(page, "#neurons li"), /fires most at .*raises /);
    await page.locator("#stream").click({ position: { x: 60, y: 100 } });
    assert.equal(await text(page, "#where"), "0: the embedding");
  }));

test("what a model does not have is not shown", async () => {
  await visit("linear.html", async (page) => assert.ok(await page.locator("#attention").isHidden()));
  await visit("classes.html", async (page) => assert.ok(await page.locator("#lens").isHidden()));
});

test("markup stays text", () =>
  visit("hostile.html", async (page) => {
    assert.equal(await page.locator("img, b:not(#neurons b), bdi script").count(), 0);
    assert.match(await text(page, "#name"), /<script>alert\(1\)/);
  }));

for (const width of [360, 1280])
  for (const scheme of ["light", "dark"])
    test(`${width} pixels, ${scheme}: everything fits, and axe finds nothing serious`, () =>
      visit(
        "translator.html",
        async (page) => {
          assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
          await page.evaluate(axeSource());
          const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
          const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
          assert.deepEqual(
            serious.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`),
            [],
          );
        },
        { width, scheme, height: 900 },
      ));
