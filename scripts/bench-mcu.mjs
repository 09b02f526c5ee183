// What one mixed room costs the server, beside the floor and beside Janus: 50 to 1350 people who all send all the time.
// Server on CPU 0, lab on CPU 1. Three rounds in turn; medians of server CPU, all threads and everything on as shipped,
// for each person and second. The parts:
//
//   loudest  five speak by turns, all others send silence; the loudest five are heard. Beside the floor
//            (benches/floor/mix.rs: as many datagrams received and opened, sealed and sent, and nothing else), and at
//            sizes that it may carry beside Janus (Debian's, its AudioBridge, which mixes everybody): same bots, same CPUs.
//   talk     everybody speaks all the time; the loudest five are heard. Beside Janus, in whose sum of all voices no mark is
//            found.
//   everyone everybody speaks all the time, and everybody is heard (`mix.hear: everyone`), as at an AudioBridge.
//   silence  what the packets of silent people cost: the room of `loudest` against the same room in which the silent
//            listen and send nothing. The difference, for each of them, beside what the floor pays for as many packets
//            that it receives and opens.
//   shards   the room of `loudest` with one shard and with two, server and lab on both CPUs. Capacity is people by the busiest
//            core, if each shard (its media, mix and control threads) and the signaling thread had one of their own. So what
//            two threads lose by crossing and by mixing twice counts, and what two full cores may lose by sharing a cache does
//            not. What does not grow with people is counted as if it did: 500 people are a seventh of a core, so 1350 decide.
//
// Exits 1 where a ratio does not hold, or what it needs is not there. Writes target/bench/mcu.json: all rows that this
// binary has made so far. `bench-mcu.sh loudest/500 silence` runs this size and that part alone, and keeps the others.
// MIX='packet: auto' adds that to the server's settings under `mix`, for rows of their own. ROUNDS says how many rounds.

import { LAB, LOUD, play, roles } from "./crowd.mjs";
import {
  bench,
  finish,
  healthy,
  isWanted,
  keeper,
  median,
  pinned,
  sleep,
  sum,
} from "./evidence.mjs";
import { INSTALL, atJanus, version } from "./janus.mjs";

const ROUNDS = Number(process.env.ROUNDS ?? 3);
const MIX = process.env.MIX ?? "";
const SECONDS = 9;
const FLOOR_SECONDS = 4;
const PORT = 7990;
const JOINS_PER_SECOND = { moim: 50, janus: 25 };
/** Sizes of each part, and of Janus beside it. */
const PARTS = {
  loudest: { sizes: [50, 100, 200, 500, 1350], janus: [50, 100, 200] },
  talk: { sizes: [50, 100, 200, 500], janus: [50, 100] },
  everyone: { sizes: [50, 100], janus: [50, 100] },
  silence: { sizes: [500, 1350] },
  shards: { sizes: [500, 1350] },
};
const SIZES = PARTS.loudest.sizes;
/** At most so many times the floor, at these sizes; silence of the floor's cost of it; at least by two shards; and people a core. */
const MOST = { floor: 2, silence: 0.6 };
const JUDGED = [500, 1350];
const DECIDING = 1350;
const LEAST = { shards: 1.8, everyone_a_core: 100 };
/** Where two shards are compared: server and lab share both CPUs. */
const SHARED = { cpus: "0,1", lab: { ...LAB, wrap: ["taskset", "-c", "0,1"] } };

const floorBinary = bench("floor");

/** µs of CPU for each person and second, one way and both; `read` takes packets from the kernel and leaves them closed. */
async function floor(people, ways) {
  const line = [PORT, people, FLOOR_SECONDS, ways];
  const server = pinned(0, floorBinary, "mix", ...line);
  await sleep(300);
  const load = pinned(1, floorBinary, "mix-load", ...line);
  const [{ cpu_us, sent, opened }] = await Promise.all([server, load]);
  const whole = 50 * people * FLOOR_SECONDS;
  const done = { both: Math.min(sent, opened), out: sent }[ways] ?? opened;
  if (done < 0.98 * whole) throw new Error(`the floor did ${done} of ${whole}`);
  return cpu_us / people / FLOOR_SECONDS;
}

async function floors(people) {
  const us = {};
  for (const ways of ["both", "in", "out", "read"]) us[ways] = await floor(people, ways);
  return us;
}

