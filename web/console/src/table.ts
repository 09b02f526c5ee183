import { el } from "../../app/src/dom.ts";

/** A table with these heads, which scrolls sideways where it is too wide for its place. */
export function scrollingTable(heads: readonly string[], body: HTMLElement): HTMLElement {
  const cells = heads.map((text) => el("th", { scope: "col", textContent: text }));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...cells)), body);
  return el("div", { class: "scroll" }, table);
}
