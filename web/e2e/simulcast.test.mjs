// A camera in several sizes, as several streams or within one, in real Chromium: everyone gets the size that they show, the picture goes on while the
// size changes, and what nobody wants is not sent. All by getStats.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { browser, enter, inbound, serve, stats, still, until } from "./world.mjs";

/**
 * A change of size takes so long at most. Estimates on both sides must grow before a large picture fits. One that had
 * to fall may wait for 60 s (docs/networks.md).
 */
const SWITCH_SECONDS = 90;
const LONGEST_GAP_MS = 1000;

/** The layers that a person's camera is sent in, by name. */
async function layers(person) {
  const all = await stats(person);
  const rows = all.filter((s) => s.type === "outbound-rtp" && s.kind === "video");
  return Object.fromEntries(rows.map((row) => [row.rid ?? "", row]));
}

/** Height of the frame that a person decoded last. */
async function height(person) {
  const [picture] = await inbound(person, "video");
  return picture?.frameHeight;
}

/**
 * Notes, in the page, the longest time without a new frame, until it is asked for: between two looks that saw the same
 * frame. A page that itself had no turn knows of no gap.
 */
async function watchGaps({ page }) {
  await page.evaluate(() => {
    const watch = { longest: 0, frames: 0, over: false };
    window.gaps = watch;
    const look = async () => {
      let [last, since] = [null, 0];
      while (!watch.over) {
        let decoded = 0;
        for (const peer of window.peers)
          for (const entry of (await peer.getStats()).values())
            if (entry.type === "inbound-rtp" && entry.kind === "video") decoded += entry.framesDecoded;
        const now = performance.now();
        if (decoded === last) watch.longest = Math.max(watch.longest, now - since);
        else {
          watch.frames += last === null ? 0 : decoded - last;
          [last, since] = [decoded, now];
        }
        await new Promise((done) => setTimeout(done, 30));
      }
    };
    look();
  });
  return () =>
    page.evaluate(() => {
      window.gaps.over = true;
      return { longest: window.gaps.longest, frames: window.gaps.frames };
    });
}

/** Lets something happen that changes the size of a picture: it comes in that size, without a gap between. */
async function becomes(person, what, lines, act) {
  const asked = Date.now();
  const end = await watchGaps(person);
  await act();
  await until(`${what}: ${lines} lines`, async () => (await height(person)) === lines, SWITCH_SECONDS);
  const before = (await inbound(person, "video"))[0].framesDecoded;
  const more = async () => (await inbound(person, "video"))[0].framesDecoded - before > 20;
  await until(`${what}: frames`, more);
  const { longest, frames } = await end();
  const after = Date.now() - asked;
  console.log(`# ${what}: ${frames} frames in ${after} ms, longest gap ${Math.round(longest)} ms`);
  assert.ok(longest < LONGEST_GAP_MS, `${what}: no frame for ${longest} ms`);
}

/** Ada with a camera of 720 lines, and Min who sees her. */
async function meet(t, room, query = {}) {
  const { url } = await serve(t);
  const launched = await browser(t);
  const ada = await enter(t, launched, url, room, "Ada", { mic: "0", camera: "720p", ...query });
  const min = await enter(t, launched, url, room, "Min", { mic: "0", camera: "0", ...query });
  // All that Min's page says of the sizes of its tiles.
  const told = () =>
    min.page.evaluate(() => {
      const [tile] = window.moim.state().tiles.filter(({ name }) => name === "Ada");
      return tile.shown;
    });
  const track = await until("Ada's camera", () =>
    min.page.evaluate(() => {
      const [ada] = window.moim.state().participants;
      return ada?.tracks.find(({ kind }) => kind === "video")?.id;
    }),
  );
  const show = (width, height) =>
    min.page.evaluate((at) => window.moim.room.setShown(at.track, { width: at.width, height: at.height }), {
      track,
      width,
      height,
    });
  await until("a picture", async () => (await inbound(min, "video"))[0]?.framesDecoded > 0);
  return { ada, min, told, show };
}

/** Everything that is asked of layers, in a room of one codec. */
async function assertLayersFollowTheEye(t, query) {
  const { ada, min, show } = await meet(t, "eye", query);
  // A layer is in the statistics once it is sent.
  await until(
    "three layers",
    async () =>
      Object.keys(await layers(ada))
        .sort()
        .join() === "f,h,q",
  );

  await becomes(min, "large", 720, () => show(1280, 720));
  await until("Ada to send the large layer", async () => (await layers(ada)).f.active);
  await becomes(min, "small", 180, () => show(320, 180));
  // The server waits a while before it tells that something is not wanted.
  await until("Ada to send the small layer alone", async () => {
    const { q, h, f } = await layers(ada);
    return q.active && !h.active && !f.active;
  });
  const sentLarge = async () => (await layers(ada)).f.framesSent;
  const unwanted = await still("what Ada sent of the large layer", sentLarge);
  const small = (await inbound(min, "video"))[0].framesDecoded;
  await until("frames", async () => (await inbound(min, "video"))[0].framesDecoded - small > 30);
  assert.equal(await sentLarge(), unwanted, "nothing is sent of the large layer");
  await becomes(min, "large again", 720, () => show(1280, 720));
  await until("Ada to send the large layer again", async () => {
    const { f } = await layers(ada);
    return f.active && f.framesSent > unwanted;
  });

  const { sent } = await ada.page.evaluate(() => window.moim.sampleNow());
  const kinds = sent.map(({ kind }) => kind);
  assert.deepEqual(kinds, ["video"], "a sample has one row for the camera");
  assert.deepEqual([...ada.errors, ...min.errors], []);
}

