// Pictures for the README: the start page, a call of four, the same on a phone, a direct call, an audio
// room, the console, and a report.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { browser, enter, inbound, serve, sing, until } from "./world.mjs";

const out = process.argv[2] ?? "docs/img";
const ROOT = new URL("../..", import.meta.url).pathname;
const BINARY = process.env.MOIM_BIN ?? join(ROOT, "target/release/moim");

// `serve` and `browser` end with the test that they are given; here that is the script.
const ends = [];
const t = { after: (end) => ends.push(end) };

async function assertNoSidewaysScroll(page) {
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  if (sideways) throw new Error(`${page.url()} scrolls sideways at 360 px`);
}

try {
  const { url } = await serve(t);
  const launched = await browser(t);
  const start = await (await launched.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
  await start.goto(url);
  await start.waitForSelector("input");
  await start.screenshot({ path: join(out, "start.png") });
  await start.setViewportSize({ width: 360, height: 740 });
  await assertNoSidewaysScroll(start);
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
  await assertNoSidewaysScroll(page);
  await page.getByRole("button", { name: "People" }).click();
  await assertNoSidewaysScroll(page);
  for (const person of people) await person.page.context().close();

  const direct = [];
  for (const name of ["Ada", "Min-jun", "Noor"])
    direct.push(await enter(t, launched, url, "direct", name, { preset: "mesh" }));
  await until(
    "pictures from person to person",
    async () => {
      for (const person of direct) {
        const streams = await inbound(person, "video");
        if (streams.filter((stream) => stream.framesDecoded > 20).length < 2) return false;
      }
      return true;
    },
    60,
  );
  await direct[0].page.getByRole("button", { name: "People" }).click();
  await direct[0].page.screenshot({ path: join(out, "mesh.png") });
  for (const person of direct) await person.page.context().close();

  const hall = [];
  for (const name of ["Ada", "Min-jun", "Noor", "Tomás", "Sina", "Bo-ra"])
    hall.push(await enter(t, launched, url, "hall", name, { preset: "audio_room", mic: "0" }));
  // The browser's own test sound is a short beep; a tone is heard as speech is.
  for (const [index, person] of hall.entries()) await sing(person, 300 + 200 * index);
  for (const person of hall.slice(3)) await person.page.evaluate(() => window.moim.room.mute("audio", true));
  await until(
    "the two others who speak",
    async () => (await hall[0].page.locator(".tile.speaking:not(.self)").count()) === 2,
  );
  await hall[0].page.screenshot({ path: join(out, "audio-room.png") });

  const control = await (await launched.newContext({ viewport: { width: 1280, height: 640 } })).newPage();
  await control.goto(`${url}/console`);
  const room = control.getByRole("region", { name: "Room hall" });
  await until("figures of everyone", async () => (await room.locator("tbody tr").count()) === 6, 30);
  await new Promise((done) => setTimeout(done, 15_000)); // a line has more than one point
  await control.screenshot({ path: join(out, "console.png") });
  await control.setViewportSize({ width: 360, height: 740 });
  await assertNoSidewaysScroll(control);
  for (const person of hall) await person.page.context().close();

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
