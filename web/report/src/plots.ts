/** Which charts a run has. Pure. A chart in which nobody has a value is left out. */
import type { ChartSpec } from "./charts.ts";
import type { MachineRow, RunRecord, Sample, SocketGroup } from "./record.ts";
import {
  estimateMbps,
  figureOf,
  hasValues,
  lossPct,
  machineLines,
  medianLines,
  peopleLine,
  percentOf,
  personMedians,
  qualityLines,
  quantile,
  type Reduction,
  retransmittedPct,
  socketLines,
  threadLines,
} from "./series.ts";

/** How people fared. */
export function qualityCharts(record: Pick<RunRecord, "samples" | "window_ms">): ChartSpec[] {
  const chart = (
    title: string,
    unit: string,
    reduce: Reduction,
    worst: "highest" | "lowest",
    more: { p95?: boolean; digits?: number; range?: [number | null, number | null] } = {},
  ): ChartSpec => {
    const { p95, ...rest } = more;
    return { title, unit, quality: true, data: qualityLines(record, reduce, worst, p95), ...rest };
  };
  return [
    { title: "People", unit: "with samples", digits: 0, data: peopleLine(record) },
    chart("Loss", "%", lossPct, "highest", { p95: true, digits: 2 }),
    chart("MOS-LQ", "1 to 4.5, delay left out", figureOf("mos_lq"), "lowest", { digits: 2, range: [1, 4.6] }),
    chart("Round trip", "ms", figureOf("rtt_ms"), "highest"),
    chart("Jitter", "ms", figureOf("jitter_ms"), "highest"),
    chart("Mouth to ear", "ms, of bots", figureOf("mouth_to_ear_ms"), "highest"),
    {
      title: "Delay and its parts",
      unit: "ms, of the median person",
      data: medianLines(record, [
        ["mouth to ear", figureOf("mouth_to_ear_ms")],
        ["network and server", figureOf("transit_ms")],
        ["network, there and back", figureOf("rtt_ms")],
        ["jitter buffer", figureOf("jitter_buffer_ms")],
      ]),
    },
    chart("Camera to screen", "ms, of browsers", figureOf("camera_to_screen_ms"), "highest"),
    chart("Frame rate", "frames/s", figureOf("frames_per_second"), "lowest"),
    chart("Frame height", "pixels, mean of the pictures that came", figureOf("frame_height"), "lowest", {
      digits: 0,
    }),
    chart("Paused pictures", "%, for want of bandwidth", percentOf("paused_ratio"), "highest"),
    chart("Downlink estimate", "Mbit/s, of people on limited paths", estimateMbps, "lowest", { digits: 2 }),
    chart("Retransmitted", "% of packets of pictures", retransmittedPct, "highest", { digits: 2 }),
  ].filter(({ data }) => hasValues(data));
}

/** Fewer people have no distribution. */
const DISTRIBUTED = 3;

/**
 * How people differ: each figure at so many percent of them, in steps of five.
 * @param fault when the first fault was: then before and after it, each by itself
 */
export function distributionCharts(samples: readonly Sample[], fault: number | null): ChartSpec[] {
  const parts: [string, readonly Sample[]][] =
    fault === null
      ? [["all", samples]]
      : [
          ["before the first fault", samples.filter(({ t_ms }) => t_ms <= fault)],
          ["after it", samples.filter(({ t_ms }) => t_ms > fault)],
        ];
  const figures: [string, string, Reduction, number][] = [
    ["Loss", "%", lossPct, 2],
    ["MOS-LQ", "1 to 4.5", figureOf("mos_lq"), 2],
    ["MOS-CQ", "1 to 4.5, with delay", figureOf("mos_cq"), 2],
    ["Mouth to ear", "ms", figureOf("mouth_to_ear_ms"), 0],
    ["Frame rate", "frames/s", figureOf("frames_per_second"), 1],
  ];
  const percents = Array.from({ length: 21 }, (_, step) => 5 * step);
  return figures.flatMap(([title, unit, reduce, digits]): ChartSpec[] => {
    const lines = parts
      .map(([label, some]) => ({ label, people: [...personMedians(some, reduce).values()] }))
      .filter(({ people }) => people.length >= DISTRIBUTED)
      .map(({ label, people }) => ({
        label,
        values: percents.map((percent) => quantile(people, percent / 100)),
      }));
    const data = { seconds: percents, lines };
    return lines.length > 0 ? [{ title, unit, digits, x: "percent of the people", data }] : [];
  });
}

/** How sockets without a room fared, group by group. */
export function socketCharts(groups: readonly SocketGroup[]): ChartSpec[] {
  const charts = groups.flatMap(({ seconds = [] }, index): ChartSpec[] => {
    const of = groups.length > 1 ? `, group ${index + 1}` : "";
    return [
      {
        title: `Messages${of}`,
        unit: "messages/s",
        digits: 0,
        data: socketLines(seconds, [
          ["offered", ({ offered }, perSecond) => (offered ? offered * perSecond : null)],
          [
            "answered",
            ({ offered, answered }, perSecond) => (offered || answered ? answered * perSecond : null),
          ],
        ]),
      },
      {
        title: `Message latency${of}`,
        unit: "ms, from when each was due",
        digits: 2,
        data: socketLines(seconds, [
          ["median", (row) => row.p50_ms],
          ["p99", (row) => row.p99_ms],
        ]),
      },
      {
        title: `Connections${of}`,
        unit: "live",
        digits: 0,
        data: socketLines(seconds, [["live", (row) => row.live]]),
      },
    ];
  });
  return charts.filter(({ data }) => hasValues(data));
}

/** What server and generator did. */
export function machineCharts(rows: readonly MachineRow[]): ChartSpec[] {
  const charts: ChartSpec[] = [
    { title: "Server CPU by thread", unit: "cores", digits: 2, data: threadLines(rows, "server") },
    { title: "Generator CPU by thread", unit: "cores", digits: 2, data: threadLines(rows, "generator") },
    {
      title: "Server packets",
      unit: "packets/s",
      digits: 0,
      data: machineLines(rows, [
        ["in", (row) => row.server?.packets_in_per_s],
        ["out", (row) => row.server?.packets_out_per_s],
      ]),
    },
    {
      title: "Server traffic",
      unit: "Mbit/s",
      digits: 2,
      data: machineLines(rows, [
        ["in", (row) => row.server?.mbit_in_per_s],
        ["out", (row) => row.server?.mbit_out_per_s],
      ]),
    },
    {
      title: "Generator timer lag",
      unit: "ms, p99",
      digits: 2,
      data: machineLines(rows, [["lag", (row) => row.generator?.timer_lag_ms_p99]]),
    },
  ];
  return charts.filter(({ data }) => hasValues(data));
}
