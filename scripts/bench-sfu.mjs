// What forwarding costs the server, beside the floor and beside Janus: one publisher and 50 to 500 subscribers, in
// single packets (100 a second), frames of eight packets (30 a second), Opus (92 bytes, 50 a second) and packets of
// the sizes of Chromium's camera, and meetings of 10 and 30 people who all send these; everything on as shipped. The
// floor (benches/floor.rs) opens, seals and sends as many packets of these sizes to as many addresses, from one
// thread on the same CPU, and does nothing else. Janus (Debian's, its VideoRoom) has the same bots on the same CPUs.
// Three rounds in turn; medians of server CPU time a packet delivered. Writes target/bench/sfu.json; exits 1 where a
// ratio does not hold, or what it needs is not there.
//
// `bench-sfu.sh singles frames` runs these shapes alone, `bench-sfu.sh singles/200` that size alone; ROUNDS says how
// many rounds. BEFORE names an older build of the binary: then each round runs both builds, without floor and Janus;
// rounds are even, and each build comes first in half of them. A packet may cost at most 1.03 times what it did, or
// MOST times (median of the rounds' ratios). With TOGETHER=1 both run at once on the same CPU, so the machine drifts for
// both alike. Where that CPU cannot hold both, each has less: 0.7 of the people, half of 500 subscribers.

import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import {
  bench,
  finish,
  healthy,
  isWanted,
  median,
  pinned,
  sum,
} from "./evidence.mjs";
import { INSTALL, atJanus, version } from "./janus.mjs";

const ROUNDS = Number(process.env.ROUNDS ?? 3);
const SECONDS = Number(process.env.SECONDS ?? 9);
const JOINS_PER_SECOND = 50;
const PORT = 7990;
/** Of a datagram to a subscriber more than its payload: RTP header and the cipher's tag. */
const AROUND = 28;
const camera = JSON.parse(readFileSync("media/chromium-camera.json", "utf8"));
/** Bursts a second, and the bytes of each burst's datagrams to a subscriber, in turn. */
const SHAPES = {
  singles: {
    audio: "none",
    video: "singles",
    rate: 100,
    bursts: [[1168]],
    subscribers: [50, 100, 200, 500],
  },
  frames: {
    audio: "none",
    video: "frames",
    rate: 30,
    bursts: [Array(8).fill(1168)],
    subscribers: [50, 100, 200, 500],
  },
  opus: {
    audio: "steady",
    video: "none",
    rate: 50,
    bursts: [[92]],
    subscribers: [50, 100, 200, 500],
  },
  chromium: {
    audio: "none",
    video: "chromium",
    rate: camera.frames_per_second,
    bursts: camera.payload_bytes.map((frame) =>
      frame.map((bytes) => bytes + AROUND),
    ),
    subscribers: [50, 100, 200, 500],
  },
  meeting: {
    audio: "steady",
    video: "chromium",
    people: [10, 30],
  },
  // Study A's largest: 30 people at 1080p, of whose pictures two packets leave at a time. To the floor they are
  // one publisher of as many packets.
  study: {
    audio: "speech",
    video: "light-1080p",
    people: [30],
    rate: 30 * 78,
    bursts: [[1168, 1168]],
    subscribers_of_floor: 29,
  },
};
/** Against the floor, 500 subscribers against 50, of Janus for singles, and against an older build. */
const MOST = {
  floor: 1.6,
  crowd: 1.3,
  janus: 1 / 12,
  before: Number(process.env.MOST ?? 1.03),
};
const { BEFORE, TOGETHER } = process.env;
/** Subscribers that the ratios to floor and Janus are judged at. */
const JUDGED = 200;

const floorBinary = bench("floor");

async function floor({ rate, bursts }, subscribers) {
  const server = pinned(0, floorBinary, "serve", PORT, subscribers, SECONDS);
  await new Promise((done) => setTimeout(done, 300));
  const sizes = JSON.stringify(bursts);
  const load = pinned(1, floorBinary, "load", PORT, SECONDS, rate, sizes);
  const [{ cpu_us, sent }, took] = await Promise.all([server, load]);
  return { us: cpu_us / sent, taken: took.taken / (took.sent * subscribers) };
}

/** One publisher and so many subscribers, or a meeting of so many. */
const room = ({ people, video }, size) => `rooms:
  - audio: sfu
    video: ${video === "none" ? "none" : "sfu"}
    people: { bot: ${people ? size : size + 1} }
${
  people
    ? ""
    : `    roles:
      - { name: publisher, weight: 1 }
      - { name: subscriber, weight: ${size}, audio: false, video: false }
`
}`;

/** What a build calls a source: to older ones the 1080p of study A was the only one. */
const word = (video, { binary }) =>
  video === "light-1080p" && binary && !schema(binary).includes(video)
    ? "1080p"
    : video;
const schema = (binary) =>
  execFileSync(binary, ["load", "--schema"], { encoding: "utf8" });

