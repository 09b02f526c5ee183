// A NAT gives everybody another port each 20 s for two minutes, and nobody is told. Who sends or sees pictures loses at most 2 s
// each time, who listens to sound alone at most 6 s: in Chromium, Firefox, Pion and aiortc. The NAT is the kernel's own.
// Takes about 4 minutes. Writes target/evidence/nat.json.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BINARY, finish, sleep, stayAwake } from "./evidence.mjs";
import {
  browser,
  counter,
  enter,
  inbound,
  serve,
  until,
} from "../web/e2e/world.mjs";
import { enterByFirefox } from "../web/e2e/firefox.mjs";

const ADDRESS = "10.79.0.1";
const CHANGES = Number(process.env.CHANGES ?? 6);
const EVERY_MS = 20_000;
const MOST_S = { pictures: 2, sound: 6 };
const run = (line) =>
  execFileSync("sh", ["-ec", line], { stdio: ["ignore", "pipe", "pipe"] });

/** As much of a test as the helpers of the browser tests use. */
const endings = [];
const t = { after: (end) => endings.unshift(end), passed: true };

run(`ip link add nat0 type veth peer name nat1
  ip addr add ${ADDRESS}/24 dev nat0
  ip link set nat0 up
  ip link set nat1 up
  ip route add default via 10.79.0.2`);
stayAwake(600);

// From the beginning: a flow that began without it would be taken for the answer to what the server sends.
execFileSync("nft", ["-f", "-"], {
  input: `table ip nat { chain post {
    type nat hook postrouting priority 100;
    udp dport 7882 snat to ${ADDRESS}:40000-49999 random
  } }\n`.replaceAll(" } }", " }\n}"),
});

const config = `
http: { bind: "127.0.0.1:7880" }
admin: { bind: "127.0.0.1:7880" }
media: { bind: ["${ADDRESS}"] }
guests: all
`;
const { url } = await serve(t, { config });

/** What came to each, by name: `[ms, sound, pictures]`, the oldest first. */
const came = new Map();

/** A program of tests/clients, which says each second what came. */
function program(name, command, args) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  const rows = [];
  came.set(name, { rows, kind: "pictures", every_ms: 1000 });
  child.stdout.on("data", (data) => {
    for (const line of String(data)
      .split("\n")
      .filter((line) => line.startsWith("{"))) {
      const { audio, video } = JSON.parse(line);
      rows.push([Date.now(), audio, video]);
    }
  });
}

let watching = true;
const pages = [];
/** A page, whose counters are read some five times a second. */
async function page(name, kind, person) {
  const rows = [];
  came.set(name, { rows, kind, every_ms: 250 });
  const total = async (media) =>
    (await inbound(person, media)).reduce(
      (sum, { packetsReceived }) => sum + packetsReceived,
      0,
    );
  while (watching) {
    rows.push([
      Date.now(),
      await total("audio"),
      kind === "sound" ? 0 : await total("video"),
    ]);
    await sleep(100);
  }
}

const talk = join(mkdtempSync(join(tmpdir(), "moim-nat-")), "talk.yaml");
writeFileSync(
  talk,
  `name: talk
target: { url: "${url}" }
duration: 240s
rooms: [{ preset: audio_room, people: { bot: 4 } }]
media: { audio: speech, video: none }
`,
);
const bots = spawn(
  BINARY,
  ["load", talk, "--plain", "--runs", join(talk, "..", "runs")],
  { stdio: "ignore" },
);
t.after(() => bots.kill("SIGKILL"));
const audioRoom = await until("the room of bots", async () => {
  const { rooms } = await (await fetch(`${url}/v1/quality`)).json();
  return rooms.find(({ people }) => people === 4)?.id;
});

const [client, room] = ["target/clients", "nat"];
program("Pion", `${client}/pion`, [
  url.replace("http", "ws"),
  room,
  "Pion",
  "media/video-360p.ivf",
]);
const aiortc = [
  "tests/clients/aiortc/client.py",
  url.replace("http", "ws"),
  room,
  "aiortc",
];
program("aiortc", `${client}/aiortc/bin/python`, aiortc);
const silent = { camera: "0", mic: "0" };
const chromium = await browser(t, { loopback: false });
pages.push(
  page("Chromium", "pictures", await enter(t, chromium, url, room, "Chromium")),
);
pages.push(
  page(
    "Chromium, listening",
    "sound",
    await enter(t, chromium, url, audioRoom, "Ada", silent),
  ),
);
pages.push(
  page("Firefox", "pictures", await enterByFirefox(t, url, room, "Firefox")),
);
pages.push(
  page(
    "Firefox, listening",
    "sound",
    await enterByFirefox(t, url, audioRoom, "Min", silent),
  ),
);
await until(
  "media everywhere",
  () =>
    [...came.values()].every(({ rows, kind }) => {
      const [, audio, video] = rows.at(-1) ?? [0, 0, 0];
      return audio > 100 && (kind === "sound" || video > 20);
    }),
  60,
);
await sleep(5000);

/** How often the server moved somebody's media: without that, nobody's port changed. */
const moved = () => counter(url, "moim_media_moved_total");
const PEOPLE = came.size + 4;
const [changes, moves] = [[], []];
for (let nth = 0; nth < CHANGES; nth++) {
  const before = await moved();
  changes.push(Date.now());
  run("conntrack -F");
  console.log(`port ${nth + 1} of ${CHANGES} changed`);
  await sleep(EVERY_MS);
  moves.push((await moved()) - before);
}
watching = false;
await Promise.all(pages);

/** The longest time in a span in which a counter did not grow, in seconds. Rows come so often that this is at most one too long. */
function still(rows, column, from, to) {
  let [since, value, longest] = [null, null, 0];
  for (const row of rows.filter(([at]) => at >= from - 1500 && at <= to)) {
    if (value === null || row[column] > value)
      [since, value] = [row[0], row[column]];
    else longest = Math.max(longest, row[0] - since);
  }
  return longest / 1000;
}

const rows = [
  {
    what: "people whose media moved, at each change",
    moves,
    value: Math.min(...moves),
    least: PEOPLE,
    holds: moves.every((count) => count >= PEOPLE),
  },
];
console.log(rows[0]);
for (const [name, { rows: seen, kind, every_ms }] of came) {
  const columns = kind === "sound" ? [1] : [1, 2];
  const each = changes.map((at) =>
    columns.map((column) => still(seen, column, at, at + EVERY_MS - 1000)),
  );
  const lost = each.map((of) => Math.max(...of));
  const [value, most] = [Math.max(...lost), MOST_S[kind] + every_ms / 1000];
  rows.push({
    what: `${name}: seconds without media after a port changed`,
    each,
    value,
    most,
    holds: value <= most,
  });
  console.log(rows.at(-1));
}
for (const end of endings) await end();
finish("nat", rows, { told: true });
