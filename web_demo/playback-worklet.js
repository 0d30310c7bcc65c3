// Plays samples from a ring buffer on the audio thread and says how far it is.
//
// In:  {type: "begin", turn}, {samples}, {type: "end"}, {type: "stop"}
// Out: {type: "heard" | "position" | "finished" | "stopped", turn, time, played, queued, underruns}
//
// A turn is one utterance. `played` counts its samples up to `time`, a time of the audio context. When a turn is
// stopped or replaced, what waits is cut down to 5 ms that fade out; those are played but not counted.

const AUDIBLE = 10 ** (-50 / 20);
const FADE_S = 0.005;
const REPORT_BLOCKS = 8;
const FIRST_SECONDS = 8;

/** A ring of samples that doubles when it is full. */
class Ring {
  constructor(capacity) {
    this.buffer = new Float32Array(capacity);
    this.start = 0;
    this.length = 0;
  }

  push(samples) {
    if (this.length + samples.length > this.buffer.length) this.grow(this.length + samples.length);
    const at = (this.start + this.length) % this.buffer.length;
    const straight = Math.min(samples.length, this.buffer.length - at);
    this.buffer.set(samples.subarray(0, straight), at);
    this.buffer.set(samples.subarray(straight), 0);
    this.length += samples.length;
  }

  grow(needed) {
    const bigger = new Float32Array(Math.max(needed, 2 * this.buffer.length));
    const count = this.length;
    this.read(bigger, count);
    this.buffer = bigger;
    this.start = 0;
    this.length = count;
  }

  /** Move up to `count` samples to the beginning of `target`; returns how many there were. */
  read(target, count) {
    const taken = Math.min(count, this.length);
    const straight = Math.min(taken, this.buffer.length - this.start);
    target.set(this.buffer.subarray(this.start, this.start + straight), 0);
    target.set(this.buffer.subarray(0, taken - straight), straight);
    this.start = (this.start + taken) % this.buffer.length;
    this.length -= taken;
    return taken;
  }

  /** Drop all but the next `count` samples, and let those fade out; returns how many are left. */
  fadeOut(count) {
    const left = Math.min(count, this.length);
    for (let i = 0; i < left; i++) {
      this.buffer[(this.start + i) % this.buffer.length] *= 1 - (i + 1) / left;
    }
    this.length = left;
    return left;
  }
}

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new Ring(FIRST_SECONDS * sampleRate);
    this.tail = 0; // faded samples at the head of the ring that belong to no turn
    this.blocks = 0;
    this.begin(0);
    this.open = false;
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  begin(turn) {
    this.turn = turn;
    this.open = true;
    this.ended = false;
    this.filling = true; // nothing of this turn has arrived, which is waiting and no underrun
    this.heard = false;
    this.played = 0;
    this.underruns = 0;
  }

  receive(message) {
    if (message.samples) {
      if (!this.open) return;
      this.ring.push(message.samples);
      this.filling = false;
    } else if (message.type === "end") {
      this.ended = true;
    } else {
      this.tail = this.ring.fadeOut(Math.round(FADE_S * sampleRate));
      if (this.open) this.report("stopped");
      this.open = false;
      if (message.type === "begin") this.begin(message.turn);
    }
  }

  process(_inputs, outputs) {
    const output = outputs[0][0];
    const filled = this.ring.read(output, output.length);
    for (let channel = 1; channel < outputs[0].length; channel++) outputs[0][channel].set(output);
    const tail = Math.min(this.tail, filled);
    this.tail -= tail;
    if (this.open) this.account(output.subarray(tail, filled), filled < output.length);
    return true;
  }

  /** Count what was handed to the output; `short` says that it was less than the output takes. */
  account(samples, short) {
    this.played += samples.length;
    if (!this.heard && samples.some((sample) => sample > AUDIBLE || sample < -AUDIBLE)) {
      this.heard = true;
      this.report("heard");
    }
    if (short && this.ended) {
      this.open = false;
      this.report("finished");
    } else if (short && !this.filling) {
      this.filling = true;
      this.underruns += 1;
      this.report("position");
    } else if (++this.blocks % REPORT_BLOCKS === 0) {
      this.report("position");
    }
  }

  report(type) {
    this.port.postMessage({
      type,
      turn: this.turn,
      time: currentTime,
      played: this.played,
      queued: this.ring.length - this.tail,
      underruns: this.underruns,
    });
  }
}

registerProcessor("playback", Playback);
