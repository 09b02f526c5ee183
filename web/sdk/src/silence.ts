import type { ReceivedTrack } from "./wire.ts";

/** After a restart of ICE the next one is so much later. */
const AGAIN_MS = 10_000;

/**
 * Whether the way from the server is broken although the connection's state says that it is not: a NAT may have given
 * another port. Reports seldom come to who only listens, so it counts only while some track should bring packets.
 */
export class Silence {
  /** The tracks that should have brought packets in the interval before. */
  #before = new Set<string>();
  #restartedMs = Number.NEGATIVE_INFINITY;

  /**
   * An interval has ended.
   *
   * @param due what should have come by the server: tracks that are mapped, and neither muted nor paused
   * @param bytes what came from the server in all; null if the browser does not tell
   * @returns whether to restart ICE
   */
  broken(due: readonly ReceivedTrack[], bytes: number | null, nowMs: number): boolean {
    // A track that was just mapped has had no time.
    const whole = due.filter(({ track }) => this.#before.has(track));
    this.#before = new Set(due.map(({ track }) => track));
    const came = (bytes ?? 0) > 0 || due.some(({ packets_received }) => packets_received > 0);
    if (whole.length === 0 || came || nowMs < this.#restartedMs + AGAIN_MS) return false;
    this.#restartedMs = nowMs;
    return true;
  }
}
