import { readFileSync } from "node:fs";
import { type ErrorCode, preset } from "../../sdk/src/wire.ts";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { keepToken, takeToken } from "../src/invitation.ts";
import { bestGrid, bestStage } from "../src/layout.ts";
import { kindTitle, PRESETS, wantsVideo } from "../src/kinds.ts";
import { explainEnd, explainRoomError } from "../src/notices.ts";
import { kindOf, parseOptions, plainName, roomName } from "../src/options.ts";
import { layerTitle, receivedTitle } from "../src/quality-panel.ts";
import { shownSize } from "../src/sight.ts";

describe("parseOptions", () => {
  it("reads what automation uses", () => {
    const query =
      "?name=Ada&join=1&show=4&codec=h264&processing=off&audio=sfu&video=sfu&mic=0&camera=720p&simulcast=0";
    expect(parseOptions("/room/garden", query)).toEqual({
      room: "garden",
      name: "Ada",
      join: true,
      show: 4,
      codec: "h264",
      redundancy: false,
      simulcast: false,
      preset: null,
      audio: "sfu",
      video: "sfu",
      processing: false,
      microphone: false,
      camera: true,
      cameraSize: { width: 1280, height: 720 },
      token: null,
      tokenInQuery: false,
    });
  });

  it("takes no token from the query, which stands in logs", () => {
    const read = (query: string, token?: string) => parseOptions("/room/garden", query, token);
    expect(read("?token=a.b.c")).toMatchObject({ token: null, tokenInQuery: true });
    expect(read("?token=a.b.c", "d.e.f")).toMatchObject({ token: "d.e.f", tokenInQuery: true });
  });

  it("makes names of what can be seen", () => {
    expect(plainName(" \u202eAnn\u200b\u2069 ")).toBe("Ann");
    expect(plainName("\u3164\u00ad")).toBe("");
    for (const name of ["김모임", "👩‍👩‍👧", "می‌خواهم", "Zoë O'Neil"]) expect(plainName(name)).toBe(name);
    expect(parseOptions("/", "?name=%E2%80%AE").name).toBeNull();
  });

  it("takes what is wrong as left out", () => {
    const options = parseOptions("/", "?show=-1&codec=theora&audio=x&camera=9k");
    expect(options).toMatchObject({ room: null, show: null, codec: null, audio: null, microphone: null });
    expect(options.cameraSize).toEqual({ width: 640, height: 360 });
    expect(parseOptions("/room/%E0%A4%A", "").room).toBeNull();
    // The link's name is another room than what is left of it: the server says what is wrong with it.
    expect(parseOptions("/room/a%23b", "").room).toBe("a#b");
    expect(parseOptions("/room/garden/", "?camera=off")).toMatchObject({ room: "garden", camera: false });
    expect(parseOptions("/room/garden", "")).toMatchObject({ simulcast: true });
  });

  it("makes room names that the server takes", () => {
    expect(roomName("  Monday stand up! ")).toBe("Monday-stand-up");
    expect(roomName("모임")).toBeNull();
    fc.assert(
      fc.property(fc.string(), (typed) => {
        const id = roomName(typed);
        if (id !== null) expect(id).toMatch(/^[A-Za-z0-9\-_.]{1,64}$/);
      }),
    );
  });
});

describe("kinds of room", () => {
  it("come from the address, and say whether a camera is wanted", () => {
    expect(kindOf(parseOptions("/", "?preset=audio_room"))).toEqual({ preset: "audio_room" });
    expect(kindOf(parseOptions("/", "?preset=disco&audio=mcu&video=none"))).toEqual({
      audio: "mcu",
      video: "none",
    });
    expect(wantsVideo({})).toBe(true);
    expect(wantsVideo({ preset: "audio_room" })).toBe(false);
    expect(wantsVideo({ preset: "audio_room", video: "sfu" })).toBe(true);
    expect(wantsVideo({ audio: "mcu", video: "none" })).toBe(false);
  });

  it("are the contract's presets, each with its title", () => {
    const named = [...new Set(PRESETS.map(({ value }) => preset(value, "preset")))];
    expect(named).toHaveLength(4);
    for (const { audio, video, title } of PRESETS) expect(kindTitle({ audio, video })).toBe(title);
    expect(kindTitle({ audio: "mesh", video: "sfu" })).toBe("Audio direct, video forwarded");
  });
});

describe("what went wrong", () => {
  it("has words of its own for each code of the contract", () => {
    const source = readFileSync(new URL("../../../crates/wire/src/error.rs", import.meta.url), "utf8");
    const codes = [...source.matchAll(/Self::\w+ => "(\w+)"/g)].map(([, code]) => code as ErrorCode);
    expect(codes).toContain("room_locked");
    const said = codes.map((code) => explainRoomError({ code, message: "the cause" }));
    expect(new Set(said).size).toBe(codes.length);
    expect(explainEnd("removed", "garden").join(" ")).toContain("moderator");
  });
});

const GAP = 8;

