/**
 * Speech quality scores.
 *
 * `mosLq` and `mosCq` follow ITU-T G.107.2 (fullband E-model) for Opus, with the equipment factors of Alahmadi
 * et al. (ACM TOMM 2021, super-wideband VBR). `mosSdk` is the formula that many SDKs use: RTT, jitter and loss only.
 */

/** Equipment impairment factor and packet-loss robustness of a codec. */
export interface CodecModel {
  ie: number;
  bpl: number;
}

/** Opus at about 31 kbit/s, what browsers send by default. */
export const OPUS_31: CodecModel = { ie: 16.83, bpl: 10.44 };
/** Opus by bitrate, in kbit/s. */
export const OPUS_MODELS: ReadonlyMap<number, CodecModel> = new Map([
  [16, { ie: 30.16, bpl: 11.83 }],
  [25, { ie: 20.21, bpl: 11.28 }],
  [31, OPUS_31],
  [40, { ie: 10.67, bpl: 9.79 }],
]);

/** Packet time of the client's Opus, in milliseconds. */
export const OPUS_PACKET_MS = 20;
/** Look-ahead of Opus, in milliseconds (RFC 6716 §2). */
export const OPUS_LOOKAHEAD_MS = 6.5;

const FULLBAND_SCALE = 1.48;

function delayImpairment(delayMs: number): number {
  if (delayMs <= 100) return 0;
  const x = Math.log2(delayMs / 100);
  const curve = (1 + x ** 6) ** (1 / 6) - 3 * (1 + (x / 3) ** 6) ** (1 / 6) + 2;
  return FULLBAND_SCALE * 25 * curve;
}

function mosOfRating(r: number): number {
  return 1 + 0.035 * r + 7e-6 * r * (r - 60) * (100 - r);
}

/**
 * Conversational quality: 1 to 4.5, delay included.
 * @param lossPct (lost + discarded − recovered) / expected, in percent
 * @param delayMs mouth-to-ear delay, in milliseconds
 */
export function mosCq(lossPct: number, delayMs: number, model: CodecModel = OPUS_31): number {
  const equipment = model.ie + ((132 - model.ie) * lossPct) / (lossPct + model.bpl);
  const r = (148 - delayImpairment(delayMs) - equipment) / FULLBAND_SCALE;
  if (r < 0) return 1;
  if (r > 100) return 4.5;
  return Math.max(1, mosOfRating(r));
}

/** Listening quality: as {@link mosCq} with the delay left out. */
export function mosLq(lossPct: number, model: CodecModel = OPUS_31): number {
  return mosCq(lossPct, 0, model);
}

/** The formula that many SDKs use, for comparison only. */
export function mosSdk(lossPct: number, rttMs: number, jitterMs: number): number {
  const latency = rttMs + 2 * jitterMs + 10;
  let r = 0;
  if (latency < 160) r = 94.768 - latency / 40;
  else if (latency < 1000) r = 94.768 - (latency - 120) / 10;
  r = lossPct <= r / 2.5 ? Math.max(r - 2.5 * lossPct, 6.52) : 0;
  return mosOfRating(r);
}
