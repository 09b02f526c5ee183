import type { ShownSize, Speaker } from "@moim/sdk";
import { el, icon } from "./dom.ts";
import { bestGrid, bestStage } from "./layout.ts";
import { Sight } from "./sight.ts";

const GAP = 8;
/** More tiles than this help nobody; the rest is counted. */
const MAX_TILES = 25;
/** So many of the audience who spoke last have a tile, and for so long after they spoke, in milliseconds. */
const MAX_HEARD = 8;
const HEARD_MS = 20_000;

const PAUSED = "paused: slow connection";
const PAUSED_WHY = "Your connection does not carry this picture at the moment";

/** One person's picture. */
export class Tile {
  readonly element: HTMLLIElement;
  /** At which size it is seen, in pixels of the screen; null until that is known. */
  shown: ShownSize | null = null;
  /** When they spoke last, on the clock of `performance.now()`; -Infinity: not yet. */
  spoke = Number.NEGATIVE_INFINITY;
  /** They belong to the audience of a large room: this tile stands for them while they are heard. */
  isAudience = false;
  /** Whether they raise their hand. */
  hasHand = false;
  readonly video = el("video", { autoplay: true, muted: true, playsInline: true });
  readonly #label = el("span", { class: "name" });
  readonly #avatar = el("span", { class: "avatar", "aria-hidden": "true" });
  readonly #rest = el("span", { class: "rest", title: PAUSED_WHY }, PAUSED);
  readonly #badge = el("span", { class: "badge" }, icon("microphone-off"));
  readonly #hand = el("span", { class: "badge hand", hidden: true, title: "Hand raised" }, icon("hand"));
  readonly #pin = el("button", { class: "pin", type: "button", hidden: true }, icon("pin"));
  #name = "";
  #muted = true;
  #videoMuted = false;
  #paused = false;
  #media: MediaStreamTrack | null = null;

