// A screen full of text that a page publishes, seen by Chromium and by Firefox behind slow links. Its keyframes have some
// 200 kB. The screen has the number of its page as a row of black and white fields: who sees it reads it in the picture.

import assert from "node:assert/strict";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { connect, ENDS } from "../../scripts/link.mjs";
import { enterByFirefox } from "./firefox.mjs";
import { ADMIN, browser, enter, serve, stats, until } from "./world.mjs";

/** From asking to join until the screen is seen, and from a change until that is. */
const SEEN_MS = 4000;
const CHANGED_MS = 2000;
const CHANGES = 4;
/** Between two changes: somebody reads. */
const READS_MS = 5000;
const WIDE_KBPS = 100_000;
const SIZE = { width: 1920, height: 1080 };
const FIELDS = { count: 8, pixels: 48 };

/** In the page: a screen with an editor in it, as in scripts/record-pictures.mjs. `window.turn(page)` shows another page, and gives the time at which it does. */
function show({ width, height, fields, frames_per_second }) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { alpha: false });
  let seed = 7;
  const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
  const letter = () => String.fromCharCode(97 + 26 * random());
  const word = () => Array.from({ length: 2 + 8 * random() }, letter).join("");
  const line = () => "  ".repeat(4 * random()) + Array.from({ length: 3 + 14 * random() }, word).join(" ");
  const colours = ["#9cdcfe", "#ce9178", "#d4d4d4", "#6a9955"];
  let ticks = 0;
  const blink = () => {
    context.fillStyle = ticks++ % 2 ? "#fff" : "#1e1e1e";
    context.fillRect(10, 500, 3, 24);
  };
  window.turn = (page) => {
    context.fillStyle = "#1e1e1e";
    context.fillRect(0, 0, width, height);
    context.font = "20px monospace";
    for (let row = 3; row < 41; row++) {
      context.fillStyle = colours[(row + page) % colours.length];
      context.fillText(`${100 * page + row}  ${line()}`.slice(0, 155), 20, 26 * row + 20);
    }
    for (let field = 0; field < fields.count; field++) {
      context.fillStyle = (page >> field) & 1 ? "#fff" : "#000";
      context.fillRect(field * fields.pixels, 0, fields.pixels, fields.pixels);
    }
    return Date.now();
  };
  setInterval(blink, 1000 / frames_per_second);
  window.turn(1);
  const [track] = canvas.captureStream(frames_per_second).getVideoTracks();
  track.contentHint = "detail";
  return window.moim.room.publish(track);
}

/** In the page: `window.seen` has when each page of the screen was seen first. */
function watch({ width, height, fields }) {
  const canvas = new OffscreenCanvas(fields.count, 1);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  window.seen = {};
  const look = () => {
    const video = [...document.querySelectorAll("video")].find(({ videoWidth }) => videoWidth === width);
    if (!video || video.videoHeight !== height) return;
    context.drawImage(video, 0, 0, fields.count * fields.pixels, fields.pixels, 0, 0, fields.count, 1);
    const { data } = context.getImageData(0, 0, fields.count, 1);
    const bits = Array.from({ length: fields.count }, (_, field) => (data[4 * field] > 127 ? 1 << field : 0));
    window.seen[bits.reduce((sum, bit) => sum + bit)] ??= Date.now();
  };
  setInterval(look, 20);
  return performance.timeOrigin + window.joinAskedMs;
}

/** When a page of the screen was seen first, and else why not. */
async function seen({ name, page }, number) {
  const at = await until(`page ${number} of the screen for ${name}`, () =>
    page.evaluate((number) => window.seen[number], number),
  );
  return at;
}

const PEOPLE = {
  Chromium: async (t, url) =>
    enter(t, await browser(t, { loopback: false }), url, "screen", "Chromium", QUERY),
  Firefox: (t, url) => enterByFirefox(t, url, "screen", "Firefox", QUERY),
};
const QUERY = { camera: "0", mic: "0" };

for (const { kbps, loss } of [
  { kbps: 1500, loss: 0 },
  { kbps: 2000, loss: 0.02 },
])
  test(`a screen of text is seen behind ${kbps / 1000} Mbit/s with ${100 * loss} % loss`, async (t) => {
    if (Object.keys(networkInterfaces()).some((name) => name !== "lo"))
      return t.skip("no network namespace of its own, in which a link can be made");
    const link = await connect({ here: true });
    const config = `
http: { bind: "127.0.0.1:7880" }
admin: { token: "${ADMIN}" }
media: { bind: ["${ENDS.b.address}"] }
`;
    const { url } = await serve(t, { config, prefix: link.inside.b }).finally(() =>
      t.after(() => link.close()),
    );
    // The screen comes from the server's end. On the slow link its publisher would lose what the server tells of its packets.
    const publishes = await browser(t, { loopback: false, prefix: link.inside.b });
    const screen = await enter(t, publishes, url, "screen", "Ada", { camera: "0" });
    const settings = { ...SIZE, fields: FIELDS, frames_per_second: 5 };
    await screen.page.evaluate(show, settings);
    let page = 1;
    for (const [name, come] of Object.entries(PEOPLE)) {
      link.set(WIDE_KBPS, kbps, loss);
      const person = await come(t, url);
      const pairs = (await stats(screen)).filter(({ type }) => type === "candidate-pair");
      const publishes_bps = Math.max(...pairs.map((pair) => pair.availableOutgoingBitrate ?? 0));
      const asked = await person.page.evaluate(watch, settings);
      const times = [(await seen(person, page)) - asked];
      for (let change = 0; change < CHANGES; change++) {
        await new Promise((done) => setTimeout(done, READS_MS));
        const at = await screen.page.evaluate((page) => window.turn(page), ++page);
        times.push((await seen(person, page)) - at);
      }
      const rows = await stats(person);
      const { keyFramesDecoded, framesDecoded, pliCount } = rows.find(
        ({ type, kind }) => type === "inbound-rtp" && kind === "video",
      );
      const sent = (await stats(screen)).find(
        ({ type, kind }) => type === "outbound-rtp" && kind === "video",
      );
      console.log(
        `# ${name}: seen after ${times.map(Math.round).join(", ")} ms; ${framesDecoded} frames, ${keyFramesDecoded} keyframes, ${pliCount} asked for; sent ${sent.framesEncoded} frames, ${sent.keyFramesEncoded} keyframes, ${sent.bytesSent} bytes; publishes up to ${Math.round(publishes_bps / 1000)} kbit/s`,
      );
      // Nobody saw the screen for some seconds before Firefox came. Its publisher knows still what the path carries.
      if (name === "Firefox")
        assert.ok(publishes_bps > 1e6, `the publisher takes the path to carry ${publishes_bps} bit/s`);
      const [first, ...changes] = times;
      assert.ok(first <= SEEN_MS, `${name} sees the screen after ${first} ms`);
      assert.ok(Math.max(...changes) <= CHANGED_MS, `${name} sees changes after ${changes} ms`);
      await person.page.evaluate(() => window.moim.room.leave());
    }
    assert.deepEqual(screen.errors, []);
  });
