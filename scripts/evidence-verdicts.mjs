// Does the lab accuse the right side? Five runs of scenarios/audio-450.yaml end with 0, or with 110 because the generator
// was the limit; scenarios/slow-downlink.yaml ends with 99, names the participant who sees nothing, and their link.
// Takes about 5 minutes and goes on where it stopped. Writes target/evidence/verdicts.json.

import { readFileSync } from "node:fs";
import { finish, keeper, load, loadavg } from "./evidence.mjs";

const ROUNDS = 5;
const before = loadavg();
const kept = keeper("verdicts");
const rows = [];

/** A scenario's run, and what must hold of it. */
async function run(what, scenario, judge) {
  let row = kept.find(what);
  if (!row) {
    const text = readFileSync(`scenarios/${scenario}.yaml`, "utf8");
    const { code, summary } = await load(text);
    const { first, evidence } = summary.bottleneck;
    const { reasons } = summary.generator;
    const failures = summary.failures.slice(0, 5);
    row = { what, value: code, first, reasons, evidence, failures };
    row.holds = judge(code, summary);
    kept.keep(row);
  }
  rows.push(row);
  console.log(row);
}

for (let round = 1; round <= ROUNDS; round++)
  await run(
    `450 people in one mixed room, round ${round}: exit code`,
    "audio-450",
    (code, { bottleneck }) =>
      code === 0 || (code === 110 && bottleneck.first === "generator"),
  );

await run(
  "a call of four, one behind 1.5 Mbit/s: exit code",
  "slow-downlink",
  (code, { bottleneck, networks, failures }) => {
    const [, person] = /the link to (\S+) /.exec(bottleneck.evidence.join()) ?? [];
    const named = person && failures.every((text) => text.startsWith(person));
    const lost = networks[0].down.loss_pct;
    return code === 99 && bottleneck.first === "link" && named && lost > 2;
  },
);
finish("verdicts", rows, before, { told: true });
