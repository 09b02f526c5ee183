// Records how many bytes the frames of Chromium's own encoder have: media/pictures-WHAT-CODEC.json. The lab's bots send
// pictures of these sizes. Nothing of what is in them is kept. The result is committed: run this only to change it.
//
//   python3 -m venv /tmp/face && /tmp/face/bin/pip install scikit-image
//   PYTHON=/tmp/face/bin/python scripts/in-namespace.sh node scripts/record-pictures.mjs [720p|1080p|screen|slides]…
//
// 720p and 1080p are a talking head (record-face.py) that comes as a camera's picture. A screen shows text that scrolls now
// and then, slides change every ten seconds: canvases whose tracks hint at detail, as those of getDisplayMedia do. An
// encoded transform counts what leaves the encoder on its way to a second connection in the same page. First the encoder
// runs undisturbed, then a keyframe is asked for again and again. What refines it then is kept, too.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const require = createRequire(new URL("../web/e2e/", import.meta.url));
const { chromium } = require("playwright-core");

/** 720p has the rate that the SDK gives it. A machine that is short of CPU leaves out frames (`left_out`): record on a quiet one. */
const CONTENTS = {
  "720p": { camera: true, width: 1280, height: 720, frames_per_second: 30, seconds: 20, kbps: 1500 },
  "1080p": { camera: true, width: 1920, height: 1080, frames_per_second: 30, seconds: 20, kbps: 4000 },
  screen: { width: 1920, height: 1080, frames_per_second: 5, seconds: 90, kbps: 2500 },
  slides: { width: 1920, height: 1080, frames_per_second: 5, seconds: 60, kbps: 2500 },
};
const CODECS = ["vp8", "h264"];
/** Keyframes that are asked for, and how far apart: where a screen is, each falls on another picture. */
const KEYFRAMES = 12;
const KEYFRAME_EVERY_MS = 3300;
/** How long the estimate of the way may grow first. */
const WARM_UP_MS = 12_000;

const work = process.env.FACES ?? mkdtempSync(join(tmpdir(), "moim-pictures-"));
const wanted = process.argv.slice(2);
const failures = [];

/** The camera's picture in a file. */
function face({ width, height }) {
  const file = join(work, `face-${height}.y4m`);
  if (!existsSync(file)) {
    const script = new URL("record-face.py", import.meta.url).pathname;
    const python = process.env.PYTHON ?? "python3";
    execFileSync(python, [script, width, height, file].map(String), { stdio: "inherit" });
  }
  return file;
}