test("a picture comes in the size that it is shown at, without a break", (t) =>
  assertLayersFollowTheEye(t, {}));

test("a picture in H.264 comes in the size that it is shown at, without a break", (t) =>
  assertLayersFollowTheEye(t, { codec: "h264" }));

/** The same where one stream holds all sizes. */
async function assertOneStreamFollowsTheEye(t, codec) {
  const { ada, min, show } = await meet(t, "within", { codec });
  const sent = async () => (await layers(ada))[""];
  await until("three sizes and three frame rates", async () => (await sent()).scalabilityMode === "L3T3_KEY");
  await becomes(min, "large", 720, () => show(1280, 720));
  await becomes(min, "small", 180, () => show(320, 180));
  await until("Ada to send the small picture alone", async () => {
    const { scalabilityMode, frameHeight } = await sent();
    return scalabilityMode === "L1T3" && frameHeight === 180;
  });
  await becomes(min, "large again", 720, () => show(1280, 720));
  await until("Ada to send all sizes again", async () => (await sent()).scalabilityMode === "L3T3_KEY");
  assert.deepEqual([...ada.errors, ...min.errors], []);
}

test("a picture in VP9 comes in the size that it is shown at, without a break", (t) =>
  assertOneStreamFollowsTheEye(t, "vp9"));

test("a picture in AV1 comes in the size that it is shown at, without a break", (t) =>
  assertOneStreamFollowsTheEye(t, "av1"));

test("the page itself says how large its tiles are, and that nobody looks", async (t) => {
  const { min, told } = await meet(t, "tiles");
  await becomes(min, "a window of 1280 × 800", 360, () => {});
  const wide = await still("the size of Ada's tile", told);
  assert.ok(wide.width > 480, `${wide.width} × ${wide.height}`);
  await becomes(min, "a small window", 180, () => min.page.setViewportSize({ width: 400, height: 300 }));
  await becomes(min, "a large window", 360, () => min.page.setViewportSize({ width: 1280, height: 800 }));
  await until("the tile to be as large as before", async () => isDeepStrictEqual(await told(), wide));

  // A page of a test cannot go behind another: it is told that it did.
  const become = (state) =>
    min.page.evaluate((now) => {
      Object.defineProperty(document, "visibilityState", { value: now, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, state);
  await become("hidden");
  assert.deepEqual(await told(), { width: 0, height: 0 });
  const frames = async () => (await inbound(min, "video"))[0].framesDecoded;
  const dark = await still("the picture", frames);
  await become("visible");
  await until("the picture to come back", async () => (await frames()) > dark + 10);
  await until("360 lines", async () => (await height(min)) === 360, SWITCH_SECONDS);
  assert.deepEqual(min.errors, []);
});

test("a camera that is to be sent in one size is sent in one", async (t) => {
  const { ada, min, show } = await meet(t, "single", { simulcast: "0" });
  await show(320, 180);
  const before = (await inbound(min, "video"))[0].framesDecoded;
  await until("frames", async () => (await inbound(min, "video"))[0].framesDecoded - before > 30);
  // Chromium begins small, until its own estimate has grown.
  await until("720 lines", async () => (await height(min)) === 720, SWITCH_SECONDS);
  assert.deepEqual(Object.keys(await layers(ada)), [""]);
  assert.deepEqual([...ada.errors, ...min.errors], []);
});

test("a camera that was stopped and begins again is seen as before", async (t) => {
  const { ada, min, show } = await meet(t, "again");
  await show(1280, 720);
  await until("720 lines", async () => (await height(min)) === 720, SWITCH_SECONDS);
  const frames = async () => (await inbound(min, "video"))[0]?.framesDecoded ?? 0;
  // Until Ada's client no longer names the streams of this line in each packet.
  await new Promise((done) => setTimeout(done, 3_000));
  await ada.page.evaluate(() => window.moim.room.unpublish("video"));
  await until("nothing in Min's slot", () =>
    min.page.evaluate(() => [...window.moim.room.participants.values()][0].tracks.size === 0),
  );
  await ada.page.evaluate(() => window.moim.room.publishCamera({ width: 1280, height: 720 }));
  const before = await frames();
  await until("frames", async () => (await frames()) > before + 20);
  const track = await until("Ada's new camera", () =>
    min.page.evaluate(() => {
      const [other] = window.moim.room.participants.values();
      return [...other.tracks.keys()][0];
    }),
  );
  await min.page.evaluate((id) => window.moim.room.setShown(id, { width: 1280, height: 720 }), track);
  await until("720 lines again", async () => (await height(min)) === 720, SWITCH_SECONDS);
  assert.deepEqual([...ada.errors, ...min.errors], []);
});

test("of a muted camera nothing is sent, and it comes back at once", async (t) => {
  const { ada, min, show } = await meet(t, "muted");
  await show(640, 360);
  const bytes = async () =>
    Object.values(await layers(ada)).reduce((sum, { bytesSent }) => sum + bytesSent, 0);
  const mute = (muted) => ada.page.evaluate((on) => window.moim.room.mute("video", on), muted);
  await mute(true);
  await still("what Ada sends", bytes, 2_000);
  const dark = (await inbound(min, "video"))[0].framesDecoded;
  await mute(false);
  await until("frames", async () => (await inbound(min, "video"))[0].framesDecoded > dark + 20);
  assert.deepEqual([...ada.errors, ...min.errors], []);
});
