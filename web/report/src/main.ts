import { Charts, type ChartSpec } from "./charts.ts";
import { el, figure, table } from "./dom.ts";
import { hasPeople, peoplePictures, peopleTable } from "./people.ts";
import { distributionCharts, machineCharts, qualityCharts, socketCharts } from "./plots.ts";
import {
  type Churn,
  type Metric,
  type RunRecord,
  readRecord,
  SAMPLE_MS,
  type SocketGroup,
  type Summary,
} from "./record.ts";
import { groupName, SOCKET_FIGURES, SOCKET_METRICS, socketCards } from "./sockets.ts";
import { studySections } from "./study.ts";
import "./style.css";
import { sentences } from "./verdict.ts";

/** What an exit code of the lab means. */
const EXIT: Record<number, string> = {
  0: "every threshold and check held",
  99: "thresholds or checks failed",
  104: "the configuration is wrong",
  105: "the run was interrupted",
  110: "the load generator was the limit, so the run proves nothing about the server",
  111: "the target could not be reached",
  112: "worse than the baseline",
  113: "browsers and bots disagree",
};
const MAX_EVENTS = 500;

const parent = document.getElementById("report")!;
try {
  const record = await readRecord(document.getElementById("record")?.textContent ?? "");
  if (record) show(record);
  else
    say("No run in here yet", "This is the empty report. The lab fills it: “moim load SCENARIO” writes one.");
} catch (error) {
  say(
    "This report is damaged",
    `Its record cannot be read (${error}). Render it again from the run's folder.`,
  );
}

function say(title: string, text: string): void {
  parent.replaceChildren(el("section", {}, el("h1", { textContent: title }), el("p", { textContent: text })));
}

function show(record: RunRecord): void {
  const { meta, summary, samples, machine, events } = record;
  if (summary.study) return showStudy(record);
  document.title = `${meta.name ?? "run"}: ${summary.verdict ?? "no verdict"} – moim`;
  const last = [samples, machine, events].flatMap((rows) => rows.map((row) => row.t_ms));
  const end = Math.max(meta.duration_s ?? 0, last.reduce((a, b) => Math.max(a, b), 0) / 1000, 1);
  const charts = new Charts(events, end);
  parent.replaceChildren(
    heading(record),
    banner(summary),
    keyFigures(record),
    ...limits(summary),
    ...judgement(summary),
    ...peoplePictures(record, charts, section),
    ...plots(record, charts),
    ...sockets(summary),
    ...people(record),
    ...comingAndGoing(summary),
    ...metricsTable(record),
    ...machineTables(summary),
    ...eventList(record),
    about(record),
  );
  charts.draw();
}

/** A study has no one run to plot: its tables, its own plots, and what it shows and does not show. */
function showStudy(record: RunRecord): void {
  const { meta, summary } = record;
  const study = summary.study_about ?? {};
  document.title = `${study.title ?? meta.name ?? "study"} – moim`;
  const charts = new Charts([], 1);
  const quick = study.quick ? "A quick run: small and short, its figures mean little. " : "";
  parent.replaceChildren(
    heading(record),
    el(
      "section",
      { class: `verdict ${summary.verdict ?? "none"}` },
      el("h2", { textContent: study.title ?? "Study" }),
      el("p", { textContent: `${quick}${study.text ?? ""}` }),
      (summary.failures ?? []).length > 0
        ? el("ul", {}, ...summary.failures!.map((text) => el("li", { textContent: `Missing: ${text}` })))
        : null,
    ),
    ...studySections(summary.study ?? [], study, charts, section),
    about(record),
  );
  charts.draw();
}

function section(title: string, hint: string, ...content: (Node | null)[]): HTMLElement {
  return el(
    "section",
    {},
    el("h2", { textContent: title }),
    hint ? el("p", { class: "hint", textContent: hint }) : null,
    ...content,
  );
}

