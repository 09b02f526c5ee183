// Do browsers and bots agree? A room whose cameras are forwarded, all behind one link towards them.
//
// 1. Its sound is mixed, so that both find the same chirps. The link's delay and loss change on the way. Of the
//    delay the change counts: a browser is read where it takes sound out of its jitter buffer, a bot plays
//    nothing; that constant is printed. Left alone, a browser makes that buffer longer by 40 to 120 ms where
//    packets are lost, which is no delay of the link's: so it is told to keep 300 ms of it all the time
//    (jitterBufferTarget). Loss is of the tracks that both receive.
// 2. 32 outages of 0.3 to 2 s, seeded: freezes of the same tracks, as `agreement` of the summary counts them.
// 3. The same with bots whose freeze counter is broken must end with 113.
//
// A run whose generator was not healthy is repeated once. `evidence-canaries.sh delay freezes broken` runs those
// parts alone. About 16 minutes. Writes target/evidence/canaries.json.

import {
  finish,
  healthy,
  inTurn,
  isWanted,
  median,
  random,
  stayAwake,
  sum,
} from "./evidence.mjs";

const SEED = Number(process.env.SEED ?? 1);
const JOINED_S = 15;
const PHASES = [
  { delay: 0, loss: 0, seconds: 60 },
  { delay: 100, loss: 0, seconds: 60 },
  { delay: 400, loss: 0, seconds: 60 },
  { delay: 0, loss: 3, seconds: 150 },
];
/** After a change a jitter buffer needs a while to be what it will be. */
const SETTLED_MS = 20_000;
/** Until a mark is judged, and said in a sample. */
const GUARD_MS = 3_000;
const OUTAGES = 32;
/** Of a broken counter. */
const FEW_OUTAGES = 14;
const APART_S = 12;

stayAwake(3600);
const rows = [];

const scenario = (
  name,
  seconds,
  changes,
  { audio = "sfu", more = "" } = {},
) => `name: canaries-${name}
serve: {}
duration: ${seconds}s
rooms: [{ audio: ${audio}, video: sfu, people: { bot: 4, chromium: 1 } }]
media: { audio: speech, video: 360p }
networks:
  - name: link
    way: down
    changes:
${changes.map((change) => `      - { way: down, ${change} }`).join("\n")}
join: { per_second: 2 }
${more}`;

/** Of the rows of samples that end in a phase: those of tracks that both kinds receive, by kind. */
function shared(samples, from_ms, until_ms) {
  const within = samples.filter(
    ({ t_ms }) => t_ms > from_ms && t_ms < until_ms,
  );
  const of = (kind) =>
    within
      .filter((one) => one.kind === kind)
      .flatMap(({ sample }) => sample.received);
  const tracks = (kind) => new Set(of(kind).map((row) => row.track));
  const [bots, browsers] = [tracks("bot"), tracks("chromium")];
  const both = (row) => bots.has(row.track) && browsers.has(row.track);
  return { bot: of("bot").filter(both), chromium: of("chromium").filter(both) };
}

function loss(received) {
  const lost = sum(received, (row) => row.packets_lost);
  return (100 * lost) / (lost + sum(received, (row) => row.packets_received));
}

async function delayAndLoss() {
  const phases = inTurn(PHASES, JOINED_S);
  const seconds = phases.at(-1).until_ms / 1000;
  const changes = phases.map(
    ({ delay, loss, from_ms }) =>
      `at: ${from_ms / 1000}s, delay: ${delay}ms, loss_pct: ${loss}`,
  );
  const more = "canary: { jitter_buffer: 300ms }\n";
  const room = scenario("delay", seconds, changes, { audio: "mcu", more });
  const run = await healthy(room);
  const marks = (kind) =>
    run.samples
      .filter((one) => one.kind === kind)
      .flatMap(({ sample }) => sample.received)
      .flatMap((row) =>
        (row.marks ?? []).map((mark) => ({
          ...mark,
          buffer_ms: row.jitter_buffer_ms ?? 0,
        })),
      );
  const heard = { bot: marks("bot"), chromium: marks("chromium") };
  let first = null;
  for (const { delay, loss: percent, from_ms, until_ms } of phases) {
    const read = (kind) => {
      const own = heard[kind].filter(
        ({ said_ms }) =>
          said_ms > from_ms + SETTLED_MS && said_ms < until_ms - GUARD_MS,
      );
      return {
        ms: median(own.map((mark) => mark.transit_ms)),
        buffer_ms: median(own.map((mark) => mark.buffer_ms)),
        marks: own.length,
      };
    };
    const [bots, browsers] = [read("bot"), read("chromium")];
    first ??= { bots, browsers };
    const change = browsers.ms - first.browsers.ms - (bots.ms - first.bots.ms);
    const longer = browsers.buffer_ms - first.browsers.buffer_ms;
    const rowsOf = shared(run.samples, from_ms + GUARD_MS, until_ms);
    const lost = { bots: loss(rowsOf.bot), browsers: loss(rowsOf.chromium) };
    rows.push({
      what: `delay ${delay} ms, ${percent} % lost`,
      exit_code: run.code,
      tries: run.tries,
      bots_ms: bots.ms,
      browsers_ms: browsers.ms,
      browsers_jitter_buffer_ms: browsers.buffer_ms,
      constant_ms: first.browsers.ms - first.bots.ms,
      changes_differ_by_ms: change,
      less_jitter_buffer_ms: change - longer,
      marks: { bots: bots.marks, browsers: browsers.marks },
      bots_loss_pct: lost.bots,
      browsers_loss_pct: lost.browsers,
      holds:
        run.code === 0 &&
        bots.marks >= 10 &&
        browsers.marks >= 10 &&
        Math.abs(change) <= 20 &&
        Math.abs(lost.bots - lost.browsers) <= 0.3,
    });
  }
}

/** Changes of a link that is dead now and then. */
function outages(count) {
  const draw = random(SEED);
  return Array.from({ length: count }, (_, nth) => {
    const begin = JOINED_S + APART_S * nth;
    const end = begin + 0.3 + 1.7 * draw();
    return [`at: ${begin}s, loss_pct: 100`, `at: ${end.toFixed(3)}s`];
  }).flat();
}

async function freezes(name, count, options) {
  const seconds = JOINED_S + APART_S * count;
  const run = await healthy(scenario(name, seconds, outages(count)), options);
  return { ...run, found: run.summary?.agreement ?? {} };
}

if (isWanted("delay")) await delayAndLoss();
if (isWanted("freezes")) {
  const { code, tries, found } = await freezes("freezes", OUTAGES);
  rows.push({
    what: `${OUTAGES} outages of 0.3–2 s`,
    exit_code: code,
    tries,
    ...found,
    holds:
      code === 0 &&
      found.freeze_windows >= 30 &&
      found.freeze_windows_agreeing >= 0.9 * found.freeze_windows,
  });
}
if (isWanted("broken")) {
  const flags = ["--fault", "freeze_counter"];
  const { code, tries, found } = await freezes("broken", FEW_OUTAGES, {
    flags,
  });
  rows.push({
    what: "bots that count no freezes",
    exit_code: code,
    tries,
    ...found,
    holds:
      code === 113 &&
      found.disagreements.some((text) => text.includes("freezes")),
  });
}
finish("canaries", rows, { seed: SEED });
