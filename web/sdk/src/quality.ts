import type { Stat } from "./paths.ts";
import { type Mapping, type SentLayer, type SentMapping, type Snapshot, StatsTracker } from "./stats.ts";
import { type MediaKind, type QualitySample, SAMPLE_INTERVAL_MS } from "./wire.ts";

/** Where statistics come from. */
export interface StatsSource {
  getStats(): Promise<ReadonlyMap<string, Stat>>;
}

/** How often is looked for the first media: `join_to_first_*` is at most this much too long. */
const FIRST_MEDIA_POLL_MS = 50;

/**
 * Takes a quality sample every 3 s and on demand. Each of the two has its own intervals. All reads of the
 * counters stand in one queue, so that a re-map splits the rows exactly where it was told.
 */
export class QualityMonitor {
  /** The latest periodic sample. */
  last: QualitySample | null = null;
  /** The layers of own pictures in the interval of {@link last}: what a sample sums up. */
  lastLayers: readonly SentLayer[] = [];
  /** Bytes that came from the server in the interval of {@link last}; null if the browser does not count them. */
  lastServerBytes: number | null = null;
  readonly #joinMs: number;
  readonly #onSample: (sample: QualitySample) => void;
  #source: StatsSource | null = null;
  #participant = "";
  #periodic: StatsTracker;
  #onDemand: StatsTracker;
  #queue: Promise<unknown> = Promise.resolve();
  #timer: ReturnType<typeof setInterval> | undefined;
  #poll: ReturnType<typeof setTimeout> | undefined;
  /** First media of each kind, and which tracker has told it. */
  readonly #first = new Map<MediaKind, { ms: number; told: Set<StatsTracker> }>();

  /** @param joinMs when joining was asked for, on the clock of `performance.now()` */
  constructor(joinMs: number, onSample: (sample: QualitySample) => void) {
    this.#joinMs = joinMs;
    this.#onSample = onSample;
    this.#periodic = new StatsTracker(joinMs);
    this.#onDemand = new StatsTracker(joinMs);
  }

  /** Begins, or begins anew with another peer. */
  start(participant: string, source: StatsSource): void {
    const begin = this.#source ? performance.now() : this.#joinMs;
    this.#participant = participant;
    this.#source = source;
    this.#periodic = new StatsTracker(begin);
    this.#onDemand = new StatsTracker(begin);
    clearInterval(this.#timer);
    const tracker = this.#periodic;
    this.#timer = setInterval(() => {
      this.#take(tracker).then(
        (sample) => {
          this.last = sample;
          this.lastLayers = tracker.layers;
          this.lastServerBytes = tracker.serverBytes;
          this.#onSample(sample);
        },
        () => {}, // the peer was closed meanwhile
      );
    }, SAMPLE_INTERVAL_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
    clearTimeout(this.#poll);
    this.#source = null;
  }

  /** A sample of the time since the last such call. */
  sampleNow(): Promise<QualitySample> {
    return this.#take(this.#onDemand);
  }

  mapped(mappings: Mapping[]): void {
    void this.#both((tracker, snapshot) => tracker.mapped(mappings, snapshot));
    this.#watchFirst();
  }

  /** Resolves when the counters were read for the last rows of these. */
  unmapped(mappings: Mapping[]): Promise<void> {
    return this.#both((tracker, snapshot) => tracker.unmapped(mappings, snapshot));
  }

  /** A track was muted or unmuted. */
  paused(track: string): void {
    void this.#both((tracker) => tracker.paused(track));
  }

  /** The server says that a picture is paused, or flows again. */
  rests(track: string, rests: boolean): void {
    void this.#both((tracker, snapshot) => tracker.rests(track, rests, snapshot));
  }

  setSent(sent: SentMapping[]): void {
    void this.#both((tracker, snapshot) => tracker.setSent(sent, snapshot));
  }

  #both(act: (tracker: StatsTracker, snapshot: Snapshot) => void): Promise<void> {
    const trackers = [this.#periodic, this.#onDemand];
    return this.#read((snapshot) => {
      for (const tracker of trackers) act(tracker, snapshot);
    }).catch(() => {});
  }

  #take(tracker: StatsTracker): Promise<QualitySample> {
    return this.#read((snapshot) => {
      const sample = tracker.sample(this.#participant, this.#joinMs, snapshot);
      sample.join_to_first_audio_ms = this.#tell("audio", tracker);
      sample.join_to_first_frame_ms = this.#tell("video", tracker);
      return sample;
    });
  }

  #tell(kind: MediaKind, tracker: StatsTracker): number | null {
    const first = this.#first.get(kind);
    if (!first || first.told.has(tracker)) return null;
    first.told.add(tracker);
    return first.ms;
  }

  #read<T>(use: (snapshot: Snapshot) => T): Promise<T> {
    const source = this.#source;
    const turn = this.#queue.then(async () => {
      if (!source || source !== this.#source) throw new Error("the peer is closed");
      const stats = await source.getStats();
      return use({ atMs: performance.now(), stats });
    });
    this.#queue = turn.catch(() => {});
    return turn;
  }

  /** Looks often until the first media of each mapped kind has come. */
  #watchFirst(): void {
    clearTimeout(this.#poll);
    this.#poll = setTimeout(() => {
      const tracker = this.#periodic;
      this.#read((snapshot) => {
        let waiting = false;
        for (const kind of ["audio", "video"] as const) {
          if (this.#first.has(kind)) continue;
          if (tracker.hasMedia(kind, snapshot))
            this.#first.set(kind, { ms: snapshot.atMs - this.#joinMs, told: new Set() });
          else waiting ||= tracker.isMapped(kind);
        }
        if (waiting) this.#watchFirst();
      }).catch(() => {});
    }, FIRST_MEDIA_POLL_MS);
  }
}
