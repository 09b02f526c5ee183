// The board for Grafana (deploy/grafana.json): a real Prometheus reads a server under load, and finds something for each query.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { BINARY, scratch, serve, until } from "./world.mjs";

const BOARD = new URL("../../deploy/grafana.json", import.meta.url);
const PROMETHEUS = "http://127.0.0.1:9099";
/** How far back rates look: some scrapes. */
const RATE = "8s";

/** Runs something until the test ends. */
function beside(t, command, args) {
  const child = spawn(command, args, { stdio: "ignore" });
  const ended = new Promise((done) => child.once("exit", done).once("error", done));
  t.after(async () => {
    child.kill("SIGTERM");
    await ended;
  });
  return { child, ended };
}

/** What Prometheus answers: for each series its labels and its number. */
async function query(text) {
  const answer = await fetch(`${PROMETHEUS}/api/v1/query?query=${encodeURIComponent(text)}`);
  const { status, error, data } = await answer.json();
  assert.equal(status, "success", `${text}: ${error}`);
  return data.result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
}

test("every query of the Grafana board finds something in a real Prometheus", async (t) => {
  const { url } = await serve(t);
  const dir = scratch();
  const target = url.replace("http://", "");
  const config = join(dir, "prometheus.yml");
  writeFileSync(
    config,
    `global: { scrape_interval: 1s }
scrape_configs: [{ job_name: moim, static_configs: [{ targets: ["${target}"] }] }]
`,
  );
  const scenario = join(dir, "board.yaml");
  writeFileSync(
    scenario,
    `name: board
target: { url: "${url}" }
duration: 600s
rooms: [{ people: { bot: 3 } }, { preset: audio_room, people: { bot: 3 } }]
`,
  );
  beside(t, "prometheus", [
    `--config.file=${config}`,
    `--storage.tsdb.path=${join(dir, "tsdb")}`,
    `--web.listen-address=${PROMETHEUS.replace("http://", "")}`,
  ]);
  beside(t, BINARY, ["load", scenario, "--runs", join(dir, "runs"), "--plain"]);

  const board = JSON.parse(readFileSync(BOARD, "utf8"));
  const queries = board.panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => ({
      title,
      text: expr
        .replaceAll("$__rate_interval", RATE)
        .replaceAll("$job", "moim")
        .replaceAll("$instance", ".*"),
    })),
  );
  assert.ok(queries.length >= 30, `${queries.length} queries`);
  for (const { title, text } of queries) {
    await until(`${title}: ${text}`, async () => {
      const found = await query(text);
      return found.length > 0 && found.every(({ value }) => Number.isFinite(value));
    });
  }
  // What they say is so. A scrape may be missing, and rates are of the seconds before.
  const only = async (text) => (await query(text))[0].value;
  await until("six people in the figures", async () => {
    assert.equal(await only('sum(moim_participants{job="moim"})'), 6);
    return true;
  });
  const mixer = await until("the mixer in the figures", async () => {
    const cores = await only(`rate(moim_thread_cpu_seconds_total{thread="mix-0"}[${RATE}])`);
    return cores > 0.0005 && cores;
  });
  assert.ok(mixer < 1, `the mixer takes ${mixer} cores`);
  await until("both kinds of room in the figures", async () => {
    const kinds = await query("sum by (audio, video) (moim_mos_lq_count)");
    const names = kinds.map(({ metric }) => `${metric.audio} ${metric.video}`);
    assert.deepEqual(names.sort(), ["mcu none", "sfu sfu"]);
    return true;
  });
  const unknown = [...JSON.stringify(board).matchAll(/moim_[a-z_]+/g)].map(([name]) => name);
  const text = await (await fetch(`${url}/metrics`)).text();
  for (const name of new Set(unknown)) assert.match(text, new RegExp(`^${name}[{ ]`, "m"), name);
});
