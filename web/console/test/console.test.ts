import { describe, expect, it } from "vitest";
import { age, figure, grade, lines } from "../src/figures.ts";
import { between, bitrate, read } from "../src/server.ts";
import { ask, askServer } from "../src/source.ts";

const answer = (status: number, body: unknown) => async () =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
const spread = (median: number) => ({ min: 1, max: 4.4, average: 3, median, people: 2 });

describe("asking for the figures", () => {
  it("decodes what the contract says, and tells what does not fit", async () => {
    const quality = { at_unix_ms: 5, rooms: [] };
    expect(await ask("", answer(200, quality))).toEqual({ state: "figures", quality });
    const broken = await ask("", answer(200, { at_unix_ms: 5, rooms: [{ id: 7 }] }));
    expect(broken).toMatchObject({
      state: "failed",
      problem: expect.stringContaining("quality.rooms[0].id"),
    });
  });

  it("wants a token where the server does, and sends it", async () => {
    const problem = { title: "Unauthorized", detail: "a token is needed" };
    expect(await ask("", answer(401, problem))).toEqual({ state: "token", problem: "a token is needed" });
    expect(await ask("", answer(403, { title: "Forbidden" }))).toEqual({
      state: "token",
      problem: "Forbidden",
    });
    let sent: RequestInit | undefined;
    await ask("x.y.z", async (_url, init) => {
      sent = init;
      return new Response("{}");
    });
    expect(sent?.headers).toEqual({ authorization: "Bearer x.y.z" });
  });

  it("says that the server does not answer, and what status it answers with", async () => {
    const down = await ask("", async () => {
      throw new TypeError("fetch failed");
    });
    expect(down).toEqual({ state: "failed", problem: "The server does not answer." });
    const html = await ask("", async () => new Response("<html>", { status: 502 }));
    expect(html).toEqual({ state: "failed", problem: "The server answered with status 502." });
  });
});

describe("figures", () => {
  it("shows a dash and a gap where nobody measured", () => {
    expect([figure(null), figure(undefined, 2), figure(0, 1)]).toEqual(["–", "–", "0.0"]);
    expect([grade(null), grade(4.2), grade(3.5), grade(2)]).toEqual(["", "good", "fair", "bad"]);
    expect([age(800), age(59_000), age(180_000)]).toEqual(["1 s", "59 s", "3 min"]);
    const history = [
      { at_unix_ms: 4_000, people: 2, mos_lq: spread(4) },
      { at_unix_ms: 7_000, people: 0, mos_lq: null },
    ];
    expect(lines(history, 10_000)).toEqual([
      [-6, -3],
      [1, null],
      [4, null],
      [4.4, null],
    ]);
  });
});

describe("the server's own figures", () => {
  const text = (cpu: number, mix: number, dropped: number, start = 5) => `# HELP a b
process_start_time_seconds ${start}
process_cpu_seconds_total ${cpu}
process_resident_memory_bytes 1048576
moim_thread_cpu_seconds_total{thread="media-0"} 7
moim_thread_cpu_seconds_total{thread="mix-0"} ${mix}
moim_media_bytes_in_total{thread="media-0"} ${1000 * cpu}
moim_media_bytes_in_total{thread="media-1"} ${1000 * cpu}
moim_dropped_total{where="media",reason="malformed"} ${dropped}
moim_dropped_total{where="media",reason="none"} 4
what is this
`;

  it("are what is between two readings", () => {
    const figures = between(read(text(10, 1, 0), 1_000), read(text(11, 2.5, 6), 4_000))!;
    expect(figures.cores).toBeCloseTo(1 / 3);
    expect(figures.threads).toEqual([
      { name: "mix-0", cores: 0.5 },
      { name: "media-0", cores: 0 },
    ]);
    expect(figures.bitsIn).toBeCloseTo((2 * 8 * 1000) / 3);
    expect(figures.drops).toEqual([{ what: "media: malformed", rate: 2 }]);
    expect(figures.memoryBytes).toBe(1_048_576);
  });

  it("are none over a restart, or without time between", () => {
    const first = read(text(10, 1, 0), 1_000);
    expect(between(first, read(text(1, 0, 0, 6), 4_000))).toBeNull();
    expect(between(first, first)).toBeNull();
  });

  it("are for those who may see metrics", async () => {
    expect(await askServer("", async () => new Response("no", { status: 403 }))).toBe("hidden");
    const broken = async () => {
      throw new TypeError("fetch failed");
    };
    expect(await askServer("", broken)).toBe("failed");
    expect(await askServer("", async () => new Response("no", { status: 500 }))).toBe("failed");
    const reading = await askServer("", async () => new Response("a 1\n"));
    expect(reading).toMatchObject({ series: new Map([["a{}", 1]]) });
    expect([bitrate(900), bitrate(2_340_000), bitrate(1.5e9)]).toEqual([
      "1 kbit/s",
      "2.3 Mbit/s",
      "1.50 Gbit/s",
    ]);
  });
});
