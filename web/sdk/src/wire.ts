/**
 * The contract with the server, as in `crates/wire`: the calls of a room, its events, the quality sample.
 * The fixtures of that crate are decoded by the tests of both sides.
 */
import {
  bool,
  count,
  type Infer,
  list,
  nullable,
  number,
  object,
  oneOf,
  optional,
  type Shape,
  ShapeError,
  text,
} from "./shape.ts";

/** Path of the WebSocket endpoint. */
export const SOCKET_PATH = "/socketcluster/";
/** How often a quality sample is taken, in milliseconds. */
export const SAMPLE_INTERVAL_MS = 3_000;

/** Names of the calls. */
export const call = {
  join: "room.join",
  offer: "room.offer",
  slots: "room.slots",
  mute: "room.mute",
  announce: "room.announce",
  peerOffer: "room.peer_offer",
  peerAnswer: "room.peer_answer",
  peerCandidate: "room.peer_candidate",
  remove: "room.remove",
  lock: "room.lock",
  limit: "room.limit",
  hand: "room.hand",
  people: "room.people",
  leave: "room.leave",
  resume: "room.resume",
  qualitySample: "quality.sample",
  ping: "ping",
} as const;

/** The channel on which a room's events travel to its people. */
export const roomChannel = (roomId: string): string => `room:${roomId}`;

export const audioTopology = oneOf("mesh", "sfu", "mcu");
export const videoTopology = oneOf("none", "mesh", "sfu");
/** A pair of topologies with a name. */
export const preset = oneOf(
  "small_call",
  "mesh",
  "audio_room",
  "audio_mix_with_cameras",
  "large_room_for_audio_only",
  "small_room_for_video",
);
export const videoCodec = oneOf("vp8", "h264", "vp9", "av1");
export const mediaKind = oneOf("audio", "video");
export type AudioTopology = Infer<typeof audioTopology>;
export type VideoTopology = Infer<typeof videoTopology>;
export type Preset = Infer<typeof preset>;
export type VideoCodec = Infer<typeof videoCodec>;
export type MediaKind = Infer<typeof mediaKind>;

/** What is wrong with a request, for programs; `crates/wire/src/error.rs` says what to do about each. */
export const errorCode = oneOf(
  "room_full",
  "room_locked",
  "kind_conflict",
  "kind_unsupported",
  "not_allowed",
  "bad_token",
  "unknown_track",
  "unknown_slot",
  "unknown_participant",
  "unknown_event",
  "bad_sdp",
  "offer_conflict",
  "bad_request",
  "not_joined",
  "too_large",
  "too_fast",
  "gone",
  "replaced",
  "draining",
  "internal",
);
export type ErrorCode = Infer<typeof errorCode>;

/** The error of an answer. */
export const roomError = object({ name: oneOf("RoomError"), code: errorCode, message: text });

/** Argument of `room.join`. */
export const join = object({
  room: text,
  name: text,
  audio: optional(audioTopology),
  video: optional(videoTopology),
  preset: optional(preset),
  video_codec: optional(videoCodec),
  token: optional(text),
  session: optional(text),
});
export type Join = Infer<typeof join>;

/** A published track. */
export const trackInfo = object({
  id: text,
  kind: mediaKind,
  name: optional(text),
  muted: bool,
  /** A moderator muted it: the publisher cannot unmute. */
  silenced: optional(bool),
});
export type TrackInfo = Infer<typeof trackInfo>;

/** A participant as the others see them. */
export const participantInfo = object({
  id: text,
  name: text,
  tracks: list(trackInfo),
  /** Whether they raise their hand. */
  hand: optional(bool),
});
export type ParticipantInfo = Infer<typeof participantInfo>;

export const roomInfo = object({
  id: text,
  audio: audioTopology,
  video: videoTopology,
  video_codec: videoCodec,
  /** Nobody new comes in. */
  locked: optional(bool),
  limits: object({ max_participants: count, max_audio_slots: count, max_video_slots: count }),
});
export type RoomInfo = Infer<typeof roomInfo>;

export const iceServer = object({ urls: list(text), username: optional(text), credential: optional(text) });
export type IceServer = Infer<typeof iceServer>;

