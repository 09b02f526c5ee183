// The console shows a live room with its MOS, says what to do where there is none, and asks for a
// token where the server wants one.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { browser, enter, serve, until } from "./world.mjs";

const SECRET = "a-secret-of-at-least-32-characters";

/** A token as the server's own keys sign it (RFC 7519, HS256). */
function token(video) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: "tests", sub: "ada", nbf: now - 5, exp: now + 600, video };
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", SECRET).update(signed).digest("base64url")}`;
}

async function open(launched, url, credentials) {
  const context = { viewport: { width: 1280, height: 800 }, httpCredentials: credentials };
  const page = await (await launched.newContext(context)).newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  const answer = await page.goto(`${url}/console`);
  return { page, errors, status: answer.status() };
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
  await until(
    "a MOS of two people",
    async () =>
      /^[1-4]\.\d\d$/.test(await median.innerText()) && (await room.locator("tbody tr").count()) === 2,
    30,
  );
  assert.match(await room.innerText(), /2 people, audio sfu, video sfu/);
  const names = await room.locator("tbody th").allInnerTexts();
  assert.deepEqual(names.sort(), ["Ada", "Min"]);
  const [mos, loss, rtt, jitter, age] = await room.locator("tbody tr").first().locator("td").allInnerTexts();
  assert.match(mos, /^[1-4]\.\d\d$/);
  for (const figure of [loss, rtt, jitter]) assert.match(figure, /^\d+\.\d$/);
  assert.match(age, /^\d+ s$/);
  assert.equal(await room.locator("canvas").count(), 1);
  assert.equal(await page.getByText("No room is open").isVisible(), false);

  await page.setViewportSize({ width: 360, height: 740 });
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  assert.equal(sideways, false, "no sideways scroll at 360 px");
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
  await until("joining", () => page.evaluate(() => window.moim?.state().state === "connected"));
});
