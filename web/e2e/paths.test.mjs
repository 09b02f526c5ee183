// Which way media takes, and what becomes of it when that way is closed: all by getStats.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { browser, enter, inbound, serve, stats, until } from "./world.mjs";

const PORT = 7882;

/** Closes a way to and from the server's media port, and what opens it again. */
function close(t, match) {
  const table = `moim_e2e_${process.pid}`;
  const rules = (hook, port) => `
    chain ${hook} { type filter hook ${hook} priority 0;
      ${match} ${port} ${PORT} drop
    }`;
  // The namespace is the test's own.
  execFileSync("nft", ["-f", "-"], {
    input: `table inet ${table} {${rules("input", "dport")}${rules("output", "sport")}\n}\n`,
  });
  let closed = true;
  const open = () => {
    if (closed) execFileSync("nft", ["delete", "table", "inet", table]);
    closed = false;
  };
  t.after(open);
  return open;
}

/** The pair that carries media now: protocol and bytes. */
async function pair(person) {
  const all = await stats(person);
  const transport = all.find((s) => s.type === "transport" && s.selectedCandidatePairId);
  const selected = all.find((s) => s.id === transport?.selectedCandidatePairId);
  const local = all.find((s) => s.id === selected?.localCandidateId);
  return local && { protocol: local.protocol, bytes: selected.bytesReceived };
}

/** Waits until sound and pictures come, more than have come by now. */
async function flows(person, what) {
  const count = async (kind, field) => (await inbound(person, kind)).reduce((sum, s) => sum + s[field], 0);
  const [samples, frames] = [
    await count("audio", "totalSamplesReceived"),
    await count("video", "framesDecoded"),
  ];
  await until(
    `${what}: sound and pictures`,
    async () =>
      (await count("audio", "totalSamplesReceived")) > samples + 48_000 &&
      (await count("video", "framesDecoded")) > frames + 10,
  );
}

async function two(t, url) {
  const launched = await browser(t);
  const people = [
    await enter(t, launched, url, "garden", "Ada"),
    await enter(t, launched, url, "garden", "Min"),
  ];
  await Promise.all(people.map((person) => flows(person, person.name)));
  return people;
}

test("where no UDP comes through, TCP carries the call", async (t) => {
  close(t, "udp");
  const { url } = await serve(t);
  const people = await two(t, url);
  for (const person of people) {
    assert.equal((await pair(person)).protocol, "tcp", person.name);
    const remote = (await stats(person)).filter((s) => s.type === "remote-candidate");
    assert.ok(
      remote.some((s) => s.protocol === "tcp" && s.port === PORT),
      JSON.stringify(remote),
    );
    assert.deepEqual(person.errors, []);
  }
});

test("UDP closed in the middle of a call moves it to TCP", async (t) => {
  const { url } = await serve(t);
  const people = await two(t, url);
  // The first pair that connects is not always the best.
  for (const person of people)
    await until(`${person.name} on UDP`, async () => (await pair(person))?.protocol === "udp");
  close(t, "udp");
  const closed = Date.now();
  for (const person of people) {
    await until(`${person.name} on TCP`, async () => (await pair(person))?.protocol === "tcp", 60);
    await flows(person, `${person.name} by TCP`);
    assert.equal(person.errors.length, 0, person.errors.join());
  }
  console.log(`# on TCP ${Math.round((Date.now() - closed) / 1000)} s after UDP was closed`);
});

test("a network cut of 5 s ends by itself", async (t) => {
  const { url } = await serve(t);
  const people = await two(t, url);
  const before = await Promise.all(people.map((person) => person.page.evaluate(() => window.moim.room.me)));
  const open = close(t, "meta l4proto { tcp, udp } th");
  await new Promise((done) => setTimeout(done, 5_000));
  open();
  const opened = Date.now();
  await Promise.all(people.map((person) => flows(person, person.name)));
  console.log(`# media was back ${Math.round((Date.now() - opened) / 100) / 10} s after the cut`);
  const after = await Promise.all(people.map((person) => person.page.evaluate(() => window.moim.room.me)));
  assert.deepEqual(after, before, "the same participants");
});
