import { MoimError } from "./signaling.ts";
import type { MediaKind, VideoCodec } from "./wire.ts";

/** The part of `RTCRtpCodec` that the choice needs. */
export interface CodecLike {
  mimeType: string;
  sdpFmtpLine?: string;
}

/**
 * The codecs to negotiate, best first: Opus with RED, or the room's video codec with RTX. Short lists keep the cost
 * of SDP low: it grows with lines × codecs.
 * @param redundancy whether all sound comes with copies of the packets before (RED, RFC 2198), and not only if packets
 *   are lost; where the browser can
 * @returns an empty list where the browser lacks the codec
 */
export function preferredCodecs<C extends CodecLike>(
  available: readonly C[],
  kind: MediaKind,
  video: VideoCodec,
  redundancy = false,
): C[] {
  const named = (name: string) => available.filter((codec) => codec.mimeType.toLowerCase() === name);
  if (kind === "audio") {
    const [opus, red] = [named("audio/opus"), named("audio/red")];
    return opus.length === 0 ? [] : redundancy ? [...red, ...opus] : [...opus, ...red];
  }
  let main = named(`video/${video}`);
  if (video === "h264") {
    const usable = main.filter((codec) => /packetization-mode=1/.test(codec.sdpFmtpLine ?? ""));
    const constrainedBaseline = (codec: C) => Number(/profile-level-id=42e0/i.test(codec.sdpFmtpLine ?? ""));
    main = usable.sort((a, b) => constrainedBaseline(b) - constrainedBaseline(a)).slice(0, 1);
  } else if (video === "vp9" || video === "av1") {
    // Profile 0: what the parameters say if they say nothing (RFC 9628 §6, AV1 payload format §7.2).
    const other = /(?:^|;)\s*profile(?:-id)?=(?!0\s*(?:;|$))/;
    main = main.filter((codec) => !other.test(codec.sdpFmtpLine ?? "")).slice(0, 1);
  }
  return main.length > 0 ? [...main, ...named("video/rtx")] : [];
}

/**
 * Negotiates a line for the room's codecs alone.
 * @throws MoimError where this browser lacks them
 */
export function limitCodecs(
  transceiver: RTCRtpTransceiver,
  kind: MediaKind,
  video: VideoCodec,
  redundancy = false,
): void {
  const codecs = preferredCodecs(RTCRtpReceiver.getCapabilities(kind)?.codecs ?? [], kind, video, redundancy);
  if (codecs.length === 0) {
    const wanted = kind === "audio" ? "Opus" : video.toUpperCase();
    throw new MoimError("kind_unsupported", `this browser cannot do ${wanted}, the room's codec`);
  }
  transceiver.setCodecPreferences(codecs);
  if (video === "av1" && kind === "video") askForDescriptors(transceiver);
}

/** Says which frames need which: without it a browser cannot show AV1 with spatial layers. */
const DEPENDENCY_DESCRIPTOR =
  "https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension";

interface HeaderExtension {
  uri: string;
  direction: RTCRtpTransceiverDirection;
}

/** What TypeScript does not know yet (W3C, WebRTC Extensions, §8.2). */
interface Negotiates {
  getHeaderExtensionsToNegotiate(): HeaderExtension[];
  setHeaderExtensionsToNegotiate(extensions: HeaderExtension[]): void;
}

/** Chromium offers dependency descriptors by itself on what it sends in layers, but not on what it receives. */
function askForDescriptors(transceiver: RTCRtpTransceiver & Partial<Negotiates>): void {
  const extensions = transceiver.getHeaderExtensionsToNegotiate?.() ?? [];
  const descriptor = extensions.find(({ uri }) => uri === DEPENDENCY_DESCRIPTOR);
  if (!descriptor) return;
  descriptor.direction = "sendrecv";
  transceiver.setHeaderExtensionsToNegotiate?.(extensions);
}
