import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { el } from "./dom.ts";
import type { RunEvent } from "./record.ts";
import { isolated, type Lines } from "./series.ts";

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

  /** @param endSeconds right end of the time axis */
  constructor(events: RunEvent[], endSeconds: number) {
    this.#events = events;
    this.#endSeconds = endSeconds;
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
        { ...axis, size: 46 },
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
      hooks: spec.x ? {} : { drawClear: [(plot) => this.#marks(plot, colour)] },
    };
    const data = [spec.data.seconds, ...spec.data.lines.map((line) => line.values)];
    return new uPlot(options, data as uPlot.AlignedData, holder);
  }

  /** The whole run, unless the reader has zoomed in. */
  #xRange(seconds: number[], min: number | null, max: number | null): [number, number] {
    const all = min === null || max === null || min === max;
    if (all || (min === seconds[0] && max === seconds.at(-1))) return [0, this.#endSeconds];
    return [min, max];
  }

  #marks(plot: uPlot, colour: (name: string) => string): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = Math.max(1, devicePixelRatio);
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const event of this.#events) {
      const x = Math.round(plot.valToPos(event.t_ms / 1000, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour(`--event-${event.level ?? "info"}`);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }
}
