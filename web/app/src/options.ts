import type { AudioTopology, CameraOptions, Preset, VideoCodec, VideoTopology } from "@moim/sdk";
import type { Kind } from "./kinds.ts";

/** What the address of the page asks for. */
export interface PageOptions {
  /** The room of `/room/NAME`, or null on the start page. */
  room: string | null;
  name: string | null;
  /** Join at once, without asking. */
  join: boolean;
  /** Receive only this many videos. */
  show: number | null;
  codec: VideoCodec | null;
  /** Sound with redundancy (RED). */
  redundancy: boolean;
  /** The camera in several sizes (simulcast). */
  simulcast: boolean;
  /** What kind of room is made where there is none yet. */
  preset: Preset | null;
  audio: AudioTopology | null;
  video: VideoTopology | null;
  /** Echo cancellation, noise suppression and gain control. */
  processing: boolean;
  /** Null: as the person chose last time. */
  microphone: boolean | null;
  camera: boolean | null;
  cameraSize: CameraOptions;
  /** The token of the invitation: see `takeToken`. */
  token: string | null;
  /** A token came in the query, where servers and proxies log it; it is not used. */
  tokenInQuery: boolean;
}

const SIZES: Record<string, CameraOptions> = {
  "180p": { width: 320, height: 180 },
  "360p": { width: 640, height: 360 },
  "480p": { width: 854, height: 480 },
  "720p": { width: 1280, height: 720 },
  "1080p": { width: 1920, height: 1080 },
};

/** Reads path and query; what is unknown or wrong counts as left out. */
export function parseOptions(path: string, query: string, token: string | null = null): PageOptions {
  const params = new URLSearchParams(query);
  const among = <T extends string>(key: string, ...words: T[]): T | null => {
    const value = params.get(key);
    return words.find((word) => word === value) ?? null;
  };
  const size = params.get("camera");
  const show = Number(params.get("show") ?? Number.NaN);
  return {
    room: roomOfPath(path),
    name: plainName(params.get("name") ?? "") || null,
    join: params.get("join") === "1",
    show: Number.isSafeInteger(show) && show >= 0 && params.get("show") !== "" ? show : null,
    codec: among("codec", "vp8", "h264", "vp9", "av1"),
    redundancy: params.get("redundancy") === "1",
    simulcast: params.get("simulcast") !== "0",
    preset: among("preset", "small_call", "mesh", "audio_room", "audio_mix_with_cameras"),
    audio: among("audio", "mesh", "sfu", "mcu"),
    video: among("video", "none", "mesh", "sfu"),
    processing: params.get("processing") !== "off",
    microphone: params.has("mic") ? params.get("mic") !== "0" : null,
    camera: size === null ? null : size !== "0" && size !== "off",
    cameraSize: SIZES[size ?? "360p"] ?? SIZES["360p"]!,
    token,
    tokenInQuery: params.has("token"),
  };
}

/** The kind of room that the address asks for; empty where it does not say. */
export function kindOf({ preset, audio, video }: PageOptions): Kind {
  const kind: Kind = {};
  if (preset) kind.preset = preset;
  if (audio) kind.audio = audio;
  if (video) kind.video = video;
  return kind;
}

function roomOfPath(path: string): string | null {
  const match = /^\/room\/([^/]+)\/?$/.exec(path);
  if (!match) return null;
  try {
    // As it is: another name would be another room, and the server says what a room's id may be.
    return decodeURIComponent(match[1]!);
  } catch {
    return null;
  }
}

/** A person's name without what nobody sees, such as marks of direction that came along when it was copied: the server takes none. */
export function plainName(typed: string): string {
  const hidden =
    /[\p{Cc}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0]|(?![\u200c\u200d])\p{Cf}/gu;
  return typed.replace(hidden, "").trim();
}

/** A room's id from what someone typed: blanks become dashes, what an id cannot hold is dropped. */
export function roomName(typed: string): string | null {
  const id = typed
    .trim()
    .replace(/\s+/g, "-")
    .replace(/[^A-Za-z0-9\-_.]/g, "")
    .slice(0, 64);
  return id === "" ? null : id;
}
