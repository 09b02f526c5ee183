import type { Quality } from "@moim/sdk/wire";
import { el } from "../../app/src/dom.ts";
import { RoomView } from "./room-view.ts";
import { ServerView } from "./server-view.ts";
import { ask, askServer, POLL_MS } from "./source.ts";
import "./style.css";

const KEY = "moim.console.token";
const rooms = new Map<string, RoomView>();
let token = sessionStorage.getItem(KEY) ?? "";
let askedAt = 0;

const status = el("p", { class: "status", role: "status", textContent: "Asking the server…" });
const server = new ServerView();
const list = el("div", { class: "rooms" });
const empty = el(
  "div",
  { class: "card", hidden: true },
  el("h2", { textContent: "No room is open" }),
  el(
    "p",
    {},
    "Open the ",
    el("a", { href: "./", textContent: "call page" }),
    " in two windows and join the same room, or start a run with ",
    el("code", { textContent: "moim load" }),
    ". Figures come 3 s after someone hears someone, and stay for five minutes.",
  ),
);
const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
const reason = el("p", { class: "hint" });
const form = el(
  "form",
  { class: "card", hidden: true },
  el("h2", { textContent: "This server wants a token" }),
  reason,
  el("label", {
    for: "token",
    textContent: "Token (admin.token of the settings, or a JWT with the grant roomAdmin or roomList)",
  }),
  field,
  el("button", { type: "submit", textContent: "Show the rooms" }),
);
form.onsubmit = (event) => {
  event.preventDefault();
  token = field.value.trim();
  sessionStorage.setItem(KEY, token);
  void poll();
};

function show({ rooms: now, at_unix_ms }: Quality): void {
  const known = new Set(now.map(({ id }) => id));
  for (const [id, view] of rooms)
    if (!known.has(id)) {
      view.end();
      rooms.delete(id);
    }
  now.forEach((room, index) => {
    let view = rooms.get(room.id);
    if (!view) {
      view = new RoomView(room.id);
      rooms.set(room.id, view);
    }
    if (list.children[index] !== view.element) list.insertBefore(view.element, list.children[index] ?? null);
    view.update(room, at_unix_ms);
  });
  const people = now.reduce((sum, room) => sum + room.people, 0);
  const clock = new Date(at_unix_ms).toLocaleTimeString("en-GB");
  status.className = "status";
  status.textContent = `${count(now.length, "room", "rooms")}, ${count(people, "person", "people")}, at ${clock}`;
  empty.hidden = now.length > 0;
}

function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`;
}

async function poll(): Promise<void> {
  const mine = ++askedAt;
  void askServer(token).then((came) => {
    if (mine === askedAt) server.update(came);
  });
  const asked = await ask(token);
  if (mine !== askedAt) return; // a token was given meanwhile
  const wantsToken = asked.state === "token";
  if (wantsToken && form.hidden) queueMicrotask(() => field.focus());
  form.hidden = !wantsToken;
  list.hidden = wantsToken;
  if (asked.state === "figures") show(asked.quality);
  else {
    empty.hidden = true;
    status.className = "status bad";
    status.textContent = wantsToken
      ? "No figures without a token."
      : `${asked.problem} Asking again; what stands here is old.`;
    reason.textContent = asked.problem;
  }
  setTimeout(() => {
    if (mine === askedAt) void poll();
  }, POLL_MS);
}

document
  .getElementById("console")!
  .append(
    el(
      "main",
      {},
      el("header", {}, el("h1", { textContent: "moim console" }), status),
      form,
      server.element,
      empty,
      list,
    ),
  );
void poll();
