// Is the delay from camera to screen right that browsers read from the time code in each other's pictures?
//
// 1. Two browsers behind a link towards them (down), and from them (up), whose delay is 0, 100 and 300 ms in turn. What is
//    read must become longer by just that, within 40 ms: jitter buffer, decoder and screen are in all of it alike.
//    What is read without a delay must be plausible by itself.
// 2. A link that carries the smallest picture alone: its code must be readable too.
// 3. A mesh, whose members send past any link of the lab: read as in an SFU room without delay.
//
// A run whose generator was not healthy is repeated once. `evidence-timecode.sh down up thin mesh` runs those parts
// alone. About 4 minutes. Writes target/evidence/timecode.json.

import { finish, healthy, inTurn, isWanted, median, percentile, stayAwake } from "./evidence.mjs";

const JOINED_S = 10;
const PHASES = [0, 100, 300].map((delay) => ({ delay, seconds: 24 }));
/** After a change a jitter buffer needs a while to be what it will be. */
const SETTLED_MS = 9_000;
const TOLERANCE_MS = 40;
/** What camera, encoder, decoder and screen take together, at most. */
const PLAUSIBLE_MS = 250;

stayAwake(900);
const rows = [];

const scenario = (name, seconds, { way = "sfu", networks = "" }) => `name: timecode-${name}
serve: { cpus: shared }
duration: ${seconds}s
rooms: [{ audio: ${way}, video: ${way}, people: { chromium: 2 } }]
media: { audio: speech, video: 360p }
canary: { show: 4, time_code: true }
join: { per_second: 2 }
${networks}`;

/** The pictures of others in samples that end within some time: how many, how many with a code that was read, and it. */
function read(samples, from_ms, until_ms) {
  const within = samples.filter(({ t_ms }) => t_ms > from_ms && t_ms < until_ms);
  const pictures = within.flatMap(({ sample }) => sample.received).filter((row) => row.frames_per_second > 0);
  const delays = pictures.map((row) => row.camera_to_screen_ms).filter((ms) => typeof ms === "number");
  const heights = pictures.map((row) => row.frame_height);
  return {
    ms: median(delays),
    p95_ms: percentile(delays, 95),
    windows: pictures.length,
    read: delays.length,
    frame_height: median(heights),
  };
}

const isPlausible = ({ ms, windows, read }) => windows >= 4 && read >= 0.8 * windows && ms > 0 && ms < PLAUSIBLE_MS;

async function delays(way) {
  const phases = inTurn(PHASES, JOINED_S);
  const changes = phases.map(({ delay, from_ms }) => `{ at: ${from_ms / 1000}s, delay: ${delay}ms, way: ${way} }`);
  const networks = `networks: [{ name: link, way: ${way}, changes: [${changes.join(", ")}] }]\n`;
  const run = await healthy(scenario(way, phases.at(-1).until_ms / 1000, { networks }));
  let base = null;
  for (const { delay, from_ms, until_ms } of phases) {
    const found = read(run.samples, from_ms + SETTLED_MS, until_ms);
    base ??= found;
    const error = found.ms - base.ms - delay;
    const holds = run.code === 0 && isPlausible(base) && found.read >= 4 && Math.abs(error) <= TOLERANCE_MS;
    const what = `${way}, ${delay} ms`;
    rows.push({ what, exit_code: run.code, tries: run.tries, ...found, error_ms: error, holds });
  }
}

async function plain(what, name, options, holds) {
  const run = await healthy(scenario(name, 34, options));
  const found = read(run.samples, 1000 * JOINED_S + SETTLED_MS, 34_000);
  rows.push({ what, exit_code: run.code, tries: run.tries, ...found, holds: run.code === 0 && holds(found) });
}

for (const way of ["down", "up"]) if (isWanted(way)) await delays(way);
if (isWanted("thin")) {
  const networks = "networks: [{ name: thin, way: down, rate_kbps: 300, queue: 300ms }]\n";
  const isSmall = ({ windows, read, frame_height }) => windows >= 4 && read >= 0.8 * windows && frame_height <= 180;
  await plain("300 kbit/s, the smallest picture", "thin", { networks }, isSmall);
}
if (isWanted("mesh")) await plain("mesh, no link", "mesh", { way: "mesh" }, isPlausible);
finish("timecode", rows);
