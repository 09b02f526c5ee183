// A room with an audience, in real Chromium among bots: how many are there, who speaks, who raises a hand, and all names by
// page. PICTURES names a directory for pictures of the page.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { browser, enter, inbound, scratch, serve, until } from "./world.mjs";

const ROOT = new URL("../..", import.meta.url).pathname;
const BINARY = process.env.MOIM_BIN ?? join(ROOT, "target/release/moim");
const BOTS = 40;
const ROSTER = 4;

/** Bots that talk in turn in an audio room, until the test ends. */
function talk(t, url) {
  const dir = scratch();
  const scenario = join(dir, "talk.yaml");
  writeFileSync(
    scenario,
    `name: talk
target: { url: "${url}" }
duration: 600s
rooms: [{ preset: audio_room, people: { bot: ${BOTS} } }]
media: { audio: speech, video: none }
join: { per_second: 20 }
`,
  );
  const child = spawn(BINARY, ["load", scenario, "--plain", "--runs", join(dir, "runs")], {
    stdio: "ignore",
  });
  t.after(() => child.kill("SIGKILL"));
}

async function picture({ page }, name) {
  if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, `${name}.png`) });
}

test("a page in an audience says how many there are, who speaks and who raises a hand", async (t) => {
  const config = `http: { bind: "127.0.0.1:7880" }
admin: { bind: "127.0.0.1:7880" }
media: { bind: ["127.0.0.1"] }
guests: all
limits: { roster: ${ROSTER} }
`;
  const { url } = await serve(t, { config });
  talk(t, url);
  const launched = await browser(t);
  const query = { camera: "0", mic: "0" };
  const seen = async ({ page }) => (await page.locator("header.head").innerText()).replace(/\s+/g, " ");
  const room = await until("everybody", async () => {
    const [{ id, people } = {}] = (await (await fetch(`${url}/v1/quality`)).json()).rooms;
    return people === BOTS && id;
  });
  const ada = await enter(t, launched, url, room, "Ada", query);
  const min = await enter(t, launched, url, room, "Min", query);
  await until("the number of people", async () => (await seen(ada)).includes(`${BOTS + 2} people`));
  const known = () =>
    ada.page.evaluate(() => [...window.moim.room.participants.values()].map(({ name }) => name));
  assert.equal((await known()).length, ROSTER, "the first who came");

  const tiles = () => ada.page.locator(".tile:not(.self):not(.more)").allInnerTexts();
  await until("somebody of the audience to speak", async () => (await tiles()).length > ROSTER);
  assert.match(await ada.page.locator(".tile.more").innerText(), /and \d+ more/);
  await until("the mix", async () => (await inbound(ada, "audio"))[0]?.packetsReceived > 50);

  await min.page.getByRole("button", { name: "Hand" }).click();
  await until("Min's hand", async () => (await known()).includes("Min"));
  await ada.page.getByRole("listitem", { name: /Min, hand raised/ }).waitFor();
  assert.ok((await seen(ada)).includes(`${BOTS + 2} people`), "nobody came for it");

  await ada.page.getByRole("button", { name: "People" }).click();
  const panel = ada.page.getByRole("complementary", { name: "People" });
  const audience = BOTS + 2 - 1 - ROSTER - 1;
  await panel.getByText(`and ${audience} in the audience`).waitFor();
  await picture(ada, "audience");
  await panel.getByRole("button", { name: `Read all ${BOTS + 2} names` }).click();
  await panel.getByText(`bot-${BOTS}`).waitFor();
  assert.equal(await panel.getByRole("listitem").count(), BOTS + 2);
  await picture(ada, "all-names");
  await min.page.getByRole("button", { name: "Hand" }).click();
  await ada.page.getByRole("listitem", { name: /^Min, (?!hand)/ }).waitFor();
  await min.page.context().close();
  await until("Min to be gone", async () => (await seen(ada)).includes(`${BOTS + 1} people`));
  assert.deepEqual(ada.errors, []);
});
