// Sets the formulas that come in, one a line, as HTML; `katex.py` asks.

import { createInterface } from "node:readline";
import katex from "katex";

for await (const line of createInterface({ input: process.stdin })) {
  const { tex, displayMode } = JSON.parse(line);
  let answer;
  try {
    answer = { html: katex.renderToString(tex, { displayMode, strict: "ignore" }) };
  } catch (error) {
    answer = { html: "", error: error.message };
  }
  console.log(JSON.stringify(answer));
}
