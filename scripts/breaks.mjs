// The ways to break a run that `make evidence-bottleneck` knows, and the loads that meet them.

import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BESIDE, hogs, namespace, pinned, quota } from "./breaking.mjs";
import { load } from "./evidence.mjs";

const SECONDS = 33;

const THRESHOLDS = `thresholds:
  loss_pct: ["user_p95 < 2"]
  jitter_ms: ["user_p95 < 30"]
  mos_cq: ["user_p5 > 3.8"]
  join_to_first_audio_ms: ["p95 < 800"]
`;
const SOUND = { rooms: 20, size: 6 };

/** Rooms that forward sound. */
function sound(url, share = 1, more = "") {
  const rooms = Math.max(1, Math.round(SOUND.rooms * share));
  return `name: bottleneck
target: { url: "${url}" }
duration: ${SECONDS}s
rooms:
  - { count: ${rooms}, audio: sfu, video: none, people: { bot: ${SOUND.size} } }
${more}media: { audio: speech, video: none }
join: { per_second: 30 }
${THRESHOLDS}`;
}

/**
 * Rooms that mix sound: much work for the server, little for the bots; and some that forward it, so that
 * the generator's CPU does not fall asleep between two packets.
 */
const mixed = (url, rooms) => `name: bottleneck
target: { url: "${url}" }
duration: ${SECONDS}s
rooms:
  - { count: ${rooms}, audio: mcu, video: none, people: { bot: 3 } }
  - { count: 6, audio: sfu, video: none, people: { bot: 6 } }
media: { audio: speech, video: none }
join: { per_second: 30 }
${THRESHOLDS}`;

/** Many in one mixed room: every join is told to everyone who is there. */
const crowd = (url, people) => `name: bottleneck
target: { url: "${url}" }
duration: ${SECONDS}s
rooms: [{ audio: mcu, video: none, people: { bot: ${people} } }]
media: { audio: speech, video: none }
join: { per_second: 40 }
`;

/** A call of four: the first is behind a downlink that the others' pictures, of which none may rest, do not fit into. */
export const SLOW = "bot-1";
const call = (url, kbps) => `name: bottleneck
target: { url: "${url}" }
duration: ${SECONDS}s
rooms: [{ audio: sfu, video: sfu, people: { bot: 4 } }]
media: { audio: speech, video: 480p }
networks: [{ name: slow, share_pct: 25, way: down, rate_kbps: ${kbps}, queue: 300ms }]
thresholds: { paused_ratio: ["max < 0.5"] }
`;

const COMING =
  "  - { audio: sfu, video: none, churn: { stay: 4s }, people: { bot: 20 } }\n";

/** What the loads need here today: all magnitudes are relative to it. */
export async function calibrate() {
  const server = await pinned({});
  const forward = await load(sound(server.url));
  const mix = await load(mixed(server.url, 10));
  await server.stop();
  const used = forward.summary.server;
  const mixers = Object.entries(mix.summary.server.threads);
  const mixing = mixers
    .filter(([name]) => name.startsWith("mix-"))
    .reduce((sum, [, cores]) => sum + cores, 0);
  const out = used.cpu_cores / (used.us_per_packet_out / 1e6);
  return {
    server_cores: used.cpu_cores,
    generator_cores: forward.summary.generator.cpu_cores,
    // Speech of 32 kbit/s and its headers: 170 bytes a packet, as tbf counts them.
    mbit: (out * 170 * 8) / 1e6,
    mix_room_cores: mixing / 10,
    packets_in: SOUND.rooms * SOUND.size * 50,
  };
}

