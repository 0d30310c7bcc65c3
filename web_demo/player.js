// The loudspeaker: an AudioContext at the engine's rate and a worklet that plays what it is given.

/**
 * What the worklet reports: `played` samples of turn `turn` at the context's `time`, `queued` more.
 *
 * @typedef {{type: string, turn: number, time: number, played: number, queued: number, underruns: number}} Report
 */

export class Player {
  /** @param {(report: Report) => void} onReport called for the current turn only */
  constructor(onReport) {
    this.onReport = onReport;
    this.context = null;
    this.node = null;
    this.waiting = []; // messages for a worklet that is still loading
    this.turn = 0;
    this.last = null;
  }

  /**
   * Wake the sound up. Must be called inside a tap or key press, because browsers unlock sound only there; the rest
   * goes on by itself, and what is pushed meanwhile waits. Rejects when there is no sound output.
   */
  async unlock(sampleRate) {
    if (this.context?.sampleRate === sampleRate) {
      await this.context.resume();
      return;
    }
    this.context?.close();
    this.node = null;
    this.context = new AudioContext({ sampleRate, latencyHint: "interactive" });
    const { context } = this;
    const resumed = context.resume();
    try {
      await context.audioWorklet.addModule("playback-worklet.js");
    } catch (error) {
      this.context = null; // so that the next tap tries again
      throw error;
    }
    if (context !== this.context) return; // another rate was asked for meanwhile
    const node = new AudioWorkletNode(context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    node.port.onmessage = ({ data }) => this.#receive(data);
    node.connect(context.destination);
    this.node = node;
    for (const [message, transfer] of this.waiting) node.port.postMessage(message, transfer);
    this.waiting = [];
    await resumed;
  }

  /** Start a new turn; what is still played fades out. */
  begin() {
    this.last = null;
    this.#send({ type: "begin", turn: ++this.turn });
  }

  /** Append samples; their buffer is handed over. */
  push(samples) {
    this.#send({ samples }, [samples.buffer]);
  }

  /** Nothing follows in this turn. */
  end() {
    this.#send({ type: "end" });
  }

  /** Be silent within 5 ms, and forget what waits. */
  stop() {
    this.waiting = [];
    this.#send({ type: "stop" });
  }

  /** Seconds of this turn that have left the loudspeaker by now. */
  get heardS() {
    if (!this.last) return 0;
    const { played, queued, time } = this.last;
    const { context } = this;
    const latency = context.outputLatency || context.baseLatency || 0;
    const since = (context.currentTime - latency - time) * context.sampleRate;
    return Math.max(0, Math.min(played + queued, played + since)) / context.sampleRate;
  }

  #receive(report) {
    if (report.turn !== this.turn) return;
    this.last = report;
    this.onReport(report);
  }

  #send(message, transfer = []) {
    if (this.node) this.node.port.postMessage(message, transfer);
    else this.waiting.push([message, transfer]);
  }
}