function heading({ meta }: RunRecord): HTMLElement {
  const started = meta.started_at ? new Date(meta.started_at) : null;
  const when = started && !Number.isNaN(started.getTime()) ? started.toLocaleString() : meta.started_at;
  const { adapter = "", url = "" } = meta.target ?? {};
  // What was made from several runs says in words what those tested.
  const target = url.includes("://") ? `${adapter} at ${url}` : url;
  const parts = [when, target, meta.version ? `moim ${meta.version}` : null].filter(Boolean);
  return el(
    "header",
    {},
    el("h1", { textContent: meta.name ?? "Run" }),
    el("p", { class: "hint", textContent: parts.join(" · ") }),
  );
}

function banner(summary: Summary): HTMLElement {
  const verdict = summary.verdict ?? "none";
  const words = { pass: "Pass", fail: "Fail", inconclusive: "Inconclusive", none: "No verdict" }[verdict];
  const code = summary.exit_code;
  const meaning = code === undefined ? "" : (EXIT[code] ?? "");
  const failures = summary.failures ?? [];
  const unjudged = summary.not_judged ?? [];
  return el(
    "section",
    { class: `verdict ${verdict}` },
    el("h2", { textContent: words }),
    el("p", { class: "sentences", textContent: sentences(summary).join(" ") }),
    el("p", {
      class: "hint",
      textContent: code === undefined ? "" : `Exit code ${code}${meaning ? `: ${meaning}.` : "."}`,
    }),
    failures.length > 0 ? el("ul", {}, ...failures.map((text) => el("li", { textContent: text }))) : null,
    unjudged.length > 0
      ? el("p", { class: "hint", textContent: `Not judged: ${unjudged.join("; ")}.` })
      : null,
  );
}

function keyFigures(record: RunRecord): HTMLElement {
  const { meta, summary } = record;
  const metric = (name: string): Metric => summary.metrics?.[name] ?? {};
  const server = summary.server ?? {};
  const ofPeople: [string, string, string][] = [
    ["People", figure(summary.people, 0), `${figure(summary.subscriptions, 0)} subscriptions`],
    ["Loss", `${figure(metric("loss_pct").user_p95, 2)} %`, "95th percentile of people"],
    ["MOS-LQ", figure(metric("mos_lq").user_p5, 2), "5th percentile of people"],
    ["Round trip", `${figure(metric("rtt_ms").user_p95)} ms`, "95th percentile of people"],
    ["Mouth to ear", `${figure(metric("mouth_to_ear_ms").user_p95)} ms`, "95th percentile of people"],
    ["Frame rate", `${figure(metric("frames_per_second").user_p5)} /s`, "5th percentile of people"],
    ["Quality", summary.quality ?? "–", "stable, caution or danger"],
    ["First frame", `${figure(metric("join_to_first_frame_ms").p95, 0)} ms`, "95th percentile of joins"],
  ];
  const cards: [string, string, string][] = [
    ...(hasPeople(record) ? ofPeople : []),
    ...socketCards(summary.sockets ?? []),
    ["Server CPU", `${figure(server.cpu_cores, 2)} cores`, `${figure(server.rss_mib, 0)} MiB`],
    ...(hasPeople(record)
      ? [
          ["A packet out", `${figure(server.us_per_packet_out, 2)} µs`, "of server CPU"] as [
            string,
            string,
            string,
          ],
        ]
      : []),
    ["Length", `${figure(summary.duration_s ?? meta.duration_s, 0)} s`, bottleneck(summary)],
  ];
  return el(
    "section",
    { class: "cards", "aria-label": "Key figures" },
    ...cards
      .filter(([, value]) => !value.startsWith("–"))
      .map(([name, value, hint]) =>
        el(
          "div",
          { class: "card" },
          el("span", { class: "hint", textContent: name }),
          el("strong", { textContent: value }),
          el("span", { class: "hint", textContent: hint }),
        ),
      ),
  );
}

