// Does `moim compare` find a server that is a tenth dearer, and nothing between two sides of one build?
//
// A comparison: five runs a side of the same scenario, in turn, each with a server of its own. `dearer`: ten comparisons
// whose second side works longer on each packet (a fault), by a tenth of what the first side's server needs for one:
// each must end with 112 and name the server's CPU. `same`: twenty comparisons of a build with itself; at least nineteen must find no difference.
//
// `evidence-compare.sh dearer same` runs those parts alone. About 90 minutes; it goes on where it was cut. Writes
// target/evidence/compare.json.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BINARY, finish, rowMaker, stayAwake } from "./evidence.mjs";

const REPEATS = 5;
const DEARER = { comparisons: 10, needed: 10 };
const SAME = { comparisons: 20, needed: 19 };
const MARGIN_PCT = 5;

const scenario = (fault) => `name: compare
serve: { cpus: [0], floor: true${fault ? `, fault: hot_thread=${fault}ns` : ""} }
duration: 12s
rooms: [{ count: 12, people: { bot: 8 } }]
media: { audio: speech, video: 360p }
join: { per_second: 80 }
`;

/** One more run of a side; its summary. */
function run(dir, side, fault) {
  const file = join(dir, `${side}.yaml`);
  writeFileSync(file, scenario(fault));
  const into = join(dir, `${side}-one`);
  // A server that is busy on a CPU that does not sleep: its cost a packet then differs by 2 % from run to run, otherwise by 4 %.
  const sleepAgain = stayAwake(60);
  const { status } = spawnSync(BINARY, ["load", file, "--runs", into], { stdio: "ignore" });
  sleepAgain();
  const [record] = readdirSync(into);
  mkdirSync(join(dir, side), { recursive: true });
  const at = join(dir, side, String(readdirSync(join(dir, side)).length));
  renameSync(join(into, record), at);
  rmSync(into, { recursive: true });
  if (status !== 0) throw new Error(`a run ended with ${status}: ${at}`);
  const machine = readFileSync(join(at, "machine.jsonl"), "utf8").split("\n").filter(Boolean);
  return machine.map((line) => JSON.parse(line).server);
}

/** CPU time of the server for a packet that came in, in ns. */
function nsPerPacketIn(windows) {
  const half = windows.slice(windows.length / 2);
  const cores = half.reduce((sum, { cpu_cores }) => sum + cpu_cores, 0);
  const packets = half.reduce((sum, { packets_in_per_s }) => sum + packets_in_per_s, 0);
  return (cores / packets) * 1e9;
}

function compare(dearer) {
  const dir = mkdtempSync(join(tmpdir(), "moim-compare-"));
  try {
    const faults = [];
    for (let nth = 0; nth < REPEATS; nth++) {
      const first = run(dir, "first", 0);
      faults.push(dearer ? Math.round(0.1 * nsPerPacketIn(first)) : 0);
      run(dir, "second", faults.at(-1));
    }
    const sides = [join(dir, "first"), join(dir, "second")];
    const out = join(dir, "out");
    const line = ["compare", ...sides, "--margin", MARGIN_PCT, "--runs", out].map(String);
    const { status } = spawnSync(BINARY, line, { stdio: ["ignore", "ignore", "inherit"] });
    const [record] = readdirSync(out);
    const summary = JSON.parse(readFileSync(join(out, record, "summary.json"), "utf8"));
    const cpu = summary.study.find(({ name }) => name.startsWith("server CPU"));
    const found = summary.study.filter(({ cells }) => ["worse", "better"].includes(cells.is?.word));
    return {
      exit_code: status,
      fault_ns: faults,
      change_pct: cpu.cells.change_pct.value,
      between: cpu.cells.between.word,
      cpu: cpu.cells.is.word,
      found: found.map(({ name }) => name),
      holds: true,
    };
  } finally {
    rmSync(dir, { recursive: true });
  }
}

const rows = [];
const row = rowMaker("compare", rows);
for (let nth = 1; nth <= DEARER.comparisons; nth++) await row("dearer", `dearer ${nth}`, () => compare(true));
for (let nth = 1; nth <= SAME.comparisons; nth++) await row("same", `same ${nth}`, () => compare(false));

const of = (kind) => rows.filter(({ what }) => what.startsWith(kind));
const found = of("dearer").filter((one) => one.exit_code === 112 && one.cpu === "worse").length;
const quiet = of("same").filter((one) => one.exit_code === 0 && one.found.length === 0).length;
console.log(`${found} of ${of("dearer").length} dearer servers found, ${quiet} of ${of("same").length} comparisons of one build found nothing`);
const enough = (kind, count, { comparisons, needed }) =>
  of(kind).length === 0 || (of(kind).length === comparisons && count >= needed);
const ok = rows.length > 0 && enough("dearer", found, DEARER) && enough("same", quiet, SAME);
finish("compare", rows, { told: true, ok });
