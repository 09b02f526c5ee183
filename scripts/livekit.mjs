// LiveKit beside ours: started for a run in a network namespace of its own, and ended after it. Its binary is
// `livekit-server` on the PATH, or what $LIVEKIT_SERVER names.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { listens, until } from "./evidence.mjs";

const BINARY = process.env.LIVEKIT_SERVER ?? "livekit-server";
const PORT = 7980;
export const INSTALL = "put livekit-server (github.com/livekit/livekit/releases) on the PATH, or its path into LIVEKIT_SERVER";

/** Its version; null where there is none. */
export function version() {
  const { status, stdout } = spawnSync(BINARY, ["--version"], { encoding: "utf8" });
  return status === 0 ? stdout.trim().split(/\s+/).at(-1) : null;
}

// Its own ports, on the loopback alone.
const CONFIG = `port: ${PORT}
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

/** Calls `run` with a scenario's target, a LiveKit of its own on CPU 0. */
export async function atLiveKit(run) {
  const dir = mkdtempSync(join(tmpdir(), "moim-livekit-"));
  const file = join(dir, "livekit.yaml");
  writeFileSync(file, CONFIG);
  const child = spawn("taskset", ["-c", "0", BINARY, "--config", file], { stdio: "ignore" });
  const ended = new Promise((done) => child.once("exit", done));
  // A polite end waits until everybody has left.
  const end = () => child.kill("SIGKILL");
  process.once("exit", end);
  try {
    await until("LiveKit", () => listens(PORT));
    return await run(`target: { adapter: livekit, url: "ws://127.0.0.1:${PORT}" }`);
  } finally {
    process.off("exit", end);
    end();
    await ended;
    rmSync(dir, { recursive: true });
  }
}
