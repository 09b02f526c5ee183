/** Which charts a run has. Pure. A chart in which nobody has a value is left out. */
import type { ChartSpec } from "./charts.ts";
import type { MachineRow, Sample, SocketGroup } from "./record.ts";
import {
  estimateMbps,
  frameHeight,
  hasValues,
  lossPct,
  machineLines,
  meanOf,
  pausedPct,
  personMedians,
  qualityLines,
  quantile,
  type Reduction,
  retransmittedPct,
  rttMs,
  socketLines,
  threadLines,
} from "./series.ts";

/** How people fared. */
export function qualityCharts(samples: readonly Sample[]): ChartSpec[] {
  const chart = (
    title: string,
    unit: string,
    reduce: Reduction,
    worst: "highest" | "lowest",
    more: { p95?: boolean; digits?: number; range?: [number | null, number | null] } = {},
  ): ChartSpec => {
    const { p95, ...rest } = more;
    return { title, unit, quality: true, data: qualityLines(samples, reduce, worst, p95), ...rest };
  };
  return [
    chart("Loss", "%", lossPct, "highest", { p95: true, digits: 2 }),
    chart("MOS-LQ", "1 to 4.5, delay left out", meanOf("mos_lq"), "lowest", { digits: 2, range: [1, 4.6] }),
    chart("Round trip", "ms", rttMs, "highest"),
    chart("Jitter", "ms", meanOf("jitter_ms"), "highest"),
    chart("Mouth to ear", "ms, of bots", meanOf("mouth_to_ear_ms"), "highest"),
    chart("Camera to screen", "ms, of browsers", meanOf("camera_to_screen_ms"), "highest"),
    chart("Frame rate", "frames/s", meanOf("frames_per_second"), "lowest"),
    chart("Frame height", "pixels, mean of the pictures that came", frameHeight, "lowest", { digits: 0 }),
    chart("Paused pictures", "%, for want of bandwidth", pausedPct, "highest"),
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
    ["MOS-LQ", "1 to 4.5", meanOf("mos_lq"), 2],
    ["MOS-CQ", "1 to 4.5, with delay", meanOf("mos_cq"), 2],
    ["Mouth to ear", "ms", meanOf("mouth_to_ear_ms"), 0],
    ["Frame rate", "frames/s", meanOf("frames_per_second"), 1],
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
