import { limitCodecs } from "./codecs.ts";
import { MoimError } from "./signaling.ts";
import type { Answer, IceServer, MediaKind, OfferedTrack, VideoCodec } from "./wire.ts";

/** What the peer needs from its owner. */
export interface PeerHooks {
  /** Sends an offer and returns the server's answer. */
  offer(sdp: string, tracks: OfferedTrack[]): Promise<Answer>;
  /** A slot's line exists from now on, under this mid. */
  slotAdded(mid: string, kind: MediaKind): void;
  /** An answer was applied: these tracks are sent from now on. */
  negotiated(tracks: SentLine[]): void;
  /** The connection's state changed. */
  connection(state: RTCPeerConnectionState): void;
  /** Negotiation failed for a reason that trying again will not mend. */
  failed(error: MoimError): void;
}

/** A sent track that has an id in the room. */
export interface SentLine {
  mid: string;
  id: string;
  kind: MediaKind;
  name: string;
}

interface Sending {
  transceiver: RTCRtpTransceiver;
  kind: MediaKind;
  name: string;
  /** Whether a track is meant to flow; a stopped line is kept for the next track of its kind. */
  active: boolean;
  /** The id in the room, once answered. */
  id: string | null;
  /** The last change between sending and resting. */
  resting: Promise<void>;
}

const DISCONNECTED_MS = 2_000;
const RESTART_AGAIN_MS = 5_000;
const TOO_FAST_MS = 1_000;

