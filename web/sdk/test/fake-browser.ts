import { vi } from "vitest";

type Direction = "sendrecv" | "sendonly" | "recvonly" | "inactive";
interface Description {
  type: "offer" | "answer";
  sdp: string;
}

/** As much of an encoding's parameters as the SDK uses. */
export interface FakeEncoding {
  rid?: string;
  active?: boolean;
  scaleResolutionDownBy?: number;
  maxBitrate?: number;
}

/** As much of a transceiver as the SDK uses. */
export class FakeTransceiver {
  mid: string | null = null;
  currentDirection: Direction | null = null;
  stopped = false;
  readonly receiver;
  readonly sender;
  sent: unknown = null;
  /** What of it is encoded. */
  encodings: FakeEncoding[];
  /** How often the encodings were changed, and whether the next change fails, or each. */
  changes = 0;
  failsNext = false;
  failsAlways = false;

  constructor(
    readonly kind: string,
    public direction: Direction,
    readonly fromRemote: boolean,
    owner: string,
    sent: unknown,
    sendEncodings: FakeEncoding[] = [{}],
  ) {
    this.sent = sent;
    this.encodings = sendEncodings.map((encoding) => ({ active: true, ...encoding }));
    // As in browsers: parameters count once, and only the last that were read.
    let read: object | null = null;
    this.receiver = {
      track: { id: owner, kind },
      getSynchronizationSources: () => (this.level === null ? [] : [{ audioLevel: this.level }]),
    };
    this.sender = {
      replaceTrack: async (track: unknown) => {
        this.sent = track;
      },
      setStreams: () => {},
      getParameters: () => {
        const parameters = { encodings: this.encodings.map((encoding) => ({ ...encoding })) };
        read = parameters;
        return parameters;
      },
      setParameters: async (parameters: { encodings: FakeEncoding[] }) => {
        if (read !== parameters) throw new Error("parameters are not those that were read last");
        read = null;
        await Promise.resolve();
        if (this.failsNext || this.failsAlways) {
          this.failsNext = false;
          throw new Error("the encoder refuses");
        }
        this.changes++;
        this.encodings = parameters.encodings;
      },
    };
  }
  /** Whether its encoder runs. */
  get active(): boolean {
    return this.encodings.some((encoding) => encoding.active);
  }
  /** The encodings that are sent, by their names. */
  get rids(): string {
    return this.encodings.map(({ rid, active }) => (active ? rid : "")).join("");
  }
  level: number | null = null;
  /** The codecs that are to be negotiated, best first. */
  preferred: string[] = [];
  setCodecPreferences(codecs: { mimeType: string }[]): void {
    this.preferred = codecs.map(({ mimeType }) => mimeType);
  }
  stop(): void {
    this.stopped = true;
  }
}

/**
 * As much of a peer connection as the SDK uses. Descriptions are real enough to be exchanged between two of them:
 * lines with mid, kind and direction; an offer that crosses one of ours is taken back (implicit rollback).
 */
export class FakePeerConnection {
  static all: FakePeerConnection[] = [];
  /** Answers take the first layer alone. */
  static refusesSimulcast = false;
  connectionState: RTCPeerConnectionState = "new";
  signalingState: RTCSignalingState = "stable";
  onconnectionstatechange: (() => void) | null = null;
  onicecandidate: ((event: { candidate: object | null }) => void) | null = null;
  localDescription: Description | null = null;
  remoteDescription: Description | null = null;
  restarts = 0;
  candidates: object[] = [];
  transceivers: FakeTransceiver[] = [];
  readonly #name: string;
  #lines: FakeTransceiver[] = [];