/** Answer to `room.join`. */
export const joined = object({
  participant: text,
  epoch: count,
  room: roomInfo,
  you: object({ can_publish: bool, can_subscribe: bool, can_moderate: optional(bool) }),
  /** How many people are here. */
  count,
  /** Everybody else who is known by name. */
  participants: list(participantInfo),
  ice_servers: list(iceServer),
});
export type Joined = Infer<typeof joined>;

/** A layer of a track that is sent with simulcast: its RTP stream id, and the size of its pictures in pixels. */
export const offeredLayer = object({ rid: text, width: count, height: count });
export type OfferedLayer = Infer<typeof offeredLayer>;

export const offeredTrack = object({
  mid: text,
  kind: mediaKind,
  name: optional(text),
  /** Encrypted end to end: the server passes its payloads on byte for byte. */
  opaque: optional(bool),
  /** What is in it, for sound that is mixed: the level of music stays as it is. */
  content_hint: optional(oneOf("speech", "music")),
  /** With simulcast: the layers, the smallest picture first. */
  layers: optional(list(offeredLayer)),
});
export type OfferedTrack = Infer<typeof offeredTrack>;
/** Argument of `room.offer`. */
export const offer = object({ sdp: text, tracks: list(offeredTrack), session: optional(text) });

/** A line that sends, and the id in the room of what it sends. */
export const answeredTrack = object({ mid: text, id: text });
export type AnsweredTrack = Infer<typeof answeredTrack>;

/** Answer to `room.offer`. */
export const answer = object({ sdp: text, tracks: list(answeredTrack) });
export type Answer = Infer<typeof answer>;

export const slotWant = object({
  slot: text,
  track: nullable(text),
  width: optional(count),
  height: optional(count),
});
export type SlotWant = Infer<typeof slotWant>;
/** The size that a slot's picture is shown at, in pixels of the screen (0 × 0 if it is not visible), and whether it is pinned. */
export const slotShown = object({ slot: text, width: count, height: count, pinned: optional(bool) });
export type SlotShown = Infer<typeof slotShown>;
/** Argument of `room.slots`: what slots shall carry, and how they are shown. */
export const slots = object({ want: optional(list(slotWant)), shown: optional(list(slotShown)) });

/** Argument of `room.mute`. */
export const mute = object({ track: text, muted: bool });

/** Argument of `room.announce`: all that is sent where media does not pass the server. */
export const announce = object({ tracks: list(offeredTrack) });
/** Answer to `room.announce`. */
export const announced = object({ tracks: list(answeredTrack) });

/** Argument of `room.peer_offer` and `room.peer_answer`. */
export const peerDescription = object({ to: text, sdp: text, tracks: list(answeredTrack) });

/** Argument of `room.peer_candidate`. An empty candidate: there are no more. */
export const peerCandidate = object({ to: text, candidate: text, mid: optional(text) });

/** Argument of `room.remove`. */
export const remove = object({ participant: text, lift: optional(bool) });
/** Argument of `room.lock`. */
export const lock = object({ locked: bool });
/** Argument of `room.limit`. */
export const limit = object({ max_participants: count });

/** Argument of `room.hand`. */
export const hand = object({ raised: bool });
/** Argument of `room.people`; `after`: the last participant of the page before. */
export const people = object({ after: optional(text), limit: optional(count) });
/** Answer to `room.people`. */
export const peoplePage = object({ count, people: list(participantInfo) });
export type PeoplePage = Infer<typeof peoplePage>;

/** Argument of `room.resume`. */
export const resume = object({ room: text, participant: text, session: text, seen: count });
export type Resume = Infer<typeof resume>;

/** Answer to `ping`. */
export const pong = object({ count });

/** Why a picture does not flow: the path to the receiver does not carry it. */
export const pauseReason = oneOf("bandwidth");
export type PauseReason = Infer<typeof pauseReason>;

/** A slot's new content; both null for an empty slot and for the mix. */
export const slotChange = object({
  slot: text,
  participant: nullable(text),
  track: nullable(text),
  /** The room's mix flows here. */
  mix: optional(bool),
  /** Why its picture does not flow at the moment, if it does not. */
  paused: optional(pauseReason),
  rtp_timestamp: optional(count),
});
export type SlotChange = Infer<typeof slotChange>;

