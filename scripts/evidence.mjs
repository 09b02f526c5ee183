// What the evidence scripts share: a scenario run by the binary, and the file they write.

import { spawn } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  writeFileSync,
} from "node:fs";
import { cpus, loadavg, release, tmpdir } from "node:os";
import { join } from "node:path";

export const BINARY = process.env.MOIM_BIN ?? "target/release/moim";

/**
 * Runs a scenario; its exit code, its summary (null where there is none) and its samples. `wrap`: a command
 * that runs the lab, `flags`: more of the lab's own.
 */
export async function load(scenario, { wrap = [], flags = [] } = {}) {
  const dir = mkdtempSync(join(tmpdir(), "moim-evidence-"));
  const file = join(dir, "scenario.yaml");
  writeFileSync(file, scenario);
  const line = [...wrap, BINARY, "load", file, "--runs", join(dir, "runs")];
  const child = spawn(line[0], [...line.slice(1), ...flags], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const code = await new Promise((done) => child.once("exit", done));
  let summary = null;
  let samples = [];
  try {
    const [run] = readdirSync(join(dir, "runs")).sort();
    const read = (name) => readFileSync(join(dir, "runs", run, name), "utf8");
    summary = JSON.parse(read("summary.json"));
    const lines = read("samples.jsonl").split("\n").filter(Boolean);
    samples = lines.map((line) => JSON.parse(line));
  } catch (error) {
    console.error(`no summary: ${error.message}`);
  }
  return { code, summary, samples };
}

/**
 * Runs a scenario, and once more where the generator was at its limit (exit 110): such a run
 * proves nothing. Says how many runs that took.
 */
export async function healthy(scenario, options) {
  const first = await load(scenario, options);
  if (first.code !== 110) return { ...first, tries: 1 };
  const reasons = first.summary?.generator?.reasons?.join("; ") ?? "no summary";
  console.error(`the generator was not healthy (${reasons}): once more`);
  return { ...(await load(scenario, options)), tries: 2 };
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

/** The machine, with its load before the run. */
export function machine(before) {
  return {
    cpu: cpus()[0].model,
    cores: cpus().length,
    kernel: release(),
    load_average: before,
  };
}

/**
 * Writes target/evidence/NAME.json and ends: 0 only where every row holds. `more`: what belongs into the file
 * besides.
 */
export function finish(name, rows, before, more = {}) {
  const ok = rows.length > 0 && rows.every((row) => row.holds);
  mkdirSync("target/evidence", { recursive: true });
  writeFileSync(
    `target/evidence/${name}.json`,
    `${JSON.stringify({ machine: machine(before), seed: more.seed ?? 1, rows, ok, ...more }, null, 2)}\n`,
  );
  for (const row of rows) console.log(row);
  console.log(ok ? "holds" : "does NOT hold");
  process.exit(ok ? 0 : 1);
}

export { loadavg };