  constructor(
    readonly participant: string,
    readonly isSelf: boolean,
    name: string,
  ) {
    this.#rest.hidden = true;
    const foot = el("span", { class: "foot" }, this.#hand, this.#badge, this.#label);
    this.element = el(
      "li",
      { class: isSelf ? "tile self" : "tile" },
      this.#avatar,
      this.video,
      this.#rest,
      foot,
      this.#pin,
    );
    this.setName(name);
  }

  get name(): string {
    return this.#name;
  }

  /** Whether a picture is shown. */
  get hasVideo(): boolean {
    return this.#media !== null && !this.#videoMuted && !this.#paused;
  }

  setName(name: string): void {
    this.#name = name;
    this.#label.textContent = this.isSelf ? `${name} (you)` : name;
    this.#pin.setAttribute("aria-label", `Pin ${name}`);
    this.#avatar.textContent = initials(name);
    this.#describe();
  }

  /** Whether nobody can hear this person. */
  setMuted(muted: boolean): void {
    this.#muted = muted;
    this.#badge.hidden = !muted;
    this.#describe();
  }

  /** Whether they raise their hand. */
  setHand(raised: boolean): void {
    this.hasHand = raised;
    this.#hand.hidden = !raised;
    this.#describe();
  }

  /** Offers to pin the picture, or to unpin it. */
  onPin(pin: () => void): void {
    this.#pin.onclick = pin;
    this.#pin.hidden = false;
    this.setPinned(false);
  }

  /** A pinned tile is the large one. */
  setPinned(pinned: boolean): void {
    this.element.classList.toggle("pinned", pinned);
    this.#pin.setAttribute("aria-pressed", String(pinned));
    this.#pin.title = pinned ? "Unpin" : "Pin: keep this picture, and show it large";
  }

  /** @param now on the clock of `performance.now()` */
  setSpeaking(speaking: boolean, now: number): void {
    // Until now, too, if they have just fallen silent.
    if (speaking || this.isSpeaking) this.spoke = now;
    this.element.classList.toggle("speaking", speaking);
  }

  get isSpeaking(): boolean {
    return this.element.classList.contains("speaking");
  }

  /**
   * Shows a picture, or none.
   * @param fromRtp first RTP timestamp of the new content, where the track belonged to someone else before
   */
  setMedia(media: MediaStreamTrack | null, fromRtp?: number): void {
    if (this.#media === media) return;
    this.#media = media;
    this.video.srcObject = media ? new MediaStream([media]) : null;
    this.element.classList.remove("live");
    if (media) this.#showAtFirstFrame(media, fromRtp);
    this.#describe();
  }

  /** The person switched their camera off or on; the track stays. */
  setVideoMuted(muted: boolean): void {
    this.#videoMuted = muted;
    this.element.classList.toggle("camera-off", muted);
    this.#describe();
  }

  /** The picture rests, because the path to this page does not carry it; or it flows again. */
  setPaused(paused: boolean): void {
    this.#paused = paused;
    this.#rest.hidden = !paused;
    this.element.classList.toggle("paused", paused);
    this.#describe();
  }

  /** Until the first frame is there (of the new content, not of the slot's last one) the avatar stays. */
  #showAtFirstFrame(media: MediaStreamTrack, fromRtp: number | undefined): void {
    // The element is transparent and not hidden meanwhile: hidden ones get no frames.
    this.video.requestVideoFrameCallback((_now, frame) => {
      if (this.#media !== media) return;
      const behind =
        fromRtp !== undefined && frame.rtpTimestamp !== undefined && ((frame.rtpTimestamp - fromRtp) | 0) < 0;
      if (behind) this.#showAtFirstFrame(media, fromRtp);
      else this.element.classList.add("live");
    });
  }

  #describe(): void {
    const hand = this.hasHand ? "hand raised" : null;
    const parts = [this.#name, hand, this.#muted ? "microphone off" : null, this.#picture()];
    this.element.setAttribute("aria-label", parts.filter(Boolean).join(", "));
  }

  #picture(): string | null {
    if (this.#paused) return "picture paused";
    return this.hasVideo ? null : "no picture";
  }
}

function initials(name: string): string {
  const words = name.trim().split(/\s+/).slice(0, 2);
  return words.map((word) => [...word][0]?.toUpperCase() ?? "").join("");
}

/** Orders tiles by who spoke last. */
function latest(a: Tile, b: Tile): number {
  return a.spoke === b.spoke ? 0 : b.spoke - a.spoke;
}

/** The tiles of all people, as large as the window allows. */
export class TileGrid {
  readonly element = el("ul", { class: "tiles", "aria-label": "People in this room" });
  readonly #tiles = new Map<string, Tile>();
  readonly #more = el("li", { class: "tile more" });
  readonly #observer = new ResizeObserver(() => this.#layout());
  readonly #sight = new Sight();
  readonly #onShown: (tile: Tile) => void;
  #count = 0;
  /** People in the room; more than there are tiles where it has an audience. */
  #people = 0;
  #pinned: string | null = null;
  #forgetting: ReturnType<typeof setTimeout> | undefined;

  /** @param onShown hears of each tile that is seen at another size */
  constructor(onShown: (tile: Tile) => void) {
    this.#onShown = onShown;
    this.#observer.observe(this.element);
  }

  get(participant: string): Tile | undefined {
    return this.#tiles.get(participant);
  }

  /** All tiles, in order of joining. */
  all(): Tile[] {
    return [...this.#tiles.values()];
  }

  add(tile: Tile): void {
    this.#tiles.set(tile.participant, tile);
    this.#sight.watch(tile.element, (size) => {
      tile.shown = size;
      this.#onShown(tile);
    });
    this.refresh();
  }

  remove(participant: string): void {
    const tile = this.#tiles.get(participant);
    if (tile) this.#sight.unwatch(tile.element);
    tile?.setMedia(null);
    this.#tiles.delete(participant);
    this.refresh();
  }

  /** Whose tile is the large one. */
  get pinned(): string | null {
    return this.#pinned;
  }

  /** One tile is the large one, or none. */
  pin(participant: string | null): void {
    for (const tile of this.all()) tile.setPinned(tile.participant === participant);
    this.#pinned = participant;
    this.refresh();
  }

  clear(): void {
    for (const participant of [...this.#tiles.keys()]) this.remove(participant);
  }

  end(): void {
    clearTimeout(this.#forgetting);
    this.#observer.disconnect();
    this.clear();
    this.#sight.end();
  }

  /** How many people are in the room. */
  setPeople(count: number): void {
    this.#people = count;
    this.refresh();
  }

  /** Who speaks now. Of the audience, {@link MAX_HEARD} get a tile for a while: those who have one, and the loudest. */
  speak(speakers: readonly Speaker[]): void {
    const now = performance.now();
    const speaking = new Set(speakers.map(({ id }) => id));
    for (const tile of this.all()) tile.setSpeaking(speaking.has(tile.participant), now);
    for (const { id, name } of speakers) {
      if (name === undefined || this.#tiles.has(id) || !this.#hasRoomForAudience()) continue;
      const tile = new Tile(id, false, name);
      tile.isAudience = true;
      tile.setMuted(false);
      tile.setVideoMuted(true);
      tile.setSpeaking(true, now);
      this.add(tile);
    }
    this.#forgetSilent();
    // Somebody who speaks and has no place among the tiles takes that of one who has been silent for longer.
    if (this.all().some((tile) => tile.isSpeaking && !tile.element.isConnected)) this.refresh();
  }

  #audience(): Tile[] {
    return this.all().filter((tile) => tile.isAudience);
  }

  /** Whether another of the audience may have a tile; one who is silent gives way. */
  #hasRoomForAudience(): boolean {
    const audience = this.#audience();
    if (audience.length < MAX_HEARD) return true;
    const [longest] = audience.filter((tile) => !tile.isSpeaking).sort((a, b) => latest(b, a));
    if (longest) this.remove(longest.participant);
    return longest !== undefined;
  }

  /** Takes away tiles of the audience that have been silent for a while: nobody says when they leave. */
  #forgetSilent(): void {
    clearTimeout(this.#forgetting);
    const since = performance.now() - HEARD_MS;
    for (const tile of this.#audience())
      if (!tile.isSpeaking && tile.spoke <= since) this.remove(tile.participant);
    if (this.#audience().length > 0) this.#forgetting = setTimeout(() => this.#forgetSilent(), HEARD_MS / 4);
  }

  /** Puts the tiles in place. With too many people those with a picture or a raised hand and those who spoke last have one. */
  refresh(): void {
    let tiles = this.all();
    if (tiles.length > MAX_TILES) {
      const rank = (tile: Tile) =>
        tile.isSelf || tile.participant === this.#pinned ? 0 : tile.hasVideo || tile.hasHand ? 1 : 2;
      const first = [...tiles].sort((a, b) => rank(a) - rank(b) || latest(a, b)).slice(0, MAX_TILES);
      const chosen = new Set(first);
      tiles = tiles.filter((tile) => chosen.has(tile));
    }
    const hidden = Math.max(this.#people, this.#tiles.size) - tiles.length;
    const wanted: HTMLElement[] = tiles.map((tile) => tile.element);
    if (hidden > 0) {
      this.#more.textContent = `and ${hidden} more`;
      wanted.push(this.#more);
    }
    // Elements that stay are not touched: a moved video would flicker.
    for (const child of [...this.element.children])
      if (!wanted.includes(child as HTMLElement)) child.remove();
    wanted.forEach((element, index) => {
      if (this.element.children[index] !== element)
        this.element.insertBefore(element, this.element.children[index] ?? null);
    });
    this.#count = wanted.length;
    this.#layout();
  }

  #layout(): void {
    const { clientWidth, clientHeight } = this.element;
    if (clientWidth === 0 || this.#count === 0) return;
    const [width, height] = [clientWidth - 2 * GAP, clientHeight - 2 * GAP];
    const pinned = this.#pinned !== null && this.#tiles.has(this.#pinned);
    const { stage, tile } = pinned
      ? bestStage(this.#count - 1, width, height, GAP)
      : { stage: 0, tile: bestGrid(this.#count, width, height, GAP).width };
    this.element.style.setProperty("--stage", `${stage}px`);
    this.element.style.setProperty("--tile", `${tile}px`);
    this.element.style.setProperty("--gap", `${GAP}px`);
  }
}