function bottleneck({ bottleneck: found }: Summary): string {
  if (!found?.first || found.first === "none") return "no bottleneck";
  return `first limit: ${found.first}${found.state ? ` (${found.state})` : ""}`;
}

/** What broke first, what may come next, and what speaks for it. */
function limits({ bottleneck: found }: Summary): HTMLElement[] {
  const evidence = found?.evidence ?? [];
  if (!found?.first || (found.first === "none" && evidence.length === 0)) return [];
  const next = found.second ? ` Behind it: ${found.second}.` : "";
  const first =
    found.first === "none"
      ? "Quality held."
      : found.first === "unexplained"
        ? "Quality broke, and no resource that can be seen was at its limit."
        : `First: ${found.first}${found.state ? `, ${found.state}` : ""}.${next}`;
  const items = evidence.map((item) =>
    el("li", { textContent: typeof item === "string" ? item : JSON.stringify(item) }),
  );
  return [section("What broke first", first, el("ul", {}, ...items))];
}

function judgement(summary: Summary): HTMLElement[] {
  const mark = (ok: boolean) => (ok ? "✓ holds" : "✗ fails");
  const bad = (row: { ok: boolean }) => (row.ok ? "" : "bad");
  const sections: HTMLElement[] = [];
  const { thresholds = [], checks = [] } = summary;
  if (thresholds.length > 0)
    sections.push(
      section(
        "Thresholds",
        "",
        table(
          "Thresholds",
          thresholds,
          [
            {
              title: "Threshold",
              long: true,
              text: ({ metric, expr }) => (metric && !expr.startsWith(metric) ? `${metric} ${expr}` : expr),
            },
            { title: "Measured", text: (row) => figure(row.value, 3) },
            { title: "", words: true, text: (row) => mark(row.ok) },
          ],
          bad,
        ),
      ),
    );
  if (checks.length > 0)
    sections.push(
      section(
        "Checks",
        "",
        table(
          "Checks",
          checks,
          [
            { title: "Check", long: true, text: (row) => row.name },
            { title: "", words: true, text: (row) => mark(row.ok) },
            { title: "Detail", long: true, text: (row) => row.detail ?? "" },
          ],
          bad,
        ),
      ),
    );
  return sections.length > 1 ? [el("div", { class: "two" }, ...sections)] : sections;
}

/** Sockets without a room. */
function sockets({ sockets: groups = [] }: Summary): HTMLElement[] {
  if (groups.length === 0) return [];
  const hint =
    "Clients that ping, or only stay. Latency is from when a ping was due until its answer was read.";
  return [
    section(
      "Sockets",
      hint,
      table("Sockets", groups, [
        { title: "Group", long: true, text: groupName },
        ...SOCKET_FIGURES.map(([title, digits, pick]) => ({
          title,
          text: (group: SocketGroup) => figure(pick(group), digits),
        })),
      ]),
    ),
  ];
}

function people(record: RunRecord): HTMLElement[] {
  if (!hasPeople(record)) return [];
  const hint =
    "Worst first. Loss is of the whole run, the rest are medians of a person's samples; the first sample is left out.";
  return [section("People", hint, peopleTable(record))];
}

function plots(record: RunRecord, charts: Charts): HTMLElement[] {
  const { summary, samples, window_ms, machine, events } = record;
  const long = window_ms > SAMPLE_MS ? ` A point of a person is of ${figure(window_ms / 1000, 0)} s.` : "";
  const hint = `One time axis for all: drag to zoom, double-click to go back. Dashed lines are events.${long}`;
  const firstFault = firstFaultOf(summary, events);
  const over =
    "Half of the people have no more than the value at 50 %. A person counts with the median of their samples.";
  const parts: [string, string, ChartSpec[]][] = [
    ["Over people", over, distributionCharts(samples, firstFault)],
    ["Quality over time", hint, qualityCharts(record)],
    ["Sockets over time", samples.length > 0 ? "" : hint, socketCharts(summary.sockets ?? [])],
    ["Machine over time", "", machineCharts(machine)],
  ];
  return parts
    .filter(([, , specs]) => specs.length > 0)
    .map(([title, text, specs]) =>
      section(title, text, el("div", { class: "charts" }, ...specs.map((spec) => charts.add(spec)))),
    );
}

