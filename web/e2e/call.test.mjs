// Two people in a call, in real Chromium: they see and hear each other, by getStats.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { browser, enter, inbound, median, scratch, serve, stats, until, watch } from "./world.mjs";

const SECONDS = 20;

async function codec(person, kind) {
  const all = await stats(person);
  const stream = all.find((s) => s.type === "inbound-rtp" && s.kind === kind && s.packetsReceived > 0);
  return all.find((s) => s.id === stream.codecId).mimeType;
}

/** Everything that Done 2 asks of a pair, for `SECONDS`. */
async function assertTheySeeAndHear(pair, videoCodec) {
  const watched = await Promise.all(pair.map((person) => watch(person, SECONDS)));
  for (const [index, rows] of watched.entries()) {
    const { name, errors } = pair[index];
    const video = rows.filter((row) => row.kind === "video");
    const audio = rows.filter((row) => row.kind === "audio");
    const fps = median(video.map((row) => row.fps));
    const concealed = audio.reduce((sum, row) => sum + row.concealed, 0);
    const samples = audio.reduce((sum, row) => sum + row.samples, 0);
    const share = (100 * concealed) / samples;
    console.log(`# ${name}: ${fps.toFixed(1)} frames/s, ${share.toFixed(2)} % concealed`);
    assert.ok(video.length >= SECONDS - 2, `${name} has video in each second`);
    assert.ok(audio.length >= SECONDS - 2, `${name} has audio in each second`);
    assert.ok(fps >= 15, `${name}: ${fps} decoded frames/s`);
    assert.equal(video.at(-1).height, 360, `${name}: height`);
    assert.ok(share < 5, `${name}: ${share} % of the sound concealed`);
    assert.ok(
      audio.some((row) => row.energy > 0),
      `${name} hears something`,
    );
    assert.deepEqual(errors, [], `${name}: errors in the page`);
    assert.equal(await codec(pair[index], "video"), videoCodec);
    assert.equal(await codec(pair[index], "audio"), "audio/opus");
    const transport = (await stats(pair[index])).find((s) => s.type === "transport");
    assert.match(transport.srtpCipher, /^SRTP_AEAD_AES_(128|256)_GCM$/);
  }
}

/** Waits until somebody sees a picture in its full size, and hears something. */
function seesAndHears(person) {
  return until(`a picture and sound for ${person.name}`, async () => {
    const pictures = await inbound(person, "video");
    const voices = await inbound(person, "audio");
    return pictures.some((s) => s.frameHeight === 360) && voices.some((s) => s.totalAudioEnergy > 0);
  });
}

/** Ada and Min in one room, who see and hear each other. */
async function meet(t, launched, url, room, query = {}) {
  const pair = [];
  for (const name of ["Ada", "Min"]) pair.push(await enter(t, launched, url, room, name, query));
  for (const person of pair) await seesAndHears(person);
  return pair;
}

/** Up to six more come in one after the other: one of them has a frame within 2 s of joining. */
async function assertFirstFrameComesSoon(t, launched, url, room, query = {}) {
  const times = [];
  for (const name of ["One", "Two", "Three", "Four", "Five", "Six"]) {
    const { page } = await enter(t, launched, url, room, name, query);
    times.push(await until("a frame", () => page.evaluate(() => window.firstFrameMs)));
    await page.context().close();
    if (times.at(-1) < 2000) break;
  }
  console.log(`# first frame after joining: ${times.map((ms) => `${Math.round(ms)} ms`).join(", ")}`);
  assert.ok(Math.min(...times) < 2000, `first frame after ${times} ms`);
}

test("two pages see and hear each other", async (t) => {
  const { url } = await serve(t);
  const launched = await browser(t);
  const [ada, min] = await meet(t, launched, url, "garden");
  await assertTheySeeAndHear([ada, min], "video/VP8");
  const pair = await until("feedback to let the estimate grow", async () => {
    const way = (await stats(ada)).find((s) => s.type === "candidate-pair" && s.nominated);
    if (way.availableOutgoingBitrate > 400_000) return way;
    throw new Error(`${way.availableOutgoingBitrate} bit/s`);
  });
  assert.ok(pair.currentRoundTripTime < 0.5);
  await assertFirstFrameComesSoon(t, launched, url, "garden");
});

