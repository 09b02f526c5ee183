// Records Chromium's camera as three spatial and three temporal layers in one stream, for the tests of the parsers:
//   scripts/in-namespace.sh node web/e2e/record.mjs vp9|av1 FILE PACKETS
// The other side is `target/release/examples/record` (cargo build --release -p transport --example record), which says
// what the file holds.

import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { browser } from "./world.mjs";

const [codec, file, packets] = process.argv.slice(2);
const RECORDER = new URL("../../target/release/examples/record", import.meta.url).pathname;
/** In kbit/s: without feedback the browser keeps what it begins with, and all layers need about as much. */
const BITRATE = 2500;

const ends = [];
const launched = await browser({ after: (end) => ends.push(end) });
const recorder = spawn(RECORDER, [codec, file, packets], { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((done) => recorder.once("exit", done));
// A page of localhost may use cameras, an empty one may not.
const pages = createServer((_, response) => response.end("<!doctype html>")).listen(0, "127.0.0.1");
await new Promise((done) => pages.once("listening", done));
ends.push(() => pages.close());
const page = await launched.newPage();
await page.goto(`http://127.0.0.1:${pages.address().port}/`);
const offer = await page.evaluate(async (mimeType) => {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { width: 1280, height: 720 } });
  window.pc = new RTCPeerConnection();
  const transceiver = window.pc.addTransceiver(stream.getVideoTracks()[0], {
    direction: "sendonly",
    sendEncodings: [{ scalabilityMode: "L3T3_KEY" }],
  });
  const { codecs } = RTCRtpSender.getCapabilities("video");
  const first = codecs.find((codec) => codec.mimeType.toLowerCase() === mimeType);
  transceiver.setCodecPreferences([first, ...codecs.filter((codec) => codec.mimeType === "video/rtx")]);
  await window.pc.setLocalDescription();
  await new Promise((done) => {
    window.pc.onicecandidate = ({ candidate }) => candidate ?? done();
  });
  return window.pc.localDescription.sdp;
}, `video/${codec}`);
recorder.stdin.write(`${offer}\n`);
const lines = [];
for await (const line of createInterface({ input: recorder.stdout })) {
  if (line === "") break;
  lines.push(line);
  const map = /^a=rtpmap:(\d+) (?:VP9|AV1)\//.exec(line);
  if (map) lines.push(`a=fmtp:${map[1]} x-google-start-bitrate=${BITRATE}`);
}
await page.evaluate(
  (sdp) => window.pc.setRemoteDescription({ type: "answer", sdp }),
  `${lines.join("\r\n")}\r\n`,
);
process.exitCode = await ended;
for (const end of ends) await end();
