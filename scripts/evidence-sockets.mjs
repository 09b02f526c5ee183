// 100 connections at 42 500 pings a second for 30 s: at least 99 % of the offer is sent and every
// ping is answered. Then 5 000 connections that only stay for 60 s: none is closed. The lab starts
// the server for each, on CPUs of its own, and its own health
// must be good. Writes target/evidence/sockets.json.

import { finish, healthy } from "./evidence.mjs";

const rows = [];

// 1 s of arrivals, 1 s to settle, 30 s that count, 2 s for the last answers.
const busy = await healthy(`name: pings
serve: {}
duration: 34s
sockets: [{ connections: 100, arrival_per_second: 100, rate_per_second: 425 }]
`);
const pings = busy.summary?.sockets?.[0];
const steady = pings?.steady;
rows.push({
  what: "100 connections, 42 500 pings/s for 30 s",
  exit_code: busy.code,
  tries: busy.tries,
  generator: busy.summary?.generator ?? null,
  connected: pings?.connected ?? null,
  closed: pings?.closed ?? null,
  seconds: steady?.seconds ?? null,
  offered: steady?.offered ?? null,
  made_pct: steady ? (100 * steady.made) / steady.offered : null,
  answered_of_made_pct: steady ? (100 * steady.answered) / steady.made : null,
  latency_p50_ms: steady?.latency?.p50_ms ?? null,
  latency_p99_ms: steady?.latency?.p99_ms ?? null,
  counts_not_rising: pings?.counts_not_rising ?? null,
  server_cpu_cores: busy.summary?.server?.cpu_cores ?? null,
  holds:
    busy.code === 0 &&
    pings?.connected === 100 &&
    Object.keys(pings.closed).length === 0 &&
    steady?.offered >= 42_500 * 29.5 &&
    steady.made >= 0.99 * steady.offered &&
    steady.answered === steady.made &&
    pings.counts_not_rising === 0,
});

// 10 s of arrivals, 60 s of all of them.
const idle = await healthy(`name: idle
serve: {}
duration: 72s
sockets: [{ connections: 5000, arrival_per_second: 500, rate_per_second: 0 }]
`);
const stay = idle.summary?.sockets?.[0];
rows.push({
  what: "5 000 connections that only stay, 60 s",
  exit_code: idle.code,
  tries: idle.tries,
  connected: stay?.connected ?? null,
  live_at_the_end: stay?.live ?? null,
  closed: stay?.closed ?? null,
  kib_per_connection: stay?.kib_per_connection ?? null,
  server_rss_mib: stay?.server_rss_mib ?? null,
  connect_p99_ms: stay?.connect?.p99_ms ?? null,
  holds:
    idle.code === 0 &&
    stay?.connected === 5000 &&
    stay.live === 5000 &&
    Object.keys(stay.closed).length === 0 &&
    stay.kib_per_connection > 0,
});
finish("sockets", rows);
