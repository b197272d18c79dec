// What a visitor does, point by point, and what they see. Numbers are compared with NumPy's, from expected.json.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { expected, finished, press, readout, tab, visit, write } from "./page.mjs";

const { sentence, translation, tokens, cross, beams } = expected;
const texts = (page, selector) => page.$$eval(selector, (found) => found.map((each) => each.textContent));
const count = (page, selector) => page.locator(selector).count();
const last = String(cross.layer + 1);

test("a sentence is cut into tokens and translated as one watches", () =>
  visit("translator.html", async (page) => {
    await page.fill("#sentence", sentence);
    assert.deepEqual(await texts(page, '[aria-label="Tokens that the model reads"] bdi'), tokens.source);
    assert.equal(await count(page, '[aria-label="Tokens that the model writes"] button'), 0);
    const step = page.getByRole("button", { name: "Step", exact: true });
    for (let written = 1; written <= 3; written += 1) {
      await step.click();
      assert.equal(await count(page, '[aria-label="Tokens that the model writes"] button'), written);
    }
    const main = page.locator("#bar button.main");
    await main.click(); // goes on
    await main.click(); // and pauses
    assert.equal(await main.textContent(), "Translate");
    const paused = await count(page, '[aria-label="Tokens that the model writes"] button');
    await page.waitForTimeout(500);
    assert.equal(await count(page, '[aria-label="Tokens that the model writes"] button'), paused);
    await main.click();
    assert.equal(await finished(page), translation);
    assert.deepEqual(await texts(page, '[aria-label="Tokens that the model writes"] bdi'), tokens.target);
    await main.click(); // replay
    await page.waitForTimeout(50);
    assert.ok((await count(page, '[aria-label="Tokens that the model writes"] button')) < tokens.target.length);
    assert.equal(await finished(page), translation);
    await page.selectOption("#examples", { index: 2 });
    assert.notEqual(await finished(page), translation);
  }));

test("attention is shown as lines and as a map, and explains itself with numbers", () =>
  visit("translator.html", async (page) => {
    await write(page, sentence);
    await press(page, "Attention", "Cross");
    await press(page, "Layer", last);
    await press(page, "Head", "1");
    assert.ok((await count(page, "#figure path.ray")) >= tokens.target.length);
    await press(page, "Show", "Map");
    assert.equal(await count(page, "#figure rect.cell"), tokens.source.length * tokens.target.length);
    for (const [q, k] of [
      [0, 0],
      [2, 1],
      [tokens.target.length - 1, tokens.source.length - 1],
    ]) {
      await page.hover(`[data-key="cell-0-${q}-${k}"]`);
      const [, weight] = /weight (\d+\.\d+)/.exec(await readout(page));
      assert.ok(
        Math.abs(+weight - cross.weights[0][q][k]) <= 6e-4,
        `${weight} at ${q}, ${k}: ${cross.weights[0][q][k]}`,
      );
    }
    const all = await count(page, "#figure rect.cell");
    await page.getByLabel("End mark").uncheck();
    assert.equal(await count(page, "#figure rect.cell"), all - tokens.target.length);
    await page.getByLabel("End mark").check();
    await page.getByLabel("Words").check();
    assert.ok((await count(page, "#figure rect.cell")) < all);
    await page.getByLabel("Words").uncheck();
    const plain = await page.getAttribute('[data-key="cell-0-2-1"]', "fill-opacity");
    await page.getByLabel("Size of values").check();
    assert.notEqual(await page.getAttribute('[data-key="cell-0-2-1"]', "fill-opacity"), plain);
    await press(page, "Head", "All");
    assert.equal(await count(page, "#figure rect.cell"), all * cross.weights.length);
    assert.equal(await count(page, ".thumbnail"), (cross.layer + 1) * cross.weights.length);
    await page.locator(".thumbnail").nth(1).click();
    assert.match(page.url(), /layer=0/);
    for (const [name, width, height] of [
      ["Encoder", "source", "source"],
      ["Decoder", "target", "target"],
    ]) {
      await press(page, "Attention", name);
      assert.equal(await count(page, "#figure rect.cell"), tokens[width].length * tokens[height].length);
    }
  }));

