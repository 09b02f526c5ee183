// Situations that a load lab can be wrong about: what is done in each, and what must and must not be said of it.
//
// `says`: what may be named as the first bottleneck; `codes`: how the run may end; `person`: who must be named with it.
// `unexplained` is no right name, but no false one either. `never`: names that would accuse somebody who had no part in it.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { hogs, pinned } from "./breaking.mjs";
import { KINDS, SLOW, calibrate } from "./breaks.mjs";
import { load } from "./evidence.mjs";

/** All that a server can be at the end of. */
const SERVER = ["cpu", "thread", "stall", "cpu_quota", "network", "socket_buffer", "softirq", "memory", "fds", "signaling", "mixer_deadline"];
const SECONDS = 16;

/** A scenario; a call of four, if nothing else is said. */
function scenario({
  serve = "serve: { cpus: [0] }",
  rooms = "[{ people: { bot: 4 } }]",
  sockets = "",
  media = "{ audio: speech, video: 360p }",
  thresholds = "default",
  seconds = SECONDS,
  more = "",
} = {}) {
  const who = sockets ? `sockets: ${sockets}` : `rooms: ${rooms}\nmedia: ${media}`;
  return `name: situation
${serve}
duration: ${seconds}s
${who}
join: { per_second: 20 }
thresholds: ${thresholds}
${more}`;
}

const SOUND = { rooms: "[{ video: none, people: { bot: 6 } }]", media: "{ audio: speech, video: none }" };
const MIXED = { rooms: "[{ audio: mcu, video: none, people: { bot: 8 } }]", media: SOUND.media };
const target = (url) => `target: { url: "${url}" }`;

/** All is well, however odd it looks. */
const well = (name, run) => ({ name, run, says: ["none"], codes: [0], never: [...SERVER, "link", "generator"] });
/** Something is wrong that has a name. */
const wrong = (name, says, run, { codes = [99], person, allows = [] } = {}) => {
  const all = [...SERVER, "link", "generator"];
  return { name, run, says, codes, person, never: all.filter((one) => ![...says, ...allows].includes(one)) };
};
const plain = (options, more) => () => load(scenario(options), more);
/** Against a server of its own that is told `flags`, and something done to it meanwhile. */
const against = (flags, options, { meanwhile = () => {}, wrap = [], end } = {}) => async () => {
  const server = await pinned({ flags, wrap });
  const timers = meanwhile(server) ?? [];
  const run = await load(scenario({ ...options, serve: target(server.url) }));
  timers.forEach(clearTimeout);
  await server.stop(end);
  return run;
};
/** What `make evidence-bottleneck` breaks, in the middle of its magnitudes. */
const kind = (name, nth = 0) => async () => KINDS[name](0.5, (known ??= await calibrate()), { nth, flags: [] });
let known = null;

/** Stops a process from one moment to another, in seconds. */
const stands = (from, until) => ({ pid }) => [
  setTimeout(() => process.kill(pid, "SIGSTOP"), 1000 * from),
  setTimeout(() => process.kill(pid, "SIGCONT"), 1000 * until),
];
/** The same of what it runs: after eight seconds, for so many. */
const paused = (seconds) => ["sh", "-c", `(sleep 8; kill -STOP $$; sleep ${seconds}; kill -CONT $$) & exec "$@"`, "sh"];

/** Records go to a disk that has little room. */
const FULL = ["unshare", "-m", "sh", "-c", 'for runs; do :; done; mkdir -p "$runs"; mount -t tmpfs -o size=100k none "$runs"; exec "$@"', "sh"];

