// Realtime sockets with the unmodified socketcluster-client: what its users know works here.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createServer } from "node:net";
import { test } from "node:test";
import socketClusterClient from "socketcluster-client";
import { PATIENCE_S, serve, until } from "./world.mjs";

const BINARY = process.env.MOIM_BIN ?? new URL("../../target/release/moim", import.meta.url).pathname;
const SECRET = "a secret of more than 32 characters";
const PATIENCE_MS = 1000 * PATIENCE_S;

/** A port that nobody has. */
function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

function token(...args) {
  const env = { ...process.env, MOIM_SECRET: SECRET };
  const identity = args.includes("--identity") ? [] : ["--identity", "ada"];
  const all = ["token", "--key", "ours", ...identity, ...args];
  return execFileSync(BINARY, all, { encoding: "utf8", env }).trim();
}

const chat = (...args) => token("--subscribe", "chat.*", "--publish", "chat.*", ...args);

/** A server with a key, where nobody may do anything without a token. */
async function start(t) {
  const port = await freePort();
  const config = `
http: { bind: "127.0.0.1:${port}" }
media: { port: 0 }
keys: { ours: "${SECRET}" }
`;
  const { url } = await serve(t, { config, url: `http://127.0.0.1:${port}` });
  const admin = token("--admin");
  const api = async (method, path, body) => {
    const headers = { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" };
    const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await answer.text();
    return { status: answer.status, body: text && JSON.parse(text) };
  };
  return { url, port, api };
}

/** A client; its events are kept in lists by name. */
async function client(t, { port }, { authToken, events = [] } = {}) {
  const socket = socketClusterClient.create({
    hostname: "127.0.0.1",
    port,
    autoReconnectOptions: { initialDelay: 50, randomness: 50 },
    // Node.js has no localStorage: each socket keeps its token for itself.
    authEngine: keeper(authToken),
  });
  t.after(() => {
    socket.disconnect();
  });
  const seen = {};
  for (const name of ["error", ...events]) {
    seen[name] = [];
    (async () => {
      for await (const event of socket.listener(name)) seen[name].push(event);
    })();
  }
  const connected = await socket.listener("connect").once(PATIENCE_MS);
  return { socket, seen, connected };
}

function keeper(kept = null) {
  return {
    saveToken: async (_, token) => (kept = token),
    loadToken: async () => kept,
    removeToken: async () => {
      const old = kept;
      kept = null;
      return old;
    },
  };
}

/** Subscribes, and keeps the channel's messages in a list. */
async function subscribe(socket, name) {
  const channel = socket.subscribe(name);
  const messages = [];
  (async () => {
    for await (const message of channel) messages.push(message);
  })();
  if (channel.state !== "subscribed") await channel.listener("subscribe").once(PATIENCE_MS);
  return { channel, messages };
}

test("handshake, ping, transmit, unknown events", async (t) => {
  const server = await start(t);
  const { socket, connected } = await client(t, server);
  assert.equal(connected.id.length, 20);
  assert.equal(connected.pingTimeout, 30_000);
  assert.equal(connected.isAuthenticated, false);
  assert.equal(socket.authState, "unauthenticated");

  const first = await socket.invoke("ping", { any: "object" });
  const second = await socket.invoke("ping");
  assert.ok(second.count > first.count, `${first.count}, ${second.count}`);
  const pong = socket.receiver("pong").once(PATIENCE_MS);
  await socket.transmit("ping", {});
  assert.ok((await pong).count > second.count);

  await assert.rejects(socket.invoke("shop.buy", {}), { name: "RoomError", code: "unknown_event" });
  await socket.transmit("shop.buy", {});
  assert.ok((await socket.invoke("ping")).count > 0, "the socket lives");
});

test("the server calls its clients and tells them", async (t) => {
  const server = await start(t);
  const { socket } = await client(t, server);
  (async () => {
    for await (const request of socket.procedure("sum")) request.end(request.data.a + request.data.b);
  })();
  (async () => {
    for await (const request of socket.procedure("fail")) request.error(new Error("no"));
  })();
  const path = `/v1/sockets/${socket.id}`;
  for (const [a, b] of [
    [1, 2],
    [3, 4],
  ]) {
    const answer = await server.api("POST", `${path}/invocations`, { event: "sum", data: { a, b } });
    assert.deepEqual([answer.status, answer.body], [200, { data: a + b }]);
  }
  const failed = await server.api("POST", `${path}/invocations`, { event: "fail" });
  assert.equal(failed.status, 502);
  assert.equal(failed.body.error.message, "no");
  const told = socket.receiver("hello").once(PATIENCE_MS);
  assert.equal((await server.api("POST", `${path}/messages`, { event: "hello", data: [1] })).status, 202);
  assert.deepEqual(await told, [1]);
  const none = { event: "nobody.answers", timeout_ms: 100 };
  assert.equal((await server.api("POST", `${path}/invocations`, none)).status, 504);
  assert.equal((await server.api("POST", "/v1/sockets/nobody/messages", none)).status, 404);
});

test("publish with and without an answer, in one order, the own message first", async (t) => {
  const server = await start(t);
  const people = [];
  for (let n = 0; n < 2; n++) {
    const { socket } = await client(t, server, { authToken: chat() });
    assert.equal(socket.authState, "authenticated");
    people.push({ socket, ...(await subscribe(socket, "chat.a")) });
  }
  await Promise.all(
    people.map(async ({ socket, messages }, who) => {
      for (let n = 0; n < 20; n++) await socket.transmitPublish("chat.a", { who, n });
      for (let n = 20; n < 40; n++) {
        await socket.invokePublish("chat.a", { who, n });
        // The stream hands its messages on in a later turn than the answer.
        await new Promise(setImmediate);
        assert.ok(
          messages.some((m) => m.who === who && m.n === n),
          "the own message comes first",
        );
      }
    }),
  );
  await until("all messages", () => people.every(({ messages }) => messages.length === 80));
  assert.deepEqual(people[0].messages, people[1].messages, "one order for all");
  for (const who of [0, 1]) {
    const own = people[0].messages.filter((m) => m.who === who).map((m) => m.n);
    assert.deepEqual(own, [...Array(40).keys()]);
  }

  // By HTTP too; after unsubscribing no more.
  const sent = await server.api("POST", "/v1/channels/chat.a/messages", { data: "news" });
  assert.deepEqual(sent.body, { delivered: 2 });
  await until("the news", () => people.every(({ messages }) => messages.at(-1) === "news"));
  people[1].socket.unsubscribe("chat.a");
  await people[1].socket.invoke("ping");
  await people[0].socket.invokePublish("chat.a", "last");
  await until("the last", () => people[0].messages.at(-1) === "last");
  await people[1].socket.invoke("ping");
  assert.equal(people[1].messages.at(-1), "news");
});

test("no rights: told to the one who asked", async (t) => {
  const server = await start(t);
  const refused = { name: "RoomError", code: "not_allowed" };
  const { socket: guest } = await client(t, server);
  const channel = guest.subscribe("chat.a");
  const { error } = await channel.listener("subscribeFail").once(PATIENCE_MS);
  assert.equal(error.code, "not_allowed");
  await assert.rejects(guest.invokePublish("chat.a", 1), refused);
  const { socket: ada } = await client(t, server, { authToken: chat() });
  await assert.rejects(ada.invokePublish("news", 1), refused);
  await assert.rejects(ada.invokePublish("room:garden", 1), refused);
  const join = { room: "garden", name: "Guest", audio: "sfu", video: "none" };
  await assert.rejects(guest.invoke("room.join", join), refused);
  await assert.rejects(guest.invoke("room.join", { ...join, token: "x.y.z" }), { code: "bad_token" });
  const joined = await ada.invoke("room.join", { ...join, name: "Ada" });
  assert.deepEqual(joined.you, { can_publish: true, can_subscribe: true });
});

test("kick-out, and subscribing again", async (t) => {
  const server = await start(t);
  const { socket, seen } = await client(t, server, { authToken: chat(), events: ["kickOut"] });
  const { channel, messages } = await subscribe(socket, "chat.a");
  const path = `/v1/channels/chat.a/subscribers/${socket.id}?reason=be%20kind`;
  const kicked = channel.listener("kickOut").once(PATIENCE_MS);
  assert.equal((await server.api("DELETE", path)).status, 204);
  assert.deepEqual(await kicked, { message: "be kind" });
  await until("the socket's event", () => seen.kickOut.length === 1);
  assert.equal(channel.state, "unsubscribed");
  assert.equal((await server.api("DELETE", path)).status, 404);
  await socket.invokePublish("chat.a", "unheard");
  await subscribe(socket, "chat.a");
  await socket.invokePublish("chat.a", "heard");
  await until("the message", () => messages.includes("heard"));
  assert.ok(!messages.includes("unheard"));
});

test("authenticate: good, bad, expired, renewed", async (t) => {
  const server = await start(t);
  const events = ["authenticate", "deauthenticate"];
  const { socket, seen } = await client(t, server, { events });
  const good = chat();
  const status = await socket.authenticate(good);
  assert.deepEqual([status.isAuthenticated, status.authError], [true, null]);
  assert.equal(socket.authToken.sub, "ada");
  const { channel } = await subscribe(socket, "chat.a");

  await assert.rejects(socket.authenticate(`${good}x`), { name: "AuthTokenInvalidError" });
  await until("the end of it", () => seen.deauthenticate.length === 1);
  assert.equal(socket.authState, "unauthenticated");
  await until("the end of the subscription", () => channel.state === "unsubscribed");
  await assert.rejects(socket.authenticate(chat("--ttl", "0")), { name: "AuthTokenExpiredError" });
  await assert.rejects(socket.invokePublish("chat.a", 1), { code: "not_allowed" });

  // A token that ends while it is in use, and not before it was used once.
  await socket.authenticate(chat("--ttl", "8"));
  await socket.invokePublish("chat.a", 1);
  await until("the end of the token", async () => {
    await socket.invoke("ping");
    return seen.deauthenticate.length === 2;
  });
  assert.equal(socket.authState, "unauthenticated");

  // The application's server hands a fresh one over; the client keeps it for its next handshake.
  const fresh = chat("--name", "Ada");
  const renewed = await server.api("PUT", `/v1/sockets/${socket.id}/token`, { token: fresh });
  assert.equal(renewed.status, 204);
  await until("the token", () => socket.signedAuthToken === fresh);
  await socket.invokePublish("chat.a", 1);
  await socket.deauthenticate();
  await until("rights are gone", async () => {
    const error = await socket.invokePublish("chat.a", 1).catch((error) => error);
    return error?.code === "not_allowed";
  });

  // A bad token in the handshake is soft: connected, and unauthenticated.
  const stale = await client(t, server, { authToken: chat("--ttl", "0") });
  assert.equal(stale.connected.isAuthenticated, false);
  assert.equal(stale.connected.authError.name, "AuthTokenExpiredError");
  await until("the stale token is dropped", () => stale.socket.signedAuthToken === null);
});

test("heartbeat, reconnect, subscribe again", async (t) => {
  const server = await start(t);
  const events = ["message", "disconnect", "connect"];
  const one = await client(t, server, { authToken: chat(), events });
  const { messages } = await subscribe(one.socket, "chat.a");
  const { id } = one.socket;
  await until("a heartbeat", () => one.seen.message.some(({ message }) => message === ""));

  one.socket.transport.socket.terminate();
  await until("the loss", () => one.seen.disconnect.length === 1);
  await until("the return", () => one.socket.state === "open" && one.socket.id !== id);
  assert.equal(one.socket.authState, "authenticated");
  await until("the subscription", () => one.socket.isSubscribed("chat.a"));
  const { socket: other } = await client(t, server, { authToken: chat() });
  await other.invokePublish("chat.a", "after");
  await until("the message", () => messages.includes("after"));
  await until("the lost socket to be gone", async () => {
    const { count } = (await server.api("GET", "/v1/sockets")).body;
    if (count === 2) return true;
    throw new Error(`${count} sockets`);
  });
});

test("quality samples are kept and shown by room", async (t) => {
  const server = await start(t);
  const heard = (mos_lq, packets_lost) => ({
    participant: "p-9",
    track: "t-9",
    kind: "audio",
    packets_received: 100 - packets_lost,
    packets_lost,
    bitrate_kbps: 32,
    jitter_ms: 1,
    mos_lq,
  });
  const people = [];
  for (const [name, mos, lost] of [
    ["Ada", 4.2, 0],
    ["Min", 3.8, 10],
  ]) {
    // A second session of one identity would end the first.
    const { socket } = await client(t, server, { authToken: chat("--identity", name) });
    const join = { room: "garden", name, audio: "sfu", video: "none" };
    const { participant } = await socket.invoke("room.join", join);
    people.push(participant);
    const received = [heard(mos, lost)];
    await socket.invoke("quality.sample", { at_ms: 3000, interval_ms: 3000, rtt_ms: 5, received });
  }
  const rooms = await server.api("GET", "/v1/rooms");
  assert.deepEqual(
    rooms.body.rooms.map(({ id, audio, video, people }) => ({ id, audio, video, people })),
    [{ id: "garden", audio: "sfu", video: "none", people: 2 }],
  );
  const { body } = await server.api("GET", "/v1/quality");
  const [room] = body.rooms;
  assert.deepEqual(room.mos_lq, { min: 3.8, max: 4.2, average: 4, median: 4, people: 2 });
  assert.deepEqual(
    room.bottom.map(({ participant, mos_lq, loss_pct }) => ({ participant, mos_lq, loss_pct })),
    [
      { participant: people[1], mos_lq: 3.8, loss_pct: 10 },
      { participant: people[0], mos_lq: 4.2, loss_pct: 0 },
    ],
  );
  assert.ok(room.history.length >= 1 && room.history[0].people >= 1);
  assert.equal((await fetch(`${server.url}/v1/quality`)).status, 401, "not for everybody");
});
