// A page whose way from the server is thin, in real Chromium: which pictures flow, what the page says of it, and that a pinned
// picture is not the one that rests. The limit is the kernel's, on this namespace's loopback, for the packets to that page alone.
// PICTURES names a directory for pictures of the page.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { browser, enter, serve, sing, stats, until } from "./world.mjs";

/** Enough for a voice and the small pictures of one camera, and not of two. */
const THIN_KBIT = 180;
/** Some 0.4 s; no less than the server hands to the kernel at once. */
const QUEUE_BYTES = 10_000;
const DEVICE = ["dev", "lo"];

const env = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };
const tc = (...args) => execFileSync("tc", args.map(String), { env });

/** The port that a person's media arrives at. */
async function port(person) {
  const all = await stats(person);
  const pair = all.find(({ type, nominated }) => type === "candidate-pair" && nominated);
  return all.find(({ id }) => id === pair?.localCandidateId)?.port;
}

/** From now on so much gets through to a person. */
async function limit(t, person) {
  const to = await until("a way to here", () => port(person));
  tc("qdisc", "add", ...DEVICE, "root", "handle", "1:", "htb", "default", "10");
  t.after(() => tc("qdisc", "del", ...DEVICE, "root"));
  const rate = (id, ...limits) =>
    tc("class", "add", ...DEVICE, "parent", "1:", "classid", id, "htb", "rate", ...limits);
  rate("1:10", "10gbit", "quantum", 60_000);
  rate("1:20", `${THIN_KBIT}kbit`, "burst", 1600);
  tc("qdisc", "add", ...DEVICE, "parent", "1:20", "bfifo", "limit", QUEUE_BYTES);
  const match = ["match", "ip", "protocol", 17, "0xff", "match", "ip", "dport", to, "0xffff"];
  tc("filter", "add", ...DEVICE, "parent", "1:", "protocol", "ip", "u32", ...match, "flowid", "1:20");
}

/** How a page shows the others, by name: whether their picture is paused, and how wide their tile is. */
const tiles = ({ page }) =>
  page.evaluate(() =>
    Object.fromEntries(
      [...document.querySelectorAll(".tile:not(.self)")].map((tile) => [
        tile.querySelector(".name").textContent,
        { paused: tile.classList.contains("paused"), width: tile.clientWidth },
      ]),
    ),
  );

/** Who alone is said to be paused. */
async function paused(person) {
  const resting = Object.entries(await tiles(person)).filter(([, tile]) => tile.paused);
  return resting.length === 1 && resting[0][0];
}

test("a thin page says what it gets, and keeps the picture that is pinned", async (t) => {
  if (Object.keys(networkInterfaces()).some((name) => name !== "lo"))
    return t.skip("no network namespace of its own, in which a link may be limited");
  const { url } = await serve(t);
  const launched = await browser(t);
  const query = { mic: "0", camera: "720p" };
  await enter(t, launched, url, "thin", "Ada", query);
  const bob = await enter(t, launched, url, "thin", "Bob", query);
  const min = await enter(t, launched, url, "thin", "Min", { ...query, camera: "0" });
  const { page } = min;
  const button = (name) => page.getByRole("button", { name });
  await button(/quality/i).click();
  await sing(bob, 440);
  await limit(t, min);
  await until("the picture of whom does not speak to rest", async () => (await paused(min)) === "Ada");
  const panel = page.getByRole("complementary", { name: "Connection quality" });
  const says = async (...patterns) => {
    const text = await panel.innerText();
    return patterns.every((pattern) => pattern.test(text)) && text;
  };
  const estimate = /downlink about \d+ kbit\/s/;
  const shown = await until("the panel", () =>
    says(estimate, /Ada, video.*paused: bandwidth/, /Bob, video 320×180\s/, /Bob, audio/),
  );
  console.log(`# ${shown.replaceAll(/\s+/g, " ")}`);
  const picture = (name) =>
    process.env.PICTURES && page.screenshot({ path: `${process.env.PICTURES}/${name}.png` });
  await picture("thin");
  await page.getByRole("listitem", { name: /^Ada/ }).hover();
  await button("Pin Ada").click();
  const asked = Date.now();
  await until("Bob's picture to rest in place of hers", async () => (await paused(min)) === "Bob");
  console.log(`# the pinned picture flows after ${Math.round((Date.now() - asked) / 1000)} s`);
  const now = await tiles(min);
  assert.ok(now.Ada.width > 2 * now.Bob.width, `the pinned tile is large: ${JSON.stringify(now)}`);
  await until("the panel to say so", () => says(estimate, /Bob, video.*paused: bandwidth/));
  await picture("thin-pinned");
  assert.equal(await button("Pin Ada").getAttribute("aria-pressed"), "true");
  await button("Pin Ada").click();
  await until("tiles of one size", async () => {
    const { Ada, Bob } = await tiles(min);
    return Ada.width === Bob.width;
  });
  assert.deepEqual(min.errors, []);
});
