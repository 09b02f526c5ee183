// What forwarding costs the server, beside the floor: one publisher and 50, 200 or 500 subscribers, in single
// packets (100 a second), frames of eight packets (30 a second) and Opus (92 bytes, 50 a second), everything
// on as shipped. The floor (benches/floor.rs) opens, seals and sends as many packets of these sizes to as many
// addresses, from one thread on the same CPU, and does nothing else. Three rounds in turn; medians of server
// CPU time a packet delivered. Writes target/bench/sfu.json; exits 1 where a ratio does not hold.
//
// `bench-sfu.sh singles frames` runs these shapes alone; ROUNDS says how many rounds.

import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { healthy, loadavg, machine, median } from "./evidence.mjs";

const ROUNDS = Number(process.env.ROUNDS ?? 3);
const SECONDS = 9;
const JOINS_PER_SECOND = 50;
const PORT = 7990;
/** Bytes of a datagram to a subscriber, bursts a second, packets of a burst. */
const SHAPES = {
  singles: {
    audio: "none",
    video: "singles",
    bytes: 1168,
    rate: 100,
    burst: 1,
    subscribers: [50, 200, 500],
  },
  frames: {
    audio: "none",
    video: "frames",
    bytes: 1168,
    rate: 30,
    burst: 8,
    subscribers: [50, 200, 500],
  },
  opus: {
    audio: "steady",
    video: "none",
    bytes: 92,
    rate: 50,
    burst: 1,
    subscribers: [200],
  },
};
/** Against the floor, and 500 subscribers against 50. */
const MOST = { floor: 1.6, crowd: 1.3 };

const target = join(process.env.CARGO_TARGET_DIR ?? "target", "release/deps");
const floorBinary = readdirSync(target)
  .filter((name) => /^floor-[0-9a-f]+$/.test(name))
  .map((name) => join(target, name))
  .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0];

/** A process on a CPU, and the line of JSON that it prints. */
async function pinned(cpu, ...args) {
  const line = ["-c", cpu, floorBinary, ...args].map(String);
  const child = spawn("taskset", line, {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (data) => (text += data));
  const code = await new Promise((done) => child.once("exit", done));
  if (code !== 0) throw new Error(`${line.join(" ")} ended with ${code}`);
  return JSON.parse(text);
}

async function floor({ bytes, rate, burst }, subscribers) {
  const server = pinned(0, "serve", PORT, subscribers, SECONDS);
  await new Promise((done) => setTimeout(done, 300));
  const load = pinned(1, "load", PORT, SECONDS, bytes, rate, burst);
  const [{ cpu_us, sent }, took] = await Promise.all([server, load]);
  return { us: cpu_us / sent, taken: took.taken / (took.sent * subscribers) };
}

async function moim({ audio, video }, subscribers) {
  const joining = (subscribers + 1) / JOINS_PER_SECOND + 3;
  const {
    code,
    summary,
    machine: windows,
  } = await healthy(`name: sfu
serve: { cpus: [0] }
duration: ${Math.ceil(joining) + SECONDS + 3}s
rooms:
  - audio: sfu
    video: ${video === "none" ? "none" : "sfu"}
    people: { bot: ${subscribers + 1} }
    roles:
      - { name: publisher, weight: 1 }
      - { name: subscriber, weight: ${subscribers}, audio: false, video: false }
media: { audio: ${audio}, video: ${video} }
join: { per_second: ${JOINS_PER_SECOND} }
`);
  const steady = windows
    .filter(({ t_ms }) => t_ms > 1000 * joining + 3000)
    .map(({ server }) => server)
    .filter((server) => server?.packets_out_per_s);
  const sum = (pick) => steady.reduce((total, row) => total + pick(row), 0);
  return {
    us:
      (1e6 * sum((row) => row.cpu_cores)) / sum((row) => row.packets_out_per_s),
    packets_per_s: sum((row) => row.packets_out_per_s) / steady.length,
    code,
    loss_pct_max: summary?.metrics?.loss_pct?.max ?? null,
    generator: summary?.generator?.reasons ?? null,
  };
}

const before = loadavg();
const wanted = process.argv.slice(2);
const rows = [];
for (const [name, shape] of Object.entries(SHAPES)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  for (const subscribers of shape.subscribers) {
    const [ours, floors] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      ours.push(await moim(shape, subscribers));
      floors.push(await floor(shape, subscribers));
    }
    const us = median(ours.map((run) => run.us));
    const floor_us = median(floors.map((run) => run.us));
    const delivered = ours.every(
      ({ code, loss_pct_max }) =>
        code === 0 && loss_pct_max !== null && loss_pct_max <= 0.1,
    );
    const ratio = us / floor_us;
    const holds = delivered && (subscribers !== 200 || ratio <= MOST.floor);
    rows.push({
      shape: name,
      subscribers,
      us,
      floor_us,
      ratio,
      delivered,
      holds,
      runs: { ours, floors },
    });
    console.log(
      `${name} to ${subscribers}: ${us.toFixed(2)} µs a packet, floor ${floor_us.toFixed(2)}: ${ratio.toFixed(2)}` +
        (delivered ? "" : "  NOT all delivered, or the generator was late"),
    );
  }
  const of = (subscribers) =>
    rows.find((row) => row.shape === name && row.subscribers === subscribers);
  if (of(50) && of(500)) {
    const ratio = of(500).us / of(50).us;
    const holds = ratio <= MOST.crowd;
    rows.push({
      shape: name,
      what: "500 subscribers against 50",
      ratio,
      holds,
    });
    console.log(
      `${name}: a packet to 500 costs ${ratio.toFixed(2)} of one to 50`,
    );
  }
}
mkdirSync("target/bench", { recursive: true });
const ok = rows.length > 0 && rows.every((row) => row.holds);
const report = { machine: machine(before), rows, ok };
writeFileSync("target/bench/sfu.json", `${JSON.stringify(report, null, 2)}\n`);
console.log(ok ? "holds" : "does NOT hold");
process.exit(ok ? 0 : 1);
