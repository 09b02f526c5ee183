// Ends runs in all the ways in which they end before their time (scripts/ends.mjs) and looks at
// what is left: exit code, record, report, processes, terminal.
// Writes target/evidence/ends.json; exits non-zero where a row does not hold.

import {
  interruptedPlain,
  keyInView,
  labKilled,
  ownServerKilled,
  targetKilled,
} from "./ends.mjs";
import { finish } from "./evidence.mjs";

const rows = [];
for (const end of [
  interruptedPlain,
  () => keyInView("Ctrl-C", "\x03"),
  () => keyInView("q", "q"),
  labKilled,
  () => labKilled({ chromium: 1 }),
  ownServerKilled,
  targetKilled,
]) {
  rows.push(await end());
}
finish("ends", rows);
