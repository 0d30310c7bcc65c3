// The scope: audio as it arrives, one bar per 20 ms on a ruler of seconds, the played part lit, a play head.

const BAR_S = 0.02;
const BAR_PX = 3;
const RULER_PX = 18;
const GAIN = 1.6; // speech peaks around 0.5

export class Waveform {
  constructor(canvas) {
    this.canvas = canvas;
    this.peaks = [];
    this.rest = 0; // samples of the unfinished bar
    this.restPeak = 0;
    this.sampleRate = 24000;
    this.playedS = 0;
    this.pending = false;
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

  /** Draw once in the next frame, however often it is asked for until then. */
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.#paint();
    });
  }

  #paint() {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    const [pixelWidth, pixelHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) {
      canvas.width = pixelWidth;
      canvas.height = pixelHeight;
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    const room = Math.floor(width / BAR_PX);
    const head = this.playedS / BAR_S;
    // The head stays in the middle once the audio is longer than the scope.
    const first = Math.max(0, Math.min(this.peaks.length - room, Math.round(head) - (room >> 1)));
    this.#ruler(context, { width, height, first, room, colour, font: style.fontFamily });
    this.#bars(context, { height: height - RULER_PX, first, room, head, colour });
    if (this.peaks.length) {
      context.fillStyle = colour("--glass-head");
      context.fillRect(Math.max(0, (head - first) * BAR_PX - 0.5), 0, 1.5, height - RULER_PX);
    }
  }

  #ruler(context, { width, height, first, room, colour, font }) {
    const top = height - RULER_PX;
    context.fillStyle = colour("--glass-line");
    context.fillRect(0, top / 2, width, 1);
    context.fillRect(0, top, width, 1);
    context.font = `10px ${font}`;
    const perSecond = 1 / BAR_S;
    for (let second = Math.ceil(first / perSecond); second * perSecond < first + room; second++) {
      const x = (second * perSecond - first) * BAR_PX;
      context.fillStyle = colour("--glass-line");
      if (x > 0) context.fillRect(x, 0, 1, height);
      context.fillStyle = colour("--glass-faint");
      if (x + 28 < width) context.fillText(`${second} s`, x + 5, height - 5);
    }
  }

  #bars(context, { height, first, room, head, colour }) {
    const end = Math.min(this.peaks.length, first + room);
    for (const [from, to, name] of [[first, Math.min(end, head), "--glass-lit"], [Math.max(first, head), end, "--glass-dim"]]) {
      context.fillStyle = colour(name);
      for (let i = Math.ceil(from); i < to; i++) {
        const size = Math.max(1, Math.min(1, this.peaks[i] * GAIN) * (height - 12));
        context.fillRect((i - first) * BAR_PX, (height - size) / 2, BAR_PX - 1, size);
      }
    }
  }
}
