import { MoimError } from "./signaling.ts";
import type { SlotMapping } from "./slots.ts";
import type { SlotShown } from "./wire.ts";

/** The size that a picture is shown at, in pixels of the screen; 0 × 0 if it is not visible. */
export interface ShownSize {
  width: number;
  height: number;
}

/** What the sizes need from the room. */
export interface ShownHooks {
  /** The slots of video that carry a track. */
  mappings(): SlotMapping[];
  /** Tells the server. */
  tell(shown: SlotShown[]): Promise<unknown>;
}

/** The server is told at most this often. */
const INTERVAL_MS = 250;
/** What changes in one step of a page is told together. */
const SETTLE_MS = 20;
const RETRY_MS = 1_000;

/**
 * A slot that had a size keeps it at the server. A track of unknown size that comes into it, or that is pinned, is taken as
 * large as this, so that it is not small, or dark, because of another track.
 */
const LARGE: ShownSize = { width: 3840, height: 2160 };

/** What the server was told of a slot. */
interface Told extends ShownSize {
  pinned: boolean;
}

/** How each track is shown, and what the server knows of that: it counts by slots, an application by tracks. */
export class ShownSizes {
  readonly #hooks: ShownHooks;
  readonly #sizes = new Map<string, ShownSize>();
  readonly #pinned = new Set<string>();
  /** What the server was told, by slot; null if it is not known what of it arrived. */
  readonly #told = new Map<string, Told | null>();
  #lastMs = Number.NEGATIVE_INFINITY;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  constructor(hooks: ShownHooks) {
    this.#hooks = hooks;
  }

  /** A track is shown at this size from now on, in whichever slot it comes. */
  set(track: string, { width, height }: ShownSize): void {
    const whole = (pixels: number) => Math.max(0, Math.round(pixels));
    this.#sizes.set(track, { width: whole(width), height: whole(height) });
    this.changed();
  }

  /** A track is pinned from now on, or no more, in whichever slot it comes. */
  pin(track: string, pinned: boolean): void {
    if (pinned) this.#pinned.add(track);
    else this.#pinned.delete(track);
    this.changed();
  }

  /** A track is no more. */
  forget(track: string): void {
    this.#sizes.delete(track);
    this.#pinned.delete(track);
  }

  /** Slots got other tracks. */
  changed(): void {
    const wait = Math.max(SETTLE_MS, this.#lastMs + INTERVAL_MS - performance.now());
    if (this.#timer === undefined) this.#later(wait);
  }

  /** The server may know nothing: it hears of all slots again. */
  again(): void {
    for (const slot of this.#told.keys()) this.#told.set(slot, null);
    this.changed();
  }

  end(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  #later(ms: number): void {
    if (this.#ended) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.#tell();
    }, ms);
  }

  async #tell(): Promise<void> {
    const told = this.#told;
    const news = this.#news();
    if (news.length === 0) return;
    for (const { slot, width, height, pinned } of news)
      told.set(slot, { width, height, pinned: pinned === true });
    this.#lastMs = performance.now();
    try {
      await this.#hooks.tell(news);
    } catch (error) {
      for (const { slot } of news) told.set(slot, null);
      const code = error instanceof MoimError ? error.code : "internal";
      if (code === "disconnected" || code === "too_fast") {
        clearTimeout(this.#timer);
        this.#later(RETRY_MS);
      } else if (code !== "ended") console.warn("how pictures are shown was not told", error);
    }
  }

  #news(): SlotShown[] {
    return this.#hooks.mappings().flatMap(({ slot, track }) => {
      const known = this.#told.get(slot);
      const pinned = this.#pinned.has(track);
      const size = this.#sizes.get(track) ?? ((known !== undefined || pinned) && LARGE);
      if (!size) return [];
      const same = size.width === known?.width && size.height === known?.height && pinned === known?.pinned;
      return same ? [] : [{ slot, ...size, ...(pinned && { pinned }) }];
    });
  }
}
