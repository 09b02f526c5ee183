// What a server or the lab can be broken with: a control group's quota, a namespace behind a link, busy neighbours.
// Needs root.

import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { serve, sleep, stayAwake } from "./evidence.mjs";

/** The address of what is behind the link. */
export const BESIDE = "10.77.0.2";

function must(line) {
  const { status, stderr } = spawnSync(line[0], line.slice(1));
  if (status !== 0) throw new Error(`${line.join(" ")}: ${stderr}`);
}

/** A control group with a CPU quota, in cores; gives what puts a command into it. */
export function quota(name, cores) {
  const v1 = "/sys/fs/cgroup/cpu";
  const root = existsSync(`${v1}/cpu.cfs_quota_us`) ? v1 : "/sys/fs/cgroup";
  const dir = `${root}/moim-evidence-${process.pid}-${name}`;
  mkdirSync(dir);
  const us = Math.round(cores * 100_000);
  if (root === v1) writeFileSync(`${dir}/cpu.cfs_quota_us`, String(us));
  else writeFileSync(`${dir}/cpu.max`, `${us} 100000`);
  const enter = `echo $$ > ${dir}/cgroup.procs && exec "$@"`;
  return { wrap: ["sh", "-c", enter, "sh"], remove: () => rmdirSync(dir) };
}

/** A second network namespace behind a veth pair, whose side may be limited (Mbit/s). */
export async function namespace(mbit) {
  const holder = spawn("unshare", ["-n", "sleep", "600"], { stdio: "ignore" });
  await sleep(300);
  const inside = ["nsenter", `--net=/proc/${holder.pid}/ns/net`];
  must(["ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"]);
  must(["ip", "link", "set", "vb", "netns", String(holder.pid)]);
  must(["ip", "address", "add", "10.77.0.1/24", "dev", "va"]);
  must(["ip", "link", "set", "va", "up"]);
  must([...inside, "ip", "address", "add", `${BESIDE}/24`, "dev", "vb"]);
  must([...inside, "ip", "link", "set", "vb", "up"]);
  if (mbit) {
    const rate = ["rate", `${Math.round(mbit * 1000)}kbit`];
    const tbf = ["tbf", ...rate, "burst", "16k", "latency", "50ms"];
    must([...inside, "tc", "qdisc", "add", "dev", "vb", "root", ...tbf]);
  }
  const remove = async () => {
    holder.kill("SIGKILL");
    spawnSync("ip", ["link", "delete", "va"]);
    await sleep(200);
  };
  return { wrap: inside, remove };
}

/** A server, on a CPU of its own unless that is null. */
export async function pinned({ wrap = [], cpu = "0", ...options } = {}) {
  const own = cpu === null ? [] : ["taskset", "-c", cpu];
  // Apart from the server the bots have a CPU that is idle most of the time.
  const rest = stayAwake(200, cpu === null ? [] : [1]);
  const server = await serve({ ...options, wrap: [...wrap, ...own] });
  const stop = async (signal) => {
    await server.stop(signal);
    rest();
  };
  return { ...server, stop };
}

/** Processes that keep a CPU busy, before everybody else. */
export function hogs(count, cpu) {
  const loop = "while :; do :; done";
  const each = ["-c", cpu, "nice", "-n", "-15", "timeout", "120", "sh", "-c"];
  const all = Array.from({ length: count }, () =>
    spawn("taskset", [...each, loop], { stdio: "ignore" }),
  );
  return () => all.forEach((child) => child.kill("SIGTERM"));
}
