import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Client } from "../src/client.ts";
import type { JoinOptions } from "../src/room-types.ts";
import { Room } from "../src/room.ts";
import type { MoimError } from "../src/signaling.ts";
import { SAMPLE_INTERVAL_MS } from "../src/wire.ts";
import type { AnsweredTrack, OfferedTrack, Resume, RoomEvent, SlotShown, SlotWant } from "../src/wire.ts";
import { FakePeerConnection, fakeTrack, installBrowser } from "./fake-browser.ts";
import { FakeServer, Refusal } from "./fake-server.ts";

const AUDIO_SLOT = /m=audio 9\r\na=mid:\d+\r\na=recvonly/g;
const VIDEO_SLOT = /m=video 9\r\na=mid:\d+\r\na=recvonly/g;
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
  count: 3,
});
const slot = (name: string, id: string, track: string) => ({
  slot: name,
  participant: id,
  track: `${id}-${track}`,
});

let server: FakeServer;
let window: EventTarget;
let room: Room | null = null;

let kinds: { audio: string; video: string };
const topologies = (audio: string, video: string) => {
  kinds = { audio, video };
};

beforeEach(async () => {
  topologies("sfu", "sfu");
  window = installBrowser();
  server = await FakeServer.start();
  server.handlers.set("room.join", () => ({
    participant: `me-${server.count("room.join")}`,
    epoch: 4,
    room: {
      id: "garden",
      ...kinds,
      video_codec: "vp8",
      limits: { max_participants: 9, max_audio_slots: 20, max_video_slots: 20 },
    },
    you: { can_publish: true, can_subscribe: true, can_moderate: true },
    count: 2,
    participants: [person("a")],
    ice_servers: [],
  }));
  server.handlers.set("room.offer", ({ tracks }: { tracks: OfferedTrack[] }) => ({
    sdp: "answer",
    tracks: tracks.map(({ mid, name }) => ({ mid, id: `my-${name}` })),
  }));
  server.handlers.set("room.announce", ({ tracks }: { tracks: OfferedTrack[] }) => ({
    tracks: tracks.map(({ mid }) => ({ mid, id: `my-${mid}` })),
  }));
  for (const quiet of [
    "room.peer_offer",
    "room.peer_answer",
    "room.peer_candidate",
    "room.slots",
    "room.mute",
    "room.leave",
    "ping",
  ])
    server.handlers.set(quiet, () => ({ count: 1 }));
});

afterEach(async () => {
  await room?.leave();
  room = null;
  await server.stop();
  vi.unstubAllGlobals();
});

