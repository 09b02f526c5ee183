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
}

const DISCONNECTED_MS = 2_000;
const RESTART_AGAIN_MS = 5_000;
const TOO_FAST_MS = 1_000;

/** The connection with the server: what is sent, the pool of slots, and one offer at a time. */
export class Peer {
  readonly #pc: RTCPeerConnection;
  readonly #codec: VideoCodec;
  readonly #hooks: PeerHooks;
  readonly #sending: Sending[] = [];
  readonly #slots: { transceiver: RTCRtpTransceiver; kind: MediaKind; told: boolean }[] = [];
  #wanted = false;
  #restart = false;
  #running: Promise<void> | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(iceServers: IceServer[], codec: VideoCodec, hooks: PeerHooks) {
    this.#codec = codec;
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
      limitCodecs(transceiver, kind, this.#codec);
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
    limitCodecs(transceiver, kind, this.#codec);
    this.#sending.push({ transceiver, kind, name, active: true, id: null });
  }

  /** Stops sending the track of this name. */
  async stopSending(name: string): Promise<void> {
    const sending = this.#find(name);
    if (!sending) return;
    sending.active = false;
    sending.id = null;
    sending.transceiver.direction = "inactive";
    await sending.transceiver.sender.replaceTrack(null);
  }

  /** Sends other media as the same track, without an offer. */
  async replace(name: string, track: MediaStreamTrack | null): Promise<void> {
    await this.#find(name)?.transceiver.sender.replaceTrack(track);
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
    for (const sending of offered) if (sending.active) sending.id = ids.get(sending.transceiver.mid!) ?? null;
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
