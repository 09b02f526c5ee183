/**
 * From `getStats` to quality samples: the interval's own values, a row a track and not a slot. Pure: time and
 * reports are arguments.
 *
 * Definitions: W3C webrtc-stats for the browser's counters, RFC 3550 A.3 for interval loss. A value that nobody
 * measured is null, never 0.
 */
import { RIDS } from "./layers.ts";
import { mosCq, mosLq, mosSdk, OPUS_LOOKAHEAD_MS, OPUS_PACKET_MS } from "./mos.ts";
import { connectionOf, oneWayMs, overall, type PathFigures, pathsOf, type Stat } from "./paths.ts";
import type { MediaKind, QualitySample, ReceivedTrack, SentTrack } from "./wire.ts";

/** What `getStats` said at one moment. */
export interface Snapshot {
  /** The tracker's clock, in milliseconds. */
  atMs: number;
  stats: ReadonlyMap<string, Stat>;
}

/** A track in a slot; in a mesh on a line, named `PARTICIPANT/MID`. */
export interface Mapping {
  slot: string;
  kind: MediaKind;
  participant: string;
  track: string;
}

/** An own track on a line; in a mesh on one line to each other member, named as in {@link Mapping}. */
export interface SentMapping {
  mid: string;
  id: string;
  kind: MediaKind;
}

/** One size in which an own picture was sent in an interval; `rid` is "" without simulcast. */
export interface SentLayer {
  track: string;
  rid: string;
  /** Whether it is sent at all: what nobody wants is not. */
  active: boolean;
  width: number | null;
  height: number | null;
  framesPerSecond: number | null;
  kbps: number;
  /** Why the browser sends it worse than it could: `cpu`, `bandwidth`, `other`; `none` if it does not. */
  limitedBy: string | null;
}

/** A moment of a sent line: when, and its `outbound-rtp` then, one a layer. */
interface SentMark {
  atMs: number;
  stats: readonly Stat[];
}

/** A moment of a slot: when, and its `inbound-rtp` then (null before the first packet). */
interface Mark {
  atMs: number;
  stat: Stat | null;
}

interface Receiving extends Mapping {
  /** When the slot got this track. */
  since: Mark;
  /** Where the current interval begins. */
  from: Mark;
  /** When a frame or packet was last seen to have come. */
  lastSeenMs: number;
  /** The browser counts the pause before a re-map or an unmute as a freeze: such an interval tells nothing. */
  freezesKnown: boolean;
  /** Since when the picture is paused, and how long it was before in this interval. */
  pausedSinceMs: number | null;
  pausedMs: number;
}

/** Follows the counters of the peer connections and cuts them into intervals. */
export class StatsTracker {
  /** The layers of what is sent to the server, in the interval that ended last, the smallest picture first. */
  layers: readonly SentLayer[] = [];
  /** Bytes that came from the server in that interval; null if the browser does not count them. */
  serverBytes: number | null = null;
  #serverTotal: number | null = null;
  readonly #receiving = new Map<string, Receiving>();
  #finished: { slot: string; row: ReceivedTrack }[] = [];
  #sent: SentMapping[] = [];
  #sentFrom = new Map<string, SentMark>();
  #fromMs: number;

  /** @param startMs when the first interval begins */
  constructor(startMs: number) {
    this.#fromMs = startMs;
  }