test("one position is followed through the stack, and a click opens the formula with its numbers", () =>
  visit("translator.html", async (page) => {
    await write(page, sentence);
    await tab(page, "Stack");
    await press(page, "Token", tokens.target[2]);
    assert.equal(await count(page, "#figure .stage"), 3 + 2 * 3 * expected.layers);
    const said = await page.getAttribute("#figure .stage >> nth=-1", "aria-label");
    assert.match(said, /rank 1,/);
    const [, logProb] = /log-probability (−?\d+\.\d+)/.exec(said);
    assert.ok(Math.abs(+logProb.replace("−", "-") - expected.logProbs[2]) <= 6e-3);
    await page.locator("#figure .stage.opens").nth(1).click();
    const dialog = page.locator("#formula");
    await dialog.waitFor({ state: "visible" });
    const numbers = async () => {
      await dialog.locator("details").evaluateAll((all) => all.forEach((each) => (each.open = true)));
      const rows = await texts(page, "#formula .numbers");
      return rows.map((row) => row.split(/\s+/).map((each) => +each.replace("−", "-")));
    };
    const [query, key, products] = await numbers();
    const [dot, score] = (await texts(page, "#formula .equation strong")).map((each) => +each.replace("−", "-"));
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(sum(products) - dot) < 0.01 * products.length);
    assert.ok(
      Math.abs(sum(query.map((each, i) => each * key[i])) - dot) < 0.02 * Math.max(...query, ...key) * query.length,
    );
    assert.ok(Math.abs(dot * expected.scale - score) < 1e-3);
    const title = await page.textContent("#formula-title");
    await page.click('#formula [data-key="query-after"]');
    assert.notEqual(await page.textContent("#formula-title"), title);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "hidden" });
    await press(page, "Stack", "Encoder");
    assert.equal(await count(page, "#figure .stage"), 3 + 2 * 2 * expected.layers);
  }));

test("the beam is a tree, and its sliders change it", () =>
  visit("translator.html", async (page) => {
    await write(page, sentence);
    await tab(page, "Search");
    assert.ok((await count(page, "#figure .node.dropped")) > 0);
    assert.equal(await count(page, "#figure .node.best"), tokens.target.length);
    const best = await page.locator("#figure .node.best").last().getAttribute("aria-label");
    const [, score] = /score (−?\d+\.\d+)/.exec(best);
    assert.ok(Math.abs(+score.replace("−", "-") - beams["0.6"].score) <= 2e-3, best);
    await page.getByLabel("Length penalty α").fill("2");
    assert.equal(await finished(page), beams["2.0"].text);
    await page.getByLabel("Beams").fill("1");
    await page.waitForTimeout(100);
    await finished(page);
    assert.equal(
      await count(page, "#figure .node.kept, #figure .node.ended"),
      await count(page, '[aria-label="Tokens that the model writes"] button'),
    );
    const widest = async () => +/[\d.]+/.exec(await page.getAttribute(".bars .bar span >> nth=0", "style"))[0];
    const before = await widest();
    assert.ok(Math.abs(before / 100 - Math.exp(expected.logProbs[0])) < 2e-3);
    await page.getByLabel("Temperature").fill("3");
    assert.ok((await widest()) < before);
  }));

