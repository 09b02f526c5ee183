/** The client of moim: join a room, send and receive, know how good it is. */

export type { CameraOptions, MicrophoneOptions } from "./media.ts";
export { explainMediaError, openCamera, openMicrophone } from "./media.ts";
export { mosCq, mosLq, mosSdk } from "./mos.ts";
export type { JoinOptions, Participant, RoomEvents, RoomState, Subscription } from "./room.ts";
export { Room } from "./room.ts";
export { MoimError } from "./signaling.ts";
export type {
  AudioTopology,
  MediaKind,
  QualitySample,
  ReceivedTrack,
  SentTrack,
  Speaker,
  TrackInfo,
  VideoCodec,
  VideoTopology,
} from "./wire.ts";
