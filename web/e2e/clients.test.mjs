// Other people's clients in one room: each joins, publishes, receives, and survives that a NAT gives it another port.
// docs/clients.md shows two of them. scripts/clients.sh makes them ready. The NAT is the kernel's own, and forgets its ports when it is told to.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { ADMIN, counter, serve, until } from "./world.mjs";

const ROOT = new URL("../..", import.meta.url).pathname;
const READY = `${ROOT}target/clients`;
const CLIENTS = `${ROOT}tests/clients`;
const ADDRESS = "10.79.0.1";
const PORT = 7882;
const PICTURES = `${ROOT}media/video-360p.ivf`;
/** Media is back so soon after a port changed; each client says once a second how much came. */
const BACK_MS = 2_000 + 1_000;

const COMMANDS = {
  aiortc: [`${READY}/aiortc/bin/python`, [`${CLIENTS}/aiortc/client.py`], []],
  pion: [`${READY}/pion`, [], [PICTURES]],
  werift: [process.execPath, [`${READY}/werift/client.mjs`], [PICTURES]],
  gstreamer: ["/usr/bin/python3", [`${CLIENTS}/gstreamer/client.py`], [`${READY}/certificate.pem`]],
};

const run = (line) => execFileSync("sh", ["-ec", line], { stdio: ["ignore", "pipe", "pipe"] });

/** An address that is not the loopback's: some clients gather no candidate there. */
function address(t) {
  run(`ip link add moim-cl-0 type veth peer name moim-cl-1
    ip addr add ${ADDRESS}/24 dev moim-cl-0
    ip link set moim-cl-0 up
    ip link set moim-cl-1 up`);
  t.after(() => run("ip link del moim-cl-0"));
}

/** A NAT before the server's port. Each call of what it returns gives everybody another port. */
function nat(t) {
  const table = `moim_nat_${process.pid}`;
  execFileSync("nft", ["-f", "-"], {
    input: `table ip ${table} {
      chain post {
        type nat hook postrouting priority 100;
        udp dport ${PORT} snat to ${ADDRESS}:40000-49999 random
      }
    }\n`,
  });
  t.after(() => execFileSync("nft", ["delete", "table", "ip", table]));
  return () => run("conntrack -F");
}

/** A client that runs until the test ends, and what it said each second. */
function client(t, name, room, whole = true) {
  const [command, before, after] = COMMANDS[name];
  const args = [...before, "ws://127.0.0.1:7880", room, name, ...(whole ? after : [])];
  const env = { ...process.env, PYTHONPATH: name === "gstreamer" ? `${READY}/gstreamer` : "" };
  const child = spawn(command, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  t.after(() => child.kill("SIGKILL"));
  const said = [];
  let errors = "";
  child.stdout.on("data", (data) => {
    for (const line of String(data).split("\n"))
      if (line.startsWith("{")) said.push({ atMs: Date.now(), ...JSON.parse(line) });
  });
  child.stderr.on("data", (data) => (errors += data));
  const last = () => said.at(-1) ?? { state: "new", audio: 0, video: 0 };
  /** Waits until more sound and pictures came than by now; resolves with how long that took, in ms. */
  const flows = async (what) => {
    const [from, begin] = [last(), Date.now()];
    const more = () => last().audio > from.audio + 20 && last().video > from.video + 3;
    await until(`${what} in ${name}`, more).catch((error) => {
      throw new Error(`${error.message}; it said ${JSON.stringify(said.slice(-5))} ${errors.slice(-500)}`);
    });
    return last().atMs - begin;
  };
  return { name, last, flows };
}

test("other people's clients join, publish, receive and survive that their port changes", async (t) => {
  const missing = (name) => `${READY}/${name}.missing`;
  const there = [];
  for (const name of Object.keys(COMMANDS))
    if (existsSync(missing(name)))
      await t.test(name, { skip: readFileSync(missing(name), "utf8") }, () => {});
    else there.push(name);
  if (there.length === 0) return;
  address(t);
  const config = `
http: { bind: "127.0.0.1:7880" }
admin: { token: "${ADMIN}" }
media: { bind: ["${ADDRESS}"] }
guests: all
`;
  // From the beginning: a flow that began without it would be taken for the answer to what the server sends.
  const change = nat(t);
  const { log } = await serve(t, { config });
  // One who sends alone would see nobody.
  const names = there.length === 1 ? [there[0], there[0]] : there;
  const clients = names.map((name) => client(t, name, "mixed"));
  await Promise.all(clients.map(({ flows }) => flows("media")));
  if (there.includes("gstreamer"))
    await t.test("a certificate of RSA, as webrtcbin makes it, is told", async () => {
      const began = Date.now();
      const rsa = client(t, "gstreamer", "mixed", false);
      await until("the server's log", () => /media failed .*certificate_kind/.test(log()));
      assert.equal(rsa.last().audio, 0);
      console.log(`# it was told ${Date.now() - began} ms after the client began`);
    });
  const moved = () => counter("http://127.0.0.1:7880", "moim_media_moved_total");
  for (let nth = 1; nth <= 3; nth++) {
    const [before, began] = [await moved(), Date.now()];
    change();
    // What was under way does not count.
    await until("all have moved", async () => (await moved()) >= before + clients.length);
    const took = Date.now() - began;
    const flow = clients.map(({ flows }) => flows(`media at port ${nth}`));
    const back = (await Promise.all(flow)).map((ms) => ms + took);
    const told = clients.map(({ name }, at) => `${name} ${(back[at] / 1000).toFixed(1)} s`);
    console.log(`# media after port ${nth} changed: ${told.join(", ")}`);
    for (const [at, { name }] of clients.entries())
      await t.test(`${name}, port ${nth}`, () => {
        assert.equal(clients[at].last().state, "connected");
        assert.ok(back[at] <= BACK_MS, `${back[at]} ms`);
      });
  }
});
