// Does a run end with what it deserves? Five runs of scenarios/audio-450.yaml, whose load may be too much for the
// lab: each must pass (0) or be inconclusive because of the generator (110, with the reason), and may never accuse
// the server. One of scenarios/networks/one-layer.yaml, a call with one participant behind a slow link whose pictures
// rest, with a threshold that none may: it must fail (99) and name their link as the first bottleneck. A run of that
// one whose generator was at its limit says nothing and is made again, twice at most.
// Ten short runs with threads of the lab that are busy on purpose (`moim load --fault busy_thread=…`), so that people
// hear each other late: each must be inconclusive (110) and name that thread, and say nothing of the server. One
// without that must pass.
// One of a mixed room whose mixer is a second behind (`moim serve --fault mixer_backlog=1s`), and one without that:
// everyone's MOS-CQ must be under 2.5 by their second sample (the third of who says the first mark himself) and stay
// there, while `mos_sdk`, which knows no such delay, stays over 4 and nothing is lost; the bottleneck is `mixer_deadline`.
//
// Takes about 9 minutes and goes on where it stopped. `evidence-verdicts.sh crowd link` makes those parts alone.
// Writes target/evidence/verdicts.json.

import { readFileSync } from "node:fs";
import { finish, healthy, load, rowMaker, serve } from "./evidence.mjs";

const ROUNDS = 5;
/** Of each thread that is made busy. */
const BUSY_ROUNDS = 5;
/** The scenario's first bot is the one on its network. */
const SLOW = "bot-1";

const scenario = (name) => readFileSync(`scenarios/${name}.yaml`, "utf8");
const rows = [];
const row = rowMaker("verdicts", rows);

/** What a run says of itself. */
function said({ code, summary }) {
  const { bottleneck, generator } = summary ?? {};
  return {
    exit_code: code,
    verdict: summary?.verdict ?? null,
    first: bottleneck?.first ?? null,
    person: bottleneck?.person ?? null,
    evidence: bottleneck?.evidence ?? [],
    generator: generator?.reasons ?? [],
    failures: (summary?.failures ?? []).slice(0, 5),
  };
}

for (let round = 1; round <= ROUNDS; round++)
  await row("crowd", `450 people in a mixed room, round ${round}`, async () => {
    const found = said(await load(scenario("audio-450")));
    const passed = found.exit_code === 0 && found.generator.length === 0;
    const own = found.exit_code === 110 && found.generator.length > 0;
    const blamed = own && found.first !== "generator";
    return { ...found, holds: (passed || own) && !blamed };
  });

await row("link", "a call of four, one behind 1.5 Mbit/s", async () => {
  const none = 'paused_ratio: ["max < 0.5"]';
  const text = scenario("networks/one-layer").replace(/paused_ratio: .*/, none);
  const run = await healthy(text, { most: 3 });
  const found = said(run);
  const linked = found.first === "link" && found.person === SLOW;
  return {
    ...found,
    tries: run.tries,
    holds: found.exit_code === 99 && linked,
  };
});

/** Small rooms that people enter all the time, with thresholds that a busy lab breaks. */
const busy = `name: busy
serve: { cpus: [0] }
duration: 13s
rooms: [{ count: 4, audio: sfu, video: none, churn: { stay: 4s }, people: { bot: 5 } }]
media: { audio: speech, video: none }
join: { per_second: 10 }
thresholds: { join_to_first_audio_ms: ["p50 < 100"] }
`;

await row("busy", "no busy thread", async () => {
  const found = said(await healthy(busy, { most: 3 }));
  return { ...found, holds: found.exit_code === 0 && found.first === "none" };
});
for (let round = 1; round <= BUSY_ROUNDS; round++)
  for (const thread of ["lab", "bots"])
    await row("busy", `a busy thread, ${thread}, round ${round}`, async () => {
      const flags = ["--fault", `busy_thread=${thread}`];
      const found = said(await load(busy, { flags }));
      const named = new RegExp(`^${thread}(-0)? is busy `);
      return {
        ...found,
        holds:
          found.exit_code === 110 &&
          found.first === "generator" &&
          found.failures.length > 0 &&
          found.generator.some((reason) => named.test(reason)) &&
          found.evidence.every((text) =>
            /^(generator: |quality broke )/.test(text),
          ),
      };
    });

const mixed = (url) => `name: backlog
target: { url: "${url}" }
duration: 16s
rooms: [{ audio: mcu, video: none, people: { bot: 8 } }]
media: { audio: speech, video: none }
join: { per_second: 10 }
thresholds: { mos_cq: ["user_p5 > 3.8"], loss_pct: ["max < 0.1"] }
`;

/** What eight people of a mixed room have in their samples. */
async function backlog(flags) {
  const server = await serve({ flags });
  const run = await healthy(mixed(server.url), { most: 3 });
  await server.stop();
  const rows = run.samples.map(({ person, sample }) => ({
    person,
    ...sample.received[0],
  }));
  const people = [...new Set(rows.map(({ person }) => person))];
  const scores = (person) =>
    rows
      .filter((of) => of.person === person)
      .map(({ mos_cq }) => mos_cq ?? null);
  const all = (key) =>
    rows.map((of) => of[key]).filter((value) => value != null);
  return {
    ...said(run),
    tries: run.tries,
    /** In which of their samples, from 1, each has their first MOS-CQ. */
    first_scores: people.map(
      (person) => 1 + scores(person).findIndex((mos) => mos !== null),
    ),
    mos_cq: [Math.min(...all("mos_cq")), Math.max(...all("mos_cq"))],
    mos_sdk_min: all("mos_sdk").length ? Math.min(...all("mos_sdk")) : null,
    lost: all("packets_lost").length ? all("packets_lost").reduce((a, b) => a + b, 0) : null,
    mouth_to_ear_ms: [
      Math.min(...all("mouth_to_ear_ms")),
      Math.max(...all("mouth_to_ear_ms")),
    ],
    ticks_late: run.summary?.server?.mix?.moim_mix_ticks_late_total ?? null,
    ticks: run.summary?.server?.mix?.moim_mix_ticks_total ?? null,
  };
}

await row("backlog", "a mixer that is a second behind", async () => {
  const found = await backlog(["--fault", "mixer_backlog=1s"]);
  const { first_scores: at, mos_cq } = found;
  return {
    ...found,
    holds:
      found.exit_code === 99 &&
      found.first === "mixer_deadline" &&
      at.length === 8 &&
      at.filter((nth) => nth > 2).length <= 1 &&
      Math.min(...at) > 0 &&
      Math.max(...at) <= 3 &&
      mos_cq[1] < 2.5 &&
      found.mos_sdk_min > 4 &&
      found.lost === 0,
  };
});
await row("backlog", "the same without the fault", async () => {
  const found = await backlog([]);
  return {
    ...found,
    holds:
      found.exit_code === 0 && found.first === "none" && found.mos_cq[0] > 4,
  };
});
finish("verdicts", rows, { told: true });
