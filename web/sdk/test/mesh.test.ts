import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LinkLine } from "../src/link.ts";
import { Mesh, type MeshHooks } from "../src/mesh.ts";
import { linesOf } from "../src/sdp.ts";
import { MoimError } from "../src/signaling.ts";
import type { AnsweredTrack, OfferedTrack, Speaker } from "../src/wire.ts";
import { FakePeerConnection, fakeTrack, installBrowser } from "./fake-browser.ts";

const until = (check: () => void) => vi.waitFor(check, { timeout: 3_000, interval: 5 });
type Told = { type: "offer" | "answer"; from: string; to: string; sdp: string; tracks: AnsweredTrack[] };

/** The room's relay, and what it saw. */
class Relay {
  readonly members = new Map<string, Member>();
  readonly told: Told[] = [];
  /** Says whether a message is lost on its way. */
  lose: (told: Told) => boolean = () => false;

  join(name: string): Member {
    const member = new Member(this, name, [...this.members.keys()]);
    this.members.set(name, member);
    return member;
  }
  leave(name: string): void {
    this.members.get(name)?.mesh.close();
    this.members.delete(name);
    for (const { mesh } of this.members.values()) mesh.left(name);
  }
  pass(told: Told): void {
    this.told.push(told);
    const { type, from, to, sdp, tracks } = told;
    if (this.lose(told)) throw new MoimError("disconnected", "lost");
    queueMicrotask(() => {
      const mesh = this.members.get(to)?.mesh;
      if (type === "offer") mesh?.offered(from, sdp, tracks);
      else mesh?.answered(from, sdp, tracks);
    });
  }
}

class Member {
  readonly mesh: Mesh;
  readonly received = new Map<string, LinkLine[]>();
  readonly announced: OfferedTrack[][] = [];
  readonly candidates: string[] = [];
  readonly failures: MoimError[] = [];
  readonly speakers: Speaker[][] = [];
  #ids = 0;
  #known = new Map<string, string>();

