// The ears of a page: looks in each remote track of sound for the chirps that bots say in a mixed room, in
// what the page takes out of its jitter buffer to play. The same matched filter as crates/audio/src/mark.rs,
// in a worker. Before any script of the page's own.
//
// The track's own samples with their time, and no AudioContext: that one runs ahead of the clock by up to a
// tenth of a second, by another amount in each page.
(() => {
  const worker = `
    const RATE = 48000, TEMPLATE = 720, HOP = 6000, MARGIN = 1500, PEAK = 120, FOUND_DB = 22;
    // The first pieces of a track are of a clock of their own.
    const UNTIMED = 50;
    const PLACES = HOP + 2 * MARGIN;
    const sweep = (sample) => {
      const time = sample / RATE, length = 0.06;
      const phase = 500 * time + (3000 * time * time) / (2 * length);
      const edge = Math.min(1, Math.max(0, Math.min(time, length - time) / 0.005));
      return Math.sin(2 * Math.PI * phase) * (0.5 - 0.5 * Math.cos(Math.PI * edge));
    };
    const template = Float32Array.from({ length: TEMPLATE }, (_, n) => sweep(4 * n + 1.5));
    /** Epoch in ms at time 0 of the samples' clock: the least of the last seconds, read by read. */
    class Clock {
      constructor() {
        [this.last, this.now, this.until] = [Infinity, Infinity, 0];
      }
      epoch(ms) {
        const wall = performance.timeOrigin + performance.now();
        if (wall > this.until) [this.last, this.now, this.until] = [this.now, Infinity, wall + 5000];
        this.now = Math.min(this.now, wall - ms);
        return ms + Math.min(this.last, this.now);
      }
    }
    class Ears {
      constructor() {
        this.samples = new Float32Array(PLACES + TEMPLATE + 4800);
        this.scores = new Float32Array(PLACES + 4800);
        this.count = 0; // samples at 12 kHz in hand
        this.scored = 0; // of them with a score
        this.chunks = []; // where each piece begins, and when it was taken to be played
      }
      take(frames, at) {
        this.chunks.push({ from: this.count, at });
        for (let n = 0; n + 4 <= frames.length; n += 4)
          this.samples[this.count++] =
            (frames[n] + frames[n + 1] + frames[n + 2] + frames[n + 3]) / 4;
        for (; this.scored + TEMPLATE <= this.count; this.scored++) {
          let sum = 0;
          for (let n = 0; n < TEMPLATE; n++) sum += this.samples[this.scored + n] * template[n];
          this.scores[this.scored] = Math.abs(sum);
        }
        if (this.scored >= PLACES) this.search();
      }
      search() {
        let peak = 0;
        for (let n = 1; n < PLACES; n++) if (this.scores[n] > this.scores[peak]) peak = n;
        if (peak >= MARGIN && peak < MARGIN + HOP) {
          let sum = 0, count = 0;
          for (let n = 0; n < PLACES; n++)
            if (n < peak - PEAK || n >= peak + PEAK) {
              sum += this.scores[n] ** 2;
              count++;
            }
          const rest = Math.max(Math.sqrt(sum / count), 1e-9);
          const overDb = 20 * Math.log10(this.scores[peak] / rest);
          const chunk = this.chunks.findLast(({ from }) => from <= peak);
          if (overDb >= FOUND_DB && this.scores[peak] > 1e-3)
            postMessage({ at: chunk.at + (peak - chunk.from) / 12, overDb });
        }
        this.samples.copyWithin(0, HOP, this.count);
        this.scores.copyWithin(0, HOP, this.scored);
        this.count -= HOP;
        this.scored -= HOP;
        for (const chunk of this.chunks) chunk.from -= HOP;
        this.chunks.splice(0, this.chunks.findLastIndex(({ from }) => from <= 0));
      }
    }
    const listen = async (data) => {
      const clock = new Clock(), ears = new Ears(), reader = data.getReader();
      for (let pieces = 0; ; pieces++) {
        const { value, done } = await reader.read();
        if (done) return;
        if (value.sampleRate !== RATE) throw new Error("sound at " + value.sampleRate + " Hz");
        if (pieces < UNTIMED) {
          value.close();
          continue;
        }
        const frames = new Float32Array(value.numberOfFrames);
        value.copyTo(frames, { planeIndex: 0, format: "f32-planar" });
        const at = clock.epoch(value.timestamp / 1000);
        value.close();
        ears.take(frames, at);
      }
    };
    onmessage = ({ data }) => listen(data).catch((error) => postMessage({ error: String(error) }));`;
  const heard = [];
  let ears = null;
  const listen = (track) => {
    if (!ears) {
      const url = URL.createObjectURL(
        new Blob([worker], { type: "text/javascript" }),
      );
      ears = new Worker(url);
      ears.onmessage = ({ data }) => {
        if (data.error) console.error(`no ears: ${data.error}`);
        else if (heard.length < 1000) heard.push(data);
      };
      ears.onerror = ({ message }) => console.error(`no ears: ${message}`);
    }
    const { readable } = new MediaStreamTrackProcessor({
      track,
      maxBufferSize: 100,
    });
    ears.postMessage(readable, [readable]);
  };
  // Marks in what is played: when each began, in ms since 1970, and how far it stood over the rest.
  window.moimEars = { take: () => heard.splice(0) };
  const Real = RTCPeerConnection;
  window.RTCPeerConnection = class extends Real {
    constructor(...options) {
      super(...options);
      this.addEventListener("track", ({ track }) => {
        if (track.kind === "audio") listen(track);
      });
    }
  };
})();
