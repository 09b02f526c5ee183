// Who is heard in a mix, by the spectrum of what a page plays: each sends a tone of their own.

import { until } from "./world.mjs";

/** A tone is there when it stands so far over the bins around it, in dB. */
const PRESENT_DB = 25;
const ABSENT_DB = 10;

/** Analyses the mix that comes in, in a page; `window.contrast(hertz)` tells how far a tone stands out now. */
export function listen({ page }) {
  return page.evaluate(async () => {
    const context = new AudioContext({ sampleRate: 48_000 });
    await context.resume();
    const track = window.moim.room.mediaTrack("mix");
    const source = new MediaStreamAudioSourceNode(context, { mediaStream: new MediaStream([track]) });
    const analyser = new AnalyserNode(context, { fftSize: 16_384, smoothingTimeConstant: 0 });
    source.connect(analyser);
    const bins = new Float32Array(analyser.frequencyBinCount);
    const width = context.sampleRate / analyser.fftSize;
    window.contrast = (hertz) => {
      analyser.getFloatFrequencyData(bins);
      const at = Math.round(hertz / width);
      const peak = Math.max(...bins.slice(at - 3, at + 4));
      const around = [...bins.slice(at - 40, at - 12), ...bins.slice(at + 13, at + 41)].sort((a, b) => a - b);
      // Silence has no floor: -120 dB stands for it.
      return Math.max(peak, -120) - Math.max(around[Math.floor(around.length / 2)], -120);
    };
  });
}

/** Median of the contrast of each tone over 2 s. */
async function spectrum({ page }, tones) {
  return page.evaluate(async (tones) => {
    const seen = Object.fromEntries(Object.keys(tones).map((name) => [name, []]));
    for (let round = 0; round < 20; round++) {
      await new Promise((done) => setTimeout(done, 100));
      for (const [name, hertz] of Object.entries(tones)) seen[name].push(window.contrast(hertz));
    }
    const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
    return Object.fromEntries(Object.entries(seen).map(([name, list]) => [name, middle(list)]));
  }, tones);
}

/** Waits until a page hears exactly these of those whose tones are given, in Hz by name. */
export async function hears(person, names, tones) {
  const what = `${person.name} to hear ${names.join(" and ") || "nobody"}`;
  const heard = await until(what, async () => {
    const now = await spectrum(person, tones);
    const right = Object.entries(now).every(([name, contrast]) =>
      names.includes(name) ? contrast >= PRESENT_DB : contrast <= ABSENT_DB,
    );
    if (!right) throw new Error(`${what}: ${JSON.stringify(now)}`);
    return now;
  });
  const shown = Object.entries(heard).map(([name, contrast]) => `${name} ${contrast.toFixed(0)} dB`);
  console.log(`# ${person.name} hears: ${shown.join(", ")}`);
  return heard;
}