  constructor(relay: Relay, name: string, others: string[]) {
    const hooks: MeshHooks = {
      announce: async (tracks) => {
        this.announced.push(tracks);
        const ids = new Map(
          tracks.map(({ mid }) => [mid, this.#known.get(mid) ?? `${name}-${mid}-${++this.#ids}`]),
        );
        this.#known = ids;
        return [...ids].map(([mid, id]) => ({ mid, id }));
      },
      offer: async (to, sdp, tracks) => relay.pass({ type: "offer", from: name, to, sdp, tracks }),
      answer: async (to, sdp, tracks) => relay.pass({ type: "answer", from: name, to, sdp, tracks }),
      candidate: async (to, candidate) => void this.candidates.push(`${to} ${candidate}`),
      received: async (participant, lines) => void this.received.set(participant, lines),
      sent: () => {},
      connection: () => {},
      speakers: (speakers) => this.speakers.push(speakers),
      failed: (error) => this.failures.push(error),
    };
    this.mesh = new Mesh([], ["audio", "video"], "vp8", others, hooks);
  }
  /** Ids that come in from someone. */
  from(other: string): string[] {
    return (this.received.get(other) ?? []).map(({ id }) => id).sort();
  }
  async start(...kinds: ("audio" | "video")[]): Promise<void> {
    for (const kind of kinds) this.mesh.send(fakeTrack(kind), kind);
    await this.mesh.start();
  }
}

let relay: Relay;
beforeEach(() => {
  installBrowser();
  relay = new Relay();
});
afterEach(() => {
  for (const { mesh, failures } of relay.members.values()) {
    mesh.close();
    expect(failures).toEqual([]);
  }
  vi.unstubAllGlobals();
});

describe("Mesh", () => {
  it("announces, then the joiner offers to those who are there, and everyone gets everyone's tracks", async () => {
    const [a, b, c] = [relay.join("a"), relay.join("b"), relay.join("c")];
    await a.start("audio", "video");
    expect(FakePeerConnection.all).toHaveLength(0);
    await b.start("audio", "video");
    await c.start("audio");
    expect(c.announced).toEqual([[{ mid: "audio", kind: "audio", name: "audio" }]]);
    await until(() => {
      expect(b.from("a")).toEqual(["a-audio-1", "a-video-2"]);
      expect(a.from("b")).toEqual(["b-audio-1", "b-video-2"]);
      expect(c.from("a")).toEqual(["a-audio-1", "a-video-2"]);
      expect(c.from("b")).toEqual(["b-audio-1", "b-video-2"]);
      expect(a.from("c")).toEqual(["c-audio-1"]);
      expect(b.from("c")).toEqual(["c-audio-1"]);
    });
    expect(FakePeerConnection.all).toHaveLength(6);
    const offers = relay.told.filter(({ type }) => type === "offer").map(({ from, to }) => from + to);
    expect(offers).toEqual(["ba", "ca", "cb"]);
    expect(a.mesh.sent().map(({ participant, id }) => `${participant} ${id}`)).toEqual([
      "b a-audio-1",
      "b a-video-2",
      "c a-audio-1",
      "c a-video-2",
    ]);
  });

  it("closes a leaver's connection alone", async () => {
    const [a, b, c] = [relay.join("a"), relay.join("b"), relay.join("c")];
    for (const member of [a, b, c]) await member.start("audio");
    await until(() => expect(a.from("c")).toHaveLength(1));
    await until(() => expect(b.from("c")).toHaveLength(1));
    const told = relay.told.length;
    relay.leave("c");
    await until(() =>
      expect(FakePeerConnection.all.map((pc) => pc.connectionState).sort()).toEqual([
        ...Array(4).fill("closed"),
        ...Array(2).fill("connected"),
      ]),
    );
    expect(a.from("c")).toEqual([]);
    expect(a.from("b")).toEqual(["b-audio-1"]);
    expect(relay.told).toHaveLength(told);
  });

  it("offers what is published later, under the same connection, from either side", async () => {
    const [a, b] = [relay.join("a"), relay.join("b")];
    await a.start();
    await b.start("audio");
    await until(() => expect(a.from("b")).toEqual(["b-audio-1"]));
    a.mesh.send(fakeTrack("video"), "video");
    await a.mesh.negotiate();
    await until(() => expect(b.from("a")).toEqual(["a-video-1"]));
    await b.mesh.stopSending("audio");
    expect(b.announced.at(-1)).toEqual([]);
    b.mesh.send(fakeTrack("audio"), "audio");
    await b.mesh.negotiate();
    await until(() => expect(a.from("b")).toEqual(["b-audio-2"]));
    expect(FakePeerConnection.all).toHaveLength(2);
    expect(FakePeerConnection.all.every((pc) => pc.transceivers.length === 2)).toBe(true);
  });

  it("mends offers that cross", async () => {
    const [a, b] = [relay.join("a"), relay.join("b")];
    await a.start();
    await b.start();
    await until(() => expect(relay.told).toHaveLength(2));
    await until(() =>
      expect(FakePeerConnection.all.map((pc) => pc.signalingState)).toEqual(["stable", "stable"]),
    );
    a.mesh.send(fakeTrack("audio"), "audio");
    b.mesh.send(fakeTrack("video"), "video");
    await Promise.all([a.mesh.negotiate(), b.mesh.negotiate()]);
    await until(() => {
      expect(a.from("b")).toEqual(["b-video-1"]);
      expect(b.from("a")).toEqual(["a-audio-1"]);
    });
    const crossing = relay.told.slice(2).map(({ type, from }) => type + from);
    expect(crossing.slice(0, 2).sort()).toEqual(["offera", "offerb"]);
    for (const pc of FakePeerConnection.all) {
      const sending = pc.getTransceivers().filter((line) => line.sent !== null);
      expect(sending).toHaveLength(1);
      expect(sending[0]!.currentDirection).toMatch(/^send/);
    }
  });

  it("answers one who sends and receives on lines apart, on the lines where he listens", async () => {
    const a = relay.join("a");
    await a.start("audio", "video");
    const line = (kind: string, mid: string, direction: string) =>
      `m=${kind} 9\r\na=mid:${mid}\r\na=${direction}\r\n`;
    const sdp = `v=0\r\n${line("audio", "x", "sendonly")}${line("audio", "y", "recvonly")}${line("video", "z", "recvonly")}`;
    a.mesh.offered("bot", sdp, [{ mid: "x", id: "bot-1" }]);
    await until(() => expect(a.from("bot")).toEqual(["bot-1"]));
    const answer = relay.told.find(({ type }) => type === "answer")!;
    expect(answer.tracks).toEqual([
      { mid: "y", id: "a-audio-1" },
      { mid: "z", id: "a-video-2" },
    ]);
    expect(linesOf(answer.sdp)).toEqual([
      { mid: "x", sends: false, receives: true },
      { mid: "y", sends: true, receives: false },
      { mid: "z", sends: true, receives: false },
    ]);
    expect(relay.told).toHaveLength(1);
  });

  it("offers its own line to one who has none for it", async () => {
    const a = relay.join("a");
    await a.start("audio", "video");
    a.mesh.offered("bot", "v=0\r\nm=audio 9\r\na=mid:0\r\na=sendrecv\r\n", [{ mid: "0", id: "bot-1" }]);
    await until(() => expect(relay.told.map(({ type }) => type)).toEqual(["answer", "offer"]));
    expect(relay.told[0]!.tracks).toEqual([{ mid: "0", id: "a-audio-1" }]);
    expect(relay.told[1]!.tracks.map(({ id }) => id)).toEqual(["a-audio-1", "a-video-2"]);
  });

  it("looks for a new path when one fails, on that connection alone", async () => {
    const [a, b, c] = [relay.join("a"), relay.join("b"), relay.join("c")];
    for (const member of [a, b, c]) await member.start("audio");
    await until(() => expect(b.from("c")).toHaveLength(1));
    const offerer = FakePeerConnection.all[0]!; // of b, with a
    offerer.become("failed");
    expect(b.mesh.connectionState).toBe("connected"); // c is still there
    await until(() => expect(offerer.restarts).toBe(1));
    await until(() => expect(offerer.connectionState).toBe("connected"));
    expect(FakePeerConnection.all.map((pc) => pc.restarts).reduce((sum, n) => sum + n)).toBe(1);
  });

  it("is connected while it waits for someone new, and not while those it calls do not answer", async () => {
    const [a, b] = [relay.join("a"), relay.join("b")];
    await a.start("audio");
    relay.lose = () => true;
    await b.start("audio");
    await until(() => expect(relay.told).toHaveLength(1));
    expect(a.mesh.connectionState).toBe("connected");
    expect(b.mesh.connectionState).toBe("connecting");
    relay.lose = () => false;
    b.mesh.retry();
    await until(() => expect(b.mesh.connectionState).toBe("connected"));
    expect(relay.told.map(({ type }) => type)).toEqual(["offer", "offer", "answer"]);
    expect(b.from("a")).toEqual(["a-audio-1"]);
  });

  it("trickles: candidates follow the description, and wait for that of the other side", async () => {
    const [a, b] = [relay.join("a"), relay.join("b")];
    await a.start();
    await b.start();
    await until(() => expect(FakePeerConnection.all).toHaveLength(2));
    const [pcB, pcA] = FakePeerConnection.all as [FakePeerConnection, FakePeerConnection];
    await until(() => expect(pcB.signalingState).toBe("stable"));
    pcB.onicecandidate?.({ candidate: { candidate: "candidate:1", sdpMid: "0" } });
    pcB.onicecandidate?.({ candidate: null });
    expect(b.candidates).toEqual(["a candidate:1", "a "]);
    a.mesh.candidate("b", "candidate:1", "0");
    a.mesh.candidate("b", "", undefined);
    a.mesh.candidate("stranger", "candidate:2", "0");
    await until(() => expect(pcA.candidates).toEqual([{ candidate: "candidate:1", sdpMid: "0" }]));

    relay.lose = ({ type }) => type === "answer";
    const c = relay.join("c");
    await c.start();
    await until(() => expect(relay.told.at(-1)).toMatchObject({ type: "answer", to: "c" }));
    const pcC = FakePeerConnection.all[2]!;
    c.mesh.candidate("a", "candidate:3", "0");
    await new Promise((resolve) => setTimeout(resolve, 0));
    expect(pcC.candidates).toEqual([]);
    relay.lose = () => false;
    c.mesh.retry();
    await until(() => expect(pcC.candidates).toEqual([{ candidate: "candidate:3", sdpMid: "0" }]));
  });

  it("tells who is heard from what is played, and only when that changes", async () => {
    const [a, b] = [relay.join("a"), relay.join("b")];
    await a.start();
    await b.start("audio");
    await until(() => expect(a.from("b")).toHaveLength(1));
    const pcA = FakePeerConnection.all[1]!;
    pcA.transceivers[0]!.level = 0.1;
    await until(() => expect(a.speakers).toEqual([[{ id: "b", level_dbov: 20 }]]));
    pcA.transceivers[0]!.level = 0.0001;
    await until(() => expect(a.speakers).toHaveLength(2));
    expect(a.speakers.at(-1)).toEqual([]);
  });
});
