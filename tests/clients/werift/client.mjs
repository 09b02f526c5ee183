// Joins a room, sends silence and the pictures of a file, receives one voice and one picture of others:
// node client.mjs ws://127.0.0.1:7880 garden Ada camera.ivf
import { readFileSync } from "node:fs";
import * as werift from "werift";
import WebSocket from "ws";

const [url, room, name, camera] = process.argv.slice(2);
const { MediaStreamTrack, RTCPeerConnection, RTCRtpCodecParameters, RtpHeader, RtpPacket } = werift;

const socket = new WebSocket(`${url}/socketcluster/`);
await new Promise((done, fail) => socket.once("open", done).once("error", fail));
const answers = new Map();
socket.on("close", () => process.exit(1));
socket.on("message", (data) => {
  if (data.length === 0) return socket.send(""); // The server's ping.
  const { rid, data: answer, error } = JSON.parse(data);
  if (error) throw new Error(`refused: ${JSON.stringify(error)}`);
  answers.get(rid)?.(answer);
});
const ask = (event, data) =>
  new Promise((done) => {
    const cid = answers.size + 1;
    answers.set(cid, done);
    socket.send(JSON.stringify({ event, data, cid }));
  });
await ask("#handshake", { authToken: null });
await ask("room.join", { room, name, audio: "sfu", video: "sfu" });

const feedback = ["nack", "ccm fir", "nack pli", "goog-remb"].map((words) => {
  const [type, parameter] = words.split(" ");
  return { type, parameter };
});
const peer = new RTCPeerConnection({
  codecs: {
    audio: [new RTCRtpCodecParameters({ mimeType: "audio/opus", clockRate: 48000, channels: 2 })],
    video: [
      new RTCRtpCodecParameters({ mimeType: "video/VP8", clockRate: 90000, rtcpFeedback: feedback }),
    ],
  },
});
const came = { audio: 0, video: 0 };
peer.onTrack.subscribe((track) =>
  track.onReceiveRtp.subscribe(({ header }) => {
    if (track.kind === "audio" || header.marker) came[track.kind]++;
  }),
);
// What this client sends, each on a line of its own; then lines to receive on.
const tracks = ["audio", "video"].map((kind) => new MediaStreamTrack({ kind }));
const lines = tracks.map((track) => peer.addTransceiver(track, { direction: "sendonly" }));
for (const kind of ["audio", "video"]) peer.addTransceiver(kind, { direction: "recvonly" });
await peer.setLocalDescription(await peer.createOffer());
const offered = lines.map(({ mid, kind }) => ({ mid, kind, name }));
const { sdp } = await ask("room.offer", { sdp: peer.localDescription.sdp, tracks: offered });
await peer.setRemoteDescription({ type: "answer", sdp });

const numbers = { audio: 0, video: 0 };
function send(track, payload, timestamp, marker) {
  const { mid } = lines[tracks.indexOf(track)];
  const sequenceNumber = numbers[track.kind]++ & 0xffff;
  const header = new RtpHeader({ sequenceNumber, timestamp: timestamp >>> 0, payloadType: 96, marker, mid });
  track.writeRtp(new RtpPacket(header, payload));
}
let ticks = 0;
setInterval(() => send(tracks[0], Buffer.from([0xf8, 0xff, 0xfe]), 960 * ticks++, false), 20);
// Of IVF: a head of 32 bytes, then each frame with 12 bytes before it. VP8 in packets of 1100 bytes (RFC 7741).
const file = readFileSync(camera);
let [at, frames] = [32, 0];
// A file begins with a keyframe.
lines[1].sender.onPictureLossIndication.subscribe(() => (at = 32));
setInterval(() => {
  if (at >= file.length) at = 32;
  const frame = file.subarray(at + 12, at + 12 + file.readUInt32LE(at));
  at += 12 + frame.length;
  for (let from = 0; from < frame.length; from += 1100) {
    const part = Buffer.concat([Buffer.from([from === 0 ? 0x10 : 0]), frame.subarray(from, from + 1100)]);
    send(tracks[1], part, 4500 * frames, from + 1100 >= frame.length);
  }
  frames++;
}, 50);
setInterval(() => console.log(JSON.stringify({ state: peer.connectionState, ...came })), 1000);
