import { FIGURES, type MachineRow, type RunRecord, type Sample, SAMPLE_MS } from "../src/record.ts";

/** A sample in which nothing else was measured. */
export function sampleOf(person: string, t_ms: number, some: Partial<Sample> = {}): Sample {
  const none = Object.fromEntries(FIGURES.map((figure) => [figure, null])) as Record<
    (typeof FIGURES)[number],
    null
  >;
  return { ...none, t_ms, person, kind: "bot", lost: 0, came: 0, repeated: null, pictures: 0, ...some };
}

/**
 * A run of ten people for a minute, with a server that struggles from 30 s on and one person, bot-3, with a bad path:
 * they get the smallest layer, from 30 s on only six of nine pictures, and are told an estimate.
 */
export function sampleRecord(): RunRecord {
  let seed = 7;
  const random = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed / 2_147_483_648;
  };
  const people = Array.from({ length: 10 }, (_, i) =>
    i < 8
      ? { name: `bot-${i}`, kind: "bot", room: "room-0", participant: `p-${i}` }
      : { name: `chromium-${i - 8}`, kind: "chromium", room: "room-0", participant: `p-${i}` },
  );
  const samples: Sample[] = [];
  const machine: MachineRow[] = [];
  for (let t = 3_000; t <= 60_000; t += 3_000) {
    const strained = t > 30_000 ? 1 : 0;
    for (const [index, person] of people.entries()) {
      const bad = index === 3;
      const loss = bad ? 0.04 + 0.02 * random() : 0.004 * strained * random();
      // Of nine voices and nine pictures.
      const expected = 9 * (150 + 210);
      const lost = Math.round(expected * loss * 2 * random());
      const paused = bad && strained === 1 ? 3 / 9 : 0;
      samples.push(
        sampleOf(person.name, t + index * 7, {
          kind: person.kind,
          lost,
          came: expected - lost,
          repeated: bad ? 9 * 21 : 0,
          pictures: 9 * (210 + (bad ? 21 : 0)),
          jitter_ms: 1 + random() + strained * 3 + (bad ? 9 : 0),
          frames_per_second: (1 - paused) * (20 - random() - strained * 3),
          frame_height: bad ? 180 : 480,
          paused_ratio: paused,
          freeze_ratio: bad ? 0.03 : 0,
          mos_lq: bad ? 3.3 : 4.3 - strained * 0.1 * random(),
          bitrate_kbps: 9 * 631,
          rtt_ms: 0.5 + random() * 0.4 + strained * 4 * random() + (bad ? 30 : 0),
          estimate_kbps: bad ? (strained ? 700 : 1400) : null,
        }),
      );
    }
    machine.push({
      t_ms: t,
      server: {
        cpu_cores: 0.4,
        threads: {
          "media-0": 0.3 + 0.5 * strained + 0.02 * random(),
          "control-0": 0.03,
          "signaling-0": 0.02 + 0.01 * random(),
          main: 0.001,
        },
        rss_mib: 42,
        packets_in_per_s: 1_200,
        packets_out_per_s: 10_800,
        mbit_in_per_s: 6.1,
        mbit_out_per_s: 55,
        drops: {},
      },
      generator: {
        cpu_cores: 0.9,
        threads: { bots: 0.25 + 0.02 * random(), tokio: 0.05, chromium: 0.6 + 0.1 * random() },
        timer_lag_ms_p99: 0.4 + random(),
      },
    });
  }
  return {
    meta: {
      schema: 1,
      name: "first-room",
      started_at: "2026-11-21T21:40:00Z",
      duration_s: 60,
      target: { adapter: "moim", url: "http://127.0.0.1:7880" },
      version: "0.1.0",
      scenario:
        "name: first-room\nduration: 60s\nrooms: [{ count: 1, audio: sfu, video: sfu, people: { bot: 8, chromium: 2 } }]\n",
      people,
      machine: { cpu: "AMD EPYC 7B13", cores: 2, kernel: "6.1.0", load_average: [0.52, 0.4, 0.3] },
    },
    summary: {
      schema: 1,
      verdict: "fail",
      exit_code: 99,
      people: 10,
      subscriptions: 180,
      duration_s: 60,
      metrics: {
        loss_pct: { p50: 0, p95: 4.1, p99: 5.2, max: 6.1, user_p5: 0, user_p95: 4.02, n: 190 },
        mos_lq: {
          p50: 4.28,
          p95: 4.3,
          p99: 4.3,
          max: 4.3,
          user_p5: 3.3,
          user_p95: 4.3,
          n: 190,
          model: "Opus 31",
        },
        mos_cq: null,
        rtt_ms: { p50: 0.8, p95: 31.2, p99: 33, max: 34.4, user_p5: 0.6, user_p95: 31.1, n: 190 },
        frames_per_second: { p50: 19.1, p95: 19.9, p99: 20, max: 20, user_p5: 17.9, user_p95: 19.4, n: 190 },
        join_to_first_frame_ms: { p50: 310, p95: 540, p99: 560, max: 560, n: 10 },
      },
      thresholds: [
        { expr: "loss_pct user_p95 < 1", ok: false, value: 4.02 },
        { expr: "rtt_ms p50 < 50", ok: true, value: 0.8 },
      ],
      checks: [
        { name: "all joined", ok: true, detail: "10 of 10" },
        { name: "every subscription alive", ok: false, detail: "nobody receives video of bot-7 since 21 s" },
      ],
      failures: ["loss_pct user_p95 is 4.02, not < 1", "nobody receives video of bot-7 since 21 s"],
      bottleneck: { first: "thread", second: null, state: "suspected", evidence: ["media-0 at 0.97 cores"] },
      server: {
        cpu_cores: 0.62,
        us_per_packet_out: 2.41,
        threads: { "media-0": 0.55, "control-0": 0.03, "signaling-0": 0.02, main: 0.001 },
        drops: { rtp_replayed: 3, sealed_twice: 0 },
        rss_mib: 42.3,
      },
      generator: {
        healthy: true,
        cpu_cores: 0.93,
        timer_lag_ms_p99: 1.2,
        threads: { chromium: 0.64, bots: 0.26, tokio: 0.05 },
      },
    },
    samples,
    window_ms: SAMPLE_MS,
    worst: [],
    machine,
    events: [
      { t_ms: 900, text: "all joined", level: "info" },
      { t_ms: 21_000, text: "bot-7 stops its video", person: "bot-7", level: "warn" },
      { t_ms: 24_000, text: "nobody receives video of bot-7 since 21 s", level: "error" },
    ],
  };
}
