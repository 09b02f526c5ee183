/** The record of a run, as the lab puts it into this page. Old records may lack keys: all of it may be missing. */

export interface Meta {
  cpus?: { server?: number[]; generator?: number[]; disjoint?: boolean } | null;
  schema?: number;
  name?: string;
  started_at?: string;
  duration_s?: number;
  target?: { adapter?: string; url?: string };
  version?: string;
  scenario?: string;
  fault?: string | null;
  people?: Person[];
  machine?: Machine;
}

export interface Person {
  name: string;
  kind: string;
  room?: string;
  role?: string | null;
  participant?: string | null;
}

export interface Machine {
  cpu?: string;
  cores?: number;
  kernel?: string;
  load_average?: number[];
  versions?: Record<string, string>;
}

/** One metric of the summary; null where nobody could measure. */
export type Metric = {
  [key in "p50" | "p95" | "p99" | "max" | "user_p1" | "user_p5" | "user_p95" | "n"]?: number | null;
} & { model?: string; delay?: string };

/** A cell of a study: a number, or a word, or null with a reason. */
export interface StudyCell {
  value?: number | null;
  word?: string;
  reason?: string;
}

/** A row of a study: our figures by column, and the study's own. */
export interface StudyRow {
  table: string;
  name: string;
  cells?: Record<string, StudyCell>;
  reference?: Record<string, number>;
  notes?: string[];
}

export interface StudyTable {
  id: string;
  title: string;
  hint?: string;
  columns: { key: string; title: string; digits?: number }[];
}

export interface StudyPlot {
  title: string;
  unit: string;
  x_title: string;
  x: number[];
  lines: { label: string; values: (number | null)[] }[];
}

/** What belongs to a study's rows. */
export interface StudyAbout {
  title?: string;
  text?: string;
  theirs?: string;
  ours?: string;
  quick?: boolean;
  tables?: StudyTable[];
  plots?: StudyPlot[];
  shown?: string[];
  not_shown?: string[];
  sessions?: string[];
}

/** What came of people who come and go. */
export interface Churn {
  loops?: number;
  failures?: Record<string, number>;
  arrived?: number | null;
  dropped?: number | null;
  join_to_first_audio_ms_p50?: number | null;
  join_to_first_audio_ms_max?: number | null;
}

export interface Summary {
  study?: StudyRow[] | null;
  study_about?: StudyAbout | null;
  schema?: number;
  verdict?: "pass" | "fail" | "inconclusive";
  exit_code?: number;
  quality?: "stable" | "caution" | "danger" | null;
  people?: number;
  subscriptions?: number;
  duration_s?: number;
  metrics?: Record<string, Metric | null>;
  thresholds?: { metric?: string; expr: string; ok: boolean; value?: number | null }[];
  bottleneck?: {
    first?: string | null;
    second?: string | null;
    state?: string | null;
    person?: string | null;
    evidence?: unknown[];
  } | null;
  server?: {
    cpu_cores?: number | null;
    us_per_packet_out?: number | null;
    threads?: Record<string, number>;
    drops?: Record<string, number>;
    rss_mib?: number | null;
  } | null;
  generator?: {
    healthy?: boolean;
    cpu_cores?: number | null;
    timer_lag_ms_p99?: number | null;
    threads?: Record<string, number>;
    reasons?: string[];
  } | null;
  churn?: Churn | null;
  browsers_churn?: Churn | null;
  sockets?: SocketGroup[];
  networks?: { name: string; up: LinkFigures; down: LinkFigures }[];
  machine?: Machine;
  failures?: string[];
  /** What the verdict says nothing of. */
  not_judged?: string[];
  checks?: { name: string; ok: boolean; detail?: string }[];
}

/** Latency of pings, in milliseconds, from when each was due. */
export interface SocketLatency {
  p50_ms: number;
  p99_ms: number;
  max_ms: number;
}

/** A second of a group of sockets; its counts are of the time since the row before. */
export interface SocketSecond {
  t_s: number;
  live: number;
  offered: number;
  answered: number;
  p50_ms?: number | null;
  p99_ms?: number | null;
}

/** A group of sockets without a room over the whole run. */
export interface SocketGroup {
  connections: number;
  connected: number;
  live: number;
  arrival_per_second?: number;
  rate_per_second?: number;
  connect?: SocketLatency | null;
  closed?: Record<string, number>;
  failed?: Record<string, number>;
  whole?: {
    seconds: number;
    offered: number;
    made: number;
    answered: number;
    latency?: SocketLatency | null;
  } | null;
  kib_per_connection?: number | null;
  by_hand?: { pings: number; answered: number; lost: number; latency?: SocketLatency | null } | null;
  seconds?: SocketSecond[];
}

