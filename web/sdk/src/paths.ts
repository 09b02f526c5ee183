/**
 * Counters of several connections as one report, and what they say about the paths. With the server there is one
 * connection, without a name; in a mesh one with each other member, named `PARTICIPANT/`.
 */

/** One entry of an `RTCStatsReport`; `connection` names where it comes from, "" for the server. */
export type Stat = { id: string; type: string; timestamp: number; connection?: string } & Record<
  string,
  unknown
>;

/** What one connection's path is like. */
export interface PathFigures {
  /** Round-trip time of the connection. */
  rttMs: number | null;
  /** What its congestion control believes to fit up. */
  availableKbps: number | null;
  cipher: string | null;
}

const REFERENCES = ["codecId", "remoteId", "selectedCandidatePairId"] as const;

/**
 * One report of many: ids, mids and what refers to them carry the connection's name in front, so that lines of two
 * connections are never taken for one.
 */
export function mergeStats(
  reports: readonly (readonly [name: string, stats: ReadonlyMap<string, Stat>])[],
): ReadonlyMap<string, Stat> {
  const merged = new Map<string, Stat>();
  for (const [name, stats] of reports) {
    for (const stat of stats.values()) {
      const named: Stat = { ...stat, id: name + stat.id, connection: name };
      if (typeof stat.mid === "string") named.mid = name + stat.mid;
      for (const key of REFERENCES) if (typeof stat[key] === "string") named[key] = name + stat[key];
      merged.set(named.id, named);
    }
  }
  return merged;
}

/** The path of each connection that has one. */
export function pathsOf(stats: ReadonlyMap<string, Stat>): Map<string, PathFigures> {
  const paths = new Map<string, PathFigures>();
  for (const stat of stats.values()) {
    if (stat.type !== "transport") continue;
    const pair = stats.get(String(stat.selectedCandidatePairId));
    const figure = (key: string, factor: number) => {
      const raw = pair?.[key];
      return typeof raw === "number" && Number.isFinite(raw) ? raw * factor : null;
    };
    paths.set(stat.connection ?? "", {
      rttMs: figure("currentRoundTripTime", 1000),
      availableKbps: figure("availableOutgoingBitrate", 1 / 1000),
      cipher: typeof stat.srtpCipher === "string" ? stat.srtpCipher : null,
    });
  }
  return paths;
}

/** All paths in one figure: the mean round trip, and what fits up in all. */
export function overall(paths: ReadonlyMap<string, PathFigures>): PathFigures {
  const all = [...paths.values()];
  const known = (pick: (path: PathFigures) => number | null) =>
    all.map(pick).filter((figure): figure is number => figure !== null);
  const sum = (figures: number[]) => figures.reduce((total, figure) => total + figure, 0);
  const rtts = known((path) => path.rttMs);
  const rates = known((path) => path.availableKbps);
  return {
    rttMs: rtts.length > 0 ? sum(rtts) / rtts.length : null,
    availableKbps: rates.length > 0 ? sum(rates) : null,
    cipher: all.find((path) => path.cipher !== null)?.cipher ?? null,
  };
}

/**
 * Time that a packet takes from one person to another, estimated from this side's round trip: by the server one way
 * up and one way down (the speaker's own path is taken to be as long as ours), in a mesh one way.
 */
export function oneWayMs(connection: string, rttMs: number): number {
  return connection === "" ? rttMs : rttMs / 2;
}

/** The connection of a slot or line: `p-1/0` → `p-1/`, `0` → "". */
export function connectionOf(line: string): string {
  return line.slice(0, line.lastIndexOf("/") + 1);
}
