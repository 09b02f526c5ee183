// Does the lab name what broke first? Eight ways to break a server (or the generator), a participant behind a slow
// link, and a crowd that may be too much for the lab's own threads, each three times at a seeded magnitude, and ten
// healthy runs, in seeded order. The lab is given the server's address and nothing else. 28 of 30 must be named
// rightly, no healthy run may be called sick, and the generator's fault may never be called the server's; one quota
// and one link of the server's are to be proven.
//
// Takes about 33 minutes. What is done is kept in target/evidence/bottleneck.jsonl: started again it goes on
// from there, and makes runs again that the machine's host spoiled. `evidence-bottleneck.sh quota link` runs
// those kinds alone, afresh. Needs root: control groups and network namespaces.

import { spawn, spawnSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmdirSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  BINARY,
  finish,
  load,
  loadavg,
  random,
  stayAwake,
} from "./evidence.mjs";

const SEED = Number(process.env.SEED ?? 1);
const SECONDS = 33;
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
const before = loadavg();

// ---- what is started and ended -------------------------------------------------------------------------

const SERVER = "127.0.0.1";
const BESIDE = "10.77.0.2";
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function must(line) {
  const { status, stderr } = spawnSync(line[0], line.slice(1));
  if (status !== 0) throw new Error(`${line.join(" ")}: ${stderr}`);
}

/** A control group with a CPU quota, in cores; gives what puts a command into it. */
function quota(name, cores) {
  const v1 = "/sys/fs/cgroup/cpu";
  const root = existsSync(`${v1}/cpu.cfs_quota_us`) ? v1 : "/sys/fs/cgroup";
  const dir = `${root}/moim-evidence-${process.pid}-${name}`;
  mkdirSync(dir);
  const us = Math.round(cores * 100_000);
  if (root === v1) writeFileSync(`${dir}/cpu.cfs_quota_us`, String(us));
  else writeFileSync(`${dir}/cpu.max`, `${us} 100000`);
  const enter = `echo $$ > ${dir}/cgroup.procs && exec "$@"`;
  return { wrap: ["sh", "-c", enter, "sh"], remove: () => rmdirSync(dir) };
}

/** A second network namespace behind a veth pair, whose side may be limited (Mbit/s). */
async function namespace(mbit) {
  const holder = spawn("unshare", ["-n", "sleep", "600"], { stdio: "ignore" });
  await sleep(300);
  const inside = ["nsenter", `--net=/proc/${holder.pid}/ns/net`];
  must(["ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"]);
  must(["ip", "link", "set", "vb", "netns", String(holder.pid)]);
  must(["ip", "address", "add", "10.77.0.1/24", "dev", "va"]);
  must(["ip", "link", "set", "va", "up"]);
  must([...inside, "ip", "address", "add", `${BESIDE}/24`, "dev", "vb"]);
  must([...inside, "ip", "link", "set", "vb", "up"]);
  if (mbit) {
    const rate = ["rate", `${Math.round(mbit * 1000)}kbit`];
    const tbf = ["tbf", ...rate, "burst", "16k", "latency", "50ms"];
    must([...inside, "tc", "qdisc", "add", "dev", "vb", "root", ...tbf]);
  }
  const remove = async () => {
    holder.kill("SIGKILL");
    spawnSync("ip", ["link", "delete", "va"]);
    await sleep(200);
  };
  return { wrap: inside, remove };
}

/** A server; `wrap` is the command that runs it. */
async function serve({ wrap = [], flags = [], address = SERVER, cpu = "0" }) {
  const pinned = cpu === null ? [] : ["taskset", "-c", cpu];
  const line = [...wrap, ...pinned, BINARY, "serve", ...flags];
  // Apart from the server the bots have a CPU that is idle most of the time.
  const sleepy = cpu === null ? [] : [1];
  const rest = stayAwake(200, sleepy);
  const child = spawn(line[0], line.slice(1), { stdio: "ignore" });
  const ended = new Promise((done) => child.once("exit", done));
  const url = `http://${address}:7880`;
  for (let tries = 0; ; tries++) {
    try {
      if ((await fetch(`${url}/healthz`)).ok) break;
    } catch (error) {
      if (tries > 100 || child.exitCode !== null)
        throw new Error(`${line.join(" ")} does not answer: ${error}`);
      await sleep(100);
    }
  }
  const stop = async () => {
    child.kill("SIGINT");
    await ended;
    rest();
  };
  return { url, pid: child.pid, stop };
}

/** Processes that keep a CPU busy, before everybody else. */
function hogs(count, cpu) {
  const loop = "while :; do :; done";
  const each = ["-c", cpu, "nice", "-n", "-15", "timeout", "120", "sh", "-c"];
  const all = Array.from({ length: count }, () =>
    spawn("taskset", [...each, loop], { stdio: "ignore" }),
  );
  return () => all.forEach((child) => child.kill("SIGTERM"));
}

// ---- loads ---------------------------------------------------------------------------------------------

