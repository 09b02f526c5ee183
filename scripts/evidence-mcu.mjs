// 100 bots, each with a tone of its own, in one mixed room for a minute; who is loudest changes
// every 2 s. Ten listeners at a time decode what they hear and compare it with the plan. Once over
// one shard and once over two, between which people alternate as they join: every second one is
// loud in turn there and the others listen, so that all who are heard are on the other shard, which
// its counters must show. A run counts only with a healthy generator and is repeated once if not.
// Writes target/evidence/mcu.json.

import { finish, healthy } from "./evidence.mjs";

const JOINS_PER_SECOND = 20;

const rows = [];
for (const shards of [1, 2]) {
  const { code, summary, tries } = await healthy(`name: mcu-${shards}
serve: { shards: ${shards}, keep_together: 1 }
duration: 70s
rooms: [{ preset: audio_room, people: { bot: 100 }, loud: ${shards === 1 ? "anyone" : "every_second"} }]
media: { audio: tone, video: none }
join: { per_second: ${JOINS_PER_SECOND} }
`);
  const mix = summary?.server?.mix ?? {};
  const ticks = mix.moim_mix_ticks_total ?? 0;
  const late = mix.moim_mix_ticks_late_total ?? 0;
  const loss = summary?.metrics?.loss_pct;
  // Who is heard is decoded on their own shard alone: of the listeners' shard only while people come,
  // when quiet ones are the loudest there are.
  const decoded = [0, 1].map(
    (shard) => mix[`moim_mix_decoded_total mix-${shard}`] ?? 0,
  );
  const apart =
    shards === 1 ||
    Math.min(...decoded) <= (100 / JOINS_PER_SECOND + 1) * 3 * 50;
  rows.push({
    what: `100 tones over ${shards === 1 ? "one shard" : "two shards, all who are loud on the other"}`,
    exit_code: code,
    tries,
    people: summary?.people ?? null,
    loss_pct_max: loss?.max ?? null,
    mix_windows: summary?.mix_windows ?? null,
    mix_windows_wrong: summary?.mix_windows_wrong ?? null,
    decoded_by_shard: decoded,
    ticks,
    ticks_late: late,
    ticks_late_pct: ticks > 0 ? (100 * late) / ticks : null,
    mix,
    server_cpu_cores: summary?.server?.cpu_cores ?? null,
    server_threads: summary?.server?.threads ?? null,
    generator: summary?.generator ?? null,
    failures: (summary?.failures ?? []).slice(0, 5),
    holds:
      code === 0 &&
      summary?.people === 100 &&
      apart &&
      loss?.max === 0 &&
      summary.mix_windows > 0 &&
      summary.mix_windows_wrong === 0 &&
      ticks > 0 &&
      late <= 0.001 * ticks,
  });
}
finish("mcu", rows);
