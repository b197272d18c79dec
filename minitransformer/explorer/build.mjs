// Bundles src/main.js, src/style.css and src/index.html into page.html: one file without a reference to any other.
//
//   node build.mjs            writes page.html
//   node build.mjs --stdout   prints it instead
//
// index.html holds marks: %POLICY% for the content security policy, %STYLE%, %SCRIPT%, %SOURCES% for a hash of all
// sources, by which a test sees that page.html is stale, and %PAYLOAD%, which stays: there Python puts a model.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const FOLDER = fileURLToPath(new URL(".", import.meta.url));
const SOURCES = ["build.mjs", "package.json", "package-lock.json", "src"];

/** The files of a folder, or the file itself. */
function filesOf(path) {
  const entries = readdirSync(join(FOLDER, path), { withFileTypes: true, recursive: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => relative(FOLDER, join(entry.parentPath, entry.name)));
}

/** SHA-256 of every source's name and content, in the order of their names. */
function hashOfSources() {
  const names = SOURCES.flatMap((name) => (name === "src" ? filesOf(name) : [name]));
  const hash = createHash("sha256");
  for (const name of names.map((each) => each.split(sep).join("/")).sort()) {
    const content = readFileSync(join(FOLDER, name));
    hash.update(`${name} ${content.length}\n`).update(content);
  }
  return hash.digest("hex");
}

async function bundled(entry) {
  const result = await build({
    entryPoints: [join(FOLDER, "src", entry)],
    absWorkingDir: FOLDER,
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    write: false,
  });
  return result.outputFiles[0].text.trim();
}

/** The template with each mark replaced; every mark must stand in it exactly once. */
function filled(template, values) {
  for (const mark of [...Object.keys(values), "%PAYLOAD%"]) {
    if (template.split(mark).length !== 2) throw new Error(`src/index.html must hold ${mark} exactly once`);
  }
  const marks = new RegExp(Object.keys(values).join("|"), "g");
  return template.replace(marks, (mark) => values[mark]);
}

const script = await bundled("main.js");
const style = await bundled("style.css");
if (/<\/script/i.test(script) || /<\/style/i.test(style)) throw new Error("a source would close its own element");
const scriptHash = createHash("sha256").update(script).digest("base64");
const policy = [
  "default-src 'none'",
  `script-src 'sha256-${scriptHash}'`,
  "style-src 'unsafe-inline'",
  "img-src data: blob:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
const page = filled(readFileSync(join(FOLDER, "src", "index.html"), "utf8"), {
  "%POLICY%": policy,
  "%STYLE%": style,
  "%SCRIPT%": script,
  "%SOURCES%": hashOfSources(),
});
if (page.split("%PAYLOAD%").length !== 2) throw new Error("a source holds %PAYLOAD%, which stands for the model");
if (process.argv.includes("--stdout")) process.stdout.write(page);
else writeFileSync(join(FOLDER, "page.html"), page);
