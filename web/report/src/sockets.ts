/** Groups of sockets without a room, in figures. Pure. */
import { figure } from "./dom.ts";
import type { SocketGroup } from "./record.ts";

const sum = (counts: Record<string, number> | undefined) =>
  Object.values(counts ?? {}).reduce((a, b) => a + b, 0);

/** The metrics that only sockets have. */
export const SOCKET_METRICS = new Set(["pong_ms", "answered_pct", "connect_ms", "lost"]);

/** Connections that did not come up, or ended early. */
export function lost({ closed, failed }: SocketGroup): number {
  return sum(closed) + sum(failed);
}

/** Answered of what was offered, over groups, in percent; null of nothing. */
export function answeredPct(groups: readonly SocketGroup[]): number | null {
  const offered = groups.reduce((all, { whole }) => all + (whole?.offered ?? 0), 0);
  const answered = groups.reduce((all, { whole }) => all + (whole?.answered ?? 0), 0);
  return offered > 0 ? (100 * answered) / offered : null;
}

/** The worst of the groups; null where none has a value. */
function worst(
  groups: readonly SocketGroup[],
  pick: (group: SocketGroup) => number | null | undefined,
): number | null {
  const values = groups.map(pick).filter((value) => typeof value === "number");
  return values.length > 0 ? Math.max(...values) : null;
}

/** Key figures: name, value, hint. */
export function socketCards(groups: readonly SocketGroup[]): [string, string, string][] {
  if (groups.length === 0) return [];
  const total = (pick: (group: SocketGroup) => number) => groups.reduce((all, group) => all + pick(group), 0);
  const live = `${figure(
    total(({ live }) => live),
    0,
  )} of ${figure(
    total(({ connections }) => connections),
    0,
  )}`;
  return [
    ["Sockets live", live, `at the end; ${figure(total(lost), 0)} lost`],
    ["Answered", `${figure(answeredPct(groups), 2)} %`, "of the messages offered"],
    [
      "Latency",
      `${figure(
        worst(groups, ({ whole }) => whole?.latency?.p99_ms),
        2,
      )} ms`,
      "99th percentile of messages",
    ],
    [
      "Connect",
      `${figure(
        worst(groups, ({ connect }) => connect?.p99_ms),
        1,
      )} ms`,
      "99th percentile of connections",
    ],
  ];
}

/** What a group is, for people. */
export function groupName({
  connections,
  arrival_per_second: arrival,
  rate_per_second: rate,
}: SocketGroup): string {
  const pings = rate ? `${figure(rate, 2)} messages/s each` : "silent";
  return `${connections} clients, ${figure(arrival, 2)} a second, ${pings}`;
}

/** The figures of a group, each with its digits. */
export const SOCKET_FIGURES: [
  title: string,
  digits: number,
  pick: (group: SocketGroup) => number | null | undefined,
][] = [
  ["Came up", 0, ({ connected }) => connected],
  ["Live at the end", 0, ({ live }) => live],
  ["Lost", 0, lost],
  ["Connect p99 ms", 1, ({ connect }) => connect?.p99_ms],
  ["Offered", 0, ({ whole }) => whole?.offered],
  ["Answered %", 2, (group) => answeredPct([group])],
  ["Median ms", 2, ({ whole }) => whole?.latency?.p50_ms],
  ["p99 ms", 2, ({ whole }) => whole?.latency?.p99_ms],
  ["Max ms", 1, ({ whole }) => whole?.latency?.max_ms],
  ["KiB a connection", 1, ({ kib_per_connection: kib }) => kib],
  ["By hand", 0, ({ by_hand: seen }) => seen?.pings],
  ["Answered by hand", 0, ({ by_hand: seen }) => seen?.answered],
];
