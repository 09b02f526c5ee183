import type { PauseReason, QualitySample, ReceivedTrack, SentLayer } from "@moim/sdk";
import { el } from "./dom.ts";

/** A number for people; a dash where nobody measured. */
export function figure(value: number | null, digits = 0): string {
  return value === null ? "–" : value.toFixed(digits);
}

/** How a figure compares with what people notice. */
type Grade = "good" | "fair" | "bad" | "";

function grade(value: number | null, fair: number, bad: number): Grade {
  if (value === null) return "";
  return value >= bad ? "bad" : value >= fair ? "fair" : "good";
}

/** What a sample does not say. */
export interface Beside {
  /** The name of a participant. */
  nameOf: (participant: string) => string;
  /** Why the picture of a track does not flow now. */
  pauseReason: (track: string) => PauseReason | null;
  /** The sizes in which the own camera is sent. */
  layers: readonly SentLayer[];
}

/** A received stream in words: whose, the size of its picture now, and whether the server paused it. */
export function receivedTitle(
  { kind, frame_width, frame_height }: Pick<ReceivedTrack, "kind" | "frame_width" | "frame_height">,
  name: string,
  paused: PauseReason | null,
): string {
  const size = frame_width !== null && frame_height !== null ? ` ${frame_width}×${frame_height}` : "";
  return `${name}, ${kind}${size}${paused === null ? "" : `, paused: ${paused}`}`;
}

/** A layer of the own camera in words: its name, the size of its picture, and what limits it. */
export function layerTitle({ rid, active, width, height, limitedBy }: SentLayer): string {
  const what = rid === "" ? "camera" : `camera ${rid}`;
  if (!active) return `${what}, not sent`;
  const size = width !== null && height !== null ? ` ${width}×${height}` : "";
  const limited = limitedBy !== null && limitedBy !== "none" ? `, limited by ${limitedBy}` : "";
  return `${what}${size}${limited}`;
}

/** The figures of every stream, renewed with each sample. */
export class QualityPanel {
  readonly element: HTMLElement;
  readonly #path = el("p", { class: "hint", textContent: "The first figures come after 3 s." });
  readonly #body = el("tbody");

  constructor(close: () => void) {
    const heads = ["Stream", "Loss %", "Jitter ms", "fps", "kbit/s", "MOS"];
    const button = el("button", { type: "button", class: "plain", "aria-label": "Close", textContent: "×" });
    button.onclick = close;
    this.element = el(
      "aside",
      { class: "panel", "aria-label": "Connection quality", hidden: true },
      el("header", {}, el("h2", { textContent: "Quality" }), button),
      this.#path,
      el(
        "div",
        { class: "scroll" },
        el(
          "table",
          {},
          el(
            "thead",
            {},
            el("tr", {}, ...heads.map((text) => el("th", { textContent: text, scope: "col" }))),
          ),
          this.#body,
        ),
      ),
    );
  }

  update(sample: QualitySample, { nameOf, pauseReason, layers }: Beside): void {
    const cipher = sample.srtp_cipher ? `, ${sample.srtp_cipher.replaceAll("_", "-")}` : "";
    const uplink =
      sample.available_outgoing_kbps === null
        ? ""
        : `, uplink up to ${figure(sample.available_outgoing_kbps)} kbit/s`;
    const downlink =
      sample.estimate_kbps === undefined ? "" : `, downlink about ${figure(sample.estimate_kbps)} kbit/s`;
    this.#path.textContent = `Round trip ${figure(sample.rtt_ms, 1)} ms${uplink}${downlink}${cipher}`;
    const sent = sample.sent.flatMap((track) => [
      row(`You, ${track.kind} up`, [
        [figure(track.remote_loss_pct, 1), grade(track.remote_loss_pct, 1, 5)],
        ["–", ""],
        [figure(track.frames_per_second), ""],
        [figure(track.bitrate_kbps), ""],
        ["–", ""],
      ]),
      ...layers.filter((layer) => layer.track === track.track).map(layerRow),
    ]);
    const received = sample.received.map((track) =>
      receivedRow(track, receivedTitle(track, nameOf(track.participant), pauseReason(track.track))),
    );
    this.#body.replaceChildren(...sent, ...received);
  }
}

function layerRow(layer: SentLayer): HTMLTableRowElement {
  const element = row(layerTitle(layer), [
    ["–", ""],
    ["–", ""],
    [layer.active ? figure(layer.framesPerSecond) : "–", ""],
    [figure(layer.kbps), ""],
    ["–", ""],
  ]);
  element.className = "layer";
  return element;
}

function receivedRow(track: ReceivedTrack, title: string): HTMLTableRowElement {
  return row(title, [
    [figure(track.loss_pct, 1), grade(track.loss_pct, 1, 5)],
    [figure(track.jitter_ms, 1), grade(track.jitter_ms, 20, 50)],
    [figure(track.frames_per_second), ""],
    [figure(track.bitrate_kbps), ""],
    [
      figure(track.mos_lq, 1),
      track.mos_lq === null ? "" : track.mos_lq >= 4 ? "good" : track.mos_lq >= 3 ? "fair" : "bad",
    ],
  ]);
}

function row(title: string, cells: [string, Grade][]): HTMLTableRowElement {
  return el(
    "tr",
    {},
    el("th", { scope: "row", textContent: title }),
    ...cells.map(([text, mark]) => el("td", { textContent: text, class: mark })),
  );
}
