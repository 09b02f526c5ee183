// Does the lab accuse nobody wrongly, and praise nothing that is bad? The situations of situations.mjs, three runs of each.
//
// In no run may the first bottleneck be one that had no part in it (false accusation), and no bad run may end with 0 (false
// praise). Of the situations at least nine in ten must be named rightly in all three runs; the others say `unexplained`.
// A run whose generator was at its limit, where that is not what was done, says nothing and is made again, twice at most.
//
// About 50 minutes; it goes on where it was cut. `evidence-situations.sh "a call of four"` runs that alone. Writes
// target/evidence/situations.json.

import { finish, rowMaker } from "./evidence.mjs";
import { SITUATIONS } from "./situations.mjs";

const RUNS = 3;
const TRIES = 3;
/** Of forty, thirty-six. */
const NAMED = 0.9;

const rows = [];
const row = rowMaker("situations", rows);

async function play({ run, says, codes, person, never }) {
  let made = await run();
  for (let tries = 1; tries < TRIES && made.code === 110 && !codes.includes(110); tries++) made = await run();
  const { first = null, person: who = null, evidence = [] } = made.summary?.bottleneck ?? {};
  const accused = never.includes(first);
  const praised = made.code === 0 && !codes.includes(0);
  const blamed = made.code !== 0 && codes.includes(0);
  const right = codes.includes(made.code) && (says.length === 0 || says.includes(first)) && (person ?? who) === who;
  return {
    exit_code: made.code,
    first,
    person: who,
    right,
    accused,
    praised,
    blamed,
    evidence: evidence.slice(0, 4),
    failures: (made.summary?.failures ?? []).slice(0, 3),
    // Each is kept, however it came out: what is wrong once is wrong.
    holds: true,
  };
}

for (const situation of SITUATIONS)
  for (let nth = 1; nth <= RUNS; nth++)
    await row(situation.name, `${situation.name}, run ${nth}`, () => play(situation));

const of = ({ name }) => rows.filter(({ what }) => what.startsWith(`${name}, run `));
const played = SITUATIONS.filter((situation) => of(situation).length > 0);
const named = played.filter((situation) => of(situation).every(({ right }) => right));
const accused = rows.filter((row) => row.accused || row.blamed);
const praised = rows.filter((row) => row.praised);
for (const situation of played.filter((one) => !named.includes(one)))
  console.log(`not named: ${situation.name} (${of(situation).map(({ exit_code, first }) => `${exit_code} ${first}`).join(", ")})`);
console.log(`${named.length} of ${played.length} named rightly, ${accused.length} false accusations, ${praised.length} times false praise`);
const ok = accused.length === 0 && praised.length === 0 && named.length >= NAMED * played.length;
finish("situations", rows, { told: true, ok: ok && played.length > 0 });
