// Two shards: the load is even while people come and go (per-thread CPU over 60 s, the busiest media thread at most
// 1.2 times the least busy), and a packet costs at most 15 % more than with one shard (five rounds in turn, server CPU a
// packet sent; judged is the median of the rounds' ratios, since this machine drifts from round to round): ten rooms of
// eight and a class of forty, which stay on one shard each, and a class of sixty of whom a third send, whose tracks cross,
// as it stands when all came (56 on one shard) and as it becomes while people come and go (half on each).
// `evidence-shards.sh rooms forty sixty` runs those parts alone. Takes about 20 minutes. Writes
// target/evidence/shards.json.

import { finish, healthy, isWanted, median, stayAwake } from "./evidence.mjs";

const SMALL = { name: "10 rooms of 8", rooms: "count: 10, people: { bot: 8 }" };
const classOf = (people) => ({
  name: `a class of ${people}`,
  rooms: `people: { bot: ${people} }, roles: [
    { name: sends, weight: 1 },
    { name: listens, weight: 2, audio: false, video: false }]`,
});
const CLASS = classOf(60);
const HALVED = {
  ...CLASS,
  name: "a class of 60, half on each shard",
  together: ", keep_together: 1",
};
const PER_SECOND = 20;
const JOINING_S = 4;
/** Until most who came first have left. */
const MIXED_S = 20;
const STAY_S = 12;
const ROUNDS = 5;
const MOST = { uneven: 1.2, dearer: 1.15 };

const scenario = (
  { rooms, together = "" },
  shards,
  seconds,
  more = "",
) => `name: shards
serve: { cpus: shared, shards: ${shards}${together} }
duration: ${JOINING_S + seconds}s
rooms: [{ audio: sfu, video: sfu, ${rooms}${more} }]
media: { audio: speech, video: 360p }
join: { per_second: ${PER_SECOND} }
`;

/** Seconds of CPU of each media thread once people have come and gone for a while. */
function mediaThreads({ machine }) {
  const threads = {};
  for (const { t_ms, server } of machine) {
    if (t_ms < 1000 * (JOINING_S + MIXED_S) + 3000 || !server) continue;
    for (const [name, cores] of Object.entries(server.threads))
      if (name.startsWith("media-"))
        threads[name] = (threads[name] ?? 0) + 3 * cores;
  }
  return threads;
}

stayAwake(2400);
const rows = [];

async function even(shape) {
  const seconds = MIXED_S + 66;
  const churning = scenario(shape, 2, seconds, `, churn: { stay: ${STAY_S}s }`);
  const churn = await healthy(churning, { most: 3 });
  const threads = mediaThreads(churn);
  const busy = Object.values(threads);
  const uneven = Math.max(...busy) / Math.min(...busy);
  return {
    what: `${shape.name}: the busiest media thread against the least busy, people come and go, 60 s`,
    threads_cpu_s: threads,
    exit_code: churn.code,
    value: uneven,
    most: MOST.uneven,
    holds: churn.code === 0 && busy.length === 2 && uneven <= MOST.uneven,
  };
}

async function dearer(shape) {
  const costs = { 1: [], 2: [] };
  const codes = [];
  for (let round = 0; round < ROUNDS; round++)
    for (const shards of [1, 2]) {
      const text = scenario(shape, shards, 18);
      const { code, summary } = await healthy(text, { most: 3 });
      codes.push(code);
      costs[shards].push(summary.server.us_per_packet_out);
    }
  const ratios = costs[2].map((two, round) => two / costs[1][round]);
  const [one, two] = [median(costs[1]), median(costs[2])];
  const value = median(ratios);
  return {
    what: `${shape.name}: a packet sent by two shards against one, µs of server CPU`,
    runs: costs,
    ratios,
    one,
    two,
    of_medians: two / one,
    exit_codes: codes,
    value,
    most: MOST.dearer,
    holds: codes.every((code) => code === 0) && value <= MOST.dearer,
  };
}

const told = (row) => {
  rows.push(row);
  console.log(row);
};
if (isWanted("rooms")) {
  told(await even(SMALL));
  told(await dearer(SMALL));
}
if (isWanted("forty")) told(await dearer(classOf(40)));
if (isWanted("sixty")) {
  told(await even(CLASS));
  told(await dearer(CLASS));
  told(await dearer(HALVED));
}
finish("shards", rows, { told: true });