  constructor() {
    FakePeerConnection.all.push(this);
    this.#name = String(FakePeerConnection.all.length);
  }
  getTransceivers(): FakeTransceiver[] {
    return this.transceivers.filter((transceiver) => !transceiver.stopped);
  }
  addTransceiver(
    what: string | { kind: string },
    init: { direction: Direction; sendEncodings?: FakeEncoding[] },
  ) {
    const kind = typeof what === "string" ? what : what.kind;
    const sent = typeof what === "string" ? null : what;
    return this.#add(kind, init.direction, false, sent, init.sendEncodings);
  }
  async createOffer({ iceRestart }: { iceRestart?: boolean }): Promise<Description> {
    if (iceRestart) this.restarts++;
    return { type: "offer", sdp: "" };
  }
  async createAnswer(): Promise<Description> {
    return { type: "answer", sdp: "" };
  }
  async setLocalDescription({ type }: Description): Promise<void> {
    if (type === "offer") {
      for (const transceiver of this.getTransceivers())
        if (transceiver.mid === null) {
          transceiver.mid = String(this.#lines.length);
          this.#lines.push(transceiver);
        }
      this.signalingState = "have-local-offer";
    } else this.#settle(this.remoteDescription!);
    const direction = (line: FakeTransceiver) =>
      type === "answer" ? line.currentDirection! : line.direction;
    const sdp = this.#lines.map(
      (line) => `m=${line.kind} 9\r\na=mid:${line.mid}\r\na=${direction(line)}\r\n`,
    );
    this.localDescription = { type, sdp: `v=0\r\n${sdp.join("")}` };
  }
  async setRemoteDescription(description: Description): Promise<void> {
    this.remoteDescription = description;
    if (description.type === "answer") {
      this.#settle(description);
      return;
    }
    if (this.signalingState === "have-local-offer") this.#rollBack();
    this.signalingState = "have-remote-offer";
    for (const { mid, kind } of described(description.sdp)) {
      if (this.#lines.some((line) => line.mid === mid)) continue;
      const line = this.#add(kind, "recvonly", true, null);
      line.mid = mid;
      this.#lines.push(line);
    }
  }
  async addIceCandidate(candidate: object): Promise<void> {
    if (!this.remoteDescription) throw new Error("no remote description");
    this.candidates.push(candidate);
  }
  become(state: RTCPeerConnectionState) {
    this.connectionState = state;
    this.onconnectionstatechange?.();
  }
  async getStats() {
    return new Map();
  }
  close() {
    this.connectionState = "closed";
  }

  #add(
    kind: string,
    direction: Direction,
    fromRemote: boolean,
    sent: unknown,
    encodings?: FakeEncoding[],
  ): FakeTransceiver {
    const owner = `${this.#name}-${this.transceivers.length}`;
    const transceiver = new FakeTransceiver(kind, direction, fromRemote, owner, sent, encodings);
    this.transceivers.push(transceiver);
    return transceiver;
  }
  /** Both descriptions stand: each line flows where one side sends and the other receives. */
  #settle(remote: Description): void {
    const theirs = new Map(described(remote.sdp).map((line) => [line.mid, line.direction]));
    for (const line of this.#lines) {
      if (FakePeerConnection.refusesSimulcast) line.encodings = line.encodings.slice(0, 1);
      const there = theirs.get(line.mid!) ?? "sendrecv";
      const sends = line.direction.startsWith("send") && (there === "sendrecv" || there === "recvonly");
      const receives = /recv/.test(line.direction) && there.startsWith("send");
      line.currentDirection = sends
        ? receives
          ? "sendrecv"
          : "sendonly"
        : receives
          ? "recvonly"
          : "inactive";
    }
    this.signalingState = "stable";
    this.become("connected");
  }
  #rollBack(): void {
    for (const line of this.#lines) if (line.currentDirection === null) line.mid = null;
    this.#lines = this.#lines.filter((line) => line.mid !== null);
  }
}

function described(sdp: string): { mid: string; kind: string; direction: Direction }[] {
  const lines = [...sdp.matchAll(/m=(\w+) 9\r\na=mid:(\S+)\r\na=(\w+)\r\n/g)];
  return lines.map(([, kind, mid, direction]) => ({
    mid: mid!,
    kind: kind!,
    direction: direction as Direction,
  }));
}

/** Puts the browser's globals in place. */
export function installBrowser(): EventTarget {
  FakePeerConnection.all = [];
  FakePeerConnection.refusesSimulcast = false;
  const window = new EventTarget();
  const types = ["audio/opus", "audio/red", "video/VP8", "video/rtx"];
  const codecs = types.map((mimeType) => ({ mimeType }));
  vi.stubGlobal("window", window);
  vi.stubGlobal("RTCPeerConnection", FakePeerConnection);
  vi.stubGlobal("RTCRtpReceiver", { getCapabilities: () => ({ codecs }) });
  vi.stubGlobal("MediaStream", class {});
  return window;
}

/** A local track; without settings, of a camera that does not say its size. */
export function fakeTrack(kind: "audio" | "video", settings: MediaTrackSettings = {}): MediaStreamTrack {
  const track = Object.assign(new EventTarget(), {
    kind,
    enabled: true,
    contentHint: "",
    readyState: "live",
    stop: () => {
      track.readyState = "ended";
    },
    getSettings: () => settings,
  });
  return track as unknown as MediaStreamTrack;
}
