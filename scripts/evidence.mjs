// What the evidence and bench scripts share: a server, a scenario run by the binary, and the file they write.

import { spawn } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { cpus, loadavg, release, tmpdir } from "node:os";
import { join } from "node:path";

export const BINARY = process.env.MOIM_BIN ?? "target/release/moim";
/** What was asked for by name; nothing: everything. */
export const wanted = process.argv.slice(2);
export const isWanted = (...names) =>
  wanted.length === 0 || names.some((name) => wanted.includes(name));
/** The load of the machine before anything is started. */
export const before = loadavg();

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Polls until `look` gives something. */
export async function until(what, look, patience_ms = 60_000) {
  for (const end = Date.now() + patience_ms; Date.now() < end;) {
    const found = await look();
    if (found) return found;
    await sleep(50);
  }
  throw new Error(`waited for ${what}`);
}

/** Whether somebody listens at a port. */
export const listens = (port, host = "127.0.0.1") =>
  new Promise((done) => {
    const socket = connect(port, host);
    socket.once("connect", () => done(true)).once("error", () => done(false));
    socket.once("close", () => socket.destroy());
    setTimeout(() => socket.destroy(), 200);
  });

/** A server of its own, once it answers. `wrap`: a command that runs it, `flags`: what `serve` is told. */
export async function serve({
  wrap = [],
  flags = [],
  url = "http://127.0.0.1:7880",
} = {}) {
  const line = [...wrap, BINARY, "serve", ...flags];
  const child = spawn(line[0], line.slice(1), { stdio: "ignore" });
  const ended = new Promise((done) => child.once("exit", done));
  const stop = async (signal = "SIGINT") => {
    child.kill(signal);
    await ended;
  };
  try {
    await until(`${line.join(" ")} at ${url}`, async () => {
      if (child.exitCode !== null)
        throw new Error(`${line.join(" ")} ended with ${child.exitCode}`);
      return (await fetch(`${url}/healthz`).catch(() => null))?.ok;
    });
  } catch (error) {
    await stop("SIGKILL");
    throw error;
  }
  return { url, pid: child.pid, stop };
}

/** The newest build of a bench. */
export function bench(name) {
  const deps = join(process.env.CARGO_TARGET_DIR ?? "target", "release/deps");
  const builds = readdirSync(deps)
    .filter((file) => new RegExp(`^${name}-[0-9a-f]+$`).test(file))
    .map((file) => join(deps, file));
  return builds.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0];
}

