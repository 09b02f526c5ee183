import { describe, expect, it } from "vitest";
import { machineCharts, qualityCharts } from "../src/plots.ts";
import type { Received, Sample } from "../src/record.ts";
import { sampleRecord } from "./sample-record.ts";

const { samples, machine } = sampleRecord();

/** The lines of the chart with this title, by label. */
function linesOf(title: string, of: readonly Sample[] = samples): Record<string, (number | null)[]> {
  const chart = qualityCharts(of).find((spec) => spec.title === title);
  return Object.fromEntries(chart!.data.lines.map(({ label, values }) => [label, values]));
}

/** One sample of each person, at 3 s. */
function people(...rows: Partial<Received>[][]): Sample[] {
  const full = (row: Partial<Received>): Received => ({
    participant: "p",
    track: "t",
    kind: "video",
    packets_received: 0,
    packets_lost: 0,
    ...row,
  });
  return rows.map((received, i) => ({
    t_ms: 3_000,
    person: `bot-${i}`,
    kind: "bot",
    sample: { received: received.map(full) },
  }));
}

describe("quality charts", () => {
  it("have a median and a worst person, whose end of the scale is the bad one", () => {
    expect(qualityCharts(samples).map(({ title, data }) => [title, data.lines.length])).toEqual([
      ["Loss", 3],
      ["MOS-LQ", 2],
      ["Round trip", 2],
      ["Jitter", 2],
      ["Frame rate", 2],
      ["Frame height", 2],
      ["Paused pictures", 2],
      ["Downlink estimate", 2],
      ["Retransmitted", 2],
    ]);
  });

  it("show the estimates of those who were told one, in Mbit/s, and the lowest", () => {
    const { median, worst } = linesOf("Downlink estimate");
    expect([median![0], median!.at(-1)]).toEqual([1.4, 0.7]);
    expect(worst).toEqual(median);
    const three = people([], [], [], []);
    three.forEach(({ sample }, i) => (sample.estimate_kbps = [900, null, 3_000, 2_000][i]!));
    expect(linesOf("Downlink estimate", three)).toEqual({ median: [2], worst: [0.9] });
  });

  it("show the mean height of the pictures that came, and the lowest", () => {
    const { median, worst } = linesOf("Frame height");
    expect([median![0], median!.at(-1)]).toEqual([480, 480]);
    expect([worst![0], worst!.at(-1)]).toEqual([180, 180]);
    const paused = { frame_height: 1080, frames_per_second: 0, paused_ratio: 1 };
    const two = people(
      [{ frame_height: 480, frames_per_second: 20 }, { frame_height: 180, frames_per_second: 9 }, paused],
      [{ frame_height: 720, frames_per_second: 25 }, { kind: "audio" }],
      [paused, { frame_height: null, frames_per_second: null }],
    );
    expect(linesOf("Frame height", two)).toEqual({ median: [525], worst: [330] });
  });

  it("show which share of a person's pictures was paused, in percent, and the highest", () => {
    const { median, worst } = linesOf("Paused pictures");
    expect([median![0], median!.at(-1)]).toEqual([0, 0]);
    expect(worst![0]).toBe(0);
    expect(worst!.at(-1)).toBeCloseTo(100 / 3);
    const one = people([{ paused_ratio: 0.5 }, { paused_ratio: 0 }, { kind: "audio" }]);
    expect(linesOf("Paused pictures", one)).toEqual({ median: [25], worst: [25] });
  });

  it("show what came as retransmissions of all packets of pictures, and the highest", () => {
    const { median, worst } = linesOf("Retransmitted");
    expect(median!.at(-1)).toBe(0);
    expect(worst!.at(-1)).toBeGreaterThan(5);
    const one = people([
      { packets_received: 60, retransmitted_packets_received: 20 },
      { packets_received: 20, retransmitted_packets_received: 0 },
      { kind: "audio", packets_received: 900 },
    ]);
    expect(linesOf("Retransmitted", one)).toEqual({ median: [20], worst: [20] });
  });

  it("are left out where nobody has a value", () => {
    const titles = (of: readonly Sample[]) => qualityCharts(of).map((spec) => spec.title);
    expect(titles([])).toEqual([]);
    expect(titles(people([{ packets_received: 100 }]))).toEqual(["Loss"]);
    expect(titles(people([{ retransmitted_packets_received: 0 }]))).toEqual([]);
    expect(titles(people([{ paused_ratio: 0 }]))).toEqual(["Paused pictures"]);
    const mixed = people([], []);
    mixed[1]!.sample.estimate_kbps = 800;
    expect(titles(mixed)).toEqual(["Downlink estimate"]);
  });
});

describe("machine charts", () => {
  it("are left out where nothing was read", () => {
    expect(machineCharts(machine)).toHaveLength(5);
    expect(
      machineCharts(machine.map(({ t_ms, generator }) => ({ t_ms, generator: generator! }))),
    ).toHaveLength(2);
    expect(machineCharts([])).toEqual([]);
  });
});
