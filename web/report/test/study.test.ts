import { expect, it } from "vitest";
import type { StudyRow, StudyTable } from "../src/record.ts";
import { reasonsOf } from "../src/study.ts";

const table: StudyTable = {
  id: "t",
  title: "T",
  columns: [
    { key: "a", title: "A" },
    { key: "b", title: "B" },
    { key: "c", title: "C" },
  ],
};

it("tells each reason once, in order, and owns up to cells that are not there", () => {
  const rows: StudyRow[] = [
    { table: "t", name: "1", cells: { a: { value: 0 }, b: { value: null, reason: "later" } } },
    {
      table: "t",
      name: "2",
      cells: { a: { value: null, reason: "no TCP" }, b: { value: null, reason: "later" } },
    },
  ];
  expect(reasonsOf(table, rows)).toEqual(["later", "not measured", "no TCP"]);
  expect(
    reasonsOf(table, [
      { table: "t", name: "3", cells: { a: { value: 1 }, b: { value: 2 }, c: { word: "network" } } },
    ]),
  ).toEqual([]);
});