/** Somebody who speaks; of an audience with their name. */
export const speaker = object({ id: text, level_dbov: count, name: optional(text) });
export type Speaker = Infer<typeof speaker>;

export const leaveReason = oneOf(
  "left",
  "signaling_lost",
  "media_lost",
  "removed",
  "replaced",
  "server_shutdown",
);
export type LeaveReason = Infer<typeof leaveReason>;

const events = {
  participant_joined: object({
    epoch: count,
    type: oneOf("participant_joined"),
    participant: participantInfo,
    count,
    /** They were among the audience before. */
    from_audience: optional(bool),
  }),
  participant_changed: object({
    epoch: count,
    type: oneOf("participant_changed"),
    participant: participantInfo,
  }),
  participant_left: object({
    epoch: count,
    type: oneOf("participant_left"),
    participant: text,
    reason: leaveReason,
    count,
  }),
  /** How many people are here; how many of an audience came and left since the last time. */
  people: object({ epoch: count, type: oneOf("people"), count, joined: count, left: count }),
  track_added: object({ epoch: count, type: oneOf("track_added"), participant: text, track: trackInfo }),
  track_changed: object({ epoch: count, type: oneOf("track_changed"), participant: text, track: trackInfo }),
  track_removed: object({ epoch: count, type: oneOf("track_removed"), participant: text, track: text }),
  active_speakers: object({ epoch: count, type: oneOf("active_speakers"), speakers: list(speaker) }),
  slots: object({ epoch: count, type: oneOf("slots"), slots: list(slotChange) }),
  slots_wanted: object({ epoch: count, type: oneOf("slots_wanted"), audio: count, video: count }),
  /** To the publisher of a track of pictures: whether it rests because nobody has it in a slot. */
  track_paused: object({ epoch: count, type: oneOf("track_paused"), track: text, paused: bool }),
  /** To the publisher of a track with layers: the highest that anybody wants, from 0 for the smallest picture. */
  track_layers: object({ epoch: count, type: oneOf("track_layers"), track: text, layer: count }),
  /** What the server estimates that the way to here carries; null: all that is sent, with ease. */
  downlink: object({ epoch: count, type: oneOf("downlink"), estimate_kbps: nullable(count) }),
  /** The own media connection came to nothing; a `participant_left` of oneself follows. */
  media_failed: object({
    epoch: count,
    type: oneOf("media_failed"),
    cause: oneOf("certificate_kind", "fingerprint", "handshake", "internal", "unreachable", "unfinished"),
    message: text,
  }),
  room_changed: object({ epoch: count, type: oneOf("room_changed"), room: roomInfo }),
  peer_offer: object({
    epoch: count,
    type: oneOf("peer_offer"),
    from: text,
    sdp: text,
    tracks: list(answeredTrack),
  }),
  peer_answer: object({
    epoch: count,
    type: oneOf("peer_answer"),
    from: text,
    sdp: text,
    tracks: list(answeredTrack),
  }),
  peer_candidate: object({
    epoch: count,
    type: oneOf("peer_candidate"),
    from: text,
    candidate: text,
    mid: optional(text),
  }),
  room_ended: object({ epoch: count, type: oneOf("room_ended"), reason: text }),
};

/** What happened in a room, with its number. */
export type RoomEvent = { [K in keyof typeof events]: Infer<(typeof events)[K]> }[keyof typeof events];

/** An event of a connection between two members of a mesh. */
export type PeerEvent = Extract<RoomEvent, { type: "peer_offer" | "peer_answer" | "peer_candidate" }>;

/** Decodes an event; throws where its type or shape is unknown. */
export const roomEvent: Shape<RoomEvent> = (value, path) => {
  const type = (value as { type?: unknown } | null)?.type;
  if (typeof type !== "string" || !Object.hasOwn(events, type))
    throw new ShapeError(`${path}.type`, Object.keys(events).join(" or "), type);
  return events[type as keyof typeof events](value, path);
};

/** Answer to `room.resume`. */
export const resumed = object({ epoch: count, events: list(roomEvent) });