test("parts are switched off, a beginning is forced and a word edited, beside the original", () =>
  visit("translator.html", async (page) => {
    await write(page, sentence);
    await tab(page, "What if");
    await page.getByRole("button", { name: /Switch off: all of the decoder’s layer 1/ }).click();
    assert.equal((await page.textContent("#figure .output:nth-child(2) bdi")).trim(), expected.without_layer.text);
    const cells = (await texts(page, "#figure table td")).filter(Boolean).map((each) => +each.replace("−", "-"));
    assert.ok(Math.abs(cells[0] - expected.logProbs.reduce((a, b) => a + b, 0)) < 0.02);
    assert.ok(Math.abs(cells[1] - expected.without_layer.original_log_prob) < 0.02);
    assert.equal(await count(page, "#figure .bar-row"), tokens.target.length);
    await page.getByLabel(/Show the changed model/).check();
    await tab(page, "Stack");
    assert.match((await texts(page, "#figure .name")).join(), /1 self-attention, off/);
    await tab(page, "What if");
    await page.getByRole("button", { name: "Undo all changes" }).click();
    assert.equal(await count(page, "#figure .bar-row"), 0);
    await page.getByLabel("Force the beginning of the translation").fill(expected.forced.text);
    await page.waitForSelector("#figure .output:nth-child(2)");
    assert.ok((await page.textContent("#figure .output:nth-child(2) bdi")).startsWith(expected.forced.text));
    assert.match(await page.textContent("#figure .caption"), /same as before/);
    const [forced, next] = await page.$$eval("#figure .bar-row", (all) => all.map((each) => each.ariaLabel));
    const [, cost, best, logProb] = /forced: log-probability (\S+)\. Most probable was “(.*)”, (\S+)\.$/.exec(forced);
    assert.equal(best, tokens.target[0]);
    for (const [said, right] of [
      [cost, expected.forced.logProb],
      [logProb, expected.logProbs[0]],
    ])
      assert.ok(Math.abs(+said.replace("−", "-") - right) <= 2e-3, `${said}: ${right}`);
    assert.doesNotMatch(next, /forced/);
    await page.getByRole("button", { name: /Switch off: all of the decoder’s layer 1/ }).click();
    assert.equal(await count(page, "#figure .caption"), 0); // the model is another: its differences are shown
    assert.equal(await count(page, "#figure .bar-row"), tokens.target.length);
    await page.getByRole("button", { name: "Undo all changes" }).click();
    await page.getByLabel("Word 2", { exact: true }).fill(expected.edited.word);
    await page.waitForSelector("#figure .output:nth-child(2)");
    assert.equal((await page.textContent("#figure .output:nth-child(2) bdi")).trim(), expected.edited.text);
    await page.getByRole("button", { name: "Undo all changes" }).click();
    await page
      .getByRole("button", { name: /Switch off: “.*” is hidden/ })
      .first()
      .click();
    await page.waitForSelector("#figure .output:nth-child(2)");
  }));

test("vectors of another sentence are patched in, and each says what it brings over", () =>
  visit("translator.html", async (page) => {
    const { other, shares, text, best } = expected.patching;
    await write(page, sentence);
    await tab(page, "What if");
    const input = page.getByLabel("Patch in a vector of another sentence");
    await page.getByRole("button", { name: "Copy the sentence from above" }).click();
    await page.getByText("there is no difference to bring over").waitFor();
    await input.fill(`${sentence} It sleeps.`);
    await page.getByText("their positions don’t belong together").waitFor();
    await input.fill(other);
    const grid = page.getByRole("group", { name: "What each patch brings over" });
    await grid.waitFor();
    const cells = (await grid.getByRole("button").allTextContents()).map((each) => +each.replace("−", "-"));
    assert.equal(cells.length, shares.flat().length);
    shares.flat().forEach((share, i) => assert.ok(Math.abs(cells[i] - 100 * share) <= 0.6, `${cells[i]}: ${share}`));
    await page.focus('[data-key="patch-0-0"]');
    for (const key of ["ArrowRight", "ArrowRight", "ArrowDown", "Enter"]) await page.keyboard.press(key);
    assert.equal(await page.evaluate(() => document.activeElement.dataset.key), "patch-1-2");
    assert.match(page.url(), /patch=1\.2/);
    const changed = page.locator(".what-if .output", { hasText: "Changed" }).locator("bdi");
    assert.deepEqual(
      (await changed.allTextContents()).map((each) => each.trim()),
      [text, text],
    ); // also as all changes
    const table = page.getByRole("table", { name: "Probability of the token" });
    const probabilities = await table.getByRole("row", { name: "changed" }).getByRole("cell").allTextContents();
    assert.equal(Math.max(...probabilities.map(parseFloat)), Math.round(100 * best));
    await page.getByLabel(/Show the changed model/).check();
    await tab(page, "Stack");
    await press(page, "Stack", "Encoder");
    await page.locator('[aria-label="Token"] button').nth(2).click();
    assert.match((await texts(page, "#figure .name")).join(), /stream,\S.*stream, patched,2 self/);
    await tab(page, "What if");
    await press(page, "Replace", "Head 2");
    assert.equal(await grid.getByRole("button").count(), cells.length - shares[0].length); // no head is in the input
    assert.equal(await grid.getByRole("button", { pressed: true }).count(), 1);
    await grid.getByRole("button", { pressed: true }).click();
    await changed.first().waitFor({ state: "detached" });
  }));

