import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { bool, count, nullable, object, oneOf, optional, type Shape, text } from "../src/shape.ts";
import * as wire from "../src/wire.ts";

const fixtures: Record<string, unknown> = JSON.parse(
  readFileSync(new URL("../../../crates/wire/fixtures/messages.json", import.meta.url), "utf8"),
);

const request = (event: string, data: Shape<unknown>) => object({ event: oneOf(event), data, cid: count });
const response = (data: Shape<unknown>) => object({ rid: count, data });
const published = object({
  event: oneOf("#publish"),
  data: object({ channel: text, data: wire.roomEvent }),
});

/** Every fixture that this client knows; one without an entry here, or the reverse, fails the test. */
const shapes: Record<string, Shape<unknown>> = {
  handshake: request("#handshake", object({ authToken: nullable(text) })),
  handshake_answer: response(
    object({ id: text, pingTimeout: count, isAuthenticated: bool, authError: optional(text) }),
  ),
  join: request(wire.call.join, wire.join),
  join_preset: request(wire.call.join, wire.join),
  joined: response(wire.joined),
  join_refused: object({ rid: count, error: wire.roomError }),
  join_locked: object({ rid: count, error: wire.roomError }),
  offer: request(wire.call.offer, wire.offer),
  answer: response(wire.answer),
  announce: request(wire.call.announce, wire.announce),
  announced: response(wire.announced),
  peer_offer: request(wire.call.peerOffer, wire.peerDescription),
  peer_answer: request(wire.call.peerAnswer, wire.peerDescription),
  peer_candidate: request(wire.call.peerCandidate, wire.peerCandidate),
  remove: request(wire.call.remove, wire.remove),
  remove_lifted: request(wire.call.remove, wire.remove),
  lock: request(wire.call.lock, wire.lock),
  limit: request(wire.call.limit, wire.limit),
  hand: request(wire.call.hand, wire.hand),
  people_first: request(wire.call.people, wire.people),
  people: request(wire.call.people, wire.people),
  // The socket client's own words; it decodes them itself.
  kick_out: object({ event: oneOf("#kickOut"), data: object({ channel: text, message: text }) }),
  authenticate: request("#authenticate", text),
  authenticated: response(object({ isAuthenticated: bool, authError: nullable(object({ name: text })) })),
  set_auth_token: object({ event: oneOf("#setAuthToken"), data: object({ token: text }) }),
  slots_want: request(wire.call.slots, wire.slots),
  slots_shown: request(wire.call.slots, wire.slots),
  mute: request(wire.call.mute, wire.mute),
  people_page: response(wire.peoplePage),
  event_people: published,
  event_named: published,
  leave: request(wire.call.leave, object({})),
  resume: request(wire.call.resume, wire.resume),
  resumed: response(wire.resumed),
  ping: request(wire.call.ping, object({})),
  pong: response(wire.pong),
  event_joined: published,
  event_changed: published,
  event_left: published,
  event_track_added: published,
  event_track_changed: published,
  event_track_removed: published,
  event_active_speakers: published,
  event_slots: published,
  event_slots_wanted: published,
  event_track_paused: published,
  event_track_layers: published,
  event_media_failed: published,
  event_downlink: published,
  event_downlink_ample: published,
  event_slots_mix: published,
  event_silenced: published,
  event_removed: published,
  event_room_changed: published,
  event_peer_offer: published,
  event_peer_answer: published,
  event_peer_candidate: published,
  event_room_ended: published,
  quality_sample: object({ event: oneOf(wire.call.qualitySample), data: wire.qualitySample }),
  quality: wire.quality,
};

describe("the contract with crates/wire", () => {
  it("has a shape for every fixture and a fixture for every shape", () => {
    expect(Object.keys(shapes).sort()).toEqual(Object.keys(fixtures).sort());
  });

  // A key that the shape does not know would be dropped, so equality finds it.
  it.each(Object.entries(fixtures))("decodes %s without loss", (name, value) => {
    expect(shapes[name]!(value, name)).toEqual(value);
  });

  it("names the place of a fault", () => {
    const bad = { epoch: 1, type: "track_added", participant: "p", track: { id: "t", kind: "smell" } };
    expect(() => wire.roomEvent(bad, "event")).toThrow("event.track.kind: expected audio or video");
    expect(() => wire.roomEvent({ epoch: 1, type: "toString" }, "event")).toThrow("event.type");
    expect(() => wire.roomEvent(null, "event")).toThrow("event.type");
  });
});