describe("bestStage", () => {
  it("gives the pinned tile most of the height, and the others a row below it", () => {
    expect(bestStage(0, 1280, 720, GAP)).toEqual({ stage: 1280, tile: 0 });
    const { stage, tile } = bestStage(4, 1280, 720, GAP);
    expect([stage, tile]).toEqual([1009, 256]);
    expect(bestStage(20, 1280, 720, GAP).tile, "they scroll").toBe(150);
    expect(bestStage(3, 360, 640, GAP)).toEqual({ stage: 360, tile: 150 });
  });
});

describe("bestGrid", () => {
  it("uses known shapes", () => {
    expect(bestGrid(1, 1280, 600, GAP).columns).toBe(1);
    expect(bestGrid(4, 1280, 600, GAP).columns).toBe(2);
    expect(bestGrid(9, 1280, 700, GAP).columns).toBe(3);
    expect(bestGrid(2, 344, 600, GAP).columns).toBe(1);
  });

  it("never makes the page scroll sideways", () => {
    const size = fc.integer({ min: 160, max: 4000 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 60 }), size, size, (count, width, height) => {
        const grid = bestGrid(count, width, height, GAP);
        expect(grid.columns * grid.width + (grid.columns - 1) * GAP).toBeLessThanOrEqual(width);
        expect(grid.width).toBeGreaterThan(0);
      }),
    );
  });
});

describe("what a tile asks for", () => {
  const view = { width: 320.4, height: 180.2, inView: true, pageShown: true, ratio: 1 };
  it("is its size in pixels of the screen, and nothing where nobody sees it", () => {
    expect(shownSize(view)).toEqual({ width: 320, height: 180 });
    expect(shownSize({ ...view, ratio: 2 })).toEqual({ width: 641, height: 360 });
    for (const unseen of [{ inView: false }, { pageShown: false }])
      expect(shownSize({ ...view, ...unseen })).toEqual({ width: 0, height: 0 });
  });
});

describe("the quality panel", () => {
  it("names each picture with its present size, and one that the server paused", () => {
    const video = { kind: "video" as const, frame_width: 640, frame_height: 360 };
    expect(receivedTitle(video, "Ada", null)).toBe("Ada, video 640×360");
    expect(receivedTitle(video, "Ada", "bandwidth")).toBe("Ada, video 640×360, paused: bandwidth");
    const sound = { kind: "audio" as const, frame_width: null, frame_height: null };
    expect(receivedTitle(sound, "Ada", null)).toBe("Ada, audio");
  });

  it("names the sizes in which the own camera is sent, and what limits them", () => {
    const layer = { track: "t", rid: "f", active: true, width: 1280, height: 720 };
    const figures = { framesPerSecond: 30, kbps: 1500, limitedBy: "none" };
    expect(layerTitle({ ...layer, ...figures })).toBe("camera f 1280×720");
    expect(layerTitle({ ...layer, ...figures, limitedBy: "cpu" })).toBe("camera f 1280×720, limited by cpu");
    expect(layerTitle({ ...layer, ...figures, active: false })).toBe("camera f, not sent");
    expect(layerTitle({ ...layer, ...figures, rid: "", width: null })).toBe("camera");
  });
});

describe("takeToken", () => {
  const tab = () => {
    const kept = new Map<string, string>();
    const storage = {
      getItem: (key: string) => kept.get(key) ?? null,
      setItem: (key: string, value: string) => void kept.set(key, value),
      removeItem: (key: string) => void kept.delete(key),
    };
    const open = (path: string, source: () => typeof storage = () => storage) => {
      const address = new URL(path, "https://call.example.org");
      let shown = address.pathname + address.search + address.hash;
      const token = takeToken(address, (to) => (shown = to), source);
      return { token, shown };
    };
    return { open, storage };
  };

  it("takes it out of the address, and a reload finds it", () => {
    const { open } = tab();
    const path = "/room/garden?name=Ada";
    expect(open(`${path}#token=a.b-c.d_e`)).toEqual({ token: "a.b-c.d_e", shown: path });
    expect(open(path)).toEqual({ token: "a.b-c.d_e", shown: path });
    expect(open("/room/garden#chat=1&token=x&y=2")).toEqual({ token: "x", shown: "/room/garden#chat=1&y=2" });
    expect(tab().open(path).token, "another tab has none").toBeNull();
  });

  it("keeps it for its room alone, and a newer one instead", () => {
    const { open, storage } = tab();
    open("/room/garden#token=old");
    expect(open("/room/cellar").token).toBeNull();
    expect(open("/room/garden#token=new").token).toBe("new");
    expect(open("/room/garden").token).toBe("new");
    expect(open("/room/garden#token=")).toEqual({ token: null, shown: "/room/garden" });
    expect(open("/room/garden").token, "said to be none").toBeNull();
    open("/#token=any");
    keepToken("/room/attic", "any", () => storage);
    expect(open("/room/attic").token).toBe("any");
  });

  it("leaves it where it is if the browser keeps nothing", () => {
    const refused = () => {
      throw new DOMException("no storage", "SecurityError");
    };
    const path = "/room/garden#token=a.b.c";
    expect(tab().open(path, refused)).toEqual({ token: "a.b.c", shown: path });
    expect(tab().open("/room/garden", refused).token).toBeNull();
  });
});
