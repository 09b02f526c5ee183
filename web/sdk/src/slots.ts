import type { MediaKind, PauseReason, SlotChange, SlotWant } from "./wire.ts";

/** Slots of each kind in the first offer. */
export const FIRST_SLOTS = { audio: 4, video: 12 } as const;
/** The pool grows in steps of this many. */
export const SLOT_STEP = 8;

/** The room's mix, as the content of a slot. */
export const MIX: SlotContent = { participant: "", track: "mix" };

/** What is in a slot. */
export interface SlotContent {
  participant: string;
  track: string;
}

/** A slot that got or lost a track. */
export interface SlotMapping extends SlotContent {
  slot: string;
  kind: MediaKind;
  /** First RTP timestamp of the new content, where already known. */
  rtpTimestamp?: number;
}

/** A slot whose picture rests, and why, or flows again. */
export interface SlotPause extends SlotContent {
  slot: string;
  reason: PauseReason | null;
}

/** What a `slots` event changed. */
export interface SlotDiff {
  unmapped: SlotMapping[];
  mapped: SlotMapping[];
  paused: SlotPause[];
}

interface Slot {
  kind: MediaKind;
  content: SlotContent | null;
  paused: PauseReason | null;
}

/** Which track is in which slot. A slot is named by the mid of its `recvonly` line. */
export class SlotTable {
  readonly #slots = new Map<string, Slot>();

  /** Adds an empty slot; one that is there stays as it is. */
  add(slot: string, kind: MediaKind): void {
    if (!this.#slots.has(slot)) this.#slots.set(slot, { kind, content: null, paused: null });
  }

  /** Forgets the slots of a connection that is no more, by the beginning of their names. */
  forget(connection: string): void {
    for (const slot of [...this.#slots.keys()]) if (slot.startsWith(connection)) this.#slots.delete(slot);
  }

  /** How many slots of a kind there are. */
  count(kind: MediaKind): number {
    return [...this.#slots.values()].filter((slot) => slot.kind === kind).length;
  }

  /** All slots that carry a track. */
  mappings(): SlotMapping[] {
    const all: SlotMapping[] = [];
    for (const [slot, { kind, content }] of this.#slots) if (content) all.push({ slot, kind, ...content });
    return all;
  }

  /** The slot that carries a track. */
  slotOf(track: string): string | null {
    for (const [slot, { content }] of this.#slots) if (content?.track === track) return slot;
    return null;
  }

  /** Why the picture of a track does not flow, or null. */
  pauseOf(track: string): PauseReason | null {
    const slot = this.slotOf(track);
    return slot === null ? null : (this.#slots.get(slot)?.paused ?? null);
  }

  /** Applies a `slots` event. Slots that are not ours are left out: an old event may name a replaced peer's. */
  apply(changes: readonly SlotChange[]): SlotDiff {
    const diff: SlotDiff = { unmapped: [], mapped: [], paused: [] };
    for (const change of changes) {
      const slot = this.#slots.get(change.slot);
      if (!slot) continue;
      const next = contentOf(change);
      const same = slot.content?.track === next?.track;
      const reason = change.paused ?? null;
      if (next && (same ? slot.paused : null) !== reason)
        diff.paused.push({ slot: change.slot, ...next, reason });
      slot.paused = next ? reason : null;
      if (same) continue;
      if (slot.content) diff.unmapped.push({ slot: change.slot, kind: slot.kind, ...slot.content });
      if (next) {
        const mapping: SlotMapping = { slot: change.slot, kind: slot.kind, ...next };
        if (change.rtp_timestamp !== undefined) mapping.rtpTimestamp = change.rtp_timestamp;
        diff.mapped.push(mapping);
      }
      slot.content = next;
    }
    return diff;
  }

  /** Empties the slots of tracks that are no more. */
  drop(isGone: (content: SlotContent) => boolean): SlotDiff {
    const gone = this.mappings().filter(isGone);
    return this.apply(gone.map(({ slot }) => ({ slot, participant: null, track: null })));
  }

  /**
   * What to ask for so that these tracks are received: a track that has a slot keeps it, the others take free
   * ones, and all other slots of the kind are emptied. Tracks beyond the number of slots are left out.
   */
  plan(tracks: readonly string[], kind: MediaKind): SlotWant[] {
    const ours = [...this.#slots].filter(([, slot]) => slot.kind === kind);
    const wanted = [...new Set(tracks)].slice(0, ours.length);
    const kept = new Map<string, string>();
    for (const [name, { content }] of ours)
      if (content && wanted.includes(content.track)) kept.set(name, content.track);
    const placed = new Set(kept.values());
    const waiting = wanted.filter((track) => !placed.has(track));
    return ours.map(([slot]) => ({ slot, track: kept.get(slot) ?? waiting.shift() ?? null }));
  }
}

function contentOf({ participant, track, mix }: SlotChange): SlotContent | null {
  if (mix) return MIX;
  return track !== null && participant !== null ? { participant, track } : null;
}

/**
 * How many slots of a kind to add, in whole steps.
 * @param have slots now
 * @param wanted slots in all
 * @param limit the room's most
 */
export function slotsToAdd(have: number, wanted: number, limit: number): number {
  if (wanted <= have) return 0;
  const steps = Math.ceil((wanted - have) / SLOT_STEP) * SLOT_STEP;
  return Math.max(0, Math.min(steps, limit - have));
}
