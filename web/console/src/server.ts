// What the server's own metrics (Prometheus text of `/metrics`) tell of it between two readings.

/** All series at a time, by name and labels as they stand in the text. */
export interface Reading {
  atMs: number;
  series: Map<string, number>;
}

/** What the server did between two readings; rates are a second. */
export interface ServerFigures {
  atMs: number;
  /** Cores in use by all threads. */
  cores: number;
  /** Cores in use by each thread, the busiest first. */
  threads: { name: string; cores: number }[];
  /** Media, without UDP and IP headers. */
  bitsIn: number;
  bitsOut: number;
  packetsIn: number;
  packetsOut: number;
  /** What was discarded, by place and reason, the most first. */
  drops: { what: string; rate: number }[];
  memoryBytes: number | null;
}

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;

/** Reads the text; lines of another form are left out. */
export function read(text: string, atMs: number): Reading {
  const series = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    const number = Number(value);
    if (name !== undefined && Number.isFinite(number)) series.set(`${name}{${labels}}`, number);
  }
  return { atMs, series };
}

/** What is between two readings. None if the server began anew, or there is no time between. */
export function between(before: Reading, now: Reading): ServerFigures | null {
  const seconds = (now.atMs - before.atMs) / 1000;
  const [started, cpu] = ["process_start_time_seconds{}", "process_cpu_seconds_total{}"];
  const isAnother = before.series.get(started) !== now.series.get(started);
  const fell = (now.series.get(cpu) ?? 0) < (before.series.get(cpu) ?? 0);
  if (seconds <= 0 || isAnother || fell) return null;
  const rates = (name: string): { labels: string; rate: number }[] =>
    [...now.series]
      .filter(([key]) => key.startsWith(`${name}{`))
      .map(([key, value]) => ({
        labels: key.slice(name.length + 1, -1),
        rate: Math.max(0, value - (before.series.get(key) ?? 0)) / seconds,
      }));
  const total = (name: string) => rates(name).reduce((sum, { rate }) => sum + rate, 0);
  const by =
    <T>(pick: (one: T) => number) =>
    (a: T, b: T) =>
      pick(b) - pick(a);
  const threads = rates("moim_thread_cpu_seconds_total")
    .map(({ labels, rate }) => ({ name: label(labels, "thread"), cores: rate }))
    .sort(by(({ cores }) => cores));
  const drops = rates("moim_dropped_total")
    .filter(({ rate }) => rate > 0)
    .map(({ labels, rate }) => ({ what: `${label(labels, "where")}: ${label(labels, "reason")}`, rate }))
    .sort(by(({ rate }) => rate));
  return {
    atMs: now.atMs,
    cores: total("process_cpu_seconds_total"),
    threads,
    bitsIn: 8 * total("moim_media_bytes_in_total"),
    bitsOut: 8 * total("moim_media_bytes_out_total"),
    packetsIn: total("moim_media_packets_in_total"),
    packetsOut: total("moim_media_packets_out_total"),
    drops,
    memoryBytes: now.series.get("process_resident_memory_bytes{}") ?? null,
  };
}

function label(labels: string, name: string): string {
  return new RegExp(`(?:^|,)${name}="([^"]*)"`).exec(labels)?.[1] ?? "";
}

/** Bits a second, for people. */
export function bitrate(bits: number): string {
  if (bits >= 1e9) return `${(bits / 1e9).toFixed(2)} Gbit/s`;
  if (bits >= 1e6) return `${(bits / 1e6).toFixed(1)} Mbit/s`;
  return `${(bits / 1e3).toFixed(0)} kbit/s`;
}
