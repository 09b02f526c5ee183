// Does `moim capacity` find the same answer again and again, and name what ends it?
//
// `link`: five searches behind a link of 30 Mbit/s (tbf), for how many pairs that talk fit; each must lie within 5 % of
// their median, name the network, and prove it: with a faster link the number that was too much holds.
// `quota`: five searches for how many people one mixed room carries under a CPU quota, within 10 %; the quota is named and proven. It is one of work (it
// follows the machine's floor), so that the answers are scaled by that already.
// `meetings`, `mixed`, `sockets`: the scenarios in scenarios/capacity-*.yaml, each in under 20 minutes, for docs/capacity.md.
//
// `evidence-capacity.sh link quota` runs those parts alone. About 80 minutes; it goes on where it was cut, search by search.
// Writes target/evidence/capacity.json.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BINARY, finish, isWanted, median, rowMaker, stayAwake } from "./evidence.mjs";

const SEARCHES = 5;
const LONGEST_S = 20 * 60;

const PAIRS = `name: pairs
serve: { cpus: [0] }
duration: 12s
rooms: [{ count: 1, video: none, people: { bot: 2 } }]
media: { audio: steady, video: none }
join: { per_second: 40 }
thresholds: default
`;
const MIXED = `name: mixed
serve: { cpus: [0], quota_cores: 0.25 }
duration: 15s
rooms:
  - audio: mcu
    video: none
    people: { bot: 50 }
    roles: [{ name: person, speaks_pct: 1, in_turn: true }]
media: { audio: speech, video: none }
join: { per_second: 40 }
thresholds: default
`;

const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
const tc = (...line) => execFileSync("tc", line, { env, stdio: "inherit" });

/** A search; what it answers. `broke`: what must be named, and proven. */
async function search(scenario, flags, broke) {
  const dir = mkdtempSync(join(tmpdir(), "moim-capacity-"));
  const file = join(dir, "scenario.yaml");
  writeFileSync(file, scenario);
  const line = ["capacity", file, "--runs", dir, ...flags].map(String);
  // With few people the CPUs would sleep, and a host that wakes one late makes the generator's timers late.
  const sleepAgain = stayAwake(LONGEST_S);
  const child = spawn(BINARY, line, { stdio: ["ignore", "ignore", "inherit"] });
  const code = await new Promise((done) => child.once("exit", done));
  sleepAgain();
  const record = readdirSync(dir).find((name) => name.includes("-capacity-"));
  const summary = JSON.parse(readFileSync(join(dir, record, "summary.json"), "utf8"));
  const { cells } = summary.study.find(({ table }) => table === "answer");
  const [low, high] = [cells.low.value, cells.high.value];
  const proven = cells.broke.word.includes(`${broke}, proven`);
  return {
    exit_code: code,
    low,
    high,
    middle: (low + (high ?? low)) / 2,
    broke: cells.broke.word,
    trials: cells.trials.value,
    minutes: cells.minutes.value,
    record: join(dir, record),
    says: summary.study_about.ours,
    holds: code === 0 && (broke === null || proven) && 60 * cells.minutes.value < LONGEST_S,
  };
}

const rows = [];
const row = rowMaker("capacity", rows);
if (isWanted("link")) {
  tc("qdisc", "add", "dev", "lo", "root", "tbf", "rate", "30mbit", "burst", "64kb", "latency", "50ms");
  for (let nth = 1; nth <= SEARCHES; nth++)
    await row("link", `link ${nth}`, () => search(PAIRS, ["--vary", "rooms", "--from", 10], "network"));
  tc("qdisc", "del", "dev", "lo", "root");
}
for (let nth = 1; nth <= SEARCHES; nth++)
  await row("quota", `quota ${nth}`, () => search(MIXED, ["--vary", "people", "--from", 50], "cpu_quota"));
for (const [name, flags] of [
  ["meetings", ["--vary", "rooms", "--from", 1]],
  ["mixed", ["--vary", "people", "--from", 50]],
  ["sockets", ["--vary", "rate", "--from", 10]],
])
  await row(name, name, () => search(readFileSync(`scenarios/capacity-${name}.yaml`, "utf8"), flags, null));

/** Whether all searches of a kind agree: within this share of their median. */
function agree(kind, share) {
  const found = rows.filter(({ what }) => what.startsWith(`${kind} `)).map(({ middle }) => middle);
  if (found.length === 0) return true;
  const apart = Math.max(...found.map((one) => Math.abs(one / median(found) - 1)));
  console.log(`${kind}: ${found.length} searches, ${(100 * apart).toFixed(1)} % from their median at most`);
  return found.length === SEARCHES && apart <= share;
}

const ok = [agree("link", 0.05), agree("quota", 0.1), rows.length > 0, rows.every(({ holds }) => holds)];
finish("capacity", rows, { told: true, ok: ok.every(Boolean) });