/** The connection with the server: what is sent, the pool of slots, and one offer at a time. */
export class Peer {
  readonly #pc: RTCPeerConnection;
  readonly #codec: VideoCodec;
  readonly #redundancy: boolean;
  readonly #hooks: PeerHooks;
  readonly #sending: Sending[] = [];
  /** Own tracks that rest, known by an answer or not yet. */
  readonly #paused = new Set<string>();
  readonly #slots: { transceiver: RTCRtpTransceiver; kind: MediaKind; told: boolean }[] = [];
  #wanted = false;
  #restart = false;
  #running: Promise<void> | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(iceServers: IceServer[], codec: VideoCodec, redundancy: boolean, hooks: PeerHooks) {
    this.#codec = codec;
    this.#redundancy = redundancy;
    this.#hooks = hooks;
    this.#pc = new RTCPeerConnection({ iceServers, bundlePolicy: "max-bundle", rtcpMuxPolicy: "require" });
    this.#pc.onconnectionstatechange = () => this.#connectionChanged();
  }

  get connectionState(): RTCPeerConnectionState {
    return this.#pc.connectionState;
  }

  /** Whether there is nothing to negotiate yet. */
  get isEmpty(): boolean {
    return this.#sending.length + this.#slots.length === 0;
  }

  getStats(): Promise<RTCStatsReport> {
    return this.#pc.getStats();
  }

  /** Adds empty slots; they exist after the next offer. */
  addSlots(kind: MediaKind, count: number): void {
    for (let i = 0; i < count; i++) {
      const transceiver = this.#pc.addTransceiver(kind, { direction: "recvonly" });
      limitCodecs(transceiver, kind, this.#codec, this.#redundancy);
      this.#slots.push({ transceiver, kind, told: false });
    }
  }

  /** How many slots were added. */
  slotCount(kind: MediaKind): number {
    return this.#slots.filter((slot) => slot.kind === kind).length;
  }

  /** What a slot receives; the same object for the life of the slot. */
  slotTrack(mid: string): MediaStreamTrack | null {
    return this.#slots.find((slot) => slot.transceiver.mid === mid)?.transceiver.receiver.track ?? null;
  }

  /** Sends a track on a free line of its kind, or on a new one; flows after the next offer. */
  async send(track: MediaStreamTrack, name: string): Promise<void> {
    const kind = track.kind as MediaKind;
    const free = this.#sending.find((sending) => sending.kind === kind && !sending.active);
    if (free) {
      free.active = true;
      free.name = name;
      free.transceiver.direction = "sendonly";
      await free.transceiver.sender.replaceTrack(track);
      return;
    }
    const transceiver = this.#pc.addTransceiver(track, { direction: "sendonly" });
    limitCodecs(transceiver, kind, this.#codec, this.#redundancy);
    this.#sending.push({ transceiver, kind, name, active: true, id: null, resting: Promise.resolve() });
  }

  /** Stops sending the track of this name. */
  async stopSending(name: string): Promise<void> {
    const sending = this.#find(name);
    if (!sending) return;
    sending.active = false;
    if (sending.id !== null) this.#paused.delete(sending.id);
    sending.id = null;
    sending.transceiver.direction = "inactive";
    await sending.transceiver.sender.replaceTrack(null);
  }

  /** Sends other media as the same track, without an offer. */
  async replace(name: string, track: MediaStreamTrack | null): Promise<void> {
    await this.#find(name)?.transceiver.sender.replaceTrack(track);
  }

  /**
   * An own track rests: nobody has it in a slot, so the encoder stops and nothing is sent; or it is wanted again, and
   * begins with a keyframe. It may be told before the answer that names the track.
   */
  pause(id: string, paused: boolean): void {
    if (paused) this.#paused.add(id);
    else this.#paused.delete(id);
    for (const sending of this.#sending) if (sending.id === id) this.#rest(sending);
  }

  /** The sent tracks that have an id in the room. */
  sentTracks(): SentLine[] {
    return this.#sending.flatMap(({ transceiver, id, kind, name, active }) =>
      active && id !== null && transceiver.mid !== null ? [{ mid: transceiver.mid, id, kind, name }] : [],
    );
  }

  /** Offers what is added by now. Requests made while an offer is out share the next one. */
  negotiate(): Promise<void> {
    this.#wanted = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  /** Takes up an offer that got no answer because the socket was lost. */
  retry(): void {
    if (this.#wanted) this.negotiate().catch(() => {});
  }

  /** Looks for a new path: an offer with new ICE credentials. */
  restartIce(): void {
    if (this.#closed || this.#pc.remoteDescription === null) return;
    this.#restart = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (this.#pc.connectionState !== "connected") this.restartIce();
    }, RESTART_AGAIN_MS);
    this.negotiate().catch(() => {});
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#pc.onconnectionstatechange = null;
    this.#pc.close();
  }

  /** Sends or not, as is told for the track that flows on a line. Changes of one sender follow each other. */
  #rest(sending: Sending): void {
    const { sender } = sending.transceiver;
    sending.resting = sending.resting.then(async () => {
      const active = sending.id === null || !this.#paused.has(sending.id);
      const parameters = sender.getParameters();
      const wrong = parameters.encodings.filter((encoding) => (encoding.active ?? true) !== active);
      if (this.#closed || wrong.length === 0) return;
      for (const encoding of wrong) encoding.active = active;
      await sender.setParameters(parameters).catch((error: unknown) => console.warn("pause left out", error));
    });
  }

  #find(name: string): Sending | undefined {
    return this.#sending.find((sending) => sending.name === name && sending.active);
  }

  async #run(): Promise<void> {
    while (this.#wanted && !this.#closed) {
      this.#wanted = false;
      const iceRestart = this.#restart;
      this.#restart = false;
      try {
        await this.#offerOnce(iceRestart);
      } catch (cause) {
        if (this.#closed) return;
        const error =
          cause instanceof MoimError ? cause : new MoimError("bad_sdp", `negotiation failed: ${cause}`);
        this.#restart ||= iceRestart;
        if (error.code === "too_fast") {
          this.#wanted = true;
          await new Promise((resolve) => setTimeout(resolve, TOO_FAST_MS));
          continue;
        }
        if (error.code === "disconnected") this.#wanted = true;
        else this.#hooks.failed(error);
        throw error;
      }
    }
  }

  async #offerOnce(iceRestart: boolean): Promise<void> {
    const pc = this.#pc;
    if (this.isEmpty) return;
    await pc.setLocalDescription(await pc.createOffer({ iceRestart }));
    for (const slot of this.#slots) {
      if (slot.told || slot.transceiver.mid === null) continue;
      slot.told = true;
      this.#hooks.slotAdded(slot.transceiver.mid, slot.kind);
    }
    const offered = this.#sending.filter((sending) => sending.active && sending.transceiver.mid !== null);
    const tracks = offered.map(({ transceiver, kind, name }) => ({ mid: transceiver.mid!, kind, name }));
    const answer = await this.#hooks.offer(pc.localDescription!.sdp, tracks);
    if (this.#closed) return;
    await pc.setRemoteDescription({ type: "answer", sdp: answer.sdp });
    const ids = new Map(answer.tracks.map(({ mid, id }) => [mid, id]));
    for (const sending of offered) {
      if (!sending.active) continue;
      sending.id = ids.get(sending.transceiver.mid!) ?? null;
      this.#rest(sending);
    }
    this.#hooks.negotiated(this.sentTracks());
  }

  #connectionChanged(): void {
    const state = this.#pc.connectionState;
    if (this.#closed) return;
    if (state === "connected") clearTimeout(this.#timer);
    else if (state === "failed") this.restartIce();
    else if (state === "disconnected") {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => {
        if (this.#pc.connectionState === "disconnected") this.restartIce();
      }, DISCONNECTED_MS);
    }
    this.#hooks.connection(state);
  }
}
