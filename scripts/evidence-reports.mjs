// Does a report open at once and can it be used, whoever many were there?
//
// Ten people who really were there, synthetic records of 300 people for 70 s and of 5000 for an hour (scripts/synthetic.mjs), and
// the four studies (`--quick`).
// Each page: its size, how long it takes to open and at how many frames a second it scrolls in Chromium; what axe finds; no
// sideways scrolling at 360 px; no error in the page. Pictures of each (light, dark, narrow) lie in target/evidence/reports/.
//
// `evidence-reports.sh 10 300 studies` makes those alone; further arguments that are directories are records whose reports are
// looked at too. About 10 minutes and 4 GB of disk for a while. Writes target/evidence/reports.json.

import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, join, resolve } from "node:path";
import { tmpdir } from "node:os";
import { browser, scroll } from "../web/e2e/world.mjs";
import { BINARY, finish, isWanted, wanted } from "./evidence.mjs";
import { recordIn, synthetic } from "./synthetic.mjs";

const SIZES = [
  { people: 300, seconds: 70 },
  { people: 5000, seconds: 3600 },
];
const STUDIES = ["sfu", "sockets", "mesh-vs-sfu", "audio-room"];
const LARGEST_MIB = 5;
const OPENED_MS = 2000;
const SMOOTH_FPS = 30;
const PICTURES = "target/evidence/reports";
const AXE = new URL("../web/node_modules/axe-core/axe.min.js", import.meta.url)
  .pathname;

const REAL = `name: ten
serve: {}
duration: 30s
rooms: [{ people: { bot: 10 } }]
media: { audio: speech, video: 360p }
networks: [{ name: slow, share_pct: 10, loss_pct: 5 }]
events: [{ at: 15s, bot: 2, do: stop_video }]
thresholds: default
`;

async function look(launched, page_file, name) {
  const context = await launched.newContext({
    viewport: { width: 1280, height: 900 },
  });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(`file://${resolve(page_file)}`, { waitUntil: "commit" });
  await page.waitForFunction(
    () => document.querySelectorAll(".u-wrap, .verdict").length > 0,
  );
  // Opened: drawn, and a frame later.
  const opened_ms = await page.evaluate(
    () =>
      new Promise((done) =>
        requestAnimationFrame(() => setTimeout(() => done(performance.now()))),
      ),
  );
  const smooth = await scroll({ page }, "html", 4);
  const shot = (kind) =>
    page.screenshot({
      path: join(PICTURES, `${name}-${kind}.png`),
      fullPage: true,
    });
  await page.evaluate(() => scrollTo(0, 0));
  await shot("light");
  await page.addScriptTag({ path: AXE });
  const faults = async () => {
    const { violations } = await page.evaluate(() =>
      axe.run(document, { resultTypes: ["violations"] }),
    );
    const serious = violations.filter(
      ({ impact }) => impact === "serious" || impact === "critical",
    );
    return serious.map(
      ({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 90)}`,
    );
  };
  const found = await faults();
  await page.emulateMedia({ colorScheme: "dark" });
  await shot("dark");
  found.push(...(await faults()).map((fault) => `dark: ${fault}`));
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 360, height: 740 });
  await shot("narrow");
  const sideways = await page.evaluate(
    () => document.documentElement.scrollWidth > innerWidth,
  );
  await context.close();
  const mib = statSync(page_file).size / 2 ** 20;
  return {
    mib: Number(mib.toFixed(2)),
    opened_ms: Math.round(opened_ms),
    fps: Math.round(smooth.fps),
    worst_fps: smooth.worst_fps,
    faults: found,
    sideways,
    errors,
    holds:
      mib <= LARGEST_MIB &&
      opened_ms < OPENED_MS &&
      smooth.fps >= SMOOTH_FPS &&
      found.length === 0 &&
      errors.length === 0 &&
      !sideways,
  };
}

const dir = mkdtempSync(join(tmpdir(), "moim-reports-"));
const ends = [() => rmSync(dir, { recursive: true })];
const rows = [];
try {
  mkdirSync(PICTURES, { recursive: true });
  const file = join(dir, "ten.yaml");
  writeFileSync(file, REAL);
  spawnSync(BINARY, ["load", file, "--runs", join(dir, "ten")], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const ten = recordIn(join(dir, "ten"));
  const records = isWanted("10") ? [["10", ten]] : [];
  for (const size of SIZES.filter(({ people }) => isWanted(String(people)))) {
    const into = join(dir, String(size.people));
    synthetic(ten, into, size);
    records.push([String(size.people), into]);
  }
  for (const study of STUDIES.filter(() => isWanted("studies"))) {
    const into = join(dir, study);
    const line = ["study", study, "--quick", "--out", into];
    spawnSync(BINARY, line, { stdio: ["ignore", "ignore", "inherit"] });
    records.push([study, recordIn(into)]);
  }
  for (const given of wanted.filter((one) =>
    existsSync(join(one, "meta.json")),
  ))
    records.push([basename(given), given]);
  const launched = await browser({ after: (end) => ends.push(end) });
  for (const [name, record] of records) {
    const began = Date.now();
    execFileSync(BINARY, ["report", record], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    const rendered_s = (Date.now() - began) / 1000;
    const row = {
      what: name,
      rendered_s,
      ...(await look(launched, join(record, "report.html"), name)),
    };
    console.log(row);
    rows.push(row);
  }
} finally {
  for (const end of ends.reverse()) await end();
}
finish("reports", rows, { told: true });