test("two pages see and hear each other in H.264", async (t) => {
  const { url } = await serve(t);
  const launched = await browser(t);
  const pair = await meet(t, launched, url, "h264", { codec: "h264" });
  await assertTheySeeAndHear(pair, "video/H264");
  await assertFirstFrameComesSoon(t, launched, url, "h264", { codec: "h264" });
});

test("over a veth address and HTTPS, without the loopback flag", async (t) => {
  const name = `moim-e2e-${process.pid}`;
  const run = (command) => execFileSync("sh", ["-ec", command]);
  run(`ip netns add ${name}
    ip link add moim-e2e-0 type veth peer name moim-e2e-1 netns ${name}
    ip addr add 10.77.0.1/24 dev moim-e2e-0
    # An IPv6 address that comes a second later would change the network while a page loads.
    ip link set moim-e2e-0 addrgenmode none || true
    ip link set moim-e2e-0 up
    ip -n ${name} addr add 10.77.0.2/24 dev moim-e2e-1
    ip -n ${name} link set moim-e2e-1 up
    ip -n ${name} link set lo up`);
  t.after(() => run(`ip netns del ${name}`));
  const dir = scratch();
  run(`openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj /CN=moim -addext subjectAltName=IP:10.77.0.2 \
    -keyout ${join(dir, "key.pem")} -out ${join(dir, "cert.pem")} 2>/dev/null`);
  const { url } = await serve(t, {
    prefix: ["ip", "netns", "exec", name],
    url: "https://10.77.0.2:7880",
    config: `
http: { bind: "10.77.0.2:7880" }
media: { bind: ["10.77.0.2"] }
tls: { cert: "${join(dir, "cert.pem")}", key: "${join(dir, "key.pem")}" }
`,
  });
  const launched = await browser(t, { loopback: false, args: ["--ignore-certificate-errors"] });
  const [ada, min] = await meet(t, launched, url, "garden");
  await assertTheySeeAndHear([ada, min], "video/VP8");
  const pair = (await stats(ada)).find((s) => s.type === "candidate-pair" && s.nominated);
  const remote = (await stats(ada)).find((s) => s.id === pair.remoteCandidateId);
  assert.equal(remote.address, "10.77.0.2");
  await assertFirstFrameComesSoon(t, launched, url, "garden");
});

test("a socket lost for 10 s does not interrupt the sound", async (t) => {
  const { url } = await serve(t);
  const launched = await browser(t);
  const ada = await enter(t, launched, url, "garden", "Ada");
  const min = await enter(t, launched, url, "garden", "Min");
  for (const person of [ada, min]) await seesAndHears(person);
  const [peers, me] = await ada.page.evaluate(() => [
    window.peers.length,
    window.moim.room.me.id ?? window.moim.room.me,
  ]);
  await ada.page.evaluate(() => window.cutSockets(10_000));
  const [heard, seen] = await Promise.all([watch(ada, 14), watch(min, 14)]);
  for (const [who, rows] of [
    ["Ada", heard],
    ["Min", seen],
  ]) {
    const audio = rows.filter((row) => row.kind === "audio");
    assert.equal(audio.length, 14, `${who} has audio in each second`);
    const least = Math.min(...audio.map((row) => row.packets));
    const concealed = audio.reduce((sum, row) => sum + row.concealed, 0);
    const samples = audio.reduce((sum, row) => sum + row.samples, 0);
    assert.ok(least >= 40, `${who}: ${least} packets in the worst second`);
    assert.ok(concealed < 0.02 * samples, `${who}: ${concealed} of ${samples} samples concealed`);
  }
  await until(
    "the socket to be back",
    async () => (await ada.page.evaluate(() => window.moim.state().state)) === "connected",
  );
  const after = await ada.page.evaluate(() => [
    window.peers.length,
    window.moim.room.me.id ?? window.moim.room.me,
  ]);
  assert.deepEqual(after, [peers, me], "the same participant on the same connection");
  assert.ok((await ada.page.evaluate(() => window.socketsRefused)) > 0, "the socket was really refused");
});
