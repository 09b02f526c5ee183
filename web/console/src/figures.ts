import type { RoomQuality } from "@moim/sdk/wire";

/** A number for people; a dash where nobody measured. */
export function figure(value: number | null | undefined, digits = 0): string {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

/** How a MOS compares with what people notice. */
export function grade(mos: number | null | undefined): "good" | "fair" | "bad" | "" {
  if (mos === null || mos === undefined) return "";
  return mos >= 4 ? "good" : mos >= 3 ? "fair" : "bad";
}

/** The age of a sample, for people. */
export function age(ms: number): string {
  return ms < 60_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`;
}

/** The lines of a room's chart: seconds before now, and least, median and most; a gap where nobody had a value. */
export function lines(
  history: RoomQuality["history"],
  nowMs: number,
): [number[], (number | null)[], (number | null)[], (number | null)[]] {
  const pick = (key: "min" | "median" | "max") => history.map(({ mos_lq }) => mos_lq?.[key] ?? null);
  const seconds = history.map(({ at_unix_ms }) => (at_unix_ms - nowMs) / 1000);
  return [seconds, pick("min"), pick("median"), pick("max")];
}