/** What was sent of one track in the interval. */
export const sentTrack = object({
  track: text,
  kind: mediaKind,
  codec: nullable(text),
  packets_sent: count,
  retransmitted_packets_sent: nullable(count),
  bitrate_kbps: number,
  remote_loss_pct: nullable(number),
  frames_per_second: nullable(number),
  keyframe_requests: nullable(count),
  /** Share of the interval in which the picture was sent worse than it could be, for want of CPU, 0 to 1. */
  cpu_limited_ratio: optional(number),
  bandwidth_limited_ratio: optional(number),
});
export type SentTrack = Infer<typeof sentTrack>;

/** What was received of one track in the interval. */
export const receivedTrack = object({
  participant: text,
  track: text,
  kind: mediaKind,
  codec: nullable(text),
  packets_received: count,
  packets_lost: count,
  /** Packets that are among the lost ones, but whose sound came as a copy in a later packet (RED). */
  packets_recovered: optional(count),
  loss_pct: nullable(number),
  total_packets_received: nullable(count),
  total_packets_lost: nullable(count),
  jitter_ms: nullable(number),
  /** Packets of sound that came too late to be played. */
  packets_discarded: optional(count),
  /** How long sound that was due was not there at most, in milliseconds: late, or lost. */
  gap_ms: optional(number),
  /** The longest time in which nothing could be played or shown that was due, and how long ago it ended. */
  outage: optional(object({ ms: number, ago_ms: number })),
  /** Share of the interval in which the slot held this track, 0 to 1. */
  mapped_ratio: optional(number),
  jitter_buffer_ms: nullable(number),
  transit_ms: nullable(number),
  transit_p95_ms: nullable(number),
  marks_expected: nullable(number),
  marks_found: nullable(number),
  mouth_to_ear_ms: nullable(number),
  /** From the camera to the screen, where there is a time code in the picture. */
  camera_to_screen_ms: optional(number),
  bitrate_kbps: number,
  concealed_pct: nullable(number),
  /** Those of them that were concealed by silence, in percent of all. */
  silent_concealed_pct: optional(number),
  audio_level: nullable(number),
  frames_per_second: nullable(number),
  frame_width: nullable(count),
  frame_height: nullable(count),
  /** Share of the interval in which the picture was paused (`slots`), 0 to 1. */
  paused_ratio: optional(number),
  freezes: nullable(count),
  freeze_ratio: nullable(number),
  since_last_ms: nullable(number),
  keyframe_requests: nullable(count),
  mos_lq: nullable(number),
  mos_cq: nullable(number),
  mos_sdk: nullable(number),
});
export type ReceivedTrack = Infer<typeof receivedTrack>;

/** What one participant saw in one interval: the interval's own values; unknown is null, never 0. */
export const qualitySample = object({
  participant: text,
  at_ms: count,
  interval_ms: count,
  rtt_ms: nullable(number),
  available_outgoing_kbps: nullable(number),
  /** What the server estimates that the way to here carries, if that is little. */
  estimate_kbps: optional(number),
  srtp_cipher: nullable(text),
  join_to_first_audio_ms: nullable(number),
  join_to_first_frame_ms: nullable(number),
  sent: list(sentTrack),
  received: list(receivedTrack),
});
export type QualitySample = Infer<typeof qualitySample>;

/** Spread over people. */
export const mosSpread = object({ min: number, max: number, average: number, median: number, people: count });
export type MosSpread = Infer<typeof mosSpread>;

/** One person's last sample in short. */
export const personQuality = object({
  participant: text,
  name: text,
  mos_lq: number,
  loss_pct: nullable(number),
  rtt_ms: nullable(number),
  jitter_ms: nullable(number),
  age_ms: count,
});
export type PersonQuality = Infer<typeof personQuality>;

/** One room's quality. */
export const roomQuality = object({
  id: text,
  audio: audioTopology,
  video: videoTopology,
  locked: bool,
  people: count,
  mos_lq: nullable(mosSpread),
  bottom: list(personQuality),
  history: list(object({ at_unix_ms: count, people: count, mos_lq: nullable(mosSpread) })),
});
export type RoomQuality = Infer<typeof roomQuality>;

/** Answer of `GET /v1/quality`. */
export const quality = object({ at_unix_ms: count, rooms: list(roomQuality) });
export type Quality = Infer<typeof quality>;
