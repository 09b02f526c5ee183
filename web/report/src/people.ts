/** The people of a run: everybody over time, one of them in full, and the table. */
import type { Charts, ChartSpec } from "./charts.ts";
import { el, figure, table } from "./dom.ts";
import { type RunRecord, type Sample, SAMPLE_MS } from "./record.ts";
import {
  figureOf,
  hasValues,
  type Lines,
  lossPct,
  type PersonRow,
  peopleRows,
  percentOf,
  type Reduction,
} from "./series.ts";
import { strip, stripPicture } from "./strip.ts";

type Section = (title: string, hint: string, ...content: (Node | null)[]) => HTMLElement;

/** A run of sockets alone has none. */
export function hasPeople({ meta, summary, samples }: RunRecord): boolean {
  return (meta.people ?? []).length > 0 || samples.length > 0 || (summary.sockets ?? []).length === 0;
}

/** Everybody over time, and whoever is chosen in full. */
export function peoplePictures(record: RunRecord, charts: Charts, section: Section): HTMLElement[] {
  const all = strip(record.samples, record.window_ms);
  if (all.people.length === 0) return [];
  const one = onePerson(
    record,
    charts,
    all.people.map(({ name }) => name),
  );
  // The worst are shown sample by sample.
  const worst = record.worst.length > 0 ? strip(record.worst, SAMPLE_MS) : all;
  const hint =
    "Worst first, coloured by MOS: with delay in it where that was measured. Nothing where somebody was not there.";
  return [
    section("Everybody over time", hint, stripPicture(all, worst, one.choose)),
    section("One person", "All that was measured of them; worst first.", one.element),
  ];
}

/** The charts of a person. */
export function personCharts(samples: readonly Sample[]): ChartSpec[] {
  const of = (title: string, unit: string, lines: [string, Reduction][], digits = 1): ChartSpec => ({
    title,
    unit,
    digits,
    data: linesOf(samples, lines),
  });
  return [
    of(
      "Score",
      "MOS, 1 to 4.5",
      [
        ["LQ", figureOf("mos_lq")],
        ["CQ, with delay", figureOf("mos_cq")],
      ],
      2,
    ),
    of("Lost", "%", [["loss", lossPct]], 2),
    of("Delay", "ms", [
      ["mouth to ear", figureOf("mouth_to_ear_ms")],
      ["camera to screen", figureOf("camera_to_screen_ms")],
      ["jitter buffer", figureOf("jitter_buffer_ms")],
      ["network and server", figureOf("transit_ms")],
      ["round trip", figureOf("rtt_ms")],
    ]),
    of("Jitter and gaps", "ms", [
      ["jitter", figureOf("jitter_ms")],
      ["longest gap", figureOf("gap_ms")],
    ]),
    of("Pictures", "frames/s", [["frames", figureOf("frames_per_second")]]),
    of("Picture height", "pixels", [["height", figureOf("frame_height")]], 0),
    of("Frozen and paused", "% of time", [
      ["frozen", percentOf("freeze_ratio")],
      ["paused", percentOf("paused_ratio")],
    ]),
    of("Received", "kbit/s", [["rate", figureOf("bitrate_kbps")]], 0),
  ].filter(({ data }) => hasValues(data));
}

function linesOf(samples: readonly Sample[], lines: [string, Reduction][]): Lines {
  return {
    seconds: samples.map(({ t_ms }) => t_ms / 1000),
    lines: lines
      .map(([label, reduce]) => ({ label, values: samples.map(reduce) }))
      .filter(({ values }) => values.some((value) => value !== null)),
  };
}

function onePerson(record: RunRecord, charts: Charts, names: string[]) {
  const pick = el(
    "select",
    { "aria-label": "Person" },
    ...names.map((name) => el("option", { textContent: name })),
  );
  const place = el("div", { class: "charts" });
  const happened = el("ul");
  const show = () => {
    const own = (samples: Sample[]) => samples.filter(({ person }) => person === pick.value);
    const whole = own(record.worst);
    const samples = whole.length > 0 ? whole : own(record.samples);
    charts.replace(place, personCharts(samples));
    const events = record.events.filter(({ person }) => person === pick.value);
    happened.replaceChildren(
      ...events
        .slice(0, 50)
        .map(({ t_ms, text }) => el("li", { textContent: `${figure(t_ms / 1000, 1)} s: ${text}` })),
    );
  };
  pick.onchange = show;
  // What is folded costs nothing until somebody looks.
  const element = el("details", {}, el("summary", {}, "Show "), pick, place, happened);
  element.ontoggle = () => element.open && show();
  const choose = (name: string) => {
    pick.value = name;
    if (element.open) show();
    element.open = true;
    element.scrollIntoView({ block: "start" });
  };
  return { element, choose };
}

/** Everybody's figures over the whole run. */
export function peopleTable(record: RunRecord): HTMLElement {
  const percent = (ratio: number | null) => (ratio === null ? null : ratio * 100);
  const rows = peopleRows(record);
  return table(
    "People",
    rows,
    [
      { title: "Person", words: true, text: (row) => row.name, sort: (row) => row.name },
      { title: "Kind", words: true, text: (row) => row.kind, sort: (row) => row.kind },
      { title: "Room", words: true, text: (row) => row.room, sort: (row) => row.room },
      ...(rows.some((row) => row.role)
        ? [
            {
              title: "Role",
              words: true,
              text: (row: PersonRow) => row.role,
              sort: (row: PersonRow) => row.role,
            },
          ]
        : []),
      { title: "MOS-LQ", text: (row) => figure(row.mos_lq, 2), sort: (row) => row.mos_lq },
      { title: "MOS-CQ", text: (row) => figure(row.mos_cq, 2), sort: (row) => row.mos_cq },
      { title: "Loss %", text: (row) => figure(row.loss_pct, 2), sort: (row) => row.loss_pct },
      { title: "Jitter ms", text: (row) => figure(row.jitter_ms), sort: (row) => row.jitter_ms },
      { title: "RTT ms", text: (row) => figure(row.rtt_ms), sort: (row) => row.rtt_ms },
      {
        title: "Frames/s",
        text: (row) => figure(row.frames_per_second),
        sort: (row) => row.frames_per_second,
      },
      {
        title: "Frozen %",
        text: (row) => figure(percent(row.freeze_ratio)),
        sort: (row) => row.freeze_ratio,
      },
      { title: "Samples", text: (row) => figure(row.samples, 0), sort: (row) => row.samples },
    ],
    (row) => (row.samples === 0 ? "bad" : ""),
  );
}
