import type { JoinOptions, Participant } from "./room-types.ts";
import type * as wire from "./wire.ts";

/** A participant as an application sees them. */
export function participantOf(info: wire.ParticipantInfo): Participant {
  const { id, name, tracks, hand = false } = info;
  return { id, name, hand, tracks: new Map(tracks.map((track) => [track.id, track])) };
}

/** The argument of `room.join`; what an application leaves open is left out. */
export function joinArgument(options: JoinOptions, session: string): wire.Join {
  const { room, name, preset, audio, video, videoCodec, token } = options;
  const argument: wire.Join = { room, name, session };
  if (preset) argument.preset = preset;
  if (audio) argument.audio = audio;
  if (video) argument.video = video;
  if (videoCodec) argument.video_codec = videoCodec;
  if (token) argument.token = token;
  return argument;
}