test("the gradient of a token goes to the source and to what was written before", () =>
  visit("translator.html", async (page) => {
    await write(page, sentence);
    await tab(page, "Gradient");
    await press(page, "Written token", tokens.target[1]);
    assert.equal(await count(page, "#figure .bar-row"), tokens.source.length + 2);
    const said = await page.$$eval("#figure .bar-row", (rows) => rows.map((row) => row.getAttribute("aria-label")));
    said.slice(0, tokens.source.length).forEach((text, i) => {
      const [, size] = /size (\d+\.\d+)/.exec(text);
      assert.ok(
        Math.abs(+size - expected.gradient[i]) <= 1e-4 + 1e-3 * expected.gradient[i],
        `${text}: ${expected.gradient[i]}`,
      );
    });
    await press(page, "Measure", "× vector");
    assert.ok((await count(page, "#figure .bar-row .negative")) > 0);
  }));

test("a link shows another visitor the same, and a picture can be saved", async () => {
  let link = "";
  let seen = "";
  await visit("translator.html", async (page) => {
    await write(page, sentence);
    await page.getByLabel("Words").check();
    await press(page, "Show", "Map");
    await tab(page, "What if");
    await page
      .getByRole("button", {
        name: /Switch off: encoder, layer 1, feed-forward/,
      })
      .click();
    await page.waitForSelector("#figure table");
    link = new URL(page.url()).hash;
    seen = await page.textContent("#figure");
    for (const [kind, start] of [
      ["SVG", "<svg"],
      ["PNG", "\x89PNG"],
    ]) {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: kind, exact: true }).click(),
      ]);
      const content = await readFile(await download.path());
      assert.equal(content.toString("latin1").slice(0, start.length), start);
      assert.ok(content.length > 2000);
      if (kind === "SVG") assert.doesNotMatch(content.toString(), /var\(--|class=/);
    }
  });
  await visit(
    "translator.html",
    async (page) => {
      assert.equal(await page.inputValue("#sentence"), sentence);
      assert.equal(await page.textContent("#figure"), seen);
      await tab(page, "Attention");
      assert.ok(await page.getByLabel("Words").isChecked());
      assert.ok((await count(page, "#figure rect.cell")) > 0);
    },
    { fragment: link },
  );
  for (const odd of [
    "#layer=99&head=77&row=4000&token=9999&beams=0&view=attention",
    "#view=nowhere&off=h.x.y+m.encoder.9999+s.decoder.88.all",
    "#text=%E0%A4%A",
    "#text=&view=stack",
    "#view=gradient&text=+",
    "#edited=&view=what-if",
    "#prefix=zzz&view=beam&changed=1",
    `#view=what-if&changed=1&patch=99.999&part=88&other=${encodeURIComponent(expected.patching.other)}`,
  ])
    await visit("translator.html", async (page) => assert.ok(await count(page, "#view *")), { fragment: odd });
});

