import type { MediaKind, Room, TrackInfo } from "@moim/sdk";
import { el } from "./dom.ts";
import { kindTitle } from "./kinds.ts";

/** What the panel asks its page to do. */
export interface PeopleActions {
  close(): void;
  copyLink(): void;
  setProcessing(on: boolean): void;
  /** Runs a moderator's call and says what went wrong. */
  moderate(act: () => Promise<void>): void;
}

/** Who is here, what may be done with them, and how the own microphone is taken. */
export class PeoplePanel {
  readonly element: HTMLElement;
  readonly #room: Room;
  readonly #actions: PeopleActions;
  readonly #list = el("ul", { class: "people" });
  readonly #kind = el("p", { class: "hint" });
  readonly #lock = el("button", { type: "button", class: "small" });
  readonly #limit = el("input", { id: "limit", type: "number", min: "1" });

  constructor(room: Room, processing: boolean, actions: PeopleActions) {
    this.#room = room;
    this.#actions = actions;
    const close = el("button", { type: "button", class: "plain", "aria-label": "Close", textContent: "×" });
    close.onclick = () => actions.close();
    const link = el("button", { type: "button", class: "small", textContent: "Copy link" });
    link.onclick = () => actions.copyLink();
    const clean = el("input", { id: "processing", type: "checkbox", checked: processing });
    clean.onchange = () => actions.setProcessing(clean.checked);
    this.#lock.onclick = () => actions.moderate(() => room.lock(!(room.info.locked ?? false)));
    this.#limit.onchange = () => {
      const most = this.#limit.valueAsNumber;
      if (Number.isSafeInteger(most) && most > 0) actions.moderate(() => room.limit(most));
      else this.update();
    };
    const moderation = el(
      "div",
      { class: "moderation", hidden: !room.canModerate },
      this.#lock,
      el("label", { for: "limit", textContent: "At most" }),
      this.#limit,
      el("span", { textContent: "people" }),
    );
    this.element = el(
      "aside",
      { class: "panel aside", "aria-label": "People", hidden: true },
      el("header", {}, el("h2", { textContent: "People" }), close),
      this.#kind,
      el("div", { class: "moderation" }, link),
      moderation,
      this.#list,
      el(
        "p",
        { class: "check" },
        clean,
        el("label", {
          for: "processing",
          textContent: "Clean my sound: echo cancellation, noise suppression, gain control",
        }),
      ),
    );
    this.update();
  }

  /** Shows the room as it is now. */
  update(): void {
    const { info, participants } = this.#room;
    this.#kind.textContent = `${kindTitle(info)}${info.locked ? ". Locked: nobody new comes in" : ""}`;
    this.#lock.textContent = info.locked ? "Open the room" : "Lock the room";
    this.#lock.setAttribute("aria-pressed", String(info.locked ?? false));
    if (document.activeElement !== this.#limit) this.#limit.value = String(info.limits.max_participants);
    this.#list.replaceChildren(
      ...[...participants.values()].map(({ id, name, tracks }) =>
        el(
          "li",
          {},
          el("span", { class: "name", textContent: name }),
          ...(this.#room.canModerate
            ? [
                ...[...tracks.values()].map((track) => this.#muteButton(name, track)),
                this.#removeButton(id, name),
              ]
            : []),
        ),
      ),
    );
    if (participants.size === 0)
      this.#list.append(el("li", { class: "hint", textContent: "Only you. Send the link to others." }));
  }

  #muteButton(name: string, track: TrackInfo): HTMLButtonElement {
    const silenced = track.silenced ?? false;
    const what: Record<MediaKind, [string, string]> = {
      audio: ["Mute", "Let speak"],
      video: ["Hide", "Let show"],
    };
    const text = what[track.kind][silenced ? 1 : 0];
    const button = el("button", { type: "button", class: "small", textContent: text });
    button.setAttribute("aria-label", `${text}: ${name}`);
    button.setAttribute("aria-pressed", String(silenced));
    button.onclick = () => this.#actions.moderate(() => this.#room.muteOther(track.id, !silenced));
    return button;
  }

  #removeButton(id: string, name: string): HTMLButtonElement {
    const button = el("button", { type: "button", class: "small danger", textContent: "Remove" });
    button.setAttribute("aria-label", `Remove: ${name}`);
    button.onclick = () => this.#actions.moderate(() => this.#room.remove(id));
    return button;
  }
}
