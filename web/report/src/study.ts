import type { Charts } from "./charts.ts";
import { el, figure } from "./dom.ts";
import type { StudyAbout, StudyCell, StudyRow, StudyTable } from "./record.ts";

type SectionMaker = (title: string, hint: string, ...content: (Node | null)[]) => HTMLElement;

/** Everything of a study below its head: findings, plots, and each table with the study's own figures. */
export function studySections(
  rows: readonly StudyRow[],
  about: StudyAbout,
  charts: Charts,
  section: SectionMaker,
): HTMLElement[] {
  const list = (items: readonly string[]) =>
    el("ul", {}, ...items.map((text) => el("li", { textContent: text })));
  const findings = [
    (about.shown ?? []).length > 0 ? section("What this run shows", "", list(about.shown!)) : null,
    (about.not_shown ?? []).length > 0 ? section("What it does not show", "", list(about.not_shown!)) : null,
  ].filter((one) => one !== null);
  const plots = (about.plots ?? [])
    .filter((plot) => plot.lines.some((line) => line.values.some((value) => value !== null)))
    .map((plot) =>
      charts.add({
        title: plot.title,
        unit: plot.unit,
        x: plot.x_title,
        digits: 1,
        data: { seconds: plot.x, lines: plot.lines },
      }),
    );
  const sentence = (whose: string, text?: string) =>
    text ? el("li", {}, el("b", { textContent: `${whose}: ` }), text) : null;
  const found = [sentence("The study", about.theirs), sentence("Here", about.ours)].filter(
    (one) => one !== null,
  );
  return [
    ...(found.length > 0 ? [section("In a sentence", "", el("ul", {}, ...found))] : []),
    ...(about.tables ?? []).map((table) => {
      const own = rows.filter((row) => row.table === table.id);
      return section(table.title, table.hint ?? "", studyTable(table, own), notes(table, own));
    }),
    ...(plots.length > 0 ? [section("Plots", "", el("div", { class: "charts" }, ...plots))] : []),
    ...(findings.length > 1 ? [el("div", { class: "two" }, ...findings)] : findings),
    ...((about.sessions ?? []).length > 0
      ? [section("Sessions", "Each has a report of its own beside this one.", sessions(about.sessions!))]
      : []),
  ];
}

/** What stands in a cell; null where only a reason does. */
function shown(cell?: StudyCell, digits = 1): string | null {
  if (cell?.word !== undefined) return cell.word;
  return cell?.value === undefined || cell.value === null ? null : figure(cell.value, digits);
}

/** The reasons of a table's empty cells, each once, in order of appearance. */
export function reasonsOf(table: StudyTable, rows: readonly StudyRow[]): string[] {
  const found = new Set<string>();
  for (const row of rows)
    for (const { key } of table.columns) {
      const cell = row.cells?.[key];
      if (shown(cell) === null) found.add(cell?.reason ?? "not measured");
    }
  return [...found];
}

/** Our row, and below it the study's own where it has figures. */
function studyTable(table: StudyTable, rows: readonly StudyRow[]): HTMLElement {
  const reasons = reasonsOf(table, rows);
  const head = el(
    "tr",
    {},
    el("th", { scope: "col", class: "words", textContent: "" }),
    ...table.columns.map((column) => el("th", { scope: "col", textContent: column.title })),
  );
  const body = rows.flatMap((row) => {
    const ours = el(
      "tr",
      {},
      el("th", { scope: "row", class: "words", textContent: row.name }),
      ...table.columns.map(({ key, digits }) => {
        const cell = row.cells?.[key];
        const text = shown(cell, digits);
        // Bars grow to the right.
        const bar = cell?.word?.startsWith("█") ? "bar" : "";
        if (text !== null) return el("td", { class: bar, textContent: text });
        const reason = cell?.reason ?? "not measured";
        const mark = el("sup", { textContent: String(reasons.indexOf(reason) + 1) });
        return el("td", { class: "none", title: reason }, "–", mark);
      }),
    );
    if (Object.keys(row.reference ?? {}).length === 0) return [ours];
    const theirs = el(
      "tr",
      { class: "reference" },
      el("th", { scope: "row", class: "words", textContent: "the study" }),
      ...table.columns.map(({ key }) => {
        const value = row.reference?.[key];
        return el("td", { textContent: value === undefined ? "" : value.toLocaleString("en") });
      }),
    );
    return [ours, theirs];
  });
  return el(
    "div",
    { class: "scroll", role: "region", "aria-label": table.title, tabIndex: 0 },
    el("table", { class: "study" }, el("thead", {}, head), el("tbody", {}, ...body)),
  );
}

/** Why cells are empty, and what else is to be said of rows. */
function notes(table: StudyTable, rows: readonly StudyRow[]): HTMLElement | null {
  const reasons = reasonsOf(table, rows);
  const said = rows.flatMap((row) => (row.notes ?? []).map((note) => `${row.name}: ${note}`));
  if (reasons.length + said.length === 0) return null;
  return el(
    "div",
    { class: "hint notes" },
    reasons.length > 0 ? el("ol", {}, ...reasons.map((text) => el("li", { textContent: text }))) : null,
    said.length > 0 ? el("ul", {}, ...said.map((text) => el("li", { textContent: text }))) : null,
  );
}

function sessions(names: readonly string[]): HTMLElement {
  return el(
    "ul",
    {},
    ...names.map((name) =>
      el("li", {}, el("a", { href: `${encodeURIComponent(name)}/report.html`, textContent: name })),
    ),
  );
}
