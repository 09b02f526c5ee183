import { describe, expect, it } from "vitest";
import { machineCharts, qualityCharts } from "../src/plots.ts";
import { type Sample, SAMPLE_MS } from "../src/record.ts";
import { sampleOf, sampleRecord } from "./sample-record.ts";

const { samples, machine } = sampleRecord();
const chartsOf = (of: readonly Sample[]) => qualityCharts({ samples: [...of], window_ms: SAMPLE_MS });

/** The lines of the chart with this title, by label. */
function linesOf(title: string, of: readonly Sample[] = samples): Record<string, (number | null)[]> {
  const chart = chartsOf(of).find((spec) => spec.title === title);
  return Object.fromEntries(chart!.data.lines.map(({ label, values }) => [label, values]));
}

/** One sample of each person, at 3 s. */
const people = (...rows: Partial<Sample>[]) => rows.map((some, i) => sampleOf(`bot-${i}`, SAMPLE_MS, some));

describe("quality charts", () => {
  it("have a median and a worst person, whose end of the scale is the bad one", () => {
    expect(chartsOf(samples).map(({ title, data }) => [title, data.lines.length])).toEqual([
      ["People", 1],
      ["Loss", 3],
      ["MOS-LQ", 2],
      ["Round trip", 2],
      ["Jitter", 2],
      ["Delay and its parts", 1],
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
    const three = people(...[900, null, 3_000, 2_000].map((estimate_kbps) => ({ estimate_kbps })));
    expect(linesOf("Downlink estimate", three)).toEqual({ median: [2], worst: [0.9] });
  });

  it("show the mean height of the pictures that came, and the lowest", () => {
    const { median, worst } = linesOf("Frame height");
    expect([median![0], median!.at(-1)]).toEqual([480, 480]);
    expect([worst![0], worst!.at(-1)]).toEqual([180, 180]);
    const two = people({ frame_height: 330 }, { frame_height: 720 }, {});
    expect(linesOf("Frame height", two)).toEqual({ median: [525], worst: [330] });
  });

  it("show which share of a person's pictures was paused, in percent, and the highest", () => {
    const { median, worst } = linesOf("Paused pictures");
    expect([median![0], median!.at(-1)]).toEqual([0, 0]);
    expect(worst![0]).toBe(0);
    expect(worst!.at(-1)).toBeCloseTo(100 / 3);
    const one = people({ paused_ratio: 0.25 });
    expect(linesOf("Paused pictures", one)).toEqual({ median: [25], worst: [25] });
  });

  it("show what came as retransmissions of all packets of pictures, and the highest", () => {
    const { median, worst } = linesOf("Retransmitted");
    expect(median!.at(-1)).toBe(0);
    expect(worst!.at(-1)).toBeGreaterThan(5);
    const one = people({ repeated: 20, pictures: 100, came: 980 });
    expect(linesOf("Retransmitted", one)).toEqual({ median: [20], worst: [20] });
  });

  it("are left out where nobody has a value", () => {
    const titles = (of: readonly Sample[]) => chartsOf(of).map((spec) => spec.title);
    expect(titles([])).toEqual([]);
    expect(titles(people({ came: 100 }))).toEqual(["People", "Loss"]);
    expect(titles(people({ repeated: 0 }))).toEqual(["People"]);
    expect(titles(people({ paused_ratio: 0 }))).toEqual(["People", "Paused pictures"]);
    expect(titles(people({}, { estimate_kbps: 800 }))).toEqual(["People", "Downlink estimate"]);
  });

  it("decompose the delay of the median person", () => {
    const all = people(
      { mouth_to_ear_ms: 80, transit_ms: 20, jitter_buffer_ms: 40, rtt_ms: 15 },
      { mouth_to_ear_ms: 100, transit_ms: 30, jitter_buffer_ms: 40 },
    );
    expect(linesOf("Delay and its parts", all)).toEqual({
      "mouth to ear": [90],
      "network and server": [25],
      "network, there and back": [15],
      "jitter buffer": [40],
    });
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
