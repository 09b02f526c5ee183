import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { chooseLayers, encodingsOf, isWithin, type Layer, layersOf, shape } from "../src/layers.ts";
import { sourceOf } from "../src/routes.ts";
import { fakeTrack } from "./fake-browser.ts";

const sizes = (width: number, height: number) =>
  chooseLayers(width, height).map((layer) => `${layer.width}x${layer.height}`);
const all = { rests: false, layer: Number.POSITIVE_INFINITY };

describe("chooseLayers", () => {
  it("sends large cameras in three sizes, small ones in two or one", () => {
    expect(sizes(1280, 720)).toEqual(["320x180", "640x360", "1280x720"]);
    expect(sizes(1920, 1080)).toEqual(["320x180", "960x540", "1920x1080"]);
    expect(sizes(960, 540)).toEqual(["320x180", "480x270", "960x540"]);
    expect(sizes(720, 1280)).toEqual(["180x320", "360x640", "720x1280"]);
    expect(sizes(640, 360)).toEqual(["320x180", "640x360"]);
    expect(sizes(640, 480)).toEqual(["320x240", "640x480"]);
    expect(sizes(854, 480)).toEqual(["427x240", "854x480"]);
    expect(sizes(1366, 768)).toEqual(["341x192", "683x384", "1366x768"]);
    expect(sizes(480, 270)).toEqual(["240x135", "480x270"]);
    expect(sizes(320, 240)).toEqual([]);
    expect(sizes(480, 269)).toEqual([]);
    expect(sizes(0, 0)).toEqual([]);
  });

  it("gives each size its bits", () => {
    const kbps = chooseLayers(1280, 720).map(({ maxBitrate }) => maxBitrate / 1000);
    expect(kbps).toEqual([150, 470, 1500]);
  });

  it("makes each layer smaller than the next, the last as it is, none beyond what libwebrtc encodes", () => {
    const side = fc.integer({ min: 1, max: 4000 });
    fc.assert(
      fc.property(side, side, fc.integer({ min: 0, max: 3 }), (width, height, most) => {
        const layers = chooseLayers(width, height, most);
        expect(layers.length).not.toBe(1);
        expect(layers.length).toBeLessThanOrEqual(most);
        if (width * height < 960 * 540) expect(layers.length).toBeLessThan(3);
        if (layers.length > 0) expect(layers.at(-1)).toMatchObject({ width, height, scale: 1 });
        for (const [index, layer] of layers.slice(1).entries()) {
          const below = layers[index]!;
          expect(below.width * below.height).toBeLessThan(layer.width * layer.height);
          expect(below.maxBitrate).toBeLessThan(layer.maxBitrate);
        }
      }),
    );
  });
});

describe("layersOf", () => {
  const size = { width: 1920, height: 1080 };
  it("leaves screens and sound in one size", () => {
    expect(layersOf(fakeTrack("video", size))).toHaveLength(3);
    expect(layersOf(fakeTrack("video", { ...size, displaySurface: "window" }))).toEqual([]);
    const slides = Object.assign(fakeTrack("video", size), { contentHint: "text" });
    expect(layersOf(slides)).toEqual([]);
    expect(sourceOf(slides)).toBe("screen_share");
    expect(sourceOf(fakeTrack("video", size))).toBe("camera");
    expect(layersOf(fakeTrack("video"))).toEqual([]);
    expect(layersOf(fakeTrack("audio"))).toEqual([]);
  });

  it("names layers from the smallest, and calls the largest f", () => {
    const rids = (width: number, height: number) =>
      encodingsOf(chooseLayers(width, height)).map(({ rid }) => rid);
    expect(rids(1280, 720)).toEqual(["q", "h", "f"]);
    expect(rids(640, 360)).toEqual(["h", "f"]);
    expect(rids(320, 180)).toEqual([]);
  });
});

