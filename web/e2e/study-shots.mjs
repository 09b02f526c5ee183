// Pictures of the four studies' reports: study-shots.mjs RUNS OUT takes the newest record of each in
// RUNS; a study without one is run with --quick first.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { browser } from "./world.mjs";

const [runs = "runs", out = "docs/img"] = process.argv.slice(2);
const ROOT = new URL("../..", import.meta.url).pathname;
const BINARY = process.env.MOIM_BIN ?? join(ROOT, "target/release/moim");

const newest = (name) =>
  (existsSync(runs) ? readdirSync(runs) : [])
    .filter((dir) => dir.endsWith(`-study-${name}`))
    .sort()
    .at(-1);

const ends = [];
try {
  const launched = await browser({ after: (end) => ends.push(end) });
  for (const name of ["sfu", "sockets", "mesh-vs-sfu", "audio-room"]) {
    if (!newest(name)) {
      const run = spawnSync(BINARY, ["study", name, "--quick", "--out", runs], { stdio: "inherit" });
      if (run.status !== 0) throw new Error(`study ${name} ended with ${run.status}`);
    }
    const page = await (await launched.newContext({ viewport: { width: 1280, height: 1000 } })).newPage();
    await page.goto(`file://${resolve(runs, newest(name), "report.html")}`);
    await page.waitForSelector("table");
    // The charts, since people would rather look than read.
    await page.evaluate(() =>
      [...document.querySelectorAll("h2, h3")].find((one) => one.textContent === "Plots")?.scrollIntoView(),
    );
    await page.screenshot({ path: join(out, `study-${name}.png`) });
    await page.setViewportSize({ width: 360, height: 740 });
    const sideways = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
    if (sideways) throw new Error(`the report of ${name} scrolls sideways at 360 px`);
  }
} finally {
  for (const end of ends.reverse()) await end();
}
