// What the browser tests share: a server of their own, Chromium, and getStats read from outside
// the page's own code.

import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual, promisify } from "node:util";
import { chromium } from "playwright-core";

export const BINARY = process.env.MOIM_BIN ?? new URL("../../target/release/moim", import.meta.url).pathname;
const CHROMIUM = execFileSync("which", ["chromium"], { encoding: "utf8" }).trim();

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--use-fake-ui-for-media-stream",
  "--use-fake-device-for-media-stream",
  "--autoplay-policy=no-user-gesture-required",
];

/** So long is waited for what must come, however slow the machine is. How soon it must come, a test judges by itself. */
export const PATIENCE_S = 60;
/** Chromium answers getStats from memory for 50 ms. */
const STATS_KEPT_MS = 60;

/** Metrics that tell why media does not flow, and whether it did. */
const TELLS = /^moim_\w*(drop|late|stalled|short|wait|keyframe|paused|refused|lost|media_packets_)\w*[ {]/;

/** Polls until `probe` gives something; the error tells what was waited for. */
export async function until(what, probe, seconds = PATIENCE_S) {
  const end = Date.now() + seconds * 1000;
  let last;
  while (Date.now() < end) {
    try {
      last = await probe();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`waited ${seconds} s for ${what}; last: ${last?.stack ?? JSON.stringify(last)}`);
}

/** Waits until two readings some time apart are alike, and gives the later: what was under way before has come. */
export async function still(what, read, ms = 500) {
  let last = Symbol("no reading yet");
  await until(`${what} to stand still`, async () => {
    const before = last;
    last = await read();
    if (isDeepStrictEqual(last, before)) return true;
    await new Promise((done) => setTimeout(done, ms));
    return false;
  });
  return last;
}

/** A temporary directory that is gone after the tests of this file: until then, what a test started may still write to it. */
export function scratch() {
  const dir = mkdtempSync(join(tmpdir(), "moim-e2e-"));
  scratches.push(dir);
  return dir;
}

const scratches = [];
process.once("exit", () => {
  for (const dir of scratches) rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
});

/** Starts `moim serve` (development mode, or with the settings given) and waits for it. */
export async function serve(t, { config, url = "http://127.0.0.1:7880", prefix = [] } = {}) {
  // The same tests hold over several shards.
  const args = ["serve", "--shards", process.env.MOIM_SHARDS ?? "1", "--keep-together", "1"];
  if (config) {
    const file = join(scratch(), "moim.yaml");
    writeFileSync(file, config, { mode: 0o600 });
    args.push("--config", file);
  }
  const [command, ...rest] = [...prefix, BINARY, ...args];
  const child = spawn(command, rest, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.on("data", (data) => (log += data));
  const ended = new Promise((done) => child.once("exit", done));
  t.after(async () => {
    if (!t.passed) for (const line of await noted(url)) console.log(`# ${line}`);
    child.kill("SIGINT");
    await ended;
    // Of tests that pass, too: if one fails, its reason may be here.
    for (const line of log.split("\n")) if (/ (WARN|ERROR) |panicked at/.test(line)) console.log(`# ${line}`);
  });
  await until("the server", () => {
    if (child.exitCode !== null) throw new Error(`the server ended: ${log}`);
    return get(`${url}/healthz`);
  });
  return { url, child, log: () => log };
}

/** What settings of a test name, so that a failure is told with what the server counted. */
export const ADMIN = "whoever-runs-the-browser-tests-0123";

/** By curl, because the certificate of a test is its own. */
const get = async (url) => {
  const asks = ["-skf", "-m", "10", "-H", `Authorization: Bearer ${ADMIN}`, url];
  return (await promisify(execFile)("curl", asks)).stdout;
};

/** What the server counted of what went wrong: a test that failed may have its reason here. */
async function noted(url) {
  try {
    const lines = (await get(`${url}/metrics`)).split("\n");
    return lines.filter((line) => TELLS.test(line) && !line.endsWith(" 0"));
  } catch (error) {
    return [`the server tells no metrics: ${error.message}`];
  }
}

/** A counter of the server, summed over its labels. */
export async function counter(url, name) {
  const text = await get(`${url}/metrics`);
  const lines = text.split("\n").filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  if (lines.length === 0) throw new Error(`the server has no metric ${name}`);
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

/** Launches Chromium; `loopback` lets it use `lo` for media, and `prefix` runs it elsewhere (see `inside` of scripts/link.mjs). */
export async function browser(t, { loopback = true, args = [], prefix = [] } = {}) {
  const flags = [...FLAGS, ...args];
  if (loopback) flags.push("--allow-loopback-in-peer-connection");
  const timeout = 1000 * PATIENCE_S;
  const launched = await chromium.launch({ executablePath: prefixed(prefix), args: flags, timeout });
  launched.on("context", (context) => context.setDefaultTimeout(timeout));
  t.after(() => launched.close());
  return launched;
}

/** A file that runs Chromium after `prefix`. */
function prefixed(prefix) {
  if (prefix.length === 0) return CHROMIUM;
  const file = join(scratch(), "chromium");
  writeFileSync(file, `#!/bin/sh\nexec ${prefix.join(" ")} ${CHROMIUM} "$@"\n`, { mode: 0o755 });
  return file;
}

/** In a page, before its own code: keeps every RTCPeerConnection in `window.peers`. */
export function keepPeers() {
  const Original = window.RTCPeerConnection;
  window.peers = [];
  window.RTCPeerConnection = class extends Original {
    constructor(...rest) {
      super(...rest);
      window.peers.push(this);
    }
  };
}

/** In a page, before its own code: `window.joinAskedMs` is when the page first asked to join a room, and "joinasked" tells of it. */
export function markJoin() {
  const { send } = WebSocket.prototype;
  WebSocket.prototype.send = function (data) {
    if (window.joinAskedMs === undefined && String(data).includes('"room.join"')) {
      window.joinAskedMs = performance.now();
      window.dispatchEvent(new Event("joinasked"));
    }
    return send.call(this, data);
  };
}

/**
 * Opens the call page and joins; a token in the query goes into the fragment. Every RTCPeerConnection is kept for `stats`. `before` is called
 * with the page before it is opened.
 */
export async function enter(t, launched, url, room, name, { token, ...query } = {}, before = async () => {}) {
  const context = await launched.newContext({
    ignoreHTTPSErrors: true,
    viewport: { width: 1280, height: 800 },
  });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await before(page);
  await page.addInitScript(keepPeers);
  await page.addInitScript(markJoin);
  await page.addInitScript(() => {
    // `cutSockets` closes all WebSockets, and refuses new ones for a while.
    const Plain = window.WebSocket;
    const open = new Set();
    let cutUntil = 0;
    window.socketsRefused = 0;
    window.WebSocket = class extends Plain {
      constructor(url, ...rest) {
        const cut = performance.now() < cutUntil;
        if (cut) window.socketsRefused++;
        super(cut ? "ws://127.0.0.1:9/" : url, ...rest);
        open.add(this);
        this.addEventListener("close", () => open.delete(this));
      }
    };
    // Milliseconds from asking to join until getStats shows a decoded frame, read every 20 ms.
    const firstFrame = async () => {
      const asked = window.joinAskedMs;
      while (window.firstFrameMs === undefined) {
        for (const peer of window.peers) {
          for (const entry of (await peer.getStats()).values()) {
            if (entry.type === "inbound-rtp" && entry.framesDecoded > 0) {
              window.firstFrameMs ??= performance.now() - asked;
            }
          }
        }
        await new Promise((done) => setTimeout(done, 20));
      }
    };
    window.addEventListener("joinasked", firstFrame);
    window.cutSockets = (ms) => {
      cutUntil = performance.now() + ms;
      for (const socket of open) socket.close();
    };
  });
  const options = new URLSearchParams({ name, join: "1", processing: "off", ...query });
  const fragment = token ? `#token=${token}` : "";
  await page.goto(`${url}/room/${room}?${options}${fragment}`);
  await until(`${name} to connect`, async () => {
    const state = await page.evaluate(() => window.moim?.state());
    if (state?.error) throw new Error(JSON.stringify(state));
    return state?.state === "connected";
  });
  return { page, name, errors };
}

/** Sends a tone of so many Hz through the SDK, without a microphone. */
export function sing({ page }, hertz) {
  return page.evaluate(async (frequency) => {
    const context = new AudioContext({ sampleRate: 48_000 });
    await context.resume();
    const oscillator = new OscillatorNode(context, { frequency });
    const gain = new GainNode(context, { gain: 0.2 });
    const out = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
    oscillator.connect(gain).connect(out);
    oscillator.start();
    await window.moim.room.publish(out.stream.getAudioTracks()[0]);
  }, hertz);
}

/** All entries of getStats over all connections of a page, none from before the call. */
export async function stats({ page }) {
  await new Promise((done) => setTimeout(done, STATS_KEPT_MS));
  return page.evaluate(async () => {
    const all = [];
    for (const peer of window.peers) {
      if (peer.connectionState === "closed") continue;
      for (const entry of (await peer.getStats()).values()) all.push(entry);
    }
    return all;
  });
}

/** Inbound streams of a kind that ever carried a packet. */
export async function inbound(person, kind) {
  const all = await stats(person);
  return all.filter((s) => s.type === "inbound-rtp" && s.kind === kind && s.packetsReceived > 0);
}

/**
 * Scrolls the first of a selector's elements up and down for so many seconds: frames a second, the fewest in any second,
 * the longest time without one in milliseconds, and over how many pixels it went.
 */
export async function scroll({ page }, selector, seconds) {
  const { at_ms, pixels } = await page.evaluate(
    async ([selector, seconds]) => {
      const moved = document.querySelector(selector);
      const at_ms = [await new Promise(requestAnimationFrame)];
      let [step, pixels] = [12, 0];
      while (at_ms.at(-1) < at_ms[0] + 1000 * seconds) {
        const before = moved.scrollTop;
        moved.scrollTop += step;
        if (moved.scrollTop === before) step = -step;
        pixels += Math.abs(moved.scrollTop - before);
        at_ms.push(await new Promise(requestAnimationFrame));
      }
      return { at_ms, pixels };
    },
    [selector, seconds],
  );
  const [first, last] = [at_ms[0], at_ms.at(-1)];
  const begins = at_ms.filter((begin) => begin + 1000 <= last);
  const within = (begin) => at_ms.filter((at) => at > begin && at <= begin + 1000).length;
  return {
    fps: (1000 * (at_ms.length - 1)) / (last - first),
    worst_fps: Math.min(...begins.map(within)),
    longest_ms: Math.max(...at_ms.slice(1).map((at, nth) => at - at_ms[nth])),
    pixels,
  };
}

/** Median of numbers. */
export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/** Samples every second; returns per inbound stream what each second had. */
export async function watch(person, seconds) {
  const rows = [];
  let before = null;
  for (let second = 0; second <= seconds; second++) {
    const all = await stats(person);
    if (before) {
      for (const now of all.filter((s) => s.type === "inbound-rtp")) {
        const then = before.find((s) => s.id === now.id);
        if (!then || now.packetsReceived === 0) continue;
        const span = (now.timestamp - then.timestamp) / 1000;
        rows.push({
          id: now.id,
          kind: now.kind,
          second,
          fps: ((now.framesDecoded ?? 0) - (then.framesDecoded ?? 0)) / span,
          height: now.frameHeight,
          packets: now.packetsReceived - then.packetsReceived,
          lost: now.packetsLost - then.packetsLost,
          samples: (now.totalSamplesReceived ?? 0) - (then.totalSamplesReceived ?? 0),
          concealed: (now.concealedSamples ?? 0) - (then.concealedSamples ?? 0),
          energy: (now.totalAudioEnergy ?? 0) - (then.totalAudioEnergy ?? 0),
        });
      }
    }
    before = all;
    if (second < seconds) await new Promise((done) => setTimeout(done, 1000));
  }
  return rows;
}