/** What a direction of a link did with media. */
export interface LinkFigures {
  packets?: number;
  loss_pct?: number | null;
  delay_ms?: number | null;
  jitter_ms?: number | null;
}

/** A sample is of so many milliseconds, unless the lab has drawn several together. */
export const SAMPLE_MS = 3_000;

/**
 * What is measured of a person in a sample; null where nobody measured it. Of several tracks it is the mean, but all that
 * came together for the bitrate.
 */
export const FIGURES = [
  "mos_cq",
  "mos_lq",
  "rtt_ms",
  "estimate_kbps",
  "jitter_ms",
  "gap_ms",
  "jitter_buffer_ms",
  "transit_ms",
  "mouth_to_ear_ms",
  "camera_to_screen_ms",
  "frames_per_second",
  "frame_height",
  "freeze_ratio",
  "paused_ratio",
  "bitrate_kbps",
] as const;
export type Figure = (typeof FIGURES)[number];

/** A person's sample, or several in a row that the lab has drawn together. */
export interface Sample extends Record<Figure, number | null> {
  t_ms: number;
  person: string;
  kind: string;
  /** Packets. */
  lost: number;
  came: number;
  /** Packets of pictures that came again; null where nobody counts them. */
  repeated: number | null;
  /** Those, and all others of pictures. */
  pictures: number;
}

/** Samples in columns, as they stand in the page. */
interface Table {
  person: number[];
  t_ms: number[];
  lost: number[];
  came: number[];
  repeated: (number | null)[];
  pictures: number[];
  figures: Partial<Record<Figure, (number | null)[]>>;
}

interface Packed {
  samples: { people: { name: string; kind: string }[]; window_ms: number; rows: Table; worst: Table };
  machine: MachineRow[];
  events: RunEvent[];
}

export interface MachineRow {
  t_ms: number;
  server?: {
    cpu_cores?: number | null;
    threads?: Record<string, number>;
    rss_mib?: number | null;
    packets_in_per_s?: number | null;
    packets_out_per_s?: number | null;
    mbit_in_per_s?: number | null;
    mbit_out_per_s?: number | null;
    drops?: Record<string, number>;
  } | null;
  generator?: {
    cpu_cores?: number | null;
    threads?: Record<string, number>;
    timer_lag_ms_p99?: number | null;
  } | null;
}

export interface RunEvent {
  t_ms: number;
  text: string;
  person?: string | null;
  level?: "info" | "warn" | "error";
}

export interface RunRecord {
  meta: Meta;
  summary: Summary;
  samples: Sample[];
  /** A sample is of so many milliseconds. */
  window_ms: number;
  /** Where samples were drawn together, those of the worst people as they were. */
  worst: Sample[];
  machine: MachineRow[];
  events: RunEvent[];
}

/**
 * Reads the record's text.
 * @returns null where the page is the empty template; throws where the text is no record
 */
export async function readRecord(text: string): Promise<RunRecord | null> {
  const data: unknown = JSON.parse(text);
  if (typeof data !== "object" || data === null) return null;
  const { meta, summary, packed } = data as { meta: Meta; summary: Summary; packed: string };
  const { samples, machine, events } = await unpack(packed);
  const of = (table: Table) => rowsOf(table, samples.people);
  const { window_ms } = samples;
  return { meta, summary, samples: of(samples.rows), window_ms, worst: of(samples.worst), machine, events };
}

/** What is long is gzip in Base64. */
async function unpack(packed: string): Promise<Packed> {
  const bytes = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as Packed;
}

function rowsOf({ figures, ...table }: Table, people: Packed["samples"]["people"]): Sample[] {
  return table.person.map((place, at) => {
    const { name = "", kind = "" } = people[place] ?? {};
    const sample = {
      t_ms: table.t_ms[at]!,
      person: name,
      kind,
      lost: table.lost[at]!,
      came: table.came[at]!,
      repeated: table.repeated[at] ?? null,
      pictures: table.pictures[at]!,
    } as Sample;
    for (const figure of FIGURES) sample[figure] = figures[figure]?.[at] ?? null;
    return sample;
  });
}
