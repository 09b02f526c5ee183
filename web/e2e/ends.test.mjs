// How runs end before their time: `make evidence-ends` in short.

import assert from "node:assert/strict";
import { test } from "node:test";

process.env.MOIM_BIN ??= new URL("../../target/release/moim", import.meta.url).pathname;
const { keyInView, labKilled, ownServerKilled } = await import("../../scripts/ends.mjs");

const holds = (row) => assert.ok(row.holds, JSON.stringify(row, null, 2));

test("Ctrl-C in the terminal view ends the run with a full report and restores the terminal", async () => {
  holds(await keyInView("Ctrl-C", "\x03"));
});

test("a lab that is killed leaves no server behind, and its record makes a report", async () => {
  holds(await labKilled());
});

test("a run whose own server is killed ends at once, and says so", async () => {
  holds(await ownServerKilled());
});
