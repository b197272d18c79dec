// Whatever is typed, and whatever a vocabulary holds, stays text; the page suits small screens and screen readers.

import assert from "node:assert/strict";
import { test } from "node:test";
import { axeSource, expected, tab, visit, write } from "./page.mjs";

const VIEWS = ["Attention", "Stack", "Search", "What if", "Gradient"];
const TEXTS = {
  markup: `<img src=x onerror="alert(1)"> </script><script>alert(2)</script> <b>&amp;</b> ]]> --> javascript:alert(3)`,
  emoji: "👩‍👩‍👧‍👦 a 🐕 dog 🇩🇪 é̂ ﷽ \u0000\u202e\u200b",
  "right to left": "الكلب ينام في البيت. הכלב ישן.",
  "two hundred tokens": "the dog sleeps and ".repeat(60),
  "one letter": "x",
  "a line break": "the dog\nsleeps.",
};

for (const [name, text] of Object.entries(TEXTS))
  test(`text: ${name}`, () =>
    visit("translator.html", async (page) => {
      await write(page, text);
      for (const view of VIEWS) {
        await tab(page, view);
        assert.equal(await page.locator("#bar img, #view img, #view script, #bar script, #view b").count(), 0);
        assert.ok(await page.locator("#figure").count());
      }
      await tab(page, "What if");
      await page.getByLabel("Force the beginning of the translation").fill(text.slice(0, 80));
      await page.getByLabel("Patch in a vector of another sentence").fill(text);
      await page.waitForTimeout(400);
      assert.equal(await page.locator("#view img, #view script, #view b").count(), 0);
    }));

test("a vocabulary that is markup", () =>
  visit("odd.html", async (page) => {
    await write(page, expected.odd);
    for (const view of VIEWS) {
      await tab(page, view);
      assert.equal(await page.locator("#bar img, #view img, #view script, #view b, #header b").count(), 0);
    }
  }));

test("another library's vocabulary: its ids, readable bytes, and tokens that would turn the page around", () =>
  visit("pretrained.html", async (page) => {
    const { prompt, reads, text } = expected.pretrained;
    assert.equal(await write(page, prompt), text.trim());
    const shown = await page.locator('[aria-label="Tokens that the model reads"] bdi').allTextContents();
    const plain = (label) => label.replace(/^·/, "").replace(/^▁(?=.)/, "");
    assert.deepEqual(shown.map(plain), reads.map(plain));
    assert.ok(shown.map(plain).includes("</script><b>"));
    for (const view of VIEWS) {
      await tab(page, view);
      assert.equal(await page.locator("#bar b, #view b, #view script").count(), 0);
      assert.doesNotMatch(await page.locator("#view, .tokens").allInnerTexts().then(String), /[\u202e\u001b]/);
    }
  }));

test("no request leaves the page, whatever runs in it", () =>
  visit("translator.html", async (page) => {
    const policy = await page.getAttribute('meta[http-equiv="Content-Security-Policy"]', "content");
    assert.match(policy, /default-src 'none'/);
    const refused = await page.evaluate(async () => {
      try {
        await fetch("https://example.org/");
        return false;
      } catch {
        return true;
      }
    });
    assert.ok(refused);
    const outside = await page.$$eval("[src], [href]", (all) =>
      all.map((each) => each.getAttribute("src") ?? each.getAttribute("href")).filter((each) => !each.startsWith("#")),
    );
    assert.deepEqual(outside, []);
  }).catch((error) =>
    assert.match(error.message, /^(console: .*(Content Security Policy|Refused|violates|Fetch API).*\n?)+$/s),
  ));

for (const width of [360, 768, 1440])
  for (const scheme of ["light", "dark"])
    test(`${width} pixels, ${scheme}: everything fits, and axe finds nothing serious`, () =>
      visit(
        "translator.html",
        async (page) => {
          await write(page, expected.sentence);
          await page.evaluate(axeSource());
          for (const view of VIEWS) {
            await tab(page, view);
            const [content, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
            assert.ok(content <= room, `${view} is ${content} pixels wide`);
            const cut = await page.$$eval("#figure .drawing text", (all) =>
              all
                .filter((text) => {
                  const [inner, outer] = [text, text.ownerSVGElement].map((each) => each.getBoundingClientRect());
                  return ["left", "top"].some((side) => inner[side] < outer[side] - 1) || inner.right > outer.right + 1;
                })
                .map((text) => text.textContent),
            );
            assert.deepEqual(cut, [], view);
            await page.waitForTimeout(200); // colours that change slowly
            const { violations } = await page.evaluate(() =>
              globalThis.axe.run(document, { resultTypes: ["violations"] }),
            );
            const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
            assert.deepEqual(
              serious.map(
                ({ id, nodes }) =>
                  `${view}: ${id} ${nodes.slice(0, 3).map(({ html, failureSummary }) => html.slice(0, 160) + failureSummary)}`,
              ),
              [],
            );
            if (process.env.EXPLORER_PICTURES)
              await page.screenshot({
                path: `${process.env.EXPLORER_PICTURES}/${view.replace(" ", "-")}-${width}-${scheme}.png`,
                fullPage: true,
              });
          }
        },
        {
          width,
          scheme,
          height: 900,
          fragment: `#prefix=${expected.forced.text}&other=${encodeURIComponent(expected.patching.other)}`,
        },
      ));
