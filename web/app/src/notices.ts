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

/** What went wrong with the room and what helps, for people. */
export function explainRoomError(error: MoimError): string {
  switch (error.code) {
    case "room_full":
      return "This room is full. Try again when someone has left, or use another room.";
    case "kind_conflict":
      return "This room runs in another mode than the link asks for. Open the plain link of the room.";
    case "kind_unsupported":
      return `The room's mode does not work here: ${error.message}. Use another browser or room.`;
    case "bad_token":
    case "not_allowed":
      return "You are not allowed into this room. Ask whoever invited you for a fresh link.";
    case "disconnected":
      return "The server does not answer. Check your network; then try again.";
    case "draining":
      return "The server is being restarted. Try again in a minute.";
    case "gone":
      return "You were away for too long. Join again.";
    default:
      return `Something went wrong: ${error.message}. Try again.`;
  }
}
