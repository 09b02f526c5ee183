// What a real Chromium does on the networks of RFC 8867 as a sender, beside the server's own estimate (evidence-networks): pages
// that publish a camera full of noise are at one end of a link (link.mjs), the server and bots that receive them at the other.
// TCP is the kernel's. In real time, one run each. Nothing must hold of Chromium: its figures are there to compare with. Exits
// non-zero if one could not be measured. `evidence-senders.sh 5.1 fall` plays those alone. Started
// again it goes on where it was cut. Takes about 25 minutes. Writes target/evidence/senders.json, and each packet that
// the link carried into the directory that MOIM_PACKETS names.

import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BINARY, finish, percentile, rowMaker, serve, sleep, sum, until } from "./evidence.mjs";
import { keepPeers } from "../web/e2e/world.mjs";
import { connect, ENDS } from "./link.mjs";

const { chromium } = createRequire(new URL("../web/e2e/package.json", import.meta.url))("playwright-core");

/** Seconds from a change until the flows are steady. */
const SETTLES_S = 15;
/** The way that nothing limits, in kbit/s. */
const WIDE = [[0, 100_000]];
/** What a camera of 720 lines sends in three layers where nothing limits it, with sound and headers: no flow uses more. */
const MOST_KBPS = 2100;
/** A relay that is later than this itself is the network that is measured, in ms. */
const LATE_MS = 10;
/** Encoders that have too little CPU for a larger share of the time are what limits a flow. */
const CPU_LIMITED = 0.02;

/** What a page does: ms each way, the second in which it comes, seconds from and until which its camera is off. */
const flow = (more = {}) => ({ delay: 50, from: 0, rests: null, ...more });

/** Kilobits a second from a second on, as in tests/networks/cases.rs. The fall starts below what a camera sends. */
// prettier-ignore
const CASES = {
  5.1: {
    what: "5.1 variable capacity",
    seconds: 100,
    forward: [[0, 1000], [40, 2500], [60, 600], [80, 1000]],
    flows: [flow()],
  },
  5.2: {
    what: "5.2 variable, two flows",
    seconds: 125,
    forward: [[0, 4000], [25, 2000], [50, 3500], [75, 1000], [100, 2000]],
    flows: [flow(), flow()],
  },
  5.3: {
    what: "5.3 congested feedback",
    seconds: 100,
    forward: [[0, 2000], [20, 1000], [40, 500], [60, 2000]],
    backward: [[0, 2000], [35, 800], [70, 2000]],
    flows: [flow()],
    bots: 3,
  },
  5.4: {
    what: "5.4 same kind",
    seconds: 120,
    forward: [[0, 3500]],
    flows: [flow(), flow({ from: 20 }), flow({ from: 40 })],
  },
  5.5: {
    what: "5.5 round-trip times",
    seconds: 300,
    forward: [[0, 4000]],
    flows: [10, 25, 50, 100, 150].map((delay, nth) => flow({ delay, from: 10 * nth })),
  },
  5.6: { what: "5.6 long TCP", seconds: 120, forward: [[0, 2000]], flows: [flow()], tcp: { long: 1, short: 0 } },
  5.7: { what: "5.7 short TCP", seconds: 300, forward: [[0, 2000]], flows: [flow(), flow()], tcp: { long: 0, short: 10 } },
  5.8: {
    what: "5.8 pause and resume",
    seconds: 120,
    forward: [[0, 3500]],
    flows: [flow({ rests: [40, 60] }), flow(), flow()],
  },
  fall: { what: "a fall to a third, and back", seconds: 90, forward: [[0, 1500], [30, 500], [50, 1500]], flows: [flow()] },
};

/** A capacity in a second. */
const at = (capacity, second) => capacity.findLast(([from]) => from <= second)[1];

/** Whether a page sends pictures in a second. */
const sends = ({ from, rests }, second) => second >= from && !(rests && second >= rests[0] && second < rests[1]);

const scratch = mkdtempSync(join(tmpdir(), "moim-senders-"));
process.once("exit", () => rmSync(scratch, { recursive: true, force: true }));

/** A film of blocks that change at random, which no encoder makes small. */
function noise() {
  const [width, height, block, frames] = [1280, 720, 16, 30];
  let state = 1;
  const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 24;
  const parts = [Buffer.from(`YUV4MPEG2 W${width} H${height} F20:1 Ip A1:1 C420jpeg\n`)];
  for (let frame = 0; frame < frames; frame++) {
    const luma = Buffer.alloc(width * height);
    for (let y = 0; y < height; y += block) {
      for (let x = 0; x < width; x += block) luma.fill(random(), y * width + x, y * width + x + block);
      for (let row = 1; row < block; row++) luma.copyWithin((y + row) * width, y * width, (y + 1) * width);
    }
    parts.push(Buffer.from("FRAME\n"), luma, Buffer.alloc((width * height) / 2, 128));
  }
  writeFileSync(join(scratch, "noise.y4m"), Buffer.concat(parts));
}

