// Hands microphone samples to the page in pieces of about 40 ms, as 16-bit integers.

const PIECE_S = 0.04;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.length = Math.round(PIECE_S * sampleRate);
    this.piece = new Int16Array(this.length);
    this.filled = 0;
  }

  process(inputs) {
    const input = inputs[0][0];
    if (!input) return true;
    for (const sample of input) {
      this.piece[this.filled++] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
      if (this.filled === this.length) {
        this.port.postMessage(this.piece.buffer, [this.piece.buffer]);
        this.piece = new Int16Array(this.length); // the old one is empty once its buffer has left
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
