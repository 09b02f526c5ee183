import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { readRecord } from "../src/record.ts";
import {
  figureOf,
  isolated,
  lossPct,
  peopleRows,
  qualityLines,
  quantile,
  threadLines,
  zoomIn,
} from "../src/series.ts";
import { sampleOf, sampleRecord } from "./sample-record.ts";

const record = sampleRecord();

/** As the lab packs it. */
const packed = (value: unknown) => gzipSync(JSON.stringify(value)).toString("base64");

describe("readRecord", () => {
  const table = { person: [1, 0], t_ms: [3_000, 6_000], lost: [1, 0], came: [9, 5], pictures: [0, 4] };
  const none = { person: [], t_ms: [], lost: [], came: [], repeated: [], pictures: [], figures: {} };
  const rows = { ...table, repeated: [null, 0], figures: { mos_lq: [4.1, null] } };
  const people = [
    { name: "a", kind: "bot" },
    { name: "b", kind: "chromium" },
  ];
  const page = (samples: unknown) =>
    JSON.stringify({ meta: {}, summary: {}, packed: packed({ samples, machine: [], events: [] }) });

  it("knows the empty template from a record", async () => {
    expect(await readRecord('"__MOIM_RECORD__"')).toBeNull();
    await expect(readRecord("{")).rejects.toThrow();
    await expect(readRecord("{}")).rejects.toThrow();
  });

  it("unpacks samples; what nobody measured is null", async () => {
    const record = await readRecord(page({ people, window_ms: 3_000, rows, worst: none }));
    expect(record!.samples).toEqual([
      sampleOf("b", 3_000, { kind: "chromium", lost: 1, came: 9, mos_lq: 4.1 }),
      sampleOf("a", 6_000, { came: 5, repeated: 0, pictures: 4 }),
    ]);
    expect([record!.window_ms, record!.worst]).toEqual([3_000, []]);
  });
});

describe("quality over time", () => {
  it("has one point an interval, and the worst person is at least as bad as the median", () => {
    const { seconds, lines } = qualityLines(record, lossPct, "highest", true);
    expect(seconds).toHaveLength(20);
    expect(seconds[0]).toBe(3);
    expect(lines.map((line) => line.label)).toEqual(["median", "p95", "worst"]);
    const [median, , worst] = lines;
    worst!.values.forEach((value, i) => {
      expect(value!).toBeGreaterThanOrEqual(median!.values[i]!);
    });
    expect(worst!.values.at(-1)).toBeGreaterThan(1);
  });

  it("takes the lowest as worst where low is bad, and leaves gaps where nobody measured", () => {
    const lq = qualityLines(record, figureOf("mos_lq"), "lowest").lines;
    expect(lq[1]!.values[0]).toBeCloseTo(3.3);
    const cq = qualityLines(record, figureOf("mos_cq"), "lowest").lines;
    expect(cq[0]!.values.every((value) => value === null)).toBe(true);
  });

  it("gives no loss where nothing was expected", () => {
    expect(lossPct({ lost: 0, came: 0 })).toBeNull();
    expect(lossPct({ lost: 1, came: 3 })).toBe(25);
  });
});

describe("isolated", () => {
  it("finds values that no line reaches", () => {
    expect(isolated([1, null, 2, 3, null, 4])).toEqual([0, 5]);
    expect(isolated([null, 0, null])).toEqual([1]);
    expect(isolated([1, 2])).toEqual([]);
  });
});

describe("peopleRows", () => {
  it("puts those without any sample first, then the worst", () => {
    const extra = structuredClone(record);
    extra.meta.people!.push({ name: "bot-9", kind: "bot", room: "room-0" });
    const rows = peopleRows(extra);
    expect(rows.slice(0, 2).map((row) => row.name)).toEqual(["bot-9", "bot-3"]);
    expect(rows[0]!.loss_pct).toBeNull();
    expect(rows[1]!.loss_pct).toBeGreaterThan(3);
    expect(rows).toHaveLength(11);
  });

  it("leaves the first sample out", () => {
    const two = structuredClone(record);
    two.samples = record.samples.filter((sample) => sample.person === "bot-0").slice(0, 2);
    two.samples[0]!.rtt_ms = 1000;
    two.samples[1]!.rtt_ms = 2;
    expect(peopleRows(two).find((row) => row.name === "bot-0")!.rtt_ms).toBe(2);
  });
});

describe("threadLines", () => {
  it("shows the busiest first and sums the rest", () => {
    const { lines } = threadLines(record.machine, "server", 3);
    expect(lines.map((line) => line.label)).toEqual(["media-0", "control-0", "2 others"]);
    const sum = lines.reduce((total, line) => total + line.values[0]!, 0);
    const all = Object.values(record.machine[0]!.server!.threads!).reduce((a, b) => a + b, 0);
    expect(sum).toBeCloseTo(all);
  });

  it("leaves a gap where the server is unknown", () => {
    expect(
      threadLines([{ t_ms: 0, server: null }, record.machine[0]!], "server").lines[0]!.values[0],
    ).toBeNull();
  });
});

describe("quantile", () => {
  it("is the nearest rank, and the middle of two for the median", () => {
    expect(quantile([], 0.5)).toBeNull();
    expect(quantile([3, 1], 0.5)).toBe(2);
    expect(quantile([1, 2, 3], 0.95)).toBe(3);
    expect(quantile([5, 1, 9], 0)).toBe(1);
  });
});

describe("zoomIn", () => {
  it("is the part of the run that an address names, and nothing beyond it", () => {
    expect(zoomIn("#t=12.0-30.5", 60)).toEqual([12, 30.5]);
    expect(zoomIn("#t=12-300", 60)).toEqual([12, 60]);
    for (const nothing of ["", "#t=", "#t=30-12", "#t=70-90", "#t=..-1", "#bob"])
      expect(zoomIn(nothing, 60)).toBeNull();
  });
});