async function run(target, shape, size, options = {}) {
  const { audio } = shape;
  const video = word(shape.video, options);
  const joining = (size + 1) / JOINS_PER_SECOND + 3;
  const {
    code,
    summary,
    machine: windows,
  } = await healthy(
    `name: sfu
${target}
duration: ${Math.ceil(joining) + SECONDS + 3}s
${room(shape, size)}media: { audio: ${audio}, video: ${video} }
join: { per_second: ${JOINS_PER_SECOND} }
`,
    options,
  );
  // A server that does not count is counted by the bots.
  const steady = windows
    .filter(({ t_ms, server }) => t_ms > 1000 * joining + 3000 && server)
    .map(({ server, generator }) => ({
      cores: server.cpu_cores,
      packets: server.packets_out_per_s ?? generator.packets_in_per_s ?? 0,
    }));
  const cores = sum(steady, (row) => row.cores);
  const packets = sum(steady, (row) => row.packets);
  return {
    us: (1e6 * cores) / packets,
    cores: cores / steady.length,
    packets_per_s: packets / steady.length,
    code,
    loss_pct_max: summary?.metrics?.loss_pct?.max ?? null,
    generator: summary?.generator?.reasons ?? null,
  };
}

const wholly = (runs) =>
  runs.every(
    ({ code, loss_pct_max }) =>
      code === 0 && loss_pct_max !== null && loss_pct_max <= 0.1,
  );
const us = (runs) => median(runs.map((run) => run.us));

/** All rounds of a shape and size, in turn: ours, the floor, Janus. */
async function measure(name, shape, size) {
  const [ours, floors, peers] = [[], [], []];
  for (let round = 0; round < ROUNDS; round++) {
    ours.push(await run("serve: { cpus: [0] }", shape, size));
    if (shape.bursts)
      floors.push(await floor(shape, shape.subscribers_of_floor ?? size));
    if (peer) peers.push(await atJanus((target) => run(target, shape, size)));
  }
  const row = { shape: name, size, us: us(ours), delivered: wholly(ours) };
  row.floor_us = floors.length ? us(floors) : null;
  row.ratio = row.floor_us && row.us / row.floor_us;
  row.janus_us = peers.length ? us(peers) : null;
  row.of_janus = row.janus_us && row.us / row.janus_us;
  row.janus_delivered = peers.length ? wholly(peers) : null;
  row.runs = { ours, floors, peers };
  const judged =
    shape.bursts && (size === JUDGED || shape.subscribers_of_floor);
  row.holds =
    row.delivered &&
    (!judged || row.ratio <= MOST.floor) &&
    (!judged || name !== "singles" || (row.of_janus ?? 1) <= MOST.janus);
  return row;
}

/** All rounds of a shape and size by this build and by an older one, in turn. */
async function compare(name, shape, size) {
  const [ours, olds] = [[], []];
  const builds = [
    [olds, { binary: BEFORE }],
    [ours, {}],
  ];
  const shared = shape.people ? 0.7 * size : Math.min(size, 250);
  const many = TOGETHER ? Math.round(shared) : size;
  for (let round = 0; round < 2 * Math.ceil(ROUNDS / 2); round++) {
    const both = [];
    for (const [runs, options] of builds) {
      const one = run("serve: { cpus: [0] }", shape, many, options);
      both.push(one.then((result) => runs.push(result)));
      if (!TOGETHER) await one;
    }
    await Promise.all(both);
    // The machine drifts: each build comes first as often as the other.
    builds.reverse();
  }
  const ratio = median(ours.map((run, round) => run.us / olds[round].us));
  const row = { shape: name, size, us: us(ours), before_us: us(olds), ratio };
  row.delivered = wholly(ours);
  row.runs = { ours, olds };
  row.holds = row.delivered && ratio <= MOST.before;
  return row;
}

function print(row) {
  const parts = [`${row.us.toFixed(2)} µs a packet`];
  if (row.floor_us)
    parts.push(`floor ${row.floor_us.toFixed(2)}: ${row.ratio.toFixed(2)}`);
  if (row.before_us)
    parts.push(`before ${row.before_us.toFixed(2)}: ${row.ratio.toFixed(3)}`);
  if (row.janus_us) {
    const lacks = row.janus_delivered ? "" : " (NOT all delivered)";
    const times = (1 / row.of_janus).toFixed(1);
    parts.push(`Janus ${row.janus_us.toFixed(1)}${lacks}: ${times} times`);
  }
  if (!row.delivered)
    parts.push("NOT all delivered, or the generator was late");
  console.log(`${row.shape} to ${row.size}: ${parts.join(", ")}`);
}

const peer = BEFORE ? null : version();
if (BEFORE && !statSync(BEFORE, { throwIfNoEntry: false })?.isFile())
  throw new Error(
    `BEFORE=${BEFORE} is no file: name the older binary, such as /older/target/release/moim`,
  );
if (BEFORE) console.log(`beside ${BEFORE}`);
else
  console.log(
    peer ? `beside Janus ${peer}` : `Janus is not installed: ${INSTALL}`,
  );
const rows = [];
for (const [name, shape] of Object.entries(SHAPES)) {
  for (const size of shape.subscribers ?? shape.people) {
    if (!isWanted(name, `${name}/${size}`)) continue;
    rows.push(await (BEFORE ? compare : measure)(name, shape, size));
    print(rows.at(-1));
  }
  const of = (size) =>
    rows.find((row) => row.shape === name && row.size === size);
  if (of(50) && of(500)) {
    const ratio = of(500).us / of(50).us;
    const holds = ratio <= MOST.crowd;
    const what = "500 subscribers against 50";
    rows.push({ shape: name, what, ratio, holds });
    console.log(
      `${name}: a packet to 500 costs ${ratio.toFixed(2)} of one to 50`,
    );
  }
}
const whole = rows.length > 0 && rows.every((row) => row.holds);
const ok = whole && (BEFORE !== undefined || peer !== null);
finish("sfu", rows, { dir: "bench", told: true, ok, janus: peer });
