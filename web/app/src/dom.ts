type Child = Node | string | null | false;

/** An element with properties, attributes (`aria-…`, `data-…`, `for`, `role`) and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name.includes("-") || name === "for" || name === "role") element.setAttribute(name, String(value));
    else Reflect.set(element, name === "class" ? "className" : name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Strokes of the icons, on a 24 × 24 grid. */
const ICONS = {
  microphone: "M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3Z M5 11a7 7 0 0 0 14 0 M12 18v3",
  "microphone-off":
    "M9 9V6a3 3 0 0 1 6 0v5c0 .6-.2 1.2-.5 1.7 M5 11a7 7 0 0 0 11.5 5.4 M19 11c0 1-.2 2-.6 2.9 M12 18v3 M3 3l18 18",
  camera: "M3 7h11a2 2 0 0 1 2 2v6a2 2 0 0 1-2 2H3Z M16 11l5-3v8l-5-3",
  "camera-off": "M10 7h4a2 2 0 0 1 2 2v3 M16 15a2 2 0 0 1-2 2H3V7h2 M16 11l5-3v8 M3 3l18 18",
  quality: "M4 20v-5 M10 20v-9 M16 20v-6 M21 20V5",
  people: "M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8Z M2 21a7 7 0 0 1 14 0 M16 4a4 4 0 0 1 0 7 M18 14a7 7 0 0 1 4 7",
  hand: "M7 12V6a1.5 1.5 0 0 1 3 0v5 M10 11V4a1.5 1.5 0 0 1 3 0v7 M13 11V5a1.5 1.5 0 0 1 3 0v7 M16 12V8a1.5 1.5 0 0 1 3 0v6a7 7 0 0 1-12 5l-4-5a1.5 1.5 0 0 1 2.5-1.8L7 14",
  pin: "M9 3h6 M10 3v7l-3 4h10l-3-4V3 M12 14v7",
  leave: "M4 15v-2a11 11 0 0 1 16 0v2h-4v-3a9 9 0 0 0-8 0v3Z",
} as const;

export type IconName = keyof typeof ICONS;

/** A decorative icon; what it means stands in a label beside it. */
export function icon(name: IconName): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}
