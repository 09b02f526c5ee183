import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Losses } from "../src/losses.ts";
import { Peer } from "../src/peer.ts";
import type { OfferedTrack } from "../src/wire.ts";
import { FakePeerConnection, type FakeTransceiver, fakeTrack, installBrowser } from "./fake-browser.ts";

const camera = (width = 1280, height = 720) => fakeTrack("video", { width, height });
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

let offers: OfferedTrack[][];
let peer: Peer;

function newPeer(simulcast = true): Peer {
  peer = new Peer(
    [],
    { codec: "vp8", redundancy: false, simulcast },
    {
      offer: async (_sdp, tracks) => {
        offers.push(tracks);
        return { sdp: "answer", tracks: tracks.map(({ mid }) => ({ mid, id: `id-${mid}` })) };
      },
      slotAdded: () => {},
      negotiated: () => {},
      connection: () => {},
      failed: (error) => {
        throw error;
      },
    },
  );
  return peer;
}

/** A peer that sends a camera, and the line on which it does. */
async function sending(track: MediaStreamTrack, simulcast = true): Promise<FakeTransceiver> {
  newPeer(simulcast);
  await peer.send(track, "camera");
  await peer.negotiate();
  await settled();
  return FakePeerConnection.all.at(-1)!.transceivers[0]!;
}

beforeEach(() => {
  installBrowser();
  offers = [];
});

afterEach(() => {
  peer.close();
  vi.unstubAllGlobals();
});

describe("a microphone", () => {
  it("says of sound that it is music, if the track does", async () => {
    newPeer();
    const [voice, violin] = [fakeTrack("audio"), fakeTrack("audio")];
    violin.contentHint = "music";
    await peer.send(voice, "microphone");
    await peer.send(violin, "violin");
    await peer.negotiate();
    expect(offers).toEqual([
      [
        { mid: "0", kind: "audio", name: "microphone" },
        { mid: "1", kind: "audio", name: "violin", content_hint: "music" },
      ],
    ]);
  });
});

