// Runs calls of the engine, or of one of its modules, that Python asks for, and writes what they return.
//
//   node run_engine.mjs SOURCES
//
// reads a line {"payload": …, "calls": [{"name": …, "args": […], "pick": […]}]} and answers it, and so on to the end.
// An argument {"result": n} stands for what call n returned. `pick` lists paths into the result; null: all of it.
// Typed arrays leave as {"float32": base64} or {"float64": base64}, −Infinity as "-Infinity"; a call that throws leaves
// {"error": message}.

import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const sources = process.argv[2];
const load = (name) => import(pathToFileURL(join(sources, name)));
const { createEngine } = await load("engine.js");

/** A generator's steps and its result; other values as they are. */
function finished(value) {
  if (typeof value?.next !== "function") return value;
  const steps = [];
  for (;;) {
    const { done, value: item } = value.next();
    if (done) return { steps, result: item };
    steps.push(item);
  }
}

function plain(value) {
  if (value instanceof Float32Array || value instanceof Float64Array) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
    return { [value instanceof Float32Array ? "float32" : "float64"]: bytes };
  }
  if (Array.isArray(value)) return value.map(plain);
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, plain(item)]));
  }
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

const at = (value, path) => path.split(".").reduce((part, name) => part[name], value);
for await (const line of createInterface({ input: process.stdin })) {
  const { payload, calls } = JSON.parse(line);
  const engine = payload && createEngine(payload);
  const results = [];
  const answers = [];
  for (const { name, args, pick } of calls) {
    try {
      const [file, exported] = name.includes(":") ? name.split(":") : [null, name];
      const given = args.map((arg) => (Object.hasOwn(arg ?? {}, "result") ? results[arg.result] : arg));
      const called = file ? (await load(file))[exported] : engine[exported];
      const start = performance.now();
      const value = finished(called(...given));
      const milliseconds = performance.now() - start;
      results.push(value);
      answers.push({
        value: pick ? pick.map((path) => plain(at(value, path))) : plain(value),
        milliseconds,
      });
    } catch (error) {
      results.push(null);
      answers.push({ error: `${error.name}: ${error.message}` });
    }
  }
  process.stdout.write(`${JSON.stringify(answers)}\n`);
}
