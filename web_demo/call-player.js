// The loudspeaker of a call: a media element plays the track; this follows what is heard and keeps a copy of it.

const AUDIBLE = 10 ** (-50 / 20);
const LOOK_MS = 500;

/** Has the methods of Player; sound reaches it by the track and not by `push`. */
export class CallPlayer {
  #call = null;
  #position = null;
  #audioS = Infinity; // length of the utterance, once it is known
  #listening = null;
  #before = null;

  /**
   * @param {HTMLMediaElement} element plays the calls
   * @param {(report: import("./player.js").Report) => void} onReport called for the current turn only
   * @param {(samples: Float32Array) => void} onSamples called with what is heard
   */
  constructor(element, onReport, onSamples) {
    this.element = element;
    this.onReport = onReport;
    this.onSamples = onSamples;
    this.turn = 0;
    this.open = false;
    this.report = null;
  }

  /** Play this call from now on. */
  take(call) {
    if (call === this.#call) return;
    this.#call = call;
    this.#listening?.context.close();
    this.#listening = null;
  }

  /** Wake the sound up, in a tap or key press. */
  async unlock(sampleRate) {
    const played = this.element.play();
    await this.#listen(sampleRate);
    await played;
  }

  begin() {
    this.turn += 1;
    this.open = true;
    this.#position = null;
    this.#audioS = Infinity;
    this.report = { turn: this.turn, heard: false, queued: 0, underruns: 0 };
    this.#before = null;
    this.#look(this.turn);
  }

  /** The server said where a sample sounds on the track. */
  at(position) {
    this.#position = position;
    this.element.muted = false;
  }

  push() {}

  /** Nothing follows the first `audioMs` of this turn; unknown after an error, which ends it. */
  end(audioMs = 0) {
    this.#audioS = audioMs / 1000;
  }

  /** Be silent at once; the server stops within 60 ms, and the next turn is heard again. */
  stop() {
    this.open = false;
    this.element.muted = true;
  }

  get heardS() {
    if (!this.#position) return 0;
    return Math.min(this.#audioS, this.#call.heardS(this.#position));
  }

  async #listen(sampleRate) {
    if (this.#listening) return this.#listening.context.resume();
    const context = new AudioContext({ sampleRate });
    this.#listening = { context };
    const resumed = context.resume();
    try {
      await context.audioWorklet.addModule("capture-worklet.js");
    } catch (error) {
      this.#listening = null; // so that the next tap tries again
      throw error;
    }
    const node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => this.#hear(new Int16Array(data));
    const source = context.createMediaStreamSource(this.#call.stream);
    source.connect(node);
    Object.assign(this.#listening, { source, node }); // nodes that nobody holds may be collected
    await resumed;
  }

  #hear(piece) {
    if (!this.open || !this.#position) return;
    const samples = Float32Array.from(piece, (sample) => sample / 32768);
    this.onSamples(samples);
    if (!this.report.heard && samples.some((sample) => Math.abs(sample) > AUDIBLE)) {
      this.report.heard = true;
      this.#tell("heard");
    }
    this.#tell(this.heardS >= this.#audioS ? "finished" : "position");
  }

  #tell(type) {
    if (type === "finished") this.open = false;
    this.onReport({ type, played: Math.round(48_000 * this.heardS), time: 0, ...this.report });
  }

  /** Ask the browser, while this turn lasts, how long samples wait in its jitter buffer and how many it made up. */
  async #look(turn) {
    if (!this.open || turn !== this.turn) return;
    const now = await this.#call.statistics();
    const before = this.#before ?? now;
    this.#before = now;
    const emitted = now ? now.jitterBufferEmittedCount - before.jitterBufferEmittedCount : 0;
    if (emitted > 0) {
      const waitedS = (now.jitterBufferDelay - before.jitterBufferDelay) / emitted;
      this.report.queued = waitedS * this.#listening.context.sampleRate;
      this.report.underruns += now.concealmentEvents - before.concealmentEvents;
    }
    setTimeout(() => this.#look(turn), LOOK_MS);
  }
}
