// Is one scenario measured alike on other servers? Only the target is changed: moim, Janus (VideoRoom and AudioBridge), LiveKit,
// MediaMTX (WHIP and WHEP).
//
// `forwarded`: a meeting of ten, sound and pictures; `mixed`: ten in a mixed room (LiveKit and MediaMTX have none). Each server has CPU 0, and the
// lab takes the other; three rounds in turn; the figures are medians. A row holds if each run passed and no metric is missing.
//
// `evidence-beside.sh forwarded mixed` runs those parts alone. Needs root. About 14 minutes. Writes target/evidence/beside.json, and the
// table of docs/beside.md to standard output.

import { finish, healthy, isWanted, median, serve, stayAwake } from "./evidence.mjs";
import * as janus from "./janus.mjs";
import * as livekit from "./livekit.mjs";
import * as mediamtx from "./mediamtx.mjs";

const ROUNDS = 3;
const scenario = (name, rooms, media) => (target) => `name: beside-${name}
${target}
duration: 40s
rooms: [${rooms}]
media: ${media}
join: { per_second: 5 }
thresholds: default
`;

async function atMoim(run) {
  const server = await serve({ wrap: ["taskset", "-c", "0"] });
  try {
    return await run(`target: { url: "${server.url}" }`);
  } finally {
    await server.stop();
  }
}

const MOIM = { name: "moim", at: atMoim };
const version = ({ version }) => version();
const COMMON = [
  ["loss_pct", "user_p95"],
  ["jitter_ms", "user_p95"],
  ["rtt_ms", "user_p95"],
  ["mouth_to_ear_ms", "p50"],
  ["mouth_to_ear_ms", "p95"],
  ["gap_ms", "p99"],
  ["mos_lq", "user_p5"],
  ["mos_cq", "user_p5"],
  ["join_to_first_audio_ms", "p50"],
];
const PICTURES = [
  ["join_to_first_frame_ms", "p50"],
  ["frames_per_second", "user_p5"],
  ["freeze_ratio", "user_p95"],
];
const PARTS = [
  {
    name: "forwarded",
    text: scenario("forwarded", "{ people: { bot: 10 } }", "{ audio: speech, video: 360p }"),
    metrics: [...COMMON, ...PICTURES],
    servers: [
      MOIM,
      { name: `Janus ${version(janus)}, VideoRoom`, at: janus.atJanus, by: janus },
      { name: `LiveKit ${version(livekit)}`, at: livekit.atLiveKit, by: livekit },
      { name: `MediaMTX ${version(mediamtx)}, WHIP`, at: mediamtx.atMediaMTX, by: mediamtx, optional: true },
    ],
  },
  {
    name: "mixed",
    text: scenario("mixed", "{ audio: mcu, video: none, people: { bot: 10 } }", "{ audio: speech, video: none }"),
    metrics: COMMON,
    servers: [MOIM, { name: `Janus ${version(janus)}, AudioBridge`, at: janus.atJanus, by: janus }],
  },
];

/** What a run says: its metrics, and what the server used. */
function figures({ code, summary }, metrics) {
  const all = metrics.map(([name, reduction]) => [`${name} ${reduction}`, summary?.metrics[name]?.[reduction] ?? null]);
  const cores = summary?.server?.cpu_cores ?? null;
  const packets = summary?.delivery?.packets_per_s ?? null;
  const us = cores === null || !packets ? null : (1e6 * cores) / packets;
  return { code, ...Object.fromEntries(all), server_cores: cores, us_per_packet_delivered: us, rss_mib: summary?.server?.rss_mib ?? null };
}

stayAwake(1500);
const rows = [];
for (const { name, text, metrics, servers } of PARTS.filter((part) => isWanted(part.name))) {
  const runs = new Map(servers.map((server) => [server, []]));
  for (let round = 0; round < ROUNDS; round++)
    for (const server of servers) {
      if (server.by && server.by.version() === null) continue;
      const run = await server.at((target) => healthy(text(target), { most: 3 }));
      runs.get(server).push(figures(run, metrics));
    }
  for (const [server, made] of runs) {
    if (made.length === 0) {
      console.error(`${server.name} is not here: ${server.by.INSTALL}`);
      if (!server.optional) rows.push({ what: name, server: server.name, holds: false });
      continue;
    }
    const middle = (key) => (made.some((one) => one[key] === null) ? null : median(made.map((one) => one[key])));
    const medians = Object.fromEntries(Object.keys(made[0]).map((key) => [key, middle(key)]));
    const codes = made.map(({ code }) => code);
    const missing = Object.keys(medians).filter((key) => medians[key] === null);
    const row = { what: name, server: server.name, ...medians, codes, missing, holds: codes.every((code) => code === 0) && missing.length === 0 };
    delete row.code;
    rows.push(row);
  }
}

/** A table of a part, as it stands in docs/beside.md. */
function table(part) {
  const own = rows.filter(({ what }) => what === part);
  const skipped = ["what", "server", "codes", "missing", "holds"];
  const keys = Object.keys(own[0] ?? {}).filter((key) => !skipped.includes(key));
  const figure = (value) => (value === null || value === undefined ? "–" : value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0));
  console.log(`\n| ${part} | ${own.map(({ server }) => server).join(" | ")} |\n|---|${own.map(() => "---:|").join("")}`);
  for (const key of keys) console.log(`| ${key.replaceAll("_", " ")} | ${own.map((row) => figure(row[key])).join(" | ")} |`);
}
[...new Set(rows.map(({ what }) => what))].forEach(table);
finish("beside", rows);
