import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { OwnTracks } from "../src/own-tracks.ts";
import type { Routes } from "../src/routes.ts";
import { MoimError } from "../src/signaling.ts";
import { fakeTrack } from "./fake-browser.ts";

const settle = () => new Promise((done) => setImmediate(done));

/** What is sent by a way on which each call to the server takes as long as the test says. */
function sending() {
  // A track that is stopped and sent again is another one.
  let times = 0;
  const id = (kind: string) => `my-${kind}-${times}`;
  const routes = {
    has: () => true,
    send: async () => {},
    replace: async () => {},
    negotiate: async () => {},
    stopSending: async () => {
      times++;
    },
    switched: () => {},
    idOf: id,
  };
  /** What the others were told of each track. */
  const told = new Map<string, boolean>();
  const calls: { answer(error?: MoimError): void }[] = [];
  const own = new OwnTracks(
    () => {},
    ({ track, muted }) =>
      new Promise<void>((done, failed) =>
        calls.push({
          answer(error) {
            if (error) return failed(error);
            told.set(track, muted);
            done();
          },
        }),
      ),
  );
  const answer = async (error?: MoimError) => {
    calls.shift()?.answer(error);
    await settle();
  };
  const answerAll = async () => {
    await settle();
    while (calls.length > 0) await answer();
  };
  const toldOf = (kind: string) => told.get(id(kind)) ?? false;
  return { own, routes: routes as unknown as Routes, toldOf, answer, answerAll, calls };
}

describe("OwnTracks", () => {
  it("tells the last wish last where it changes within one round trip", async () => {
    const { own, routes, toldOf, answerAll, calls } = sending();
    await own.begin(routes, true);
    await own.publish(fakeTrack("audio"), false);
    const first = own.mute("audio", true);
    const second = own.mute("audio", false);
    await settle();
    expect(calls).toHaveLength(1);
    await answerAll();
    await Promise.all([first, second]);
    expect(toldOf("audio")).toBe(false);
    expect(own.of("audio")?.mediaTrack.enabled).toBe(true);
  });

  it("tells that a device is gone, and stops what opens after the call", async () => {
    const { own, routes, toldOf, answerAll } = sending();
    await own.begin(routes, true);
    const camera = fakeTrack("video");
    await own.publish(camera, false);
    camera.dispatchEvent(new Event("ended"));
    await answerAll();
    expect(toldOf("video")).toBe(true);
    own.stop();
    const late = fakeTrack("audio");
    await expect(own.publish(late, false)).rejects.toMatchObject({ code: "ended" });
    expect(late.readyState).toBe("ended");
  });

  it("announces what is sent, whatever is wished while the server answers or fails", async () => {
    vi.spyOn(console, "warn").mockImplementation(() => {});
    const step = fc.constantFrom("mute", "unmute", "publish", "unpublish", "gone", "answer", "fail", "cut");
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        const { own, routes, toldOf, answer, answerAll } = sending();
        const tracks: MediaStreamTrack[] = [];
        const publish = () => {
          const track = fakeTrack("audio");
          tracks.push(track);
          return own.publish(track, false);
        };
        await own.begin(routes, true);
        await publish();
        const refused = () => {};
        for (const step of steps) {
          if (step === "mute" || step === "unmute") own.mute("audio", step === "mute").catch(refused);
          else if (step === "publish") publish().catch(refused);
          else if (step === "unpublish") own.unpublish("audio").catch(refused);
          else if (step === "gone") own.of("audio")?.mediaTrack.dispatchEvent(new Event("ended"));
          else if (step === "answer") await answer();
          else await answer(new MoimError(step === "cut" ? "disconnected" : "too_fast", "on purpose"));
        }
        await answerAll();
        // What failed is told with the next change, or after coming back.
        own.tellMuted().catch(refused);
        await answerAll();
        const last = own.of("audio");
        if (last) {
          expect(toldOf("audio")).toBe(last.muted);
          expect(last.mediaTrack.enabled).toBe(!last.muted);
        }
        const live = tracks.filter((track) => track.readyState === "live");
        expect(live).toEqual(last ? [last.mediaTrack] : []);
      }),
      { numRuns: 1000 },
    );
  }, 60_000);
});
