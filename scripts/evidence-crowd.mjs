// One mixed room as large as the study of the audio room had (1350 people), on this machine: the server on one CPU and the
// lab on another. `stays`: all send all the time for five minutes, the loudest five are heard, in packets of 20 ms; `stays-auto`:
// in packets of 60 ms for those who are not heard. `comes-and-goes`: all
// come at 100 a second, and all but ten leave at once. `among`: two pages in Chromium among 1000 bots, on both CPUs: they hear
// the mix and each other, not themselves, and the list of people scrolls smoothly. PICTURES names a directory for a
// picture of it. `grows`: more and more people, until the room breaks, by what; `listens`: 2500 people who send nothing and 20 who
// speak. Takes 22 minutes. Writes target/evidence/crowd.json.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { audience, play } from "./crowd.mjs";
import { finish, isWanted, percentile, sleep, sum, until } from "./evidence.mjs";

const PEOPLE = 1350;
/** Bots that browsers are among, and what those say, in Hz. */
const AMONG = Number(process.env.AMONG ?? 1000);
const TONES = { Ada: 440, Min: 1000 };
/** Least frames a second of a page that scrolls, for so many seconds. */
const FPS = 50;
const SCROLL_S = 10;
const STAYS_S = Number(process.env.STAYS_S ?? 300);
const JOINS_PER_SECOND = { stays: 50, "comes-and-goes": 100, among: 50 };
/** Most CPU of the server, in cores, and of its signaling thread in any 3 s; most memory, in KiB a person. */
const CORES = { "20ms": 0.8, auto: 0.5 };
const SIGNALING = 0.5;
const KIB_A_PERSON = 100;
/** How long sound may be in the server, of 99 in 100 packets (of 20 ms); and the longest gap in anybody's sound, if people go. */
const RESIDENCE_MS = 40;
const GAP_MS = 60;
/** A room that grows has at first so many people, then so many times as many, and stays for so long. */
const GROWS = { from: 1350, times: 1.25, most: 6000, stays_s: 30 };
const LISTENERS = 2500;
const SPEAKERS = 20;

/** The server's own figure of how long sound of mixed rooms is in it. */
const RESIDENCE = "moim_mix_residence_seconds";

/** What the server uses more than when it is empty, in KiB a person: at most until `stayed` is called, and at most in all. */
function memory() {
  let [pid, empty_kib, kib_a_person] = [0, 0, null];
  const kib = (name) =>
    Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
  const most = () => (kib("VmHWM") - empty_kib) / PEOPLE;
  return {
    watch(server) {
      pid = server.pid;
      empty_kib = kib("VmRSS");
      return () => ({ kib_a_person, kib_a_person_in_all: most() });
    },
    stayed: () => (kib_a_person = most()),
  };
}

/** A histogram of all threads as /metrics tells it: bounds in ms, the last of which is Infinity, and how many values are under each. */
async function histogram(url, name) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const buckets = text.matchAll(new RegExp(`^${name}_bucket\\{.*le="(.*)"\\} (\\d+)$`, "gm"));
  const ms = (bound) => (bound === "+Inf" ? Number.POSITIVE_INFINITY : 1000 * Number(bound));
  const counts = new Map();
  for (const [, bound, count] of buckets) counts.set(ms(bound), (counts.get(ms(bound)) ?? 0) + Number(count));
  return [...counts];
}

/** The bound that so many percent are under of what came to a histogram. */
function under(before, after, percent) {
  const counts = after.map(([bound, count], nth) => [bound, count - before[nth][1]]);
  if (!(counts.at(-1)?.[1] > 0)) throw new Error("the histogram counted nothing");
  return counts.find(([, count]) => count >= (percent / 100) * counts.at(-1)[1])[0];
}

/** What all say of a run. */
function figures({ code, summary, machine, kib_a_person, kib_a_person_in_all }) {
  if (!summary) return { exit_code: code, people: 0, generator_healthy: false };
  const { metrics, server, generator, bottleneck } = summary;
  const signaling = machine.map((at) => at.server?.threads?.signaling ?? 0);
  return {
    exit_code: code,
    people: summary.people,
    loss_pct_max: metrics.loss_pct?.max,
    gap_ms_max: metrics.gap_ms?.max,
    mouth_to_ear_ms_p95: metrics.mouth_to_ear_ms?.p95,
    mos_cq_user_p1: metrics.mos_cq?.user_p1,
    server_cores: server?.cpu_cores,
    server_threads: server?.threads,
    signaling_most: Math.max(...signaling),
    kib_a_person,
    kib_a_person_in_all,
    generator_healthy: generator.healthy,
    generator_reasons: generator.reasons,
    generator_threads: generator.threads,
    bottleneck,
    failures: summary.failures?.slice(0, 3),
  };
}

