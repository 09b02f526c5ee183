// The relay of the link of link.mjs: frames come from one end and leave for the other after their turn at a limited rate and a
// delay. What would wait longer than the queue allows is dropped. A change of the rate leaves what waits its time, as the lab's
// link does. Answers to `take`: for each way packets as [second, flow, bytes of IP, ms in the queue or null if dropped], the
// ports of each flow, and how late the relay itself was, in ms.

import { createSocket } from "node:dgram";
import { percentile, random } from "./evidence.mjs";
import { SINK_PORT } from "./link-end.mjs";

const QUEUE_MS = 300;
/** One way, where a flow has none of its own. */
const DELAY_MS = 50;
/** Before a frame's IP packet: the headers of VXLAN and Ethernet. */
const HEAD = 8 + 14;
/** Timers have whole milliseconds. What is due so soon leaves now. */
const EARLY_MS = 0.5;

const now = () => performance.now();

let began = now();
const draw = random(1);
/** Flow of a UDP port at `a`, and what a new one is. */
const flows = new Map();
let next = { flow: "none", delay: DELAY_MS };
/** Ports that each flow had, with what they carried in bytes. */
let ports = {};
let late = [];

/** The flow of an IPv4 packet, with its delay; `at` is where the port of end `a` is. */
function flowOf(frame, at) {
  const udp = HEAD + 4 * (frame[HEAD] & 15);
  const protocol = frame[HEAD + 9];
  if (protocol === 6) {
    const isSink = frame.readUInt16BE(udp + (at === 0 ? 2 : 0)) === SINK_PORT;
    return { flow: isSink ? "tcp" : "else", delay: DELAY_MS };
  }
  if (protocol !== 17) return { flow: "else", delay: DELAY_MS };
  const port = frame.readUInt16BE(udp + at);
  if (!flows.has(port)) flows.set(port, next);
  const found = flows.get(port);
  const carried = (ports[found.flow] ??= {});
  carried[port] = (carried[port] ?? 0) + frame.length - HEAD;
  return found;
}

/** One way: from a socket to another, whose end listens at `to`. */
class Way {
  kbps = 100_000;
  /** Which part of the packets is lost on its way. */
  loss = 0;
  packets = [];
  /** When the last packet has had its turn. */
  #busyUntil = 0;
  /** Frames under way by their delay, each list in order. */
  #underWay = new Map();
  #timer = null;

  constructor(from, to, portAt) {
    this.out = to;
    from.on("message", (frame) => this.#offer(frame, portAt));
  }

  #offer(frame, portAt) {
    const at = now();
    // What is no IPv4, such as ARP, takes no time.
    if (frame.readUInt16BE(HEAD - 2) !== 0x0800) return this.#leave(frame, at);
    const { flow, delay } = flowOf(frame, portAt);
    const bytes = frame.length - HEAD;
    const row = [(at - began) / 1000, flow, bytes, null];
    this.packets.push(row);
    const turn = Math.max(at, this.#busyUntil);
    if (turn - at > QUEUE_MS) return;
    this.#busyUntil = turn + (bytes * 8) / this.kbps;
    row[3] = this.#busyUntil - at;
    if (this.loss > 0 && draw() < this.loss) return;
    const list = this.#underWay.get(delay) ?? [];
    this.#underWay.set(delay, list);
    list.push({ due: this.#busyUntil + delay, frame });
    this.#flush();
  }

  #flush() {
    const at = now();
    let soonest = Infinity;
    for (const list of this.#underWay.values()) {
      while (list.length > 0 && list[0].due <= at + EARLY_MS) {
        const { due, frame } = list.shift();
        this.#leave(frame, due);
      }
      soonest = Math.min(soonest, list[0]?.due ?? Infinity);
    }
    clearTimeout(this.#timer);
    if (soonest < Infinity)
      this.#timer = setTimeout(
        () => this.#flush(),
        Math.max(0, soonest - now()),
      );
  }

  #leave(frame, due) {
    late.push(now() - due);
    this.out.socket.send(frame, this.out.port, this.out.address);
  }
}

const socket = async (port) => {
  const made = createSocket({ type: "udp4", recvBufferSize: 1 << 21 });
  await new Promise((done) => made.bind(port, "10.99.0.1", done));
  return made;
};
const [a, b] = [await socket(4001), await socket(4002)];
const address = "10.99.0.2";
const forward = new Way(a, { socket: b, port: 4002, address }, 0);
const backward = new Way(b, { socket: a, port: 4001, address }, 2);

function begin() {
  began = now();
  [forward.packets, backward.packets, ports, late] = [[], [], {}, []];
}

function take() {
  const ms = (value) => Math.round(10 * value) / 10;
  return {
    forward: forward.packets,
    backward: backward.packets,
    ports,
    late: {
      p99_ms: ms(percentile(late, 99)),
      most_ms: ms(late.reduce((most, one) => Math.max(most, one), 0)),
    },
  };
}

process.on("message", (message) => {
  if (message.do === "set") {
    [forward.kbps, backward.kbps] = [message.forward, message.backward];
    backward.loss = message.loss;
  }
  if (message.do === "expect")
    next = { flow: message.flow, delay: message.delay };
  if (message.do === "begin") begin();
  if (message.do === "take") process.send(take());
  if (message.do === "hello") process.send("hello");
});
process.on("disconnect", () => process.exit());
