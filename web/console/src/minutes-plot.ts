import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { el } from "../../app/src/dom.ts";

const HEIGHT = 110;
/** How far back a chart goes. */
export const MINUTES = 5;

/** A line: what it is, the colour's name in the style sheet, its width. */
export type Line = readonly [label: string, colour: string, width: number];

/** A small chart of the last five minutes, as wide as its place. */
export class MinutesPlot {
  readonly element: HTMLElement;
  readonly #holder = el("div", { class: "plot" });
  readonly #range: uPlot.Scale.Range;
  readonly #lines: readonly Line[];
  readonly #observer = new ResizeObserver(() => {
    const width = this.#holder.clientWidth;
    if (this.#plot && width > 0 && this.#plot.width !== width) this.#plot.setSize({ width, height: HEIGHT });
  });
  #plot: uPlot | null = null;

  /** @param range of the values; without `max` as high as they are, 0.1 at least */
  constructor(caption: string, range: { min: number; max?: number }, lines: readonly Line[]) {
    const { min, max } = range;
    this.#range =
      max === undefined ? (_plot, _least, most) => [min, Math.max(0.1, 1.1 * (most ?? 0))] : [min, max];
    this.#lines = lines;
    this.element = el("figure", {}, el("figcaption", { textContent: caption }), this.#holder);
    this.#observer.observe(this.#holder);
  }

  /** @param data seconds before now, then each line's values */
  update(data: uPlot.AlignedData): void {
    if (this.#plot) this.#plot.setData(data);
    else this.#plot = this.#chart(data);
  }

  end(): void {
    this.#observer.disconnect();
    this.#plot?.destroy();
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
    const options: uPlot.Options = {
      width: Math.max(200, this.#holder.clientWidth),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, range: [-60 * MINUTES, 0] }, y: { range: this.#range } },
      axes: [
        {
          ...axis,
          size: 22,
          values: (_plot, at) => at.map((s) => (s === 0 ? "now" : `${s / 60} min`)),
          incrs: [60],
        },
        { ...axis, size: 40, space: 15 },
      ],
      series: [
        {},
        ...this.#lines.map(([label, stroke, width]) => ({
          label,
          stroke: colour(stroke),
          width,
          points: { show: false },
        })),
      ],
    };
    return new uPlot(options, data, this.#holder);
  }
}
