// A page whose way from the server is thin, in real Chromium: which pictures flow, what the page says of it, and that a pinned
// picture is not the one that rests. The limit is the kernel's, on this namespace's loopback, for the packets to that page alone.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { browser, enter, serve, stats, until } from "./world.mjs";

/** Enough for the small pictures of one camera, and not of two. */
const THIN_KBIT = 130;
const DEVICE = ["dev", "lo"];

const tc = (...args) => execFileSync("tc", args.map(String));

/** The port that a person's media arrives at. */
async function port(person) {
  const all = await stats(person);
  const pair = all.find(({ type, nominated }) => type === "candidate-pair" && nominated);
  return all.find(({ id }) => id === pair?.localCandidateId)?.port;
}

/** From now on so much gets through to a person, with a queue of 300 ms. */
async function limit(t, person, kbit) {
  const to = await until("a way to here", () => port(person));
  tc("qdisc", "add", ...DEVICE, "root", "handle", "1:", "htb", "default", "10");
  t.after(() => tc("qdisc", "del", ...DEVICE, "root"));
  tc("class", "add", ...DEVICE, "parent", "1:", "classid", "1:10", "htb", "rate", "10gbit");
  tc(
    "class",
    "add",
    ...DEVICE,
    "parent",
    "1:",
    "classid",
    "1:20",
    "htb",
    "rate",
    `${kbit}kbit`,
    "burst",
    3000,
  );
  tc("qdisc", "add", ...DEVICE, "parent", "1:20", "bfifo", "limit", Math.round((kbit * 1000 * 0.3) / 8));
  const match = ["match", "ip", "protocol", 17, "0xff", "match", "ip", "dport", to, "0xffff"];
  tc("filter", "add", ...DEVICE, "parent", "1:", "protocol", "ip", "u32", ...match, "flowid", "1:20");
}

/** How a person's page shows the others: who is paused, and who is live, by name. */
const tiles = ({ page }) =>
  page.evaluate(() =>
    Object.fromEntries(
      [...document.querySelectorAll(".tile:not(.self)")].map((tile) => [
        tile.querySelector(".name").textContent,
        { paused: tile.classList.contains("paused"), width: tile.clientWidth },
      ]),
    ),
  );

test("a thin page says what it gets, and keeps the picture that is pinned", async (t) => {
  const { url } = await serve(t);
  const launched = await browser(t);
  const query = { mic: "0", camera: "720p" };
  await enter(t, launched, url, "thin", "Ada", query);
  await enter(t, launched, url, "thin", "Bob", query);
  const min = await enter(t, launched, url, "thin", "Min", { ...query, camera: "0" });
  const { page } = min;
  const button = (name) => page.getByRole("button", { name });
  await button(/quality/i).click();
  await limit(t, min, THIN_KBIT);
  const paused = async () => {
    const shown = Object.entries(await tiles(min));
    const resting = shown.filter(([, tile]) => tile.paused);
    return resting.length === 1 && resting[0][0];
  };
  const rests = await until("one of two pictures to rest", paused, 40);
  const flows = rests === "Ada" ? "Bob" : "Ada";
  const panel = page.getByRole("complementary", { name: "Connection quality" });
  const says = async (...patterns) => {
    const text = await panel.innerText();
    return patterns.every((pattern) => pattern.test(text)) && text;
  };
  const estimate = /downlink about \d+ kbit\/s/;
  const shown = await until("the panel", () =>
    says(
      estimate,
      new RegExp(`${rests}, video.*paused: bandwidth`),
      new RegExp(`${flows}, video 320×180\\s`),
    ),
  );
  console.log(`# ${shown.replaceAll(/\s+/g, " ")}`);
  const picture = (name) =>
    process.env.PICTURES && page.screenshot({ path: `${process.env.PICTURES}/${name}.png` });
  await picture("thin");
  await page.getByRole("listitem", { name: new RegExp(rests) }).hover();
  await button(`Pin ${rests}`).click();
  const asked = Date.now();
  await until(
    `${flows}'s picture to rest in place of ${rests}'s`,
    async () => (await paused()) === flows,
    40,
  );
  console.log(`# the pinned picture flows after ${Math.round((Date.now() - asked) / 1000)} s`);
  const now = await tiles(min);
  assert.ok(now[rests].width > 2 * now[flows].width, `the pinned tile is large: ${JSON.stringify(now)}`);
  await until("the panel to say so", () => says(estimate, new RegExp(`${flows}, video.*paused: bandwidth`)));
  await picture("thin-pinned");
  await button(`Unpin ${rests}`).click();
  await until("tiles of one size", async () => {
    const [one, other] = Object.values(await tiles(min));
    return one.width === other.width;
  });
  assert.deepEqual(min.errors, []);
});
