// Devices of the page: none is open that nobody uses, however slowly they open and however quickly people click.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ADMIN, browser, serve, still, until } from "./world.mjs";

/** In a page, before its own code: devices take 0.7 s to open, and it is kept what was asked for and ever opened. */
function slowDevices() {
  const original = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  window.opened = [];
  window.asked = 0;
  window.answered = 0;
  navigator.mediaDevices.getUserMedia = async (asked) => {
    window.asked++;
    try {
      await new Promise((done) => setTimeout(done, 700));
      const stream = await original(asked);
      window.opened.push(...stream.getTracks());
      return stream;
    } finally {
      window.answered++;
    }
  };
}

/** The start page of a room, whose devices may be used without a question. */
async function lobby(t, launched, url, room) {
  const context = await launched.newContext({ permissions: ["microphone", "camera"] });
  t.after(() => context.close());
  const page = await context.newPage();
  await page.addInitScript(slowDevices);
  await page.goto(`${url}/room/${room}`);
  await page.fill("#name", "Ada");
  return page;
}

const live = (page) =>
  page.evaluate(() =>
    window.opened.filter((track) => track.readyState === "live").map((track) => track.kind),
  );
const opened = (page) => page.evaluate(() => window.opened.length);
const state = (page) => page.evaluate(() => window.moim.state().state);

async function join(page) {
  await page.click("text=Join");
  await until("the call", async () => (await state(page)) === "connected");
}

async function leave(page) {
  await page.click("text=Leave");
  await until("the end", async () => (await state(page)) === "ended");
}

/** Waits until whatever was still opening has come, and the page has done with it what it does. */
const settle = (page) =>
  still("the devices", async () => {
    const asked = await until("devices to open", () =>
      page.evaluate(() => window.asked === window.answered && { times: window.asked }),
    );
    return { asked, live: await live(page) };
  });

test("no device of the page stays open that nobody uses", async (t) => {
  const config = `
http: { bind: "127.0.0.1:7880" }
admin: { token: "${ADMIN}" }
guests: all
`;
  const { url } = await serve(t, { config });
  const launched = await browser(t);

  await t.test(
    "who joins before the preview is open sends what was opened, and nothing is open after leaving",
    async (t) => {
      const page = await lobby(t, launched, url, "quick");
      await join(page);
      await settle(page);
      assert.deepEqual((await live(page)).sort(), ["audio", "video"]);
      assert.equal(await opened(page), 2);
      await leave(page);
      await settle(page);
      assert.deepEqual(await live(page), []);
    },
  );

  await t.test("clicks on the camera's button end as the last one wishes", async (t) => {
    const page = await lobby(t, launched, url, "clicks");
    const camera = page.locator("button[aria-label^=Camera]");
    await until("the preview", async () => (await live(page)).length === 2);
    for (let nth = 0; nth < 6; nth++) await camera.click();
    await settle(page);
    assert.deepEqual((await live(page)).sort(), ["audio", "video"]);
    await camera.click();
    await settle(page);
    assert.deepEqual(await live(page), ["audio"], "off is off");
    await join(page);
    await settle(page);
    assert.deepEqual(await live(page), ["audio"]);
    await leave(page);
    await settle(page);
    assert.deepEqual(await live(page), []);
  });

  await t.test("a camera that is off in a call is released, and comes back", async (t) => {
    const page = await lobby(t, launched, url, "light");
    await join(page);
    const camera = page.locator("button.control", { hasText: "Camera" });
    await camera.click();
    await until("the light to go out", async () => (await live(page)).join() === "audio");
    const muted = () => page.evaluate(() => window.moim.room.localTrack("video").muted);
    assert.equal(await muted(), true);
    await camera.click();
    await until(
      "the camera",
      async () => (await live(page)).sort().join() === "audio,video" && !(await muted()),
    );
    // A device that opens after the call is closed.
    await camera.click();
    await until("the light to go out", async () => (await live(page)).join() === "audio");
    await camera.click();
    await leave(page);
    await settle(page);
    assert.deepEqual(await live(page), []);
  });

  await t.test("a camera that is gone is told and shown as off", async (t) => {
    const page = await lobby(t, launched, url, "gone");
    await join(page);
    await page.evaluate(() => {
      const track = window.opened.find(({ kind }) => kind === "video");
      track.stop();
      track.dispatchEvent(new Event("ended"));
    });
    await page.waitForSelector("text=Your camera is gone");
    await until("off", () => page.evaluate(() => window.moim.room.localTrack("video").muted));
    await page.locator("button.control", { hasText: "Camera" }).click();
    await until("the camera", async () => (await live(page)).sort().join() === "audio,video");
    await leave(page);
    await settle(page);
    assert.deepEqual(await live(page), []);
  });
});
