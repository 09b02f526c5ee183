/** The people of a run: everybody over time, one of them in full, and the table. */
import type { Charts, ChartSpec } from "./charts.ts";
import { el, figure, table } from "./dom.ts";
import type { RunRecord, Sample } from "./record.ts";
import {
  hasValues,
  type Lines,
  lossPct,
  meanOf,
  type PersonRow,
  peopleRows,
  type Reduction,
  rttMs,
} from "./series.ts";
import { strip, stripPicture } from "./strip.ts";

type Section = (title: string, hint: string, ...content: (Node | null)[]) => HTMLElement;

/** A run of sockets alone has none. */
export function hasPeople({ meta, summary, samples }: RunRecord): boolean {
  return (meta.people ?? []).length > 0 || samples.length > 0 || (summary.sockets ?? []).length === 0;
}

/** Everybody over time, and whoever is chosen in full. */
export function peoplePictures(record: RunRecord, charts: Charts, section: Section): HTMLElement[] {
  const all = strip(record.samples);
  if (all.people.length === 0) return [];
  const one = onePerson(
    record,
    charts,
    all.people.map(({ name }) => name),
  );
  const hint =
    "Worst first, coloured by MOS: with delay in it where that was measured. Nothing where somebody was not there.";
  return [
    section("Everybody over time", hint, stripPicture(all, one.choose)),
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
        ["LQ", meanOf("mos_lq")],
        ["CQ, with delay", meanOf("mos_cq")],
      ],
      2,
    ),
    of("Lost", "%", [["loss", lossPct]], 2),
    of("Delay", "ms", [
      ["mouth to ear", meanOf("mouth_to_ear_ms")],
      ["camera to screen", meanOf("camera_to_screen_ms")],
      ["jitter buffer", meanOf("jitter_buffer_ms")],
      ["transit", meanOf("transit_ms")],
      ["round trip", rttMs],
    ]),
    of("Jitter and gaps", "ms", [
      ["jitter", meanOf("jitter_ms")],
      ["longest gap", meanOf("gap_ms")],
    ]),
    of("Pictures", "frames/s", [["frames", meanOf("frames_per_second")]]),
    of("Picture height", "pixels", [["height", meanOf("frame_height")]], 0),
    of("Frozen and paused", "% of time", [
      ["frozen", percent(meanOf("freeze_ratio"))],
      ["paused", percent(meanOf("paused_ratio"))],
    ]),
    of("Received", "kbit/s a track", [["rate", meanOf("bitrate_kbps")]], 0),
  ].filter(({ data }) => hasValues(data));
}

function percent(of: Reduction): Reduction {
  return (sample) => {
    const ratio = of(sample);
    return ratio === null ? null : 100 * ratio;
  };
}

function linesOf(samples: readonly Sample[], lines: [string, Reduction][]): Lines {
  return {
    seconds: samples.map(({ t_ms }) => t_ms / 1000),
    lines: lines
      .map(([label, reduce]) => ({ label, values: samples.map(({ sample }) => reduce(sample)) }))
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
    const samples = record.samples.filter(({ person }) => person === pick.value);
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
