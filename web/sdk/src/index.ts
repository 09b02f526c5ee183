/** The client of moim: join a room, send and receive, know how good it is. */

export { Client } from "./client.ts";
export type { CameraOptions, MicrophoneOptions } from "./media.ts";
export { explainMediaError, openCamera, openMicrophone } from "./media.ts";
export { mosCq, mosLq, mosSdk } from "./mos.ts";
export type {
  JoinOptions,
  LocalTrack,
  Participant,
  RoomEvents,
  RoomState,
  Subscription,
} from "./room-types.ts";
export { Room } from "./room.ts";
export type { ShownSize } from "./shown.ts";
export type { SentLayer } from "./stats.ts";
export { MoimError } from "./signaling.ts";
export type {
  AudioTopology,
  MediaKind,
  PauseReason,
  PeoplePage,
  Preset,
  Quality,
  QualitySample,
  ReceivedTrack,
  RoomInfo,
  RoomQuality,
  SentTrack,
  Speaker,
  TrackInfo,
  VideoCodec,
  VideoTopology,
} from "./wire.ts";
