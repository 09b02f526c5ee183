import { describe, expect, it } from "vitest";
import { machineCharts, qualityCharts } from "../src/plots.ts";
import type { Received, Sample } from "../src/record.ts";
import { sampleRecord } from "./sample-record.ts";

const { samples, machine } = sampleRecord();

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
    ]);
  });

  it("are left out where nobody has a value", () => {
    const titles = (of: readonly Sample[]) => qualityCharts(of).map((spec) => spec.title);
    expect(titles([])).toEqual([]);
    expect(titles(people([{ packets_received: 100 }]))).toEqual(["Loss"]);
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
