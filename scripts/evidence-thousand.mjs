// A thousand people of sound in rooms of three, for two minutes after the last has joined, on this machine:
// the generator must be healthy by its own rules. What a packet costs a bot, and what the server lost, is
// printed; `make bench-bots` holds it against a plain client. Repeated twice at most where the generator was at its limit
// (exit 110): this machine's host takes CPU away at times. Writes target/evidence/thousand.json.

import { finish, healthy } from "./evidence.mjs";

const ROOMS = 334;
const PER_SECOND = 10;
const JOINING_S = Math.ceil((3 * ROOMS) / PER_SECOND);
const TRIES = Number(process.env.TRIES ?? 3);

const scenario = `name: thousand
serve: { cpus: shared, shards: 2 }
duration: ${JOINING_S + 125}s
rooms: [{ count: ${ROOMS}, audio: sfu, video: none, people: { bot: 3 } }]
media: { audio: speech, video: none }
join: { per_second: ${PER_SECOND} }
`;

const { code, summary, tries } = await healthy(scenario, { most: TRIES });
if (!summary) throw new Error(`the lab ended with ${code} and no summary`);
const { generator, server, metrics } = summary;
const row = {
  what: `${3 * ROOMS} bots of sound in rooms of three, ${summary.duration_s} s`,
  exit_code: code,
  tries,
  people: summary.people,
  subscriptions: summary.subscriptions,
  packets_per_s: generator.packets_per_s,
  us_per_packet: generator.us_per_packet,
  bots_cores: Object.entries(generator.threads)
    .filter(([name]) => name.startsWith("bots-"))
    .map(([, cores]) => cores),
  timer_lag_ms_p99: generator.timer_lag_ms_p99,
  generator_reasons: generator.reasons,
  server_cores: server?.cpu_cores,
  server_us_per_packet_out: server?.us_per_packet_out,
  loss_pct_user_p95: metrics.loss_pct?.user_p95,
  holds: code === 0 && summary.people === 3 * ROOMS && generator.healthy,
};
finish("thousand", [row]);
