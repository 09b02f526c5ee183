import { type JoinOptions, MoimError, type QualitySample, Room, type ShownSize } from "@moim/sdk";
import { BASE } from "./base.ts";
import { CallPage } from "./call.ts";
import { el } from "./dom.ts";
import { keepToken, takeToken } from "./invitation.ts";
import { type Choice, memory, openDevices, showLobby } from "./lobby.ts";
import { explainEnd, explainRoomError, Notices } from "./notices.ts";
import { kindOf, type PageOptions, parseOptions } from "./options.ts";
import "./style.css";

/** What programs that drive this page can ask. */
interface Automation {
  room: Room | null;
  /** Resolves when the room is joined, rejects when that fails. */
  ready: Promise<Room>;
  /** A sample of the time since the last such call. */
  sampleNow(): Promise<QualitySample>;
  state(): {
    state: "lobby" | "connecting" | "connected" | "reconnecting" | "ended" | "failed";
    participants: { id: string; name: string; tracks: { id: string; kind: string; muted: boolean }[] }[];
    /** `shown`: the size of a tile in pixels of the screen, 0 × 0 where nobody can see it. */
    tiles: { participant: string; name: string; hasVideo: boolean; shown: ShownSize | null }[];
    error: string | null;
  };
}

declare global {
  interface Window {
    moim: Automation;
  }
}

const app = document.getElementById("app")!;
const notices = new Notices();
document.body.append(notices.element);

let phase: "lobby" | "connecting" | "joined" | "failed" = "lobby";
let page: CallPage | null = null;
let lastError: string | null = null;
const ready = Promise.withResolvers<Room>();
ready.promise.catch(() => {}); // whoever waits for it hears of it; nobody has to

window.moim = {
  room: null,
  ready: ready.promise,
  sampleNow: async () => (await ready.promise).sampleNow(),
  state() {
    const room = window.moim.room;
    return {
      state: phase === "joined" && room ? room.state : phase === "joined" ? "connecting" : phase,
      participants: [...(room?.participants.values() ?? [])].map(({ id, name, tracks }) => ({
        id,
        name,
        tracks: [...tracks.values()].map((track) => ({ id: track.id, kind: track.kind, muted: track.muted })),
      })),
      tiles: (page?.grid.all() ?? []).map(({ participant, name, hasVideo, shown }) => ({
        participant,
        name,
        hasVideo,
        shown,
      })),
      error: lastError,
    };
  },
};

const TOKEN_IN_QUERY =
  "This link carries its token where servers log it (?token=), so it is not used. " +
  "Ask whoever invited you for a link with #token= in its place.";

function report(message: string): void {
  lastError = message;
  notices.error(message);
}

async function main(): Promise<void> {
  const token = takeToken(
    location,
    (path) => history.replaceState(null, "", path),
    () => sessionStorage,
  );
  const options = parseOptions(location.pathname.slice(BASE.length - 1), location.search, token);
  if (options.tokenInQuery) {
    report(TOKEN_IN_QUERY);
    history.replaceState(null, "", location.pathname + withoutToken(location.search) + location.hash);
  }
  const name = options.name ?? memory.get("name");
  if (options.room !== null && options.join && name !== null) {
    const kind = kindOf(options);
    const devices = await openDevices(options, kind, report);
    await enter({ room: options.room, name, ...devices, kind }, options);
    return;
  }
  const choice = await showLobby(app, options, report);
  const path = `${BASE}room/${encodeURIComponent(choice.room)}`;
  if (location.pathname !== path) {
    history.pushState(null, "", path + withKind(choice) + location.hash);
    if (token !== null) keepToken(path, token, () => sessionStorage);
  }
  await enter(choice, options);
}

async function enter(choice: Choice, options: PageOptions): Promise<void> {
  phase = "connecting";
  document.title = `${choice.room} – moim`;
  app.replaceChildren(message("Joining…", `Going into “${choice.room}” as ${choice.name}.`));
  const join: JoinOptions = {
    url: location.origin + BASE,
    room: choice.room,
    name: choice.name,
    microphone: choice.microphone,
    camera: choice.camera,
    ...choice.kind,
  };
  if (options.codec) join.videoCodec = options.codec;
  if (options.redundancy) join.redundancy = true;
  if (!options.simulcast) join.simulcast = false;
  if (options.token) join.token = options.token;
  if (options.show !== null) join.videoSlots = Math.min(options.show, 12);
  let room: Room;
  try {
    room = await Room.join(join);
  } catch (error) {
    choice.microphone?.stop();
    choice.camera?.stop();
    const failure = error instanceof MoimError ? error : new MoimError("internal", String(error));
    phase = "failed";
    lastError = `${failure.code}: ${failure.message}`;
    console.error("joining failed", error);
    ready.reject(failure);
    const asItIs = failure.code === "kind_conflict";
    const again = asItIs ? "Join it as it is" : "Try again";
    app.replaceChildren(message("Could not join", explainRoomError(failure), again, asItIs));
    return;
  }
  phase = "joined";
  window.moim.room = room;
  room.on("error", (error) => {
    lastError = `${error.code}: ${error.message}`;
  });
  page = new CallPage(room, choice.name, options, notices);
  app.replaceChildren(page.element);
  page.grid.refresh();
  ready.resolve(room);
  const reason = await page.ended;
  page.close();
  page = null;
  app.replaceChildren(message(...explainEnd(reason, choice.room), "Join again"));
}

/** The query as it was, but for a token. */
function withoutToken(search: string): string {
  const query = new URLSearchParams(search);
  query.delete("token");
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}

/** The address of a room that was just chosen keeps its kind, so that a reload asks for the same. */
function withKind({ kind }: Choice): string {
  const query = new URLSearchParams(location.search);
  for (const key of ["preset", "audio", "video"] as const) {
    query.delete(key);
    if (kind[key]) query.set(key, kind[key]);
  }
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}

/** A page with one message, and perhaps a way on. */
function message(title: string, text: string, again?: string, asItIs = false): HTMLElement {
  const card = el(
    "div",
    { class: "card message" },
    el("h1", { textContent: title }),
    el("p", { textContent: text }),
  );
  if (again) {
    const button = el("button", { class: "primary", type: "button", textContent: again });
    button.onclick = () => {
      if (!asItIs) {
        location.reload();
        return;
      }
      const query = new URLSearchParams(location.search);
      for (const key of ["preset", "audio", "video", "codec"]) query.delete(key);
      location.search = query.toString();
      if (query.toString() === "") location.reload();
    };
    card.append(button, el("a", { href: BASE, textContent: "To the start page" }));
    queueMicrotask(() => button.focus());
  }
  return el("main", { class: "lobby" }, card);
}

window.addEventListener("popstate", () => location.reload());
// Another link into this page's own tab, with another token.
window.addEventListener("hashchange", () => location.reload());
void main();
