// The ears of a page: looks in each remote track of sound for the chirps that bots say in a mixed room, in
// what the page would play. The same matched filter as crates/audio/src/mark.rs, on the audio thread.
// Before any script of the page's own.
(() => {
  const worklet = `
    const TEMPLATE = 720, HOP = 6000, MARGIN = 1500, PEAK = 120, FOUND_DB = 18;
    const sweep = (sample) => {
      const time = sample / 48000, length = 0.06;
      const phase = 500 * time + (3000 * time * time) / (2 * length);
      const edge = Math.min(1, Math.max(0, Math.min(time, length - time) / 0.005));
      return Math.sin(2 * Math.PI * phase) * (0.5 - 0.5 * Math.cos(Math.PI * edge));
    };
    class Ears extends AudioWorkletProcessor {
      constructor() {
        super();
        this.template = Float32Array.from({ length: TEMPLATE }, (_, n) => sweep(4 * n + 1.5));
        this.samples = new Float32Array(HOP + 2 * MARGIN + TEMPLATE + 64);
        this.scores = new Float32Array(HOP + 2 * MARGIN + 64);
        this.count = 0; // samples at 12 kHz in hand
        this.scored = 0; // of them with a score
        this.first = null; // frame of the first of them
        this.offset = Infinity; // epoch in ms at frame 0: the least of a while
        this.until = 0;
      }
      process([input]) {
        const frames = input[0] ?? new Float32Array(128);
        this.first ??= currentFrame;
        const now = Date.now();
        if (now > this.until) [this.offset, this.until] = [Infinity, now + 5000];
        this.offset = Math.min(this.offset, now - currentFrame / 48);
        for (let n = 0; n + 4 <= frames.length; n += 4)
          this.samples[this.count++] =
            (frames[n] + frames[n + 1] + frames[n + 2] + frames[n + 3]) / 4;
        for (; this.scored + TEMPLATE <= this.count; this.scored++) {
          let sum = 0;
          for (let n = 0; n < TEMPLATE; n++)
            sum += this.samples[this.scored + n] * this.template[n];
          this.scores[this.scored] = Math.abs(sum);
        }
        if (this.scored >= HOP + 2 * MARGIN) this.search();
        return true;
      }
      search() {
        const places = HOP + 2 * MARGIN;
        let peak = 0;
        for (let n = 1; n < places; n++) if (this.scores[n] > this.scores[peak]) peak = n;
        if (peak >= MARGIN && peak < MARGIN + HOP) {
          let sum = 0, count = 0;
          for (let n = 0; n < places; n++)
            if (n < peak - PEAK || n >= peak + PEAK) {
              sum += this.scores[n] ** 2;
              count++;
            }
          const rest = Math.max(Math.sqrt(sum / count), 1e-9);
          const over = 20 * Math.log10(this.scores[peak] / rest);
          if (over >= FOUND_DB && this.scores[peak] > 1e-3)
            this.port.postMessage((this.first + 4 * peak) / 48 + this.offset);
        }
        this.samples.copyWithin(0, HOP, this.count);
        this.scores.copyWithin(0, HOP, this.scored);
        this.count -= HOP;
        this.scored -= HOP;
        this.first += 4 * HOP;
      }
    }
    registerProcessor("moim-ears", Ears);`;
  const heard = [];
  let ready = null;
  const context = () =>
    (ready ??= (async () => {
      const made = new AudioContext({ sampleRate: 48000 });
      const url = URL.createObjectURL(new Blob([worklet], { type: "text/javascript" }));
      await made.audioWorklet.addModule(url);
      return made;
    })());
  const listen = async (track) => {
    const made = await context();
    const source = made.createMediaStreamSource(new MediaStream([track]));
    const ears = new AudioWorkletNode(made, "moim-ears");
    ears.port.onmessage = ({ data }) => {
      if (heard.length < 1000) heard.push(data);
    };
    // It gives silence, and runs because somebody would hear it.
    source.connect(ears).connect(made.destination);
    // Nothing else may hold them.
    (window.moimEars.nodes ??= []).push(source, ears);
  };
  // Moments, in ms since 1970, in which marks began in what would be played.
  window.moimEars = { take: () => heard.splice(0) };
  const Real = RTCPeerConnection;
  window.RTCPeerConnection = class extends Real {
    constructor(...options) {
      super(...options);
      this.addEventListener("track", ({ track }) => {
        if (track.kind === "audio")
          listen(track).catch((error) => console.error(`no ears: ${error}`));
      });
    }
  };
})();
