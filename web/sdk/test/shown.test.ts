import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ShownSizes } from "../src/shown.ts";
import { MoimError } from "../src/signaling.ts";
import { SlotTable } from "../src/slots.ts";
import type { SlotShown } from "../src/wire.ts";

const LARGE = { width: 1280, height: 720 };
const SMALL = { width: 320, height: 180 };
const HIDDEN = { width: 0, height: 0 };

let slots: SlotTable;
let calls: { atMs: number; shown: SlotShown[] }[];
let refusal: Error | null;
let sizes: ShownSizes;

const put = (slot: string, track: string | null) => {
  slots.apply([{ slot, participant: track && `of-${track}`, track }]);
  sizes.changed();
};
const told = () => calls.map(({ shown }) => shown.map((s) => `${s.slot} ${s.width}x${s.height}`).join());
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers();
  slots = new SlotTable();
  for (const mid of ["4", "5", "6"]) slots.add(mid, "video");
  calls = [];
  refusal = null;
  sizes = new ShownSizes({
    mappings: () => slots.mappings(),
    tell: async (shown) => {
      calls.push({ atMs: performance.now(), shown });
      if (refusal) throw refusal;
    },
  });
});

afterEach(() => {
  sizes.end();
  vi.useRealTimers();
});

describe("ShownSizes", () => {
  it("tells what changes together in one call, soon", async () => {
    put("4", "a");
    put("5", "b");
    sizes.set("a", LARGE);
    sizes.set("b", { width: 319.6, height: 180.2 });
    await pass(50);
    expect(told()).toEqual(["4 1280x720,5 320x180"]);
  });

  it("tells at most once in 250 ms, the last size alone, and no size twice", async () => {
    put("4", "a");
    for (let width = 100; width < 200; width++) {
      sizes.set("a", { width, height: 90 });
      await pass(10);
    }
    await pass(1000);
    expect(calls.length).toBeLessThanOrEqual(5);
    expect(told().at(-1)).toBe("4 199x90");
    for (const [index, { atMs }] of calls.slice(1).entries())
      expect(atMs - calls[index]!.atMs).toBeGreaterThanOrEqual(250);
    calls.length = 0;
    sizes.set("a", { width: 199, height: 90 });
    sizes.set("a", SMALL);
    sizes.set("a", { width: 199, height: 90 });
    await pass(1000);
    expect(told()).toEqual([]);
  });

  it("waits until a track has a slot, and follows it into another", async () => {
    sizes.set("a", SMALL);
    await pass(300);
    expect(told()).toEqual([]);
    put("4", "a");
    await pass(300);
    put("4", null);
    put("5", "a");
    await pass(300);
    expect(told()).toEqual(["4 320x180", "5 320x180"]);
  });

  it("does not leave a track of unknown size in the size of the one before", async () => {
    put("4", "a");
    sizes.set("a", HIDDEN);
    await pass(300);
    put("4", "b");
    await pass(300);
    expect(told()).toEqual(["4 0x0", "4 3840x2160"]);
    put("5", "c");
    await pass(300);
    expect(calls, "a slot without a size needs none").toHaveLength(2);
  });

  it("tells everything again when the server may have forgotten it", async () => {
    put("4", "a");
    put("5", "b");
    sizes.set("a", LARGE);
    sizes.set("b", SMALL);
    await pass(300);
    sizes.again();
    await pass(300);
    expect(told()).toEqual(["4 1280x720,5 320x180", "4 1280x720,5 320x180"]);
  });

  it("tries again what the server had no time for or did not hear, and ends with the room", async () => {
    put("4", "a");
    for (const code of ["too_fast", "disconnected"] as const) {
      calls.length = 0;
      refusal = new MoimError(code, "later");
      sizes.set("a", code === "too_fast" ? LARGE : SMALL);
      await pass(300);
      refusal = null;
      expect(calls).toHaveLength(1);
      await pass(1500);
      expect(calls.map(({ shown }) => shown)).toEqual([calls[0]!.shown, calls[0]!.shown]);
      await pass(5000);
      expect(calls).toHaveLength(2);
    }
    sizes.set("a", HIDDEN);
    sizes.end();
    await pass(5000);
    expect(calls).toHaveLength(2);
  });

  it("tells what is pinned, and what is so no more, at the size that is known or large", async () => {
    const pinned = () =>
      calls.map(({ shown }) => shown.map((s) => `${s.slot} ${s.width} ${s.pinned}`).join());
    put("4", "a");
    sizes.set("a", SMALL);
    sizes.pin("a", true);
    await pass(300);
    sizes.pin("a", true);
    await pass(300);
    put("5", "b");
    sizes.pin("b", true);
    sizes.pin("a", false);
    await pass(300);
    put("5", "c");
    await pass(300);
    expect(pinned()).toEqual(["4 320 true", "4 320 undefined,5 3840 true", "5 3840 undefined"]);
  });

  it("tells again that a track of unknown size is pinned no more", async () => {
    put("4", "a");
    sizes.pin("a", true);
    await pass(300);
    refusal = new MoimError("disconnected", "later");
    sizes.pin("a", false);
    await pass(300);
    refusal = null;
    sizes.again();
    await pass(1500);
    expect(calls.map(({ shown }) => shown[0]!.pinned)).toEqual([true, undefined, undefined]);
  });

  it("forgets what is no more", async () => {
    sizes.set("a", SMALL);
    sizes.forget("a");
    put("4", "a");
    await pass(300);
    expect(told()).toEqual([]);
  });
});