/** A scenario against an HTTP server that greets whoever looks whether it is there, and then does this with each upgrade. */
const upgraded = (upgrade, options) => async () => {
  const held = [];
  const server = createServer((_, to) => to.end("ok")).on("upgrade", (from, socket) => {
    const what = held.length === 0 ? greets : upgrade;
    held.push(socket.on("error", () => {}));
    what(socket, from.headers["sec-websocket-key"]);
  });
  await new Promise((done) => server.listen(7990, "127.0.0.1", done));
  const run = await load(scenario({ ...options, serve: target("http://127.0.0.1:7990") }));
  held.forEach((socket) => socket.destroy());
  server.closeAllConnections();
  server.close();
  return run;
};
/** Takes the upgrade and the handshake, and answers nothing else. */
const greets = (socket, key) => {
  // RFC 6455, section 4.2.2.
  const proof = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  const head = `Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${proof}`;
  socket.write(`HTTP/1.1 101 Switching Protocols\r\n${head}\r\n\r\n`);
  const answer = Buffer.from('{"rid":1,"data":{"id":"a","pingTimeout":20000,"isAuthenticated":false}}');
  socket.once("data", () => socket.write(Buffer.concat([Buffer.from([0x81, answer.length]), answer])));
};
const PINGS = { sockets: "[{ connections: 50, arrival_per_second: 50, rate_per_second: 2 }]", thresholds: "{}" };

/** Its clock began elsewhere. What runs it passes on no signal but this one. */
const ELSEWHERE = ["unshare", "-T", "--monotonic", "100000", "--boottime", "100000", "--fork", "--kill-child"];

/** In front of a server: hands everything on, but for the metrics, which it changes. */
async function liar(url, change) {
  const { hostname, port } = new URL(url);
  const upgraded = new Set();
  const proxy = createServer((from, to) => {
    const options = { hostname, port, path: from.url, method: from.method, headers: from.headers };
    const onward = request(options, (answer) => {
      if (from.url !== "/metrics") {
        to.writeHead(answer.statusCode, answer.headers);
        return answer.pipe(to);
      }
      let text = "";
      answer.on("data", (data) => (text += data));
      answer.on("end", () => to.writeHead(200, { "content-type": "text/plain" }).end(change(text)));
    });
    onward.on("error", () => to.writeHead(502).end());
    from.pipe(onward);
  });
  proxy.on("upgrade", (from, socket, head) => {
    const onward = connect(port, hostname, () => {
      const lines = Object.entries(from.headers).map(([key, value]) => `${key}: ${value}`);
      onward.write(`${from.method} ${from.url} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`);
      onward.write(head);
      socket.pipe(onward).pipe(socket);
    });
    upgraded.add(socket);
    for (const one of [socket, onward]) one.on("error", () => [socket, onward].forEach((end) => end.destroy()));
  });
  await new Promise((done) => proxy.listen(7990, "127.0.0.1", done));
  const reset = () => upgraded.forEach((socket) => socket.resetAndDestroy());
  return { url: "http://127.0.0.1:7990", reset, close: () => (proxy.closeAllConnections(), proxy.close()) };
}

/** Against a server behind a proxy that resets all sockets after so many seconds, once. */
const reset = (seconds, options) => async () => {
  const server = await pinned({ flags: [] });
  const proxy = await liar(server.url, (text) => text);
  const timer = setTimeout(proxy.reset, 1000 * seconds);
  const run = await load(scenario({ ...options, serve: target(proxy.url) }));
  clearTimeout(timer);
  proxy.close();
  await server.stop();
  return run;
};

/** Against a server whose metrics are changed. */
const lying = (change, flags = [], options = {}) => async () => {
  const server = await pinned({ flags });
  const proxy = await liar(server.url, change);
  const run = await load(scenario({ ...options, serve: target(proxy.url) }));
  proxy.close();
  await server.stop();
  return run;
};

const onLink = (network, options = {}) => plain({ more: `networks: [{ name: slow, share_pct: 25, ${network} }]\n`, ...options });
const LOSSY = '{ loss_pct: ["max < 1"] }';

