// The four studies, small and short: each ends with exit code 0 and a complete report that
// Chromium shows without an error.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { browser, scratch } from "./world.mjs";

const ROOT = new URL("../..", import.meta.url).pathname;
const BINARY = process.env.MOIM_BIN ?? join(ROOT, "target/release/moim");

/** What every study must have at least, by table: the study's own rows. */
const STUDIES = {
  sfu: {
    sessions: 4,
    verdicts: 10,
    change: 4,
    repeats: 4,
    canaries: 4,
    signaling: 4,
    tcp: 6,
    later: 6,
    others: 2,
  },
  sockets: { throughput: 1, knee: 2, limits: 2, concurrency: 3 },
  "mesh-vs-sfu": { cpu: 7, quality: 21, audience_cpu: 4, audience: 8 },
  "audio-room": {
    cost: 3,
    sizing: 2,
    trials: 4,
    capacity: 1,
    late: 2,
    mos: 2,
    bottom: 1,
    fields: 14,
    churn: 2,
    others: 2,
  },
};

/** What else a study is told. */
const ARGUMENTS = {
  sockets: ["--beside", `socketcluster=${join(ROOT, "scripts/socketcluster.mjs")}`],
  sfu: ["--beside", "janus"],
  "audio-room": ["--beside", "janus"],
};

