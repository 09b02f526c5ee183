// What a join and the leave after it cost a server whose room has 20 or 2000 participants on sockets, as CPU time of its
// threads, in turn. The 20 are all told of both; of the 2000 most are an audience, and everybody is told their number
// twice a second. Ends with 1 where the large room costs more than twice as much. The room's own part is
// crates/engine/examples/join.rs.

import { readdirSync, readFileSync, writeFileSync, mkdtempSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { join } from "node:path";
import { median, serve } from "./evidence.mjs";

const { WebSocket } = createRequire(
  new URL("../web/package.json", import.meta.url),
)("ws");

const PEOPLE = [20, 2000];
const ROUNDS = 3;
const JOINS = 100;
/** So many joins that come alone. */
const ALONE = 10;
/** A join into the large room costs at most so many times as much. */
const MOST = 2;
const URL_ = "http://127.0.0.1:7880";

/** A socket that can join: calls are answered in turn. */
async function connect() {
  const web = new WebSocket(`${URL_.replace("http", "ws")}/socketcluster/`);
  const waiting = new Map();
  let cid = 0;
  web.on("message", (data) => {
    const text = String(data);
    if (text === "") return web.send("");
    for (const packet of [JSON.parse(text)].flat()) {
      if (packet.rid) waiting.get(packet.rid)(packet);
    }
  });
  await new Promise((done, fail) => web.on("open", done).on("error", fail));
  const call = (event, data) =>
    new Promise((done, fail) => {
      cid += 1;
      waiting.set(cid, ({ error, data }) =>
        error ? fail(new Error(JSON.stringify(error))) : done(data),
      );
      web.send(JSON.stringify({ event, data, cid }));
    });
  await call("#handshake", {});
  return { call };
}

/** CPU seconds of all threads of a process. */
function cpuOf(pid) {
  const nanoseconds = readdirSync(`/proc/${pid}/task`).map((task) =>
    Number(
      readFileSync(`/proc/${pid}/task/${task}/schedstat`, "utf8").split(" ")[0],
    ),
  );
  return nanoseconds.reduce((sum, one) => sum + one, 0) / 1e9;
}

const dir = mkdtempSync(join(tmpdir(), "moim-bench-"));
const config = join(dir, "moim.yaml");
writeFileSync(
  config,
  `http: { bind: ["127.0.0.1:7880"] }
media: { bind: ["127.0.0.1"] }
guests: all
limits: { participants_per_room: 3000, connections_per_address: 5000, requests_per_second: 1000 }
`,
);
const server = await serve({ flags: ["--config", config] });
try {
  const rooms = [];
  for (const people of PEOPLE) {
    const room = `room-${people}`;
    const members = [];
    for (let nth = 0; nth < people; nth++) {
      members.push(await connect());
      await members.at(-1).call("room.join", { room, name: `n${nth}` });
    }
    rooms.push({ room, last: members.at(-1), took_us: [] });
    console.log(`${people} are in a room`);
  }
  // One socket may not join so often.
  const guests = [];
  for (let nth = 0; nth < JOINS; nth++) guests.push(await connect());
  for (let round = 0; round < ROUNDS; round++) {
    for (const { room, last, took_us } of rooms) {
      const cpu = cpuOf(server.pid);
      for (const guest of guests) {
        await guest.call("room.join", { room, name: "guest" });
        await guest.call("room.leave", {});
      }
      // All of it is told: a ping's answer comes after what was told before it, and numbers are told within 0.5 s.
      await sleep(600);
      await last.call("ping", {});
      took_us.push(((cpuOf(server.pid) - cpu) * 1e6) / JOINS);
    }
  }
  const [small, large] = rooms.map(({ took_us }) => median(took_us));
  console.log(
    `a join and a leave cost the server ${small.toFixed(0)} µs of CPU in a room of ${PEOPLE[0]}, ` +
      `${large.toFixed(0)} µs in one of ${PEOPLE[1]} (${(large / small).toFixed(1)} times, at most ${MOST})`,
  );
  // Each of these joins is told by itself, since the next one comes after the number was told.
  const { room } = rooms.at(-1);
  const cpu = cpuOf(server.pid);
  for (const guest of guests.slice(0, ALONE)) {
    await guest.call("room.join", { room, name: "guest" });
    await sleep(600);
  }
  const told_ms = ((cpuOf(server.pid) - cpu) * 1e3) / ALONE;
  console.log(
    `telling ${PEOPLE[1]} people their number costs ${told_ms.toFixed(1)} ms of CPU, at most twice a second, however many come`,
  );
  process.exitCode = large <= MOST * small ? 0 : 1;
} finally {
  await server.stop();
}
process.exit();
