// How runs end, each with real bots: by Ctrl-C, by a key in the terminal view, by a kill of the
// lab, by a kill of the server. Each function gives a row that says what was seen and whether it
// `holds`. scripts/evidence-ends.mjs runs all of them, web/e2e/ends.test.mjs some.

import { execFileSync, spawn } from "node:child_process";
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { BINARY, serve, sleep, until } from "./evidence.mjs";

/** Everyone who lives, zombies left out: `{ pid, parent, command }`. */
function processes() {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
        const [state, parent] = stat
          .slice(stat.lastIndexOf(")") + 2)
          .split(" ");
        if (state === "Z" || state === "X") return [];
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
        return [
          {
            pid: Number(pid),
            parent: Number(parent),
            command: command.replaceAll("\0", " "),
          },
        ];
      } catch {
        return [];
      }
    });
}

/** All that descend from a process. */
function family(root) {
  const all = processes();
  const found = [];
  const open = [root];
  while (open.length > 0) {
    const parent = open.pop();
    for (const one of all.filter((one) => one.parent === parent)) {
      found.push(one);
      open.push(one.pid);
    }
  }
  return found;
}

/** Of some processes those that still are the same and alive. */
const alive = (some) =>
  processes().filter(({ pid, command }) =>
    some.some((one) => one.pid === pid && one.command === command),
  );

/** Waits until all of them are gone; what is left after a while. */
async function gone(some) {
  for (let tries = 0; tries < 100 && alive(some).length > 0; tries++)
    await sleep(100);
  return alive(some).map(({ command }) => command);
}

/** A scenario of three bots with video. */
const bots = (target, { seconds = 120, chromium = 0 } = {}) => `name: ends
${target}
duration: ${seconds}s
rooms: [{ count: 1, audio: sfu, video: sfu, people: { bot: 3, chromium: ${chromium} } }]
media: { audio: speech, video: 360p }
thresholds: { loss_pct: ["user_p95 < 50"] }
`;

/** What a run is given, and where its record goes. */
function stage(scenario) {
  const dir = mkdtempSync(join(tmpdir(), "moim-ends-"));
  const file = join(dir, "scenario.yaml");
  writeFileSync(file, scenario);
  const runs = join(dir, "runs");
  const record = () => join(runs, readdirSync(runs)[0]);
  const lines = (name) => {
    try {
      return readFileSync(join(record(), name), "utf8").split("\n").length - 1;
    } catch {
      return 0;
    }
  };
  return { dir, runs, record, lines, args: ["load", file, "--runs", runs] };
}

