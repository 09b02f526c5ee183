// Starts a server, lets 490 people join at 50 a second beside ten who talk, and reads from
// /metrics how long every packet of sound stayed in the server (kernel's stamp until it was sent).
// Writes target/evidence/joins.json; exits non-zero where one stayed longer than 5 ms.

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, release, tmpdir } from 'node:os';
import { join } from 'node:path';

const BINARY = process.env.MOIM_BIN ?? 'target/release/moim';
const URL_BASE = 'http://127.0.0.1:7880';
const LIMIT_S = 0.005;

const runs = mkdtempSync(join(tmpdir(), 'moim-joins-'));
const server = spawn(BINARY, ['serve'], { stdio: ['ignore', 'ignore', 'ignore'] });
const gone = new Promise((done) => server.once('exit', done));

async function metrics() {
  return (await fetch(`${URL_BASE}/metrics`)).text();
}

async function ready() {
  for (let tries = 0; tries < 200; tries++) {
    try {
      return await metrics();
    } catch {
      await new Promise((done) => setTimeout(done, 50));
    }
  }
  throw new Error('the server did not answer');
}

/** Packets of sound, and how many of them left within the limit; the slowest bucket. */
function residence(text) {
  const buckets = [...text.matchAll(/^moim_audio_residence_seconds_bucket\{.*le="([^"]+)"\} (\d+)/gm)].map(
    ([, le, count]) => ({ le: le === '+Inf' ? Infinity : Number(le), count: Number(count) }),
  );
  const all = buckets.at(-1).count;
  const within = buckets.filter(({ le }) => le <= LIMIT_S).at(-1).count;
  const slowest = buckets.find(({ count }) => count === all).le;
  const p99 = buckets.find(({ count }) => count >= 0.99 * all).le;
  return { packets: all, over_5_ms: all - within, p99_at_most_ms: p99 * 1000, slowest_at_most_ms: slowest * 1000 };
}

let code = 1;
let text = '';
try {
  await ready();
  const load = spawn(BINARY, ['load', 'scenarios/joins.yaml', '--runs', runs], { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  load.stdout.on('data', (data) => (output += data));
  let peak = 0;
  const watch = setInterval(async () => {
    try {
      text = await metrics();
      peak = Math.max(peak, Number(/^moim_participants (\d+)/m.exec(text)?.[1] ?? 0));
    } catch {
      // The server is busy or gone: the last text stands.
    }
  }, 500);
  const exit = await new Promise((done) => load.once('exit', done));
  clearInterval(watch);
  text = await metrics();
  process.stdout.write(output);
  const row = { joins_per_s: 50, people: peak, load_exit_code: exit, ...residence(text) };
  const ok = exit === 0 && peak === 500 && row.over_5_ms === 0;
  mkdirSync('target/evidence', { recursive: true });
  const machine = { cpu: cpus()[0].model, cores: cpus().length, kernel: release(), load_average: loadavg() };
  writeFileSync('target/evidence/joins.json', `${JSON.stringify({ machine, seed: 1, rows: [row], ok }, null, 2)}\n`);
  console.log(row);
  console.log(ok ? 'holds' : 'does NOT hold');
  code = ok ? 0 : 1;
} finally {
  server.kill('SIGINT');
  await gone;
}
process.exit(code);
