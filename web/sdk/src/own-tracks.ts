import type { LocalTrack, RoomEvents } from "./room-types.ts";
import { type Routes, sourceOf } from "./routes.ts";
import { MoimError } from "./signaling.ts";
import type * as wire from "./wire.ts";

/** What the others were told of what is sent of a kind. It stays while one track follows another. */
interface Told {
  muted: boolean;
  /** They are being told. */
  telling: Promise<void> | null;
}

/** What is known of a track that is sent. */
interface OwnTrack {
  track: MediaStreamTrack;
  muted: boolean;
  told: Told;
  /** A moderator muted it. */
  silenced: boolean;
}

/** A track as it is before anybody was told of it. */
function untold(track: MediaStreamTrack): OwnTrack {
  return { track, muted: false, told: { muted: false, telling: null }, silenced: false };
}

type TellMute = (argument: { track: string; muted: boolean }) => Promise<unknown>;
type Emit = <Name extends "local-changed" | "silenced">(name: Name, value: RoomEvents[Name]) => void;

/** What a participant sends: a track of each kind at most, with its mutes. */
export class OwnTracks {
  readonly #all = new Map<wire.MediaKind, OwnTrack>();
  readonly #emit: Emit;
  readonly #tellMute: TellMute;
  #routes: Routes | null = null;
  #stopped = false;
  /** As the token of the present session says. */
  #mayPublish = false;

  constructor(emit: Emit, tellMute: TellMute) {
    this.#emit = emit;
    this.#tellMute = tellMute;
  }

  /** A track to be sent once a room is joined. */
  add(track: MediaStreamTrack): void {
    this.#all.set(track.kind as wire.MediaKind, untold(track));
    this.#watch(track);
  }

  /** What is sent of a kind. */
  of(kind: wire.MediaKind): LocalTrack | null {
    const own = this.#all.get(kind);
    return own ? { mediaTrack: own.track, muted: own.muted, silenced: own.silenced } : null;
  }

  /** From now on tracks go these ways. What has no line there ends; the others are sent, if that is allowed. */
  async begin(routes: Routes, mayPublish: boolean): Promise<void> {
    this.#routes = routes;
    this.#mayPublish = mayPublish;
    for (const [kind, { track }] of [...this.#all]) {
      if (!routes.has(kind)) {
        track.stop();
        this.#all.delete(kind);
      } else if (mayPublish) await routes.send(track);
    }
  }

  /** A room was joined: nothing that it was told before holds. */
  async joined(): Promise<void> {
    for (const [kind, own] of this.#all) {
      Object.assign(own, { told: { muted: false, telling: null }, silenced: false });
      this.#enable(kind, own);
    }
    await this.tellMuted();
  }

  /** Sends a track in place of what was sent of its kind. */
  async publish(track: MediaStreamTrack, muted: boolean): Promise<void> {
    const kind = track.kind as wire.MediaKind;
    if (this.#stopped) {
      // Opening it took longer than the call.
      track.stop();
      throw new MoimError("ended", "the room was left before the device was open");
    }
    const known = this.#all.get(kind);
    // A screen in place of a camera is another track: others are told which it is.
    if (known && sourceOf(known.track) !== sourceOf(track)) await this.unpublish(kind);
    const old = this.#all.get(kind);
    const now = { ...untold(track), muted };
    if (old) Object.assign(now, { told: old.told, silenced: old.silenced });
    track.enabled = !muted && !now.silenced;
    this.#all.set(kind, now);
    this.#watch(track);
    this.#emit("local-changed", kind);
    if (old) {
      old.track.stop();
      await this.#routes?.replace(kind, track);
      await this.tellMuted();
      return;
    }
    if (!this.#routes || !this.#mayPublish) return;
    try {
      await this.#routes.send(track);
    } catch (error) {
      this.#all.delete(kind);
      throw error;
    }
    await this.#routes.negotiate(kind);
    await this.tellMuted();
  }

  /** Stops sending a kind and releases its device. */
  async unpublish(kind: wire.MediaKind): Promise<void> {
    const own = this.#all.get(kind);
    if (!own) return;
    this.#all.delete(kind);
    own.track.stop();
    this.#emit("local-changed", kind);
    await this.#routes?.stopSending(kind);
  }

  /** Mutes or unmutes what is sent of a kind, and everyone is told. */
  async mute(kind: wire.MediaKind, muted: boolean): Promise<void> {
    const own = this.#all.get(kind);
    if (!own) return;
    if (own.silenced && !muted)
      throw new MoimError("not_allowed", "a moderator muted you: ask to be heard again");
    if (own.muted === muted) return;
    own.muted = muted;
    this.#enable(kind, own);
    this.#emit("local-changed", kind);
    await this.tellMuted();
  }

  /** A moderator's mute holds here too: where media does not pass the server nobody else could enforce it. */
  told({ id, kind, silenced = false }: wire.TrackInfo): void {
    const own = this.#all.get(kind);
    if (!own || own.silenced === silenced || this.#routes?.idOf(kind) !== id) return;
    own.silenced = silenced;
    this.#enable(kind, own);
    this.#emit("silenced", { kind, silenced });
  }

  /** Tells the others what is muted; without a connection they are told after coming back. */
  async tellMuted(): Promise<void> {
    for (const kind of [...this.#all.keys()]) await this.#tellMutedOf(kind);
  }

  /** One call after the other: the last wish is what they are told last. */
  async #tellMutedOf(kind: wire.MediaKind): Promise<void> {
    for (;;) {
      const own = this.#all.get(kind);
      if (!own) return;
      const { told, muted } = own;
      if (told.telling) {
        await told.telling.catch(() => {}); // Who asked for it is told.
        continue;
      }
      const track = this.#routes?.idOf(kind);
      if (muted === told.muted || !track) return;
      const tell = async () => {
        await this.#tellMute({ track, muted });
        told.muted = muted;
      };
      told.telling = tell().finally(() => {
        told.telling = null;
      });
      try {
        await told.telling;
      } catch (error) {
        if (error instanceof MoimError && error.code === "disconnected") return;
        throw error;
      }
    }
  }

  /** A device that is unplugged or taken by the system, or a screen that is shared no more, sends nothing: all are told so. */
  #watch(track: MediaStreamTrack): void {
    const kind = track.kind as wire.MediaKind;
    track.addEventListener("ended", () => {
      if (this.#stopped || this.#all.get(kind)?.track !== track) return;
      const gone = sourceOf(track) === "screen_share" ? this.unpublish(kind) : this.mute(kind, true);
      gone.catch((error: unknown) => console.warn("that a device is gone was not told", error));
    });
  }

  /** Releases all devices. Nothing is sent from now on. */
  stop(): void {
    this.#stopped = true;
    for (const { track } of this.#all.values()) track.stop();
  }

  /** What is muted is silent; a picture that passes the server is not sent at all. */
  #enable(kind: wire.MediaKind, { track, muted, silenced }: OwnTrack): void {
    track.enabled = !muted && !silenced;
    this.#routes?.switched(kind);
  }
}
