/** From samples to lines and table rows. Pure. A value that nobody measured is null and makes a gap. */
import {
  type Figure,
  type MachineRow,
  type RunRecord,
  type Sample,
  SAMPLE_MS,
  type SocketSecond,
} from "./record.ts";

export type Points = (number | null)[];

/** A line of a chart. */
export interface Line {
  label: string;
  values: Points;
}

/** Lines over one time axis, in seconds since the run began. */
export interface Lines {
  seconds: number[];
  lines: Line[];
}

/** What of a person a chart shows. */
export type Reduction = (sample: Sample) => number | null;

/** Loss over all that a person received, in percent. */
export const lossPct = ({ lost, came }: Pick<Sample, "lost" | "came">) =>
  lost + came > 0 ? (100 * lost) / (lost + came) : null;

export function figureOf(figure: Figure): Reduction {
  return (sample) => sample[figure];
}

/** The same of a ratio, in percent. */
export function percentOf(figure: Figure): Reduction {
  return ({ [figure]: ratio }) => (ratio === null ? null : 100 * ratio);
}

/** What the server estimates that the way to a person carries, in Mbit/s; it tells only people on limited paths. */
export const estimateMbps: Reduction = ({ estimate_kbps }) =>
  estimate_kbps === null ? null : estimate_kbps / 1000;

/** Packets that came as retransmissions, of all packets of pictures that came, in percent. */
export const retransmittedPct: Reduction = ({ repeated, pictures }) =>
  repeated === null || pictures === 0 ? null : (100 * repeated) / pictures;

/** Which window of the run a time is in. Samples end a little after the end of theirs; of several together it is the last. */
export function windowOf(t_ms: number, window_ms: number): number {
  return window_ms > SAMPLE_MS ? Math.ceil(t_ms / window_ms) : Math.round(t_ms / window_ms);
}

/** The people's values at each point in time. */
export function byTime(
  samples: readonly Sample[],
  window_ms: number,
  reduce: Reduction,
): Map<number, number[]> {
  const buckets = new Map<number, number[]>();
  for (const sample of samples) {
    const bucket = windowOf(sample.t_ms, window_ms);
    const values = buckets.get(bucket) ?? [];
    if (!buckets.has(bucket)) buckets.set(bucket, values);
    const value = reduce(sample);
    if (value !== null) values.push(value);
  }
  return new Map([...buckets].sort(([a], [b]) => a - b));
}

/**
 * Median and worst person over time.
 * @param worst which end is bad
 * @param p95 adds the 95th percentile
 */
export function qualityLines(
  { samples, window_ms }: Pick<RunRecord, "samples" | "window_ms">,
  reduce: Reduction,
  worst: "highest" | "lowest",
  p95 = false,
): Lines {
  const buckets = byTime(samples, window_ms, reduce);
  const line = (label: string, pick: (values: number[]) => number | null): Line => ({
    label,
    values: [...buckets.values()].map((values) => pick(values)),
  });
  const lines = [line("median", (values) => quantile(values, 0.5))];
  if (p95) lines.push(line("p95", (values) => quantile(values, 0.95)));
  lines.push(line("worst", (values) => quantile(values, worst === "highest" ? 1 : 0)));
  return { seconds: secondsOf(buckets, window_ms), lines };
}

/** The median person's figures over time, each by itself. */
export function medianLines(
  { samples, window_ms }: Pick<RunRecord, "samples" | "window_ms">,
  figures: [label: string, reduce: Reduction][],
): Lines {
  const all = figures.map(([label, reduce]) => ({ label, buckets: byTime(samples, window_ms, reduce) }));
  const lines = all
    .map(({ label, buckets }) => ({
      label,
      values: [...buckets.values()].map((values) => quantile(values, 0.5)),
    }))
    .filter(({ values }) => values.some((value) => value !== null));
  return { seconds: secondsOf(all[0]?.buckets ?? new Map(), window_ms), lines };
}

/** How many people have samples at each point in time. */
export function peopleLine({ samples, window_ms }: Pick<RunRecord, "samples" | "window_ms">): Lines {
  const people = new Map<number, Set<string>>();
  for (const { t_ms, person } of samples) {
    const bucket = windowOf(t_ms, window_ms);
    people.set(bucket, (people.get(bucket) ?? new Set()).add(person));
  }
  const sorted = new Map([...people].sort(([a], [b]) => a - b));
  const values = [...sorted.values()].map(({ size }) => size);
  return { seconds: secondsOf(sorted, window_ms), lines: [{ label: "people", values }] };
}

function secondsOf(buckets: Map<number, unknown>, window_ms: number): number[] {
  return [...buckets.keys()].map((bucket) => (bucket * window_ms) / 1000);
}

/** Each person's median over their samples; those without a value are left out. */
export function personMedians(samples: readonly Sample[], reduce: Reduction): Map<string, number> {
  const values = new Map<string, number[]>();
  for (const sample of samples) {
    const value = reduce(sample);
    if (value === null) continue;
    const own = values.get(sample.person);
    if (own) own.push(value);
    else values.set(sample.person, [value]);
  }
  return new Map([...values].map(([person, own]) => [person, quantile(own, 0.5)!]));
}

