// Firefox in a call with Chromium: each sees and hears the other, by their own counters.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { enterByFirefox } from "./firefox.mjs";
import { ADMIN, browser, enter, inbound, median, serve, stats, until, watch } from "./world.mjs";

const SECONDS = 10;

/** An address of this namespace that is not the loopback's: Firefox gathers no candidate there. */
function address(t) {
  const run = (command) => execFileSync("sh", ["-ec", command]);
  run(`ip link add moim-ff-0 type veth peer name moim-ff-1
    ip addr add 10.78.0.1/24 dev moim-ff-0
    ip link set moim-ff-0 addrgenmode none || true
    ip link set moim-ff-0 up
    ip link set moim-ff-1 up
    ip route add default via 10.78.0.2`);
  t.after(() => run("ip link del moim-ff-0"));
  return "10.78.0.1";
}

/** What somebody sends, and what their page says: why the other one may miss it. */
async function sent(person) {
  const rows = (await stats(person)).filter(({ type }) => type === "outbound-rtp");
  const told = rows.map(({ kind, rid = "", packetsSent, framesEncoded = "–", pliCount = "–" }) =>
    [kind, rid, packetsSent, "packets", framesEncoded, "frames", pliCount, "keyframe requests"].join(" "),
  );
  const page = await person.page.evaluate(() => document.body.innerText.replaceAll("\n", " "));
  return `${person.name} sends ${told.join(", ") || "nothing"} (${page})`;
}

test("Firefox and Chromium see and hear each other", async (t) => {
  const config = `
http: { bind: "127.0.0.1:7880" }
admin: { token: "${ADMIN}" }
media: { bind: ["${address(t)}"] }
`;
  const { url } = await serve(t, { config });
  const ada = await enter(t, await browser(t, { loopback: false }), url, "mixed", "Ada");
  const min = await enterByFirefox(t, url, "mixed", "Min");
  for (const person of [ada, min])
    for (const kind of ["video", "audio"])
      await until(`${kind} for ${person.name}`, async () => (await inbound(person, kind)).length > 0).catch(
        async (error) => {
          throw new Error(`${error.message}; ${await sent(ada)}; ${await sent(min)}`);
        },
      );
  // Firefox takes a while until its fake camera and its decoder run evenly.
  for (const person of [ada, min]) {
    const enough = async () => (await inbound(person, "video"))[0].framesDecoded > 30;
    await until(`pictures for ${person.name}`, enough);
  }
  const watched = await Promise.all([ada, min].map((person) => watch(person, SECONDS)));
  for (const [index, rows] of watched.entries()) {
    const { name } = [ada, min][index];
    const of = (kind) => rows.filter((row) => row.kind === kind);
    const fps = median(of("video").map((row) => row.fps));
    const lost = rows.reduce((sum, row) => sum + row.lost, 0);
    console.log(`# ${name}: ${fps.toFixed(1)} frames/s, ${lost} packets lost`);
    assert.ok(fps >= 10, `${name}: ${fps} decoded frames/s`);
    assert.equal(lost, 0, `${name} loses ${lost} packets`);
    assert.ok(
      of("audio").some((row) => row.energy > 0),
      `${name} hears something`,
    );
  }
  const codecs = (await stats(min)).filter((entry) => entry.type === "codec").map((entry) => entry.mimeType);
  assert.ok(codecs.includes("video/VP8") && codecs.includes("audio/opus"), codecs.join());
  assert.deepEqual([...ada.errors, ...(await min.errors())], []);
});
