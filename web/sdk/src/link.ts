import { limitCodecs } from "./codecs.ts";
import { linesOf } from "./sdp.ts";
import type { AnsweredTrack, IceServer, MediaKind, VideoCodec } from "./wire.ts";

/** What is sent to every other member: a track that has an id in the room. */
export interface Outgoing {
  track: MediaStreamTrack;
  id: string;
}

/** A line of one connection that carries a track of the other member. */
export interface LinkLine {
  mid: string;
  /** The track's id in the room. */
  id: string;
  kind: MediaKind;
  mediaTrack: MediaStreamTrack;
}

/** What a link needs from its owner. */
export interface LinkHooks {
  /** What is sent, by kind. */
  outgoing(kind: MediaKind): Outgoing | null;
  offer(sdp: string, tracks: AnsweredTrack[]): void;
  answer(sdp: string, tracks: AnsweredTrack[]): void;
  candidate(candidate: string, mid: string | undefined): void;
  /** All that the other side sends now. */
  received(lines: LinkLine[]): void;
  /** A description was applied: {@link Link.sent} may be new. */
  negotiated(): void;
  connection(): void;
  failed(error: unknown): void;
}

const DISCONNECTED_MS = 2_000;
const RESTART_AGAIN_MS = 5_000;
const RESEND_MS = 5_000;

/**
 * The connection with one other member of a mesh, after the pattern of perfect negotiation (W3C webrtc-pc, 10.7):
 * either side may offer; where two offers cross, the one who joined later (`polite`) takes theirs back.
 */
export class Link {
  readonly #pc: RTCPeerConnection;
  readonly #kinds: readonly MediaKind[];
  readonly #codec: VideoCodec;
  readonly #polite: boolean;
  readonly #hooks: LinkHooks;
  readonly #stream: MediaStream;
  /** The line on which each kind is sent. */
  readonly #lines = new Map<MediaKind, RTCRtpTransceiver>();
  /** Which line carries which track of the other side. */
  #remote = new Map<string, string>();
  /** Candidates of ours that must not overtake the first description. */
  #early: [string, string | undefined][] | null = [];
  /** Candidates of the other side that came before its first description. */
  #waiting: RTCIceCandidateInit[] = [];
  #work: Promise<void> = Promise.resolve();
  #wanted = false;
  #restart = false;
  #everConnected = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #resend: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  /** @param stream groups what is sent, so that sound and picture of one person stay together */
  constructor(
    iceServers: IceServer[],
    kinds: readonly MediaKind[],
    codec: VideoCodec,
    polite: boolean,
    stream: MediaStream,
    hooks: LinkHooks,
  ) {
    this.#kinds = kinds;
    this.#codec = codec;
    this.#polite = polite;
    this.#stream = stream;
    this.#hooks = hooks;
    this.#pc = new RTCPeerConnection({ iceServers, bundlePolicy: "max-bundle", rtcpMuxPolicy: "require" });
    this.#pc.onconnectionstatechange = () => this.#connectionChanged();
    this.#pc.onicecandidate = ({ candidate }) => {
      const told: [string, string | undefined] = [candidate?.candidate ?? "", candidate?.sdpMid ?? undefined];
      if (this.#early) this.#early.push(told);
      else this.#hooks.candidate(...told);
    };
  }

  get connectionState(): RTCPeerConnectionState {
    return this.#pc.connectionState;
  }

  /** Whether this side made the connection, or has had it: then its loss is ours to mend. */
  get matters(): boolean {
    return this.#polite || this.#everConnected;
  }

  getStats(): Promise<RTCStatsReport> {
    return this.#pc.getStats();
  }

  /** Offers what is sent by now, at once or after what is in work. */
  negotiate(): void {
    this.#wanted = true;
    this.#do(() => this.#offer());
  }

