// One mixed room of thousands of people on this machine: a server whose limits let them in, on CPUs of its own, and a lab
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

/** People who come at a rate and stay. */
export const audience = (people, joins_per_second, duration_s) => `duration: ${duration_s}s
rooms:
  - preset: audio_room
    people: { bot: ${people} }
${roles(people)}media: { audio: speech, video: none }
join: { per_second: ${joins_per_second} }
`;

/**
 * Plays a scenario (without name and target) against a server of its own. `cpus`: the server's, `flags`: what it is told,
 * `settings`: more of its settings, `watch`: called with the server; what it returns is called when the run has ended, once
 * or twice, and what that returns is part of the result. `meanwhile`: called with the server's address while the scenario
 * plays; what it finds is `found`. `by`: what plays it.
 */
export async function play(
  rest,
  {
    cpus = "0",
    flags = [],
    settings = "",
    watch = () => () => ({}),
    meanwhile = async () => null,
    by = load,
    lab = LAB,
  } = {},
) {
  const scratch = mkdtempSync(join(tmpdir(), "moim-crowd-"));
  const config = join(scratch, "moim.yaml");
  writeFileSync(
    config,
    `http: { bind: "127.0.0.1:7880" }
admin: { bind: "127.0.0.1:7880" }
media: { bind: ["127.0.0.1"] }
guests: all
limits: { participants_per_room: 9000, connections_per_address: 9000, loudest: ${LOUD} }
${settings}`,
  );
  let [server, seen] = [null, null];
  try {
    server = await serve({ wrap: ["taskset", "-c", cpus], flags: ["--config", config, ...flags] });
    seen = watch(server);
    const scenario = `name: crowd\ntarget: { adapter: moim, url: "${server.url}" }\n${rest}`;
    const playing = by(scenario, lab);
    const found = await meanwhile(server.url).catch((error) => ({ error: String(error) }));
    const run = await playing;
    return { ...run, found, ...seen() };
  } finally {
    seen?.();
    await server?.stop();
    rmSync(scratch, { recursive: true });
  }
}
