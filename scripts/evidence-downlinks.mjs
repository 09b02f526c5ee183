// Calls on bad networks, for real: each of scenarios/networks must hold all its thresholds. Behind the slow link of
// slow-downlink and one-layer, no three seconds from the tenth on may bring more than 1.1 times the link's rate. A run whose
// generator was at its limit is made again, twice at most.
//
// Takes about 8 minutes and goes on where it stopped. `evidence-downlinks.sh slow-downlink shared-link` makes those alone.
// Writes target/evidence/downlinks.json.

import { readFileSync } from "node:fs";
import { finish, healthy, rowMaker } from "./evidence.mjs";

const SCENARIOS = [
  "slow-downlink",
  "one-layer",
  "slow-browser",
  "loss-5",
  "loss-10-bursts",
  "shared-link",
];
/** What the slow link carries, and how much may be sent to it. */
const RATE_MBIT = 1.5;
const MOST_MBIT = 1.1 * RATE_MBIT;
const SETTLED_MS = 10_000;

const rows = [];
const row = rowMaker("downlinks", rows);

/** The most that was sent to a link in a window of three seconds, in Mbit/s. */
function busiest(machine) {
  const settled = machine.filter(({ t_ms }) => t_ms > SETTLED_MS + 3000);
  const links = settled.flatMap(({ person_links }) => person_links ?? []);
  const down = links.filter(({ way }) => way === "down");
  return Math.max(0, ...down.map((link) => link.mbit_per_s));
}

for (const name of SCENARIOS)
  await row(name, `scenarios/networks/${name}.yaml`, async () => {
    const text = readFileSync(`scenarios/networks/${name}.yaml`, "utf8");
    const { code, summary, machine, tries } = await healthy(text, { most: 3 });
    const most_mbit = busiest(machine);
    const limited = text.includes("rate_kbps: 1500");
    return {
      exit_code: code,
      tries,
      most_mbit: limited ? most_mbit : null,
      thresholds: summary?.thresholds?.map(({ expr, value }) => [expr, value]),
      failures: summary?.failures ?? [],
      holds: code === 0 && (!limited || most_mbit <= MOST_MBIT),
    };
  });
finish("downlinks", rows, { told: true });
