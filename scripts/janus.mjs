// Debian's Janus beside ours: started for a run in a network namespace of its own, with its plugins VideoRoom and
// AudioBridge, its WebSocket and nothing else, and ended after it.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { listens } from "./evidence.mjs";

// Janus gathers no candidate of a loopback: its namespace has this address too, of a pair of links with nobody behind.
const ADDRESS = "10.77.0.1";
const PORT = 8188;
export const INSTALL = "apt-get install -y --no-install-recommends janus";

/** Its version, as Debian names it; null where it is not installed. */
export function version() {
  try {
    const line = ["-W", "-f", "${Version}", "janus"];
    return execFileSync("dpkg-query", line, { stdio: "pipe" }).toString();
  } catch {
    return null;
  }
}

const ip = (line) => execFileSync("ip", line.split(" ")).toString();

/** Gives the namespace the address that Janus needs, once. */
function address() {
  if (ip("-o addr").includes(ADDRESS)) return;
  const links = ip("-o link").trim().split("\n");
  if (links.some((line) => !/^\d+: lo:/.test(line)))
    throw new Error("Janus runs in a network namespace of its own alone");
  ip("link add moim0 type veth peer name moim1");
  ip(`addr add ${ADDRESS}/24 dev moim0`);
  ip("link set moim0 up");
  ip("link set moim1 up");
}

const config = (dir) => ({
  "janus.jcfg": `general: {
  configs_folder = "${dir}"
  debug_level = 3
  debug_colors = false
  session_timeout = 60
}
media: { rtp_port_range = "20000-40000" }
nat: { ice_enforce_list = "${ADDRESS}", ice_lite = false, full_trickle = false }
plugins: { disable = "libjanus_echotest.so,libjanus_nosip.so,libjanus_recordplay.so,libjanus_sip.so,libjanus_streaming.so,libjanus_textroom.so,libjanus_videocall.so,libjanus_voicemail.so,libjanus_duktape.so,libjanus_lua.so" }
transports: { disable = "libjanus_http.so,libjanus_pfunix.so,libjanus_rabbitmq.so,libjanus_mqtt.so,libjanus_nanomsg.so" }
loggers: { }
events: { broadcast = false }
`,
  "janus.transport.websockets.jcfg": `general: { json = "compact", ws = true, ws_port = ${PORT}, wss = false }
admin: { admin_ws = false, admin_wss = false }
`,
  "janus.plugin.videoroom.jcfg": "general: { }\n",
  "janus.plugin.audiobridge.jcfg": "general: { }\n",
});

/** Starts Janus on a CPU; where it answers, its version, what it has said, and how to end it. */
export async function janus(cpu) {
  address();
  const dir = mkdtempSync(join(tmpdir(), "moim-janus-"));
  for (const [name, text] of Object.entries(config(dir)))
    writeFileSync(join(dir, name), text);
  const child = spawn("taskset", ["-c", cpu, "janus", "-F", dir].map(String), {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let log = "";
  const keep = (data) => (log = (log + data).slice(-200_000));
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  const ended = new Promise((done) => child.once("exit", done));
  const end = () => child.kill();
  process.once("exit", end);
  for (let tries = 0; !(await listens(PORT, ADDRESS)); tries++) {
    if (child.exitCode !== null || tries > 100)
      throw new Error(`Janus does not answer:\n${log.slice(-2000)}`);
    await new Promise((done) => setTimeout(done, 100));
  }
  return {
    url: `ws://${ADDRESS}:${PORT}`,
    log: () => log,
    stop: async () => {
      process.off("exit", end);
      child.kill();
      await ended;
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** Calls `run` with a scenario's target, a Janus of its own on CPU 0. */
export async function atJanus(run) {
  const peer = await janus(0);
  try {
    return await run(`target: { adapter: janus, url: "${peer.url}" }`);
  } finally {
    await peer.stop();
  }
}