/** In the page: a track that shows a screen with text, or slides. */
function drawn({ what, width, height, frames_per_second }) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
  let seed = 7;
  const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
  const word = () => Array.from({ length: 2 + 8 * random() }, () => String.fromCharCode(97 + 26 * random())).join("");
  const lines = Array.from({ length: 600 }, () => "  ".repeat(4 * random()) + Array.from({ length: 3 + 14 * random() }, word).join(" "));
  const colour = () => `hsl(${360 * random()} ${20 + 60 * random()}% ${25 + 60 * random()}%)`;
  const editor = (nth) => {
    // An editor: a page is read for a while, then it scrolls by some lines in a second. Once the encoder runs undisturbed
    // that happens once; keyframes that are asked for fall on several pages.
    const second = nth / frames_per_second;
    const turn = Math.floor(second / 55);
    const within = Math.max(0, second - 55 * turn - 54);
    const scrolled = 18 * turn + Math.floor(18 * within);
    context.fillStyle = "#1e1e1e";
    context.fillRect(0, 0, width, height);
    context.fillStyle = "#333";
    context.fillRect(0, 0, 320, height);
    context.font = "20px monospace";
    for (let row = 0; row < 42; row++) {
      context.fillStyle = "#aaa";
      context.fillText(lines[row].trim().slice(0, 22), 16, 26 * row + 24);
      const line = lines[(row + scrolled) % lines.length];
      context.fillStyle = ["#9cdcfe", "#ce9178", "#d4d4d4", "#6a9955"][(row + scrolled) % 4];
      context.fillText(`${row + scrolled}  ${line}`.slice(0, 125), 340, 26 * row + 24);
    }
    // A cursor that blinks.
    context.fillStyle = Math.floor(second) % 2 ? "#fff" : "#1e1e1e";
    context.fillRect(700, 500, 3, 24);
  };
  const slide = (nth) => {
    seed = 1000 + 77 * Math.floor(nth / frames_per_second / 10);
    const light = context.createLinearGradient(0, 0, width, height);
    light.addColorStop(0, colour());
    light.addColorStop(1, colour());
    context.fillStyle = light;
    context.fillRect(0, 0, width, height);
    context.fillStyle = "#fff";
    context.font = "bold 72px sans-serif";
    context.fillText([word(), word(), word()].join(" "), 100, 140);
    context.font = "36px sans-serif";
    for (let row = 0; row < 9; row++) context.fillText(`• ${Array.from({ length: 7 }, word).join(" ")}`.slice(0, 50), 100, 250 + 80 * row);
    // A photograph, as far as an encoder is concerned: many soft spots with grain.
    for (let spot = 0; spot < 900; spot++) {
      context.fillStyle = colour();
      context.globalAlpha = 0.35;
      context.beginPath();
      context.arc(1150 + 650 * random(), 260 + 650 * random(), 4 + 50 * random() ** 2, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
  };
  const generator = new MediaStreamTrackGenerator({ kind: "video" });
  const writer = generator.writable.getWriter();
  const begin = performance.now();
  const paint = what === "screen" ? editor : slide;
  let nth = 0;
  const next = async () => {
    paint(nth);
    const frame = new VideoFrame(canvas, { timestamp: Math.round((1e6 * nth) / frames_per_second) });
    await writer.write(frame);
    nth += 1;
    setTimeout(next, Math.max(0, begin + (1000 * nth) / frames_per_second - performance.now()));
  };
  void next();
  generator.contentHint = "detail";
  return generator;
}

/** In the page: sends the track to a second connection; `window.sizes` has each frame that leaves the encoder. */
async function connected({ codec, kbps, frames_per_second, track }) {
  const sender = new RTCPeerConnection({ encodedInsertableStreams: true });
  const receiver = new RTCPeerConnection();
  sender.onicecandidate = ({ candidate }) => candidate && receiver.addIceCandidate(candidate);
  receiver.onicecandidate = ({ candidate }) => candidate && sender.addIceCandidate(candidate);
  const sendEncodings = [{ maxBitrate: 1000 * kbps, maxFramerate: frames_per_second }];
  const transceiver = sender.addTransceiver(track, { direction: "sendonly", sendEncodings });
  const { codecs } = RTCRtpReceiver.getCapabilities("video");
  const of = codecs.filter(({ mimeType, sdpFmtpLine = "" }) =>
    mimeType.toLowerCase() === `video/${codec}` && (codec !== "h264" || /packetization-mode=1.*profile-level-id=42e01f/.test(sdpFmtpLine)));
  if (of.length === 0) return false;
  transceiver.setCodecPreferences([...of, ...codecs.filter(({ mimeType }) => mimeType === "video/rtx")]);
  window.sizes = [];
  const { readable, writable } = transceiver.sender.createEncodedStreams();
  const count = new TransformStream({
    transform(frame, controller) {
      const { rtpTimestamp, width, height } = frame.getMetadata();
      const timestamp = rtpTimestamp ?? frame.timestamp;
      window.sizes.push({ timestamp, bytes: frame.data.byteLength, keyframe: frame.type === "key", width, height });
      controller.enqueue(frame);
    },
  });
  void readable.pipeThrough(count).pipeTo(writable);
  await sender.setLocalDescription();
  await receiver.setRemoteDescription(sender.localDescription);
  await receiver.setLocalDescription();
  // A connection begins with 300 kbit/s otherwise, and takes long to find more.
  const sdp = receiver.localDescription.sdp.replace(/a=fmtp:(\d+) /g, `a=fmtp:$1 x-google-start-bitrate=${kbps};`)
    .replace(/(a=rtpmap:(\d+) VP8\/90000\r\n)/g, `$1a=fmtp:$2 x-google-start-bitrate=${kbps}\r\n`);
  await sender.setRemoteDescription({ type: "answer", sdp });
  window.sender = transceiver.sender;
  window.askForKeyframe = async () => {
    const parameters = transceiver.sender.getParameters();
    await transceiver.sender.setParameters(parameters, { encodingOptions: [{ keyFrame: true }] });
  };
  const parameters = transceiver.sender.getParameters();
  parameters.degradationPreference = "maintain-resolution";
  await transceiver.sender.setParameters(parameters);
  return true;
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** The sizes by the picture's time: 0 where the encoder left one out. */
function byTime(frames, { frames_per_second, seconds }) {
  const step = 90_000 / frames_per_second;
  const [{ timestamp: begin }] = frames;
  const sizes = Array(seconds * frames_per_second).fill(0);
  let next = 0;
  for (const { timestamp, bytes } of frames) {
    // Pictures come a little early or late: two of them never share a moment.
    const at = Math.max(next, Math.round(((timestamp - begin) >>> 0) / step));
    if (at < sizes.length) sizes[at] = bytes;
    next = at + 1;
  }
  return sizes;
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

/** What refines a keyframe: of each frame behind those that were asked for the median, up to the last one of twice the usual size. */
function refining(asked, { frames_per_second, kept_kbps }) {
  const at = asked.flatMap(({ keyframe }, nth) => (keyframe ? [nth] : []));
  const runs = at.map((from, nth) => asked.slice(from + 1, at[nth + 1]).map(({ bytes }) => bytes));
  const length = median(runs.map((run) => run.length));
  const sizes = Array.from({ length }, (_, nth) => median(runs.filter((run) => run.length > nth).map((run) => run[nth])));
  const usual = (2 * kept_kbps * 125) / frames_per_second;
  return sizes.slice(0, sizes.findLastIndex((bytes) => bytes > usual) + 1);
}

async function record(what, content, codec, page) {
  const media = content.camera
    ? `navigator.mediaDevices.getUserMedia({ video: { width: ${content.width}, height: ${content.height}, frameRate: 30 } }).then((stream) => stream.getVideoTracks()[0])`
    : `(${drawn})(${JSON.stringify({ what, ...content })})`;
  const given = JSON.stringify({ codec, ...content });
  const known = await page.evaluate(`Promise.resolve(${media}).then((track) => (${connected})({ ...${given}, track }))`);
  if (!known) return failures.push(`this Chromium encodes no ${codec}`);
  const taken = () => page.evaluate(() => window.sizes.splice(0));
  await sleep(WARM_UP_MS);
  const began = await taken();
  await sleep(1000 * content.seconds + 500);
  const steady = await taken();
  const asked = [];
  for (let nth = 0; nth < KEYFRAMES; nth++) {
    await page.evaluate(() => window.askForKeyframe());
    await sleep(KEYFRAME_EVERY_MS);
    asked.push(...(await taken()));
  }
  const keyframes = asked.filter(({ keyframe }) => keyframe).map(({ bytes }) => bytes);
  const stats = await page.evaluate(async () => {
    const all = [...(await window.sender.getStats()).values()];
    return all.find(({ type }) => type === "outbound-rtp");
  });
  const frame_bytes = byTime(steady, content);
  const [first] = began;
  const mean = Math.round((8 * frame_bytes.reduce((sum, bytes) => sum + bytes, 0)) / content.seconds / 1000);
  const refining_bytes = refining(asked, { ...content, kept_kbps: mean });
  const left_out = frame_bytes.filter((bytes) => bytes === 0).length;
  const wrong = [...began.slice(1), ...steady].filter(({ keyframe }) => keyframe).length;
  const smaller = [...steady, ...asked].filter(({ width }) => width && width !== content.width).length;
  console.log({
    what, codec, first_keyframe: first.bytes, keyframes, refining_bytes, mean_kbps: mean, left_out, wrong, smaller,
    encoder: stats?.encoderImplementation, limited: stats?.qualityLimitationDurations,
  });
  if (smaller > 0) failures.push(`${what} ${codec}: ${smaller} frames were of another size`);
  if (keyframes.length < KEYFRAMES - 2) failures.push(`${what} ${codec}: ${keyframes.length} keyframes came`);
  const { width, height, frames_per_second, kbps } = content;
  const head = { codec, width, height, frames_per_second, target_kbps: kbps };
  const fields = Object.entries({ ...head, keyframe_bytes: keyframes, refining_bytes, frame_bytes });
  const lines = fields.map(([key, value]) => `  "${key}": ${JSON.stringify(value).replace(/(?:\d+,){20}/g, "$&\n    ")}`);
  writeFileSync(`media/pictures-${what}-${codec}.json`, `{\n${lines.join(",\n")}\n}\n`);
}

// A page of localhost may use cameras, an empty one may not.
const pages = createServer((_, response) => response.end("<!doctype html>")).listen(0, "127.0.0.1");
await new Promise((done) => pages.once("listening", done));
for (const [what, content] of Object.entries(CONTENTS)) {
  if (wanted.length > 0 && !wanted.includes(what)) continue;
  const args = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", "--allow-loopback-in-peer-connection",
    "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
  ];
  if (content.camera) args.push(`--use-file-for-fake-video-capture=${face(content)}`);
  for (const codec of CODECS) {
    const launched = await chromium.launch({ executablePath: "/usr/bin/chromium", args });
    const page = await launched.newPage();
    await page.goto(`http://127.0.0.1:${pages.address().port}/`);
    await record(what, content, codec, page);
    await launched.close();
  }
}
pages.close();
if (!process.env.FACES) rmSync(work, { recursive: true, force: true });
for (const failure of failures) console.error(`FAIL ${failure}`);
process.exitCode = failures.length > 0 ? 1 : 0;
