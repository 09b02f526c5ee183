// Does the lab name what broke first? Eight ways to break a server (or the generator), a participant behind a slow
// link, and a crowd that may be too much for the lab's own threads, each three times at a seeded magnitude, and ten
// healthy runs, in seeded order. The lab is given the server's address and nothing else. 28 of 30 must be named
// rightly, no healthy run may be called sick, and the generator's fault may never be called the server's; one quota
// and one link of the server's are to be proven.
//
// Takes about 33 minutes. What is done is kept in target/evidence/bottleneck.jsonl: started again it goes on
// from there, and makes runs again that the machine's host spoiled. `evidence-bottleneck.sh quota link` runs
// those kinds alone, afresh. Needs root: control groups and network namespaces.

import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { KINDS, SLOW, calibrate } from "./breaks.mjs";
import {
  BINARY,
  finish,
  isWanted,
  random,
  sleep,
  stayAwake,
  wanted,
} from "./evidence.mjs";

const SEED = Number(process.env.SEED ?? 1);
/** A run whose generator was not healthy says nothing of the server: it is made so often at most. */
const TRIES = 4;
/** Before it is made again the host may be waited for: until it takes less than this share, and at most so long. */
const CALM = { share: 0.05, look_ms: 3000, most_ms: 90_000 };
/**
 * Nor is a run healthy whose server's CPUs the machine's host took for so large a share of a window, whatever the
 * lab said of it: a server at 70 % of its CPU is then past its limit, and the lab is right to say so.
 */
const STOLEN = 0.2;
const KEPT = "target/evidence/bottleneck.jsonl";
/** What the lab must say of each kind. */
const NAMES = {
  quota: "cpu_quota",
  thread: "thread",
  cpu: "cpu",
  link: "network",
  buffer: "socket_buffer",
  fds: "fds",
  signaling: "signaling",
  generator: "generator",
  crowd: "generator",
  downlink: "link",
  healthy: "none",
};

function plan() {
  const draw = random(SEED);
  const all = [];
  for (const kind of Object.keys(NAMES))
    for (let nth = 0; nth < (kind === "healthy" ? 10 : 3); nth++)
      all.push({ kind, nth, x: draw(), order: draw() });
  all.sort((a, b) => a.order - b.order);
  return all.filter(
    ({ kind, nth }) =>
      isWanted(kind) &&
      (process.env.NTH === undefined || nth === Number(process.env.NTH)),
  );
}

/** The largest share of a window that the host took of the server's CPUs. */
const stolen = ({ machine }) =>
  Math.max(0, ...machine.map(({ server }) => server?.kernel?.cpus_steal ?? 0));

/** Why a run says nothing of what it was made for; null where it does. */
function spoiled(kind, run) {
  const { generator, bottleneck } = run.summary ?? {};
  const own = run.code === 110 || bottleneck?.first === "generator";
  if (own && NAMES[kind] !== "generator")
    return `the generator was at its limit: ${generator?.reasons.join("; ") || bottleneck?.evidence[1]}`;
  if (kind === "healthy" && stolen(run) >= STOLEN)
    return `the host took ${Math.round(100 * stolen(run))} % of the server's CPUs`;
  const second = "the generator of the second run was its limit";
  const proof = bottleneck?.evidence?.find((text) => text.includes(second));
  return proof ?? null;
}

/** The share of all CPUs that the host takes, of what they want: they are kept busy meanwhile. */
async function taken() {
  const look = () => {
    const [, ...ticks] = readFileSync("/proc/stat", "utf8")
      .split("\n", 1)[0]
      .split(/\s+/);
    const [user, nice, system, , , irq, softirq, steal] = ticks.map(Number);
    return { steal, all: user + nice + system + irq + softirq + steal };
  };
  const rest = stayAwake(CALM.look_ms / 1000 + 1);
  const then = look();
  await sleep(CALM.look_ms);
  const now = look();
  rest();
  return (now.steal - then.steal) / Math.max(1, now.all - then.all);
}

async function calm() {
  const begin = Date.now();
  while (Date.now() - begin < CALM.most_ms)
    if ((await taken()) < CALM.share) return;
}

