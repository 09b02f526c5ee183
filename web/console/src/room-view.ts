import type { RoomQuality } from "@moim/sdk/wire";
import { el } from "../../app/src/dom.ts";
import { age, figure, grade, lines } from "./figures.ts";
import { MINUTES, MinutesPlot } from "./minutes-plot.ts";
import { scrollingTable } from "./table.ts";

/** Rooms are drawn while they are so near to what is seen. */
const NEAR = "300px";

/** One room: its numbers, its last minutes, and who has it worst. It is drawn while it is seen: hundreds take long. */
export class RoomView {
  readonly element: HTMLElement;
  readonly #about = el("p", { class: "about" });
  readonly #spread = el("dl", { class: "spread" });
  readonly #bottom = el("tbody");
  readonly #table: HTMLElement;
  readonly #none = el("p", { class: "hint", textContent: "Nobody has told figures of sound yet." });
  readonly #sight = new IntersectionObserver(
    (entries) => {
      this.#seen = entries.at(-1)!.isIntersecting;
      this.#draw();
    },
    { rootMargin: NEAR },
  );
  readonly #plot = new MinutesPlot(
    `MOS of the last ${MINUTES} minutes: least, median, most`,
    { min: 1, max: 5 },
    [
      ["least", "--danger", 1],
      ["median", "--accent", 2],
      ["most", "--soft", 1],
    ],
  );
  #seen = false;
  /** What is to be drawn, and the server's clock. */
  #latest: { room: RoomQuality; nowMs: number } | null = null;

  constructor(id: string) {
    const heads = ["Who has it worst", "MOS", "Loss %", "RTT ms", "Jitter ms", "Age"];
    this.#table = scrollingTable(heads, this.#bottom);
    this.element = el(
      "section",
      { class: "room undrawn", "aria-label": `Room ${id}` },
      el("header", {}, el("h2", { textContent: id }), this.#about),
      el("div", { class: "figures" }, this.#spread, this.#plot.element),
      this.#table,
      this.#none,
    );
    this.#sight.observe(this.element);
  }

  /** @param nowMs the server's clock */
  update(room: RoomQuality, nowMs: number): void {
    this.#latest = { room, nowMs };
    this.#draw();
  }

  end(): void {
    this.#sight.disconnect();
    this.#plot.end();
    this.element.remove();
  }

  #draw(): void {
    if (!this.#seen || !this.#latest) return;
    const { room, nowMs } = this.#latest;
    this.#latest = null;
    this.element.classList.remove("undrawn");
    const people = room.people === 1 ? "1 person" : `${room.people} people`;
    const video = room.video === "none" ? "no video" : `video ${room.video}`;
    this.#about.textContent = `${people}, audio ${room.audio}, ${video}${room.locked ? ", locked" : ""}`;
    const mos = room.mos_lq;
    const rows = [
      ["least", mos?.min],
      ["average", mos?.average],
      ["median", mos?.median],
      ["most", mos?.max],
    ] as const;
    this.#spread.replaceChildren(
      ...rows.map(([name, value]) =>
        el(
          "div",
          { "data-figure": name },
          el("dt", { textContent: name }),
          el("dd", { class: grade(value), textContent: figure(value, 2) }),
        ),
      ),
    );
    this.#bottom.replaceChildren(
      ...room.bottom.map((person) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", textContent: person.name, title: person.participant }),
          el("td", { class: grade(person.mos_lq), textContent: figure(person.mos_lq, 2) }),
          el("td", { textContent: figure(person.loss_pct, 1) }),
          el("td", { textContent: figure(person.rtt_ms, 1) }),
          el("td", { textContent: figure(person.jitter_ms, 1) }),
          el("td", { textContent: age(person.age_ms) }),
        ),
      ),
    );
    this.#table.hidden = room.bottom.length === 0;
    this.#none.hidden = room.bottom.length > 0;
    this.#plot.update(lines(room.history, nowMs));
  }
}
