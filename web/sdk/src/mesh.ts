import { Link, type LinkLine, type Outgoing } from "./link.ts";
import { MoimError } from "./signaling.ts";
import type { AnsweredTrack, IceServer, MediaKind, OfferedTrack, Speaker, VideoCodec } from "./wire.ts";

/** What a mesh needs from its owner. */
export interface MeshHooks {
  /** Tells the room all that is sent; returns the ids by label. */
  announce(tracks: OfferedTrack[]): Promise<AnsweredTrack[]>;
  offer(to: string, sdp: string, tracks: AnsweredTrack[]): Promise<void>;
  answer(to: string, sdp: string, tracks: AnsweredTrack[]): Promise<void>;
  candidate(to: string, candidate: string, mid: string | undefined): Promise<void>;
  /** All that one participant sends here now; resolves when their connection may be closed. */
  received(participant: string, lines: LinkLine[]): Promise<void>;
  /** What is sent, and on which lines, may be new. */
  sent(): void;
  /** The connection with someone changed. */
  connection(): void;
  /** Who is heard now, loudest first; told as often as it changes, at most 4 times a second. */
  speakers(speakers: Speaker[]): void;
  failed(error: MoimError): void;
}

interface Sending {
  track: MediaStreamTrack;
  name: string;
  /** The id in the room, once announced. */
  id: string | null;
}

const SPEAKERS_MS = 250;
/** Quieter than this nobody speaks. */
const SPEECH_DBOV = 45;
const RETRY_MS = 1_000;

/** The connections of a mesh: one with every other member, without the server between. */
export class Mesh {
  readonly #iceServers: IceServer[];
  readonly #kinds: readonly MediaKind[];
  readonly #codec: VideoCodec;
  readonly #hooks: MeshHooks;
  readonly #links = new Map<string, Link>();
  /** Links of those who left, until their last figures are read. */
  readonly #leaving = new Map<string, Link>();
  readonly #sending = new Map<MediaKind, Sending>();
  readonly #stream = new MediaStream();
  readonly #speaking: ReturnType<typeof setInterval> | undefined;
  /** Who was there before us: we offer to them. */
  #first: string[];
  #announcing: Promise<void> = Promise.resolve();
  #spoke = "";
  #closed = false;

  /**
   * @param kinds what goes this way
   * @param others who was in the room before
   */
  constructor(
    iceServers: IceServer[],
    kinds: readonly MediaKind[],
    codec: VideoCodec,
    others: readonly string[],
    hooks: MeshHooks,
  ) {
    this.#iceServers = iceServers;
    this.#kinds = kinds;
    this.#codec = codec;
    this.#hooks = hooks;
    this.#first = [...others];
    if (kinds.includes("audio")) this.#speaking = setInterval(() => this.#tellSpeakers(), SPEAKERS_MS);
  }

