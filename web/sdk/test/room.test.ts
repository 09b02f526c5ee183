import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Room } from "../src/room.ts";
import type { MoimError } from "../src/signaling.ts";
import type { OfferedTrack, Resume, RoomEvent, SlotWant } from "../src/wire.ts";
import { FakePeerConnection, fakeTrack, installBrowser } from "./fake-browser.ts";
import { FakeServer, Refusal } from "./fake-server.ts";

const until = (check: () => void) => vi.waitFor(check, { timeout: 5_000, interval: 5 });
const person = (id: string) => ({
  id,
  name: id.toUpperCase(),
  tracks: [
    { id: `${id}-mic`, kind: "audio" as const, muted: false },
    { id: `${id}-cam`, kind: "video" as const, muted: false },
  ],
});
const came = (epoch: number, id: string): RoomEvent => ({
  epoch,
  type: "participant_joined",
  participant: person(id),
});
const slot = (name: string, id: string, track: string) => ({
  slot: name,
  participant: id,
  track: `${id}-${track}`,
});

let server: FakeServer;
let window: EventTarget;
let room: Room | null = null;

beforeEach(async () => {
  window = installBrowser();
  server = await FakeServer.start();
  server.handlers.set("room.join", () => ({
    participant: `me-${server.count("room.join")}`,
    epoch: 4,
    room: {
      id: "garden",
      audio: "sfu",
      video: "sfu",
      video_codec: "vp8",
      limits: { max_participants: 9, max_audio_slots: 20, max_video_slots: 20 },
    },
    you: { can_publish: true, can_subscribe: true },
    participants: [person("a")],
    ice_servers: [],
  }));
  server.handlers.set("room.offer", ({ tracks }: { tracks: OfferedTrack[] }) => ({
    sdp: "answer",
    tracks: tracks.map(({ mid, name }) => ({ mid, id: `my-${name}` })),
  }));
  for (const quiet of ["room.slots", "room.mute", "room.leave", "ping"])
    server.handlers.set(quiet, () => ({ count: 1 }));
});

afterEach(async () => {
  await room?.leave();
  room = null;
  await server.stop();
  vi.unstubAllGlobals();
});

async function join(): Promise<Room> {
  room = await Room.join({
    url: server.url,
    room: "garden",
    name: "Me",
    microphone: fakeTrack("audio"),
    camera: fakeTrack("video"),
  });
  await until(() => expect(room!.state).toBe("connected"));
  return room;
}

