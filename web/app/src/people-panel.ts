import type { MediaKind, Participant, PeoplePage, Room, TrackInfo } from "@moim/sdk";
import { el } from "./dom.ts";
import { kindTitle } from "./kinds.ts";

/** What the panel asks its page to do. */
export interface PeopleActions {
  close(): void;
  copyLink(): void;
  setProcessing(on: boolean): void;
  /** Runs a call that may be refused, and says what went wrong. */
  attempt(act: () => Promise<void>): void;
}

type Row = Participant | PeoplePage["people"][number];

/** Who is here, what may be done with them, and how the own microphone is taken. */
export class PeoplePanel {
  readonly element: HTMLElement;
  readonly #room: Room;
  readonly #actions: PeopleActions;
  readonly #list = el("ul", { class: "people" });
  readonly #kind = el("p", { class: "hint" });
  readonly #lock = el("button", { type: "button", class: "small" });
  readonly #hint = el("span", { class: "hint" });
  readonly #all = el("button", { type: "button", class: "small" });
  readonly #next = el("button", { type: "button", class: "small", textContent: "Next page" });
  readonly #back = el("button", { type: "button", class: "small", textContent: "Back" });
  /** A page of all people, in a room with an audience; null: those who are known by name. */
  #page: PeoplePage["people"] | null = null;
  /** What the rows show. */
  #said = "";
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
    // Of an audience only the number is known: who they are is read page by page.
    this.#all.onclick = () => this.#read();
    this.#next.onclick = () => this.#read(this.#page?.at(-1)?.id);
    this.#back.onclick = () => this.showKnown();
    this.#lock.onclick = () => actions.attempt(() => room.lock(!(room.info.locked ?? false)));
    this.#limit.onchange = () => {
      const most = this.#limit.valueAsNumber;
      if (Number.isSafeInteger(most) && most > 0) actions.attempt(() => room.limit(most));
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
      el("div", { class: "moderation" }, this.#hint, this.#all, this.#next, this.#back),
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
  }

  /** Shows those who are known by name, and no page of all. */
  showKnown(): void {
    this.#page = null;
    this.update();
  }

  /** Shows the room as it is now, if the panel is open. */
  update(): void {
    if (this.element.hidden) return;
    const { info, participants, count } = this.#room;
    this.#kind.textContent = `${kindTitle(info)}${info.locked ? ". Locked: nobody new comes in" : ""}`;
    this.#lock.textContent = info.locked ? "Open the room" : "Lock the room";
    this.#lock.setAttribute("aria-pressed", String(info.locked ?? false));
    if (document.activeElement !== this.#limit) this.#limit.value = String(info.limits.max_participants);
    const audience = count - 1 - participants.size;
    if (audience <= 0) this.#page = null;
    // A page does not change by itself. Participants who are known by name are shown as they are now.
    const people = (this.#page ?? [...participants.values()]).map((one) => participants.get(one.id) ?? one);
    this.#showRows(people);
    this.#hint.textContent = `and ${audience} in the audience`;
    this.#all.textContent = `Read all ${count} names`;
    for (const element of [this.#hint, this.#all]) element.hidden = audience <= 0 || this.#page !== null;
    for (const element of [this.#next, this.#back]) element.hidden = this.#page === null;
  }

  /** Rows that stay as they are keep their elements: somebody may be about to press one of their buttons. */
  #showRows(people: readonly Row[]): void {
    const rows = people.map((one) => ({ ...one, tracks: [...one.tracks.values()] }));
    const said = JSON.stringify([rows, this.#room.count === 1]);
    if (said === this.#said) return;
    this.#said = said;
    this.#list.replaceChildren(...people.map((one) => this.#row(one)));
    if (this.#room.count === 1)
      this.#list.append(el("li", { class: "hint", textContent: "Only you. Send the link to others." }));
  }

  #read(after?: string): void {
    this.#actions.attempt(async () => {
      const { people } = await this.#room.people(after);
      this.#page = people.length > 0 ? people : null;
      this.update();
    });
  }

  #row({ id, name, tracks, hand = false }: Row): HTMLLIElement {
    const others = this.#room.canModerate && id !== this.#room.me;
    return el(
      "li",
      {},
      el("span", { class: "name", textContent: id === this.#room.me ? `${name} (you)` : name }),
      hand && el("span", { class: "hint", textContent: "hand raised" }),
      ...(others ? [...tracks.values()].map((track) => this.#muteButton(name, track)) : []),
      others && this.#removeButton(id, name),
    );
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
    button.onclick = () => this.#actions.attempt(() => this.#room.muteOther(track.id, !silenced));
    return button;
  }

  #removeButton(id: string, name: string): HTMLButtonElement {
    const button = el("button", { type: "button", class: "small danger", textContent: "Remove" });
    button.setAttribute("aria-label", `Remove: ${name}`);
    button.onclick = () =>
      this.#actions.attempt(async () => {
        await this.#room.remove(id);
        this.#page = this.#page?.filter((one) => one.id !== id) ?? null;
        this.update();
      });
    return button;
  }
}
