import { describe, expect, it } from "vitest";
import { mosCq, mosLq, OPUS_LOOKAHEAD_MS, OPUS_PACKET_MS } from "../src/mos.ts";
import { mergeStats, type Stat } from "../src/paths.ts";
import { type Mapping, type Snapshot, StatsTracker } from "../src/stats.ts";
import { qualitySample } from "../src/wire.ts";

const AUDIO: Mapping = { slot: "2", kind: "audio", participant: "p-1", track: "t-a" };
const VIDEO: Mapping = { slot: "4", kind: "video", participant: "p-1", track: "t-v" };
const OTHER: Mapping = { slot: "4", kind: "video", participant: "p-2", track: "t-w" };

function snapshot(atMs: number, ...stats: Record<string, unknown>[]): Snapshot {
  const all = stats.map((stat) => ({ timestamp: atMs, ...stat }) as Stat);
  return { atMs, stats: new Map(all.map((stat) => [stat.id, stat])) };
}

const audio = (packets: number, lost: number, more: Record<string, unknown> = {}) => ({
  id: "in-a",
  type: "inbound-rtp",
  mid: "2",
  codecId: "opus",
  packetsReceived: packets,
  packetsLost: lost,
  jitter: 0.004,
  bytesReceived: packets * 80,
  jitterBufferDelay: packets * 40,
  jitterBufferEmittedCount: packets * 960,
  concealedSamples: 0,
  totalSamplesReceived: packets * 960,
  audioLevel: 0.2,
  ...more,
});
const video = (packets: number, frames: number, more: Record<string, unknown> = {}) => ({
  id: "in-v",
  type: "inbound-rtp",
  mid: "4",
  packetsReceived: packets,
  packetsLost: 0,
  jitter: 0.002,
  bytesReceived: packets * 1000,
  framesDecoded: frames,
  frameWidth: 640,
  frameHeight: 360,
  freezeCount: 0,
  totalFreezesDuration: 0,
  totalInterFrameDelay: frames * 0.05,
  pliCount: 1,
  firCount: 0,
  ...more,
});
const codec = { id: "opus", type: "codec", mimeType: "audio/opus" };
const path = [
  { id: "T", type: "transport", selectedCandidatePairId: "P", srtpCipher: "AEAD_AES_256_GCM" },
  { id: "P", type: "candidate-pair", currentRoundTripTime: 0.02, availableOutgoingBitrate: 2_500_000 },
];