/** Each kind: starts what is needed, runs the lab, and says what it did. `x` is its magnitude, 0 to 1. */
export const KINDS = {
  async quota(x, known, { flags }) {
    // Woken late, the server takes more at a time, and needs less: 60 % of what it used alone may do.
    const cores = known.server_cores * (0.2 + 0.25 * x);
    const group = quota("server", cores);
    const server = await pinned({ wrap: group.wrap });
    const run = await load(sound(server.url), { flags });
    await server.stop();
    group.remove();
    return { ...run, what: `quota of ${cores.toFixed(3)} cores` };
  },
  async thread(x, known) {
    const us = Math.round((1e6 / known.packets_in) * (1.2 + 0.8 * x));
    const flags = ["--fault", `hot_thread=${us}us`];
    const server = await pinned({ flags, cpu: null });
    const run = await load(sound(server.url));
    await server.stop();
    return { ...run, what: `a thread that burns ${us} µs a packet` };
  },
  async cpu(x, known) {
    const rooms = Math.round((1.3 + 0.7 * x) / known.mix_room_cores);
    const server = await pinned({ flags: ["--shards", "2"] });
    const run = await load(mixed(server.url, rooms));
    await server.stop();
    return { ...run, what: `${rooms} mixed rooms on one CPU` };
  },
  async link(x, known, { flags }) {
    const mbit = known.mbit * (0.45 + 0.35 * x);
    return behindLink(mbit, (url) => sound(url), flags);
  },
  async buffer(x) {
    const bytes = Math.round(1200 + 1200 * x);
    const flags = ["--fault", `receive_buffer=${bytes}`];
    const server = await pinned({ flags });
    const run = await load(sound(server.url));
    await server.stop();
    return { ...run, what: `receive buffers of ${bytes} bytes` };
  },
  async fds(x) {
    const people = SOUND.rooms * SOUND.size;
    const limit = Math.round(50 + people * (0.2 + 0.5 * x));
    const server = await pinned({ wrap: ["prlimit", `--nofile=${limit}`] });
    const run = await load(sound(server.url));
    await server.stop();
    return { ...run, what: `${limit} descriptors` };
  },
  async signaling(x) {
    const stall = Math.round(900 + 900 * x);
    const flags = ["--fault", `stalled_signaling=${stall}ms/2500ms`];
    const server = await pinned({ flags });
    const run = await load(sound(server.url, 0.5, COMING));
    await server.stop();
    return { ...run, what: `signaling that stalls ${stall} ms of 2.5 s` };
  },
  async generator(x, known, { nth }) {
    const server = await pinned({});
    let run, what;
    if (nth === 1) {
      const end = hogs(3 + Math.round(3 * x), "1");
      run = await load(sound(server.url));
      end();
      what = "others on the generator's CPU";
    } else {
      const cores = known.generator_cores * (0.3 + 0.3 * x);
      const group = quota("generator", cores);
      run = await load(sound(server.url), { wrap: group.wrap });
      group.remove();
      what = `a generator with ${cores.toFixed(3)} cores`;
    }
    await server.stop();
    return { ...run, what };
  },
  async crowd(x) {
    const people = Math.round(400 + 100 * x);
    const server = await pinned({});
    const run = await load(crowd(server.url, people));
    await server.stop();
    return { ...run, what: `${people} people in one mixed room` };
  },
  async downlink(x) {
    const kbps = Math.round(1000 + 500 * x);
    const server = await pinned({});
    const run = await load(call(server.url, kbps));
    await server.stop();
    return { ...run, what: `a participant behind ${kbps} kbit/s` };
  },
  /** Between 20 and 70 % of what one resource would bear. */
  async healthy(x, known, { nth }) {
    const used = 0.2 + 0.5 * x;
    const percent = `${Math.round(100 * used)} % of`;
    if (nth % 5 === 0) {
      const cores = known.server_cores / used;
      const group = quota("server", cores);
      const server = await pinned({ wrap: group.wrap });
      const run = await load(sound(server.url));
      await server.stop();
      group.remove();
      return {
        ...run,
        what: `${percent} a quota of ${cores.toFixed(2)} cores`,
      };
    }
    if (nth % 5 === 1) {
      const run = await behindLink(known.mbit / used, (url) => sound(url));
      return { ...run, what: `${percent} ${run.what}` };
    }
    if (nth % 5 === 2) {
      const rooms = Math.max(1, Math.round(used / known.mix_room_cores));
      const server = await pinned({ flags: ["--shards", "2"] });
      const run = await load(mixed(server.url, rooms));
      await server.stop();
      return { ...run, what: `${percent} a CPU: ${rooms} mixed rooms` };
    }
    if (nth % 5 === 3) {
      const limit = Math.round((50 + SOUND.rooms * SOUND.size) / used);
      const server = await pinned({ wrap: ["prlimit", `--nofile=${limit}`] });
      const run = await load(sound(server.url));
      await server.stop();
      return { ...run, what: `${percent} ${limit} descriptors` };
    }
    const server = await pinned({ cpu: null });
    const run = await load(sound(server.url, used, COMING));
    await server.stop();
    return { ...run, what: `${percent} the load, people come and go` };
  },
};

async function behindLink(mbit, scenario, flags) {
  const beside = await namespace(mbit);
  const dir = mkdtempSync(join(tmpdir(), "moim-evidence-"));
  const config = join(dir, "moim.yaml");
  writeFileSync(
    config,
    `http: { bind: "${BESIDE}:7880" }\nadmin: { bind: "${BESIDE}:7880" }\nmedia: { bind: ["${BESIDE}"] }\nguests: all\n`,
  );
  const server = await pinned({
    wrap: beside.wrap,
    flags: ["--config", config],
    url: `http://${BESIDE}:7880`,
  });
  const run = await load(scenario(server.url), { flags });
  await server.stop();
  await beside.remove();
  return { ...run, what: `a link of ${mbit.toFixed(1)} Mbit/s` };
}
