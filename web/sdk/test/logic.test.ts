import { describe, expect, it } from "vitest";
import { preferredCodecs } from "../src/codecs.ts";
import { Epochs } from "../src/epochs.ts";
import { reconnectDelayMs } from "../src/reconnect.ts";
import { Silence } from "../src/silence.ts";
import type { ReceivedTrack, RoomEvent } from "../src/wire.ts";

const left = (epoch: number): RoomEvent => ({
  epoch,
  type: "participant_left",
  participant: "p",
  reason: "left",
  count: 1,
});

describe("Epochs", () => {
  it("applies in order, ignores the old, finds gaps", () => {
    const epochs = new Epochs(4);
    expect(epochs.take(left(4))).toBe("old");
    expect(epochs.take(left(5))).toBe("apply");
    expect(epochs.take(left(7))).toBe("gap");
    expect(epochs.seen).toBe(5);
    expect(epochs.take(left(6))).toBe("apply");
    expect(epochs.take(left(7))).toBe("apply");
  });

  it("lets events without a number of their own pass", () => {
    const epochs = new Epochs(4);
    expect(epochs.take({ epoch: 9, type: "slots", slots: [] })).toBe("apply");
    expect(epochs.take({ epoch: 4, type: "slots_wanted", audio: 1, video: 1 })).toBe("apply");
    expect(epochs.take({ epoch: 4, type: "active_speakers", speakers: [] })).toBe("apply");
    expect(epochs.take({ epoch: 4, type: "track_layers", track: "t", layer: 0 })).toBe("apply");
    expect(epochs.take({ epoch: 4, type: "downlink", estimate_kbps: null })).toBe("apply");
    expect(epochs.take({ epoch: 4, type: "room_ended", reason: "a moderator removed you" })).toBe("apply");
    expect(epochs.take({ epoch: 9, type: "room_ended", reason: "nobody is left" })).toBe("apply");
    expect(epochs.seen).toBe(4);
  });
});

describe("reconnectDelayMs", () => {
  it("starts within 0.2–1 s, grows by 1.5 and stays within 5 s", () => {
    expect(reconnectDelayMs(0, 0)).toBe(200);
    expect(reconnectDelayMs(0, 1)).toBe(1000);
    expect(reconnectDelayMs(1, 1)).toBe(1500);
    expect(reconnectDelayMs(50, 1)).toBe(5000);
  });

  it("keeps its jitter at the cap", () => {
    expect(reconnectDelayMs(50, 0)).toBeLessThanOrEqual(2500);
  });
});

describe("preferredCodecs", () => {
  const codecs = [
    { mimeType: "video/VP8" },
    { mimeType: "video/rtx" },
    { mimeType: "video/VP9", sdpFmtpLine: "profile-id=0" },
    { mimeType: "video/H264", sdpFmtpLine: "packetization-mode=1;profile-level-id=42001f" },
    { mimeType: "video/H264", sdpFmtpLine: "packetization-mode=0;profile-level-id=42e01f" },
    { mimeType: "video/H264", sdpFmtpLine: "packetization-mode=1;profile-level-id=42e01f" },
    { mimeType: "video/red" },
  ];
  it("takes the room's codec and RTX alone", () => {
    expect(preferredCodecs(codecs, "video", "vp8").map((c) => c.mimeType)).toEqual([
      "video/VP8",
      "video/rtx",
    ]);
    expect(preferredCodecs(codecs, "video", "h264")).toEqual([codecs[5], codecs[1]]);
  });
  it("takes the profile of VP9 and AV1 that all have", () => {
    const codecs = [
      { mimeType: "video/VP9", sdpFmtpLine: "profile-id=2" },
      { mimeType: "video/VP9", sdpFmtpLine: "profile-id=0" },
      { mimeType: "video/rtx" },
      { mimeType: "video/AV1", sdpFmtpLine: "level-idx=5;profile=1;tier=0" },
      { mimeType: "video/AV1", sdpFmtpLine: "level-idx=5;profile=0;tier=0" },
    ];
    expect(preferredCodecs(codecs, "video", "vp9")).toEqual([codecs[1], codecs[2]]);
    expect(preferredCodecs(codecs, "video", "av1")).toEqual([codecs[4], codecs[2]]);
    const bare = { mimeType: "video/AV1" };
    expect(preferredCodecs([bare], "video", "av1")).toEqual([bare]);
    expect(preferredCodecs(codecs.slice(0, 1), "video", "vp9")).toEqual([]);
  });
  it("takes Opus, with redundancy after or before it, and says where a codec is missing", () => {
    const audio = [{ mimeType: "audio/opus" }, { mimeType: "audio/red" }, { mimeType: "audio/CN" }];
    expect(preferredCodecs(audio, "audio", "vp8")).toEqual([audio[0], audio[1]]);
    expect(preferredCodecs(audio, "audio", "vp8", true)).toEqual([audio[1], audio[0]]);
    expect(preferredCodecs([audio[0]!], "audio", "vp8", true)).toEqual([audio[0]]);
    expect(preferredCodecs([audio[1]!], "audio", "vp8")).toEqual([]);
    expect(preferredCodecs([codecs[1]!], "video", "h264")).toEqual([]);
  });
});

describe("Silence", () => {
  const row = (track: string, packets_received = 0) => ({ track, packets_received }) as ReceivedTrack;

  it("tells a broken way once in ten seconds, while something should come and nothing does", () => {
    const silence = new Silence();
    expect(silence.broken([row("a")], 0, 0), "it was just mapped").toBe(false);
    expect(silence.broken([row("a")], 0, 3_000)).toBe(true);
    expect(silence.broken([row("a")], 0, 6_000)).toBe(false);
    expect(silence.broken([row("a")], 0, 12_000)).toBe(false);
    expect(silence.broken([row("a")], 0, 15_000)).toBe(true);
  });

  it("tells none where anything comes, or nothing should", () => {
    const came: [ReceivedTrack[], number | null][] = [
      [[row("a")], 60],
      [[row("a"), row("b", 1)], null],
      [[], 0],
    ];
    for (const [due, bytes] of came) {
      const silence = new Silence();
      silence.broken([row("a")], 0, 0);
      expect(silence.broken(due, bytes, 3_000)).toBe(false);
    }
    const unknown = new Silence();
    unknown.broken([row("a")], null, 0);
    expect(unknown.broken([row("a")], null, 3_000), "the browser does not count bytes").toBe(true);
    expect(unknown.broken([row("b")], null, 20_000), "another one was just mapped").toBe(false);
  });
});
