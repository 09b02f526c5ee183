// Random clicks, slow devices, devices that go, lost sockets. What is announced is what is sent, and what is shown is what is so. After each
// way out no device is open. MOIM_SEQUENCES plays so many of them, MOIM_SEED others.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ADMIN, browser, enter, serve, until } from "./world.mjs";

const SEQUENCES = Number(process.env.MOIM_SEQUENCES ?? 5);
const FIRST_SEED = Number(process.env.MOIM_SEED ?? 1);
/** So many people click at a time: more are slow on two cores. */
const AT_ONCE = 5;
const STEPS = 9;
/** A device opens within this time. */
const OPENS_MS = 2_000;
const KINDS = ["audio", "video"];
const WAYS_OUT = ["leave", "removed", "ended", "navigation", "error"];

/** Numbers below a bound from a seed (Mulberry32). */
function random(seed) {
  let state = seed >>> 0;
  return (bound) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound;
  };
}

/** In a page, before its own code: devices take their time to open, some do not, and all tracks that were ever opened are kept. */
function slowDevices([seed, longestMs]) {
  const original = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  let state = seed;
  const below = (bound) => (state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff) % bound;
  window.opened = [];
  window.opening = 0;
  window.devicesFail = false;
  navigator.mediaDevices.getUserMedia = async (asked) => {
    window.opening++;
    try {
      await new Promise((done) => setTimeout(done, below(longestMs)));
      if (window.devicesFail && below(4) === 0) throw new DOMException("taken", "NotReadableError");
      const stream = await original(asked);
      window.opened.push(...stream.getTracks());
      return stream;
    } finally {
      window.opening--;
    }
  };
}

/** One thing that happens to a page, by chance. */
async function step(page, below) {
  const click = (name) =>
    page.evaluate((name) => {
      const buttons = [...document.querySelectorAll("button.control")];
      buttons.find((button) => button.textContent.includes(name))?.click();
    }, name);
  switch (below(8)) {
    case 0:
    case 1:
    case 2:
      return click("Camera");
    case 3:
    case 4:
      return click("Microphone");
    case 5:
      return page.evaluate((ms) => window.cutSockets(ms), below(1_500));
    case 6:
      return page.evaluate((nth) => {
        const open = window.opened.filter((track) => track.readyState === "live");
        const track = open[nth % Math.max(1, open.length)];
        track?.stop();
        track?.dispatchEvent(new Event("ended"));
      }, below(2));
    default:
      return page.evaluate((kind) => {
        const publish = { audio: "publishMicrophone", video: "publishCamera" }[kind];
        window.moim.room?.[publish]().catch(() => {});
      }, KINDS[below(2)]);
  }
}

/** For each kind: what the page shows, what the SDK says, what leaves, and what others are told. */
async function states({ page, name }, watcher) {
  const told = await watcher.page.evaluate((name) => {
    const person = window.moim.state().participants.find((person) => person.name === name);
    return (person?.tracks ?? []).filter((track) => !track.muted).map((track) => track.kind);
  }, name);
  return page.evaluate((told) => {
    const on = (kind) => {
      const local = window.moim.room.localTrack(kind);
      const label = kind === "audio" ? "Microphone" : "Camera";
      const buttons = [...document.querySelectorAll("button.control")];
      const button = buttons.find((button) => button.textContent.includes(label));
      const peers = window.peers.filter((peer) => peer.connectionState !== "closed");
      const sends = ({ sender, currentDirection }) =>
        sender.track?.kind === kind &&
        sender.track.enabled &&
        sender.track.readyState === "live" &&
        currentDirection?.startsWith("send");
      return {
        shown: button?.getAttribute("aria-pressed") === "true",
        said: local !== null && !local.muted,
        sent: peers.some((peer) => peer.getTransceivers().some(sends)),
        told: told.includes(kind),
      };
    };
    const camera = window.opened.filter((track) => track.kind === "video" && track.readyState === "live");
    return {
      state: window.moim.state().state,
      opening: window.opening,
      audio: on("audio"),
      video: { ...on("video"), open: camera.length > 0 },
      cameras: camera.length,
    };
  }, told);
}

const alike = (kind) => new Set(Object.values(kind)).size === 1;

