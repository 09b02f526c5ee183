// Pictures for the README: the start page, a call of four, the same on a phone, and a report.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { browser, enter, inbound, serve, until } from "./world.mjs";

const out = process.argv[2] ?? "docs/img";
const ROOT = new URL("../..", import.meta.url).pathname;
const BINARY = process.env.MOIM_BIN ?? join(ROOT, "target/release/moim");

// `serve` and `browser` end with the test that they are given; here that is the script.
const ends = [];
const t = { after: (end) => ends.push(end) };

try {
  const { url } = await serve(t);
  const launched = await browser(t);
  const start = await (await launched.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
  await start.goto(url);
  await start.waitForSelector("input");
  await start.screenshot({ path: join(out, "start.png") });
  await start.context().close();

  const people = [];
  for (const name of ["Ada", "Min-jun", "Noor", "Tomás"]) {
    people.push(await enter(t, launched, url, "garden", name));
  }
  await until(
    "four pictures",
    async () => {
      for (const person of people) {
        const streams = await inbound(person, "video");
        if (streams.filter((stream) => stream.framesDecoded > 20).length < 3) return false;
      }
      return true;
    },
    60,
  );
  const { page } = people[0];
  const quality = page.getByRole("button", { name: /quality/i });
  await until("a sample", () => page.evaluate(() => window.moim.room.lastSample() !== null));
  await page.screenshot({ path: join(out, "call.png") });
  await quality.click();
  await new Promise((done) => setTimeout(done, 4000));
  await page.screenshot({ path: join(out, "call-quality.png") });
  await quality.click();
  await page.setViewportSize({ width: 360, height: 740 });
  await page.screenshot({ path: join(out, "call-phone.png") });
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  if (sideways) throw new Error("the page scrolls sideways at 360 px");
  for (const person of people) await person.page.context().close();

  const runs = mkdtempSync(join(tmpdir(), "moim-shots-"));
  const run = spawnSync(BINARY, ["load", join(ROOT, "scenarios/first-room.yaml"), "--runs", runs], {
    stdio: "inherit",
  });
  if (run.status !== 0) throw new Error(`the run ended with ${run.status}`);
  const report = await (await launched.newContext({ viewport: { width: 1280, height: 1500 } })).newPage();
  await report.goto(`file://${join(runs, readdirSync(runs)[0], "report.html")}`);
  await report.waitForSelector("canvas");
  await report.screenshot({ path: join(out, "report.png") });
} finally {
  for (const end of ends.reverse()) await end();
}