const THRESHOLDS = `thresholds:
  loss_pct: ["user_p95 < 2"]
  jitter_ms: ["user_p95 < 30"]
  mos_cq: ["user_p5 > 3.8"]
  join_to_first_audio_ms: ["p95 < 800"]
`;
const SOUND = { rooms: 20, size: 6 };

/** Rooms that forward sound. */
function sound(url, share = 1, more = "") {
  const rooms = Math.max(1, Math.round(SOUND.rooms * share));
  return `name: bottleneck
target: { url: "${url}" }
duration: ${SECONDS}s
rooms:
  - { count: ${rooms}, audio: sfu, video: none, people: { bot: ${SOUND.size} } }
${more}media: { audio: speech, video: none }
join: { per_second: 30 }
${THRESHOLDS}`;
}

/**
 * Rooms that mix sound: much work for the server, little for the bots; and some that forward it, so that
 * the generator's CPU does not fall asleep between two packets.
 */
const mixed = (url, rooms) => `name: bottleneck
target: { url: "${url}" }
duration: ${SECONDS}s
rooms:
  - { count: ${rooms}, audio: mcu, video: none, people: { bot: 3 } }
  - { count: 6, audio: sfu, video: none, people: { bot: 6 } }
media: { audio: speech, video: none }
join: { per_second: 30 }
${THRESHOLDS}`;

/** Many in one mixed room: every join is told to everyone who is there. */
const crowd = (url, people) => `name: bottleneck
target: { url: "${url}" }
duration: ${SECONDS}s
rooms: [{ audio: mcu, video: none, people: { bot: ${people} } }]
media: { audio: speech, video: none }
join: { per_second: 40 }
`;

/** A call of four, without thresholds: the first is behind a downlink that the others' pictures do not fit into. */
const SLOW = "bot-1";
const call = (url, kbps) => `name: bottleneck
target: { url: "${url}" }
duration: ${SECONDS}s
rooms: [{ audio: sfu, video: sfu, people: { bot: 4 } }]
media: { audio: speech, video: 480p }
networks: [{ name: slow, share_pct: 25, way: down, rate_kbps: ${kbps}, queue: 300ms }]
`;

const COMING =
  "  - { audio: sfu, video: none, churn: { stay: 4s }, people: { bot: 20 } }\n";

/** What the loads need here today: all magnitudes are relative to it. */
async function calibrate() {
  const server = await serve({});
  const forward = await load(sound(server.url));
  const mix = await load(mixed(server.url, 10));
  await server.stop();
  const used = forward.summary.server;
  const mixers = Object.entries(mix.summary.server.threads);
  const mixing = mixers
    .filter(([name]) => name.startsWith("mix-"))
    .reduce((sum, [, cores]) => sum + cores, 0);
  const out = used.cpu_cores / (used.us_per_packet_out / 1e6);
  return {
    server_cores: used.cpu_cores,
    generator_cores: forward.summary.generator.cpu_cores,
    // Speech of 32 kbit/s and its headers: 170 bytes a packet, as tbf counts them.
    mbit: (out * 170 * 8) / 1e6,
    mix_room_cores: mixing / 10,
    packets_in: SOUND.rooms * SOUND.size * 50,
  };
}

// ---- the kinds -----------------------------------------------------------------------------------------

