import type uPlot from "uplot";
import { el } from "../../app/src/dom.ts";
import { figure } from "./figures.ts";
import { MinutesPlot } from "./minutes-plot.ts";
import { between, bitrate, type Reading, type ServerFigures } from "./server.ts";
import { scrollingTable } from "./table.ts";

/** Five minutes of readings every 3 s. */
const POINTS = 100;
/** Threads and drops that are listed. */
const ROWS = 6;
/** Quieter threads are not listed, in cores. */
const IDLE = 0.001;

/** The server: its CPU by thread, its network, and what it discards. */
export class ServerView {
  readonly element: HTMLElement;
  readonly #about = el("p", { class: "about" });
  readonly #figures = el("dl", { class: "spread" });
  readonly #threads = el("tbody");
  readonly #drops = el("p", { class: "hint" });
  readonly #plot: MinutesPlot;
  #last: Reading | null = null;
  #history: ServerFigures[] = [];

  constructor() {
    const caption = "CPU of the last 5 minutes, in cores: all threads, busiest thread";
    this.#plot = new MinutesPlot(caption, { min: 0 }, [
      ["all threads", "--accent", 2],
      ["busiest thread", "--fair", 1],
    ]);
    const heads = ["Thread", "CPU % of a core"];
    this.element = el(
      "section",
      { class: "room", "aria-label": "Server", hidden: true },
      el("header", {}, el("h2", { textContent: "Server" }), this.#about),
      el("div", { class: "figures" }, this.#figures, this.#plot.element),
      scrollingTable(heads, this.#threads),
      this.#drops,
    );
  }

  /** What asking brought; after a failure the last figures stay. */
  update(came: Reading | "hidden" | "failed"): void {
    if (came === "failed") return;
    const before = this.#last;
    this.#last = came === "hidden" ? null : came;
    this.element.hidden = came === "hidden";
    if (came === "hidden" || before === null) return;
    const figures = between(before, came);
    if (figures === null) {
      this.#history = [];
      return;
    }
    this.#history = [...this.#history.slice(1 - POINTS), figures];
    this.#draw(figures);
  }

  #draw({
    cores,
    threads,
    bitsIn,
    bitsOut,
    packetsIn,
    packetsOut,
    drops,
    memoryBytes,
    atMs,
  }: ServerFigures): void {
    const memory = memoryBytes === null ? "" : `, ${(memoryBytes / 2 ** 20).toFixed(0)} MiB`;
    this.#about.textContent = `${packetsIn.toFixed(0)} packets/s in, ${packetsOut.toFixed(0)} out${memory}`;
    const rows = [
      ["CPU, cores", figure(cores, 2)],
      ["busiest thread", `${figure(100 * (threads[0]?.cores ?? 0), 0)} %`],
      ["in", bitrate(bitsIn)],
      ["out", bitrate(bitsOut)],
    ] as const;
    this.#figures.replaceChildren(
      ...rows.map(([name, value]) =>
        el("div", { "data-figure": name }, el("dt", { textContent: name }), el("dd", { textContent: value })),
      ),
    );
    this.#threads.replaceChildren(
      ...threads
        .filter((thread) => thread.cores >= IDLE)
        .slice(0, ROWS)
        .map((thread) =>
          el(
            "tr",
            {},
            el("th", { scope: "row", textContent: thread.name }),
            el("td", { textContent: figure(100 * thread.cores, 1) }),
          ),
        ),
    );
    const told = drops.slice(0, ROWS).map(({ what, rate }) => `${what} ${figure(rate, 1)}`);
    this.#drops.textContent =
      told.length === 0 ? "Nothing is discarded." : `Discarded a second: ${told.join(", ")}`;
    const seconds = this.#history.map((point) => (point.atMs - atMs) / 1000);
    const data: uPlot.AlignedData = [
      seconds,
      this.#history.map((point) => point.cores),
      this.#history.map((point) => point.threads[0]?.cores ?? null),
    ];
    this.#plot.update(data);
  }
}