async function join(state = "connected", more: Partial<JoinOptions> = {}): Promise<Room> {
  room = await Room.join({
    url: server.url,
    room: "garden",
    name: "Me",
    microphone: fakeTrack("audio"),
    camera: fakeTrack("video"),
    ...more,
  });
  await until(() => expect(room!.state).toBe(state));
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
    expect(offer.sdp.match(AUDIO_SLOT)).toHaveLength(4);
    expect(offer.sdp.match(VIDEO_SLOT)).toHaveLength(12);
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
    server.push({ epoch: 6, type: "participant_left", participant: "b", reason: "left", count: 1 });
    await until(() => expect(log.at(-1)).toBe("-b-cam 1-6"));
  });

  it("counts an audience, knows by name whom it is told, and reads the others page by page", async () => {
    const joined = await join();
    expect([joined.count, joined.participants.size]).toEqual([2, 1]);
    const log: string[] = [];
    joined.on("people", ({ count, joined, left }) => log.push(`${count} +${joined} -${left}`));
    joined.on("participant-named", ({ id, hand }) => log.push(`${id} ${hand}`));
    joined.on("participant-joined", ({ id }) => log.push(`${id} came`));
    joined.on("track-added", ({ track }) => log.push(track.id));
    joined.on("participant-changed", ({ id, hand }) => log.push(`${id} now ${hand}`));
    joined.on("active-speakers", ([speaker]) => log.push(`${speaker?.name} speaks`));
    server.push({ epoch: 4, type: "people", count: 900, joined: 898, left: 0 });
    server.push({ epoch: 4, type: "active_speakers", speakers: [{ id: "z", level_dbov: 20, name: "Zoe" }] });
    const participant = { ...person("b"), hand: true };
    server.push({ epoch: 5, type: "participant_joined", participant, count: 900, from_audience: true });
    server.push({ epoch: 6, type: "participant_changed", participant: person("b") });
    await until(() => expect(log.at(-1)).toBe("b now false"));
    expect(log).toEqual(["900 +898 -0", "Zoe speaks", "b true", "b-mic", "b-cam", "b now false"]);
    expect([joined.count, joined.participants.size]).toEqual([900, 2]);
    server.push({ epoch: 7, type: "participant_left", participant: "b", reason: "left", count: 899 });
    await until(() => expect(joined.count).toBe(899));

    server.handlers.set("room.people", () => ({ count: 899, people: [person("c")] }));
    server.handlers.set("room.hand", () => null);
    expect((await joined.people("b", 1)).people[0]?.name).toBe("C");
    expect(server.last("room.people")).toEqual({ after: "b", limit: 1 });
    await joined.raiseHand(true);
    expect(server.last("room.hand")).toEqual({ raised: true });
    expect(joined.hand).toBe(true);
  });

  it("grows the pool by one offer when the server wants more slots", async () => {
    await join();
    server.push({ epoch: 4, type: "slots_wanted", audio: 5, video: 30 });
    await until(() => expect(server.count("room.offer")).toBe(2));
    const { sdp } = server.last<{ sdp: string }>("room.offer");
    expect(sdp.match(AUDIO_SLOT)).toHaveLength(12);
    expect(sdp.match(VIDEO_SLOT)).toHaveLength(20); // the room's limit
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

  it("ends for who is removed, whose event repeats the last number", async () => {
    const joined = await join();
    server.push({ epoch: 3, type: "room_ended", reason: "a moderator removed you" });
    await until(() => expect(joined.state).toBe("ended"));
    expect(FakePeerConnection.all[0]!.connectionState).toBe("closed");
  });

  it("joins anew where an offer shows that the server gave it up", async () => {
    for (const code of ["not_joined", "unknown_participant", "gone"]) {
      const joined = await join();
      const answer = server.handlers.get("room.offer")!;
      const joins = server.count("room.join");
      server.handlers.set("room.offer", () => {
        server.handlers.set("room.offer", answer);
        throw new Refusal(code);
      });
      server.push({ epoch: 4, type: "slots_wanted", audio: 5, video: 12 });
      await until(() => expect(server.count("room.join")).toBe(joins + 1));
      await until(() => expect(joined.state).toBe("connected"));
      await joined.leave();
    }
  });

  it("does not come back when another session of the same identity took its place", async () => {
    const joined = await join();
    const ended = vi.fn();
    joined.on("ended", ended);
    server.handlers.set("room.resume", () => {
      throw new Refusal("replaced");
    });
    server.cut();
    await until(() => expect(ended).toHaveBeenCalledExactlyOnceWith({ reason: "replaced" }));
    expect(joined.state).toBe("ended");
    expect(server.count("room.join")).toBe(1);
  });

  it("does not come back when a moderator removed it while its socket was lost", async () => {
    const joined = await join();
    const ended = vi.fn();
    joined.on("ended", ended);
    server.handlers.set("room.resume", () => {
      throw new Refusal("not_allowed");
    });
    server.cut();
    await until(() => expect(ended).toHaveBeenCalledExactlyOnceWith({ reason: "removed" }));
    expect(joined.state).toBe("ended");
    expect(server.count("room.join")).toBe(1);
  });

  it("ends for good when it is told that another session took its place", async () => {
    const joined = await join();
    server.push({ epoch: 4, type: "room_ended", reason: "you came in again from another page or device" });
    server.push({ epoch: 5, type: "participant_left", participant: joined.me, reason: "replaced", count: 1 });
    await until(() => expect(joined.state).toBe("ended"));
    // It closes its socket by itself: one that was lost would come back.
    await until(() => expect(server.open).toBe(0));
    expect(server.count("room.join") + server.count("room.resume")).toBe(1);
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

  it("looks for a new path when nothing comes although a track should, and not while the socket is away", async () => {
    const ticks: (() => void)[] = [];
    const every = globalThis.setInterval;
    vi.stubGlobal("setInterval", (tick: () => void, ms: number) =>
      ms === SAMPLE_INTERVAL_MS ? ticks.push(tick) : every(tick, ms),
    );
    await join();
    const peer = FakePeerConnection.all[0]!;
    const sample = async () => {
      const count = server.count("quality.sample");
      ticks.forEach((tick) => tick());
      await until(() => expect(server.count("quality.sample")).toBe(count + 1));
    };
    await sample();
    await sample();
    expect(peer.restarts, "nothing is mapped").toBe(0);
    server.push({ epoch: 4, type: "slots", slots: [slot("2", "a", "mic")] });
    await until(() => expect(room!.mediaTrack("a-mic")).not.toBeNull());
    await sample();
    expect(peer.restarts, "it had no time").toBe(0);
    await sample();
    await until(() => expect(peer.restarts).toBe(1));
    await sample();
    expect(peer.restarts, "not so soon again").toBe(1);
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 20_000);
    await sample();
    await until(() => expect(peer.restarts).toBe(2));
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

  it("plays the mix of an MCU room from its one slot", async () => {
    topologies("mcu", "none");
    const joined = await join();
    const { sdp, tracks } = server.last<{ sdp: string; tracks: OfferedTrack[] }>("room.offer");
    expect(sdp.match(AUDIO_SLOT)).toHaveLength(1);
    expect(sdp).not.toContain("video");
    expect(tracks.map(({ kind }) => kind)).toEqual(["audio"]);
    expect(joined.localTrack("video")).toBeNull();
    const heard = vi.fn();
    joined.on("track-subscribed", heard);
    server.push({
      epoch: 4,
      type: "slots",
      slots: [{ slot: "1", participant: null, track: null, mix: true }],
    });
    await until(() => expect(heard).toHaveBeenCalledOnce());
    expect(heard.mock.calls[0]![0]).toMatchObject({ participant: "", track: "mix", kind: "audio" });
    expect(joined.mediaTrack("mix")?.id).toBe("1-1");
    server.push({ epoch: 5, type: "participant_left", participant: "a", reason: "left", count: 1 });
    await until(() => expect(joined.participants.size).toBe(0));
    expect(joined.mediaTrack("mix")?.id).toBe("1-1");
  });

  it("goes each kind's own way: audio from person to person, video by the server", async () => {
    topologies("mesh", "sfu");
    const joined = await join("connecting");
    const offer = server.last<{ sdp: string; tracks: OfferedTrack[] }>("room.offer");
    expect(offer.tracks.map(({ name }) => name)).toEqual(["camera"]);
    expect(offer.sdp).not.toContain("audio");
    await until(() => expect(server.count("room.peer_offer")).toBe(1));
    const order = server.calls.map(({ event }) => event).filter((event) => /announce|peer_offer/.test(event));
    expect(order).toEqual(["room.announce", "room.peer_offer"]);
    const peerOffer = server.last<{ to: string; sdp: string; tracks: AnsweredTrack[] }>("room.peer_offer");
    expect(peerOffer).toMatchObject({ to: "a", tracks: [{ mid: "0", id: "my-audio" }] });
    expect(peerOffer.sdp).not.toContain("video");

    const log: string[] = [];
    joined.on("track-subscribed", ({ participant, track }) => log.push(`+${participant} ${track}`));
    joined.on("track-unsubscribed", ({ participant, track }) => log.push(`-${participant} ${track}`));
    const answer = "v=0\r\nm=audio 9\r\na=mid:0\r\na=sendrecv\r\n";
    server.push({
      epoch: 4,
      type: "peer_answer",
      from: "a",
      sdp: answer,
      tracks: [{ mid: "0", id: "a-mic" }],
    });
    await until(() => expect(log).toEqual(["+a a-mic"]));
    expect(joined.mediaTrack("a-mic")).not.toBeNull();
    expect(joined.state).toBe("connected");
    await joined.mute("audio", true);
    expect(server.last("room.mute")).toEqual({ track: "my-audio", muted: true });
    server.push({ epoch: 5, type: "participant_left", participant: "a", reason: "left", count: 1 });
    await until(() => expect(log).toEqual(["+a a-mic", "-a a-mic"]));
    expect(joined.mediaTrack("a-mic")).toBeNull();
    await until(() =>
      expect(FakePeerConnection.all.map((pc) => pc.connectionState)).toEqual(["connected", "closed"]),
    );
  });

  it("is silenced by a moderator until he releases it", async () => {
    const joined = await join();
    const told: boolean[] = [];
    joined.on("silenced", ({ silenced }) => told.push(silenced));
    const own = { id: "my-microphone", kind: "audio" as const, name: "microphone" };
    const changed = (epoch: number, muted: boolean, silenced: boolean): RoomEvent => ({
      epoch,
      type: "track_changed",
      participant: "me-1",
      track: { ...own, muted, silenced },
    });
    server.push(changed(5, true, true));
    await until(() => expect(told).toEqual([true]));
    const local = joined.localTrack("audio")!;
    expect(local).toMatchObject({ silenced: true, muted: false });
    expect(local.mediaTrack.enabled).toBe(false);
    await expect(joined.mute("audio", false)).rejects.toMatchObject({ code: "not_allowed" });
    server.push(changed(6, false, false));
    await until(() => expect(told).toEqual([true, false]));
    expect(local.mediaTrack.enabled).toBe(true);
  });

  it("rests a track that nobody has in a slot, told before or after it has an id, and resumes it", async () => {
    const paused = (track: string, paused: boolean): RoomEvent => ({
      epoch: 4,
      type: "track_paused",
      track,
      paused,
    });
    const { camera, microphone } = {
      camera: () => FakePeerConnection.all[0]!.transceivers[1]!,
      microphone: () => FakePeerConnection.all[0]!.transceivers[0]!,
    };
    const answer = server.handlers.get("room.offer")!;
    server.handlers.set("room.offer", (data, socket) => {
      server.push(paused("my-camera", true));
      return answer(data, socket);
    });
    await join();
    await until(() => expect(camera().active).toBe(false));
    expect(microphone().active).toBe(true);
    server.push(paused("my-camera", false));
    await until(() => expect(camera().active).toBe(true));
    server.push(paused("my-camera", true));
    await until(() => expect(camera().active).toBe(false));
  });

  it("sends a camera in the sizes that are wanted, where the server passes it on", async () => {
    const camera = fakeTrack("video", { width: 640, height: 360 });
    const line = () => FakePeerConnection.all.at(-1)!.transceivers[1]!;
    const offered = () => server.last<{ tracks: OfferedTrack[] }>("room.offer").tracks[1]!.layers;
    await join("connected", { camera });
    expect(offered()?.map(({ rid }) => rid)).toEqual(["h", "f"]);
    server.push({ epoch: 4, type: "track_layers", track: "my-camera", layer: 0 });
    await until(() => expect(line().rids).toBe("h"));
    server.push({ epoch: 4, type: "track_layers", track: "my-camera", layer: 1 });
    await until(() => expect(line().rids).toBe("hf"));
    await room!.leave();
    await join("connected", { camera, simulcast: false });
    expect(offered()).toBeUndefined();
    await room!.leave();
    topologies("mesh", "mesh");
    await join("connecting", { camera });
    await until(() => expect(server.count("room.peer_offer")).toBe(1));
    expect(line().encodings).toEqual([{ active: true }]);
  });

  it("tells at which sizes pictures are shown, and again after coming back and joining anew", async () => {
    const joined = await join();
    const shown = () => server.calls.filter(({ event }) => event === "room.slots").map(({ data }) => data);
    const size = (slot: string): { shown: SlotShown[] } => ({ shown: [{ slot, width: 640, height: 360 }] });
    joined.setShown("a-cam", { width: 640, height: 360 });
    server.push({ epoch: 4, type: "slots", slots: [slot("2", "a", "mic"), slot("6", "a", "cam")] });
    await until(() => expect(shown()).toEqual([size("6")]));
    server.handlers.set("room.resume", () => ({ epoch: 4, events: [] }));
    server.cut();
    await until(() => expect(shown()).toEqual([size("6"), size("6")]));
    server.handlers.set("room.resume", () => {
      throw new Refusal("gone");
    });
    server.cut();
    await until(() => expect(joined.me).toBe("me-2"));
    await until(() => expect(joined.state).toBe("connected"));
    server.push({ epoch: 4, type: "slots", slots: [slot("7", "a", "cam")] });
    await until(() => expect(shown().at(-1)).toEqual(size("7")));
    expect(shown()).toHaveLength(3);
  });

  it("says why a picture does not flow", async () => {
    const joined = await join();
    const told: (string | null)[] = [];
    joined.on("track-paused", ({ reason }) => told.push(reason));
    server.push({ epoch: 4, type: "slots", slots: [{ ...slot("6", "a", "cam"), paused: "bandwidth" }] });
    await until(() => expect(told).toEqual(["bandwidth"]));
    expect(joined.pauseReason("a-cam")).toBe("bandwidth");
    server.push({ epoch: 4, type: "slots", slots: [slot("6", "a", "cam")] });
    await until(() => expect(told).toEqual(["bandwidth", null]));
    expect(joined.pauseReason("a-cam")).toBeNull();
  });

  it("moderates by the calls of the contract, and ends when it is put out", async () => {
    const joined = await join();
    for (const call of ["room.remove", "room.lock", "room.limit"]) server.handlers.set(call, () => ({}));
    expect(joined.canModerate).toBe(true);
    await joined.muteOther("a-mic", true);
    await joined.remove("a");
    await joined.lock(true);
    await joined.limit(4);
    expect(server.calls.slice(-4)).toMatchObject([
      { event: "room.mute", data: { track: "a-mic", muted: true } },
      { event: "room.remove", data: { participant: "a" } },
      { event: "room.lock", data: { locked: true } },
      { event: "room.limit", data: { max_participants: 4 } },
    ]);
    const changed = vi.fn();
    joined.on("room-changed", changed);
    server.push({ epoch: 5, type: "room_changed", room: { ...joined.info, locked: true } });
    await until(() => expect(changed).toHaveBeenCalledOnce());
    expect(joined.info.locked).toBe(true);
    const ended = vi.fn();
    joined.on("ended", ended);
    server.push({ epoch: 6, type: "participant_left", participant: "me-1", reason: "removed", count: 1 });
    await until(() => expect(ended).toHaveBeenCalledWith({ reason: "removed" }));
    expect(server.count("room.join")).toBe(1);
  });

  it("leaves an application's socket open when the room is left", async () => {
    const client = new Client({ url: server.url, token: "x.y.z" });
    server.handlers.set("weather", () => ({ sun: true }));
    const joined = await client.join({ room: "garden", name: "Me" });
    expect(server.last<{ token: string }>("room.join").token).toBe("x.y.z");
    expect(server.tokens).toEqual(["x.y.z"]);
    await joined.leave();
    expect(client.socket.state).toBe("open");
    expect(await client.socket.invoke("weather", {})).toEqual({ sun: true });
    const again = await client.join({ room: "garden", name: "Me" });
    server.push(came(5, "b"));
    await until(() => expect(again.participants.has("b")).toBe(true));
    client.close();
  });

  it("leaves out events that it does not know", async () => {
    vi.spyOn(console, "warn").mockImplementation(() => {});
    const joined = await join();
    server.push({ epoch: 4, type: "party" } as unknown as RoomEvent);
    server.push(came(5, "b"));
    await until(() => expect(joined.participants.has("b")).toBe(true));
  });
});