/** Each kind: starts what is needed, runs the lab, and says what it did. `x` is its magnitude, 0 to 1. */
const KINDS = {
  async quota(x, known, { flags }) {
    // Woken late, the server takes more at a time, and needs less: 60 % of what it used alone may do.
    const cores = known.server_cores * (0.2 + 0.25 * x);
    const group = quota("server", cores);
    const server = await serve({ wrap: group.wrap });
    const run = await load(sound(server.url), { flags });
    await server.stop();
    group.remove();
    return { ...run, what: `quota of ${cores.toFixed(3)} cores` };
  },
  async thread(x, known) {
    const us = Math.round((1e6 / known.packets_in) * (1.2 + 0.8 * x));
    const flags = ["--fault", `hot_thread=${us}us`];
    const server = await serve({ flags, cpu: null });
    const run = await load(sound(server.url));
    await server.stop();
    return { ...run, what: `a thread that burns ${us} µs a packet` };
  },
  async cpu(x, known) {
    const rooms = Math.round((1.3 + 0.7 * x) / known.mix_room_cores);
    const server = await serve({ flags: ["--shards", "2"] });
    const run = await load(mixed(server.url, rooms));
    await server.stop();
    return { ...run, what: `${rooms} mixed rooms on one CPU` };
  },
  async link(x, known, { flags }) {
    const mbit = known.mbit * (0.45 + 0.35 * x);
    return behindLink(mbit, (url) => sound(url), flags);
  },
  async buffer(x) {
    const bytes = Math.round(1200 + 1200 * x);
    const flags = ["--fault", `receive_buffer=${bytes}`];
    const server = await serve({ flags });
    const run = await load(sound(server.url));
    await server.stop();
    return { ...run, what: `receive buffers of ${bytes} bytes` };
  },
  async fds(x) {
    const people = SOUND.rooms * SOUND.size;
    const limit = Math.round(50 + people * (0.2 + 0.5 * x));
    const server = await serve({ wrap: ["prlimit", `--nofile=${limit}`] });
    const run = await load(sound(server.url));
    await server.stop();
    return { ...run, what: `${limit} descriptors` };
  },
  async signaling(x) {
    const stall = Math.round(900 + 900 * x);
    const flags = ["--fault", `stalled_signaling=${stall}ms/2500ms`];
    const server = await serve({ flags });
    const run = await load(sound(server.url, 0.5, COMING));
    await server.stop();
    return { ...run, what: `signaling that stalls ${stall} ms of 2.5 s` };
  },
  async generator(x, known, { nth }) {
    const server = await serve({});
    let run, what;
    if (nth === 1) {
      const end = hogs(3 + Math.round(3 * x), "1");
      run = await load(sound(server.url));
      end();
      what = "others on the generator's CPU";
    } else {
      const cores = known.generator_cores * (0.3 + 0.3 * x);
      const group = quota("generator", cores);
      run = await load(sound(server.url), { wrap: group.wrap });
      group.remove();
      what = `a generator with ${cores.toFixed(3)} cores`;
    }
    await server.stop();
    return { ...run, what };
  },
  async crowd(x) {
    const people = Math.round(400 + 100 * x);
    const server = await serve({});
    const run = await load(crowd(server.url, people));
    await server.stop();
    return { ...run, what: `${people} people in one mixed room` };
  },
  async downlink(x) {
    const kbps = Math.round(1000 + 500 * x);
    const server = await serve({});
    const run = await load(call(server.url, kbps));
    await server.stop();
    return { ...run, what: `a participant behind ${kbps} kbit/s` };
  },
  /** Between 20 and 70 % of what one resource would bear. */
  async healthy(x, known, { nth }) {
    const used = 0.2 + 0.5 * x;
    const percent = `${Math.round(100 * used)} % of`;
    if (nth % 5 === 0) {
      const cores = known.server_cores / used;
      const group = quota("server", cores);
      const server = await serve({ wrap: group.wrap });
      const run = await load(sound(server.url));
      await server.stop();
      group.remove();
      return {
        ...run,
        what: `${percent} a quota of ${cores.toFixed(2)} cores`,
      };
    }
    if (nth % 5 === 1) {
      const run = await behindLink(known.mbit / used, (url) => sound(url));
      return { ...run, what: `${percent} ${run.what}` };
    }
    if (nth % 5 === 2) {
      const rooms = Math.max(1, Math.round(used / known.mix_room_cores));
      const server = await serve({ flags: ["--shards", "2"] });
      const run = await load(mixed(server.url, rooms));
      await server.stop();
      return { ...run, what: `${percent} a CPU: ${rooms} mixed rooms` };
    }
    if (nth % 5 === 3) {
      const limit = Math.round((50 + SOUND.rooms * SOUND.size) / used);
      const server = await serve({ wrap: ["prlimit", `--nofile=${limit}`] });
      const run = await load(sound(server.url));
      await server.stop();
      return { ...run, what: `${percent} ${limit} descriptors` };
    }
    const server = await serve({ cpu: null });
    const run = await load(sound(server.url, used, COMING));
    await server.stop();
    return { ...run, what: `${percent} the load, people come and go` };
  },
};

async function behindLink(mbit, scenario, flags) {
  const beside = await namespace(mbit);
  const dir = mkdtempSync(join(tmpdir(), "moim-evidence-"));
  const config = join(dir, "moim.yaml");
  writeFileSync(
    config,
    `http: { bind: "${BESIDE}:7880" }\nadmin: { bind: "${BESIDE}:7880" }\nmedia: { bind: ["${BESIDE}"] }\nguests: all\n`,
  );
  const server = await serve({
    wrap: beside.wrap,
    flags: ["--config", config],
    address: BESIDE,
  });
  const run = await load(scenario(server.url), { flags });
  await server.stop();
  await beside.remove();
  return { ...run, what: `a link of ${mbit.toFixed(1)} Mbit/s` };
}

// ---- the plan and its rows -----------------------------------------------------------------------------

function plan(kinds) {
  const draw = random(SEED);
  const all = [];
  for (const kind of Object.keys(NAMES))
    for (let nth = 0; nth < (kind === "healthy" ? 10 : 3); nth++)
      all.push({ kind, nth, x: draw(), order: draw() });
  all.sort((a, b) => a.order - b.order);
  return all.filter(
    ({ kind, nth }) =>
      (kinds.length === 0 || kinds.includes(kind)) &&
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

const wanted = process.argv.slice(2);
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
const todo = plan(wanted).filter(
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
finish("bottleneck", verdict, before, { seed: SEED, known, runs: rows });