  /** Slots got tracks. */
  mapped(mappings: readonly Mapping[], snapshot: Snapshot): void {
    for (const mapping of mappings) {
      const mark = { atMs: snapshot.atMs, stat: inbound(snapshot, mapping.slot) };
      const fresh = (value(mark.stat, "framesDecoded") ?? 0) === 0;
      this.#receiving.set(mapping.slot, {
        ...mapping,
        since: mark,
        from: mark,
        lastSeenMs: snapshot.atMs,
        freezesKnown: fresh,
        pausedSinceMs: null,
        pausedMs: 0,
      });
    }
  }

  /** Slots lost their tracks: their rows end here and go into the next sample. */
  unmapped(mappings: readonly Mapping[], snapshot: Snapshot): void {
    for (const { slot, track } of mappings) {
      const receiving = this.#receiving.get(slot);
      if (!receiving || receiving.track !== track) continue;
      this.#receiving.delete(slot);
      if (snapshot.atMs > receiving.from.atMs)
        this.#finished.push({ slot, row: receivedRow(receiving, snapshot, this.#fromMs) });
    }
  }

  /** A track was muted or unmuted: what looks like a freeze around it is none. */
  paused(track: string): void {
    for (const receiving of this.#receiving.values())
      if (receiving.track === track) receiving.freezesKnown = false;
  }

  /** The server says that a picture is paused, or flows again. */
  rests(track: string, rests: boolean, snapshot: Snapshot): void {
    for (const receiving of this.#receiving.values()) {
      if (receiving.track !== track) continue;
      receiving.freezesKnown = false;
      receiving.pausedMs = pausedMs(receiving, snapshot.atMs);
      receiving.pausedSinceMs = rests ? snapshot.atMs : null;
    }
  }

  /** What is sent from now on; a track that was sent before keeps its baseline. */
  setSent(sent: readonly SentMapping[], snapshot: Snapshot): void {
    const known = this.#sentFrom;
    this.#sent = [...sent];
    this.#sentFrom = new Map(
      sent.map((mapping) => [
        sentKey(mapping),
        known.get(sentKey(mapping)) ?? { atMs: snapshot.atMs, stats: outbound(snapshot, mapping.mid) },
      ]),
    );
  }

  /** Whether any mapped slot of a kind has media that was played or decoded since it was mapped. */
  hasMedia(kind: MediaKind, snapshot: Snapshot): boolean {
    const played = kind === "audio" ? "jitterBufferEmittedCount" : "framesDecoded";
    return [...this.#receiving.values()].some((receiving) => {
      const now = inbound(snapshot, receiving.slot);
      const moved = (key: string) => (delta(now, receiving.since.stat, key) ?? 0) > 0;
      return receiving.kind === kind && moved("packetsReceived") && moved(played);
    });
  }

  /** Whether a slot of this kind carries a track. */
  isMapped(kind: MediaKind): boolean {
    return [...this.#receiving.values()].some((receiving) => receiving.kind === kind);
  }

  /** Ends the interval; the next one begins here. */
  sample(participant: string, joinMs: number, snapshot: Snapshot): QualitySample {
    const paths = pathsOf(snapshot.stats);
    const path = overall(paths);
    const rows = this.#finished;
    for (const receiving of this.#receiving.values()) {
      if (snapshot.atMs <= receiving.from.atMs) continue;
      rows.push({ slot: receiving.slot, row: receivedRow(receiving, snapshot, this.#fromMs) });
      receiving.from = { atMs: snapshot.atMs, stat: inbound(snapshot, receiving.slot) };
      receiving.freezesKnown = true;
      receiving.pausedMs = 0;
      if (receiving.pausedSinceMs !== null) receiving.pausedSinceMs = snapshot.atMs;
    }
    for (const { slot, row } of rows) addScores(row, connectionOf(slot), paths);
    const from = (mapping: SentMapping) => this.#sentFrom.get(sentKey(mapping))!;
    const lines = this.#sent.map((mapping) => sentRow(mapping, from(mapping), snapshot));
    const total = serverBytes(snapshot);
    this.serverBytes =
      total === null || this.#serverTotal === null ? null : Math.max(0, total - this.#serverTotal);
    this.#serverTotal = total;
    const pictures = this.#sent.filter(({ kind, mid }) => kind === "video" && connectionOf(mid) === "");
    this.layers = pictures.flatMap((mapping) => sentLayers(mapping, from(mapping), snapshot));
    for (const mapping of this.#sent)
      this.#sentFrom.set(sentKey(mapping), { atMs: snapshot.atMs, stats: outbound(snapshot, mapping.mid) });
    const sample: QualitySample = {
      participant,
      at_ms: Math.max(0, Math.round(snapshot.atMs - joinMs)),
      interval_ms: Math.max(0, Math.round(snapshot.atMs - this.#fromMs)),
      rtt_ms: path.rttMs,
      available_outgoing_kbps: path.availableKbps,
      srtp_cipher: path.cipher,
      join_to_first_audio_ms: null,
      join_to_first_frame_ms: null,
      sent: sumTracks(lines),
      received: rows.map(({ row }) => row),
    };
    this.#finished = [];
    this.#fromMs = snapshot.atMs;
    return sample;
  }
}

/** All bytes that came from the server, by whichever pair. */
function serverBytes(snapshot: Snapshot): number | null {
  let total: number | null = null;
  for (const stat of snapshot.stats.values())
    if (stat.type === "candidate-pair" && (stat.connection ?? "") === "")
      total = sum(total, value(stat, "bytesReceived"));
  return total;
}

function pausedMs({ pausedMs, pausedSinceMs }: Receiving, atMs: number): number {
  return pausedMs + (pausedSinceMs === null ? 0 : Math.max(0, atMs - pausedSinceMs));
}

function receivedRow(receiving: Receiving, snapshot: Snapshot, intervalFromMs: number): ReceivedTrack {
  const { participant, track, kind, from, since } = receiving;
  const now = inbound(snapshot, receiving.slot);
  const seconds = (snapshot.atMs - from.atMs) / 1000;
  const d = (key: string) => delta(now, from.stat, key);
  const packets = Math.max(0, firstSent(now, from.stat) ?? 0);
  const lostRaw = d("packetsLost") ?? 0;
  const lost = Math.max(0, lostRaw);
  const expected = packets + lostRaw;
  const totalLost = delta(now, since.stat, "packetsLost");
  const frames = d("framesDecoded");
  const came = kind === "video" && frames !== null ? frames > 0 : packets > 0;
  const sinceLast = sinceLastMs(receiving, now, snapshot, came);
  const video = kind === "video";
  const pictured = video && (delta(now, since.stat, "framesDecoded") ?? 0) > 0;
  const emitted = d("jitterBufferEmittedCount");
  const samples = d("totalSamplesReceived");
  const interFrame = d("totalInterFrameDelay");
  const paused = Math.min(1, pausedMs(receiving, snapshot.atMs) / Math.max(1, 1000 * seconds));
  return {
    participant,
    track,
    kind,
    codec: codecOf(now, snapshot),
    packets_received: packets,
    packets_lost: lost,
    ...(video ? {} : recovered(lost, ratio(d("concealedSamples"), samples, expected))),
    ...(video ? {} : discarded(d("packetsDiscarded"))),
    loss_pct: expected > 0 ? (100 * lost) / expected : null,
    total_packets_received: now ? Math.max(0, firstSent(now, since.stat) ?? 0) : null,
    total_packets_lost: totalLost === null ? null : Math.max(0, totalLost),
    jitter_ms: packets > 0 ? scale(value(now, "jitter"), 1000) : null,
    jitter_buffer_ms: ratio(d("jitterBufferDelay"), emitted, 1000),
    ...outage(
      video ? stillMs(receiving, now) : soundAwayMs(from.stat, now, 1000 * seconds),
      sinceLast,
      video,
    ),
    mapped_ratio: Math.min(1, (1000 * seconds) / Math.max(1, snapshot.atMs - intervalFromMs)),
    transit_ms: null,
    transit_p95_ms: null,
    marks_expected: null,
    marks_found: null,
    mouth_to_ear_ms: null,
    bitrate_kbps: kbps(d("bytesReceived"), seconds),
    concealed_pct: video ? null : ratio(d("concealedSamples"), samples, 100),
    ...(video ? {} : silent(ratio(d("silentConcealedSamples"), samples, 100))),
    audio_level: video || packets === 0 ? null : value(now, "audioLevel"),
    frames_per_second: video && frames !== null ? Math.max(0, frames) / seconds : null,
    frame_width: pictured ? value(now, "frameWidth") : null,
    frame_height: pictured ? value(now, "frameHeight") : null,
    ...(video ? { paused_ratio: paused } : {}),
    freezes: video && receiving.freezesKnown ? d("freezeCount") : null,
    freeze_ratio: video && receiving.freezesKnown ? ratio(d("totalFreezesDuration"), interFrame, 1) : null,
    since_last_ms: sinceLast,
    keyframe_requests: video ? sum(d("pliCount"), d("firCount")) : null,
    mos_lq: null,
    mos_cq: null,
    mos_sdk: null,
  };
}

/** Packets of sound that came too late to be played. */
function discarded(packets: number | null): Pick<ReceivedTrack, "packets_discarded"> {
  return packets === null ? {} : { packets_discarded: Math.max(0, packets) };
}

/** Concealment that nobody heard, such as in pauses. */
function silent(pct: number | null): Pick<ReceivedTrack, "silent_concealed_pct"> {
  return pct === null ? {} : { silent_concealed_pct: Math.max(0, pct) };
}

/** The longest time in which nothing was there that was due; when it ended is known only where it lasts. */
function outage(ms: number | null, sinceLast: number, video: boolean): Pick<ReceivedTrack, "outage"> {
  if (ms === null) return {};
  const lasts = video && sinceLast >= ms;
  return { outage: { ms: lasts ? sinceLast : ms, ago_ms: lasts ? 0 : Math.max(0, sinceLast) } };
}

/**
 * For how long sound was away in an interval. The browser made up for it audibly, or was silent in place of packets
 * that were lost, too late or waited for. Silence in a pause does not count.
 */
function soundAwayMs(before: Stat | null, now: Stat | null, intervalMs: number): number | null {
  const d = (key: string) => delta(now, before, key);
  const [concealed, samples] = [d("concealedSamples"), d("totalSamplesReceived")];
  if (concealed === null || samples === null || samples <= 0) return null;
  const ms = (of: number) => (intervalMs * Math.max(0, of)) / samples;
  const missing = OPUS_PACKET_MS * Math.max(0, (d("packetsLost") ?? 0) + (d("packetsDiscarded") ?? 0));
  const waited = ratio(d("jitterBufferDelay"), d("jitterBufferEmittedCount"), 1000) ?? 0;
  const audible = ms(concealed - (d("silentConcealedSamples") ?? 0));
  return Math.max(audible, Math.min(ms(concealed), Math.max(missing, waited)));
}

/** For how long a picture froze on average where it froze; null where the browser's figure tells nothing. */
function stillMs({ freezesKnown, from }: Receiving, now: Stat | null): number | null {
  const freezes = delta(now, from.stat, "freezeCount");
  if (!freezesKnown || freezes === null) return null;
  return ratio(delta(now, from.stat, "totalFreezesDuration"), freezes, 1000) ?? 0;
}

/**
 * Lost packets of sound that were heard all the same, by copies in later ones (RED, or Opus' own): what was made up for
 * is less than what was lost. Browsers do not count copies.
 * @param concealed how many packets' sound was made up
 */
function recovered(lost: number, concealed: number | null): Pick<ReceivedTrack, "packets_recovered"> {
  return concealed === null ? {} : { packets_recovered: Math.max(0, Math.round(lost - concealed)) };
}

/**
 * The loss that is heard, in percent. It is made of packets that were lost and did not come as a copy either. It is the
 * sound that was made up for audibly, if that is more. Packets that come too late to be played are lost, too.
 */
function heardLossPct(row: ReceivedTrack): number | null {
  const { loss_pct, packets_lost, packets_recovered, concealed_pct, silent_concealed_pct } = row;
  if (loss_pct === null) return null;
  const heard = Math.max(0, packets_lost - (packets_recovered ?? 0));
  const lostPct = packets_lost === 0 ? loss_pct : (loss_pct * heard) / packets_lost;
  return Math.max(lostPct, (concealed_pct ?? 0) - (silent_concealed_pct ?? 0));
}

/**
 * Packets received that were sent for the first time: browsers count retransmissions in, and lost packets stay
 * lost, so that loss would be of more than was expected.
 */
function firstSent(now: Stat | null, before: Stat | null): number | null {
  const all = delta(now, before, "packetsReceived");
  return all === null ? null : all - (delta(now, before, "retransmittedPacketsReceived") ?? 0);
}

/**
 * Time since the last packet; where packets come but no frame is decoded, time since the last sample that had a
 * frame, so that a stream of undecodable packets does not look alive.
 */
function sinceLastMs(receiving: Receiving, now: Stat | null, snapshot: Snapshot, came: boolean): number {
  if (!came) return snapshot.atMs - receiving.lastSeenMs;
  const packetAt = value(now, "lastPacketReceivedTimestamp");
  const ago = packetAt === null || !now ? 0 : Math.max(0, now.timestamp - packetAt);
  receiving.lastSeenMs = snapshot.atMs - ago;
  return ago;
}

/** MOS of an audio row. Delay is estimated: no mark travels to a browser's speaker. */
function addScores(
  row: ReceivedTrack,
  connection: string,
  paths: ReadonlyMap<string, Pick<PathFigures, "rttMs">>,
): void {
  const lossPct = heardLossPct(row);
  if (row.kind !== "audio" || lossPct === null) return;
  row.mos_lq = mosLq(lossPct);
  const rttMs = paths.get(connection)?.rttMs ?? null;
  if (rttMs === null) return;
  if (row.jitter_buffer_ms !== null) {
    const network = oneWayMs(connection, rttMs);
    row.mos_cq = mosCq(lossPct, OPUS_PACKET_MS + OPUS_LOOKAHEAD_MS + network + row.jitter_buffer_ms);
  }
  if (row.jitter_ms !== null) row.mos_sdk = mosSdk(row.loss_pct ?? 0, rttMs, row.jitter_ms);
}

function sentKey({ mid, id }: SentMapping): string {
  return `${mid} ${id}`;
}

/**
 * A row a line. With simulcast the browser counts each layer for itself, and a sample has one row for the track: its
 * packets, bits and keyframe requests are the sum of the layers. Its frames a second are those of the layer that has
 * most: each layer is the same picture once more. Its loss is the worst that was reported of a layer that was sent in
 * the interval, as in a mesh of all its members: what is reported of the others is old.
 */
function sentRow(mapping: SentMapping, from: SentMark, snapshot: Snapshot): SentTrack {
  const now = outbound(snapshot, mapping.mid);
  const seconds = (snapshot.atMs - from.atMs) / 1000;
  const moved = (key: string) => now.map((stat) => delta(stat, before(from, stat), key));
  const total = (key: string) => moved(key).reduce(sum, null);
  const frames = most(moved("framesEncoded"));
  const sent = now.filter((stat) => (delta(stat, before(from, stat), "packetsSent") ?? 0) > 0);
  const lost = (sent.length > 0 ? sent : now).map((stat) =>
    value(snapshot.stats.get(String(stat.remoteId)) ?? null, "fractionLost"),
  );
  const video = mapping.kind === "video";
  return {
    track: mapping.id,
    kind: mapping.kind,
    codec: codecOf(sent[0] ?? now[0] ?? null, snapshot),
    packets_sent: Math.max(0, total("packetsSent") ?? 0),
    retransmitted_packets_sent: total("retransmittedPacketsSent"),
    bitrate_kbps: kbps(total("bytesSent"), seconds),
    remote_loss_pct: scale(most(lost), 100),
    frames_per_second: video && frames !== null && seconds > 0 ? frames / seconds : null,
    keyframe_requests: video ? sum(total("pliCount"), total("firCount")) : null,
    ...(video ? limited(sent, from, seconds) : {}),
  };
}

/** For how much of the interval the browser sent a picture worse than it could, by why: of the layer that was limited most. */
function limited(
  sent: readonly Stat[],
  from: SentMark,
  seconds: number,
): Pick<SentTrack, "cpu_limited_ratio" | "bandwidth_limited_ratio"> {
  const durations = (stat: Stat | null) =>
    (stat?.qualityLimitationDurations ?? {}) as Record<string, unknown>;
  const share = (reason: "cpu" | "bandwidth") =>
    most(
      sent.map((stat) => {
        const [end, start] = [durations(stat)[reason], durations(before(from, stat))[reason] ?? 0];
        if (typeof end !== "number" || typeof start !== "number" || seconds <= 0) return null;
        return Math.min(1, Math.max(0, (end - start) / seconds));
      }),
    );
  const [cpu, bandwidth] = [share("cpu"), share("bandwidth")];
  return {
    ...(cpu === null ? {} : { cpu_limited_ratio: cpu }),
    ...(bandwidth === null ? {} : { bandwidth_limited_ratio: bandwidth }),
  };
}

/** What became of each layer of an own picture. */
function sentLayers(mapping: SentMapping, from: SentMark, snapshot: Snapshot): SentLayer[] {
  const seconds = (snapshot.atMs - from.atMs) / 1000;
  const layers = outbound(snapshot, mapping.mid).map((stat) => {
    const moved = (key: string) => delta(stat, before(from, stat), key);
    const frames = moved("framesEncoded");
    const words = (key: string) => (typeof stat[key] === "string" ? (stat[key] as string) : null);
    return {
      track: mapping.id,
      rid: words("rid") ?? "",
      active: stat.active !== false,
      width: value(stat, "frameWidth"),
      height: value(stat, "frameHeight"),
      framesPerSecond: frames !== null && seconds > 0 ? frames / seconds : null,
      kbps: kbps(moved("bytesSent"), seconds),
      limitedBy: words("qualityLimitationReason"),
    };
  });
  const order = ({ rid }: SentLayer) => RIDS.findIndex((known) => known === rid);
  return layers.sort((a, b) => order(a) - order(b));
}

/** A row a track: in a mesh a track is sent once to each other member, and what it costs is the sum. */
function sumTracks(lines: readonly SentTrack[]): SentTrack[] {
  const tracks = new Map<string, SentTrack[]>();
  for (const line of lines) tracks.set(line.track, [...(tracks.get(line.track) ?? []), line]);
  return [...tracks.values()].map((all) => {
    const first = all[0]!;
    if (all.length === 1) return first;
    const known = (
      key: "remote_loss_pct" | "frames_per_second" | "cpu_limited_ratio" | "bandwidth_limited_ratio",
    ) => all.map((line) => line[key] ?? null).filter((figure): figure is number => figure !== null);
    const worst = (figures: number[], pick: (...all: number[]) => number) =>
      figures.length > 0 ? pick(...figures) : null;
    const worstLimited = (key: "cpu_limited_ratio" | "bandwidth_limited_ratio") =>
      known(key).length > 0 ? { [key]: Math.max(...known(key)) } : {};
    return {
      ...first,
      packets_sent: all.reduce((total, line) => total + line.packets_sent, 0),
      retransmitted_packets_sent: all.map((line) => line.retransmitted_packets_sent).reduce(sum),
      bitrate_kbps: all.reduce((total, line) => total + line.bitrate_kbps, 0),
      remote_loss_pct: worst(known("remote_loss_pct"), Math.max),
      frames_per_second: worst(known("frames_per_second"), Math.min),
      keyframe_requests: all.map((line) => line.keyframe_requests).reduce(sum),
      ...worstLimited("cpu_limited_ratio"),
      ...worstLimited("bandwidth_limited_ratio"),
    };
  });
}

function inbound(snapshot: Snapshot, mid: string): Stat | null {
  return find(snapshot, "inbound-rtp", mid);
}

function outbound(snapshot: Snapshot, mid: string): Stat[] {
  return [...snapshot.stats.values()].filter((stat) => stat.type === "outbound-rtp" && stat.mid === mid);
}

/** The same stream at an earlier moment. */
function before(mark: SentMark, now: Stat): Stat | null {
  return mark.stats.find((stat) => stat.id === now.id) ?? null;
}

function find(snapshot: Snapshot, type: string, mid: string): Stat | null {
  for (const stat of snapshot.stats.values()) if (stat.type === type && stat.mid === mid) return stat;
  return null;
}

function codecOf(stat: Stat | null, snapshot: Snapshot): string | null {
  const mime = stat ? snapshot.stats.get(String(stat.codecId))?.mimeType : undefined;
  return typeof mime === "string" ? (mime.split("/")[1]?.toLowerCase() ?? null) : null;
}

function value(stat: Stat | null, key: string): number | null {
  const raw = stat?.[key];
  return typeof raw === "number" && Number.isFinite(raw) ? raw : null;
}

/** How a counter moved; a counter of a new stream (another id) moved from 0. */
function delta(now: Stat | null, from: Stat | null, key: string): number | null {
  const end = value(now, key);
  if (end === null) return null;
  return from !== null && now !== null && from.id === now.id ? end - (value(from, key) ?? 0) : end;
}

function scale(x: number | null, factor: number): number | null {
  return x === null ? null : x * factor;
}

function ratio(part: number | null, whole: number | null, factor: number): number | null {
  return part === null || whole === null || whole <= 0 ? null : (factor * part) / whole;
}

function sum(a: number | null, b: number | null): number | null {
  return a === null && b === null ? null : (a ?? 0) + (b ?? 0);
}

function most(figures: readonly (number | null)[]): number | null {
  const known = figures.filter((figure): figure is number => figure !== null);
  return known.length > 0 ? Math.max(...known) : null;
}

function kbps(bytes: number | null, seconds: number): number {
  return bytes === null || seconds <= 0 ? 0 : Math.max(0, (bytes * 8) / 1000 / seconds);
}