describe("shape", () => {
  const layers = chooseLayers(1280, 720);
  const active = (encodings: RTCRtpEncodingParameters[]) =>
    encodings.map((encoding) => encoding.active !== false);

  it("changes nothing of encodings that are as they must be", () => {
    expect(encodingsOf(layers, "h264")).toEqual(encodingsOf(layers));
    const encodings = encodingsOf(layers);
    expect(shape(encodings, layers, all)).toBe(false);
    expect(encodings).toEqual(encodingsOf(layers));
    const plain = [{ active: true }];
    expect(shape(plain, [], all)).toBe(false);
    expect(plain).toEqual([{ active: true }]);
  });

  it("switches off what nobody wants, and everything of a track that rests", () => {
    const encodings = encodingsOf(layers);
    expect(shape(encodings, layers, { rests: false, layer: 1 })).toBe(true);
    expect(active(encodings)).toEqual([true, true, false]);
    expect(shape(encodings, layers, { rests: false, layer: 1 })).toBe(false);
    shape(encodings, layers, { rests: true, layer: 1 });
    expect(active(encodings)).toEqual([false, false, false]);
    shape(encodings, layers, { rests: false, layer: 0 });
    expect(active(encodings)).toEqual([true, false, false]);
    shape(encodings, layers, all);
    expect(encodings).toEqual(encodingsOf(layers).map((encoding) => ({ ...encoding, active: true })));
  });

  it("has layers within one stream where codec and browser have them, each half of the next", () => {
    const yes = () => true;
    expect([isWithin("vp9", yes), isWithin("av1", yes), isWithin("vp8", yes)]).toEqual([true, true, false]);
    expect(isWithin("vp9", () => false)).toBe(false);
    expect(encodingsOf(layers, "av1").map((it) => it.scalabilityMode)).toEqual(layers.map(() => "L1T1"));
    const heights = (lines: number) =>
      chooseLayers((lines * 16) / 9, lines, 3, true).map(({ height }) => height);
    expect([heights(1080), heights(720), heights(360)]).toEqual([
      [270, 540, 1080],
      [180, 360, 720],
      [180, 360],
    ]);
  });

  it("holds the layers that somebody wants in one encoding of VP9 and AV1", () => {
    const layers = chooseLayers(1280, 720, 3, true);
    const [encoding, ...more] = encodingsOf(layers, "av1", true);
    expect(more).toEqual([]);
    const sum = layers.reduce((all, { maxBitrate }) => all + maxBitrate, 0);
    const whole = { scalabilityMode: "L3T3_KEY", scaleResolutionDownBy: 1, maxBitrate: sum };
    expect(encoding).toEqual(whole);
    const become = (of: Layer[], layer: number, rests = false) =>
      shape([encoding!], of, { rests, layer }, true);
    expect(become(layers, 3)).toBe(false);
    expect(become(layers, 1)).toBe(true);
    expect(encoding).toMatchObject({ scalabilityMode: "L2T3_KEY", scaleResolutionDownBy: 2 });
    expect(become(layers, 0)).toBe(true);
    const smallest = { scaleResolutionDownBy: 4, maxBitrate: layers[0]!.maxBitrate };
    expect(encoding).toMatchObject({ scalabilityMode: "L1T3", ...smallest });
    expect(become(layers, 0, true)).toBe(true);
    expect(encoding!.active).toBe(false);
    expect(become(layers, 2)).toBe(true);
    expect(encoding).toEqual({ ...whole, active: true });
    expect(become(chooseLayers(640, 360, 3, true), 2)).toBe(true);
    expect(encoding!.scalabilityMode).toBe("L2T3_KEY");
    expect(become([], 2)).toBe(true);
    expect(encoding).toEqual({ active: true, scalabilityMode: "L1T3", scaleResolutionDownBy: 1 });
  });

  it("fits encodings to a camera with fewer layers, and back", () => {
    const encodings = encodingsOf(layers);
    const smaller = chooseLayers(640, 360);
    shape(encodings, smaller, all);
    expect(active(encodings)).toEqual([true, true, false]);
    expect(encodings.slice(0, 2).map((encoding) => encoding.scaleResolutionDownBy)).toEqual([2, 1]);
    shape(encodings, [], all);
    expect(active(encodings)).toEqual([true, false, false]);
    expect(encodings[0]).toEqual({ rid: "q", scaleResolutionDownBy: 1 });
    shape(encodings, layers, all);
    expect(active(encodings)).toEqual([true, true, true]);
    expect(encodings).toMatchObject(encodingsOf(layers));
  });
});
