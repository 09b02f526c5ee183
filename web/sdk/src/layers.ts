import type { OfferedLayer, VideoCodec } from "./wire.ts";

/**
 * In which sizes a camera's picture is sent, and what a sender's encodings must be like for that: with VP8 and H.264 a
 * stream for each size (simulcast), with VP9 and AV1 one stream that holds them all (SVC). Pure, apart from
 * {@link shape}, which changes the encodings that it is given.
 */

/** What a sender sends. TypeScript's own type does not know the mode yet (W3C, Scalable Video Coding extension). */
export type Encoding = RTCRtpEncodingParameters & { scalabilityMode?: string };

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
 * @param within they are within one stream: each has half the lines of the next
 */
export function chooseLayers(
  width: number,
  height: number,
  most: number = RIDS.length,
  within = false,
): Layer[] {
  const lines = Math.min(width, height);
  const pixels = width * height;
  const count = Math.min(most, COUNTS.find((from) => pixels >= from.pixels)?.count ?? 1);
  if (lines < LEAST_LINES || count < 2) return [];
  const smallest = scaleNear(lines / SMALLEST_LINES, count, width, height);
  const scales =
    count === 2 ? [smallest, 1] : [smallest, scaleNear(Math.sqrt(smallest), 2, width, height), 1];
  const halves = count === 2 ? [2, 1] : [4, 2, 1];
  return (within ? halves : scales).map((scale) =>
    layer(Math.floor(width / scale), Math.floor(height / scale), scale),
  );
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

/** Whether a track shows a screen, or what is to be read like one. */
export const isScreen = (track: MediaStreamTrack): boolean =>
  track.getSettings().displaySurface !== undefined || ["detail", "text"].includes(track.contentHint);

/** The layers of what a track shows; a screen is sent in its own size alone, where its letters can be read. */
export function layersOf(track: MediaStreamTrack, most?: number, within = false): Layer[] {
  if (track.kind !== "video" || isScreen(track)) return [];
  const { width = 0, height = 0 } = track.getSettings();
  return chooseLayers(width, height, most, within);
}

let known: boolean | undefined;

/** Whether this browser makes layers within one stream. One that does not leaves the mode out of what it sends. */
function makesLayers(): boolean {
  if (known !== undefined) return known;
  const scalabilityMode = "L3T3_KEY";
  const pc = new RTCPeerConnection();
  try {
    const sendEncodings: Encoding[] = [{ scalabilityMode }];
    const { sender } = pc.addTransceiver("video", { sendEncodings });
    const [encoding] = sender.getParameters().encodings as Encoding[];
    known = encoding?.scalabilityMode === scalabilityMode;
  } catch {
    known = false;
  } finally {
    pc.close();
  }
  return known;
}

/** Whether the layers of a picture go within one stream: the codec has such, and the browser can make them. */
export const isWithin = (codec: VideoCodec, makes: () => boolean = makesLayers): boolean =>
  (codec === "vp9" || codec === "av1") && makes();

/** What a new line is to send a track with: its layers by their names, or all of them `within` one encoding. */
export function encodingsOf(layers: readonly Layer[], codec: VideoCodec = "vp8", within = false): Encoding[] {
  if (within) return layers.length > 0 ? [scalable(layers.length, layers)] : [];
  // libwebrtc takes several encodings of VP9 as spatial layers of one stream if they do not say that they are none.
  const alone = codec === "vp9" || codec === "av1" ? { scalabilityMode: "L1T1" } : {};
  const rids = RIDS.slice(RIDS.length - layers.length);
  return layers.map(({ scale, maxBitrate }, index) => ({
    rid: rids[index]!,
    scaleResolutionDownBy: scale,
    maxBitrate,
    ...alone,
  }));
}

/**
 * The lowest so many of these layers in one encoding. Each has half the lines of the next; only keyframes of a larger
 * one need the smaller ones, and each frame rate is twice the next.
 */
function scalable(count: number, layers: readonly Layer[]): Encoding {
  return {
    scalabilityMode: `L${count}T3${count > 1 ? "_KEY" : ""}`,
    scaleResolutionDownBy: 2 ** (layers.length - count),
    maxBitrate: layers.slice(0, count).reduce((sum, { maxBitrate }) => sum + maxBitrate, 0),
  };
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
 * @param within the one encoding holds all layers
 * @returns whether anything changed
 */
export function shape(
  encodings: readonly Encoding[],
  layers: readonly Layer[],
  wanted: Wanted,
  within = false,
): boolean {
  const meant = (index: number) => (within ? allIn(layers, wanted) : oneIn(index, layers, wanted));
  return encodings.filter((encoding, index) => become(encoding, meant(index))).length > 0;
}

/** What one encoding is to be that holds all layers which somebody wants. */
function allIn(layers: readonly Layer[], { rests, layer }: Wanted): Partial<Encoding> {
  const alone = { scalabilityMode: "L1T3", scaleResolutionDownBy: 1, maxBitrate: undefined };
  const count = Math.min(layer + 1, layers.length);
  return { active: !rests, ...(count > 0 ? scalable(count, layers) : alone) } as Partial<Encoding>;
}

/** What an encoding is to be that holds one layer, if somebody wants that. */
function oneIn(index: number, layers: readonly Layer[], wanted: Wanted): Partial<Encoding> {
  const layer = layers[index];
  const sent = layer ? index <= wanted.layer : index === 0 && layers.length === 0;
  const active = sent && !wanted.rests;
  if (!layer && index > 0) return { active };
  const { scale = 1, maxBitrate } = layer ?? {};
  return { active, scaleResolutionDownBy: scale, maxBitrate } as Partial<Encoding>;
}

/** What an encoding is that does not say so. */
const UNSAID: Partial<Encoding> = { active: true, scaleResolutionDownBy: 1 };

/** Changes what differs in an encoding; says whether anything did. */
function become(encoding: Encoding, meant: Partial<Encoding>): boolean {
  const differing = (Object.keys(meant) as (keyof Encoding)[]).filter(
    (key) => (encoding[key] ?? UNSAID[key]) !== meant[key],
  );
  for (const key of differing) {
    if (meant[key] === undefined) delete encoding[key];
    else Object.assign(encoding, { [key]: meant[key] });
  }
  return differing.length > 0;
}