/** A browser at the pages' end, whose camera is the film. */
async function browse({ inside }) {
  const executablePath = join(scratch, "chromium");
  writeFileSync(executablePath, `#!/bin/sh\nexec ${inside.a.join(" ")} chromium "$@"\n`);
  chmodSync(executablePath, 0o755);
  const args = ["no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "use-fake-ui-for-media-stream"];
  args.push("use-fake-device-for-media-stream", `use-file-for-fake-video-capture=${scratch}/noise.y4m`);
  args.push("autoplay-policy=no-user-gesture-required");
  return chromium.launch({ executablePath, args: args.map((arg) => `--${arg}`) });
}

/** Bots at the server's end who receive every picture, and send their own if pages show them. Gives their room. */
async function receive({ inside, url }, name, { bots, shown }) {
  const file = join(scratch, `${name}.yaml`);
  const runs = join(scratch, `runs-${name}`);
  writeFileSync(
    file,
    `name: senders
target: { url: "${url}" }
duration: 600s
rooms: [{ audio: sfu, video: sfu, people: { bot: ${bots} }, senders: ${shown} }]
media: { audio: speech, video: simulcast }
`,
  );
  const [command, ...rest] = [...inside.b, BINARY, "load", file, "--plain", "--runs", runs];
  const child = spawn(command, rest, { stdio: "ignore" });
  const ended = new Promise((done) => child.once("exit", done));
  const room = await until("bots", () => {
    if (child.exitCode !== null) throw new Error(`the bots ended with ${child.exitCode}`);
    const metas = existsSync(runs) ? readdirSync(runs).map((run) => join(runs, run, "meta.json")) : [];
    return metas.some(existsSync) && JSON.parse(readFileSync(metas[0], "utf8")).people[0].room;
  });
  const stop = async () => {
    const early = child.exitCode;
    child.kill("SIGINT");
    await ended;
    if (early !== null) throw new Error(`the bots ended with ${early}`);
  };
  return { room, stop };
}

/** A page that joins with its camera. */
async function enter(browser, { url }, room, nth, shown) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 720 } });
  const page = await context.newPage();
  await page.addInitScript(keepPeers);
  const query = `name=sender-${nth}&join=1&show=${shown}&audio=sfu&video=sfu&mic=1&camera=720p`;
  await page.goto(`${url}/room/${room}?${query}`);
  await page.evaluate(() => window.moim.ready.then(() => undefined));
  return page;
}

/** The share of the time in which a page's encoders had too little CPU, and how its pictures left. */
const encoding = (page) =>
  page.evaluate(async () => {
    const streams = [];
    for (const peer of window.peers)
      for (const one of (await peer.getStats()).values())
        if (one.type === "outbound-rtp" && one.kind === "video" && one.bytesSent > 0) streams.push(one);
    const total = (pick) => streams.reduce((all, one) => all + pick(one.qualityLimitationDurations), 0);
    const all = total(({ cpu, bandwidth, other, none }) => cpu + bandwidth + other + none);
    const sizes = streams.filter(({ framesPerSecond }) => framesPerSecond > 0);
    const text = ({ frameHeight, framesPerSecond }) => `${frameHeight}p ${framesPerSecond}/s`;
    return { cpu_limited: total(({ cpu }) => cpu) / all, sizes: sizes.map(text).sort().join(", ") };
  });

/** Mutes a page's camera, which sends nothing then, or lets it flow again. */
const mute = (page, muted) => page.evaluate((on) => window.moim.room.mute("video", on), muted);

/** What happens when, in order: pages that come later or rest, and what the link carries. */
function events({ seconds, forward, backward = WIDE, flows }, { link, pages, open }) {
  const all = [{ second: seconds, act: () => {} }];
  for (const [second] of [...forward, ...backward])
    all.push({ second, act: () => link.set(at(forward, second), at(backward, second)) });
  flows.forEach(({ from, rests }, nth) => {
    if (from > 0) all.push({ second: from, act: () => open(nth) });
    if (!rests) return;
    all.push({ second: rests[0], act: () => mute(pages[nth], true) });
    all.push({ second: rests[1], act: () => mute(pages[nth], false) });
  });
  return all.sort((one, other) => one.second - other.second);
}

/** Plays a case on the link: what the link counted, and how pages encoded. */
async function play(link, name, one) {
  const shown = one.bots ?? 0;
  const config = join(scratch, "moim.yaml");
  writeFileSync(config, `http: { bind: "127.0.0.1:7880" }\nmedia: { bind: ["${ENDS.b.address}"] }\n`);
  const server = await serve({ wrap: link.inside.b, flags: ["--config", config], url: link.url });
  const bots = await receive(link, name, { bots: Math.max(1, shown), shown });
  const browser = await browse(link);
  const pages = [];
  const open = async (nth) => {
    link.expect(`flow ${nth}`, one.flows[nth].delay);
    pages[nth] = await enter(browser, link, bots.room, nth, shown);
  };
  link.set(one.forward[0][1], (one.backward ?? WIDE)[0][1]);
  for (const [nth, { from }] of one.flows.entries()) if (from === 0) await open(nth);
  if (one.tcp) link.tcp(one.tcp.long, one.tcp.short);
  link.begin();
  const began = performance.now();
  const acts = [];
  for (const { second, act } of events(one, { link, pages, open })) {
    await sleep(Math.max(0, began + 1000 * second - performance.now()));
    acts.push(act());
  }
  const counted = await link.take();
  await Promise.all(acts);
  const encoded = await Promise.all(pages.map(encoding));
  if (one.tcp) link.tcp(0, 0);
  await browser.close();
  await bots.stop();
  await server.stop();
  return { ...counted, encoded };
}

