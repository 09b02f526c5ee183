import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { el } from "./dom.ts";
import type { RunEvent } from "./record.ts";
import { isolated, type Lines, zoomIn } from "./series.ts";

/** A chart of the report. */
export interface ChartSpec {
  title: string;
  unit: string;
  data: Lines;
  /** Digits after the point in the legend. */
  digits?: number;
  /** Colours by role, not by place: median, p95, worst. */
  quality?: boolean;
  /** What the x axis is, where it is not the time of the run. */
  x?: string;
  /** Fixed lower and upper end; either may be null to follow the data. */
  range?: [number | null, number | null];
}

const HEIGHT = 190;
/** More events of a level are no lines, but ticks of so many pixels at the upper edge. */
const MANY_EVENTS = 30;
const TICK = 8;
/** Colours of CSS, so that both themes and print have their own. */
const QUALITY_COLOURS: Record<string, string> = {
  median: "--line-1",
  p95: "--line-3",
  worst: "--line-2",
};
const PALETTE = ["--line-1", "--line-2", "--line-4", "--line-3", "--line-5", "--line-6", "--line-7"];

/** All charts of the report: one time axis, one cursor. */
export class Charts {
  readonly #sync = uPlot.sync("moim");
  readonly #events: RunEvent[];
  readonly #endSeconds: number;
  #all: { holder: HTMLElement; spec: ChartSpec; plot: uPlot | null }[] = [];

  /** What of the time axis is shown, in seconds; it stands in the address, so that a link shows the same. */
  #zoom: [number, number] | null;

  /** @param endSeconds right end of the time axis */
  constructor(events: RunEvent[], endSeconds: number) {
    this.#events = events;
    this.#endSeconds = endSeconds;
    this.#zoom = zoomIn(location.hash, endSeconds);
    addEventListener("hashchange", () => {
      this.#zoom = zoomIn(location.hash, endSeconds);
      this.draw();
    });
    new ResizeObserver(() => this.#resize()).observe(document.documentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    // Paper is white: charts are drawn anew in light colours.
    addEventListener("beforeprint", () => this.#theme("light"));
    addEventListener("afterprint", () => this.#theme(null));
  }

  /** A place for a chart; it is drawn by {@link draw}. */
  add(spec: ChartSpec): HTMLElement {
    const holder = el("div", { class: "plot" });
    this.#all.push({ holder, spec, plot: null });
    const unit = el("span", { class: "unit", textContent: spec.unit });
    return el("figure", { class: "chart" }, el("figcaption", {}, spec.title, " ", unit), holder);
  }

  draw(): void {
    for (const chart of this.#all) {
      chart.plot?.destroy();
      chart.plot = this.#plot(chart.spec, chart.holder);
    }
  }

  /** Puts other charts into a place in place of those that it has. */
  replace(place: HTMLElement, specs: ChartSpec[]): void {
    const old = this.#all.filter(({ holder }) => place.contains(holder));
    for (const chart of old) chart.plot?.destroy();
    this.#all = this.#all.filter((chart) => !old.includes(chart));
    const before = this.#all.length;
    place.replaceChildren(...specs.map((spec) => this.add(spec)));
    for (const chart of this.#all.slice(before)) chart.plot = this.#plot(chart.spec, chart.holder);
  }

  #theme(theme: string | null): void {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    this.draw();
  }

  #resize(): void {
    for (const { holder, plot } of this.#all)
      if (plot && holder.clientWidth > 0 && plot.width !== holder.clientWidth)
        plot.setSize({ width: holder.clientWidth, height: HEIGHT });
  }

  #plot(spec: ChartSpec, holder: HTMLElement): uPlot {
    const css = getComputedStyle(document.documentElement);
    const colour = (name: string) => css.getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--soft"),
      grid: { stroke: colour("--grid"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };
    const digits = spec.digits ?? 1;
    const [low, high] = spec.range ?? [0, null];
    const options: uPlot.Options = {
      width: Math.max(200, holder.clientWidth),
      height: HEIGHT,
      cursor: {
        ...(spec.x ? {} : { sync: { key: this.#sync.key } }),
        focus: { prox: 24 },
        drag: { x: true, y: false },
        bind: { dblclick: (_u, _target, reset) => (event) => (this.#unzoom(), reset(event)) },
      },
      scales: {
        x: spec.x
          ? { time: false }
          : { time: false, range: (_u, min, max) => this.#xRange(spec.data.seconds, min, max) },
        y: {
          range: (_u, min, max) => [low ?? min, high ?? Math.max((max ?? 0) * 1.08, (low ?? 0) + 0.1)],
        },
      },
      axes: [
        spec.x
          ? { ...axis, size: 28, label: spec.x, labelSize: 20, labelFont: axis.font }
          : { ...axis, size: 28, values: (_u, ticks) => ticks.map((tick) => `${tick} s`) },
        { ...axis, size: 64 },
      ],
      legend: { live: true },
      series: [
        {
          label: spec.x ?? "time",
          value: (_u, v) => (v === null ? "–" : `${v.toFixed(0)}${spec.x ? "" : " s"}`),
        },
        ...spec.data.lines.map((line, index): uPlot.Series => {
          const name = spec.quality ? QUALITY_COLOURS[line.label] : PALETTE[index % PALETTE.length];
          return {
            label: line.label,
            stroke: colour(name ?? "--line-1"),
            width: 2,
            points: {
              show: spec.data.seconds.length < (spec.x ? 25 : 3),
              filter: (_u, _index, all) => (all ? null : isolated(line.values)),
            },
            value: (_u, v) => (v === null ? "–" : v.toFixed(digits)),
          };
        }),
      ],
      hooks: spec.x
        ? {}
        : {
            drawClear: [(plot) => this.#marks(plot, colour)],
            setSelect: [(plot) => this.#zoomTo(plot)],
          },
    };
    const data = [spec.data.seconds, ...spec.data.lines.map((line) => line.values)];
    return new uPlot(options, data as uPlot.AlignedData, holder);
  }

  /** The whole run, unless the reader has zoomed in. */
  #xRange(seconds: number[], min: number | null, max: number | null): [number, number] {
    const all = min === null || max === null || min === max;
    if (all || (min === seconds[0] && max === seconds.at(-1))) return this.#zoom ?? [0, this.#endSeconds];
    return [min, max];
  }

  /** What was chosen of the time axis holds for all charts. */
  #zoomTo(plot: uPlot): void {
    if (plot.select.width === 0) return;
    const { left, width } = plot.select;
    this.#zoom = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    this.#address(`#t=${this.#zoom.map((second) => second.toFixed(1)).join("-")}`);
  }

  #unzoom(): null {
    this.#zoom = null;
    this.#address("");
    return null;
  }

  /** Each chart calls this for one drag, and browsers allow few changes. */
  #address(hash: string): void {
    if (location.hash === hash) return;
    history.replaceState(null, "", hash || location.pathname + location.search);
  }

  #marks(plot: uPlot, colour: (name: string) => string): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = Math.max(1, devicePixelRatio);
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const level of ["info", "warn", "error"]) {
      const events = this.#events.filter((event) => (event.level ?? "info") === level);
      // Hundreds of lines would hide the chart: then each is a tick, and many are a denser edge.
      const isMany = events.length > MANY_EVENTS;
      ctx.strokeStyle = colour(`--event-${level}`);
      ctx.globalAlpha = isMany ? 0.35 : 1;
      const height = isMany ? TICK * devicePixelRatio : bbox.height;
      for (const event of events) {
        const x = Math.round(plot.valToPos(event.t_ms / 1000, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + height);
        ctx.stroke();
      }
    }
    ctx.restore();
  }
}
