// One mixed room of up to 2000 people on this machine: a server whose limits let them in, on CPUs of its own, and a lab
// on CPU 1.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { load, serve } from "./evidence.mjs";

/** So many speak, and are heard at once at most. */
export const LOUD = 5;
/** The lab's own CPU. */
export const LAB = { wrap: ["taskset", "-c", "1"], flags: ["--plain"] };

/** `silent`: whether those send who never speak; else they listen alone. */
export const roles = (people, { silent = true } = {}) => `    roles:
      - { name: speaker, weight: ${LOUD}, speaks_pct: 40 }
      - { name: silent, weight: ${people - LOUD}, ${silent ? "speaks_pct: 0" : "audio: false"} }
`;

/**
 * Plays a scenario (without name and target) against a server of its own. `cpus`: the server's, `flags`: what it is told,
 * `settings`: more of its settings, `watch`: called with the server; what it returns is called when the run has ended, once
 * or twice, and what that returns is part of the result. `by`: what plays it.
 */
export async function play(
  rest,
  { cpus = "0", flags = [], settings = "", watch = () => () => ({}), by = load } = {},
) {
  const scratch = mkdtempSync(join(tmpdir(), "moim-crowd-"));
  const config = join(scratch, "moim.yaml");
  writeFileSync(
    config,
    `http: { bind: "127.0.0.1:7880" }
admin: { bind: "127.0.0.1:7880" }
media: { bind: ["127.0.0.1"] }
guests: all
limits: { participants_per_room: 2000, connections_per_address: 5000, loudest: ${LOUD} }
${settings}`,
  );
  let [server, seen] = [null, null];
  try {
    server = await serve({ wrap: ["taskset", "-c", cpus], flags: ["--config", config, ...flags] });
    seen = watch(server);
    const scenario = `name: crowd\ntarget: { adapter: moim, url: "${server.url}" }\n${rest}`;
    const run = await by(scenario, LAB);
    return { ...run, ...seen() };
  } finally {
    seen?.();
    await server?.stop();
    rmSync(scratch, { recursive: true });
  }
}
