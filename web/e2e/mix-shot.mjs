// A picture of what a listener hears of a mixed room: its spectrum over time, drawn from the samples of
// crates/engine/examples/mix_sound.rs.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { browser } from "./world.mjs";

const ROOT = new URL("../..", import.meta.url).pathname;
const out = process.argv[2] ?? "docs/img";
const CARGO = ["run", "--release", "--locked", "--quiet", "-p", "engine", "--example", "mix_sound"];
/** Seconds at which something begins. */
const SCENES = [
  [0.5, "one voice"],
  [2, "a second one"],
  [3.5, "the first ends"],
  [5, "twenty shout"],
  [6.5, "silence"],
];

const samples = execFileSync("cargo", CARGO, { cwd: ROOT, maxBuffer: 1 << 26 });
const ends = [];
try {
  const launched = await browser({ after: (end) => ends.push(end) });
  const page = await (await launched.newContext({ viewport: { width: 1000, height: 380 } })).newPage();
  await page.setContent('<body style="margin:0"><canvas width="1000" height="380"></canvas>');
  await page.evaluate(
    ([base64, scenes]) => {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const pcm = new Float32Array(bytes.buffer);
      const [RATE, SIZE, TOP_HZ] = [48_000, 1024, 8_000];
      const [left, top, width, height] = [50, 34, 930, 300];
      const context = document.querySelector("canvas").getContext("2d");
      context.fillStyle = "#fff";
      context.fillRect(0, 0, 1000, 380);

      /** Power of each frequency around a sample, in dB of a sine of full scale (radix 2, Hann window). */
      const spectrum = (at) => {
        const re = new Float64Array(SIZE);
        const im = new Float64Array(SIZE);
        const bits = Math.log2(SIZE);
        for (let n = 0; n < SIZE; n++) {
          const window = 0.5 - 0.5 * Math.cos((2 * Math.PI * n) / SIZE);
          let reversed = 0;
          for (let bit = 0; bit < bits; bit++) reversed |= ((n >> bit) & 1) << (bits - 1 - bit);
          re[reversed] = (pcm[at + n - SIZE / 2] ?? 0) * window;
        }
        for (let half = 1; half < SIZE; half *= 2) {
          for (let n = 0; n < SIZE; n++) {
            if (n & half) continue;
            const turn = (-Math.PI * (n % half)) / half;
            const [cos, sin, other] = [Math.cos(turn), Math.sin(turn), n + half];
            const [x, y] = [re[other] * cos - im[other] * sin, re[other] * sin + im[other] * cos];
            [re[other], im[other]] = [re[n] - x, im[n] - y];
            [re[n], im[n]] = [re[n] + x, im[n] + y];
          }
        }
        return re.map((x, n) => 20 * Math.log10((4 * Math.hypot(x, im[n])) / SIZE + 1e-9));
      };

      const seconds = pcm.length / RATE;
      const image = context.createImageData(width, height);
      for (let x = 0; x < width; x++) {
        const db = spectrum(Math.round((x / width) * pcm.length));
        for (let y = 0; y < height; y++) {
          const value = db[Math.round((((height - y) / height) * TOP_HZ * SIZE) / RATE)];
          const share = Math.min(1, Math.max(0, (value + 75) / 70));
          const pixel = 4 * (y * width + x);
          image.data[pixel] = 255 * Math.min(1, 2.2 * share ** 1.5);
          image.data[pixel + 1] = 255 * share ** 2;
          image.data[pixel + 2] = 255 * Math.max(0.1, Math.sin(Math.PI * share) * 0.55);
          image.data[pixel + 3] = 255;
        }
      }
      context.putImageData(image, left, top);
      context.fillStyle = "#222";
      context.strokeStyle = "#fff8";
      context.font = "13px sans-serif";
      for (const [at, what] of scenes) {
        const x = left + (at / seconds) * width;
        context.fillText(what, x, top - 10);
        context.fillRect(x, top - 6, 1, 6);
      }
      for (let at = 0; at <= seconds; at++)
        context.fillText(`${at} s`, left + (at / seconds) * width - 6, top + height + 20);
      context.textAlign = "right";
      for (let khz = 0; khz <= 8; khz += 2)
        context.fillText(`${khz} kHz`, left - 6, top + height - (khz / 8) * height + 5);
    },
    [samples.toString("base64"), SCENES],
  );
  await page.screenshot({ path: join(out, "mix-spectrum.png") });
} finally {
  for (const end of ends.reverse()) await end();
}