test("everything can be reached with the keyboard", () =>
  visit("translator.html", async (page) => {
    await write(page, sentence);
    await page.getByRole("tab", { name: "Attention" }).focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.getAttribute("#tab-stack", "aria-selected"), "true");
    await page.keyboard.press("ArrowLeft");
    const focused = () => page.evaluate(() => document.activeElement.dataset.key ?? document.activeElement.className);
    await press(page, "Head", "All");
    await page.focus("#figure .scroll");
    await page.keyboard.press("Tab");
    assert.equal(await focused(), "query-0");
    const [rows, others] = [tokens.target.length, tokens.source.length];
    assert.ok(rows > others);
    for (let i = 1; i < rows; i += 1) await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight"); // there is no token on the other side
    assert.equal(await focused(), `query-${rows - 1}`);
    for (let i = others; i < rows; i += 1) await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowRight");
    assert.equal(await focused(), `key-${others - 1}`);
    const said = await page.evaluate(() => document.activeElement.ariaLabel);
    assert.match(said, /is looked at by “.*” \d/);
    assert.equal(await readout(page), said);
    await page.keyboard.press("Shift+Tab");
    assert.equal(await focused(), "scroll");
    await page.keyboard.press("Tab");
    assert.equal(await focused(), `key-${others - 1}`); // where it was
    await page.keyboard.press("Tab");
    assert.equal(await focused(), "thumb-0-0"); // no line is a stop
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    assert.equal(await focused(), "thumb-0-1");
    await press(page, "Head", "All");
    for (const view of ["Stack", "Search", "What if", "Gradient"]) {
      await tab(page, view);
      if (view === "What if")
        await page
          .getByRole("button", { name: /Switch off: encoder, layer 1/ })
          .first()
          .click();
      assert.equal(await count(page, '#figure .drawing [tabindex="0"]'), 1, view);
    }
    await tab(page, "Attention");
    await press(page, "Show", "Map");
    await press(page, "Head", "1");
    await page.focus('[data-key="cell-0-0-0"]');
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowDown");
    assert.equal(await page.evaluate(() => document.activeElement.dataset.key), "cell-0-1-1");
    assert.match(await readout(page), /weight/);
    await page.keyboard.press("Enter");
    await page.locator("#formula").waitFor({ state: "visible" });
    await page.keyboard.press("Escape");
    assert.equal(await page.evaluate(() => document.activeElement.dataset.key), "cell-0-1-1");
  }));

test("a language model whose texts begin and end with one mark", () =>
  visit(
    "marked.html",
    async (page) => {
      assert.equal(await count(page, "#figure .nothing"), 0); // the link names an encoder, which it does not have
      await page.fill("#sentence", expected.prompt);
      const reads = await texts(page, '[aria-label="Tokens that the model reads"] bdi');
      for (const row of [0, 1]) {
        await page.locator('[aria-label="Token"] button').nth(row).click();
        const [read, writes] = await texts(page, "#figure .caption bdi");
        assert.deepEqual([read, writes], [reads[row], reads[row + 1]]);
      }
      await write(page, expected.prompt);
      await tab(page, "What if");
      await page.fill("#prefix", "the dog");
      await page.waitForSelector("#figure table");
      assert.match(await page.textContent("#figure .output:nth-child(2) bdi"), /the dog/);
    },
    { fragment: "#view=stack&stack=encoder&map=cross" },
  ));

test("a language model continues a prompt", () =>
  visit("gpt.html", async (page) => {
    const text = await write(page, expected.prompt);
    assert.equal(text, expected.continuation);
    for (const name of ["Stack", "Search", "What if", "Gradient", "Attention"]) {
      await tab(page, name);
      assert.ok(await count(page, "#figure svg, #figure .nothing"));
    }
    await page.getByRole("button", { name: "Draw another" }).click();
    await finished(page);
    const drawn = page.url();
    assert.match(drawn, /seed=0/);
    await tab(page, "What if");
    await page
      .getByRole("button", {
        name: /Switch off: decoder, layer 1, self-attention, head 1/,
      })
      .click();
    await page.waitForSelector("#figure table");
    await page.getByRole("button", { name: "Undo all changes" }).click();
    await page.getByLabel("Patch in a vector of another prompt").fill(expected.otherPrompt);
    const grid = page.getByRole("group", { name: "What each patch brings over" });
    const all = grid.locator('[data-key$="-all"]');
    await all.first().waitFor();
    assert.deepEqual(await all.allTextContents(), ["100", "100", "100"]); // the outputs differ from the first token on
    await all.last().click();
    await page.waitForSelector("#figure table");
  }));
