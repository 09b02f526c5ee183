import type { QualitySample } from "@moim/sdk";
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

  /** @param nameOf the name of a participant */
  update(sample: QualitySample, nameOf: (participant: string) => string): void {
    const cipher = sample.srtp_cipher ? `, ${sample.srtp_cipher.replaceAll("_", "-")}` : "";
    const uplink =
      sample.available_outgoing_kbps === null
        ? ""
        : `, uplink up to ${figure(sample.available_outgoing_kbps)} kbit/s`;
    this.#path.textContent = `Round trip ${figure(sample.rtt_ms, 1)} ms${uplink}${cipher}`;
    const sent = sample.sent.map((track) =>
      row(`You, ${track.kind} up`, [
        [figure(track.remote_loss_pct, 1), grade(track.remote_loss_pct, 1, 5)],
        ["–", ""],
        [figure(track.frames_per_second), ""],
        [figure(track.bitrate_kbps), ""],
        ["–", ""],
      ]),
    );
    const received = sample.received.map((track) =>
      row(
        `${nameOf(track.participant)}, ${track.kind}${track.frame_height ? ` ${track.frame_height}p` : ""}`,
        [
          [figure(track.loss_pct, 1), grade(track.loss_pct, 1, 5)],
          [figure(track.jitter_ms, 1), grade(track.jitter_ms, 20, 50)],
          [figure(track.frames_per_second), ""],
          [figure(track.bitrate_kbps), ""],
          [
            figure(track.mos_lq, 1),
            track.mos_lq === null ? "" : track.mos_lq >= 4 ? "good" : track.mos_lq >= 3 ? "fair" : "bad",
          ],
        ],
      ),
    );
    this.#body.replaceChildren(...sent, ...received);
  }
}

function row(title: string, cells: [string, Grade][]): HTMLTableRowElement {
  return el(
    "tr",
    {},
    el("th", { scope: "row", textContent: title }),
    ...cells.map(([text, mark]) => el("td", { textContent: text, class: mark })),
  );
}