describe("StatsTracker", () => {
  it("says which share of an interval a picture was paused, and counts no freeze then", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([VIDEO], snapshot(0));
    tracker.rests("t-v", true, snapshot(1000));
    const first = tracker.sample("me", 0, snapshot(3000, video(10, 10, { freezeCount: 1 })));
    expect(first.received[0]!.paused_ratio).toBeCloseTo(2 / 3);
    expect(first.received[0]!.freezes).toBeNull();
    tracker.rests("t-v", false, snapshot(4500));
    expect(tracker.sample("me", 0, snapshot(6000, video(20, 20))).received[0]!.paused_ratio).toBeCloseTo(0.5);
    expect(tracker.sample("me", 0, snapshot(9000, video(30, 30))).received[0]!.paused_ratio).toBe(0);
  });

  it("does not count what was sent again", () => {
    const tracker = new StatsTracker(0);
    const seen = (packets: number, again: number, lost: number) =>
      snapshot(
        packets,
        video(packets, packets / 10, { retransmittedPacketsReceived: again, packetsLost: lost }),
      );
    tracker.mapped([VIDEO], snapshot(0));
    tracker.sample("me", 0, seen(1000, 10, 10));
    const [row] = tracker.sample("me", 0, seen(1200, 60, 60)).received;
    expect(row).toMatchObject({ packets_received: 150, packets_lost: 50, loss_pct: 25 });
  });

  it("gives the interval's own values", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([AUDIO], snapshot(1000));
    tracker.sample("me", 0, snapshot(3000, audio(100, 0), codec, ...path));
    const sample = tracker.sample("me", 0, snapshot(6000, audio(247, 3), codec, ...path));
    expect(qualitySample(sample, "sample")).toEqual(sample);
    expect(sample).toMatchObject({
      at_ms: 6000,
      interval_ms: 3000,
      rtt_ms: 20,
      available_outgoing_kbps: 2500,
      srtp_cipher: "AEAD_AES_256_GCM",
    });
    expect(sample.received).toHaveLength(1);
    const [row] = sample.received;
    expect(row).toMatchObject({ participant: "p-1", track: "t-a", codec: "opus", jitter_ms: 4 });
    expect(row).toMatchObject({ packets_received: 147, packets_lost: 3, total_packets_received: 247 });
    expect(row!.loss_pct).toBeCloseTo(2);
    expect(row!.bitrate_kbps).toBeCloseTo((147 * 80 * 8) / 3000);
    expect(row!.jitter_buffer_ms).toBeCloseTo(1000 * (40 / 960));
    expect(row!.concealed_pct).toBe(0);
    expect(row!.mos_lq).toBeGreaterThan(3.5);
    expect(row!.mos_cq).toBeLessThanOrEqual(row!.mos_lq!);
    expect(row!.frames_per_second).toBeNull();
    expect(row!.freezes).toBeNull();
  });

  it("takes what was lost and not made up for recovered", () => {
    const heard = (concealed: number) => {
      const tracker = new StatsTracker(0);
      tracker.mapped([AUDIO], snapshot(0));
      tracker.sample("me", 0, snapshot(3000, audio(100, 0)));
      const counts = { totalSamplesReceived: 250 * 960, concealedSamples: concealed * 960 };
      return tracker.sample("me", 0, snapshot(6000, audio(240, 10, counts))).received[0]!;
    };
    const row = heard(2);
    expect(row).toMatchObject({ packets_lost: 10, packets_recovered: 8, loss_pct: (100 * 10) / 150 });
    expect(row.mos_lq).toBeCloseTo(mosLq((100 * 2) / 150));
    expect(heard(10).mos_lq).toBeCloseTo(mosLq((100 * 10) / 150));
    expect(heard(30).mos_lq, "more was made up than lost").toBeCloseTo(mosLq((100 * 30) / 150));
  });

  it("tells for how long sound was away", () => {
    const of = (counts: Record<string, number>, lost = 0) => {
      const tracker = new StatsTracker(0);
      tracker.mapped([AUDIO], snapshot(0));
      const none = { concealedSamples: 0, silentConcealedSamples: 0, packetsDiscarded: 0 };
      tracker.sample("me", 0, snapshot(3000, audio(100, 0, { totalSamplesReceived: 0, ...none })));
      const now = { totalSamplesReceived: 150 * 960, ...none, ...counts };
      return tracker.sample("me", 0, snapshot(6000, audio(250 - lost, lost, now))).received[0]!;
    };
    const samples = (packets: number) => 960 * packets;
    expect(of({}).outage!.ms).toBe(0);
    const pause = { concealedSamples: samples(100), silentConcealedSamples: samples(100) };
    expect(of(pause).outage!.ms, "silence in a pause").toBeLessThan(100);
    expect(of(pause, 100).outage!.ms, "silence for want of packets").toBeCloseTo(2000);
    const late = of({ ...pause, packetsDiscarded: 75 });
    expect(late.outage!.ms, "packets that came too late").toBeCloseTo(1500);
    expect(late.packets_discarded).toBe(75);
    const audible = of({ concealedSamples: samples(60), silentConcealedSamples: samples(10) });
    expect(audible.outage!.ms).toBeCloseTo(1000);
    expect(audible.mos_lq, "made up for audibly").toBeCloseTo(mosLq((100 * 50) / 150));
  });

  it("tells for how long a picture stood still", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([VIDEO], snapshot(0));
    tracker.sample("me", 0, snapshot(3000, video(100, 10, { freezeCount: 0, totalFreezesDuration: 0 })));
    const froze = video(200, 20, { freezeCount: 1, totalFreezesDuration: 2.4 });
    const row = tracker.sample("me", 0, snapshot(6000, froze)).received[0]!;
    expect(row.outage!.ms).toBeCloseTo(2400);
    expect(row.mapped_ratio).toBe(1);
    const none = tracker.sample("me", 0, snapshot(9000, froze)).received[0]!;
    expect(none.outage, "it stands still, until now").toEqual({ ms: none.since_last_ms, ago_ms: 0 });
  });

  it("says null and not 0 where nothing came", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([AUDIO, VIDEO], snapshot(0));
    const sample = tracker.sample("me", 0, snapshot(3000));
    expect(sample.rtt_ms).toBeNull();
    for (const row of sample.received) {
      expect(row).toMatchObject({ packets_received: 0, loss_pct: null, jitter_ms: null, mos_lq: null });
      expect(row).toMatchObject({ frame_width: null, frames_per_second: null, since_last_ms: 3000 });
    }
  });

  it("does not take late packets for negative loss", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([AUDIO], snapshot(0));
    tracker.sample("me", 0, snapshot(3000, audio(100, 5)));
    const [row] = tracker.sample("me", 0, snapshot(6000, audio(255, 0))).received;
    expect(row).toMatchObject({ packets_received: 155, packets_lost: 0, loss_pct: 0 });
  });

  it("splits rows at a re-map, each from its own baseline", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([VIDEO], snapshot(0));
    tracker.sample("me", 0, snapshot(3000, video(300, 60)));
    const cut = snapshot(4000, video(400, 80));
    tracker.unmapped([VIDEO], cut);
    tracker.mapped([OTHER], cut);
    const { received } = tracker.sample("me", 0, snapshot(6000, video(500, 100)));
    expect(received.map((row) => [row.track, row.packets_received, row.frames_per_second])).toEqual([
      ["t-v", 100, 20],
      ["t-w", 100, 10],
    ]);
    expect(received[0]!.total_packets_received).toBe(400);
    expect(received[1]!.total_packets_received).toBe(100);
    expect(received[1]!.freezes).toBeNull();
    const next = tracker.sample("me", 0, snapshot(9000, video(800, 160, { freezeCount: 2 })));
    expect(next.received).toHaveLength(1);
    expect(next.received[0]!.freezes).toBe(2);
  });

  it("knows no freeze around a mute, and the ratio otherwise", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([VIDEO], snapshot(0));
    const frozen = { freezeCount: 1, totalFreezesDuration: 0.6, totalInterFrameDelay: 3 };
    const [first] = tracker.sample("me", 0, snapshot(3000, video(300, 50, frozen))).received;
    expect(first!.freeze_ratio).toBeCloseTo(0.2);
    tracker.paused("t-v");
    const pause = { freezeCount: 2, totalFreezesDuration: 2.6, totalInterFrameDelay: 6 };
    const [second] = tracker.sample("me", 0, snapshot(6000, video(600, 60, pause))).received;
    expect(second).toMatchObject({ freezes: null, freeze_ratio: null });
  });

  it("shows a stream whose packets come but cannot be decoded as dead", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([VIDEO], snapshot(0));
    const alive = snapshot(3000, video(300, 60, { lastPacketReceivedTimestamp: 2990 }));
    expect(tracker.sample("me", 0, alive).received[0]!.since_last_ms).toBe(10);
    const broken = snapshot(6000, video(600, 60, { lastPacketReceivedTimestamp: 5990 }));
    expect(tracker.sample("me", 0, broken).received[0]!.since_last_ms).toBe(3010);
  });

  it("begins at 0 when the stream behind a slot is a new one", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([AUDIO], snapshot(0));
    tracker.sample("me", 0, snapshot(3000, audio(1000, 0)));
    const [row] = tracker.sample("me", 0, snapshot(6000, audio(150, 0, { id: "in-b" }))).received;
    expect(row!.packets_received).toBe(150);
  });

  it("measures what is sent", () => {
    const out = (packets: number, frames: number) => ({
      id: "out",
      type: "outbound-rtp",
      mid: "1",
      remoteId: "remote",
      packetsSent: packets,
      retransmittedPacketsSent: 0,
      bytesSent: packets * 1000,
      framesEncoded: frames,
      pliCount: 2,
    });
    const tracker = new StatsTracker(0);
    tracker.setSent([{ mid: "1", id: "mine", kind: "video" }], snapshot(0));
    tracker.sample("me", 0, snapshot(3000, out(100, 60)));
    tracker.setSent([{ mid: "1", id: "mine", kind: "video" }], snapshot(4000, out(120, 70)));
    const remote = { id: "remote", type: "remote-inbound-rtp", fractionLost: 0.05 };
    const sample = tracker.sample("me", 0, snapshot(6000, out(250, 105), remote));
    expect(sample.sent).toEqual([
      {
        track: "mine",
        kind: "video",
        codec: null,
        packets_sent: 150,
        retransmitted_packets_sent: 0,
        bitrate_kbps: 400,
        remote_loss_pct: 5,
        frames_per_second: 15,
        keyframe_requests: 0,
      },
    ]);
  });

  describe("of a camera in several sizes", () => {
    const layer = (rid: string, packets: number, frames: number, more: Record<string, unknown> = {}) => ({
      id: `out-${rid}`,
      type: "outbound-rtp",
      mid: "1",
      rid,
      remoteId: `remote-${rid}`,
      active: true,
      packetsSent: packets,
      retransmittedPacketsSent: packets / 100,
      bytesSent: packets * 1000,
      framesEncoded: frames,
      frameWidth: rid === "f" ? 1280 : 320,
      frameHeight: rid === "f" ? 720 : 180,
      qualityLimitationReason: "none",
      pliCount: 1,
      ...more,
    });
    const remote = (rid: string, fractionLost: number) => ({
      id: `remote-${rid}`,
      type: "remote-inbound-rtp",
      fractionLost,
    });
    const sent = [{ mid: "1", id: "mine", kind: "video" as const }];

    it("has one row, with the sum of its layers", () => {
      const tracker = new StatsTracker(0);
      tracker.setSent(sent, snapshot(0));
      const loss = [remote("f", 0.02), remote("q", 0.01), remote("h", 0.5)];
      tracker.sample("me", 0, snapshot(3000, layer("f", 1000, 60), layer("q", 100, 60), layer("h", 0, 0)));
      const now = [layer("f", 1500, 90), layer("q", 200, 105), layer("h", 0, 0, { active: false })];
      const sample = tracker.sample("me", 0, snapshot(6000, ...now, ...loss));
      expect(qualitySample(sample, "sample")).toEqual(sample);
      expect(sample.sent).toEqual([
        {
          track: "mine",
          kind: "video",
          codec: null,
          packets_sent: 600,
          retransmitted_packets_sent: 6,
          bitrate_kbps: 1600,
          remote_loss_pct: 2,
          frames_per_second: 15,
          keyframe_requests: 0,
        },
      ]);
    });

    it("says how long it was limited by what, of the layer that was limited most", () => {
      const tracker = new StatsTracker(0);
      const durations = (cpu: number, bandwidth: number) => ({
        qualityLimitationDurations: { cpu, bandwidth, none: 100, other: 0 },
      });
      tracker.setSent(sent, snapshot(0));
      tracker.sample(
        "me",
        0,
        snapshot(3000, layer("f", 100, 6, durations(7, 2)), layer("q", 100, 6, durations(0, 0))),
      );
      const now = [layer("f", 200, 12, durations(7, 3.5)), layer("q", 200, 12, durations(0.75, 0))];
      // What is not sent any more tells nothing.
      const idle = layer("h", 0, 0, { active: false, ...durations(3, 3) });
      const sample = tracker.sample("me", 0, snapshot(6000, ...now, idle));
      expect(qualitySample(sample, "sample")).toEqual(sample);
      expect(sample.sent[0]).toMatchObject({ cpu_limited_ratio: 0.25, bandwidth_limited_ratio: 0.5 });
    });

    it("says beside the sample what became of each layer, the smallest first", () => {
      const tracker = new StatsTracker(0);
      tracker.setSent([...sent, { mid: "p-1/0", id: "mine", kind: "video" }], snapshot(0));
      const limited = { qualityLimitationReason: "bandwidth" };
      const off = layer("h", 0, 0, { active: false, frameWidth: undefined, frameHeight: undefined });
      const elsewhere = { ...layer("", 10, 1), mid: "p-1/0" };
      tracker.sample(
        "me",
        0,
        snapshot(2000, layer("f", 250, 30, limited), layer("q", 25, 40), off, elsewhere),
      );
      expect(tracker.layers).toMatchObject([
        { track: "mine", rid: "q", active: true, width: 320, height: 180, framesPerSecond: 20, kbps: 100 },
        { rid: "h", active: false, width: null, height: null, framesPerSecond: 0, kbps: 0 },
        { rid: "f", active: true, width: 1280, kbps: 1000, limitedBy: "bandwidth" },
      ]);
      expect(tracker.layers).toHaveLength(3);
    });

    it("begins at 0 with a layer that was not there before", () => {
      const tracker = new StatsTracker(0);
      tracker.setSent(sent, snapshot(0, layer("q", 100, 50)));
      const [row] = tracker.sample("me", 0, snapshot(1000, layer("q", 120, 70), layer("f", 50, 10))).sent;
      expect(row).toMatchObject({ packets_sent: 70, frames_per_second: 20 });
    });
  });

  it("finds the first media only in what came since the mapping", () => {
    const tracker = new StatsTracker(0);
    tracker.mapped([VIDEO], snapshot(0, video(300, 60)));
    expect(tracker.isMapped("video")).toBe(true);
    expect(tracker.hasMedia("video", snapshot(100, video(300, 60)))).toBe(false);
    expect(tracker.hasMedia("video", snapshot(200, video(303, 61)))).toBe(true);
    expect(tracker.hasMedia("audio", snapshot(200, audio(9, 0)))).toBe(false);
  });
});

