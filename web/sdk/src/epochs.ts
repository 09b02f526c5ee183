import type { RoomEvent } from "./wire.ts";

/** Events for one participant, or of the moment: they repeat the last number and are never a gap. */
const UNNUMBERED: ReadonlySet<RoomEvent["type"]> = new Set([
  "active_speakers",
  "people",
  "slots",
  "slots_wanted",
  "track_paused",
  "track_layers",
  "downlink",
  "media_failed",
  "peer_offer",
  "peer_answer",
  "peer_candidate",
  // Who is removed is told so alone; that a room ends counts whatever was missed.
  "room_ended",
]);

/** Keeps the order of a room's events and finds what was missed. */
export class Epochs {
  /** @param seen number of the last event that is known */
  constructor(public seen: number) {}

  /** Says what to do with an event; one that applies is counted as seen. */
  take(event: RoomEvent): "apply" | "old" | "gap" {
    if (UNNUMBERED.has(event.type)) return "apply";
    if (event.epoch <= this.seen) return "old";
    if (event.epoch > this.seen + 1) return "gap";
    this.seen = event.epoch;
    return "apply";
  }
}