/** A run's figures, from when all have come. */
function figures({ code, summary, samples, machine }, people, joining_s) {
  const steady = machine
    .filter(({ t_ms, server }) => t_ms > 1000 * joining_s + 3000 && server)
    .map(({ server }) => server);
  const mean = (pick) => sum(steady, pick) / steady.length;
  const names = [...new Set(steady.flatMap(({ threads }) => Object.keys(threads)))];
  const threads = names.map((name) => [name, mean((server) => server.threads[name])]);
  const cores = mean((server) => server.cpu_cores);
  const rows = samples.flatMap(({ sample }) => sample.received);
  const marks = sum(rows, ({ marks_expected }) => marks_expected);
  return {
    code,
    people: summary?.people ?? 0,
    cores,
    us: (1e6 * cores) / people,
    threads: Object.fromEntries(threads),
    loss_pct_max: summary?.metrics?.loss_pct?.max ?? null,
    mouth_to_ear_ms_p95: summary?.metrics?.mouth_to_ear_ms?.p95 ?? null,
    marks,
    marks_found: sum(rows, ({ marks_found }) => marks_found),
    generator: summary?.generator?.reasons ?? null,
    failures: summary?.failures?.slice(0, 2) ?? null,
  };
}

/** One room; `who`: roles of its people, if not all speak. */
const scenario = (people, who, joins, joining_s) => `duration: ${joining_s + SECONDS + 3}s
rooms:
  - preset: audio_room
    people: { bot: ${people} }
${who}media: { audio: speech, video: none }
join: { per_second: ${joins} }
`;

async function ours(people, who, { mix = MIX, ...options } = {}) {
  const joins = JOINS_PER_SECOND.moim;
  const joining_s = Math.ceil(people / joins) + 2;
  const settings = mix && `mix: { ${mix} }\n`;
  const text = scenario(people, who, joins, joining_s);
  const run = await play(text, { by: healthy, settings, ...options });
  return figures(run, people, joining_s);
}

async function theirs(people, who) {
  const joins = JOINS_PER_SECOND.janus;
  const joining_s = Math.ceil(people / joins) + 2;
  const text = scenario(people, who, joins, joining_s);
  const run = await atJanus((target) => healthy(`name: crowd\n${target}\n${text}`, LAB));
  return figures(run, people, joining_s);
}

/** People whom the busiest core carries, if each shard and the signaling thread has one of its own. */
function capacity({ people, threads }) {
  const of = {};
  for (const [name, cores] of Object.entries(threads)) {
    const [, kind, number] = /^(media|mix|control)-(\d+)$/.exec(name) ?? [null, name, ""];
    const core = number === "" ? kind : number;
    of[core] = (of[core] ?? 0) + cores;
  }
  return people / Math.max(...Object.values(of));
}

const whole = (runs, people) => runs.every((run) => run.code === 0 && run.people === people);
const medianOf = (runs, pick) => median(runs.map(pick));
const spread = (numbers) => [Math.min(...numbers), Math.max(...numbers)];

/** What all rows say of runs of a server. */
function cost(runs, people) {
  const us = medianOf(runs, (run) => run.us);
  return {
    us_per_person_s: us,
    us_spread: spread(runs.map((run) => run.us)),
    mcpu_per_person: us / 1000,
    people_a_core: 1e6 / us,
    carried: whole(runs, people),
    mouth_to_ear_ms_p95: medianOf(runs, (run) => run.mouth_to_ear_ms_p95),
    marks_found_pct:
      (100 * sum(runs, (run) => run.marks_found)) / sum(runs, (run) => run.marks),
    runs,
  };
}

const ROWS = {
  loudest(people, { ours, floors, janus }) {
    const row = cost(ours, people);
    const floor = {};
    for (const ways of ["both", "in", "out", "read"])
      floor[ways] = medianOf(floors, (round) => round[ways]);
    const ratio = median(ours.map(({ us }, round) => us / floors[round].both));
    const holds = row.carried && (!JUDGED.includes(people) || ratio <= MOST.floor);
    return { ...row, floor: { us_per_person_s: floor, rounds: floors }, ratio, janus, holds };
  },
  talk(people, { talk, talk_janus }) {
    const row = cost(talk, people);
    return { ...row, janus: talk_janus, holds: row.carried };
  },
  everyone(people, { everyone, talk_janus }) {
    const row = cost(everyone, people);
    const holds = row.carried && row.people_a_core >= LEAST.everyone_a_core;
    return { ...row, janus: talk_janus, holds };
  },
  silence(people, { ours, quiet, floors }) {
    const share = people / (people - LOUD);
    const us = ours.map((run, round) => (run.us - quiet[round].us) * share);
    const ratios = us.map((one, round) => one / floors[round].in);
    const carried = whole(ours, people) && whole(quiet, people);
    const row = { us_per_person_s: median(us), us_spread: spread(us), carried };
    row.listening = cost(quiet, people);
    row.floor = { us_per_person_s: medianOf(floors, (round) => round.in) };
    row.read = median(floors.map((round) => round.read / round.in));
    row.ratio = median(ratios);
    return { ...row, holds: carried && row.ratio <= MOST.silence };
  },
  shards(people, { one, two }) {
    const ratios = two.map((run, round) => capacity(run) / capacity(one[round]));
    const row = { one: medianOf(one, capacity), two: medianOf(two, capacity) };
    row.dearer = median(two.map((run, round) => run.us / one[round].us));
    row.ratio = median(ratios);
    row.spread = spread(ratios);
    row.runs = { one, two };
    row.carried = whole([...one, ...two], people);
    return { ...row, holds: row.carried && (people < DECIDING || row.ratio >= LEAST.shards) };
  },
};