  /** Announces what is sent, then offers to all who were there. */
  async start(): Promise<void> {
    if (this.#sending.size > 0) await this.#announce();
    const first = this.#first;
    this.#first = [];
    for (const other of first) this.#link(other, true).negotiate();
  }

  /** Sends a track to everyone; flows after {@link negotiate}. */
  send(track: MediaStreamTrack, name: string): void {
    const kind = track.kind as MediaKind;
    this.#sending.set(kind, { track, name, id: null });
  }

  /** Announces what is new, and offers it to everyone. */
  async negotiate(): Promise<void> {
    await this.#announce();
    for (const link of this.#links.values()) link.negotiate();
  }

  /** Ceases to send a kind. */
  async stopSending(kind: MediaKind): Promise<void> {
    if (!this.#sending.delete(kind)) return;
    await Promise.all([...this.#links.values()].map((link) => link.replace(kind, null)));
    await this.#announce();
  }

  /** Sends other media as the same track. */
  async replace(kind: MediaKind, track: MediaStreamTrack): Promise<void> {
    const sending = this.#sending.get(kind);
    if (!sending) return;
    sending.track = track;
    await Promise.all([...this.#links.values()].map((link) => link.replace(kind, track)));
  }

  /** The id of what is sent of a kind, once announced. */
  idOf(kind: MediaKind): string | null {
    return this.#sending.get(kind)?.id ?? null;
  }

  /** Everything that is sent: which line to whom carries which track. */
  sent(): { participant: string; mid: string; id: string; kind: MediaKind }[] {
    const kinds = new Map([...this.#sending].map(([kind, { id }]) => [id, kind]));
    return [...this.#links].flatMap(([participant, link]) =>
      link.sent().map(({ mid, id }) => ({ participant, mid, id, kind: kinds.get(id)! })),
    );
  }

  offered(from: string, sdp: string, tracks: AnsweredTrack[]): void {
    if (this.#closed) return;
    this.#link(from, false).offered(sdp, tracks);
  }

  answered(from: string, sdp: string, tracks: AnsweredTrack[]): void {
    this.#links.get(from)?.answered(sdp, tracks);
  }

  candidate(from: string, candidate: string, mid: string | undefined): void {
    this.#links.get(from)?.candidate(candidate, mid);
  }

  /** Someone left: their connection ends. */
  left(participant: string): void {
    this.#first = this.#first.filter((other) => other !== participant);
    const link = this.#links.get(participant);
    if (!link) return;
    this.#links.delete(participant);
    this.#leaving.set(participant, link);
    void this.#hooks.received(participant, []).finally(() => {
      this.#leaving.delete(participant);
      link.close();
    });
    this.#hooks.sent();
    this.#hooks.connection();
  }

  /** All connections, by participant. */
  connections(): [string, Link][] {
    return [...this.#links, ...this.#leaving];
  }

  /** How the mesh does as a whole: connected while anyone is reached, or while there is nobody to reach. */
  get connectionState(): RTCPeerConnectionState {
    const states = [...this.#links.values()]
      .filter((link) => link.matters)
      .map((link) => link.connectionState);
    if (this.#first.length > 0) return "connecting";
    if (states.length === 0 || states.includes("connected")) return "connected";
    return states.includes("new") || states.includes("connecting") ? "connecting" : "disconnected";
  }

  /** The socket is back: offers without an answer are told again. */
  retry(): void {
    for (const link of this.#links.values()) link.retry();
  }

  restartIce(): void {
    for (const link of this.#links.values()) link.restartIce();
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#speaking);
    for (const [, link] of this.connections()) link.close();
  }

  #link(other: string, polite: boolean): Link {
    const known = this.#links.get(other);
    if (known) return known;
    // What cannot be told now is told again by the link; someone unknown has left meanwhile.
    const lost = (error: unknown) => {
      const code = error instanceof MoimError ? error.code : "internal";
      const passing = ["disconnected", "ended", "too_fast", "unknown_participant", "not_joined", "gone"];
      if (!this.#closed && !passing.includes(code)) this.#fail(error);
    };
    const link = new Link(this.#iceServers, this.#kinds, this.#codec, polite, this.#stream, {
      outgoing: (kind) => this.#outgoing(kind),
      offer: (sdp, tracks) => void this.#hooks.offer(other, sdp, tracks).catch(lost),
      answer: (sdp, tracks) => void this.#hooks.answer(other, sdp, tracks).catch(lost),
      candidate: (candidate, mid) => void this.#hooks.candidate(other, candidate, mid).catch(lost),
      received: (lines) => {
        if (this.#links.get(other) === link) void this.#hooks.received(other, lines);
      },
      negotiated: () => this.#hooks.sent(),
      connection: () => this.#hooks.connection(),
      failed: (error) => this.#fail(error),
    });
    this.#links.set(other, link);
    return link;
  }

  #fail(cause: unknown): void {
    const error =
      cause instanceof MoimError
        ? cause
        : new MoimError("bad_sdp", `a connection could not be made: ${cause}`);
    this.#hooks.failed(error);
  }

  #outgoing(kind: MediaKind): Outgoing | null {
    const sending = this.#sending.get(kind);
    return sending && sending.id !== null ? { track: sending.track, id: sending.id } : null;
  }

  /** Announcements go one after the other, each with all that is sent then. */
  #announce(): Promise<void> {
    this.#announcing = this.#announcing
      .catch(() => {})
      .then(async () => {
        const sending = [...this.#sending];
        const tracks = sending.map(([kind, { name }]) => ({ mid: kind, kind, name }));
        const ids = new Map((await this.#announced(tracks)).map(({ mid, id }) => [mid, id]));
        for (const [kind, entry] of sending) entry.id = ids.get(kind) ?? null;
        this.#hooks.sent();
      });
    return this.#announcing;
  }

  /** Waits for the socket where it is lost for the moment. */
  async #announced(tracks: OfferedTrack[]): Promise<AnsweredTrack[]> {
    for (;;) {
      try {
        return await this.#hooks.announce(tracks);
      } catch (error) {
        const code = error instanceof MoimError ? error.code : "internal";
        if (this.#closed || (code !== "disconnected" && code !== "too_fast")) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        if (this.#closed) throw error;
      }
    }
  }

  /** The server hears nothing of a mesh: who speaks is found from what is played. */
  #tellSpeakers(): void {
    const speakers = [...this.#links]
      .map(([id, link]) => {
        const level = Math.max(0, ...link.levels().map((track) => track.level));
        return { id, level_dbov: level > 0 ? Math.min(127, Math.round(-20 * Math.log10(level))) : 127 };
      })
      .filter(({ level_dbov }) => level_dbov <= SPEECH_DBOV)
      .sort((a, b) => a.level_dbov - b.level_dbov);
    const spoke = speakers.map(({ id }) => id).join();
    if (spoke === this.#spoke) return;
    this.#spoke = spoke;
    this.#hooks.speakers(speakers);
  }
}
