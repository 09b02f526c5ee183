// The estimate for a downlink on the networks of RFC 8867 (tests/networks), in virtual time, 20 seeds each. Writes each
// run's curves to target/evidence/networks.jsonl and draws those of the first seed to target/evidence/networks.svg; with
// `draw`, to docs/img/networks.svg. Exits non-zero if what must hold of a run does not.

import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const CURVES = "target/evidence/networks.jsonl";
const SEEDS = process.env.MOIM_SEEDS ?? "20";
const draws = process.argv.includes("draw");

mkdirSync("target/evidence", { recursive: true });
rmSync(CURVES, { force: true });
const line = ["test", "--release", "--locked", "--workspace", "--test", "integration", "--", "networks::", "--nocapture"];
const env = { ...process.env, MOIM_SEEDS: SEEDS, MOIM_NETWORKS: `${process.cwd()}/${CURVES}` };
const { status } = spawnSync("cargo", line, { stdio: "inherit", env });

const runs = readFileSync(CURVES, "utf8").trim().split("\n").map((text) => JSON.parse(text));
const picture = svg(runs.filter((run) => run.seed === runs[0].seed));
writeFileSync("target/evidence/networks.svg", picture);
if (draws) writeFileSync("docs/img/networks.svg", picture);
console.log(`${runs.length} runs; curves of seed ${runs[0].seed}: target/evidence/networks.svg`);
console.log(status === 0 ? "holds" : "does NOT hold");
process.exit(status ?? 1);

/** A panel for each case: the link's capacity, what each flow received, and the wait in the queue below. */
function svg(cases) {
  const [width, height, columns] = [400, 210, 2];
  const rows = Math.ceil(cases.length / columns);
  const panels = cases.map((run, nth) => {
    const [x, y] = [(nth % columns) * width, Math.floor(nth / columns) * height];
    return `<g transform="translate(${x} ${y})">${panel(run, width - 20, height - 20)}</g>`;
  });
  const size = `width="${columns * width}" height="${rows * height}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif" font-size="10">
<rect width="100%" height="100%" fill="#fff"/>
${panels.join("\n")}
</svg>
`;
}

function panel(run, width, height) {
  const [left, top, split] = [34, 18, height - 50];
  const most = Math.max(...run.capacity_kbps.map(([, kbps]) => kbps)) * 1.15;
  const x = (second) => left + (second / run.seconds) * (width - left);
  const y = (kbps) => split - (Math.min(kbps, most) / most) * (split - top);
  const wait = (ms) => height - 4 - (Math.min(ms, 300) / 300) * (height - split - 12);
  const colours = ["#1463ff", "#d4351c", "#00703c", "#912b88", "#f47738"];
  const path = (points, colour, more = "") =>
    `<path d="M${points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}" fill="none" stroke="${colour}" ${more}/>`;
  const capacity = run.capacity_kbps.flatMap(([from, kbps], nth, all) => [
    [x(from), y(kbps)],
    [x(all[nth + 1]?.[0] ?? run.seconds), y(kbps)],
  ]);
  const flows = run.flows.flatMap((flow, nth) => [
    path(flow.received_kbps.map((kbps, at) => [x(at), y(kbps)]), colours[nth]),
    path(flow.queue_ms.map((ms, at) => [x(at), wait(ms)]), colours[nth], 'stroke-width="0.7"'),
  ]);
  const tcp = run.tcp_kbps.length > 0 ? [path(run.tcp_kbps.map((kbps, at) => [x(at), y(kbps)]), "#888")] : [];
  return [
    `<text x="${left}" y="12" font-size="12">${run.case}${tcp.length > 0 ? " (grey: TCP)" : ""}</text>`,
    `<text x="2" y="${top + 8}">${(most / 1150).toFixed(1)}</text><text x="2" y="${top + 19}">Mbit/s</text>`,
    `<text x="2" y="${split + 16}">300 ms</text><text x="2" y="${split + 27}">queue</text>`,
    `<text x="${width - 26}" y="${height + 6}">${run.seconds} s</text>`,
    path(capacity, "#000", 'stroke-dasharray="4 3"'),
    ...tcp,
    ...flows,
  ].join("");
}
