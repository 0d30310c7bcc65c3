// Draws audio as it arrives: one bar per 20 ms, the played part in the accent colour, a play head.

const BAR_S = 0.02;

export class Waveform {
  constructor(canvas) {
    this.canvas = canvas;
    this.peaks = [];
    this.rest = 0; // samples of the unfinished bar
    this.restPeak = 0;
    this.sampleRate = 24000;
    this.playedS = 0;
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  reset(sampleRate = 24000) {
    this.peaks = [];
    this.rest = this.restPeak = this.playedS = 0;
    this.sampleRate = sampleRate;
    this.draw();
  }

  push(samples) {
    const bar = Math.round(BAR_S * this.sampleRate);
    for (const sample of samples) {
      this.restPeak = Math.max(this.restPeak, Math.abs(sample));
      if (++this.rest === bar) {
        this.peaks.push(this.restPeak);
        this.rest = this.restPeak = 0;
      }
    }
    this.draw();
  }

  play(seconds) {
    this.playedS = seconds;
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio);
    const height = Math.round(canvas.clientHeight * ratio);
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    const style = getComputedStyle(canvas);
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    const middle = height / 2;
    context.fillStyle = style.getPropertyValue("--line");
    context.fillRect(0, middle - ratio / 2, width, ratio);
    const pitch = 3 * ratio;
    const room = Math.floor(width / pitch);
    const head = Math.floor(this.playedS / BAR_S);
    // Keep the play head in view once the audio is longer than the panel.
    const first = Math.max(0, Math.min(this.peaks.length - room, head - Math.floor(room / 2)));
    for (let i = first; i < Math.min(this.peaks.length, first + room); i++) {
      const size = Math.max(ratio, Math.min(1, this.peaks[i] * 1.6) * (height - 8 * ratio));
      context.fillStyle = style.getPropertyValue(i < head ? "--accent" : "--wave");
      context.fillRect((i - first) * pitch, middle - size / 2, 2 * ratio, size);
    }
    if (this.peaks.length) {
      context.fillStyle = style.getPropertyValue("--ink");
      context.fillRect((head - first) * pitch, 0, ratio, height);
    }
  }
}
