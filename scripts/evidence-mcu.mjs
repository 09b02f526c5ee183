// 100 bots, each with a tone of its own, in one mixed room for a minute; who is loudest changes
// every 2 s. Ten listeners at a time decode what they hear and compare it with the plan. Once over
// one shard and once over two, between which people alternate as they join, so that everyone hears
// voices of the other one. Writes target/evidence/mcu.json.

import { finish, load, loadavg } from "./evidence.mjs";

const before = loadavg();
const rows = [];
for (const shards of [1, 2]) {
  const { code, summary } = await load(`name: mcu-${shards}
serve: { shards: ${shards} }
duration: 75s
rooms: [{ preset: audio_room, people: { bot: 100 } }]
media: { audio: tone, video: none }
join: { per_second: 10 }
`);
  const mix = summary?.server?.mix ?? {};
  const ticks = mix.moim_mix_ticks_total ?? 0;
  const late = mix.moim_mix_ticks_late_total ?? 0;
  const loss = summary?.metrics?.loss_pct;
  rows.push({
    what: `100 tones over ${shards === 1 ? "one shard" : "two shards"}`,
    exit_code: code,
    people: summary?.people ?? null,
    loss_pct_max: loss?.max ?? null,
    mix_windows: summary?.mix_windows ?? null,
    mix_windows_wrong: summary?.mix_windows_wrong ?? null,
    ticks,
    ticks_late: late,
    ticks_late_pct: ticks > 0 ? (100 * late) / ticks : null,
    mix,
    server_cpu_cores: summary?.server?.cpu_cores ?? null,
    server_threads: summary?.server?.threads ?? null,
    generator: summary?.generator ?? null,
    failures: (summary?.failures ?? []).slice(0, 5),
    holds:
      summary?.people === 100 &&
      loss?.max === 0 &&
      summary.mix_windows > 0 &&
      summary.mix_windows_wrong === 0 &&
      ticks > 0 &&
      late <= 0.001 * ticks,
  });
}
finish("mcu", rows, before);
