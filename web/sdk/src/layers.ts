import type { OfferedLayer, VideoCodec } from "./wire.ts";

/**
 * Simulcast: in which sizes a camera's picture is sent, and what a sender's encodings must be like for that. Pure,
 * apart from {@link shape}, which changes the encodings that it is given.
 */

/** One size of a picture. */
export interface Layer {
  width: number;
  height: number;
  /** By how much its lines are fewer than the camera's. */
  scale: number;
  /** In bits a second. */
  maxBitrate: number;
}

/** What others want of an own track. */
export interface Wanted {
  /** Nobody has it in a slot. */
  rests: boolean;
  /** The highest layer that anybody wants, from 0 for the smallest picture. */
  layer: number;
}

/** Names of layers, the smallest picture first. A picture in two sizes has the last two. */
export const RIDS = ["q", "h", "f"] as const;

/**
 * How many layers a picture of so many pixels has. This is libwebrtc's own table (`kSimulcastFormats`): where it is
 * given more, it leaves out the largest, which would be the picture that people want to see.
 */
const COUNTS = [
  { pixels: 960 * 540, count: 3 },
  { pixels: 480 * 270, count: 2 },
];
/** A picture with fewer lines is not sent in several sizes. */
const LEAST_LINES = 270;
/** Lines of the smallest layer, about. */
const SMALLEST_LINES = 180;

/** What a 720p layer gets; with the exponent, 360p gets about 500 kbit/s and 180p about 150. */
const BITRATE_720P = 1_500_000;
const PIXELS_720P = 1280 * 720;
const BITRATE_EXPONENT = 0.83;
const BITRATE_STEP = 10_000;

/**
 * The layers of a picture, the smallest first; empty for a picture that is sent in its own size alone.
 * @param most how many layers there may be
 */
export function chooseLayers(width: number, height: number, most: number = RIDS.length): Layer[] {
  const lines = Math.min(width, height);
  const pixels = width * height;
  const count = Math.min(most, COUNTS.find((from) => pixels >= from.pixels)?.count ?? 1);
  if (lines < LEAST_LINES || count < 2) return [];
  const smallest = scaleNear(lines / SMALLEST_LINES, count, width, height);
  const scales =
    count === 2 ? [smallest, 1] : [smallest, scaleNear(Math.sqrt(smallest), 2, width, height), 1];
  return scales.map((scale) => layer(Math.floor(width / scale), Math.floor(height / scale), scale));
}

/**
 * A whole number near to a scale that divides both sides, if there is one: libvpx encodes layers together if they have
 * the same shape, and otherwise needs an encoder for each.
 */
function scaleNear(scale: number, least: number, width: number, height: number): number {
  const near = [Math.round(scale), Math.floor(scale), Math.ceil(scale)];
  const divides = (whole: number) => whole >= least && width % whole === 0 && height % whole === 0;
  return near.find(divides) ?? Math.max(least, Math.round(scale));
}

function layer(width: number, height: number, scale: number): Layer {
  const bitrate = BITRATE_720P * ((width * height) / PIXELS_720P) ** BITRATE_EXPONENT;
  return { width, height, scale, maxBitrate: Math.round(bitrate / BITRATE_STEP) * BITRATE_STEP };
}

/** The layers of what a track shows; a screen is sent in its own size alone, where its letters can be read. */
export function layersOf(track: MediaStreamTrack, most?: number): Layer[] {
  if (track.kind !== "video") return [];
  const { width = 0, height = 0, displaySurface } = track.getSettings();
  const screen = displaySurface !== undefined || ["detail", "text"].includes(track.contentHint);
  return screen ? [] : chooseLayers(width, height, most);
}

/** What a new line is to send a track with: its layers by their names. */
export function encodingsOf(
  layers: readonly Layer[],
  codec: VideoCodec = "vp8",
): (RTCRtpEncodingParameters & { scalabilityMode?: string })[] {
  const rids = RIDS.slice(RIDS.length - layers.length);
  // libwebrtc takes several encodings of VP9 as spatial layers of one stream if they do not say that they are none.
  const alone = codec === "vp9" || codec === "av1" ? { scalabilityMode: "L1T1" } : {};
  return layers.map(({ scale, maxBitrate }, index) => ({
    rid: rids[index]!,
    scaleResolutionDownBy: scale,
    maxBitrate,
    ...alone,
  }));
}

/** The layers as an offer tells them. */
export function toldLayers(
  layers: readonly Layer[],
  encodings: readonly RTCRtpEncodingParameters[],
): OfferedLayer[] {
  return layers.map(({ width, height }, index) => ({ rid: encodings[index]?.rid ?? "", width, height }));
}

/**
 * Makes a sender's encodings what they must be: these layers as far as they are wanted, from the first encoding on;
 * without layers, the first encoding in full size. More encodings than layers are a line whose camera was exchanged for
 * a smaller one: the highest of them are not sent, as libwebrtc would leave them out too.
 * @returns whether anything changed
 */
export function shape(
  encodings: readonly RTCRtpEncodingParameters[],
  layers: readonly Layer[],
  wanted: Wanted,
): boolean {
  let changed = false;
  for (const [index, encoding] of encodings.entries()) {
    const layer = layers[index];
    const sent = layer ? index <= wanted.layer : index === 0 && layers.length === 0;
    const active = sent && !wanted.rests;
    if ((encoding.active ?? true) !== active) {
      encoding.active = active;
      changed = true;
    }
    if (!layer && index > 0) continue;
    const scale = layer?.scale ?? 1;
    if ((encoding.scaleResolutionDownBy ?? 1) !== scale) {
      encoding.scaleResolutionDownBy = scale;
      changed = true;
    }
    if (encoding.maxBitrate !== layer?.maxBitrate) {
      if (layer) encoding.maxBitrate = layer.maxBitrate;
      else delete encoding.maxBitrate;
      changed = true;
    }
  }
  return changed;
}
