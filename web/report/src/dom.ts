type Child = Node | string | null | undefined | false;

/** An element with properties, attributes (with a dash, or `role`) and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name.includes("-") || name === "role") element.setAttribute(name, String(value));
    else Reflect.set(element, name === "class" ? "className" : name, value);
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/** A number for people; a dash where nobody measured. */
export function figure(value: number | null | undefined, digits = 1): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits) return `<${(10 ** -digits).toFixed(digits)}`;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A column of a table. */
export interface Column<Row> {
  title: string;
  /** What the cell shows. */
  text: (row: Row) => string;
  /** What the column is sorted by; without it the column has no order. */
  sort?: (row: Row) => number | string | null;
  /** Columns of words are aligned left. */
  words?: boolean;
  /** Sentences may be broken into lines. */
  long?: boolean;
}

/** A table of more rows shows so many, and a button that shows all. */
const MOST_ROWS = 200;

/** A table; columns with a `sort` have a button in their head. */
export function table<Row>(
  caption: string,
  rows: readonly Row[],
  columns: Column<Row>[],
  rowClass: (row: Row) => string = () => "",
): HTMLElement {
  const body = el("tbody");
  const all = el("button", { type: "button", class: "all", textContent: `Show all ${rows.length} rows` });
  all.hidden = rows.length <= MOST_ROWS;
  let shown = rows;
  const fill = (ordered: readonly Row[]) => {
    shown = ordered;
    body.replaceChildren(
      ...shown
        .slice(0, all.hidden ? rows.length : MOST_ROWS)
        .map((row) =>
          el(
            "tr",
            { class: rowClass(row) },
            ...columns.map((column) => el("td", { class: classOf(column), textContent: column.text(row) })),
          ),
        ),
    );
  };
  all.onclick = () => {
    all.hidden = true;
    fill(shown);
  };
  const heads = columns.map((column) => {
    const head = el("th", { scope: "col", class: classOf(column) });
    const { sort } = column;
    if (!sort) {
      head.textContent = column.title;
      return head;
    }
    const button = el("button", { type: "button", textContent: column.title });
    button.onclick = () => {
      const descending = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      fill([...rows].sort((a, b) => compare(sort(a), sort(b), descending)));
    };
    head.append(button);
    return head;
  });
  fill(rows);
  return el(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabIndex: 0 },
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body),
    all,
  );
}

function classOf<Row>({ words, long }: Column<Row>): string {
  return long ? "words long" : words ? "words" : "";
}

/** Unknown values stand last in either direction. */
function compare(a: number | string | null, b: number | string | null, descending: boolean): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const order =
    typeof a === "string" || typeof b === "string"
      ? String(a).localeCompare(String(b), "en", { numeric: true })
      : a - b;
  return descending ? -order : order;
}
