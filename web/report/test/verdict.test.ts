import { describe, expect, it } from "vitest";
import { sentences } from "../src/verdict.ts";

describe("a run in two sentences", () => {
  it("tells that all held", () => {
    const checks = [{ name: "all joined", ok: true }];
    const told = sentences({
      verdict: "pass",
      people: 8,
      duration_s: 60,
      checks,
      bottleneck: { first: "none" },
    });
    expect(told).toEqual([
      "1 of 1 thresholds and checks held with 8 people over 60 s.",
      "Quality held: no limit was reached that people felt.",
    ]);
  });

  it("tells what failed, whose limit it was, and how sure that is", () => {
    const evidence = ["quality broke at 12 s: loss_pct", "link: 10 % lost"];
    const bottleneck = { first: "link", person: "bot-1", state: "suspected", evidence };
    const told = sentences({ verdict: "fail", people: 4, failures: ["loss", "more"], bottleneck });
    expect(told).toEqual([
      "The run failed with 4 people: loss, and more did not hold.",
      "The first limit was a participant's own link (bot-1), suspected; quality broke at 12 s: loss_pct.",
    ]);
  });

  it("says nothing of the server where the generator was the limit, and nothing of nothing", () => {
    const generator = { reasons: ["timers fired 9 ms late"] };
    const [first] = sentences({ verdict: "inconclusive", generator, bottleneck: { first: "generator" } });
    expect(first).toBe("This run proves nothing of the server: timers fired 9 ms late.");
    expect(sentences({})).toEqual([]);
    const interrupted = sentences({ verdict: "inconclusive", exit_code: 105, duration_s: 9 });
    expect(interrupted).toEqual(["The run was interrupted after 9 s."]);
    const [disagree] = sentences({ verdict: "inconclusive", exit_code: 113, failures: ["loss"] });
    expect(disagree).toMatch(/^Browsers and bots/);
  });
});
