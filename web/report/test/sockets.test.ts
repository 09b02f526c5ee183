import { describe, expect, it } from "vitest";
import { socketCharts } from "../src/plots.ts";
import type { SocketGroup } from "../src/record.ts";
import { answeredPct, groupName, SOCKET_FIGURES, socketCards } from "../src/sockets.ts";

const latency = (ms: number) => ({ p50_ms: ms / 2, p99_ms: ms, max_ms: ms * 2 });

/** Three seconds, the last of which is only half of one; the first has no ping yet. */
const group = (more: Partial<SocketGroup> = {}): SocketGroup => ({
  connections: 10,
  connected: 9,
  live: 8,
  arrival_per_second: 5,
  rate_per_second: 20,
  connect: latency(3),
  closed: { "4001": 1 },
  failed: { refused: 1 },
  whole: { seconds: 3, offered: 200, made: 200, answered: 190, latency: latency(8) },
  seconds: [
    { t_s: 1, live: 5, offered: 0, answered: 0, p50_ms: null, p99_ms: null },
    { t_s: 2, live: 9, offered: 100, answered: 90, p50_ms: 2, p99_ms: 6 },
    { t_s: 2.5, live: 8, offered: 100, answered: 100, p50_ms: 4, p99_ms: 8 },
  ],
  ...more,
});

const lines = (groups: SocketGroup[], title: string) => {
  const chart = socketCharts(groups).find((spec) => spec.title === title)!;
  return Object.fromEntries(chart.data.lines.map(({ label, values }) => [label, values]));
};

describe("charts of sockets", () => {
  it("show offered and answered as rates, latency, and who is connected", () => {
    expect(lines([group()], "Messages")).toEqual({ offered: [null, 100, 200], answered: [null, 90, 200] });
    expect(lines([group()], "Message latency")).toEqual({ median: [null, 2, 4], p99: [null, 6, 8] });
    expect(lines([group()], "Connections")).toEqual({ live: [5, 9, 8] });
  });

  it("are apart for each group, and left out where nothing was pinged", () => {
    const silent = group({
      seconds: [{ t_s: 1, live: 3, offered: 0, answered: 0, p50_ms: null, p99_ms: null }],
    });
    expect(socketCharts([group(), silent]).map(({ title }) => title)).toEqual([
      "Messages, group 1",
      "Message latency, group 1",
      "Connections, group 1",
      "Connections, group 2",
    ]);
    expect(socketCharts([])).toEqual([]);
    expect(socketCharts([group({ seconds: [] })])).toEqual([]);
  });
});

describe("figures of sockets", () => {
  it("are summed over groups, or those of the worst", () => {
    const idle = group({ closed: {}, failed: {}, whole: null, connect: latency(9) });
    expect(answeredPct([group(), idle])).toBe(95);
    expect(answeredPct([idle])).toBeNull();
    const cards = socketCards([group(), idle]).map(([name, value, hint]) => `${name}: ${value} (${hint})`);
    expect(cards).toEqual([
      "Sockets live: 16 of 20 (at the end; 2 lost)",
      "Answered: 95.00 % (of the messages offered)",
      "Latency: 8.00 ms (99th percentile of messages)",
      "Connect: 9.0 ms (99th percentile of connections)",
    ]);
    expect(socketCards([])).toEqual([]);
  });

  it("stand in a row a group", () => {
    expect(groupName(group())).toBe("10 clients, 5.00 a second, 20.00 messages/s each");
    expect(groupName(group({ rate_per_second: 0 }))).toContain("silent");
    const figures = Object.fromEntries(
      SOCKET_FIGURES.map(([title, , pick]) => [title, pick(group()) ?? null]),
    );
    expect(figures).toMatchObject({ Lost: 2, "p99 ms": 8, "Answered %": 95, "By hand": null });
  });
});
