// What a real Chromium does on networks of RFC 8867 as a sender, beside the server's own estimate (evidence-networks): pages
// that publish their camera are behind a link of the lab's, a bot without one receives them. In real time, one run each.
// Nothing must hold of Chromium: the figures are to compare with. Exits non-zero if one could not be measured. Writes
// target/evidence/senders.json. `evidence-senders.sh 5.1 fall` plays those alone. Takes about 8 minutes.

import { finish, isWanted, load } from "./evidence.mjs";

/** Seconds from a change until the flows are steady, and the length of a window of the record. */
const SETTLES_S = 15;
const WINDOW_S = 3;
/** Pages open within this time. */
const JOINING_S = 6;
const DELAY_MS = 50;

/** Kilobits a second from a second on, as in tests/networks/cases.rs; `flows` pages send at once. */
const CASES = {
  5.1: { what: "5.1 variable capacity", seconds: 100, capacity: [[0, 1000], [40, 2500], [60, 600], [80, 1000]], flows: 1 },
  5.2: {
    what: "5.2 variable, two flows",
    seconds: 125,
    capacity: [[0, 4000], [25, 2000], [50, 3500], [75, 1000], [100, 2000]],
    flows: 2,
  },
  5.4: { what: "5.4 same kind", seconds: 100, capacity: [[0, 3500]], flows: 3 },
  fall: { what: "a fall to a third, and back", seconds: 90, capacity: [[0, 3000], [30, 1000], [50, 3000]], flows: 1 },
};

const up = (kbps) => `up: { rate_kbps: ${kbps}, queue: 300ms, delay: ${DELAY_MS}ms }, down: { delay: ${DELAY_MS}ms }`;

const scenario = ({ seconds, capacity, flows }) => `name: senders
serve: { cpus: shared }
duration: ${JOINING_S + seconds}s
rooms:
  - { audio: sfu, video: sfu, people: { chromium: ${flows}, bot: 1 }, roles: [
      { name: sends, weight: ${flows} }, { name: listens, weight: 1, audio: false, video: false }] }
media: { audio: speech, video: 1080p }
networks:
  - { name: thin, share_pct: ${(100 * flows) / (flows + 1)}, shared: true, ${up(capacity[0][1])},
      changes: [${capacity.slice(1).map(([at, kbps]) => `{ at: ${JOINING_S + at}s, ${up(kbps)} }`).join(", ")}] }
`;

const percentile = (values, share) => values.toSorted((a, b) => a - b)[Math.floor(share * (values.length - 1))];

for (const [name, one] of Object.entries(CASES)) {
  if (!isWanted(name)) continue;
  const run = await load(scenario(one), { flags: process.env.MOIM_FLAGS?.split(" ") ?? [] });
  console.log(name, run.code, JSON.stringify(run.summary?.bottleneck));
  for (const { t_ms, person_links } of run.machine)
    console.log(t_ms, JSON.stringify(person_links?.map(({ person, way, mbit_per_s, limit_mbit_per_s, delay_ms, dropped, packets }) => [person, way, mbit_per_s, limit_mbit_per_s, delay_ms, dropped, packets])));
}
