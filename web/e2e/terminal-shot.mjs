// A picture of the terminal view: terminal-shot.mjs OUT [COLUMNS LINES]. A run in a tmux of its own;
// what stands on its screen after some windows is drawn as a page.

import { execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { browser, until } from "./world.mjs";

const [out = "docs/img", columns = "120", lines = "32"] = process.argv.slice(2);
const ROOT = new URL("../..", import.meta.url).pathname;
const BINARY = process.env.MOIM_BIN ?? join(ROOT, "target/release/moim");

const SCENARIO = `name: evening
serve: {}
duration: 60s
rooms: [{ count: 1, audio: sfu, video: sfu, people: { bot: 12 } }]
media: { audio: speech, video: 360p }
join: { per_second: 2 }
networks:
  - { name: mobile, share_pct: 25, delay: 80ms, jitter: 10ms, loss_pct: 2, burst_packets: 4 }
events: [{ at: 20s, bot: 9, do: stop_audio }]
thresholds:
  loss_pct: ["user_p95 < 1"]
  mos_cq: ["user_p5 > 3.6"]
  mouth_to_ear_ms: ["user_p95 < 300"]
  freeze_ratio: ["user_p95 < 0.05"]
  join_to_first_audio_ms: ["p95 < 2000"]
`;

const COLOURS = ["#1c1f24", "#ff6b6b", "#7bd88f", "#e5c07b", "#61afef", "#c678dd", "#56c8d8", "#c9d1d9"];
const BRIGHT = ["#7d8590", "#ff8787", "#a3e9b0", "#f0d399", "#8cc4ff", "#dda0f0", "#8be0ea", "#ffffff"];
const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** Escape sequences for colour and weight as spans. */
function spans(text) {
  const style = {};
  return text
    .split(/\x1b\[([0-9;]*)m/)
    .map((part, index) => {
      if (index % 2 === 0) {
        const css = Object.entries(style).map(([key, value]) => `${key}:${value}`);
        return `<span style="${css.join(";")}">${escape(part)}</span>`;
      }
      const codes = part.split(";").map(Number);
      for (let at = 0; at < codes.length; at++) {
        const code = codes[at];
        if (code === 0) for (const key of Object.keys(style)) delete style[key];
        else if (code === 1) style["font-weight"] = "bold";
        else if (code === 2) style.opacity = 0.6;
        else if (code >= 30 && code <= 37) style.color = COLOURS[code - 30];
        else if (code === 39) delete style.color;
        else if (code >= 90 && code <= 97) style.color = BRIGHT[code - 90];
        else if (code === 38 && codes[at + 1] === 5) {
          style.color = [...COLOURS, ...BRIGHT][codes[at + 2]] ?? COLOURS[7];
          at += 2;
        }
      }
      return "";
    })
    .join("");
}

const dir = mkdtempSync(join(tmpdir(), "moim-terminal-"));
const scenario = join(dir, "scenario.yaml");
writeFileSync(scenario, SCENARIO);
const tmux = (...args) => execFileSync("tmux", ["-S", join(dir, "tmux"), ...args], { encoding: "utf8" });
const command = `'${BINARY}' load '${scenario}' --runs '${join(dir, "runs")}'`;
const ends = [];
try {
  tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", lines, command);
  ends.push(() => {
    try {
      tmux("kill-server");
    } catch {
      // It has ended with the run.
    }
  });
  const seconds = () => Number(/ (\d+) of 60 s/.exec(tmux("capture-pane", "-p"))?.[1] ?? 0);
  await until("the middle of the run", () => seconds() >= 41, 120);
  const screen = tmux("capture-pane", "-e", "-p");
  tmux("send-keys", "q");
  writeFileSync(join(out, "..", "..", "target", "terminal.txt"), screen);
  const page = await (await browser({ after: (end) => ends.push(end) })).newPage();
  await page.setContent(
    `<body style="margin:0;background:#1c1f24"><pre style="margin:0;padding:16px;display:inline-block;color:#c9d1d9;
    background:#1c1f24;font:15px/1.3 'DejaVu Sans Mono',monospace">${screen.split("\n").slice(0, Number(lines)).map(spans).join("\n")}</pre>`,
  );
  await page.locator("pre").screenshot({ path: join(out, process.env.PICTURE ?? "terminal.png") });
  await until("the end of the run", () => {
    try {
      tmux("has-session");
      return false;
    } catch {
      return true;
    }
  });
} finally {
  for (const end of ends.reverse()) await end();
}