/** A process on a CPU, and the line of JSON that it prints. */
export async function pinned(cpu, ...command) {
  const line = ["-c", cpu, ...command].map(String);
  const child = spawn("taskset", line, {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (data) => (text += data));
  const code = await new Promise((done) => child.once("exit", done));
  if (code !== 0) throw new Error(`${line.join(" ")} ended with ${code}`);
  return JSON.parse(text);
}

/**
 * Runs a scenario; its exit code, its summary (null if there is none), its samples and what was seen of the machine.
 * `wrap`: a command that runs the lab, `flags`: more of the lab's own, `binary`: another build of lab and server.
 */
export async function load(
  scenario,
  { wrap = [], flags = [], binary = BINARY } = {},
) {
  const dir = mkdtempSync(join(tmpdir(), "moim-evidence-"));
  const file = join(dir, "scenario.yaml");
  writeFileSync(file, scenario);
  const line = [...wrap, binary, "load", file, "--runs", join(dir, "runs")];
  const child = spawn(line[0], [...line.slice(1), ...flags], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const code = await new Promise((done) => child.once("exit", done));
  let summary = null;
  let samples = [];
  let machine = [];
  try {
    const [run] = readdirSync(join(dir, "runs")).sort();
    const read = (name) => readFileSync(join(dir, "runs", run, name), "utf8");
    summary = JSON.parse(read("summary.json"));
    const lines = (name) => read(name).split("\n").filter(Boolean);
    samples = lines("samples.jsonl").map((line) => JSON.parse(line));
    machine = lines("machine.jsonl").map((line) => JSON.parse(line));
  } catch (error) {
    console.error(`no summary: ${error.message}`);
  }
  return { code, summary, samples, machine };
}

/**
 * Runs a scenario, and again where the generator was at its limit (exit 110), since such a run proves nothing:
 * `most` times in all. Says how many runs that took.
 */
export async function healthy(scenario, { most = 2, ...options } = {}) {
  for (let tries = 1; ; tries++) {
    const run = await load(scenario, options);
    if (run.code !== 110 || tries === most) return { ...run, tries };
    const reasons = run.summary?.generator?.reasons?.join("; ") ?? "no summary";
    console.error(`the generator was not healthy (${reasons}): once more`);
  }
}

/**
 * Keeps the CPUs from sleeping until this process ends: where the machine is a guest, its host may take
 * milliseconds to wake one, and what is measured would be that. The loops are nice to everything else, and
 * rest for a moment each millisecond: without, a 6.18 kernel was seen to starve others of a CPU for a minute.
 */
export function stayAwake(seconds, which = cpus().map((_, cpu) => cpu)) {
  const loop =
    "while (1) { for (1 .. 20000) {} select(undef, undef, undef, 0.0001) }";
  const loops = which.map((cpu) => {
    const line = ["-n", 19, "taskset", "-c", cpu, "timeout", seconds];
    line.push("perl", "-e", loop);
    return spawn("nice", line.map(String), { stdio: "ignore" });
  });
  const end = () => loops.forEach((child) => child.kill());
  process.once("exit", end);
  return () => {
    process.off("exit", end);
    end();
  };
}

for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => process.exit(1));

/**
 * Rows that one binary has made before, by what they are, in target/evidence/NAME.jsonl: long evidence goes
 * on where it was cut. Those of another binary are forgotten.
 */
export function keeper(name) {
  const path = `target/evidence/${name}.jsonl`;
  const binary = statSync(BINARY).mtimeMs;
  const lines = existsSync(path) ? readFileSync(path, "utf8").split("\n") : [];
  const [first, ...rows] = lines
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  const ours = first?.binary === binary ? rows : [];
  mkdirSync("target/evidence", { recursive: true });
  if (ours.length === 0) writeFileSync(path, `${JSON.stringify({ binary })}\n`);
  const keep = (row) => {
    ours.push(row);
    appendFileSync(path, `${JSON.stringify(row)}\n`);
  };
  // Of rows that were made again, the last one.
  return {
    find: (what) => ours.findLast((row) => row.what === what),
    keep,
    all: () => ours.filter((row) => row === ours.findLast(({ what }) => what === row.what)),
  };
}

/**
 * What makes the rows of an evidence and goes on where it was cut: `row(part, what, make)` makes one, unless it is kept
 * from before as one that held, or other parts are wanted.
 */
export function rowMaker(name, rows) {
  const kept = keeper(name);
  return async (part, what, make) => {
    if (!isWanted(part)) return;
    const known = kept.find(what);
    const made = known ?? { what, ...(await make()) };
    if (!known && made.holds) kept.keep(made);
    console.log(known ? `${what}: held before` : made);
    rows.push(made);
  };
}

/** Phases of a run, one after the other from a second on, with when each begins and ends. */
export function inTurn(phases, from_s) {
  let at = from_s;
  return phases.map((phase) => {
    const from_ms = 1000 * at;
    at += phase.seconds;
    return { ...phase, from_ms, until_ms: 1000 * at };
  });
}

/** Of an even count the mean of the two in the middle. */
export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  if (sorted.length === 0) return null;
  const half = sorted.length / 2;
  return (sorted[Math.ceil(half) - 1] + sorted[Math.floor(half)]) / 2;
}

/** By nearest rank. */
export function percentile(numbers, percent) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const rank = Math.ceil((percent / 100) * sorted.length);
  return sorted[Math.max(0, rank - 1)] ?? null;
}

export const sum = (list, pick) =>
  list.reduce((total, one) => total + (pick(one) ?? 0), 0);

/** Numbers from 0 to 1 (mulberry32). */
export function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/**
 * Writes target/DIR/NAME.json and ends: 0 only if every row holds, or if what the caller says is `ok`. `more`: what
 * belongs into the file besides; `told`: whether the rows were printed already; `end`: what to say instead.
 */
export function finish(
  name,
  rows,
  {
    dir = "evidence",
    told = false,
    ok = rows.length > 0 && rows.every((row) => row.holds),
    end = ok ? "holds" : "does NOT hold",
    ...more
  } = {},
) {
  const machine = {
    cpu: cpus()[0].model,
    cores: cpus().length,
    kernel: release(),
    load_average: before,
  };
  mkdirSync(`target/${dir}`, { recursive: true });
  const report = { machine, seed: 1, rows, ok, ...more };
  const text = JSON.stringify(report, null, 2);
  writeFileSync(`target/${dir}/${name}.json`, `${text}\n`);
  if (!told) for (const row of rows) console.log(row);
  console.log(end);
  process.exit(ok ? 0 : 1);
}
