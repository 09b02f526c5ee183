import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SlotTable, slotsToAdd } from "../src/slots.ts";

const into = (slot: string, track: string) => ({ slot, participant: `of-${track}`, track });
const empty = (slot: string) => ({ slot, participant: null, track: null });

function table(): SlotTable {
  const slots = new SlotTable();
  for (const mid of ["2", "3"]) slots.add(mid, "audio");
  for (const mid of ["4", "5", "6"]) slots.add(mid, "video");
  return slots;
}

describe("SlotTable", () => {
  it("tells what a re-map took away and what it brought", () => {
    const slots = table();
    expect(slots.apply([into("4", "a"), into("5", "b")]).mapped.map((m) => m.track)).toEqual(["a", "b"]);
    const diff = slots.apply([into("4", "c"), empty("5")]);
    expect(diff.unmapped.map((m) => [m.slot, m.track])).toEqual([
      ["4", "a"],
      ["5", "b"],
    ]);
    expect(diff.mapped).toEqual([{ slot: "4", kind: "video", participant: "of-c", track: "c" }]);
    expect(slots.slotOf("c")).toBe("4");
    expect(slots.slotOf("a")).toBeNull();
  });

  it("is silent about repeated content and foreign slots", () => {
    const slots = table();
    slots.apply([into("4", "a")]);
    expect(slots.apply([into("4", "a"), into("99", "z"), empty("6")])).toEqual({
      unmapped: [],
      mapped: [],
      paused: [],
    });
  });

  it("tells once that a picture rests, that it flows again, and that the next one rests too", () => {
    const slots = table();
    const paused = "bandwidth" as const;
    const changes = (...all: Parameters<SlotTable["apply"]>[0]) =>
      slots.apply(all).paused.map((p) => [p.track, p.reason]);
    expect(changes(into("4", "a"))).toEqual([]);
    expect(changes({ ...into("4", "a"), paused })).toEqual([["a", "bandwidth"]]);
    expect(changes({ ...into("4", "a"), paused })).toEqual([]);
    expect(changes({ ...into("4", "b"), paused })).toEqual([["b", "bandwidth"]]);
    expect(changes(into("4", "b"))).toEqual([["b", null]]);
    expect(changes({ ...into("4", "b"), paused }, empty("4"), into("4", "b"))).toEqual([["b", "bandwidth"]]);
  });

  it("drops what belongs to someone who left", () => {
    const slots = table();
    slots.apply([into("2", "mic"), into("4", "cam")]);
    expect(slots.drop((content) => content.participant === "of-cam").unmapped).toHaveLength(1);
    expect(slots.mappings().map((m) => m.track)).toEqual(["mic"]);
  });

  it("plans: keeps slots, fills free ones, empties the rest", () => {
    const slots = table();
    slots.apply([into("4", "a"), into("5", "b")]);
    expect(slots.plan(["c", "b"], "video")).toEqual([
      { slot: "4", track: "c" },
      { slot: "5", track: "b" },
      { slot: "6", track: null },
    ]);
  });

  it("never plans a track twice nor moves one that has a slot", () => {
    const tracks = fc.array(fc.constantFrom("a", "b", "c", "d", "e"), { maxLength: 8 });
    fc.assert(
      fc.property(tracks, tracks, (before, after) => {
        const slots = table();
        const apply = (list: string[]) =>
          slots.apply(
            slots.plan(list, "video").map((w) => (w.track ? into(w.slot, w.track) : empty(w.slot))),
          );
        apply(before);
        const old = new Map(slots.mappings().map((m) => [m.track, m.slot]));
        apply(after);
        const now = slots.mappings();
        const expected = [...new Set(after)].slice(0, 3);
        expect(now.map((m) => m.track).sort()).toEqual(expected.sort());
        for (const m of now) if (old.has(m.track)) expect(m.slot).toBe(old.get(m.track));
      }),
    );
  });
});

describe("slotsToAdd", () => {
  it("grows in steps up to the limit", () => {
    expect(slotsToAdd(12, 12, 100)).toBe(0);
    expect(slotsToAdd(12, 13, 100)).toBe(8);
    expect(slotsToAdd(4, 21, 100)).toBe(24);
    expect(slotsToAdd(12, 30, 16)).toBe(4);
    expect(slotsToAdd(16, 30, 16)).toBe(0);
    expect(slotsToAdd(20, 30, 16)).toBe(0);
  });
});
