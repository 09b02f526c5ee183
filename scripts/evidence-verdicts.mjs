// Does a run end with what it deserves? Five runs of scenarios/audio-450.yaml, whose load may be too much for the
// lab: each must pass (0) or be inconclusive because of the generator (110, with the reason), and may never accuse
// the server. One of scenarios/networks/one-layer.yaml, a call with one participant behind a slow link whose pictures
// rest, with a threshold that none may: it must fail (99) and name their link as the first bottleneck. A run of that
// one whose generator was at its limit says nothing and is made again, twice at most.
//
// Takes about 5 minutes and goes on where it stopped. `evidence-verdicts.sh crowd link` makes those parts alone.
// Writes target/evidence/verdicts.json.

import { readFileSync } from "node:fs";
import { finish, healthy, load, rowMaker } from "./evidence.mjs";

const ROUNDS = 5;
/** The scenario's first bot is the one on its network. */
const SLOW = "bot-1";

const scenario = (name) => readFileSync(`scenarios/${name}.yaml`, "utf8");
const rows = [];
const row = rowMaker("verdicts", rows);

/** What a run says of itself. */
function said({ code, summary }) {
  const { bottleneck, generator } = summary ?? {};
  return {
    exit_code: code,
    verdict: summary?.verdict ?? null,
    first: bottleneck?.first ?? null,
    person: bottleneck?.person ?? null,
    evidence: bottleneck?.evidence ?? [],
    generator: generator?.reasons ?? [],
    failures: (summary?.failures ?? []).slice(0, 5),
  };
}

for (let round = 1; round <= ROUNDS; round++)
  await row("crowd", `450 people in a mixed room, round ${round}`, async () => {
    const found = said(await load(scenario("audio-450")));
    const passed = found.exit_code === 0 && found.generator.length === 0;
    const own = found.exit_code === 110 && found.generator.length > 0;
    const blamed = own && found.first !== "generator";
    return { ...found, holds: (passed || own) && !blamed };
  });

await row("link", "a call of four, one behind 1.5 Mbit/s", async () => {
  const none = 'paused_ratio: ["max < 0.5"]';
  const text = scenario("networks/one-layer").replace(/paused_ratio: .*/, none);
  const run = await healthy(text, { most: 3 });
  const found = said(run);
  const linked = found.first === "link" && found.person === SLOW;
  return {
    ...found,
    tries: run.tries,
    holds: found.exit_code === 99 && linked,
  };
});
finish("verdicts", rows, { told: true });