/** All rounds of a size, in turn. */
async function measure(people, parts) {
  const has = (...names) => names.some((name) => parts.includes(name));
  const besides = (part) => peer && has(part) && PARTS[part].janus.includes(people);
  const five = roles(people);
  const everyone = ["hear: everyone", MIX].filter(Boolean).join(", ");
  const steps = {
    ours: has("loudest", "silence") && (() => ours(people, five)),
    floors: has("loudest", "silence") && (() => floors(people)),
    quiet: has("silence") && (() => ours(people, roles(people, { silent: false }))),
    one: has("shards") && (() => ours(people, five, SHARED)),
    two: has("shards") && (() => ours(people, five, { ...SHARED, flags: ["--shards", "2"] })),
    janus: besides("loudest") && (() => theirs(people, five)),
    talk: has("talk") && (() => ours(people, "")),
    everyone: has("everyone") && (() => ours(people, "", { mix: everyone })),
    talk_janus: (besides("talk") || besides("everyone")) && (() => theirs(people, "")),
  };
  const made = {};
  for (let round = 0; round < ROUNDS; round++)
    for (const [name, step] of Object.entries(steps)) {
      if (step) (made[name] ??= []).push(await step());
    }
  for (const name of ["janus", "talk_janus"])
    made[name] &&= cost(made[name], people);
  return parts.map((part) => {
    const mix = MIX || "as shipped";
    const what = MIX ? `${part}/${people} with ${MIX}` : `${part}/${people}`;
    return { what, part, people, mix, ...ROWS[part](people, made) };
  });
}

function print(row) {
  const us = (number) => `${number.toFixed(0)} µs`;
  const parts = [];
  if (row.us_per_person_s !== undefined)
    parts.push(`${us(row.us_per_person_s)} a person and second`);
  if (row.people_a_core) parts.push(`${row.people_a_core.toFixed(0)} people a core`);
  if (row.part === "shards")
    parts.push(
      `one carries ${row.one.toFixed(0)}, two ${row.two.toFixed(0)}: ${row.ratio.toFixed(2)} (${row.spread.map((one) => one.toFixed(2)).join(" to ")}; CPU of all: ${row.dearer.toFixed(2)})`,
    );
  else if (row.floor) {
    const { both, in: opening } = row.floor.us_per_person_s;
    const detail = both
      ? `${us(both)}, receiving and opening ${us(opening)}`
      : `${us(row.floor.us_per_person_s)}, ${row.read.toFixed(2)} of it reading alone`;
    parts.push(`floor ${detail}: ${row.ratio.toFixed(2)}`);
  }
  if (row.janus) {
    const lacks = row.janus.carried ? "" : " (does NOT carry them)";
    const times = (row.janus.us_per_person_s / row.us_per_person_s).toFixed(1);
    parts.push(`Janus ${us(row.janus.us_per_person_s)}${lacks}: ${times} times`);
  }
  if (!row.carried) parts.push("NOT carried, or the generator was late");
  console.log(`${row.what}: ${parts.join(", ")}${row.holds ? "" : " – does NOT hold"}`);
}

const peer = version();
console.log(peer ? `beside Janus ${peer}` : `Janus is not installed: ${INSTALL}`);
const kept = keeper("bench-mcu");
for (const people of SIZES) {
  const parts = Object.keys(PARTS).filter(
    (part) => PARTS[part].sizes.includes(people) && isWanted(part, `${part}/${people}`),
  );
  if (parts.length === 0) continue;
  for (const row of await measure(people, parts)) {
    kept.keep(row);
    print(row);
  }
}
const rows = kept.all();
const lacking = Object.entries(PARTS).flatMap(([part, { sizes }]) =>
  sizes.map((size) => `${part}/${size}`).filter((what) => !kept.find(what)),
);
if (lacking.length) console.log(`not measured yet: ${lacking.join(" ")}`);
const ok = peer !== null && rows.length > 0 && rows.every((row) => row.holds);
finish("mcu", rows, { dir: "bench", told: true, ok, janus: peer, lacking });