describe("a camera in several sizes", () => {
  it("is offered with its layers, the smallest first", async () => {
    const line = await sending(camera());
    expect(line.encodings).toEqual([
      { rid: "q", active: true, scaleResolutionDownBy: 4, maxBitrate: 150_000 },
      { rid: "h", active: true, scaleResolutionDownBy: 2, maxBitrate: 470_000 },
      { rid: "f", active: true, scaleResolutionDownBy: 1, maxBitrate: 1_500_000 },
    ]);
    const layers = [
      { rid: "q", width: 320, height: 180 },
      { rid: "h", width: 640, height: 360 },
      { rid: "f", width: 1280, height: 720 },
    ];
    expect(offers).toEqual([[{ mid: "0", kind: "video", name: "camera", layers }]]);
    peer.restartIce();
    await settled();
    expect(offers[1], "each offer says it again").toEqual(offers[0]);
    expect(line.changes).toBe(0);
  });

  it("is sent in one size where that is asked for, and where it is small", async () => {
    for (const line of [await sending(camera(), false), await sending(camera(320, 180))])
      expect(line.encodings).toEqual([{ active: true }]);
    expect(offers).toEqual([
      [{ mid: "0", kind: "video", name: "camera" }],
      [{ mid: "0", kind: "video", name: "camera" }],
    ]);
  });

  it("is sent without the layers that nobody wants", async () => {
    const line = await sending(camera());
    peer.setLayer("id-0", 1);
    await settled();
    expect(line.rids).toBe("qh");
    peer.setLayer("id-0", 0);
    peer.setLayer("id-0", 2);
    await settled();
    expect(line.rids).toBe("qhf");
    peer.setLayer("another", 0);
    await settled();
    expect(line.rids).toBe("qhf");
  });

  it("rests as a whole, and comes back with the layers that are wanted then", async () => {
    const line = await sending(camera());
    peer.setLayer("id-0", 1);
    peer.pause("id-0", true);
    await settled();
    expect(line.rids).toBe("");
    peer.setLayer("id-0", 0);
    await settled();
    expect(line.rids).toBe("");
    peer.pause("id-0", false);
    await settled();
    expect(line.rids).toBe("q");
  });

  it("knows what is wanted of it before its answer came", async () => {
    newPeer();
    await peer.send(camera(), "camera");
    peer.setLayer("id-0", 0);
    await peer.negotiate();
    await settled();
    expect(FakePeerConnection.all[0]!.transceivers[0]!.rids).toBe("q");
  });

  it("goes on as it is where the browser refuses a change, and takes the next", async () => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    const line = await sending(camera());
    line.failsNext = true;
    peer.setLayer("id-0", 1);
    await settled();
    expect([line.rids, warned.mock.calls.length]).toEqual(["qhf", 1]);
    peer.setLayer("id-0", 0);
    await settled();
    expect(line.rids).toBe("q");
    warned.mockRestore();
  });

  it("tries a change again that the browser refused, and no more than a few times", async () => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    const line = await sending(camera());
    vi.useFakeTimers();
    line.failsNext = true;
    peer.setLayer("id-0", 1);
    await vi.advanceTimersByTimeAsync(1_000);
    expect([line.rids, warned.mock.calls.length]).toEqual(["qh", 1]);
    line.failsAlways = true;
    peer.setLayer("id-0", 0);
    await vi.advanceTimersByTimeAsync(60_000);
    expect([line.rids, warned.mock.calls.length]).toEqual(["qh", 6]);
    vi.useRealTimers();
    warned.mockRestore();
  });

  it("is exchanged for a smaller camera: fewer layers, told by an offer; one of equal size needs none", async () => {
    const line = await sending(camera());
    await peer.replace("camera", camera());
    await settled();
    expect(offers).toHaveLength(1);
    await peer.replace("camera", camera(640, 360));
    await settled();
    expect(line.rids).toBe("qh");
    expect(line.encodings.map((encoding) => encoding.scaleResolutionDownBy)).toEqual([2, 1, 1]);
    expect(offers[1]![0]!.layers).toEqual([
      { rid: "q", width: 320, height: 180 },
      { rid: "h", width: 640, height: 360 },
    ]);
    await peer.replace("camera", fakeTrack("video", { width: 1280, height: 720, displaySurface: "monitor" }));
    await settled();
    expect(line.rids).toBe("q");
    expect(line.encodings[0]).toEqual({ rid: "q", active: true, scaleResolutionDownBy: 1 });
    expect(offers[2]![0]).not.toHaveProperty("layers");
  });

  it("comes back on the line that it had, if that has enough layers", async () => {
    const line = await sending(camera());
    const { transceivers } = FakePeerConnection.all[0]!;
    for (const [width, lines] of [
      [640, 1],
      [1280, 1],
    ] as const) {
      await peer.stopSending("camera");
      await peer.send(camera(width, (width * 9) / 16), "camera");
      await peer.negotiate();
      await settled();
      expect(transceivers).toHaveLength(lines);
    }
    expect(line.rids).toBe("qhf");
    const small = await sending(camera(320, 180));
    await peer.stopSending("camera");
    await peer.send(camera(), "camera");
    expect(small.direction).toBe("inactive");
    expect(FakePeerConnection.all.at(-1)!.transceivers[1]!.rids).toBe("qhf");
  });

  it("is sent in full size where the server takes one layer alone", async () => {
    FakePeerConnection.refusesSimulcast = true;
    const line = await sending(camera());
    expect(line.encodings).toEqual([{ rid: "q", active: true, scaleResolutionDownBy: 1 }]);
    peer.restartIce();
    await settled();
    expect(offers[1]![0]).not.toHaveProperty("layers");
    peer.setLayer("id-0", 0);
    peer.pause("id-0", true);
    await settled();
    expect(line.active).toBe(false);
  });
});

describe("redundant sound", () => {
  it("is offered once more when packets are lost, and no longer when they are not", async () => {
    newPeer();
    await peer.send(fakeTrack("audio"), "microphone");
    await peer.negotiate();
    const line = FakePeerConnection.all.at(-1)!.transceivers[0]!;
    expect(line.preferred).toEqual(["audio/opus", "audio/red"]);
    peer.setRedundant(false);
    await settled();
    expect(offers).toHaveLength(1);
    peer.setRedundant(true);
    peer.setRedundant(true);
    await settled();
    expect(line.preferred).toEqual(["audio/red", "audio/opus"]);
    expect(offers).toHaveLength(2);
    peer.setRedundant(false);
    await settled();
    expect(line.preferred).toEqual(["audio/opus", "audio/red"]);
    expect(offers).toHaveLength(3);
  });

  it("is asked for by many losses in a row of reports, and until there are few", () => {
    const losses = new Losses();
    const early = [4, null, null].map((pct) => losses.report(pct));
    expect(early, "too few reports").toEqual([false, false, false]);
    expect(losses.report(0), "2 % of two").toBe(true);
    expect(Array.from({ length: 8 }, () => losses.report(1.2)).every(Boolean)).toBe(true);
    expect(Array.from({ length: 10 }, () => losses.report(0.4)).at(-1)).toBe(false);
    expect(Array.from({ length: 10 }, () => losses.report(1.2)).at(-1)).toBe(false);
  });
});
