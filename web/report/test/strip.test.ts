import { describe, expect, it } from "vitest";
import { SAMPLE_MS } from "../src/record.ts";
import { LEVELS, levelOf, shares, strip } from "../src/strip.ts";
import { sampleOf } from "./sample-record.ts";

const at = (t_ms: number, person: string, mos_cq: number | null, mos_lq = 4.4) =>
  sampleOf(person, t_ms, { mos_cq, mos_lq });

describe("everybody over time", () => {
  it("has a row a person, worst first, with gaps where somebody was not there", () => {
    const all = strip(
      [at(3_000, "a", 4.2), at(3_010, "b", 2), at(9_000, "a", 4.2), at(6_000, "b", 4)],
      SAMPLE_MS,
    );
    expect(all.seconds).toEqual([3, 6, 9]);
    expect(all.people).toEqual([
      { name: "b", values: [2, 4, null] },
      { name: "a", values: [4.2, null, 4.2] },
    ]);
    expect(strip([], SAMPLE_MS)).toEqual({ seconds: [], people: [] });
  });

  it("takes the score without delay where there is no other", () => {
    expect(strip([at(3_000, "a", null, 4.1)], SAMPLE_MS).people[0]!.values).toEqual([4.1]);
  });

  it("shows whoever heard nothing, and sorts them as the worst", () => {
    const silent = sampleOf("c", 3_000);
    const all = strip([at(3_000, "a", 4.2), silent, at(3_000, "b", 2)], SAMPLE_MS);
    expect(all.people.map(({ name, values }) => [name, ...values])).toEqual([
      ["c", 0],
      ["b", 2],
      ["a", 4.2],
    ]);
    expect(shares(all)[0]!.at(-1)).toBeCloseTo(1 / 3);
    expect(strip([silent], SAMPLE_MS).people).toEqual([]);
  });

  it("keeps windows apart where several samples are one", () => {
    const thinned = [at(178_000, "a", 4), at(360_000, "a", 2), at(372_000, "a", 1)];
    expect(strip(thinned, 180_000).people[0]!.values).toEqual([4, 2, 1]);
  });

  it("tells levels, and the share of people at each", () => {
    expect([4.5, 4.1, 3.7, 3.2, 2.6, 1].map(levelOf)).toEqual([0, 1, 2, 3, 4, 5]);
    const all = strip(
      [at(3_000, "a", 4.4), at(3_000, "b", 4.4), at(3_000, "c", 1), at(9_000, "a", 4.4)],
      SAMPLE_MS,
    );
    const none = LEVELS.map(() => 0);
    const third = none.with(0, 2 / 3).with(5, 1 / 3);
    expect(shares(all)).toEqual([third, null, none.with(0, 1)]);
  });
});
