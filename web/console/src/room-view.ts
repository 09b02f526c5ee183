import type { RoomQuality } from "@moim/sdk/wire";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { el } from "../../app/src/dom.ts";
import { age, figure, grade, lines } from "./figures.ts";

const HEIGHT = 110;
const MINUTES = 5;

/** Rooms are drawn while they are so near to what is seen. */
const NEAR = "300px";

/** One room: its numbers, its last minutes, and who has it worst. It is drawn while it is seen: hundreds take long. */
export class RoomView {
  readonly element: HTMLElement;
  readonly #about = el("p", { class: "about" });
  readonly #spread = el("dl", { class: "spread" });
  readonly #holder = el("div", { class: "plot" });
  readonly #bottom = el("tbody");
  readonly #table: HTMLElement;
  readonly #none = el("p", { class: "hint", textContent: "Nobody has told figures of sound yet." });
  readonly #observer = new ResizeObserver(() => {
    const width = this.#holder.clientWidth;
    if (this.#plot && width > 0 && this.#plot.width !== width) this.#plot.setSize({ width, height: HEIGHT });
  });
  readonly #sight = new IntersectionObserver(
    (entries) => {
      this.#seen = entries.at(-1)!.isIntersecting;
      this.#draw();
    },
    { rootMargin: NEAR },
  );
  #plot: uPlot | null = null;
  #seen = false;
  /** What is to be drawn, and the server's clock. */
  #latest: { room: RoomQuality; nowMs: number } | null = null;

  constructor(id: string) {
    const heads = ["Who has it worst", "MOS", "Loss %", "RTT ms", "Jitter ms", "Age"];
    this.#table = el(
      "div",
      { class: "scroll" },
      el(
        "table",
        {},
        el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", textContent: text })))),
        this.#bottom,
      ),
    );
    const chart = el(
      "figure",
      {},
      el("figcaption", { textContent: `MOS of the last ${MINUTES} minutes: least, median, most` }),
      this.#holder,
    );
    this.element = el(
      "section",
      { class: "room undrawn", "aria-label": `Room ${id}` },
      el("header", {}, el("h2", { textContent: id }), this.#about),
      el("div", { class: "figures" }, this.#spread, chart),
      this.#table,
      this.#none,
    );
    this.#observer.observe(this.#holder);
    this.#sight.observe(this.element);
  }

  /** @param nowMs the server's clock */
  update(room: RoomQuality, nowMs: number): void {
    this.#latest = { room, nowMs };
    this.#draw();
  }

  end(): void {
    this.#observer.disconnect();
    this.#sight.disconnect();
    this.#plot?.destroy();
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
    const data = lines(room.history, nowMs);
    if (this.#plot) this.#plot.setData(data);
    else this.#plot = this.#chart(data);
  }

  #chart(data: uPlot.AlignedData): uPlot {
    const css = getComputedStyle(document.documentElement);
    const colour = (name: string) => css.getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--soft"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const line = (label: string, stroke: string, width: number) => ({
      label,
      stroke: colour(stroke),
      width,
      points: { show: false },
    });
    const options: uPlot.Options = {
      width: Math.max(200, this.#holder.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, range: [-60 * MINUTES, 0] }, y: { range: [1, 5] } },
      axes: [
        {
          ...axis,
          size: 22,
          values: (_plot, at) => at.map((s) => (s === 0 ? "now" : `${s / 60} min`)),
          incrs: [60],
        },
        { ...axis, size: 28, incrs: [1], space: 15 },
      ],
      series: [{}, line("least", "--danger", 1), line("median", "--accent", 2), line("most", "--soft", 1)],
    };
    return new uPlot(options, data, this.#holder);
  }
}
