// The loudspeaker: an AudioContext at the engine's rate and a worklet that plays what it is given.

export class Player {
  /** @param {(report: {type: string, played: number, queued: number, underruns: number}) => void} onReport */
  constructor(onReport) {
    this.onReport = onReport;
    this.context = null;
    this.node = null;
  }

  /** Must be called inside a tap or key press: browsers unlock sound only there. */
  async unlock(sampleRate) {
    if (!this.context || this.context.sampleRate !== sampleRate) {
      await this.context?.close();
      this.context = new AudioContext({ sampleRate, latencyHint: "interactive" });
      const resumed = this.context.resume();
      await this.context.audioWorklet.addModule("playback-worklet.js");
      this.node = new AudioWorkletNode(this.context, "playback", {
        numberOfInputs: 0,
        outputChannelCount: [1],
      });
      this.node.port.onmessage = ({ data }) => this.onReport(data);
      this.node.connect(this.context.destination);
      await resumed;
    } else if (this.context.state !== "running") {
      await this.context.resume();
    }
  }

  /** Forget everything and start counting from zero. */
  reset() {
    this.node?.port.postMessage({ type: "reset" });
  }

  /** Append samples; their buffer is handed over. */
  push(samples) {
    this.node?.port.postMessage({ samples }, [samples.buffer]);
  }

  /** Nothing follows. */
  end() {
    this.node?.port.postMessage({ type: "end" });
  }

  /** Be silent within 5 ms. */
  stop() {
    this.node?.port.postMessage({ type: "stop" });
  }
}
