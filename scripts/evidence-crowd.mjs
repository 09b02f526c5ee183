// One mixed room as large as the study of the audio room had (1350 people), on this machine: the server on one CPU and the
// lab on another. `stays`: all send all the time for five minutes, the loudest five are heard. `comes-and-goes`: all
// come at 100 a second, and all but ten leave at once. Takes 8 minutes. Writes target/evidence/crowd.json.

import { readFileSync } from "node:fs";
import { play, roles } from "./crowd.mjs";
import { finish, isWanted, percentile, sum } from "./evidence.mjs";

const PEOPLE = 1350;
const STAYS_S = Number(process.env.STAYS_S ?? 300);
const JOINS_PER_SECOND = { stays: 50, "comes-and-goes": 100 };
/** Most CPU of the server, in cores, and of its signaling thread in any 3 s; most memory, in KiB a person. */
const CORES = 0.8;
const SIGNALING = 0.5;
const KIB_A_PERSON = 100;

const memory_kib = (pid) => {
  const [, rss] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(rss);
};

/** What the server uses at most more than when it is empty. */
function watchMemory({ pid }) {
  const empty_kib = memory_kib(pid);
  let most_kib = empty_kib;
  const look = setInterval(() => (most_kib = Math.max(most_kib, memory_kib(pid))), 1000);
  return () => {
    clearInterval(look);
    return { kib_a_person: (most_kib - empty_kib) / PEOPLE };
  };
}

/** What both say of a run. */
function figures({ code, summary, machine, kib_a_person }) {
  const { metrics, server, generator } = summary;
  const signaling = machine.map((at) => at.server?.threads?.signaling ?? 0);
  return {
    exit_code: code,
    people: summary.people,
    loss_pct_max: metrics.loss_pct?.max,
    mouth_to_ear_ms_p95: metrics.mouth_to_ear_ms?.p95,
    mos_cq_user_p1: metrics.mos_cq?.user_p1,
    server_cores: server?.cpu_cores,
    server_threads: server?.threads,
    signaling_most: Math.max(...signaling),
    kib_a_person,
    generator_healthy: generator.healthy,
    generator_threads: generator.threads,
    failures: summary.failures?.slice(0, 3),
  };
}

async function stays() {
  const joining = Math.ceil(PEOPLE / JOINS_PER_SECOND.stays);
  const run = await play(`duration: ${joining + STAYS_S}s
rooms:
  - preset: audio_room
    people: { bot: ${PEOPLE} }
${roles(PEOPLE)}media: { audio: speech, video: none }
join: { per_second: ${JOINS_PER_SECOND.stays} }
`, { watch: watchMemory });
  const rows = run.samples.flatMap(({ sample }) => sample.received);
  const marks = sum(rows, ({ marks_expected }) => marks_expected ?? 0);
  const found = sum(rows, ({ marks_found }) => marks_found ?? 0);
  const { moim_mix_ticks_total: ticks, moim_mix_ticks_late_total: late } = run.summary.server?.mix ?? {};
  const made = {
    ...figures(run),
    marks,
    marks_found_pct: (100 * found) / marks,
    ticks,
    ticks_late_pct: (100 * late) / ticks,
  };
  const holds = {
    passed: run.code === 0 && made.people === PEOPLE && made.generator_healthy,
    marks: marks > 0 && made.marks_found_pct >= 99,
    delay: made.mouth_to_ear_ms_p95 <= 150,
    mos: made.mos_cq_user_p1 >= 4,
    ticks: ticks > 0 && made.ticks_late_pct < 0.1,
    cores: made.server_cores <= CORES,
    memory: made.kib_a_person <= KIB_A_PERSON,
  };
  return {
    what: `${PEOPLE} people send for ${STAYS_S} s`,
    ...made,
    of_these: holds,
    holds: Object.values(holds).every(Boolean),
  };
}

async function comesAndGoes() {
  const joining = PEOPLE / JOINS_PER_SECOND["comes-and-goes"];
  const run = await play(`duration: ${Math.ceil(joining) + 50}s
rooms:
  - preset: audio_room
    ramping:
      stages:
        - { duration: ${joining * 1000}ms, people: ${PEOPLE} }
        - { duration: 20s, people: ${PEOPLE} }
        - { duration: 0s, people: 10 }
        - { duration: 20s, people: 10 }
media: { audio: speech, video: none }
`, { watch: watchMemory });
  const made = figures(run);
  const least = percentile(
    run.machine.slice(-3).map((at) => at.server?.cpu_cores ?? 0),
    50,
  );
  const holds = {
    passed: run.code === 0 && made.generator_healthy,
    nothing_lost: made.loss_pct_max === 0,
    signaling: made.signaling_most < SIGNALING,
  };
  return {
    what: `${PEOPLE} people come at 100 a second and leave at once`,
    ...made,
    server_cores_after: least,
    of_these: holds,
    holds: Object.values(holds).every(Boolean),
  };
}

const rows = [];
for (const [name, part] of Object.entries({ stays, "comes-and-goes": comesAndGoes })) {
  if (!isWanted(name)) continue;
  rows.push(await part());
  console.log(rows.at(-1));
}
finish("crowd", rows, { told: true });
