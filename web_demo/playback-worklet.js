// Plays samples from a ring buffer on the audio thread. A gap is counted as an underrun; stopping fades out in 5 ms.

const AUDIBLE = 10 ** (-50 / 20);
const FADE_S = 0.005;
const REPORT_BLOCKS = 8;

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = [];
    this.offset = 0; // into queue[0]
    this.queued = 0;
    this.played = 0;
    this.underruns = 0;
    this.ended = false;
    this.started = false;
    this.heard = false;
    this.starving = false;
    this.fade = null; // samples left of a fade-out
    this.blocks = 0;
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  receive(message) {
    if (message.samples) {
      this.queue.push(message.samples);
      this.queued += message.samples.length;
      this.started = true;
      this.starving = false;
    } else if (message.type === "end") {
      this.ended = true;
    } else if (message.type === "stop") {
      this.fade = Math.round(FADE_S * sampleRate);
    } else if (message.type === "reset") {
      this.clear();
      this.played = 0;
      this.underruns = 0;
      this.heard = false;
      this.started = false;
      this.ended = false;
      this.starving = false;
      this.fade = null;
    }
  }

  clear() {
    this.queue = [];
    this.offset = 0;
    this.queued = 0;
  }

  process(_inputs, outputs) {
    const output = outputs[0][0];
    let filled = 0;
    let audible = false;
    while (filled < output.length && this.queue.length) {
      const head = this.queue[0];
      const count = Math.min(output.length - filled, head.length - this.offset);
      for (let i = 0; i < count; i++) {
        let sample = head[this.offset + i];
        if (this.fade !== null) {
          sample *= this.fade / (FADE_S * sampleRate);
          this.fade = Math.max(0, this.fade - 1);
        }
        if (sample > AUDIBLE || sample < -AUDIBLE) audible = true;
        output[filled + i] = sample;
      }
      filled += count;
      this.offset += count;
      if (this.offset === head.length) {
        this.queue.shift();
        this.offset = 0;
      }
    }
    this.queued -= filled;
    this.played += filled;
    if (this.fade === 0) {
      this.clear();
      this.fade = null;
      this.ended = true;
      this.report("stopped");
    }
    for (let channel = 1; channel < outputs[0].length; channel++) outputs[0][channel].set(output);
    this.account(filled < output.length, audible);
    return true;
  }

  account(short, audible) {
    if (audible && !this.heard) {
      this.heard = true;
      this.report("heard");
    }
    if (short && this.started && !this.ended && !this.starving) {
      this.starving = true;
      this.underruns += 1;
    }
    if (short && this.started && this.ended) {
      this.started = false;
      this.report("finished");
    } else if (this.started && ++this.blocks % REPORT_BLOCKS === 0) {
      this.report("position");
    }
  }

  report(type) {
    this.port.postMessage({
      type,
      played: this.played,
      queued: this.queued,
      underruns: this.underruns,
    });
  }
}

registerProcessor("playback", Playback);