  /** An offer came; where it crosses one of ours, the polite side's is taken back. */
  offered(sdp: string, tracks: AnsweredTrack[]): void {
    this.#do(async () => {
      const crossed = this.#pc.signalingState !== "stable";
      if (crossed && !this.#polite) return;
      await this.#pc.setRemoteDescription({ type: "offer", sdp });
      if (crossed) this.#wanted = true;
      this.#takeOffered(sdp);
      await this.#pc.setLocalDescription(await this.#pc.createAnswer());
      this.#hooks.answer(this.#pc.localDescription!.sdp, this.sent());
      this.#described(tracks);
      await this.#flush();
      await this.#offer();
    });
  }

  /** The answer to our offer came. */
  answered(sdp: string, tracks: AnsweredTrack[]): void {
    this.#do(async () => {
      if (this.#pc.signalingState !== "have-local-offer") return;
      await this.#pc.setRemoteDescription({ type: "answer", sdp });
      this.#described(tracks);
      await this.#flush();
      await this.#offer();
    });
  }

  /** A candidate of the other side came. */
  candidate(candidate: string, mid: string | undefined): void {
    if (candidate === "") return; // browsers need no end of candidates
    this.#do(async () => {
      this.#waiting.push({ candidate, sdpMid: mid ?? "0" });
      await this.#flush();
    });
  }

  /** The socket is back: an offer without an answer is told again. */
  retry(): void {
    if (!this.#closed && this.#pc.signalingState === "have-local-offer")
      this.#hooks.offer(this.#pc.localDescription!.sdp, this.sent());
  }

  /** Sends other media as the same track, without an offer. */
  async replace(kind: MediaKind, track: MediaStreamTrack | null): Promise<void> {
    await this.#lines.get(kind)?.sender.replaceTrack(track);
  }

  /** Which line sends which track. */
  sent(): AnsweredTrack[] {
    return [...this.#lines].flatMap(([kind, { mid, direction }]) => {
      const outgoing = this.#hooks.outgoing(kind);
      return outgoing && mid !== null && direction.startsWith("send") ? [{ mid, id: outgoing.id }] : [];
    });
  }

  /** Loudness of each track that comes in, 0 to 1, from what was played last. */
  levels(): { id: string; level: number }[] {
    return this.#pc.getTransceivers().flatMap(({ mid, receiver }) => {
      const id = mid === null ? undefined : this.#remote.get(mid);
      const level = receiver.getSynchronizationSources()[0]?.audioLevel;
      return id !== undefined && level !== undefined ? [{ id, level }] : [];
    });
  }

  /** Looks for a new path, by an offer with new ICE credentials. */
  restartIce(): void {
    if (this.#closed || this.#pc.remoteDescription === null) return;
    this.#restart = true;
    this.#later(RESTART_AGAIN_MS, () => this.#pc.connectionState !== "connected");
    this.negotiate();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#resend);
    this.#pc.onconnectionstatechange = null;
    this.#pc.onicecandidate = null;
    this.#pc.close();
  }

  /** One thing after the other; a failure ends that one alone. */
  #do(act: () => Promise<void>): void {
    this.#work = this.#work.then(async () => {
      if (this.#closed) return;
      try {
        await act();
      } catch (error) {
        if (!this.#closed) this.#hooks.failed(error);
      }
    });
  }

  async #offer(): Promise<void> {
    if (!this.#wanted || this.#pc.signalingState !== "stable") return;
    this.#wanted = false;
    const iceRestart = this.#restart;
    this.#restart = false;
    for (const kind of this.#kinds) {
      const outgoing = this.#hooks.outgoing(kind);
      const direction = outgoing ? "sendrecv" : "recvonly";
      const line = this.#lines.get(kind);
      if (line) {
        if (outgoing) await this.#sendOn(line, outgoing);
        continue;
      }
      const streams = [this.#stream];
      const fresh = this.#pc.addTransceiver(outgoing?.track ?? kind, { direction, streams });
      limitCodecs(fresh, kind, this.#codec);
      this.#lines.set(kind, fresh);
    }
    await this.#pc.setLocalDescription(await this.#pc.createOffer({ iceRestart }));
    this.#hooks.offer(this.#pc.localDescription!.sdp, this.sent());
    this.#tellEarly();
    this.#awaitAnswer();
  }

  /** An offer whose answer was lost with a socket is told again, until it is answered. */
  #awaitAnswer(): void {
    clearTimeout(this.#resend);
    this.#resend = setTimeout(() => {
      if (this.#closed || this.#pc.signalingState !== "have-local-offer") return;
      this.retry();
      this.#awaitAnswer();
    }, RESEND_MS);
  }

  async #sendOn(line: RTCRtpTransceiver, { track }: Outgoing): Promise<void> {
    line.direction = line.direction === "inactive" || line.direction === "sendonly" ? "sendonly" : "sendrecv";
    line.sender.setStreams(this.#stream);
    await line.sender.replaceTrack(track);
  }

  /** Chooses for each kind a line on which the other side listens; without one, an offer of ours follows. */
  #takeOffered(sdp: string): void {
    const offered = new Map(linesOf(sdp).map((line) => [line.mid, line]));
    const all = this.#pc.getTransceivers().filter(({ mid }) => mid !== null && offered.has(mid));
    const kindOf = (transceiver: RTCRtpTransceiver) => transceiver.receiver.track.kind as MediaKind;
    for (const transceiver of all) {
      if (transceiver.currentDirection === null) limitCodecs(transceiver, kindOf(transceiver), this.#codec);
    }
    for (const kind of this.#kinds) {
      const listens = (transceiver: RTCRtpTransceiver | undefined) =>
        transceiver?.mid != null && offered.get(transceiver.mid)?.receives === true;
      if (!listens(this.#lines.get(kind))) {
        const line = all.find((transceiver) => kindOf(transceiver) === kind && listens(transceiver));
        const old = this.#lines.get(kind);
        if (line) {
          // A line of an offer that was taken back would be offered again beside this one.
          if (old?.mid === null) old.stop();
          this.#lines.set(kind, line);
        } else if (this.#hooks.outgoing(kind)) this.#wanted = true;
      }
    }
    for (const transceiver of all) {
      const { sends } = offered.get(transceiver.mid!)!;
      const kind = kindOf(transceiver);
      const outgoing = this.#lines.get(kind) === transceiver ? this.#hooks.outgoing(kind) : null;
      transceiver.direction = outgoing ? (sends ? "sendrecv" : "sendonly") : sends ? "recvonly" : "inactive";
      if (!outgoing) continue;
      transceiver.sender.setStreams(this.#stream);
      // Not awaited: it settles at once where nothing is negotiated yet, and must not hold up the answer.
      transceiver.sender.replaceTrack(outgoing.track).catch((error: unknown) => this.#hooks.failed(error));
    }
  }

  /** Both descriptions stand: tells what comes in and goes out. */
  #described(tracks: AnsweredTrack[]): void {
    clearTimeout(this.#resend);
    this.#tellEarly();
    this.#remote = new Map(tracks.map(({ mid, id }) => [mid, id]));
    this.#hooks.received(
      this.#pc.getTransceivers().flatMap(({ mid, receiver }) => {
        const id = mid === null ? undefined : this.#remote.get(mid);
        if (mid === null || id === undefined) return [];
        return [{ mid, id, kind: receiver.track.kind as MediaKind, mediaTrack: receiver.track }];
      }),
    );
    this.#hooks.negotiated();
  }

  #tellEarly(): void {
    const early = this.#early ?? [];
    this.#early = null;
    for (const told of early) this.#hooks.candidate(...told);
  }

  async #flush(): Promise<void> {
    if (this.#pc.remoteDescription === null) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const candidate of waiting) {
      try {
        await this.#pc.addIceCandidate(candidate);
      } catch (error) {
        // Of an offer that was taken back, or of a network that this browser does not know: others remain.
        console.warn("candidate left out", error);
      }
    }
  }

  #connectionChanged(): void {
    if (this.#closed) return;
    const state = this.#pc.connectionState;
    // The other side waits a little longer, so that two restarts seldom cross.
    const patience = this.#polite ? 0 : DISCONNECTED_MS;
    if (state === "connected") {
      clearTimeout(this.#timer);
      this.#everConnected = true;
    } else if (state === "failed") {
      this.#later(patience, () => this.#pc.connectionState === "failed");
    } else if (state === "disconnected") {
      this.#later(DISCONNECTED_MS + patience, () => this.#pc.connectionState === "disconnected");
    }
    this.#hooks.connection();
  }

  #later(delayMs: number, still: () => boolean): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (!this.#closed && still()) this.restartIce();
    }, delayMs);
  }
}
