// What many people need, in real Chromium: pictures that nobody sees are not sent, redundant sound passes or is
// stripped. All by getStats.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, enter, inbound, serve, sing, stats, still, until } from "./world.mjs";

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** A person's outgoing stream of a kind. */
async function outbound(person, kind) {
  const all = await stats(person);
  const stream = all.find((s) => s.type === "outbound-rtp" && s.kind === kind);
  return stream && { ...stream, codec: all.find((s) => s.id === stream.codecId)?.mimeType };
}

test("a picture that nobody sees is not sent, and comes back at once", async (t) => {
  const { url } = await serve(t);
  const launched = await browser(t);
  const ada = await enter(t, launched, url, "rest", "Ada", { mic: "0" });
  await until("her picture to rest", async () => (await outbound(ada, "video"))?.active === false);
  const alone = await still("what Ada sent", async () => (await outbound(ada, "video")).framesSent);
  // That nothing comes takes time to see.
  await wait(2000);
  const later = await outbound(ada, "video");
  console.log(`# alone: ${alone} frames sent, then ${later.framesSent - alone} in 2 s`);
  assert.equal(later.framesSent, alone, "nobody is here to see her");
  assert.equal(later.active, false);
  const min = await enter(t, launched, url, "rest", "Min", { mic: "0", camera: "0" });
  const firstFrame = await until("a frame", () => min.page.evaluate(() => window.firstFrameMs));
  console.log(`# first frame after joining: ${Math.round(firstFrame)} ms`);
  const seen = await outbound(ada, "video");
  const more = async () => (await outbound(ada, "video")).framesSent - seen.framesSent > 20;
  await until("20 frames more", more);
  await min.page.context().close();
  await until("her picture to rest again", async () => (await outbound(ada, "video")).active === false, 90);
  assert.deepEqual([...ada.errors, ...min.errors], []);
});

test("redundant sound reaches who agreed on it, and all others without its redundancy", async (t) => {
  const { url } = await serve(t);
  const launched = await browser(t);
  const query = { camera: "0", mic: "0" };
  const ada = await enter(t, launched, url, "red", "Ada", { ...query, redundancy: "1" });
  const min = await enter(t, launched, url, "red", "Min", { ...query, redundancy: "1" });
  const jun = await enter(t, launched, url, "red", "Jun", query);
  await sing(ada, 440);
  const of = async (person) => {
    const stream = await until(`${person.name} to hear her for 3 s`, async () => {
      const [voice] = await inbound(person, "audio");
      return voice?.packetsReceived > 150 && voice.totalAudioEnergy > 0 && voice;
    });
    const codec = (await stats(person)).find((s) => s.id === stream.codecId).mimeType;
    const concealed = (100 * stream.concealedSamples) / stream.totalSamplesReceived;
    const kbps = (8 * stream.bytesReceived) / stream.packetsReceived / 20;
    console.log(`# ${person.name}: ${codec}, ${kbps.toFixed(0)} kbit/s, ${concealed.toFixed(2)} % concealed`);
    return { codec, kbps };
  };
  const [red, plain] = [await of(min), await of(jun)];
  // Chromium names the codec inside; that it sends redundancy shows in the bytes.
  const { bytesSent, packetsSent } = await outbound(ada, "audio");
  const sent = (8 * bytesSent) / packetsSent / 20;
  assert.ok(sent > plain.kbps * 1.5, `${sent} and ${plain.kbps} kbit/s`);
  assert.ok(red.kbps > plain.kbps * 1.5, `${red.kbps} and ${plain.kbps} kbit/s`);
  assert.equal(plain.codec, "audio/opus");
  assert.deepEqual([...ada.errors, ...min.errors, ...jun.errors], []);
});
