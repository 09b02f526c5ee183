// Another server beside ours: a binary with one file of settings, started for a run in a network namespace of its own, and
// ended after it.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { listens, until } from "./evidence.mjs";

/** The last word of what a binary says of its version; null where there is none. */
export function versionOf(binary) {
  const { status, stdout } = spawnSync(binary, ["--version"], { encoding: "utf8" });
  return status === 0 ? stdout.trim().split(/\s+/).at(-1) : null;
}

/** Calls `run` with a scenario's target while `binary` runs on CPU 0 with these settings. `line`: its arguments, by the file. */
export async function atPeer({ name, binary, settings, line, port, target }, run) {
  const dir = mkdtempSync(join(tmpdir(), "moim-peer-"));
  const file = join(dir, "settings.yaml");
  writeFileSync(file, settings);
  const child = spawn("taskset", ["-c", "0", binary, ...line(file)], { stdio: "ignore", cwd: dir });
  const ended = new Promise((done) => child.once("exit", done));
  // A polite end may wait until everybody has left.
  const end = () => child.kill("SIGKILL");
  process.once("exit", end);
  try {
    await until(name, () => listens(port));
    return await run(target);
  } finally {
    process.off("exit", end);
    end();
    await ended;
    rmSync(dir, { recursive: true });
  }
}
