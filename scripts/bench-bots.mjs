// What a packet costs the load generator: moim's bots and plain str0m clients, as many people in rooms of
// three who say 50 packets of Opus a second, against a `moim serve` on a CPU of its own. Three rounds in
// turn; medians of the CPU time of the threads that run them, for each datagram sent or received. Writes
// target/bench/bots.json; exits 1 where moim's bots cost more than half.

import { spawnSync } from "node:child_process";
import { bench, finish, healthy, median } from "./evidence.mjs";

const PEOPLE = [90, 300];
const ROUNDS = 3;
const SECONDS = 20;

const plain = bench("str0m_client");

function str0m(people) {
  const run = spawnSync(plain, [people, SECONDS], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (run.status !== 0) throw new Error(`${plain} ended with ${run.status}`);
  const { cpu_us, sent, received, wall_ms } = JSON.parse(run.stdout);
  return {
    us: cpu_us / (sent + received),
    packets_per_s: ((sent + received) / wall_ms) * 1000,
  };
}

async function moim(people) {
  const { summary } = await healthy(`name: bots
serve: {}
duration: ${SECONDS + 8}s
rooms: [{ count: ${people / 3}, audio: sfu, video: none, people: { bot: 3 } }]
media: { audio: speech, video: none }
join: { per_second: 100 }
`);
  const { us_per_packet, packets_per_s, timer_lag_ms_p99 } = summary.generator;
  return {
    us: us_per_packet,
    packets_per_s,
    timer_lag_ms_p99,
    loss_pct_max: summary.metrics.loss_pct.max,
  };
}

const rows = [];
for (const people of PEOPLE) {
  const ours = [];
  const theirs = [];
  for (let round = 0; round < ROUNDS; round++) {
    ours.push(await moim(people));
    theirs.push(str0m(people));
  }
  const figure = (runs) => ({
    us_per_packet: median(runs.map((run) => run.us)),
    spread: [
      Math.min(...runs.map((run) => run.us)),
      Math.max(...runs.map((run) => run.us)),
    ],
    packets_per_s: median(runs.map((run) => run.packets_per_s)),
  });
  const row = {
    people,
    ...figure(ours),
    runs: ours,
    peers: { str0m: figure(theirs) },
  };
  row.ratio = row.us_per_packet / row.peers.str0m.us_per_packet;
  row.holds = row.ratio <= 0.5;
  rows.push(row);
  console.log(
    `${people} people: ${row.us_per_packet.toFixed(2)} µs a packet, str0m ${row.peers.str0m.us_per_packet.toFixed(2)} µs: ${row.ratio.toFixed(2)}`,
  );
}
const ok = rows.every((row) => row.holds);
const end = `${ok ? "at most" : "MORE than"} half of a plain client's`;
finish("bots", rows, { dir: "bench", told: true, end });
