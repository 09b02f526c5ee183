// MediaMTX beside ours, by WHIP and WHEP. Its binary is `mediamtx` on the PATH, or what $MEDIAMTX names.

import { atPeer, versionOf } from "./peer.mjs";

const BINARY = process.env.MEDIAMTX ?? "mediamtx";
const PORT = 7990;
export const INSTALL = "put mediamtx (github.com/bluenviron/mediamtx/releases) on the PATH, or its path into MEDIAMTX";

// WebRTC on the loopback alone; each stream has the path that its sender names.
const SETTINGS = `logLevel: warn
rtsp: no
rtmp: no
hls: no
srt: no
moq: no
webrtcAddress: 127.0.0.1:${PORT}
webrtcLocalUDPAddress: 127.0.0.1:7992
webrtcIPsFromInterfaces: no
webrtcAdditionalHosts: [127.0.0.1]
paths:
  all_others:
`;

/** Its version; null where there is none. */
export const version = () => versionOf(BINARY);

/** Calls `run` with a scenario's target, a MediaMTX of its own on CPU 0. */
export const atMediaMTX = (run) =>
  atPeer(
    {
      name: "MediaMTX",
      binary: BINARY,
      settings: SETTINGS,
      line: (file) => [file],
      port: PORT,
      target: `target: { adapter: whip, url: "http://127.0.0.1:${PORT}" }`,
    },
    run,
  );
