import { isScreen } from "./layers.ts";
import type { LinkLine } from "./link.ts";
import { Mesh } from "./mesh.ts";
import { mergeStats, type Stat } from "./paths.ts";
import { Peer, type SendOptions } from "./peer.ts";
import { MoimError, type Signaling } from "./signaling.ts";
import { FIRST_SLOTS, slotsToAdd } from "./slots.ts";
import type { SentMapping } from "./stats.ts";
import * as wire from "./wire.ts";

/** What the routes need from the room. */
export interface RoutesHooks {
  /** A slot exists from now on: of the server's connection, or a line of a mesh. */
  slotAdded(slot: string, kind: wire.MediaKind): void;
  /** Mesh: what other members send on their lines; resolves when the last figures of what ended are read. */
  slots(changes: wire.SlotChange[]): Promise<void>;
  sent(tracks: SentMapping[]): void;
  speakers(speakers: wire.Speaker[]): void;
  connection(state: RTCPeerConnectionState): void;
  failed(error: MoimError): void;
}

/**
 * The name under which an own track is published, as tokens call it. On a thin path the server lets cameras rest before
 * screens.
 */
export function sourceOf(track: MediaStreamTrack): string {
  if (track.kind === "audio") return "microphone";
  return isScreen(track) ? "screen_share" : "camera";
}

/** A connection's name in figures: of the server's nothing, of a mesh's the participant. */
export const linkName = (participant: string): string => `${participant}/`;

/**
 * Which media goes which way: by the server (SFU, MCU) or from person to person (mesh), each kind for itself, as
 * the room says.
 */
export class Routes {
  readonly #room: wire.RoomInfo;
  readonly #signaling: Signaling;
  readonly #hooks: RoutesHooks;
  readonly #kinds: readonly wire.MediaKind[];
  readonly #options: Omit<SendOptions, "codec">;
  readonly #peer: Peer | null = null;
  readonly #mesh: Mesh | null = null;
  /** The names under which own tracks are published. */
  readonly #names = new Map<wire.MediaKind, string>();
  /** What comes in on the lines of a mesh, by `PARTICIPANT/MID`. */
  readonly #lines = new Map<string, MediaStreamTrack>();

