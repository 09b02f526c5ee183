// What a real Chromium does on networks of RFC 8867 as a sender, beside the server's own estimate (evidence-networks): pages
// that publish a camera full of noise are behind one link of the lab's, a bot without one receives them. In real time, one
// run each. Nothing must hold of Chromium: its figures are there to compare with. Exits non-zero if one could not be
// measured. `evidence-senders.sh 5.1 fall` plays those alone. Takes about 8 minutes. Writes target/evidence/senders.json.

import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { finish, isWanted, load, percentile, sum } from "./evidence.mjs";

/** Seconds from a change until the flows are steady, and for pages to open. */
const SETTLES_S = 15;
const JOINING_S = 6;
/** The length of a window of the record. */
const WINDOW_S = 3;
const DELAY_MS = 50;
/** What the SDK lets a camera of 720 lines send at most, with sound and headers: no flow can use more of a link. */
const MOST_KBPS = 1600;

/** Kilobits a second from a second on, as in tests/networks/cases.rs, but for the fall, which starts at what a camera sends. */
const CASES = {
  5.1: { what: "5.1 variable capacity", seconds: 100, capacity: [[0, 1000], [40, 2500], [60, 600], [80, 1000]], flows: 1 },
  5.2: {
    what: "5.2 variable, two flows",
    seconds: 125,
    capacity: [[0, 4000], [25, 2000], [50, 3500], [75, 1000], [100, 2000]],
    flows: 2,
  },
  5.4: { what: "5.4 same kind", seconds: 120, capacity: [[0, 3500]], flows: 3 },
  fall: { what: "a fall to a third, and back", seconds: 90, capacity: [[0, 1500], [30, 500], [50, 1500]], flows: 1 },
};

const up = (kbps) => `up: { rate_kbps: ${kbps}, queue: 300ms, delay: ${DELAY_MS}ms }, down: { delay: ${DELAY_MS}ms }`;

const scenario = ({ seconds, capacity, flows }) => `name: senders
serve: { cpus: shared }
duration: ${JOINING_S + seconds}s
rooms: [{ audio: sfu, video: sfu, people: { chromium: ${flows}, bot: 1 }, senders: ${flows} }]
media: { audio: speech, video: 1080p }
networks:
  - { name: thin, share_pct: ${(100 * flows) / (flows + 1)}, shared: true, ${up(capacity[0][1])},
      changes: [${capacity.slice(1).map(([at, kbps]) => `{ at: ${JOINING_S + at}s, ${up(kbps)} }`).join(", ")}] }
`;

/** A film of blocks that change at random, which no encoder makes small, and a `chromium` that shows it as its camera. */
function noisyCamera() {
  const dir = mkdtempSync(join(tmpdir(), "moim-senders-"));
  process.once("exit", () => rmSync(dir, { recursive: true }));
  const [width, height, block, frames] = [1280, 720, 16, 30];
  let state = 1;
  const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 24;
  const parts = [Buffer.from(`YUV4MPEG2 W${width} H${height} F20:1 Ip A1:1 C420jpeg\n`)];
  for (let frame = 0; frame < frames; frame++) {
    const luma = Buffer.alloc(width * height);
    for (let y = 0; y < height; y += block) {
      for (let x = 0; x < width; x += block) luma.fill(random(), y * width + x, y * width + x + block);
      for (let row = 1; row < block; row++) luma.copyWithin((y + row) * width, y * width, (y + 1) * width);
    }
    parts.push(Buffer.from("FRAME\n"), luma, Buffer.alloc((width * height) / 2, 128));
  }
  writeFileSync(join(dir, "noise.y4m"), Buffer.concat(parts));
  const chromium = execFileSync("which", ["chromium"], { encoding: "utf8" }).trim();
  writeFileSync(join(dir, "chromium"), `#!/bin/sh\nexec ${chromium} "$@" --use-file-for-fake-video-capture=${dir}/noise.y4m\n`);
  chmodSync(join(dir, "chromium"), 0o755);
  process.env.PATH = `${dir}:${process.env.PATH}`;
}

/** A run's windows: what the link carried, dropped, and let wait in its queue on the way up. */
function windowsOf({ machine }) {
  return machine.map(({ t_ms, person_links = [] }) => {
    const links = person_links.filter(({ way }) => way === "up");
    const packets = sum(links, (link) => link.packets);
    return {
      from_s: t_ms / 1000 - WINDOW_S - JOINING_S,
      // A link that carries less than half of its rate and loses nothing is not recorded: nothing waits there.
      kbps: 1000 * Math.max(0, ...links.map((link) => link.mbit_per_s)),
      packets,
      dropped: sum(links, (link) => link.dropped),
      wait_ms: packets > 0 ? sum(links, (link) => link.packets * link.delay_ms) / packets - DELAY_MS : 0,
    };
  });
}

/** What each page sent in pictures, as the bot received it, in steady windows: the least over the mean. */
function leastShare({ samples }, isSteady) {
  const sent = {};
  for (const { t_ms, person, sample } of samples) {
    if (!person.startsWith("bot") || !isSteady({ from_s: t_ms / 1000 - WINDOW_S - JOINING_S })) continue;
    for (const { participant, kind, bitrate_kbps } of sample.received)
      if (kind === "video") sent[participant] = (sent[participant] ?? 0) + bitrate_kbps;
  }
  const rates = Object.values(sent);
  return (rates.length * Math.min(...rates)) / sum(rates, (rate) => rate);
}

/** The figures of docs/networks.md; of the fall also how long it took to follow the capacity. */
function figures(name, { seconds, capacity, flows }, run) {
  const windows = windowsOf(run);
  const isSteady = ({ from_s }) =>
    from_s >= 0 &&
    from_s + WINDOW_S <= seconds &&
    capacity.every(([changed]) => from_s >= changed + SETTLES_S || from_s + WINDOW_S <= changed);
  const steady = windows.filter(isSteady);
  const limit = (second) => Math.min(capacity.findLast(([from]) => from <= second)[1], flows * MOST_KBPS);
  const follows = (from, until, does) => windows.find((one) => one.from_s >= from && one.from_s < until && does(one));
  const after = (change, window) => window && Math.round(window.from_s + WINDOW_S - change);
  const [fall, rise] = capacity.slice(1).map(([from]) => from);
  return {
    used: sum(steady, ({ kbps }) => kbps) / sum(steady, ({ from_s }) => limit(from_s)),
    wait_ms_p95_of_windows: percentile(steady.map(({ wait_ms }) => wait_ms), 95),
    lost_pct: (100 * sum(steady, ({ dropped }) => dropped)) / sum(steady, ({ packets }) => packets),
    least_share: flows > 1 ? leastShare(run, isSteady) : null,
    ...(name === "fall" && {
      under_new_capacity_s: after(fall, follows(fall, rise, (one) => one.dropped === 0 && one.wait_ms < 100)),
      back_to_80_pct_s: after(rise, follows(rise, seconds, ({ kbps }) => kbps >= 0.8 * capacity[0][1])),
    }),
  };
}

noisyCamera();
const rows = [];
for (const [name, one] of Object.entries(CASES)) {
  if (!isWanted(name)) continue;
  const run = await load(scenario(one));
  const made = { what: one.what, exit_code: run.code, ...figures(name, one, run) };
  // Only whether it was measured.
  rows.push({ ...made, holds: run.code === 0 && made.used > 0.3 });
  console.log(rows.at(-1));
}
finish("senders", rows, { told: true });
