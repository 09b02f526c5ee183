import { vi } from "vitest";

/** As much of a peer connection as the SDK uses: mids come with the offer, slots have one track each. */
export class FakePeerConnection {
  static all: FakePeerConnection[] = [];
  connectionState: RTCPeerConnectionState = "new";
  onconnectionstatechange: (() => void) | null = null;
  localDescription: { type: string; sdp: string } | null = null;
  remoteDescription: object | null = null;
  restarts = 0;
  transceivers: {
    mid: string | null;
    kind: string;
    direction: string;
    receiver: { track: { id: string; kind: string } };
    sender: { replaceTrack: () => Promise<void> };
    setCodecPreferences: () => void;
  }[] = [];

  constructor() {
    FakePeerConnection.all.push(this);
  }
  addTransceiver(what: string | { kind: string }, { direction }: { direction: string }) {
    const kind = typeof what === "string" ? what : what.kind;
    const track = { id: `${FakePeerConnection.all.length}-${this.transceivers.length}`, kind };
    const transceiver = {
      mid: null,
      kind,
      direction,
      receiver: { track },
      sender: { replaceTrack: async () => {} },
      setCodecPreferences: () => {},
    };
    this.transceivers.push(transceiver);
    return transceiver;
  }
  async createOffer({ iceRestart }: { iceRestart?: boolean }) {
    if (iceRestart) this.restarts++;
    return {
      type: "offer",
      sdp: this.transceivers.map(({ kind, direction }) => `${kind} ${direction}`).join(),
    };
  }
  async setLocalDescription(description: { type: string; sdp: string }) {
    this.transceivers.forEach((transceiver, index) => {
      transceiver.mid ??= String(index);
    });
    this.localDescription = description;
  }
  async setRemoteDescription(description: object) {
    this.remoteDescription = description;
    this.become("connected");
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
}

/** Puts the browser's globals in place. */
export function installBrowser(): EventTarget {
  FakePeerConnection.all = [];
  const window = new EventTarget();
  const codecs = [{ mimeType: "audio/opus" }, { mimeType: "video/VP8" }, { mimeType: "video/rtx" }];
  vi.stubGlobal("window", window);
  vi.stubGlobal("RTCPeerConnection", FakePeerConnection);
  vi.stubGlobal("RTCRtpReceiver", { getCapabilities: () => ({ codecs }) });
  return window;
}

/** A local track. */
export function fakeTrack(kind: "audio" | "video"): MediaStreamTrack {
  return { kind, enabled: true, stop: () => {} } as unknown as MediaStreamTrack;
}