/** CPU of each thread over time; beyond `most` threads the least busy are summed as `others`. */
export function threadLines(rows: readonly MachineRow[], side: "server" | "generator", most = 7): Lines {
  const sums = new Map<string, number>();
  for (const row of rows)
    for (const [name, cores] of Object.entries(row[side]?.threads ?? {}))
      sums.set(name, (sums.get(name) ?? 0) + cores);
  const names = [...sums].sort(([, a], [, b]) => b - a).map(([name]) => name);
  const shown = names.slice(0, names.length > most ? most - 1 : most);
  const rest = names.slice(shown.length);
  const lines = shown.map((name) => ({
    label: name,
    values: rows.map((row) => (row[side] ? (row[side].threads?.[name] ?? 0) : null)),
  }));
  if (rest.length > 0)
    lines.push({
      label: `${rest.length} others`,
      values: rows.map((row) =>
        row[side] ? rest.reduce((sum, name) => sum + (row[side]?.threads?.[name] ?? 0), 0) : null,
      ),
    });
  return { seconds: rows.map((row) => row.t_ms / 1000), lines };
}

/** Lines of plain fields of the server or the generator. */
export function machineLines(
  rows: readonly MachineRow[],
  fields: [label: string, pick: (row: MachineRow) => number | null | undefined][],
): Lines {
  return {
    seconds: rows.map((row) => row.t_ms / 1000),
    lines: fields.map(([label, pick]) => ({ label, values: rows.map((row) => pick(row) ?? null) })),
  };
}

/** Lines of a group of sockets. A row's counts become rates by `perSecond`: its length is the time since the row before. */
export function socketLines(
  rows: readonly SocketSecond[],
  fields: [label: string, pick: (row: SocketSecond, perSecond: number) => number | null | undefined][],
): Lines {
  const perSecond = rows.map((row, i) => 1 / (row.t_s - (rows[i - 1]?.t_s ?? 0)));
  return {
    seconds: rows.map((row) => row.t_s),
    lines: fields.map(([label, pick]) => ({
      label,
      values: rows.map((row, i) =>
        Number.isFinite(perSecond[i]) ? (pick(row, perSecond[i]!) ?? null) : null,
      ),
    })),
  };
}

/** Whether anybody measured anything. */
export function hasValues({ lines }: Lines): boolean {
  return lines.some((line) => line.values.some((value) => value !== null));
}

/** Places of the values that have a gap on either side: a line through them has no length. */
export function isolated(values: Points): number[] {
  const gap = (index: number) => (values[index] ?? null) === null;
  return [...values.keys()].filter((index) => !gap(index) && gap(index - 1) && gap(index + 1));
}

/** A person's figures over the whole run. */
export interface PersonRow {
  name: string;
  kind: string;
  room: string;
  role: string;
  samples: number;
  loss_pct: number | null;
  jitter_ms: number | null;
  rtt_ms: number | null;
  frames_per_second: number | null;
  freeze_ratio: number | null;
  mos_lq: number | null;
  mos_cq: number | null;
}

/**
 * The people, worst first. Loss is of all packets of the run; the others are medians over the person's samples.
 * The first sample is left out: it holds the time before media flowed.
 */
export function peopleRows({
  meta,
  samples,
  window_ms,
}: Pick<RunRecord, "meta" | "samples" | "window_ms">): PersonRow[] {
  const byPerson = new Map<string, Sample[]>();
  for (const sample of samples) {
    const list = byPerson.get(sample.person);
    if (list) list.push(sample);
    else byPerson.set(sample.person, [sample]);
  }
  const known = new Map((meta.people ?? []).map((person) => [person.name, person]));
  const names = new Set([...known.keys(), ...byPerson.keys()]);
  const rows = [...names].map((name): PersonRow => {
    const all = byPerson.get(name) ?? [];
    const later = window_ms > SAMPLE_MS ? all : all.slice(1);
    const sum = (of: "lost" | "came") => later.reduce((all, sample) => all + sample[of], 0);
    const median = (figure: Figure) => quantile(later.map((sample) => sample[figure]).filter(isNumber), 0.5);
    return {
      name,
      kind: known.get(name)?.kind ?? all[0]?.kind ?? "",
      room: known.get(name)?.room ?? "",
      role: known.get(name)?.role ?? "",
      samples: all.length,
      loss_pct: lossPct({ lost: sum("lost"), came: sum("came") }),
      jitter_ms: median("jitter_ms"),
      rtt_ms: median("rtt_ms"),
      frames_per_second: median("frames_per_second"),
      freeze_ratio: median("freeze_ratio"),
      mos_lq: median("mos_lq"),
      mos_cq: median("mos_cq"),
    };
  });
  return rows.sort(worstFirst);
}

/** People without any sample are the worst; then by MOS, then by loss. */
function worstFirst(a: PersonRow, b: PersonRow): number {
  const silent = Number(b.samples === 0) - Number(a.samples === 0);
  if (silent !== 0) return silent;
  const mos = (a.mos_lq ?? 5) - (b.mos_lq ?? 5);
  if (Math.abs(mos) > 1e-9) return mos;
  return (b.loss_pct ?? -1) - (a.loss_pct ?? -1) || a.name.localeCompare(b.name, "en", { numeric: true });
}

/** Nearest-rank quantile; null of nothing. */
export function quantile(values: readonly number[], q: number): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  if (q === 0.5 && Number.isInteger(middle)) return (sorted[middle - 1]! + sorted[middle]!) / 2;
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)]!;
}

export function mean(values: readonly number[]): number | null {
  return values.length === 0 ? null : values.reduce((a, b) => a + b, 0) / values.length;
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

/** The part of the time axis up to `end` that an address names, such as `#t=12.0-30.0`. */
export function zoomIn(hash: string, end: number): [number, number] | null {
  const found = /^#t=([0-9.]+)-([0-9.]+)$/.exec(hash);
  const [from, to] = [Number(found?.[1]), Number(found?.[2])];
  return from < Math.min(to, end) ? [from, Math.min(to, end)] : null;
}