/** When quality broke, as the judge says, else when the first error was told; null if neither was. */
function firstFaultOf({ bottleneck }: Summary, events: RunRecord["events"]): number | null {
  const broke = bottleneck?.evidence
    ?.map((text) => /^quality broke at (\d+) s/.exec(String(text))?.[1])
    .find(Boolean);
  const told = events.find(({ level }) => level === "error")?.t_ms;
  return broke === undefined ? (told ?? null) : 1000 * Number(broke);
}

/** What came of people who come and go: bots, and browsers. */
function comingAndGoing({ churn, browsers_churn }: Summary): HTMLElement[] {
  return [...visits("Coming and going", churn), ...visits("Browsers, coming and going", browsers_churn)];
}

function visits(title: string, churn?: Churn | null): HTMLElement[] {
  if (!churn) return [];
  const counts: [string, number | null | undefined][] = [
    ["came", churn.arrived],
    ["found no place left", churn.dropped],
    ["visits that lasted as long as they were to", churn.loops],
    ...Object.entries(churn.failures ?? {}).map(([reason, count]): [string, number] => [
      `visits that failed: ${reason}`,
      count,
    ]),
    ["ms from asking to join until the first sound, median", churn.join_to_first_audio_ms_p50],
    ["ms from asking to join until the first sound, at most", churn.join_to_first_audio_ms_max],
  ];
  return [
    section(
      title,
      "",
      table(
        title,
        counts.filter(([, count]) => count !== null && count !== undefined),
        [
          { title: "Of people", long: true, text: ([what]) => what },
          { title: "", text: ([, count]) => figure(count, 0) },
        ],
      ),
    ),
  ];
}

function metricsTable(record: RunRecord): HTMLElement[] {
  const { metrics = {}, sockets = [] } = record.summary;
  // What nobody could measure is shown where somebody might have.
  const [people, hasSockets] = [hasPeople(record), sockets.length > 0];
  const rows = Object.entries(metrics).filter(
    ([name, metric]) => metric || (SOCKET_METRICS.has(name) ? hasSockets : people),
  );
  if (rows.length === 0) return [];
  const column = (title: string, key: keyof Metric) => ({
    title,
    text: ([, metric]: [string, Metric | null]) => figure(metric?.[key] as number | null | undefined, 2),
  });
  const basis = ([, metric]: [string, Metric | null]) =>
    [metric?.model, metric?.delay ? `delay ${metric.delay}` : null].filter(Boolean).join(", ");
  return [
    section(
      "All metrics",
      "p50 to max are over all samples; “people” figures reduce within each person (of sockets: each connection) first.",
      table("All metrics", rows, [
        { title: "Metric", words: true, text: ([name]) => name },
        column("p50", "p50"),
        column("p95", "p95"),
        column("p99", "p99"),
        column("max", "max"),
        column("people p5", "user_p5"),
        column("people p95", "user_p95"),
        { title: "n", text: ([, metric]) => figure(metric?.n, 0) },
        { title: "Basis", words: true, text: basis },
      ]),
    ),
  ];
}