/** Starts the lab with plain lines. */
function lab(set) {
  const child = spawn(BINARY, set.args, { stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  child.stdout.on("data", (data) => (text += data));
  child.stderr.on("data", (data) => (text += data));
  const ended = new Promise((done) =>
    child.once("close", (code, signal) => done(code ?? signal)),
  );
  return { child, ended, text: () => text };
}

/** Two samples of each bot: the run is in the middle. */
const underWay = (set) =>
  until("samples", () => set.lines("samples.jsonl") >= 6);

/** What the record says after its end. */
function outcome(set) {
  const summary = JSON.parse(
    readFileSync(join(set.record(), "summary.json"), "utf8"),
  );
  const report = readFileSync(join(set.record(), "report.html"), "utf8");
  return {
    exit_code_in_summary: summary.exit_code,
    verdict: summary.verdict,
    duration_s: summary.duration_s,
    people: summary.people,
    samples: set.lines("samples.jsonl"),
    measured: summary.metrics.loss_pct !== null,
    in_report:
      report.includes('"summary"') && !report.includes('"__MOIM_RECORD__"'),
    failures: summary.failures,
  };
}

const full = (row) =>
  row.people === 3 && row.samples >= 6 && row.measured && row.in_report;

/** SIGINT, as Ctrl-C gives it where there is no view. */
export async function interruptedPlain() {
  const set = stage(bots("serve: {}"));
  const run = lab(set);
  await underWay(set);
  const others = family(run.child.pid);
  run.child.kill("SIGINT");
  const row = { end: "SIGINT, plain lines", exit_code: await run.ended };
  Object.assign(row, outcome(set), { left_behind: await gone(others) });
  row.had_server = others.some(({ command }) => command.includes(" serve "));
  row.table = run.text().includes("verdict: ");
  row.holds =
    row.exit_code === 105 &&
    row.exit_code_in_summary === 105 &&
    row.had_server &&
    row.table &&
    full(row) &&
    row.left_behind.length === 0;
  return row;
}

/**
 * A key in the view, on a pseudo terminal of `script`'s: the modes of the terminal are the same
 * before and after, and the table comes on the normal screen.
 */
export async function keyInView(name, key) {
  const set = stage(bots("serve: {}"));
  const [before, after, code] = ["before", "after", "code"].map((file) =>
    join(set.dir, file),
  );
  const command = [BINARY, ...set.args].map((word) => `'${word}'`).join(" ");
  const inside = `stty rows 40 cols 120; stty -a >${before}; ${command}; echo $? >${code}; stty -a >${after}`;
  const terminal = spawn("script", ["-qec", inside, "/dev/null"], {
    stdio: ["pipe", "pipe", "ignore"],
    env: { ...process.env, TERM: "xterm-256color" },
  });
  let screen = "";
  terminal.stdout.on("data", (data) => (screen += data));
  const ended = new Promise((done) => terminal.once("close", done));
  await underWay(set);
  const others = family(terminal.pid);
  terminal.stdin.write(key);
  await ended;
  const read = (file) => readFileSync(file, "utf8");
  const [entered, left] = ["\x1b[?1049h", "\x1b[?1049l"].map((mark) =>
    screen.lastIndexOf(mark),
  );
  const row = {
    end: `${name} in the terminal view`,
    exit_code: Number(read(code)),
    modes_restored: read(before) === read(after),
    screen_restored: entered >= 0 && left > entered,
    table: screen.lastIndexOf("verdict: ") > left,
    showed_people: screen.slice(entered, left).includes("bot-3"),
  };
  Object.assign(row, outcome(set), { left_behind: await gone(others) });
  row.holds =
    row.exit_code === 105 &&
    row.exit_code_in_summary === 105 &&
    row.modes_restored &&
    row.screen_restored &&
    row.table &&
    row.showed_people &&
    full(row) &&
    row.left_behind.length === 0;
  return row;
}

/** kill -9 of the lab: its server, and its browser where it has one, do not stay behind. */
export async function labKilled({ chromium = 0 } = {}) {
  const set = stage(bots("serve: {}", { chromium }));
  const run = lab(set);
  await until("samples", () => set.lines("samples.jsonl") >= 6 + 2 * chromium);
  const others = family(run.child.pid);
  run.child.kill("SIGKILL");
  const row = {
    end: `SIGKILL of the lab${chromium ? ", with a browser" : ""}`,
    exit_code: await run.ended,
  };
  row.processes = others.length;
  row.left_behind = await gone(others);
  row.had_summary = existsSync(join(set.record(), "summary.json"));
  row.samples = set.lines("samples.jsonl");
  row.said = execFileSync(BINARY, ["report", set.record()], {
    encoding: "utf8",
  }).split("\n")[0];
  const page = readFileSync(join(set.record(), "report.html"), "utf8");
  const from = page.indexOf('{"meta"');
  const record = JSON.parse(page.slice(from, page.indexOf("</script>", from)));
  const packed = JSON.parse(gunzipSync(Buffer.from(record.packed, "base64")));
  row.samples_in_report = packed.samples.rows.t_ms.length;
  row.verdict = record.summary.verdict;
  row.failures = record.summary.failures;
  const named = (part) => others.some(({ command }) => command.includes(part));
  row.holds =
    row.exit_code === "SIGKILL" &&
    named(" serve ") &&
    (chromium === 0 || named("--type=renderer")) &&
    row.left_behind.length === 0 &&
    !row.had_summary &&
    row.said.includes("killed") &&
    row.failures[0].includes("killed") &&
    row.verdict === "inconclusive" &&
    row.samples_in_report >= 6 &&
    // The last line may be cut off.
    Math.abs(row.samples - row.samples_in_report) <= 1;
  return row;
}

/** kill -9 of a server that the lab has started: the run ends at once. */
export async function ownServerKilled() {
  const set = stage(bots("serve: {}"));
  const run = lab(set);
  await underWay(set);
  const server = family(run.child.pid).find(({ command }) =>
    command.includes(" serve "),
  );
  process.kill(server.pid, "SIGKILL");
  const row = {
    end: "SIGKILL of the lab's own server",
    exit_code: await run.ended,
  };
  Object.assign(row, outcome(set));
  row.holds =
    row.exit_code === 99 &&
    row.verdict === "fail" &&
    row.duration_s < 100 &&
    full(row) &&
    row.failures.some((text) =>
      text.includes("the server ended in the middle"),
    );
  return row;
}

const freePort = () =>
  new Promise((done) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });

/** kill -9 of a server that ran already: the run goes on to its end, and people have faults. */
export async function targetKilled({ seconds = 25 } = {}) {
  const [http, media] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${http}`;
  const set = stage(
    bots(`target: { adapter: moim, url: "${url}" }`, { seconds }),
  );
  const config = join(set.dir, "moim.yaml");
  writeFileSync(
    config,
    `http: { bind: "127.0.0.1:${http}" }\nadmin: { bind: "127.0.0.1:${http}" }\nmedia: { bind: 127.0.0.1, port: ${media} }\n`,
  );
  const server = await serve({ flags: ["--config", config], url });
  try {
    const run = lab(set);
    await underWay(set);
    await server.stop("SIGKILL");
    const row = {
      end: "SIGKILL of a server that ran already",
      exit_code: await run.ended,
      planned_s: seconds,
    };
    Object.assign(row, outcome(set));
    row.holds =
      row.exit_code === 99 &&
      row.verdict === "fail" &&
      row.duration_s >= seconds - 1 &&
      full(row) &&
      ["bot-1", "bot-2", "bot-3"].every((name) =>
        row.failures.some((text) => text.includes(name)),
      );
    return row;
  } finally {
    await server.stop("SIGKILL");
  }
}
