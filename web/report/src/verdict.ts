/** What a run comes to, in two sentences of plain language. Pure. */
import { figure } from "./dom.ts";
import type { Summary } from "./record.ts";

/** What can be at its end, in words. */
const LIMITS: Record<string, string> = {
  cpu: "the CPUs of the server",
  thread: "a single thread of the server",
  cpu_quota: "the CPU quota of the server",
  network: "the link of the server",
  socket_buffer: "a socket buffer of the server",
  softirq: "the network interrupts of the server's machine",
  memory: "the memory of the server",
  fds: "the open files of the server",
  signaling: "the signaling loop of the server",
  mixer_deadline: "the mixer of the server, which is late",
  link: "a participant's own link",
  generator: "the load generator, not the server",
};

/** How it came out, and what was at its limit first. */
export function sentences(summary: Summary): string[] {
  return [outcome(summary), limit(summary)].filter((sentence) => sentence !== "");
}

function outcome({
  verdict,
  failures = [],
  thresholds = [],
  checks = [],
  generator,
  ...of
}: Summary): string {
  const who = of.people ? ` for ${figure(of.people, 0)} people` : "";
  const long = of.duration_s ? ` over ${figure(of.duration_s, 0)} s` : "";
  const [first = "", ...others] = failures;
  const more = others.length > 0 ? `, and ${others.length} more did not hold` : "";
  switch (verdict) {
    case "pass":
      return `All ${thresholds.length + checks.length} thresholds and checks held${who}${long}.`;
    case "fail":
      return `It was not good enough${who}: ${first}${more}.`;
    case "inconclusive":
      return `This run proves nothing of the server: ${generator?.reasons?.[0] ?? first}.`;
    default:
      return "";
  }
}

function limit({ bottleneck: found }: Summary): string {
  const first = found?.first;
  if (!first) return "";
  if (first === "none") return "Nothing was at its limit.";
  const since = found.evidence?.find((text) => typeof text === "string" && text.startsWith("quality broke"));
  if (first === "unexplained")
    return `No resource that can be seen was at its limit${since ? ` (${since})` : ""}.`;
  const person = found.person ? ` (${found.person})` : "";
  const how = found.state ? `, ${found.state}` : "";
  return `The first limit was ${LIMITS[first] ?? first}${person}${how}${since ? `; ${since}` : ""}.`;
}
