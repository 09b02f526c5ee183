// A link between two network namespaces that carries any IP, media of browsers and the kernel's own TCP alike. Each end has
// one device and one address on it; its frames travel as VXLAN over UDP to a relay (link-relay.mjs), which limits the rate and
// delays, and may lose some. The relay counts each packet. Signaling does not take the link: in either namespace and here,
// 127.0.0.1 leads to what listens at the far end (link-end.mjs). All ends with `close`, or with the process that is first in
// its PID namespace.

import { execFileSync, fork, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readlinkSync, rmSync } from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./evidence.mjs";
import { door } from "./link-end.mjs";

/** The ends: `a` has the pages, `b` the server. Ports are those of the frames. */
export const ENDS = {
  a: { address: "10.98.0.1", port: 4001 },
  b: { address: "10.98.0.2", port: 4002 },
};
const RELAY = "10.99.0.1";
/** The HTTP port of the server. */
const PORT = 7880;
const HERE = new URL(".", import.meta.url).pathname;

const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
const inside = (pid) => ["nsenter", "-t", String(pid), "-n"];
const sh = (line, wrap = []) => {
  const [command, ...rest] = [...wrap, "sh", "-ec", line];
  execFileSync(command, rest, { env, stdio: ["ignore", "pipe", "inherit"] });
};

/** A device makes checksums itself (ETHTOOL_STXCSUM): in a frame that travels as payload nobody fills them in. */
const CHECKSUMS = `use Socket; socket(S, AF_INET, SOCK_DGRAM, 0) or die $!; my $off = pack("LL", 0x17, 0);
  my $ask = pack("a16p", $ARGV[0], $off); ioctl(S, 0x8946, $ask) or die $!;`;

/** A namespace, and the process that keeps it. */
async function namespace() {
  const keeper = spawn("unshare", ["-n", "sleep", "infinity"], {
    stdio: "ignore",
  });
  process.once("exit", () => keeper.kill("SIGKILL"));
  const net = (of) => readlinkSync(`/proc/${of}/ns/net`);
  await until("a network namespace", () => net(keeper.pid) !== net("self"));
  sh("ip link set lo up", inside(keeper.pid));
  return keeper;
}

/** Ends a process that was started here. */
const end = (child) =>
  new Promise((done) => {
    if (child.exitCode !== null || child.signalCode !== null) return done();
    child.once("exit", done).kill("SIGKILL");
  });

/** Puts an end's device into its namespace; `carrier` is the namespace that its frames travel through. */
function device({ address, port }, pid, carrier) {
  const name = `end${port}`;
  const kind = `type vxlan id 1 remote ${RELAY} dstport ${port} dev wire1 nolearning`;
  sh(
    `ip link add ${name} ${kind}; ip link set ${name} mtu 1500 netns ${pid}`,
    inside(carrier),
  );
  const [command, ...rest] = [...inside(pid), "perl", "-e", CHECKSUMS, name];
  execFileSync(command, rest, { stdio: ["ignore", "ignore", "inherit"] });
  // NewReno, as in our own runs (tests/networks/tcp.rs). A kernel's default may be another.
  const tcp = "echo reno > /proc/sys/net/ipv4/tcp_congestion_control";
  sh(
    `ip addr add ${address}/24 dev ${name}; ip link set ${name} up; ${tcp}`,
    inside(pid),
  );
}

/** The relay's turn comes before that of encoders, if it is allowed that. */
const IN_TIME =
  spawnSync("chrt", ["-f", "10", "true"]).status === 0
    ? ["chrt", "-f", "10"]
    : [];

/** Starts a module as a process with messages. */
function start(module, args, wrap) {
  const [execPath, ...execArgv] = [...wrap, process.execPath];
  return fork(`${HERE}${module}`, args, { execPath, execArgv, env });
}

/** What a process answers. One thing is asked at a time. */
const ask = (child, what) =>
  new Promise((done, fail) => {
    const ended = () => fail(new Error(`${child.spawnargs.join(" ")} ended`));
    child.once("exit", ended).once("message", (answer) => {
      child.off("exit", ended);
      done(answer);
    });
    child.send({ do: what });
  });

/**
 * The link, ready to carry. Throws where this process has not a network namespace for itself.
 * With `here` the pages' end is that namespace, and not one more.
 */
export async function connect({ here = false } = {}) {
  if (Object.keys(networkInterfaces()).some((name) => name !== "lo"))
    throw new Error("this process has no network namespace of its own");
  const pages = here ? [] : [await namespace()];
  const [far, carrier, hub] = [await namespace(), await namespace(), await namespace()];
  const [a, b] = [(pages[0] ?? process).pid, far.pid];
  const wire = `ip link add wire0 type veth peer name wire1 netns ${carrier.pid}`;
  sh(`${wire}; ip addr add ${RELAY}/24 dev wire0; ip link set wire0 mtu 1600 up`, inside(hub.pid));
  sh("ip addr add 10.99.0.2/24 dev wire1; ip link set wire1 mtu 1600 up", inside(carrier.pid));
  device(ENDS.a, a, carrier.pid);
  device(ENDS.b, b, carrier.pid);
  // Firefox takes an address only from where a default route leads.
  if (here) sh(`ip route add default via ${ENDS.b.address}`);
  const dir = mkdtempSync(join(tmpdir(), "moim-link-"));
  process.once("exit", () => rmSync(dir, { recursive: true, force: true }));
  const path = join(dir, "signaling");
  const relay = start("link-relay.mjs", [], [...inside(hub.pid), ...IN_TIME]);
  const ends = [
    ...pages.map(() =>
      start(
        "link-end.mjs",
        ["a", path, PORT, ENDS.b.address].map(String),
        inside(a),
      ),
    ),
    start("link-end.mjs", ["b", path, PORT].map(String), inside(b)),
  ];
  await Promise.all([relay, ...ends].map((child) => ask(child, "hello")));
  const signaling = await door(PORT, path);
  return {
    url: `http://127.0.0.1:${PORT}`,
    /** What runs a command at an end. */
    inside: { a: inside(a), b: inside(b) },
    /** Ends all that belongs to it. */
    close: async () => {
      await signaling.close();
      await Promise.all([relay, ...ends].map(end));
      await Promise.all([...pages, far, carrier, hub].map(end));
      // A namespace ends some time after its last process, and its devices with it.
      await until("the link to be gone", () =>
        Object.keys(networkInterfaces()).every((name) => name === "lo"),
      );
      rmSync(dir, { recursive: true, force: true });
    },
    /** Rates in kbit/s from now on, and which part of the packets to pages is lost. */
    set: (forward, backward, loss = 0) =>
      relay.send({ do: "set", forward, backward, loss }),
    /** Whoever sends from a new UDP port at `a` from now on is this flow, with this delay each way, in ms. */
    expect: (flow, delay) => relay.send({ do: "expect", flow, delay }),
    /** Forgets what it counted: seconds are counted from now on. */
    begin: () => relay.send({ do: "begin" }),
    /** What it counted: see link-relay.mjs. */
    take: () => ask(relay, "take"),
    /** TCP from `a` to `b`: so many connections without end, or so many that send files and rest; ended again by zeros. */
    tcp: (long, short) => ends[0].send({ do: "tcp", long, short }),
  };
}
