import type { MoimError } from "@moim/sdk";
import { el } from "./dom.ts";

const TOAST_MS = 9_000;
const MAX_TOASTS = 4;

/** Short notices: errors as toasts, comings and goings as a polite announcement. */
export class Notices {
  readonly element: HTMLElement;
  readonly #toasts = el("div", { class: "toasts", role: "alert" });
  readonly #log = el("div", { class: "log", "aria-live": "polite", role: "status" });

  constructor() {
    this.element = el("div", { class: "notices" }, this.#log, this.#toasts);
  }

  /** Something went wrong: the text says cause and cure. */
  error(message: string): void {
    const close = el("button", { type: "button", class: "plain", "aria-label": "Dismiss", textContent: "×" });
    const toast = el("div", { class: "toast" }, el("span", { textContent: message }), close);
    close.onclick = () => toast.remove();
    setTimeout(() => toast.remove(), TOAST_MS);
    while (this.#toasts.childElementCount >= MAX_TOASTS) this.#toasts.firstElementChild?.remove();
    this.#toasts.append(toast);
  }

  /** Something happened that is no fault. */
  say(message: string): void {
    const line = el("p", { textContent: message });
    setTimeout(() => line.remove(), TOAST_MS / 2);
    while (this.#log.childElementCount >= MAX_TOASTS) this.#log.firstElementChild?.remove();
    this.#log.append(line);
  }
}

type Words = string | ((message: string) => string);

/** What went wrong with the room and what helps, for people: a sentence or two for each code. */
const WORDS: Record<MoimError["code"], Words> = {
  room_full: (message) =>
    /this address|this identity/.test(message)
      ? "Too many seats or rooms are taken from your network, or with your invitation. Leave another room first."
      : "This room is full. Try again when someone has left, or use another room.",
  room_locked: "This room is locked. Ask someone inside to open it, then try again.",
  kind_conflict: "This room is of another kind than was asked for. Join it as it is, or choose another name.",
  kind_unsupported: (message) => `This kind of room does not work here: ${message}. Choose another kind.`,
  not_allowed: (message) => `You may not do that here: ${message}.`,
  bad_token: "Your invitation is not valid, or no longer. Ask whoever invited you for a fresh link.",
  unknown_track: "That camera or microphone is no longer there.",
  unknown_participant: "That person has left.",
  unknown_slot: (message) => `The page asked for a place that does not exist: ${message}. Reload it.`,
  unknown_event: "This page and the server do not fit together. Reload the page.",
  bad_sdp: (message) => `Sound and picture could not be set up: ${message}. Reload the page.`,
  offer_conflict: "This page was opened twice in the same place. Join again.",
  bad_request: (message) => `The server did not accept that: ${message}.`,
  not_joined: "You are not in the room any more. Join again.",
  too_large: "That was more than the server takes at once.",
  too_fast: "That was too much at once. Wait a moment, then try again.",
  gone: "You were away for too long. Join again.",
  replaced: "You are in the room from another page or device. Join again to be here instead.",
  draining: "The server is being restarted. Try again in a minute.",
  internal: (message) => `Something went wrong: ${message}. Try again.`,
  disconnected: "The server does not answer. Check your network; then try again.",
  ended: "The call is over.",
  media_failed: (message) => `Sound and picture cannot come through: ${message}.`,
};

/** The words for an error. */
export function explainRoomError({ code, message }: Pick<MoimError, "code" | "message">): string {
  const words = WORDS[code] ?? WORDS.internal;
  return typeof words === "string" ? words : words(message.replace(/\.$/, ""));
}

/** Why the call is over, for people: a headline and a sentence. */
export function explainEnd(reason: string, room: string): [headline: string, sentence: string] {
  if (reason === "left") return ["You left the room", `“${room}” goes on without you.`];
  if (reason === "removed") return ["You were put out of the room", "A moderator removed you."];
  if (reason === "replaced" || reason.startsWith("you came in again"))
    return [
      "You are in the room elsewhere",
      "You came in again from another page or device, so this one has left.",
    ];
  return ["The call is over", `Reason: ${reason}.`];
}
