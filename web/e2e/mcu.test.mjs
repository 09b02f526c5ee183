// Three Chromium pages in a mixed room, each with a tone of its own: everyone hears the two others
// in one stream, and not themselves, by the spectrum of what is played.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, enter, inbound, serve, sing, until } from "./world.mjs";

const TONES = { Ada: 440, Min: 1000, Noor: 2300 };
/** A tone is there when it stands so far over the bins around it, in dB. */
const PRESENT_DB = 25;
const ABSENT_DB = 10;

/** Analyses the mix that comes in, in a page; `window.contrast(hertz)` tells how far a tone stands out now. */
function listen({ page }) {
  return page.evaluate(async () => {
    const context = new AudioContext({ sampleRate: 48_000 });
    await context.resume();
    const track = window.moim.room.mediaTrack("mix");
    const source = new MediaStreamAudioSourceNode(context, { mediaStream: new MediaStream([track]) });
    const analyser = new AnalyserNode(context, { fftSize: 16_384, smoothingTimeConstant: 0 });
    source.connect(analyser);
    const bins = new Float32Array(analyser.frequencyBinCount);
    const width = context.sampleRate / analyser.fftSize;
    window.contrast = (hertz) => {
      analyser.getFloatFrequencyData(bins);
      const at = Math.round(hertz / width);
      const peak = Math.max(...bins.slice(at - 3, at + 4));
      const around = [...bins.slice(at - 40, at - 12), ...bins.slice(at + 13, at + 41)].sort((a, b) => a - b);
      // Silence has no floor: -120 dB stands for it.
      return Math.max(peak, -120) - Math.max(around[Math.floor(around.length / 2)], -120);
    };
  });
}

/** Median of the contrast of each tone over 2 s. */
async function spectrum({ page }) {
  return page.evaluate(async (tones) => {
    const seen = Object.fromEntries(Object.keys(tones).map((name) => [name, []]));
    for (let round = 0; round < 20; round++) {
      await new Promise((done) => setTimeout(done, 100));
      for (const [name, hertz] of Object.entries(tones)) seen[name].push(window.contrast(hertz));
    }
    const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
    return Object.fromEntries(Object.entries(seen).map(([name, list]) => [name, middle(list)]));
  }, TONES);
}

/** Waits until a page hears exactly these. */
async function hears(person, names) {
  const what = `${person.name} to hear ${names.join(" and ") || "nobody"}`;
  const heard = await until(
    what,
    async () => {
      const now = await spectrum(person);
      const right = Object.entries(now).every(([name, contrast]) =>
        names.includes(name) ? contrast >= PRESENT_DB : contrast <= ABSENT_DB,
      );
      if (!right) throw new Error(`${what}: ${JSON.stringify(now)}`);
      return now;
    },
    30,
  );
  const shown = Object.entries(heard).map(([name, contrast]) => `${name} ${contrast.toFixed(0)} dB`);
  console.log(`# ${person.name} hears: ${shown.join(", ")}`);
}

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
  await hears(ada, ["Min", "Noor"]);
  await hears(min, ["Ada", "Noor"]);
  await hears(noor, ["Ada", "Min"]);

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
  await hears(ada, ["Noor"]);
  await hears(min, ["Ada", "Noor"]);
  await noor.page.evaluate(() => window.moim.room.leave());
  await hears(ada, []);
  await hears(min, ["Ada"]);
  for (const person of people) assert.deepEqual(person.errors, [], `${person.name}: errors in the page`);
});
