// LiveKit beside ours. Its binary is `livekit-server` on the PATH, or what $LIVEKIT_SERVER names.

import { atPeer, versionOf } from "./peer.mjs";

const BINARY = process.env.LIVEKIT_SERVER ?? "livekit-server";
const PORT = 7980;
export const INSTALL = "put livekit-server (github.com/livekit/livekit/releases) on the PATH, or its path into LIVEKIT_SERVER";

// Its own ports, on the loopback alone.
const SETTINGS = `port: ${PORT}
bind_addresses: ["127.0.0.1"]
keys: { devkey: secret }
logging: { level: warn }
rtc:
  udp_port: 7982
  tcp_port: 7981
  node_ip: 127.0.0.1
  use_external_ip: false
  enable_loopback_candidate: true
  stun_servers: []
`;

/** Its version; null where there is none. */
export const version = () => versionOf(BINARY);

/** Calls `run` with a scenario's target, a LiveKit of its own on CPU 0. */
export const atLiveKit = (run) =>
  atPeer(
    {
      name: "LiveKit",
      binary: BINARY,
      settings: SETTINGS,
      line: (file) => ["--config", file],
      port: PORT,
      target: `target: { adapter: livekit, url: "ws://127.0.0.1:${PORT}" }`,
    },
    run,
  );