  constructor(
    joined: wire.Joined,
    session: string,
    signaling: Signaling,
    options: Omit<SendOptions, "codec">,
    hooks: RoutesHooks,
  ) {
    const { room, ice_servers, participants } = joined;
    this.#options = options;
    this.#room = room;
    this.#signaling = signaling;
    this.#hooks = hooks;
    this.#kinds = room.video === "none" ? ["audio"] : ["audio", "video"];
    const meshed = this.#kinds.filter((kind) => room[kind] === "mesh");
    if (meshed.length < this.#kinds.length) this.#peer = this.#newPeer(ice_servers, session);
    if (meshed.length > 0) {
      const others = participants.map(({ id }) => id);
      this.#mesh = this.#newMesh(ice_servers, meshed, others);
    }
  }

  /** Whether the room has this kind of media at all. */
  has(kind: wire.MediaKind): boolean {
    return this.#kinds.includes(kind);
  }

  /** Sends a track; flows after {@link negotiate}. */
  async send(track: MediaStreamTrack): Promise<void> {
    const kind = track.kind as wire.MediaKind;
    if (!this.has(kind)) throw new MoimError("kind_conflict", `this room has no ${kind}`);
    const name = sourceOf(track);
    this.#names.set(kind, name);
    if (this.#isMesh(kind)) this.#mesh?.send(track, name);
    else await this.#peer?.send(track, name);
  }

  async stopSending(kind: wire.MediaKind): Promise<void> {
    if (this.#isMesh(kind)) await this.#mesh?.stopSending(kind);
    else {
      await this.#peer?.stopSending(this.#names.get(kind) ?? "");
      await this.#peer?.negotiate();
    }
  }

  /** Sends other media as the same track: of the same source. */
  async replace(kind: wire.MediaKind, track: MediaStreamTrack): Promise<void> {
    if (this.#isMesh(kind)) await this.#mesh?.replace(kind, track);
    else await this.#peer?.replace(this.#names.get(kind) ?? "", track);
  }

  /** The own track of a kind was switched off or on (`enabled`). */
  switched(kind: wire.MediaKind): void {
    if (!this.#isMesh(kind)) this.#peer?.switched(this.#names.get(kind) ?? "");
  }

  /** An own track rests because nobody has it in a slot, or is wanted again. */
  pause(track: string, paused: boolean): void {
    this.#peer?.pause(track, paused);
  }

  /** The highest layer of an own track that anybody wants. */
  setLayer(track: string, layer: number): void {
    this.#peer?.setLayer(track, layer);
  }

  /** Whether own sound goes to the server with copies of the packets before. In a mesh it has no effect. */
  setRedundant(on: boolean): void {
    if (!this.#isMesh("audio")) this.#peer?.setRedundant(on);
  }

  /** The id in the room of what is sent of a kind. */
  idOf(kind: wire.MediaKind): string | null {
    if (this.#isMesh(kind)) return this.#mesh?.idOf(kind) ?? null;
    return this.#peer?.sentTracks().find((sent) => sent.kind === kind)?.id ?? null;
  }

  /** The first slots; a mix needs one. They exist after {@link start}. */
  addFirstSlots(videos: number): void {
    const { audio, video, limits } = this.#room;
    const audioSlots = audio === "mcu" ? 1 : Math.min(FIRST_SLOTS.audio, limits.max_audio_slots);
    if (audio !== "mesh") this.#peer?.addSlots("audio", audioSlots);
    if (video === "sfu") this.#peer?.addSlots("video", Math.min(videos, limits.max_video_slots));
  }

  /** More slots where so many are wanted in all. */
  async growSlots(audio: number, video: number): Promise<void> {
    const peer = this.#peer;
    if (!peer) return;
    const { max_audio_slots, max_video_slots } = this.#room.limits;
    const sfu = (kind: wire.MediaKind, wanted: number) => (this.#room[kind] === "sfu" ? wanted : 0);
    const moreAudio = slotsToAdd(peer.slotCount("audio"), sfu("audio", audio), max_audio_slots);
    const moreVideo = slotsToAdd(peer.slotCount("video"), sfu("video", video), max_video_slots);
    if (moreAudio + moreVideo === 0) return;
    peer.addSlots("audio", moreAudio);
    peer.addSlots("video", moreVideo);
    await peer.negotiate();
  }

  /** What a slot receives. */
  slotTrack(slot: string): MediaStreamTrack | null {
    return this.#lines.get(slot) ?? this.#peer?.slotTrack(slot) ?? null;
  }

  /** The first negotiation of all routes. */
  async start(): Promise<void> {
    await Promise.all([this.#peer?.negotiate(), this.#mesh?.start()]);
  }

  /** Negotiates a kind of which something new is sent. */
  async negotiate(kind: wire.MediaKind): Promise<void> {
    await (this.#isMesh(kind) ? this.#mesh?.negotiate() : this.#peer?.negotiate());
  }

  /** What another member tells us for our connection with them. */
  peerEvent(event: wire.PeerEvent): void {
    if (event.type === "peer_offer") this.#mesh?.offered(event.from, event.sdp, event.tracks);
    else if (event.type === "peer_answer") this.#mesh?.answered(event.from, event.sdp, event.tracks);
    else this.#mesh?.candidate(event.from, event.candidate, event.mid);
  }

  left(participant: string): void {
    this.#mesh?.left(participant);
  }

  /** The worse of both ways. */
  get connectionState(): RTCPeerConnectionState {
    const server = !this.#peer || this.#peer.isEmpty ? "connected" : this.#peer.connectionState;
    return server === "connected" ? (this.#mesh?.connectionState ?? "connected") : server;
  }

  /** The counters of all connections; see {@link mergeStats}. */
  async getStats(): Promise<ReadonlyMap<string, Stat>> {
    const links = this.#mesh?.connections() ?? [];
    const meshed = links.map(async ([id, link]) => [linkName(id), await link.getStats()] as const);
    const server = this.#peer ? [this.#peer.getStats().then((stats) => ["", stats] as const)] : [];
    const all = await Promise.all([...server, ...meshed]);
    return mergeStats(all.map(([name, stats]) => [name, stats as unknown as ReadonlyMap<string, Stat>]));
  }

  retry(): void {
    this.#peer?.retry();
    this.#mesh?.retry();
  }

  /** Looks for a new path to the server. */
  restartServer(): void {
    this.#peer?.restartIce();
  }

  restartIce(): void {
    this.#peer?.restartIce();
    this.#mesh?.restartIce();
  }

  close(): void {
    this.#peer?.close();
    this.#mesh?.close();
  }

  #isMesh(kind: wire.MediaKind): boolean {
    return this.#room[kind] === "mesh";
  }

  #received(participant: string, lines: LinkLine[]): Promise<void> {
    const name = linkName(participant);
    const now = new Map(lines.map((line) => [name + line.mid, line]));
    const ended = [...this.#lines.keys()].filter((slot) => slot.startsWith(name) && !now.has(slot));
    const changes: wire.SlotChange[] = ended.map((slot) => ({ slot, participant: null, track: null }));
    for (const [slot, { id, kind, mediaTrack }] of now) {
      this.#lines.set(slot, mediaTrack);
      this.#hooks.slotAdded(slot, kind);
      changes.push({ slot, participant, track: id });
    }
    const read = this.#hooks.slots(changes);
    for (const slot of ended) this.#lines.delete(slot);
    return read;
  }

  #tellSent(): void {
    const server = this.#peer?.sentTracks() ?? [];
    const meshed = this.#mesh?.sent() ?? [];
    this.#hooks.sent([
      ...server.map(({ mid, id, kind }) => ({ mid, id, kind })),
      ...meshed.map(({ participant, mid, id, kind }) => ({ mid: linkName(participant) + mid, id, kind })),
    ]);
  }

  #newPeer(iceServers: wire.IceServer[], session: string): Peer {
    return new Peer(
      iceServers,
      { ...this.#options, codec: this.#room.video_codec },
      {
        offer: async (sdp, tracks) =>
          wire.answer(await this.#signaling.call(wire.call.offer, { sdp, tracks, session }), "answer"),
        slotAdded: (mid, kind) => this.#hooks.slotAdded(mid, kind),
        negotiated: () => this.#tellSent(),
        connection: (state) => this.#hooks.connection(state),
        failed: (error) => this.#hooks.failed(error),
      },
    );
  }

  #newMesh(iceServers: wire.IceServer[], kinds: wire.MediaKind[], others: string[]): Mesh {
    const call = (name: string, data: object) => this.#signaling.call(name, data);
    return new Mesh(iceServers, kinds, this.#room.video_codec, others, {
      announce: async (tracks) =>
        wire.announced(await call(wire.call.announce, { tracks }), "announced").tracks,
      offer: async (to, sdp, tracks) => void (await call(wire.call.peerOffer, { to, sdp, tracks })),
      answer: async (to, sdp, tracks) => void (await call(wire.call.peerAnswer, { to, sdp, tracks })),
      candidate: async (to, candidate, mid) =>
        void (await call(wire.call.peerCandidate, { to, candidate, ...(mid === undefined ? {} : { mid }) })),
      received: (participant, lines) => this.#received(participant, lines),
      sent: () => this.#tellSent(),
      connection: () => this.#hooks.connection(this.connectionState),
      speakers: (speakers) => this.#hooks.speakers(speakers),
      failed: (error) => this.#hooks.failed(error),
    });
  }
}