/** Somebody plays a sequence, and ends the call in one of the ways. */
async function play(t, launched, url, room, watcher, seed) {
  const below = random(seed);
  const person = await enterSlowly(t, launched, url, room, `p${seed}`, seed);
  const { page } = person;
  await page.evaluate(() => (window.devicesFail = true));
  for (let nth = 0; nth < STEPS; nth++) {
    await step(page, below);
    await page.waitForTimeout(below(700));
  }
  let last;
  const agree = async () => {
    last = await states(person, watcher);
    const { state, opening, audio, video, cameras } = last;
    return state === "connected" && opening === 0 && alike(audio) && alike(video) && cameras <= 1;
  };
  await until(`seed ${seed}: all to agree`, agree).catch((error) => {
    throw new Error(`${error.message}: ${JSON.stringify(last)}`);
  });
  const out = WAYS_OUT[seed % WAYS_OUT.length];
  // One opens on the way out.
  await page.evaluate(() => void window.moim.room.publishCamera().catch(() => {}));
  await page.waitForTimeout(below(300));
  if (out === "leave") await page.click("text=Leave");
  else if (out === "removed") {
    await remove(page, watcher);
  } else if (out === "error") {
    // Their socket is lost meanwhile: they hear of it when they come back, and joining anew is refused.
    await page.evaluate(() => window.cutSockets(1_000));
    await remove(page, watcher);
  } else if (out === "navigation") {
    await page.goto("about:blank");
    await until(`seed ${seed}: others see that they left`, () => isGone(person, watcher));
    await page.goBack();
    await nothingLeft(page, seed);
    return { person, out };
  } else {
    return { person, out };
  }
  await nothingOpen(page, seed, out);
  return { person, out };
}

/** A moderator removes somebody. */
async function remove(page, watcher) {
  const id = await page.evaluate(() => window.moim.room.me);
  await watcher.page.evaluate((id) => window.moim.room.remove(id), id);
}

/** Whether somebody is not in the room any more, as others see it. */
function isGone({ name }, watcher) {
  return watcher.page.evaluate(
    (name) => !window.moim.state().participants.some((person) => person.name === name),
    name,
  );
}

/** Back again, the page is a new one that joins once more: what it opened is what it sends, and a camera at most once. */
async function nothingLeft(page, seed) {
  let last;
  const joined = async () => {
    last = await page.evaluate(() => ({
      state: window.moim?.state().state,
      opening: window.opening,
      open: (window.opened ?? []).filter((track) => track.readyState === "live").map(({ kind }) => kind),
    }));
    const once = new Set(last.open).size === last.open.length;
    return last.state === "connected" && last.opening === 0 && once;
  };
  await until(`seed ${seed}: back again`, joined).catch((error) => {
    throw new Error(`${error.message}: ${JSON.stringify(last)}`);
  });
}

async function nothingOpen(page, seed, out) {
  let last;
  const closed = async () => {
    last = await page.evaluate(() => ({
      state: window.moim.state().state,
      opening: window.opening,
      open: window.opened.filter((track) => track.readyState === "live").map(({ kind }) => kind),
    }));
    return last.state === "ended" && last.opening === 0 && last.open.length === 0;
  };
  await until(`seed ${seed}: no device open after ${out}`, closed).catch((error) => {
    throw new Error(`${error.message}: ${JSON.stringify(last)}`);
  });
}

async function enterSlowly(t, launched, url, room, name, seed) {
  const before = (page) => page.addInitScript(slowDevices, [seed, OPENS_MS]);
  const person = await enter(t, launched, url, room, name, {}, before);
  t.after(() => person.page.context().close());
  return person;
}

test("what is announced is what is sent, whatever people click", async (t) => {
  const config = `
http: { bind: "127.0.0.1:7880" }
admin: { token: "${ADMIN}" }
guests: all
`;
  const { url } = await serve(t, { config });
  const launched = await browser(t);
  for (let from = 0; from < SEQUENCES; from += AT_ONCE) {
    const seeds = [...Array(Math.min(AT_ONCE, SEQUENCES - from)).keys()].map(
      (nth) => FIRST_SEED + from + nth,
    );
    await t.test(`seeds ${seeds.join(", ")}`, async (t) => {
      const room = `wishes-${from}`;
      const watcher = await enter(t, launched, url, room, "watcher", { mic: "0", camera: "off" });
      t.after(() => watcher.page.context().close());
      const played = await Promise.all(
        seeds.map((seed) => play(t, launched, url, room, watcher, seed).then((it) => ({ ...it, seed }))),
      );
      // The room ends for all who are still there.
      const answer = await fetch(`${url}/v1/rooms/${room}`, { method: "DELETE" });
      assert.ok(answer.ok, `${answer.status}`);
      for (const { person, out, seed } of played)
        if (out === "ended") await nothingOpen(person.page, seed, out);
    });
  }
});