/** A run; again where the machine's host spoiled it. */
async function measure({ kind, nth, x }, known) {
  const proves = nth === 0 && (kind === "quota" || kind === "link");
  const options = { nth, flags: proves ? ["--prove"] : [] };
  let run = await KINDS[kind](x, known, options);
  let tries = 1;
  for (; tries < TRIES && spoiled(kind, run); tries++) {
    console.error(`${spoiled(kind, run)}; once more`);
    await calm();
    run = await KINDS[kind](x, known, options);
  }
  const found = run.summary?.bottleneck ?? {};
  const named = found.first ?? "nothing";
  return {
    kind,
    nth,
    what: run.what,
    exit_code: run.code,
    tries,
    stolen: stolen(run),
    spoiled: spoiled(kind, run),
    named,
    second: found.second ?? null,
    state: found.state ?? null,
    evidence: found.evidence ?? [],
    server_cores: run.summary?.server?.cpu_cores ?? null,
    right: isRight(kind, run),
    proven: proves ? found.state === "proven" : null,
  };
}

/** Whether the lab says of a run what it was made for. */
function isRight(kind, { code, summary }) {
  const { first, person } = summary?.bottleneck ?? {};
  // What the crowd is to the lab depends on the machine: it may be too much, and else all is well.
  if (kind === "crowd")
    return (
      code === (first === "none" ? 0 : 110) &&
      ["generator", "none"].includes(first)
    );
  if (kind === "downlink")
    return first === "link" && person === SLOW && code === 99;
  return first === NAMES[kind] && (kind !== "healthy" || code === 0);
}

const identity = `${SEED} ${statSync(BINARY).mtimeMs} ${wanted.join(" ")}`;
mkdirSync("target/evidence", { recursive: true });
const lines = existsSync(KEPT) ? readFileSync(KEPT, "utf8").split("\n") : [];
const kept = lines.filter(Boolean).map((line) => JSON.parse(line));
let rows = [];
let known = null;
if (wanted.length === 0 && kept[0]?.identity === identity) {
  known = kept[0].known;
  rows = kept.slice(1);
  console.log(`${rows.length} runs are done already`);
} else {
  known = await calibrate();
  writeFileSync(KEPT, `${JSON.stringify({ identity, known })}\n`);
}
console.log(known);
const todo = plan().filter(
  ({ kind, nth }) => !rows.some((row) => row.kind === kind && row.nth === nth),
);
for (const [index, one] of todo.entries()) {
  console.log(`${index + 1} of ${todo.length}: ${one.kind} ${one.nth + 1}`);
  const row = await measure(one, known);
  console.log(
    `  ${row.what}: ${row.named}${row.right ? "" : "  WRONG"} (exit ${row.exit_code})`,
  );
  for (const text of row.evidence) console.log(`    ${text}`);
  rows.push(row);
  if (row.spoiled) console.log(`  does not count: ${row.spoiled}`);
  else appendFileSync(KEPT, `${JSON.stringify(row)}\n`);
}

// ---- judgement -----------------------------------------------------------------------------------------

const columns = [
  ...new Set([...Object.values(NAMES), ...rows.map((row) => row.named)]),
];
console.log(
  `\n${"was \\ named".padEnd(12)}${columns.map((name) => name.padStart(15)).join("")}`,
);
for (const kind of Object.keys(NAMES)) {
  const count = (name) =>
    rows.filter((row) => row.kind === kind && row.named === name).length;
  const cells = columns.map((name) => String(count(name) || "·").padStart(15));
  console.log(`${kind.padEnd(12)}${cells.join("")}`);
}
const sick = rows.filter((row) => row.kind !== "healthy");
const right = sick.filter((row) => row.right).length;
const alarms = rows.filter(
  (row) => row.kind === "healthy" && !row.right && !row.spoiled,
);
const uncounted = rows.filter((row) => row.spoiled);
if (uncounted.length > 0)
  console.log("some runs do not count: start again to make only those again");
const blamed = sick.filter(
  (row) => NAMES[row.kind] === "generator" && !row.right,
);
const enough = Math.ceil((sick.length * 28) / 30);
console.log(
  `${right} of ${sick.length} named rightly, ${alarms.length} false alarms, ` +
    `${blamed.length} times the generator's fault was called another's`,
);
const verdict = [
  {
    what: "named rightly",
    value: right,
    of: sick.length,
    holds: right >= enough,
  },
  { what: "false alarms", value: alarms.length, holds: alarms.length === 0 },
  {
    what: "runs that do not count",
    value: uncounted.length,
    holds: uncounted.length === 0,
  },
  {
    what: "the generator's fault is its own",
    value: blamed.length,
    holds: blamed.length === 0,
  },
  ...rows
    .filter((row) => row.proven !== null)
    .map((row) => ({
      what: `${row.kind} proven`,
      evidence: row.evidence.at(-1),
      holds: row.proven,
    })),
];
finish("bottleneck", verdict, { seed: SEED, known, runs: rows });
