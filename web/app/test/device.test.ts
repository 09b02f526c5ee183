import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { fakeTrack } from "../../sdk/test/fake-browser.ts";
import { Device } from "../src/device.ts";

/** Lets what is due happen. */
const settle = () => new Promise((done) => setImmediate(done));

/** A device whose openings the test ends. */
function slow() {
  const opening: ((track: MediaStreamTrack | null) => void)[] = [];
  const all: MediaStreamTrack[] = [];
  const device = new Device(
    () => new Promise((done) => opening.push(done)),
    () => {},
  );
  const opened = async (works: boolean) => {
    const done = opening.shift();
    if (!done) return;
    const track = works ? fakeTrack("video") : null;
    if (track) all.push(track);
    done(track);
    await settle();
  };
  const live = () => all.filter((track) => track.readyState === "live");
  return { device, opening, opened, live };
}

describe("Device", () => {
  it("closes what opens after it was switched off, and opens one where two were asked for", async () => {
    const { device, opening, opened, live } = slow();
    void device.set(true);
    void device.set(false);
    await opened(true);
    expect(live()).toEqual([]);
    void device.set(true);
    void device.set(false);
    void device.set(true);
    expect(opening).toHaveLength(1);
    await opened(true);
    expect(live()).toEqual([device.track]);
  });

  it("leaves nothing open once it was given away", async () => {
    const { device, opened, live } = slow();
    void device.set(true);
    expect(device.take()).toBeNull();
    await opened(true);
    void device.set(true);
    await opened(true);
    expect(live()).toEqual([]);
  });

  it("is as was wished last, whatever comes in between, and leaves nothing open", async () => {
    const steps = fc.array(fc.constantFrom("on", "off", "opened", "failed", "unplugged"), { maxLength: 30 });
    await fc.assert(
      fc.asyncProperty(steps, fc.boolean(), async (steps, taken) => {
        const { device, opening, opened, live } = slow();
        let wish = false;
        for (const step of steps) {
          if (step === "on" || step === "off") {
            wish = step === "on";
            void device.set(wish);
          } else if (step === "unplugged") {
            const track = device.track;
            track?.stop();
            track?.dispatchEvent(new Event("ended"));
            if (track) wish = false;
          } else {
            const fails = step === "failed" && opening.length > 0;
            await opened(step === "opened");
            if (fails) wish = false;
          }
          expect(device.wanted).toBe(wish);
          expect(live().length).toBeLessThanOrEqual(1);
        }
        const given = taken ? device.take() : null;
        while (opening.length > 0) await opened(true);
        await settle();
        expect(live()).toEqual([given ?? device.track].filter((track) => track !== null));
        expect(device.track !== null).toBe(wish && !taken);
      }),
      { numRuns: 1000 },
    );
  }, 60_000);
});
