// Speaking: text to sound, with meters, waveform, captions and a WAV of what was received.

import { t } from "./i18n.js";
import { Player } from "./player.js";
import { Waveform } from "./waveform.js";

const PLAYBACK_REPORT_MS = 500;
const $ = (id) => document.getElementById(id);

export class Speech {
  /**
   * @param {import("./connection.js").Connection} connection
   * @param {(text: string, detail?: string, gentle?: boolean) => void} say shows a message
   */
  constructor(connection, say) {
    this.connection = connection;
    this.say = say;
    this.player = new Player((report) => this.#onReport(report));
    this.waveform = new Waveform($("waveform"));
    this.utterance = null;
    this.chunks = [];
    this.receivedSamples = 0;
    this.sampleRate = 24000;
    this.words = [];
    this.report = { played: 0, queued: 0, underruns: 0 };
    this.firstAudioMs = null;
    this.reportedAt = 0;
  }

  /** Speak; must be called inside a tap or key press. */
  async start(text, options) {
    const session = this.connection.live;
    if (!session) return;
    const tapped = performance.now();
    this.utterance?.cancel();
    const sampleRate = session.ready.engine.sample_rate;
    this.#clear(text, sampleRate);
    this.tapped = tapped;
    await this.player.unlock(sampleRate);
    this.player.reset();
    const output = { encoding: "pcm_s16le", sample_rate: sampleRate };
    const utterance = session.speak(text, { ...options, output, marks: ["word"] });
    this.utterance = utterance;
    utterance.on("audio", (samples) => this.#onAudio(utterance, samples));
    utterance.on("marks", ({ words }) => this.#onWords(utterance, words));
    utterance.on("end", (event, error) => this.#onEnd(utterance, event, error));
    this.#buttons();
  }

  /** Stop at once, here and in the server. */
  stop() {
    if (!this.active) return;
    this.player.stop();
    const utterance = this.utterance;
    if (utterance && !utterance.finished) {
      utterance.played(this.playedMs);
      utterance.cancel();
    }
    this.#idle();
  }

  /** Whether something is spoken or still played. */
  get active() {
    return this.utterance !== null;
  }

  get playedMs() {
    return (1000 * this.report.played) / this.sampleRate;
  }

  /** Everything that was received, for tests and for the download. */
  get received() {
    const whole = new Float32Array(this.receivedSamples);
    let position = 0;
    for (const chunk of this.chunks) {
      whole.set(chunk, position);
      position += chunk.length;
    }
    return whole;
  }

  /** Save what was received as a WAV file. */
  download() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(wavBlob(this.received, this.sampleRate));
    link.download = "speech.wav";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  #clear(text, sampleRate) {
    this.chunks = [];
    this.receivedSamples = 0;
    this.words = [];
    this.sampleRate = sampleRate;
    this.report = { played: 0, queued: 0, underruns: 0 };
    this.firstAudioMs = null;
    this.waveform.reset(sampleRate);
    // Positions of words count code points, as the server does.
    this.characters = Array.from(text);
    this.captioned = 0;
    $("caption").replaceChildren();
    for (const id of ["m-first", "m-server", "m-rtf", "m-length", "m-lead"]) $(id).textContent = "–";
    $("m-underruns").textContent = "0";
    $("download").disabled = true;
    this.say("");
  }

  #onAudio(utterance, samples) {
    if (utterance !== this.utterance || !samples.length) return;
    this.chunks.push(samples);
    this.receivedSamples += samples.length;
    this.waveform.push(samples);
    this.player.push(samples.slice());
    $("m-length").textContent = (this.receivedSamples / this.sampleRate).toFixed(2);
    $("download").disabled = false;
  }

  #onWords(utterance, words) {
    if (utterance !== this.utterance) return;
    const caption = $("caption");
    for (const word of words) {
      caption.append(this.characters.slice(this.captioned, word.char_start).join(""));
      const node = document.createElement("span");
      node.textContent = this.characters.slice(word.char_start, word.char_end).join("");
      caption.append(node);
      this.captioned = word.char_end;
      this.words.push({ node, start: word.start_ms, end: word.end_ms });
    }
  }

  #onEnd(utterance, event, error) {
    if (utterance !== this.utterance) return;
    this.player.end();
    if (error) {
      this.say(error);
      this.player.stop();
      this.#idle();
      return;
    }
    if (event.type !== "utterance.done") return;
    $("caption").append(this.characters.slice(this.captioned).join(""));
    if (event.first_audio_ms === null) {
      this.say(t("nothing"), "", true);
      this.#idle();
      return;
    }
    $("m-server").textContent = event.first_audio_ms.toFixed(0);
    $("m-rtf").textContent = event.rtf.toFixed(3);
  }

  #onReport(report) {
    this.report = report;
    if (report.type === "stopped" || !this.active) return;
    if (report.type === "heard") {
      this.firstAudioMs = performance.now() - this.tapped;
      $("m-first").textContent = this.firstAudioMs.toFixed(0);
    }
    $("m-lead").textContent = (report.queued / this.sampleRate).toFixed(2);
    $("m-underruns").textContent = report.underruns;
    this.waveform.play(report.played / this.sampleRate);
    this.#highlight(this.playedMs);
    const now = performance.now();
    if (now - this.reportedAt > PLAYBACK_REPORT_MS) {
      this.reportedAt = now;
      this.utterance.played(this.playedMs);
    }
    if (report.type === "finished") this.#idle();
  }

  #highlight(ms) {
    for (const { node, start, end } of this.words) {
      const now = ms >= start && ms < end;
      if (now && !node.classList.contains("now")) node.scrollIntoView?.({ block: "nearest" });
      node.classList.toggle("now", now && this.active);
      node.classList.toggle("said", ms >= end);
    }
  }

  #idle() {
    this.utterance = null;
    for (const { node } of this.words) node.classList.remove("now");
    this.#buttons();
  }

  #buttons() {
    $("stop").disabled = !this.active;
  }
}

/** A WAV file of mono float samples, 16 bit. */
export function wavBlob(samples, sampleRate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (offset, value) => [...value].forEach((c, i) => view.setUint8(offset + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, 2 * sampleRate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, i) => {
    view.setInt16(44 + 2 * i, Math.max(-32768, Math.min(32767, Math.round(sample * 32768))), true);
  });
  return new Blob([view.buffer], { type: "audio/wav" });
}
