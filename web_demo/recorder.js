// The microphone: 16-bit mono pieces at the device's own rate.

const HIGHEST_HZ = 48_000; // that the server takes

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
   * @param {() => void} onLost called when the microphone goes away
   * @returns {Promise<number>} sample rate in hertz
   */
  async open(onPiece, onLost) {
    // Made before anything is awaited: Safari starts only what a tap made.
    this.context = new AudioContext();
    if (this.context.sampleRate > HIGHEST_HZ) {
      this.context.close();
      this.context = new AudioContext({ sampleRate: HIGHEST_HZ });
    }
    const { context } = this;
    const resumed = context.resume();
    this.stream = await navigator.mediaDevices.getUserMedia({
      // A reference should sound like the speaker, not like a telephone filter.
      audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    await resumed;
    await context.audioWorklet.addModule("capture-worklet.js");
    this.stream.getAudioTracks()[0].addEventListener("ended", onLost);
    this.source = context.createMediaStreamSource(this.stream);
    const node = new AudioWorkletNode(context, "capture", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => onPiece(data);
    this.source.connect(node);
    return context.sampleRate;
  }

  /** Let go of the microphone. */
  async close() {
    const { context, stream, source } = this;
    this.context = this.stream = this.source = null;
    source?.disconnect();
    for (const track of stream?.getTracks() ?? []) track.stop();
    await context?.close();
  }
}
