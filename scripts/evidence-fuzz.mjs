// Twenty minutes of fuzzing over all targets, as many at once as there are CPUs; `--keep` minimises what was found.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  createWriteStream,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { BINARY, finish, keeper } from "./evidence.mjs";

const SECONDS = Number(process.env.MOIM_FUZZ_SECONDS ?? 1200);
/** Most bytes of a target's corpus that are checked in: the sum stays below 1 MiB (tests/fuzz.rs). */
const CORPUS_BYTES = 48 << 10;
/** Most inputs of a target that are checked in, beside those with a name. */
const CORPUS_INPUTS = 60;
const WORK = "target/fuzz/work";
const targets = readdirSync("fuzz/corpus").sort();
const atOnce = Math.min(cpus().length, targets.length);

/** Runs the fuzzer on one target; its exit code and what it said. */
function fuzz(name, flags, log) {
  return new Promise((done) => {
    const env = { ...process.env, MOIM_FUZZ: name, RUST_BACKTRACE: "1" };
    const child = spawn("nice", ["-n", "10", BINARY, ...flags], {
      env,
      stdio: ["ignore", "ignore", "pipe"],
    });
    const file = createWriteStream(log);
    let said = "";
    child.stderr.on("data", (data) => {
      file.write(data);
      said = (said + data).slice(-65536);
    });
    child.once("close", (code) => done({ code, said }));
  });
}

const directory = (...parts) => {
  const path = join(WORK, ...parts);
  mkdirSync(path, { recursive: true });
  return path;
};

async function attack(name, seconds) {
  const artifacts = `${directory(name, "crashes")}/`;
  const flags = [
    `-max_total_time=${seconds}`,
    "-timeout=10",
    "-rss_limit_mb=2048",
    "-print_final_stats=1",
  ];
  flags.push("-verbosity=1", `-max_len=16384`, `-artifact_prefix=${artifacts}`);
  const { code, said } = await fuzz(
    name,
    [...flags, directory(name, "corpus"), `fuzz/corpus/${name}`],
    join(WORK, name, "log"),
  );
  const inputs = Number(
    said.match(/stat::number_of_executed_units: +(\d+)/)?.[1] ?? 0,
  );
  const covered = Number([...said.matchAll(/cov: (\d+)/g)].at(-1)?.[1] ?? 0);
  const row = {
    what: name,
    seconds,
    inputs,
    covered,
    holds: code === 0 && inputs > 0,
  };
  if (code !== 0) {
    const file = said.match(/Test unit written to (\S+)/)?.[1];
    row.input = file ?? null;
    row.why =
      said.match(/panicked at [^\n]*\n[^\n]*|ERROR: libFuzzer: [^\n]*/)?.[0] ??
      `exit ${code}`;
    console.error(`${name}: ${row.why}`);
    console.error(`  log: ${join(WORK, name, "log")}`);
    if (file) {
      console.error(`  input: ${file}`);
      console.error(`  replay: MOIM_FUZZ=${name} ${BINARY} ${file}`);
      console.error(
        `  for good: cp ${file} fuzz/corpus/${name}/ && cargo test --release --workspace --test integration fuzz::`,
      );
    }
  }
  return row;
}

/** Replaces a target's checked-in corpus by the smallest inputs that cover the same, as far as they fit. */
async function keep(name) {
  const merged = directory(name, "merged");
  rmSync(merged, { recursive: true });
  mkdirSync(merged);
  const home = `fuzz/corpus/${name}`;
  const flags = [
    "-merge=1",
    "-max_len=4096",
    merged,
    home,
    directory(name, "corpus"),
  ];
  const { code, said } = await fuzz(name, flags, join(WORK, name, "merge.log"));
  if (code !== 0) throw new Error(`${name}: ${said}`);
  const inputs = readdirSync(merged).map((file) =>
    readFileSync(join(merged, file)),
  );
  inputs.sort((a, b) => a.length - b.length);
  // Small and large ones alike.
  const step = Math.max(1, inputs.length / CORPUS_INPUTS);
  let bytes = 0;
  const named = new Set(
    readdirSync(home).filter((file) => !/^[0-9a-f]{16}$/.test(file)),
  );
  for (const file of readdirSync(home))
    if (!named.has(file)) rmSync(join(home, file));
  for (let at = 0; at < inputs.length; at += step) {
    const input = inputs[Math.floor(at)];
    bytes += input.length;
    if (bytes > CORPUS_BYTES) break;
    const digest = createHash("sha256")
      .update(input)
      .digest("hex")
      .slice(0, 16);
    writeFileSync(join(home, digest), input);
  }
  console.log(`${name}: ${readdirSync(home).length} inputs`);
}

/** Works through the targets, so many at once. */
async function each(work) {
  const rest = [...targets];
  const worker = async () => {
    for (let name = rest.shift(); name; name = rest.shift()) await work(name);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

if (process.argv.includes("--keep")) {
  await each(keep);
} else {
  const seconds = Math.max(1, Math.round((SECONDS * atOnce) / targets.length));
  const kept = keeper("fuzz");
  const rows = [];
  await each(async (name) => {
    const old = kept.find(name);
    const row =
      old?.holds && old.seconds >= seconds ? old : await attack(name, seconds);
    if (row !== old) kept.keep(row);
    console.log(
      `${name}: ${row.inputs} inputs in ${row.seconds} s, ${row.covered} edges, ${row.holds ? "holds" : "BROKEN"}`,
    );
    rows.push(row);
  });
  finish("fuzz", rows, { told: true });
}