describe("a mesh in figures", () => {
  const link = (rttMs: number, packets: number, sentPackets: number): ReadonlyMap<string, Stat> =>
    snapshot(
      0,
      audio(packets, 0, { mid: "0", jitterBufferDelay: packets * 960 * 0.02 }),
      codec,
      {
        id: "out",
        type: "outbound-rtp",
        mid: "0",
        remoteId: "R",
        packetsSent: sentPackets,
        bytesSent: sentPackets * 100,
      },
      { id: "R", type: "remote-inbound-rtp", fractionLost: rttMs / 1000 },
      { id: "T", type: "transport", selectedCandidatePairId: "P", srtpCipher: "AEAD_AES_128_GCM" },
      {
        id: "P",
        type: "candidate-pair",
        currentRoundTripTime: rttMs / 1000,
        availableOutgoingBitrate: 300_000,
      },
    ).stats;
  const both = (atMs: number, scale: number): Snapshot => ({
    atMs,
    stats: mergeStats([
      ["p-1/", link(20, 100 * scale, 50 * scale)],
      ["p-2/", link(60, 10 * scale, 150 * scale)],
    ]),
  });

  it("tells of the line to the member that was limited most", () => {
    const tracker = new StatsTracker(0);
    const line = (mid: string, packetsSent: number, cpu?: number) => ({
      id: `out-${mid}`,
      type: "outbound-rtp",
      mid,
      packetsSent,
      ...(cpu === undefined ? {} : { qualityLimitationDurations: { cpu, bandwidth: 0 } }),
    });
    tracker.setSent(
      ["p-1/1", "p-2/1", "p-3/1"].map((mid) => ({ mid, id: "mine", kind: "video" })),
      snapshot(0),
    );
    const sample = tracker.sample(
      "me",
      0,
      snapshot(3000, line("p-1/1", 5, 0.3), line("p-2/1", 5, 1.5), line("p-3/1", 5)),
    );
    expect(sample.sent).toHaveLength(1);
    expect(sample.sent[0]).toMatchObject({ cpu_limited_ratio: 0.5, bandwidth_limited_ratio: 0 });
  });

  it("keeps connections apart, sums what is sent, and scores each by its own path", () => {
    const tracker = new StatsTracker(0);
    const lines: Mapping[] = [
      { slot: "p-1/0", kind: "audio", participant: "p-1", track: "t-1" },
      { slot: "p-2/0", kind: "audio", participant: "p-2", track: "t-2" },
    ];
    tracker.mapped(lines, snapshot(0));
    tracker.setSent(
      lines.map(({ slot }) => ({ mid: slot, id: "mine", kind: "audio" })),
      snapshot(0),
    );
    tracker.sample("me", 0, both(3000, 1));
    const sample = tracker.sample("me", 0, both(6000, 2));
    expect(qualitySample(sample, "sample")).toEqual(sample);
    expect(sample.received.map((row) => [row.track, row.packets_received])).toEqual([
      ["t-1", 100],
      ["t-2", 10],
    ]);
    expect(sample.received[0]!.codec).toBe("opus");
    expect(sample.rtt_ms).toBeCloseTo(40);
    expect(sample.available_outgoing_kbps).toBe(600);
    expect(sample.srtp_cipher).toBe("AEAD_AES_128_GCM");
    expect(sample.sent).toHaveLength(1);
    expect(sample.sent[0]).toMatchObject({ track: "mine", packets_sent: 200, remote_loss_pct: 6 });
    expect(sample.sent[0]!.bitrate_kbps).toBeCloseTo((200 * 100 * 8) / 3000);
    expect(sample.received[0]!.mos_cq).toBe(mosCq(0, OPUS_PACKET_MS + OPUS_LOOKAHEAD_MS + 10 + 20));
    expect(sample.received[1]!.mos_cq).toBe(mosCq(0, OPUS_PACKET_MS + OPUS_LOOKAHEAD_MS + 30 + 20));
  });
});
