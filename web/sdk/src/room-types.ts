import type { Room } from "./room.ts";
import type * as wire from "./wire.ts";
import type { MoimError } from "./signaling.ts";
import type { SlotPause } from "./slots.ts";

/** How to enter a room. */
export interface JoinOptions {
  /** The server's address, with its base path if it has one; default: where this page comes from. */
  url?: string;
  room: string;
  /** The name that others see. */
  name: string;
  /** A name for both topologies; the first who joins decides. `audio` and `video` beside it win. */
  preset?: wire.Preset;
  /** Topologies and codec, likewise. */
  audio?: wire.AudioTopology;
  video?: wire.VideoTopology;
  videoCodec?: wire.VideoCodec;
  /**
   * Send and take all sound with copies of the packets before (RED, RFC 2198): twice the rate of sound, and single losses
   * are not heard. Who cannot do it gets the sound alone. Default: off, that is, only while packets are lost.
   */
  redundancy?: boolean;
  /**
   * Send the camera in up to three sizes at once, so that everyone gets the one that they show and that their path
   * carries (`layers.ts`); what nobody wants is not sent. In rooms whose video passes the server. Default: on.
   */
  simulcast?: boolean;
  /** A JWT with grants. */
  token?: string;
  /** Slots of video in the first offer; default 12. */
  videoSlots?: number;
  /** Media to send from the start; saves an offer. */
  microphone?: MediaStreamTrack | null;
  camera?: MediaStreamTrack | null;
}

/** Where a room stands. `reconnecting`: the socket or the media path is lost and being found again. */
export type RoomState = "connecting" | "connected" | "reconnecting" | "ended";

/** Someone else in the room. */
export interface Participant {
  readonly id: string;
  name: string;
  /** Whether they raise their hand. */
  hand: boolean;
  readonly tracks: Map<string, wire.TrackInfo>;
}

/**
 * A remote track that began or ceased to come in. The room's mix (audio `mcu`) comes as the participant "" with the
 * track "mix".
 */
export interface Subscription {
  participant: string;
  track: string;
  kind: wire.MediaKind;
  slot: string;
  mediaTrack: MediaStreamTrack;
  /** First RTP timestamp of this content, where the slot carried another track before and it is known. */
  rtpTimestamp?: number;
}

/** What is sent of a kind. */
export interface LocalTrack {
  mediaTrack: MediaStreamTrack;
  /** Muted here. */
  muted: boolean;
  /** Muted by a moderator: nobody hears or sees it until they release it. */
  silenced: boolean;
}

/** The events of a room, by name. */
export interface RoomEvents {
  state: RoomState;
  /** Somebody came. What they send already, if anything, follows as `track-added`. */
  "participant-joined": Participant;
  /** Somebody who was among the audience of a large room is known by name from now on. Their tracks follow as well. */
  "participant-named": Participant;
  "participant-changed": Participant;
  "participant-left": { participant: Participant; reason: wire.LeaveReason };
  /** How many people are here, and how many of the audience came and left since the last time. */
  people: { count: number; joined: number; left: number };
  "track-added": { participant: Participant; track: wire.TrackInfo };
  "track-changed": { participant: Participant; track: wire.TrackInfo };
  "track-removed": { participant: Participant; track: wire.TrackInfo };
  "track-subscribed": Subscription;
  "track-unsubscribed": Subscription;
  /** The picture of a track rests, because the path to this participant does not carry it; with null it flows again. */
  "track-paused": SlotPause;
  "active-speakers": wire.Speaker[];
  /** The room was locked or opened, or its limits changed. */
  "room-changed": wire.RoomInfo;
  /** Something of this kind began or ceased to be sent, or was muted or unmuted here. */
  "local-changed": wire.MediaKind;
  /** A moderator muted what is sent of a kind, or released it. */
  silenced: { kind: wire.MediaKind; silenced: boolean };
  /** Everything was joined anew (the server had forgotten us): own id and participants are new. */
  rejoined: Room;
  sample: wire.QualitySample;
  error: MoimError;
  ended: { reason: string };
}
