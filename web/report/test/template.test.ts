import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build, type Rollup } from "vite";
import { beforeAll, describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

describe("the built report", () => {
  let files: string[] = [];
  let html = "";
  beforeAll(async () => {
    const output = (await build({ root, logLevel: "error", build: { write: false } })) as Rollup.RollupOutput;
    files = output.output.map((file) => file.fileName);
    const page = output.output.find((file) => file.fileName === "index.html");
    html = page?.type === "asset" ? String(page.source) : "";
  }, 60_000);

  it("is one file with one place for the record", () => {
    expect(files).toEqual(["index.html"]);
    expect(html.split('"__MOIM_RECORD__"')).toHaveLength(2);
    expect(html).toContain('<script id="record" type="application/json">"__MOIM_RECORD__"</script>');
  });

  it("loads nothing", () => {
    const addresses = [...html.matchAll(/<(?:script|link|img|source)[^>]+(?:src|href)="([^"]*)"/g)];
    expect(addresses.map((match) => match[1])).toEqual(["data:,"]);
    expect(html).not.toMatch(/@import|url\(\s*["']?https?:/);
  });

  it("keeps the script after the record in the template", () => {
    const source = readFileSync(`${root}/index.html`, "utf8");
    expect(source.indexOf('id="record"')).toBeLessThan(source.indexOf("/src/main.ts"));
  });
});