async function stays(packet) {
  const joining = Math.ceil(PEOPLE / JOINS_PER_SECOND.stays);
  const rest = audience(PEOPLE, JOINS_PER_SECOND.stays, joining + STAYS_S);
  const { watch, stayed } = memory();
  const residence = async (url) => {
    await sleep(1000 * (joining + 5));
    const before = await histogram(url, RESIDENCE);
    await sleep(1000 * (STAYS_S - 10));
    const after = await histogram(url, RESIDENCE);
    stayed();
    return { p50: under(before, after, 50), p99: under(before, after, 99) };
  };
  const settings = `mix: { packet: ${packet} }`;
  const run = await play(rest, { watch, settings, meanwhile: residence });
  const rows = run.samples.flatMap(({ sample }) => sample.received);
  const marks = sum(rows, ({ marks_expected }) => marks_expected ?? 0);
  const found = sum(rows, ({ marks_found }) => marks_found ?? 0);
  const { moim_mix_ticks_total: ticks, moim_mix_ticks_late_total: late } = run.summary?.server?.mix ?? {};
  const made = {
    ...figures(run),
    marks,
    marks_found_pct: (100 * found) / marks,
    residence_ms_at_most: run.found,
    ticks,
    ticks_late_pct: (100 * late) / ticks,
  };
  const holds = {
    passed: run.code === 0 && made.people === PEOPLE && made.generator_healthy,
    marks: marks > 0 && made.marks_found_pct >= 99,
    delay: made.mouth_to_ear_ms_p95 <= 150,
    mos: made.mos_cq_user_p1 >= 4,
    residence: packet !== "20ms" || run.found?.p99 <= RESIDENCE_MS,
    ticks: ticks > 0 && made.ticks_late_pct < 0.1,
    cores: made.server_cores <= CORES[packet],
    memory: made.kib_a_person !== null && made.kib_a_person <= KIB_A_PERSON,
  };
  return {
    what: `${PEOPLE} people send for ${STAYS_S} s, packets of ${packet}`,
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
`, { watch: memory().watch });
  const made = figures(run);
  const least = percentile(
    run.machine.slice(-3).map((at) => at.server?.cpu_cores ?? 0),
    50,
  );
  const holds = {
    passed: run.code === 0 && made.generator_healthy,
    nothing_lost: made.loss_pct_max === 0,
    gaps: made.gap_ms_max <= GAP_MS,
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

/** More and more people, until the run does not pass; it holds if what broke is named then. */
async function grows() {
  const steps = [];
  for (let people = GROWS.from; people <= GROWS.most; people = Math.round(people * GROWS.times)) {
    const joining = Math.ceil(people / JOINS_PER_SECOND["comes-and-goes"]);
    const rest = audience(people, JOINS_PER_SECOND["comes-and-goes"], joining + GROWS.stays_s);
    const run = await play(rest);
    steps.push(figures(run));
    console.log(people, steps.at(-1));
    if (run.code !== 0) break;
  }
  const { exit_code, bottleneck, generator_healthy } = steps.at(-1);
  const passed = steps.filter((step) => step.exit_code === 0);
  const holds = {
    starts: passed.length > 0,
    breaks: exit_code !== 0,
    named: !generator_healthy || (bottleneck?.first ?? "unexplained") !== "unexplained",
  };
  const most = passed.at(-1)?.people;
  return {
    what: `a room that grows carries ${generator_healthy ? "" : "at least "}${most} people`,
    steps,
    of_these: holds,
    holds: Object.values(holds).every(Boolean),
  };
}

async function listens() {
  const joining = Math.ceil((LISTENERS + SPEAKERS) / JOINS_PER_SECOND["comes-and-goes"]);
  const run = await play(`duration: ${joining + 60}s
rooms:
  - preset: audio_room
    people: { bot: ${LISTENERS + SPEAKERS} }
    roles:
      - { name: speaker, weight: ${SPEAKERS}, speaks_pct: 40 }
      - { name: listener, weight: ${LISTENERS}, audio: false }
media: { audio: speech, video: none }
join: { per_second: ${JOINS_PER_SECOND["comes-and-goes"]} }
`);
  const made = figures(run);
  const named = (made.bottleneck?.first ?? "unexplained") !== "unexplained";
  // If the lab was the limit, the run proves nothing.
  const holds = {
    all_came: made.people === LISTENERS + SPEAKERS,
    healthy_or_named: run.code === 0 || (made.generator_healthy && named),
  };
  return {
    what: `${LISTENERS} people who send nothing, and ${SPEAKERS} who speak`,
    ...made,
    of_these: holds,
    holds: Object.values(holds).every(Boolean),
  };
}

/** CPU time of all processes of Chromium so far, in seconds. */
function chromium_s() {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return sum(pids, (pid) => {
    try {
      const [, name, rest] = /\((.*)\) . (.*)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"));
      const fields = rest.split(" ");
      return name.startsWith("chrom") ? (Number(fields[10]) + Number(fields[11])) / 100 : 0;
    } catch {
      return 0; // It ended.
    }
  });
}

/** Time in which the machine's CPUs had nothing to do, in seconds. */
function idle_s() {
  const ticks = readFileSync("/proc/stat", "utf8").split("\n", 1)[0].split(/\s+/).slice(1).map(Number);
  return (ticks[3] + ticks[4]) / 100;
}

/** What two pages see and hear among the bots. */
async function pages(url) {
  const { browser, enter, inbound, scroll, sing } = await import("../web/e2e/world.mjs");
  const { hears, listen } = await import("../web/e2e/spectrum.mjs");
  const ends = [];
  try {
    const launched = await browser({ after: (end) => ends.push(end) });
    const room = await until("all bots", async () => {
      const [{ id, people } = {}] = (await (await fetch(`${url}/v1/quality`)).json()).rooms;
      return people === AMONG && id;
    });
    const query = { camera: "0", mic: "0" };
    const ada = await enter(ends, launched, url, room, "Ada", query);
    const min = await enter(ends, launched, url, room, "Min", query);
    const mix = async () => (await inbound(ada, "audio"))[0];
    await until("the mix", async () => (await mix())?.packetsReceived > 50);
    const bots_energy = (await mix()).totalAudioEnergy;
    await until("the bots' voices", async () => (await mix()).totalAudioEnergy > bots_energy);
    for (const person of [ada, min]) {
      await sing(person, TONES[person.name]);
      await listen(person);
    }
    const heard = { Ada: await hears(ada, ["Min"], TONES), Min: await hears(min, ["Ada"], TONES) };
    await ada.page.getByRole("button", { name: "People" }).click();
    const panel = ada.page.getByRole("complementary", { name: "People" });
    await panel.getByRole("button", { name: `Read all ${AMONG + 2} names` }).click();
    await panel.getByRole("button", { name: "Next page" }).waitFor();
    const before = [chromium_s(), idle_s(), await mix()];
    const scrolled = await scroll(ada, 'aside[aria-label="People"]', SCROLL_S);
    const after = [chromium_s(), idle_s(), await mix()];
    if (process.env.PICTURES) await ada.page.screenshot({ path: join(process.env.PICTURES, "among.png") });
    const head = await ada.page.locator("header.head").innerText();
    return {
      heard,
      people: head.replace(/\s+/g, " "),
      ...scrolled,
      chromium_cores: (after[0] - before[0]) / SCROLL_S,
      idle_cores: (after[1] - before[1]) / SCROLL_S,
      concealed_pct:
        (100 * (after[2].concealedSamples - before[2].concealedSamples)) /
        (after[2].totalSamplesReceived - before[2].totalSamplesReceived),
      errors: [...ada.errors, ...min.errors],
    };
  } finally {
    for (const end of ends) await end();
  }
}

async function among() {
  const joining = Math.ceil(AMONG / JOINS_PER_SECOND.among);
  const run = await play(audience(AMONG, JOINS_PER_SECOND.among, joining + 70), { meanwhile: pages });
  const { found: seen } = run;
  const holds = {
    heard: seen.heard !== undefined && seen.errors.length === 0,
    counted: seen.people?.includes(`${AMONG + 2} people`) ?? false,
    sounds: seen.concealed_pct < 5,
    scrolls: seen.fps >= FPS && seen.pixels > 1000,
  };
  return {
    what: `two pages in Chromium among ${AMONG} bots`,
    ...figures(run),
    pages: seen,
    of_these: holds,
    holds: Object.values(holds).every(Boolean),
  };
}

const rows = [];
const parts = {
  stays: () => stays("20ms"),
  "stays-auto": () => stays("auto"),
  "comes-and-goes": comesAndGoes,
  grows,
  listens,
  among,
};
for (const [name, part] of Object.entries(parts)) {
  if (!isWanted(name)) continue;
  rows.push(await part());
  console.log(rows.at(-1));
}
finish("crowd", rows, { told: true });
