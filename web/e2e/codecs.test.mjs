// Rooms whose pictures are VP9 or AV1, in real Chromium: people see each other move, and a slot goes from one picture to
// another without a break. By getStats.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, enter, inbound, median, serve, stats, until, watch } from "./world.mjs";

/** Cameras are sent in two sizes within one stream. */
const MODE = "L2T3_KEY";
const SECONDS = 8;
const SWITCHES = 6;

async function codecOf(person, type) {
  const all = await stats(person);
  const stream = all.find((s) => s.type === type && s.kind === "video");
  return { mimeType: all.find((s) => s.id === stream.codecId).mimeType, stream };
}

/** The picture in a person's one slot. */
async function picture(person) {
  const [stream] = await inbound(person, "video");
  return stream;
}

/** Lets a person see one after the other in their one slot. */
async function switchAround(viewer) {
  const tracks = await until("two cameras", () =>
    viewer.page.evaluate(() => {
      const videos = window.moim
        .state()
        .participants.flatMap(({ tracks }) => tracks)
        .filter(({ kind }) => kind === "video");
      return videos.length === 2 && videos.map(({ id }) => id);
    }),
  );
  const { mid } = await picture(viewer);
  for (let n = 0; n < SWITCHES; n++) {
    const { keyFramesDecoded, framesDecoded } = await picture(viewer);
    await viewer.page.evaluate((want) => window.moim.room.want([want]), { slot: mid, track: tracks[n % 2] });
    // A slot that carries the track already goes on; any other begins with a keyframe.
    await until("the other picture", async () => {
      const now = await picture(viewer);
      return now.framesDecoded > framesDecoded + 20 && (n === 0 || now.keyFramesDecoded > keyFramesDecoded);
    });
  }
}

async function assertRoomsSpeak(t, codec) {
  const { url } = await serve(t);
  const launched = await browser(t);
  const pair = [];
  for (const name of ["Ada", "Min"]) pair.push(await enter(t, launched, url, codec, name, { codec }));
  const ears = { mic: "0", camera: "0", show: "1", codec };
  const zoe = await enter(t, launched, url, codec, "Zoe", ears);
  const people = [...pair, zoe];
  for (const person of people) {
    await until(`a picture for ${person.name}`, async () => (await picture(person))?.framesDecoded > 0);
  }
  for (const person of pair) {
    const rows = (await watch(person, SECONDS)).filter(({ kind }) => kind === "video");
    const fps = median(rows.map((row) => row.fps));
    console.log(`# ${person.name}: ${fps.toFixed(1)} frames/s of ${rows.at(-1).height} lines`);
    assert.ok(fps >= 10, `${person.name}: ${fps} decoded frames/s`);
    await until(`two sizes of ${person.name}`, async () => {
      const { stream } = await codecOf(person, "outbound-rtp");
      return stream.scalabilityMode === MODE;
    });
    for (const type of ["inbound-rtp", "outbound-rtp"]) {
      assert.equal((await codecOf(person, type)).mimeType, `video/${codec.toUpperCase()}`);
    }
  }
  const before = await picture(zoe);
  await switchAround(zoe);
  const after = await picture(zoe);
  const frozen = after.freezeCount - before.freezeCount;
  console.log(
    `# Zoe: ${after.framesDecoded - before.framesDecoded} frames over ${SWITCHES} switches, ${frozen} freezes`,
  );
  assert.equal(after.ssrc, before.ssrc, "one stream");
  assert.equal(frozen, 0, "no freeze");
  assert.equal(after.packetsLost, before.packetsLost, "no gap in the numbers");
  // The picture before a switch may be cut off: an encoder makes its two sizes one after the other.
  assert.ok(after.framesDropped - before.framesDropped <= SWITCHES, `${after.framesDropped} frames dropped`);
  assert.deepEqual(
    people.flatMap(({ errors }) => errors),
    [],
  );
}

test("people see each other in VP9", (t) => assertRoomsSpeak(t, "vp9"));

test("people see each other in AV1", (t) => assertRoomsSpeak(t, "av1"));
