import { describe, expect, it } from "vitest";
import { preferredCodecs } from "../src/codecs.ts";
import { Epochs } from "../src/epochs.ts";
import { reconnectDelayMs } from "../src/reconnect.ts";
import type { RoomEvent } from "../src/wire.ts";

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
