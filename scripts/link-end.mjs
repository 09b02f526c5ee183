// What runs at an end of the link of link.mjs: the doors of signaling, and TCP that competes with media.

import { createServer, createConnection } from "node:net";
import { random } from "./evidence.mjs";

/** Where files go. */
export const SINK_PORT = 9;
/** Sizes of files in bytes, and the mean rest between them (RFC 8867, section 5.7). */
const FILE = { least: 100_000, most: 1_000_000 };
const REST_MS = 10_000;

const nothing = () => {};

/** Joins two sockets until one is gone. */
function join(one, other) {
  one.pipe(other).pipe(one);
  for (const [socket, peer] of [
    [one, other],
    [other, one],
  ])
    socket.on("error", nothing).on("close", () => peer.destroy());
}

/** What connects here gets to `to`, a port of 127.0.0.1 or a path, until `close`. */
export const door = (at, to) =>
  new Promise((done, fail) => {
    const open = new Set();
    const server = createServer((socket) => {
      open.add(socket);
      socket.on("close", () => open.delete(socket));
      join(socket, createConnection(to));
    });
    const close = () => {
      const closed = new Promise((gone) => server.close(gone));
      for (const socket of open) socket.destroy();
      return closed;
    };
    const host = typeof at === "number" ? "127.0.0.1" : undefined;
    server.on("error", fail).listen(at, host, () => done({ close }));
  });

const sockets = new Set();
let wanted = 0;

function sends(address) {
  const socket = createConnection(SINK_PORT, address);
  socket.setNoDelay(true);
  sockets.add(socket);
  return socket.on("error", nothing).on("close", () => sockets.delete(socket));
}

/** A connection that sends all the time. */
function long(address) {
  const socket = sends(address);
  const part = Buffer.alloc(16_384);
  const fill = () => {
    while (socket.write(part));
  };
  socket.on("connect", fill).on("drain", fill);
}

/** Connections one after the other, each with a file; it rests before each, also before the first. */
function short(address, draw) {
  const mine = wanted;
  const rest = () => setTimeout(send, -REST_MS * Math.log(1 - draw()));
  const send = () => {
    if (mine !== wanted) return;
    const size = Math.round(FILE.least + (FILE.most - FILE.least) * draw());
    sends(address).on("close", rest).resume().end(Buffer.alloc(size));
  };
  rest();
}

function compete(address, message) {
  wanted += 1;
  for (const socket of sockets) socket.destroy();
  for (let nth = 0; nth < message.long; nth++) long(address);
  for (let nth = 0; nth < message.short; nth++) short(address, random(nth + 1));
}

/** The other end closes once it has read all of a file. */
const sink = () =>
  new Promise((done) =>
    createServer((socket) => socket.on("error", nothing).resume()).listen(
      SINK_PORT,
      done,
    ),
  );

if (process.argv[1].endsWith("link-end.mjs")) {
  const [end, path, port, address] = process.argv.slice(2);
  if (end === "b") await Promise.all([door(path, Number(port)), sink()]);
  else await door(Number(port), path);
  process.on("message", (message) => {
    if (message.do === "tcp") compete(address, message);
    if (message.do === "hello") process.send("hello");
  });
  process.on("disconnect", () => process.exit());
}