/** Seconds in which a case is steady: none of the first 15 s after anything changed. */
function steadySeconds({ seconds, forward, backward = WIDE, flows }) {
  const changes = [...forward, ...backward].map(([at]) => at);
  for (const { from, rests } of flows) changes.push(from, ...(rests ?? []));
  const all = [...Array(seconds).keys()];
  return new Set(all.filter((second) => changes.every((at) => second < at || second >= at + SETTLES_S)));
}

const isMedia = ([, flow]) => flow.startsWith("flow");

/** What one way carried in some seconds: the share of what it could, and the waits and losses of pages' packets. */
function carried(packets, seconds, limit) {
  const room = sum([...seconds], limit) * 125;
  const within = packets.filter(([time]) => seconds.has(Math.floor(time)));
  const bytes = (list) => sum(list, ([, , size, wait]) => (wait === null ? 0 : size));
  const media = within.filter(isMedia);
  const waits = media.map(([, , , wait]) => wait).filter((wait) => wait !== null);
  return {
    used: bytes(within) / room,
    of_chromium: bytes(media) / room,
    wait_ms_p95: percentile(waits, 95),
    lost_pct: (100 * (media.length - waits.length)) / media.length,
  };
}

/** What each page's flow got while all send: the least over the mean. */
function shares(packets, steady, flows) {
  const kbps = flows.map(() => 0);
  const seconds = new Set([...steady].filter((second) => flows.every((one) => sends(one, second))));
  for (const [time, flow, size, wait] of packets.filter(isMedia))
    if (wait !== null && seconds.has(Math.floor(time))) kbps[Number(flow.slice(5))] += size / 125 / seconds.size;
  return { kbps: kbps.map(Math.round), least_share: (kbps.length * Math.min(...kbps)) / sum(kbps, (one) => one) };
}

/** How long a flow took to send no more than the new capacity, and to be back at 80 % of the old one, in whole seconds. */
function follows({ seconds, forward }, packets) {
  const [[, high], [fall, low], [rise]] = forward;
  const kbps = Array(seconds).fill(0);
  for (const [time, , size] of packets) if (time < seconds) kbps[Math.floor(time)] += size / 125;
  const first = (from, does) => {
    const found = kbps.findIndex((rate, second) => second >= from && does(rate));
    return found < 0 ? null : found + 1 - from;
  };
  return {
    under_new_capacity_s: first(fall, (rate) => rate <= low),
    back_to_80_pct_s: first(rise, (rate) => rate >= 0.8 * high),
  };
}

/** The figures of docs/networks.md, and whether they were measured. */
function figures(name, one, { forward, backward, ports, late, encoded }) {
  const steady = steadySeconds(one);
  const most = (second) => (one.tcp ? Infinity : MOST_KBPS * one.flows.filter((plan) => sends(plan, second)).length);
  const made = {
    ...carried(forward, steady, (second) => Math.min(at(one.forward, second), most(second))),
    ...(one.flows.length > 1 && shares(forward, steady, one.flows)),
    ...(one.backward && { backward: carried(backward, steady, (second) => at(one.backward, second)) }),
    ...(name === "fall" && follows(one, forward)),
    relay_late: late,
    cpu_limited: Math.max(...encoded.map((page) => page.cpu_limited)),
    sizes: encoded.map(({ sizes }) => sizes),
  };
  // A flow that went on from another port would be taken for the page's that came last.
  const busy = one.flows.map((_, nth) => {
    const bytes = Object.values(ports[`flow ${nth}`] ?? {});
    return bytes.filter((carried) => carried > 100_000).length;
  });
  const inTime = late.p99_ms < LATE_MS && made.cpu_limited < CPU_LIMITED;
  return { ...made, ports: busy, holds: made.used > 0.3 && inTime && busy.every((count) => count === 1) };
}

noise();
const link = await connect().catch((error) => {
  console.error(`no link could be made, which needs root or user namespaces: ${error.message}`);
  process.exit(1);
});
const rows = [];
const row = rowMaker("senders", rows);
for (const [name, one] of Object.entries(CASES)) {
  await row(name, one.what, async () => {
    const run = await play(link, name, one);
    if (process.env.MOIM_PACKETS) writeFileSync(join(process.env.MOIM_PACKETS, `${name}.json`), JSON.stringify(run));
    return figures(name, one, run);
  });
}
finish("senders", rows, { told: true });
