// Starts a server, lets 490 people join at 50 a second beside ten who talk, and reads from
// /metrics how long every packet of sound stayed in the server (kernel's stamp until it was sent),
// from the start until 10 s after the last join. A round with late packets in which the host took
// the CPU away from this machine (steal in /proc/stat) does not count: it is shown, and repeated.
// Writes target/evidence/joins.json; exits non-zero unless two rounds count and in both of them
// every packet left within 5 ms.

import { readFileSync } from "node:fs";
import { finish, load, serve, sleep } from "./evidence.mjs";

const LIMIT_S = 0.005;

const ROUNDS = 2;
const TRIES = 6;
/** One tick of the kernel's accounting. */
const STEAL_LIMIT_MS = 10;

const scenario = readFileSync("scenarios/joins.yaml", "utf8");

function stealMs() {
  const [, ...fields] = readFileSync("/proc/stat", "utf8")
    .split("\n")[0]
    .trim()
    .split(/ +/);
  return Number(fields[7]) * 10;
}

/** Packets of sound, and how many of them left within the limit; the slowest bucket. */
function residence(text) {
  const buckets = [
    ...text.matchAll(
      /^moim_audio_residence_seconds_bucket\{.*le="([^"]+)"\} (\d+)/gm,
    ),
  ].map(([, le, count]) => ({
    le: le === "+Inf" ? Infinity : Number(le),
    count: Number(count),
  }));
  const all = buckets.at(-1).count;
  const within = buckets.filter(({ le }) => le <= LIMIT_S).at(-1).count;
  const slowest = buckets.find(({ count }) => count === all).le;
  const p99 = buckets.find(({ count }) => count >= 0.99 * all).le;
  return {
    packets: all,
    over_5_ms: all - within,
    p99_at_most_ms: p99 * 1000,
    slowest_at_most_ms: slowest * 1000,
  };
}

async function round() {
  const server = await serve();
  const metrics = async () => (await fetch(`${server.url}/metrics`)).text();
  try {
    const steal = stealMs();
    const run = load(scenario);
    const begin = Date.now();
    let people = 0;
    while (people < 500 && Date.now() - begin < 25_000) {
      await sleep(250);
      const told = /^moim_participants (\d+)/m.exec(await metrics());
      people = Number(told?.[1] ?? 0);
    }
    await sleep(10_000);
    const row = {
      what: "50 joins a second",
      joins_per_s: 50,
      people,
      ...residence(await metrics()),
      steal_ms: stealMs() - steal,
    };
    const { code, summary } = await run;
    row.load_exit_code = code;
    row.when_all_left_at_once =
      residence(await metrics()).over_5_ms - row.over_5_ms;
    row.holds = code === 0 && people === 500 && row.over_5_ms === 0;
    // Stolen time can only make packets late: a round that holds in spite of it counts.
    row.counts = row.holds || row.steal_ms <= STEAL_LIMIT_MS;
    if (code !== 0) row.failures = summary?.failures?.slice(0, 5) ?? null;
    return row;
  } finally {
    await server.stop();
  }
}

const rows = [];
const counted = () => rows.filter((row) => row.counts);
while (counted().length < ROUNDS && rows.length < TRIES) {
  rows.push(await round());
  console.log(rows.at(-1));
}
const whole = counted().length === ROUNDS;
finish("joins", rows, {
  told: true,
  ok: whole && counted().every((row) => row.holds),
  ...(whole ? {} : { end: "inconclusive: the host was too busy" }),
});
