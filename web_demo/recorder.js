// The microphone: 16-bit mono pieces at the device's own rate.

export class Recorder {
  constructor() {
    this.context = null;
    this.stream = null;
    this.source = null;
  }

  /**
   * Open the microphone. Must be called inside a tap or key press.
   *
   * @param {(piece: ArrayBuffer) => void} onPiece called every 40 ms
   * @returns {Promise<number>} sample rate in hertz
   */
  async open(onPiece) {
    this.stream = await navigator.mediaDevices.getUserMedia({
      // A reference should sound like the speaker, not like a telephone filter.
      audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    this.context = new AudioContext();
    await this.context.resume();
    await this.context.audioWorklet.addModule("capture-worklet.js");
    this.source = this.context.createMediaStreamSource(this.stream);
    const node = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => onPiece(data);
    this.source.connect(node);
    return this.context.sampleRate;
  }

  /** Let go of the microphone. */
  async close() {
    this.source?.disconnect();
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    await this.context?.close().catch(() => {});
    this.context = this.stream = this.source = null;
  }
}
