/** Opens a device. Resolves with null, and says why, if it cannot be opened. */
export type Open = () => Promise<MediaStreamTrack | null>;

/**
 * The microphone or the camera before a call: open or not, as was wished last. Opening one takes up to seconds, and
 * wishes change meanwhile. What opens although nobody wishes it any more is closed at once, so that no device stays open.
 */
export class Device {
  readonly #open: Open;
  readonly #changed: () => void;
  #wanted = false;
  #given = false;
  #track: MediaStreamTrack | null = null;
  #opening: Promise<void> | null = null;

  /** @param changed is called when the wish or the track changes */
  constructor(open: Open, changed: () => void) {
    this.#open = open;
    this.#changed = changed;
  }

  /** Whether it is to be open. It may be about to. */
  get wanted(): boolean {
    return this.#wanted;
  }

  /** What it gives, while it is open. */
  get track(): MediaStreamTrack | null {
    return this.#track;
  }

  /** Wishes it open or closed. Resolves once it is as was wished last. After {@link take} nothing is opened. */
  async set(wanted: boolean): Promise<void> {
    this.#wanted = wanted && !this.#given;
    if (!this.#wanted) this.#release();
    this.#changed();
    if (this.#wanted && this.#track === null) this.#opening ??= this.#settle();
    await this.#opening;
  }

  /** Gives away what is open. What opens from now on is closed at once. */
  take(): MediaStreamTrack | null {
    const track = this.#track;
    this.#track = null;
    this.#wanted = false;
    this.#given = true;
    return track;
  }

  async #settle(): Promise<void> {
    while (this.#wanted && this.#track === null) {
      const track = await this.#open();
      if (track === null) this.#wanted = false;
      else if (!this.#wanted) track.stop();
      else this.#hold(track);
    }
    this.#opening = null;
    this.#changed();
  }

  #hold(track: MediaStreamTrack): void {
    this.#track = track;
    // It is unplugged, or the system takes it.
    track.addEventListener("ended", () => {
      if (this.#track !== track) return;
      this.#track = null;
      this.#wanted = false;
      this.#changed();
    });
  }

  #release(): void {
    this.#track?.stop();
    this.#track = null;
  }
}
