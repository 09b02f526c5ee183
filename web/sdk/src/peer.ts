import { limitCodecs } from "./codecs.ts";
import { encodingsOf, isWithin, layersOf, type Wanted } from "./layers.ts";
import { SendingLine } from "./sending.ts";
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

/** How media is sent. */
export interface SendOptions {
  codec: VideoCodec;
  /** Sound always with copies of the packets before. */
  redundancy: boolean;
  /** Pictures of cameras in several sizes. */
  simulcast: boolean;
}

const DISCONNECTED_MS = 2_000;
const RESTART_AGAIN_MS = 5_000;
const TOO_FAST_MS = 1_000;

/** The connection with the server: what is sent, the pool of slots, and one offer at a time. */
export class Peer {
  readonly #pc: RTCPeerConnection;
  readonly #options: SendOptions;
  readonly #hooks: PeerHooks;
  readonly #sending: SendingLine[] = [];
  /** What others want of own tracks, known by an answer or not yet. */
  readonly #demand = new Map<string, Wanted>();
  readonly #slots: { transceiver: RTCRtpTransceiver; kind: MediaKind; told: boolean }[] = [];
  /** Own sound goes with copies of the packets before. */
  #redundant: boolean;
  #wanted = false;
  #restart = false;
  #running: Promise<void> | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(iceServers: IceServer[], options: SendOptions, hooks: PeerHooks) {
    this.#options = options;
    this.#redundant = options.redundancy;
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
      limitCodecs(transceiver, kind, this.#options.codec, this.#options.redundancy);
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
    const { codec, simulcast } = this.#options;
    const within = isWithin(codec);
    const layers = simulcast ? layersOf(track, undefined, within) : [];
    // How many layers a line has is settled when it begins.
    const fits = (line: SendingLine) => line.most >= layers.length;
    const free = this.#sending.find((line) => line.kind === kind && !line.active && fits(line));
    if (free) {
      free.active = true;
      free.name = name;
      free.transceiver.direction = "sendonly";
      await free.replace(track);
      return;
    }
    const init: RTCRtpTransceiverInit = { direction: "sendonly" };
    if (layers.length > 0) init.sendEncodings = encodingsOf(layers, codec, within);
    const transceiver = this.#pc.addTransceiver(track, init);
    limitCodecs(transceiver, kind, this.#options.codec, this.#redundant);
    const demand = (id: string) => this.#demandFor(id);
    const sizes = { most: layers.length, within };
    this.#sending.push(new SendingLine(transceiver, track, name, sizes, demand));
  }

  /** Stops sending the track of this name. */
  async stopSending(name: string): Promise<void> {
    const line = this.#find(name);
    if (!line) return;
    line.active = false;
    if (line.id !== null) this.#demand.delete(line.id);
    line.id = null;
    line.transceiver.direction = "inactive";
    await line.replace(null);
  }

  /** Sends other media as the same track; an offer follows where its layers have other sizes. */
  async replace(name: string, track: MediaStreamTrack | null): Promise<void> {
    const line = this.#find(name);
    if (!line) return;
    await line.replace(track);
    if (track && line.mid !== null && line.isNews) this.negotiate().catch(() => {});
  }

  /** The track of this name was switched off or on. */
  switched(name: string): void {
    void this.#find(name)?.update();
  }

  /**
   * An own track rests: nobody has it in a slot, so the encoder stops and nothing is sent; or it is wanted again, and
   * begins with a keyframe. It may be told before the answer that names the track.
   */
  pause(id: string, paused: boolean): void {
    this.#demanded(id, { ...this.#demandFor(id), rests: paused });
  }

  /** The highest layer of an own track that anybody wants: higher ones are not sent. Told as {@link pause} is. */
  setLayer(id: string, layer: number): void {
    this.#demanded(id, { ...this.#demandFor(id), layer });
  }

  /**
   * Own sound is to go with copies of the packets before, or no longer, by a new offer: the codec that it names first is
   * what is sent.
   */
  setRedundant(on: boolean): void {
    const redundant = on || this.#options.redundancy;
    const lines = this.#sending.filter(({ kind }) => kind === "audio");
    if (redundant === this.#redundant || lines.length === 0) return;
    this.#redundant = redundant;
    for (const { transceiver } of lines) limitCodecs(transceiver, "audio", this.#options.codec, redundant);
    this.negotiate().catch(() => {});
  }

  /** The sent tracks that have an id in the room. */
  sentTracks(): SentLine[] {
    return this.#sending.flatMap(({ mid, id, kind, name, active }) =>
      active && id !== null && mid !== null ? [{ mid, id, kind, name }] : [],
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

  #demandFor(id: string): Wanted {
    return this.#demand.get(id) ?? { rests: false, layer: Number.POSITIVE_INFINITY };
  }

  #demanded(id: string, wanted: Wanted): void {
    this.#demand.set(id, wanted);
    for (const line of this.#sending) if (line.id === id) void line.update();
  }

  #find(name: string): SendingLine | undefined {
    return this.#sending.find((line) => line.name === name && line.active);
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
    const offered = this.#sending.filter((line) => line.active && line.mid !== null);
    const tracks = offered.map((line) => line.offered());
    const answer = await this.#hooks.offer(pc.localDescription!.sdp, tracks);
    if (this.#closed) return;
    await pc.setRemoteDescription({ type: "answer", sdp: answer.sdp });
    const ids = new Map(answer.tracks.map(({ mid, id }) => [mid, id]));
    for (const line of offered) {
      if (!line.active) continue;
      line.id = ids.get(line.mid!) ?? null;
      void line.update();
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
