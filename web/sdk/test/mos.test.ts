import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { mosCq, mosLq, mosSdk, OPUS_MODELS } from "../src/mos.ts";

describe("MOS (ITU-T G.107.2)", () => {
  const delays = [50, 150, 200, 300, 400, 600, 1000, 2000];
  const golden: [number, number[]][] = [
    [0, [4.3, 4.3, 4.22, 3.77, 3.33, 2.75, 2.31, 2.09]],
    [1, [4.09, 4.09, 3.98, 3.46, 2.98, 2.4, 1.97, 1.77]],
    [5, [3.28, 3.27, 3.12, 2.51, 2.03, 1.54, 1.24, 1.13]],
  ];
  it.each(golden)("meets the golden table at %s %% loss", (loss, row) => {
    const got = delays.map((delay) => mosCq(loss, delay));
    got.forEach((mos, index) => {
      expect(Math.abs(mos - row[index]!), `at ${delays[index]} ms: ${mos}`).toBeLessThanOrEqual(0.0051);
    });
  });

  const loss = fc.double({ min: 0, max: 100, noNaN: true });
  const delay = fc.double({ min: 0, max: 5000, noNaN: true });
  const model = fc.constantFrom(...OPUS_MODELS.values());

  it("stays in 1..4.5 and falls with loss and with delay", () => {
    fc.assert(
      fc.property(loss, loss, delay, delay, model, (l1, l2, d1, d2, m) => {
        const worse = mosCq(Math.max(l1, l2), Math.max(d1, d2), m);
        const better = mosCq(Math.min(l1, l2), Math.min(d1, d2), m);
        expect(worse).toBeGreaterThanOrEqual(1);
        expect(better).toBeLessThanOrEqual(4.5);
        expect(worse).toBeLessThanOrEqual(better + 1e-9);
        expect(mosLq(l1, m)).toBeGreaterThanOrEqual(mosCq(l1, d1, m) - 1e-9);
      }),
    );
  });
});

describe("the SDK formula", () => {
  it("gives known values", () => {
    expect(mosSdk(0, 0, 0)).toBeCloseTo(4.4, 1);
    expect(mosSdk(0, 150, 0)).toBeCloseTo(1 + 0.035 * 90.768 + 7e-6 * 90.768 * 30.768 * 9.232, 9);
    expect(mosSdk(100, 20, 1)).toBe(1);
    expect(mosSdk(0, 1000, 0)).toBeCloseTo(1, 3); // the floor of R, 6.52
  });
});