function machineTables({ server, generator, networks }: Summary): HTMLElement[] {
  const threads = (map: Record<string, number> | undefined) =>
    Object.entries(map ?? {}).sort(([, a], [, b]) => b - a);
  const cores = (caption: string, rows: [string, number][]) =>
    table(caption, rows, [
      { title: "Thread", words: true, text: ([name]) => name },
      { title: "Cores", text: ([, value]) => figure(value, 3) },
    ]);
  const sections: HTMLElement[] = [];
  if (networks && networks.length > 0) {
    const ways = networks.flatMap(({ name, up, down }) => [
      { name: `${name}, up`, ...up },
      { name: `${name}, down`, ...down },
    ]);
    sections.push(
      section(
        "Networks",
        "What the lab's own links did with packets of media.",
        table("Networks", ways, [
          { title: "Network", words: true, text: (way) => way.name },
          { title: "Packets", text: (way) => figure(way.packets, 0) },
          { title: "Lost %", text: (way) => figure(way.loss_pct, 2) },
          { title: "Delay ms", text: (way) => figure(way.delay_ms, 2) },
          { title: "Jitter ms", text: (way) => figure(way.jitter_ms, 2) },
        ]),
      ),
    );
  }
  if (server) sections.push(section("Server threads", "", cores("Server threads", threads(server.threads))));
  if (generator) {
    const reasons = generator.reasons?.length ? `: ${generator.reasons.join("; ")}` : "";
    const health =
      generator.healthy === false
        ? `The generator was at its limit${reasons}.`
        : "The generator was healthy.";
    const lag = `Timer lag p99 ${figure(generator.timer_lag_ms_p99, 2)} ms.`;
    sections.push(
      section(
        "Generator threads",
        `${health} ${lag}`,
        cores("Generator threads", threads(generator.threads)),
      ),
    );
  }
  if (server) {
    const drops = threads(server.drops).filter(([, count]) => count > 0);
    sections.push(
      section(
        "Drops by reason",
        drops.length === 0 ? "The server dropped nothing." : "",
        drops.length === 0
          ? null
          : table("Drops", drops, [
              { title: "Reason", long: true, text: ([reason]) => reason },
              { title: "Count", text: ([, count]) => figure(count, 0) },
            ]),
      ),
    );
  }
  return sections.length > 0 ? [el("div", { class: "two" }, ...sections)] : [];
}

function eventList({ events }: RunRecord): HTMLElement[] {
  if (events.length === 0) return [];
  const shown = events.slice(0, MAX_EVENTS);
  const hint = events.length > shown.length ? `The first ${MAX_EVENTS} of ${events.length}.` : "";
  return [
    section(
      "Events",
      hint,
      table(
        "Events",
        shown,
        [
          { title: "At", text: (event) => `${figure(event.t_ms / 1000)} s` },
          { title: "Who", words: true, text: (event) => event.person ?? "" },
          { title: "What", long: true, text: (event) => event.text },
        ],
        (event) => (event.level === "error" ? "bad" : (event.level ?? "")),
      ),
    ),
  ];
}

function cpuSets({ server = [], generator = [], disjoint }: NonNullable<RunRecord["meta"]["cpus"]>): string {
  const words = `server ${server.join(", ")}; generator ${generator.join(", ")}`;
  return disjoint ? words : `${words} (shared)`;
}

function about({ meta, summary }: RunRecord): HTMLElement {
  const machine = meta.machine ?? summary.machine ?? {};
  const facts: [string, string | undefined][] = [
    ["CPU", machine.cpu],
    ["Cores", machine.cores?.toString()],
    ["Kernel", machine.kernel],
    ["Load average before", machine.load_average?.map((load) => load.toFixed(2)).join(", ")],
    ["Wrong on purpose", meta.fault ?? undefined],
    ["CPUs", meta.cpus ? cpuSets(meta.cpus) : undefined],
    ...Object.entries(machine.versions ?? {}),
  ];
  return section(
    "How it was run",
    "",
    el(
      "dl",
      {},
      ...facts.flatMap(([name, text]) =>
        text ? [el("dt", { textContent: name }), el("dd", { textContent: text })] : [],
      ),
    ),
    meta.scenario
      ? el(
          "details",
          { open: true },
          el("summary", { textContent: "Scenario" }),
          el("pre", { textContent: meta.scenario }),
        )
      : null,
  );
}
