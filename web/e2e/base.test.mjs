// A server whose pages, sockets and API begin with a path (`http.base_path`): the page finds its own way from wherever it stands.

import assert from "node:assert/strict";
import test from "node:test";
import { ADMIN, browser, enter, serve, until } from "./world.mjs";

test("people meet and the console shows them below a base path", async (t) => {
  const config = `
http: { bind: "127.0.0.1:7880", base_path: /calls/ }
media: { bind: ["127.0.0.1"] }
admin: { token: "${ADMIN}" }
`;
  const { url } = await serve(t, { config });
  const launched = await browser(t);
  // One comes through the start page, the other by a link.
  const context = await launched.newContext();
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("response", (response) => {
    if (response.status() >= 400) errors.push(`${response.status()} ${response.url()}`);
  });
  await page.goto(`${url}/calls?name=Ada&mic=0&camera=0`);
  await page.getByLabel("Room", { exact: true }).fill("garden");
  await page.getByRole("button", { name: "Join", exact: true }).click();
  await until("joining", () => page.evaluate(() => window.moim?.state().state === "connected"));
  assert.equal(new URL(page.url()).pathname, "/calls/room/garden");
  await enter(t, launched, `${url}/calls`, "garden", "Min", { camera: "0" });
  await until("the other", () =>
    page.evaluate(() => window.moim.state().participants.some(({ name }) => name === "Min")),
  );
  const credentials = { username: "me", password: ADMIN };
  const watcher = await (await launched.newContext({ httpCredentials: credentials })).newPage();
  await watcher.goto(`${url}/calls/console`);
  await watcher.getByRole("region", { name: "Room garden" }).waitFor();
  await watcher.getByRole("region", { name: "Server" }).waitFor();
  assert.equal(
    await watcher.locator("a", { hasText: "call page" }).evaluate(({ href }) => href),
    `${url}/calls/`,
  );
  assert.deepEqual(errors, []);
});
