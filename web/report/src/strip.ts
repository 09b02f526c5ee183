/** Everybody over time, coloured by score: what is shown, and the picture. */
import { el, figure } from "./dom.ts";
import type { Sample } from "./record.ts";
import { mean, type Points, type Reduction, windowOf } from "./series.ts";

/** What people say of a score (ITU-T G.107, annex B): the least of each, and a colour of CSS. */
export const LEVELS: { least: number; words: string; colour: string }[] = [
  { least: 4.34, words: "very satisfied", colour: "--level-1" },
  { least: 4.03, words: "satisfied", colour: "--level-2" },
  { least: 3.6, words: "some dissatisfied", colour: "--level-3" },
  { least: 3.1, words: "many dissatisfied", colour: "--level-4" },
  { least: 2.58, words: "nearly all dissatisfied", colour: "--level-5" },
  { least: 1, words: "not to be recommended", colour: "--level-6" },
  { least: 0, words: "nothing heard", colour: "--level-none" },
];
/** What stands for a sample without a score: nothing came. */
const NOTHING = 0;
/** So many have a row of their own. */
export const MOST_ROWS = 60;

/** A person's scores, one for each moment of the strip. */
export interface StripRow {
  name: string;
  values: Points;
}

/** Everybody who has a score, worst first. */
export interface Strip {
  seconds: number[];
  people: StripRow[];
}

/** With delay in it where that was measured. */
const score: Reduction = ({ mos_cq, mos_lq }) => mos_cq ?? mos_lq;

/** The place of a score in {@link LEVELS}. */
export function levelOf(value: number): number {
  return LEVELS.findIndex(({ least }) => value >= least);
}

/** The scores of a run. */
export function strip(samples: readonly Sample[], window_ms: number): Strip {
  const people = new Map<string, Map<number, number>>();
  let anybody = false;
  let [first, last] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const sample of samples) {
    const { person } = sample;
    const known = score(sample);
    anybody ||= known !== null;
    const value = known ?? NOTHING;
    const bucket = windowOf(sample.t_ms, window_ms);
    [first, last] = [Math.min(first, bucket), Math.max(last, bucket)];
    const own = people.get(person) ?? new Map<number, number>();
    if (!people.has(person)) people.set(person, own);
    own.set(bucket, value);
  }
  if (!anybody) return { seconds: [], people: [] };
  const buckets = Array.from({ length: last - first + 1 }, (_, at) => first + at);
  const rows = [...people].map(([name, own]) => ({
    name,
    values: buckets.map((bucket) => own.get(bucket) ?? null),
    // Nothing heard counts as the worst score.
    whole: mean([...own.values()].map((value) => Math.max(1, value))) ?? 0,
  }));
  rows.sort((a, b) => a.whole - b.whole || a.name.localeCompare(b.name, "en", { numeric: true }));
  return {
    seconds: buckets.map((bucket) => (bucket * window_ms) / 1000),
    people: rows.map(({ name, values }) => ({ name, values })),
  };
}

/** Of all who have a score at a moment, the share at each of {@link LEVELS}; nothing where nobody has. */
export function shares({ seconds, people }: Strip): (number[] | null)[] {
  return seconds.map((_, at) => {
    const counts = LEVELS.map(() => 0);
    for (const { values } of people) {
      const value = values[at];
      if (value !== null && value !== undefined) counts[levelOf(value)]! += 1;
    }
    const all = counts.reduce((a, b) => a + b, 0);
    return all === 0 ? null : counts.map((count) => count / all);
  });
}

const BAND_HEIGHT = 90;
const LEGEND = () =>
  el(
    "p",
    { class: "legend" },
    ...LEVELS.map(({ least, words, colour }) =>
      el(
        "span",
        {},
        el("i", { style: `background: var(${colour})` }),
        ` ${least > 1 ? `from ${least}: ` : ""}${words}`,
      ),
    ),
  );

/**
 * The picture: a row a person, and over it how many are at each level where not everybody has a row.
 * @param worstOf whose rows are shown
 */
export function stripPicture(all: Strip, worstOf: Strip, choose: (name: string) => void): HTMLElement {
  const shown = worstOf.people.slice(0, MOST_ROWS);
  const worst =
    shown.length < all.people.length ? `the ${shown.length} worst of ${all.people.length}` : "all";
  const hint = el("p", {
    class: "hint",
    role: "status",
    textContent: "Point at somebody; a click shows all of them.",
  });
  const rows = el("canvas", { role: "img", "aria-label": `Scores over time, a row a person, ${worst}` });
  const bands = el("canvas", { role: "img", "aria-label": "Share of people at each level over time" });
  const isFolded = shown.length < all.people.length;
  const holder = el("div", { class: "strip" }, isFolded ? bands : null, rows, LEGEND(), hint);
  const height = Math.max(4, Math.min(16, Math.floor(360 / Math.max(1, shown.length))));
  const place = (event: MouseEvent) => {
    const box = rows.getBoundingClientRect();
    const row = shown[Math.floor((event.clientY - box.top) / height)];
    const at = Math.floor(((event.clientX - box.left) / box.width) * worstOf.seconds.length);
    return { row, at };
  };
  rows.onmousemove = (event) => {
    const { row, at } = place(event);
    if (row)
      hint.textContent = `${row.name}, ${figure(worstOf.seconds[at], 0)} s: ${figure(row.values[at], 2)}`;
  };
  rows.onclick = (event) => {
    const { row } = place(event);
    if (row) choose(row.name);
  };
  let drawn = 0;
  const draw = () => {
    if (holder.clientWidth === drawn) return;
    drawn = holder.clientWidth;
    const css = getComputedStyle(document.documentElement);
    const colours = LEVELS.map(({ colour }) => css.getPropertyValue(colour).trim());
    drawRows(paper(rows, holder.clientWidth, shown.length * height), shown, colours, height);
    if (isFolded) drawBands(paper(bands, holder.clientWidth, BAND_HEIGHT), shares(all), colours);
  };
  new ResizeObserver(draw).observe(holder);
  return holder;
}

/** A canvas of this size in CSS pixels, to be drawn on. */
function paper(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  canvas.width = Math.round(width * devicePixelRatio);
  canvas.height = Math.round(height * devicePixelRatio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d")!;
  context.scale(devicePixelRatio, devicePixelRatio);
  return context;
}

function drawRows(to: CanvasRenderingContext2D, rows: StripRow[], colours: string[], height: number): void {
  const width = to.canvas.width / devicePixelRatio;
  rows.forEach(({ values }, row) => {
    const step = width / values.length;
    // The worst on top: there may be more moments than pixels.
    const known = values.flatMap((value, at) => (value === null ? [] : [{ value, at }]));
    known.sort((a, b) => b.value - a.value);
    known.forEach(({ value, at }) => {
      to.fillStyle = colours[levelOf(value)]!;
      to.fillRect(at * step, row * height, step + 0.5, Math.max(1, height - 1));
    });
  });
}

function drawBands(to: CanvasRenderingContext2D, moments: (number[] | null)[], colours: string[]): void {
  const width = to.canvas.width / devicePixelRatio;
  const step = width / moments.length;
  moments.forEach((levels, at) => {
    let top = 0;
    // The best lie at the bottom.
    for (let level = LEVELS.length - 1; level >= 0; level--) {
      const share = BAND_HEIGHT * (levels?.[level] ?? 0);
      to.fillStyle = colours[level]!;
      to.fillRect(at * step, top, step + 0.5, share);
      top += share;
    }
  });
}
