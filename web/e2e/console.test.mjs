// The console shows a live room with its MOS, says what to do where there is none, asks for a
// token where the server wants one, and stays smooth with 5000 people. PICTURES names a directory for pictures of it.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { join } from "node:path";
import { test } from "node:test";
import { browser, enter, scroll, serve, until } from "./world.mjs";

const SECRET = "a-secret-of-at-least-32-characters";

/** A token as the server's own keys sign it (RFC 7519, HS256). */
function token(video) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: "tests", sub: "ada", nbf: now - 5, exp: now + 600, video };
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

async function open(launched, url, credentials, answer) {
  const context = { viewport: { width: 1280, height: 800 }, httpCredentials: credentials };
  const page = await (await launched.newContext(context)).newPage();
  if (answer) await page.route("**/v1/quality", answer);
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  const { status } = await page.goto(`${url}/console`).then((got) => ({ status: got.status() }));
  return { page, errors, status };
}

test("the console shows a live room and its people", async (t) => {
  const { url } = await serve(t);
  const launched = await browser(t);
  const { page, errors } = await open(launched, url);
  await page.getByText("No room is open").waitFor();

  const query = { preset: "small_call", camera: "0" };
  const ada = await enter(t, launched, url, "garden", "Ada", query);
  await enter(t, launched, url, "garden", "Min", query);
  const room = page.getByRole("region", { name: "Room garden" });
  await room.waitFor();
  const median = room.locator('[data-figure="median"] dd');
  await until("a MOS of two people", async () => {
    const rows = await room.locator("tbody tr").count();
    return rows === 2 && /^[1-4]\.\d\d$/.test(await median.innerText());
  });
  assert.match(await room.innerText(), /2 people, audio sfu, video sfu/);
  const names = await room.locator("tbody th").allInnerTexts();
  assert.deepEqual(names.sort(), ["Ada", "Min"]);
  // The first sample of somebody may come before the first round trip.
  await until("all figures of somebody", async () => {
    const cells = await room.locator("tbody tr").first().locator("td").allInnerTexts();
    const [mos, loss, rtt, jitter, age] = cells;
    assert.match(mos, /^[1-4]\.\d\d$/);
    for (const figure of [loss, rtt, jitter]) assert.match(figure, /^\d+\.\d$/);
    assert.match(age, /^\d+ s$/);
    return true;
  });
  assert.equal(await room.locator("canvas").count(), 1);
  const server = page.getByRole("region", { name: "Server" });
  await until("the media thread's CPU", async () =>
    (await server.locator("tbody").innerText()).includes("media-0"),
  );
  assert.match(await server.innerText(), /packets\/s in, \d+ out, \d+ MiB/);
  assert.match(await server.locator('[data-figure="in"] dd').innerText(), /^\d+(\.\d)? [kM]bit\/s$/);
  assert.equal(await page.getByText("No room is open").isVisible(), false);

  await page.setViewportSize({ width: 360, height: 740 });
  // Charts follow the window a frame later.
  await until("no sideways scroll at 360 px", () =>
    page.evaluate(() => window.innerWidth === 360 && document.documentElement.scrollWidth <= 360),
  );
  await ada.page.evaluate(() => window.moim.room.lock(true));
  await until("the lock to be shown", async () => /locked/.test(await room.innerText()));
  assert.deepEqual(errors, []);
});

test("the console is for whoever has the admin token", async (t) => {
  const config = `
http: { bind: "127.0.0.1:7880" }
media: { bind: ["127.0.0.1"] }
admin: { token: "${SECRET}" }
keys: { tests: "${SECRET}" }
`;
  const { url } = await serve(t, { config });
  const launched = await browser(t);
  await enter(t, launched, url, "garden", "Ada", { camera: "0", token: token({ roomJoin: true }) });
  const stranger = await open(launched, url, { username: "me", password: "not the token" });
  assert.equal(stranger.status, 401);
  const { page, status, errors } = await open(launched, url, { username: "me", password: SECRET });
  assert.equal(status, 200);
  await page.getByRole("region", { name: "Room garden" }).waitFor();
  assert.equal(await page.getByLabel(/^Token/).isVisible(), false, "the browser has shown it already");
  assert.deepEqual(errors, []);
});

