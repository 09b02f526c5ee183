import { describe, expect, it } from "vitest";
import { age, figure, grade, lines } from "../src/figures.ts";
import { ask } from "../src/source.ts";

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
