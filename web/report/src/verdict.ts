/** What a run comes to, in two sentences of plain language. Pure. */
import { figure } from "./dom.ts";
import type { Summary } from "./record.ts";

/** What can be at its end, in words. */
const LIMITS: Record<string, string> = {
  cpu: "the CPUs of the server",
  thread: "a single thread of the server",
  stall: "a thread of the server, which stood still",
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
  const who = of.people ? ` with ${figure(of.people, 0)} people` : "";
  const long = of.duration_s ? ` over ${figure(of.duration_s, 0)} s` : "";
  const [first, ...others] = failures;
  const judged = thresholds.length + checks.length;
  if (of.exit_code === 105)
    return `The run was interrupted${of.duration_s ? ` after ${figure(of.duration_s, 0)} s` : ""}${reason(first)}.`;
  if (of.exit_code === 113) return "Browsers and bots read different figures, so neither can be believed.";
  switch (verdict) {
    case "pass":
      return judged === 0
        ? `Nothing failed${who}${long}.`
        : `${judged} of ${judged} thresholds and checks held${who}${long}.`;
    case "fail":
      return `The run failed${who}: ${first ?? "see below"}${others.length > 0 ? ", and more did not hold" : ""}.`;
    case "inconclusive":
      return `This run proves nothing of the server${reason(generator?.reasons?.[0] ?? first)}.`;
    default:
      return "";
  }
}

function reason(why: string | undefined): string {
  return why ? `: ${why}` : "";
}

function limit({ bottleneck: found }: Summary): string {
  const first = found?.first;
  if (!first) return "";
  if (first === "none") return "Quality held: no limit was reached that people felt.";
  const since = found.evidence?.find((text) => typeof text === "string" && text.startsWith("quality broke"));
  if (first === "unexplained")
    return `No resource that can be seen was at its limit${since ? ` (${since})` : ""}.`;
  const person = found.person ? ` (${found.person})` : "";
  const how = found.state ? `, ${found.state}` : "";
  return `The first limit was ${LIMITS[first] ?? first}${person}${how}${since ? `; ${since}` : ""}.`;
}