test("a token in a link's query is not used, and the page says why", async (t) => {
  const config = `
http: { bind: "127.0.0.1:7880" }
media: { bind: ["127.0.0.1"] }
keys: { tests: "${SECRET}" }
`;
  const { url } = await serve(t, { config });
  const launched = await browser(t);
  const page = await (await launched.newContext()).newPage();
  const given = token({ roomJoin: true });
  await page.goto(`${url}/room/garden?name=Ada&join=1&mic=0&camera=0&token=${given}`);
  await page.getByText("This link carries its token where servers log it").waitFor();
  await page.getByText("Could not join").waitFor();
  assert.equal(new URL(page.url()).searchParams.has("token"), false, "nor does the page's address keep it");
  await page.goto(`${url}/room/garden?name=Ada&join=1&mic=0&camera=0#token=${given}`);
  const isIn = () => page.evaluate(() => window.moim?.state().state === "connected");
  await until("joining", isIn);
  assert.equal(new URL(page.url()).hash, "", "whoever shares the address hands on no right");
  await page.reload();
  await until("joining again after a reload", isIn);
  await page.evaluate(() => (navigator.clipboard.writeText = async (text) => void (window.copied = text)));
  await page.getByRole("button", { name: /^People/ }).click();
  await page.getByRole("button", { name: "Copy link" }).click();
  await until("the copied link", () => page.evaluate(() => window.copied !== undefined));
  assert.equal(await page.evaluate(() => window.copied), `${url}/room/garden`);
});

/** What a server with rooms of these sizes answers, five minutes old and another at each question. */
function crowd(sizes) {
  let asked = 0;
  return (route) => {
    const now = 3000 * ++asked;
    const wave = (room, point) => 3.4 + Math.sin(room + point / 7) * 0.6;
    const spread = (middle, people) => ({
      min: middle - 1.1,
      max: Math.min(4.5, middle + 0.6),
      average: middle - 0.1,
      median: middle,
      people,
    });
    const rooms = sizes.map((people, room) => ({
      id: `room-${String(room).padStart(4, "0")}`,
      audio: "mcu",
      video: "none",
      locked: false,
      people,
      mos_lq: spread(wave(room, asked + 100), people),
      bottom: Array.from({ length: Math.min(10, people) }, (_, nth) => ({
        participant: `p-${room}-${nth}`,
        name: `Person ${1 + ((nth * 7 + asked) % people)} of ${people}`,
        mos_lq: wave(room, asked + 100) - 1.1 + nth / 20,
        loss_pct: 5 - nth / 3,
        rtt_ms: 40 + nth,
        jitter_ms: 3 + nth,
        age_ms: 1000 * (nth % 3),
      })),
      history: Array.from({ length: 100 }, (_, point) => ({
        at_unix_ms: 1_000_000_000 + now - 3000 * (99 - point),
        people,
        mos_lq: spread(wave(room, asked + point), people),
      })),
    }));
    return route.fulfill({ json: { at_unix_ms: 1_000_000_000 + now, rooms } });
  };
}

for (const [what, sizes] of [
  ["one room", [5000]],
  ["two hundred rooms", Array(200).fill(25)],
]) {
  test(`the console with 5000 people in ${what} scrolls at 30 frames a second`, async (t) => {
    const { url } = await serve(t);
    const { page, errors } = await open(await browser(t), url, undefined, crowd(sizes));
    await page.getByText(/5000 people, at/).waitFor();
    await until("the first chart", () => page.locator("canvas").count());
    const status = page.getByRole("status");
    // The window of a single room is too small for it, so that there is something to scroll.
    if (sizes.length === 1) await page.setViewportSize({ width: 1280, height: 360 });
    const first = await status.innerText();
    const { fps, worst_fps, longest_ms, pixels } = await scroll({ page }, "html", 10);
    const longest = `longest wait ${longest_ms.toFixed(0)} ms`;
    console.log(`# ${what}: ${fps.toFixed(1)} frames/s, ${worst_fps} in the worst second, ${longest}`);
    assert.notEqual(await status.innerText(), first, "new figures came meanwhile");
    assert.ok(worst_fps >= 30 && pixels > 1000, `${worst_fps} frames in a second, ${pixels} pixels`);
    assert.ok(longest_ms <= 200, `${longest_ms} ms without a frame`);
    if (process.env.PICTURES) {
      const path = join(process.env.PICTURES, `console-${sizes.length}.png`);
      await page.screenshot({ path });
    }
    // Whatever is seen is drawn, with figures as new as the rest.
    const last = page.getByRole("region").last();
    await last.scrollIntoViewIfNeeded();
    await until("the last room's chart", () => last.locator("canvas").count());
    assert.match(await last.locator('[data-figure="median"] dd').innerText(), /^[1-4]\.\d\d$/);
    assert.equal(await last.locator("tbody tr").count(), Math.min(10, sizes[0]));
    assert.deepEqual(errors, []);
  });
}