export const SITUATIONS = [
  well("a call of four", plain()),
  well("people who speak a hundredth of the time", plain({ ...SOUND, rooms: "[{ video: none, people: { bot: 8 }, roles: [{ name: quiet, speaks_pct: 1 }] }]" })),
  well("two of twenty send pictures", plain({ rooms: "[{ people: { bot: 20 }, senders: 2 }]" })),
  well("most only listen", plain({ ...SOUND, rooms: "[{ video: none, people: { bot: 10 }, roles: [{ name: host }, { name: guest, weight: 4, audio: false }] }]" })),
  well("people come and go", plain({ ...SOUND, rooms: "[{ video: none, churn: { stay: 4s }, people: { bot: 10 } }]" })),
  well("half of them leave at once", plain({ more: "events: [{ at: 8s, do: leave, count: 2 }]\n" })),
  well("a mixed room", plain(MIXED)),
  well("a mesh of three", plain({ rooms: "[{ audio: mesh, video: mesh, people: { bot: 3 } }]" })),
  well("everybody by TCP", plain({ media: "{ audio: speech, video: 360p, transport: tcp }" })),
  well("everybody is far away", plain({ more: "networks: [{ name: far, delay: 80ms }]\n" })),
  well("a little loss that may be", plain({ thresholds: '{ loss_pct: ["user_p95 < 3"] }', more: "networks: [{ name: air, loss_pct: 0.5 }]\n" })),
  // RED and retransmissions bring it all: nobody lacks anything.
  well("a participant loses what they send, and it is sent again", onLink("way: up, loss_pct: 10", { thresholds: LOSSY })),
  well("a neighbour who gives way on the server's CPU", async () => {
    const loop = spawn("taskset", ["-c", "0", "nice", "-n", "19", "timeout", "60", "sh", "-c", "while :; do :; done"]);
    const run = await load(scenario());
    loop.kill();
    return run;
  }),
  well("a quota that is wide enough", plain({ serve: "serve: { cpus: [0], quota_cores: 0.8 }" })),
  well("sockets that only stay", plain({ sockets: "[{ connections: 200, arrival_per_second: 100, rate_per_second: 0 }]" })),
  well("one person alone", plain({ rooms: "[{ people: { bot: 1 } }]" })),
  well("a server whose clock is elsewhere", against([], {}, { wrap: ELSEWHERE, end: "SIGKILL" })),
  well("a server that calls itself overloaded", lying((text) => text.replace(/^(moim_signaling_ticks_missed_total|moim_dropped_total\S*) \d+/gm, `$1 ${Math.round(Date.now() / 10) % 1e9}`))),
  well("a server without metrics", lying(() => "")),
  well("a picture that is paused by announcement", onLink("way: down, changes: [{ at: 6s, rate_kbps: 150 }, { at: 11s }]", { rooms: "[{ people: { bot: 2 } }]", thresholds: "{}" })),
  well("a lab that is late once", plain({}, { wrap: paused(0.1) })),
  well("two labs on one machine", async () => (await Promise.all([load(scenario()), load(scenario())]))[0]),
  well("browsers alone who come and go", plain({ seconds: 30, rooms: "[{ people: { chromium: 2 }, churn: { stay: 8s } }]", thresholds: "{}" })),
  well("sockets at a name with two addresses", async () => {
    const server = await pinned({ flags: [] });
    const run = await load(scenario({ ...PINGS, serve: target(server.url.replace("127.0.0.1", "localhost")) }));
    await server.stop();
    return run;
  }),
  well("two media threads on one CPU", plain({ serve: "serve: { cpus: [0], shards: 2 }", rooms: "[{ count: 4, video: none, people: { bot: 4 } }]", media: SOUND.media })),

  wrong("a CPU quota", ["cpu_quota"], kind("quota")),
  wrong("a media thread that has too much to do", ["thread"], kind("thread")),
  wrong("more than a CPU can mix", ["cpu"], kind("cpu")),
  wrong("a neighbour who takes the server's CPU", ["cpu"], async () => {
    const end = hogs(4, "0");
    const run = await load(scenario({ ...SOUND, rooms: "[{ count: 8, video: none, people: { bot: 6 } }]" }));
    end();
    return run;
  }),
  wrong("a small link of the server", ["network"], kind("link")),
  wrong("small receive buffers", ["socket_buffer"], kind("buffer")),
  wrong("few open files", ["fds"], kind("fds")),
  wrong("signaling that stalls", ["signaling"], kind("signaling")),
  wrong("a mixer that is late", ["mixer_deadline"], against(["--fault", "mixer_backlog=1s"], MIXED)),
  wrong("others on the generator's CPU", ["generator"], kind("generator", 1), { codes: [110] }),
  wrong("a quota for the generator", ["generator"], kind("generator", 0), { codes: [110] }),
  wrong("a busy thread of the lab", ["generator"], plain({ ...SOUND, thresholds: '{ join_to_first_audio_ms: ["p50 < 100"] }' }, { flags: ["--fault", "busy_thread=lab"] }), { codes: [110] }),
  wrong("a busy thread of bots", ["generator"], plain({ ...SOUND, thresholds: '{ join_to_first_audio_ms: ["p50 < 100"] }' }, { flags: ["--fault", "busy_thread=bots"] }), { codes: [110] }),
  wrong("a lab that stands still", ["generator"], plain({}, { wrap: paused(3) }), { codes: [110] }),
  wrong("a server that stands still", ["signaling"], against([], {}, { meanwhile: stands(8, 11) }), { allows: ["mixer_deadline", "socket_buffer"] }),
  wrong("a participant loses what comes", ["link"], onLink("way: down, loss_pct: 10", { thresholds: LOSSY }), { person: SLOW }),
  wrong("a participant's slow downlink", ["link"], kind("downlink"), { person: SLOW }),
  wrong("a participant is cut off for five seconds", ["link"], onLink("changes: [{ at: 7s, loss_pct: 100 }, { at: 12s }]", { thresholds: LOSSY }), { person: SLOW }),
  wrong("all are too far away to talk", ["link"], plain({ ...MIXED, more: "networks: [{ name: moon, delay: 500ms }]\n" })),
  wrong("a house whose line is full", ["link"], plain({ thresholds: '{ paused_ratio: ["max < 0.2"] }', more: "networks: [{ name: house, shared: true, share_pct: 50, way: down, rate_kbps: 700, queue: 300ms }]\n" })),
  wrong("a participant freezes their picture", [], plain({ more: "events: [{ at: 7s, bot: 2, do: stop_video }]\n" })),
  wrong("a participant falls silent", [], plain({ more: "events: [{ at: 7s, bot: 2, do: stop_audio }]\n" })),
  wrong("a media thread that stalls once", ["stall"], against(["--fault", "stall=media/3s"], {}), { allows: ["socket_buffer", "signaling"] }),
  wrong("a mixer that stalls once", ["stall"], against(["--fault", "stall=mix/5s"], MIXED)),
  wrong("a media thread that ends", [], against(["--fault", "panic=media"], {}), { codes: [99, 111], allows: ["signaling", "socket_buffer"] }),
  wrong("a server that is killed", [], plain({ more: "events: [{ at: 9s, do: kill_server }]\n" })),
  wrong("sockets under a quota", ["cpu_quota"], plain({ serve: "serve: { cpus: [0], quota_cores: 0.1 }", sockets: "[{ connections: 100, arrival_per_second: 100, rate_per_second: 1500 }]" })),
  wrong("a server that stands still, and no threshold", ["signaling"], against([], { thresholds: "{}" }, { meanwhile: stands(7, 12) }), { allows: ["mixer_deadline", "socket_buffer"] }),
  wrong("five seconds of total loss, and no threshold", ["link"], onLink("changes: [{ at: 7s, loss_pct: 100 }, { at: 12s }]", { thresholds: "{}" }), { person: SLOW }),
  wrong("a server that stands still under sockets", ["signaling", "stall"], against([], { ...PINGS, thresholds: "default" }, { meanwhile: stands(6, 9) })),
  wrong("all upgrades are refused", [], upgraded((socket) => socket.end("HTTP/1.1 404 Not Found\r\n\r\n"), PINGS)),
  wrong("a server that takes sockets and never answers", [], upgraded(() => {}, PINGS)),
  wrong("a server that never answers a ping", [], upgraded(greets, PINGS)),
  wrong("a proxy that resets all sockets", [], reset(9, PINGS)),
  wrong("a disk that is full", [], plain({}, { wrap: FULL }), { codes: [114] }),
  wrong("nobody listens there", [], () => load(scenario({ serve: target("http://127.0.0.1:7999") })), { codes: [111] }),
];