async function study(t, name) {
  const out = scratch();
  const begin = Date.now();
  const child = spawn(BINARY, ["study", name, "--quick", "--out", out, ...(ARGUMENTS[name] ?? [])], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  child.stdout.on("data", (data) => (text += data));
  child.stderr.on("data", (data) => (text += data));
  const code = await new Promise((done) => child.once("exit", done));
  const [dir] = readdirSync(out);
  assert.ok(dir, text);
  const path = (file) => join(out, dir, file);
  const summary = JSON.parse(readFileSync(path("summary.json"), "utf8"));
  return { code, text, summary, report: path("report.html"), seconds: (Date.now() - begin) / 1000, path };
}

/** Study B: clients come one after the other, and both servers were measured at the first rate at least. */
function socketsHold({ study, study_about }) {
  for (const server of ["moim", "SocketCluster"]) {
    const row = study.find(({ table, name }) => table === "knee" && name.startsWith(server));
    assert.ok(row.cells.answered_per_s.value > 1000, JSON.stringify(row));
    assert.ok(row.cells.server_cpu_cores.value > 0, `${server}'s own process is watched`);
  }
  const [all, ...servers] = study.filter(({ table }) => table === "concurrency");
  assert.equal(all.cells.servers.value, servers.length, "a row a server");
  for (const key of ["live", "by_hand_answered"]) {
    const sum = servers.reduce((sum, { cells }) => sum + cells[key].value, 0);
    assert.ok(sum > 0 && sum === all.cells[key].value, `${key}: ${sum}`);
  }
  const [ramp] = study.filter(({ table }) => table === "throughput");
  assert.match(ramp.cells.load_average.reason, /covers a minute/);
  for (const title of ["One more client a second", "Answered over offered", "p99 latency over rate"]) {
    const plot = study_about.plots.find((plot) => plot.title.startsWith(title));
    assert.ok(plot.x.length > 0 && plot.lines.length === 2, title);
    for (const { label, values } of plot.lines)
      assert.ok(
        values.some((v) => v !== null),
        `${title}: ${label}`,
      );
  }
}

/** Opens a report, and waits until it is drawn: its record is unpacked first. */
async function openReport(page, path) {
  await page.goto(pathToFileURL(path).href);
  await page.locator("#report h1").first().waitFor();
}

/** A session's own report: its sockets stand where people stand in others. */
async function socketsAreShown(page, path, { study_about }) {
  const ramp = study_about.sessions.find((session) => session.endsWith("-ramp"));
  await openReport(page, path(join(ramp, "report.html")));
  const heads = await page.locator("h2, h3").allTextContents();
  for (const head of ["Sockets", "Sockets over time", "Machine over time"])
    assert.ok(heads.includes(head), `${head} in ${heads}`);
  assert.ok(!heads.includes("People"));
  for (const text of ["Sockets live", "Messages", "Message latency", "Connections"])
    assert.ok((await page.getByText(text, { exact: false }).count()) > 0, text);
}

/** Browsers met by each way: what they need, how late their pictures were, and what limited them, was measured. */
function assertMeeting(rows) {
  const value = (table, name, key) =>
    rows.find((row) => row.table === table && row.name === name).cells[key].value;
  for (const way of ["mesh", "sfu", "mcu"]) {
    assert.ok(value("cpu", "2 people", `client_cpu_${way}_pct`) > 0, `what clients need: ${way}`);
    const of = (key) => value("quality", `2 people, ${way}`, key);
    assert.ok(of("camera_to_screen_ms") > 0 && of("camera_to_screen_ms") < 1000, `delay: ${way}`);
    assert.ok(of("camera_to_screen_p95_ms") >= of("camera_to_screen_ms"), `delay, 95 %: ${way}`);
    for (const key of ["freeze_pct", "cpu_limited_pct", "bandwidth_limited_pct"])
      assert.ok(of(key) >= 0 && of(key) <= 100, `${key}: ${way}`);
  }
  assert.ok(value("audience", "4 people, sfu", "late_ms") >= 0, "of native bots it is estimated");
}

/** Study D: a mixer that is late fails the room, whatever MOS-LQ says; the room was left and entered again. */
function roomHolds({ study, study_about }) {
  const { cells } = study.find(({ table, name }) => table === "late" && name.startsWith("a mixer"));
  assert.equal(cells.verdict.word, "not healthy");
  assert.ok(cells.mos_lq_median.value > 4, "MOS-LQ knows nothing of delay");
  assert.ok(cells.mouth_to_ear_ms.value > 900, JSON.stringify(cells));
  const people = study_about.plots.find(({ title }) => title.startsWith("People in the room"));
  const counted = people.lines[0].values;
  const most = Math.max(...counted);
  const at = counted.indexOf(most);
  const least = Math.min(...counted.slice(at));
  const again = counted.slice(counted.indexOf(least, at)).some((count) => count > least);
  assert.ok(least < most && again, `out, in, out again: ${counted}`);
}

/** The same room at moim and at Janus: both were measured, and what is heard of a mix was timed (where sound is forwarded one bot in ten does that). */
function besideHolds({ study }, name) {
  const timed = name === "sfu" ? "first_frame_ms" : "mouth_to_ear_ms";
  for (const server of ["moim", "Janus"]) {
    const { cells } = study.find(
      ({ table, name }) => table === "others" && name.startsWith(`4 people, ${server}`),
    );
    assert.equal(cells.people.value, 4, `${server}: ${JSON.stringify(cells)}`);
    for (const key of ["us_per_packet_came", "rss_mib", timed])
      assert.ok(cells[key].value > 0, `${server}, ${key}: ${JSON.stringify(cells[key])}`);
  }
}

for (const [name, wanted] of Object.entries(STUDIES))
  test(`study ${name} --quick`, async (t) => {
    const { code, text, summary, report, seconds, path } = await study(t, name);
    assert.equal(code, 0, text);
    assert.ok(summary.study.length > 0, "rows");
    for (const [table, count] of Object.entries(wanted)) {
      const rows = summary.study.filter((row) => row.table === table);
      assert.ok(rows.length >= count, `${table} has ${rows.length} rows of ${count}`);
    }
    let numbers = 0;
    const words = new Set();
    for (const row of summary.study) {
      const table = summary.study_about.tables.find(({ id }) => id === row.table);
      for (const { key } of table.columns) {
        const { value, word, reason } = row.cells[key] ?? {};
        assert.ok(typeof value === "number" || word || reason, `${row.table}, ${row.name}: ${key}`);
        numbers += typeof value === "number";
        if (word) words.add(word);
      }
    }
    assert.ok(numbers > 0, "something was measured");
    if (name === "sockets") socketsHold(summary);
    if (name === "audio-room") roomHolds(summary);
    if (wanted.others) besideHolds(summary, name);
    if (name === "mesh-vs-sfu") assertMeeting(summary.study);
    for (const session of summary.study_about.sessions) readFileSync(path(join(session, "report.html")));
    assert.ok(readFileSync(path("study.md"), "utf8").includes(summary.study_about.title));

    const launched = await browser(t);
    const page = await launched.newPage({ viewport: { width: 360, height: 800 } });
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
    await openReport(page, report);
    const tables = await page.locator("table.study").count();
    assert.equal(tables, summary.study_about.tables.length, "every table is shown");
    const shown = await page.locator("table.study tr.reference").count();
    assert.equal(shown, summary.study.filter((row) => Object.keys(row.reference).length > 0).length);
    for (const word of words) {
      const cells = await page.locator("table.study td", { hasText: word }).count();
      assert.ok(cells > 0, `"${word}" is shown`);
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 360, `the page is ${wide} px wide at 360`);
    if (name === "sockets") await socketsAreShown(page, path, summary);
    assert.deepEqual(errors, []);
    console.log(`# study ${name} --quick: ${seconds.toFixed(0)} s, ${numbers} figures`);
  });
