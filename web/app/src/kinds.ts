import type { AudioTopology, JoinOptions, Preset, RoomInfo, VideoTopology } from "@moim/sdk";

/** What kind of room is asked for: a preset, topologies of one's own choice, or neither. */
export type Kind = Pick<JoinOptions, "preset" | "audio" | "video">;

interface Described<T> {
  value: T;
  title: string;
  sentence: string;
}

/** The presets, in the words of the start page. */
export const PRESETS: readonly (Described<Preset> & { audio: AudioTopology; video: VideoTopology })[] = [
  {
    value: "small_call",
    title: "Small call",
    sentence: "Everyone sees and hears everyone; the server passes each voice and each picture on.",
    audio: "sfu",
    video: "sfu",
  },
  {
    value: "audio_room",
    title: "Audio room",
    sentence: "Many people, sound only: the server mixes those who speak, and everyone receives one stream.",
    audio: "mcu",
    video: "none",
  },
  {
    value: "audio_mix_with_cameras",
    title: "Audio mix with cameras",
    sentence: "Many people hear one mix, and the cameras that are on are passed on beside it.",
    audio: "mcu",
    video: "sfu",
  },
  {
    value: "mesh",
    title: "Direct",
    sentence: "A few people send straight to each other; the server only introduces them.",
    audio: "mesh",
    video: "mesh",
  },
];

export const AUDIO: readonly Described<AudioTopology>[] = [
  { value: "sfu", title: "Forwarded", sentence: "the server passes each voice on (SFU)" },
  { value: "mcu", title: "Mixed", sentence: "the server sends everyone one mix (MCU)" },
  { value: "mesh", title: "Direct", sentence: "from person to person (mesh)" },
];

export const VIDEO: readonly Described<VideoTopology>[] = [
  { value: "sfu", title: "Forwarded", sentence: "the server passes each picture on (SFU)" },
  { value: "mesh", title: "Direct", sentence: "from person to person (mesh)" },
  { value: "none", title: "None", sentence: "sound only" },
];

/** Whether someone who asks for this kind may need a camera. */
export function wantsVideo({ preset, video }: Kind): boolean {
  const found = PRESETS.find(({ value }) => value === preset);
  return (video ?? found?.video ?? "sfu") !== "none";
}

/** What a room is called: its preset's title, or its topologies. */
export function kindTitle({ audio, video }: Pick<RoomInfo, "audio" | "video">): string {
  const preset = PRESETS.find((one) => one.audio === audio && one.video === video);
  if (preset) return preset.title;
  const title = <T>(all: readonly Described<T>[], value: T) =>
    all.find((one) => one.value === value)?.title.toLowerCase() ?? String(value);
  return `Audio ${title(AUDIO, audio)}, video ${title(VIDEO, video)}`;
}