describe("Room", () => {
  it("joins, offers its tracks and 16 slots with its session", async () => {
    const joined = await join();
    expect(joined.me).toBe("me-1");
    expect([...joined.participants.keys()]).toEqual(["a"]);
    const offer = server.last<{ sdp: string; tracks: OfferedTrack[]; session: string }>("room.offer");
    expect(offer.tracks).toEqual([
      { mid: "0", kind: "audio", name: "microphone" },
      { mid: "1", kind: "video", name: "camera" },
    ]);
    expect(offer.sdp.match(/audio recvonly/g)).toHaveLength(4);
    expect(offer.sdp.match(/video recvonly/g)).toHaveLength(12);
    expect(offer.session).toBe(server.last<{ session: string }>("room.join").session);
    await joined.mute("video", true);
    expect(server.last("room.mute")).toEqual({ track: "my-camera", muted: true });
  });

  it("rejects with the server's code", async () => {
    server.handlers.set("room.join", () => {
      throw new Refusal("room_full");
    });
    const refused = Room.join({ url: server.url, room: "garden", name: "Me" });
    await expect(refused).rejects.toMatchObject({ name: "MoimError", code: "room_full" });
  });

  it("hands out a slot's media with what it carries, and follows re-maps", async () => {
    const joined = await join();
    const log: string[] = [];
    joined.on("track-subscribed", ({ track, mediaTrack }) => log.push(`+${track} ${mediaTrack.id}`));
    joined.on("track-unsubscribed", ({ track, mediaTrack }) => log.push(`-${track} ${mediaTrack.id}`));
    server.push({ epoch: 4, type: "slots", slots: [slot("2", "a", "mic"), slot("6", "a", "cam")] });
    await until(() => expect(log).toEqual(["+a-mic 1-2", "+a-cam 1-6"]));
    expect(joined.mediaTrack("a-cam")?.id).toBe("1-6");
    log.length = 0;
    server.push(came(5, "b"));
    server.push({ epoch: 5, type: "slots", slots: [slot("6", "b", "cam"), slot("7", "a", "cam")] });
    await until(() => expect(log).toEqual(["-a-cam 1-6", "+b-cam 1-6", "+a-cam 1-7"]));
    server.push({ epoch: 6, type: "participant_left", participant: "b", reason: "left" });
    await until(() => expect(log.at(-1)).toBe("-b-cam 1-6"));
  });

  it("grows the pool by one offer when the server wants more slots", async () => {
    await join();
    server.push({ epoch: 4, type: "slots_wanted", audio: 5, video: 30 });
    await until(() => expect(server.count("room.offer")).toBe(2));
    const { sdp } = server.last<{ sdp: string }>("room.offer");
    expect(sdp.match(/audio recvonly/g)).toHaveLength(12);
    expect(sdp.match(/video recvonly/g)).toHaveLength(20); // the room's limit
    expect(FakePeerConnection.all).toHaveLength(1);
  });

  it("asks for the videos it is to show", async () => {
    const joined = await join();
    await joined.showVideos(["a-cam"]);
    const { want } = server.last<{ want: SlotWant[] }>("room.slots");
    expect(want).toHaveLength(12);
    expect(want[0]).toEqual({ slot: "6", track: "a-cam" });
    expect(want.slice(1).every(({ track }) => track === null)).toBe(true);
  });

  it("mends a gap by resume, in order", async () => {
    const joined = await join();
    const seen: string[] = [];
    joined.on("participant-joined", ({ id }) => seen.push(id));
    server.handlers.set("room.resume", ({ seen: from }: Resume) => {
      expect(from).toBe(4);
      return { epoch: 6, events: [came(5, "b"), came(6, "c")] };
    });
    server.push(came(6, "c"));
    server.push(came(7, "d"));
    await until(() => expect(seen).toEqual(["b", "c", "d"]));
    expect(server.count("room.resume")).toBe(1);
  });

  it("comes back after a lost socket without touching the media path", async () => {
    const joined = await join();
    const states: string[] = [];
    joined.on("state", (state) => states.push(state));
    server.handlers.set("room.resume", (argument: Resume) => {
      expect(argument).toMatchObject({ room: "garden", participant: "me-1", seen: 4 });
      expect(argument.session).toBe(server.last<{ session: string }>("room.join").session);
      return { epoch: 5, events: [came(5, "b")] };
    });
    server.cut();
    await until(() => expect(states).toEqual(["reconnecting", "connected"]));
    expect([...joined.participants.keys()]).toEqual(["a", "b"]);
    expect(server.count("room.offer")).toBe(1);
    expect(server.count("room.join")).toBe(1);
  });

  it("tells a mute made without a connection after coming back", async () => {
    const joined = await join();
    server.handlers.set("room.resume", () => ({ epoch: 4, events: [] }));
    server.cut();
    await until(() => expect(joined.state).toBe("reconnecting"));
    await joined.mute("audio", true);
    expect(server.count("room.mute")).toBe(0);
    await until(() => expect(server.last("room.mute")).toEqual({ track: "my-microphone", muted: true }));
    expect(joined.localTrack("audio")?.muted).toBe(true);
  });

  it("joins anew with another session and peer when the server forgot it", async () => {
    const joined = await join();
    const session = server.last<{ session: string }>("room.join").session;
    const again = vi.fn();
    joined.on("rejoined", again);
    server.handlers.set("room.resume", () => {
      throw new Refusal("gone");
    });
    server.cut();
    await until(() => expect(joined.me).toBe("me-2"));
    await until(() => expect(joined.state).toBe("connected"));
    expect(again).toHaveBeenCalledOnce();
    expect(server.last<{ session: string }>("room.join").session).not.toBe(session);
    expect(FakePeerConnection.all.map((peer) => peer.connectionState)).toEqual(["closed", "connected"]);
    expect(server.last<{ tracks: OfferedTrack[] }>("room.offer").tracks).toHaveLength(2);
  });

  it("offers again what got no answer because the socket was lost", async () => {
    await join();
    server.handlers.set("room.resume", () => ({ epoch: 4, events: [] }));
    const answer = server.handlers.get("room.offer")!;
    server.handlers.set("room.offer", (_data, socket) => {
      server.handlers.set("room.offer", answer);
      socket.terminate();
    });
    server.push({ epoch: 4, type: "slots_wanted", audio: 5, video: 12 });
    await until(() => expect(server.count("room.offer")).toBe(3));
    expect(server.count("room.resume")).toBe(1);
  });

  it("looks for a new path when the path fails or the network changes", async () => {
    await join();
    const peer = FakePeerConnection.all[0]!;
    peer.become("failed");
    await until(() => expect(peer.restarts).toBe(1));
    await until(() => expect(peer.connectionState).toBe("connected"));
    window.dispatchEvent(new Event("online"));
    await until(() => expect(peer.restarts).toBe(2));
    expect(server.count("ping")).toBeGreaterThan(0);
  });

  it("ends with the room, and says what the server refused", async () => {
    const joined = await join();
    const errors: MoimError[] = [];
    joined.on("error", (error) => errors.push(error));
    server.handlers.set("room.offer", () => {
      throw new Refusal("bad_sdp");
    });
    server.push({ epoch: 4, type: "slots_wanted", audio: 5, video: 12 });
    await until(() => expect(errors.map((error) => error.code)).toEqual(["bad_sdp"]));
    server.push({ epoch: 5, type: "room_ended", reason: "the server is shutting down" });
    await until(() => expect(joined.state).toBe("ended"));
    expect(FakePeerConnection.all[0]!.connectionState).toBe("closed");
  });

  it("leaves out events that it does not know", async () => {
    vi.spyOn(console, "warn").mockImplementation(() => {});
    const joined = await join();
    server.push({ epoch: 4, type: "party" } as unknown as RoomEvent);
    server.push(came(5, "b"));
    await until(() => expect(joined.participants.has("b")).toBe(true));
  });
});
