// Three Chromium pages in a mixed room, each with a tone of its own: everyone hears the two others
// in one stream, and not themselves, by the spectrum of what is played.

import assert from "node:assert/strict";
import { test } from "node:test";
import { hears, listen } from "./spectrum.mjs";
import { browser, enter, inbound, serve, sing, until } from "./world.mjs";

const TONES = { Ada: 440, Min: 1000, Noor: 2300 };

test("three pages hear the two others in one stream, and not themselves", async (t) => {
  const { url } = await serve(t);
  const launched = await browser(t);
  const people = [];
  const query = { preset: "audio_room", mic: "0", camera: "0" };
  for (const name of Object.keys(TONES)) people.push(await enter(t, launched, url, "hall", name, query));
  const [ada, min, noor] = people;
  for (const person of people) await sing(person, TONES[person.name]);
  for (const person of people) {
    await until(`the mix for ${person.name}`, () =>
      person.page.evaluate(() => window.moim.room.mediaTrack("mix") !== null),
    );
    await listen(person);
  }
  await hears(ada, ["Min", "Noor"], TONES);
  await hears(min, ["Ada", "Noor"], TONES);
  await hears(noor, ["Ada", "Min"], TONES);

  for (const person of people) {
    assert.equal((await inbound(person, "audio")).length, 1, `${person.name} receives one stream`);
    const sample = await person.page.evaluate(() => window.moim.sampleNow());
    const [row, ...more] = sample.received;
    assert.deepEqual(more, []);
    assert.deepEqual([row.participant, row.track, row.kind], ["", "mix", "audio"]);
    assert.ok(row.packets_received > 50 && row.mos_lq > 1, JSON.stringify(row));
    const elements = await person.page.evaluate(() => window.moim.state().tiles.length);
    assert.equal(elements, 3, `${person.name} sees three people`);
    assert.equal(await person.page.getByRole("button", { name: "Camera" }).isVisible(), false);
  }

  const speaking = ({ page }) => page.locator(".tile.speaking .name").allInnerTexts();
  await until("the page to show who speaks", async () => (await speaking(ada)).includes("Noor"));

  // Who is quiet is no longer heard, and who left neither.
  await min.page.evaluate(() => window.moim.room.mute("audio", true));
  await hears(ada, ["Noor"], TONES);
  await hears(min, ["Ada", "Noor"], TONES);
  await noor.page.evaluate(() => window.moim.room.leave());
  await hears(ada, [], TONES);
  await hears(min, ["Ada"], TONES);
  for (const person of people) assert.deepEqual(person.errors, [], `${person.name}: errors in the page`);
});
