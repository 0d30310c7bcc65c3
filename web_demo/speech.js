// Speaking: text to sound, with meters, scope, caption and a WAV of what was received.

import { CallPlayer } from "./call-player.js";
import { Caption } from "./caption.js";
import { t } from "./i18n.js";
import { Player } from "./player.js";
import { wavBlob } from "./wav.js";
import { Waveform } from "./waveform.js";

const PLAYBACK_REPORT_MS = 500;
const BUSY_PAUSE_MS = 1000;
const MAX_TRIES = 30;
const KEEP_LINK_MS = 60_000;
const $ = (id) => document.getElementById(id);

export class Speech {
  /**
   * @param {import("./connection.js").Connection} connection
   * @param {(message: string | Error, detail?: string, gentle?: boolean) => void} say shows a message
   */
  constructor(connection, say) {
    this.connection = connection;
    this.say = say;
    const onReport = (report) => this.#onReport(report);
    this.loudspeaker = new Player(onReport);
    this.line = new CallPlayer(connection.element, onReport, (samples) => this.#onAudio(samples, false));
    this.player = this.loudspeaker;
    this.waveform = new Waveform($("waveform"));
    this.caption = new Caption($("caption"));
    this.attempt = null; // what is spoken or played now: {text, options, utterance, tries, ...}
    this.state = "idle";
    this.chunks = [];
    this.receivedSamples = 0;
    this.sampleRate = 24000;
    this.report = null;
    this.firstAudioMs = null;
  }

  /**
   * Speak; must be called inside a tap or key press.
   *
   * @param {number} tapped when that was, on the clock of `performance.now`
   */
  start(text, options, tapped) {
    const session = this.connection.live;
    if (!session) {
      this.say(t("notYet"), "", true);
      return;
    }
    this.attempt?.utterance?.cancel();
    if (session.call) this.line.take(session.call);
    this.player = session.call ? this.line : this.loudspeaker;
    const attempt = { text, options, tapped, session, utterance: null, tries: 0, reportedAt: tapped };
    this.attempt = attempt;
    this.#clear(text, session.ready.engine.sample_rate);
    // The request is on its way while the sound wakes up.
    this.player.begin();
    this.#request(attempt);
    this.player.unlock(this.sampleRate).catch(() => {
      if (attempt !== this.attempt) return;
      this.stop();
      this.say(t("noSound"));
    });
    this.#show("waiting");
    this.#follow(attempt);
  }

  /** Stop at once, here and in the server. */
  stop() {
    const { attempt } = this;
    if (!attempt) return;
    this.player.stop();
    attempt.utterance?.played(this.playedMs);
    attempt.utterance?.cancel();
    this.#finish("stopped");
  }

  /** Whether something is spoken or still played. */
  get active() {
    return this.attempt !== null;
  }

  get playedMs() {
    return 1000 * this.player.heardS;
  }

  /** Everything that was received, for the download and for tests. */
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
    setTimeout(() => URL.revokeObjectURL(link.href), KEEP_LINK_MS); // Safari reads it later
  }

  /** Write the state in the current language. */
  show() {
    $("state").textContent = t(`state_${this.state}`);
    $("state").dataset.state = this.state;
    $("stop").disabled = !this.active;
  }

  #request(attempt) {
    const output = { encoding: "pcm_s16le", sample_rate: this.sampleRate };
    const utterance = attempt.session.speak(attempt.text, { ...attempt.options, output, marks: ["word"] });
    const current = (act) => (...values) => utterance === this.attempt?.utterance && act(...values);
    attempt.utterance = utterance;
    attempt.tries += 1;
    utterance.on("audio", current((samples, _position, last) => this.#onAudio(samples, last)));
    utterance.on("position", current((position) => this.line.at(position)));
    utterance.on("marks", current(({ words }) => this.caption.add(words)));
    utterance.on("end", current((event, error) => this.#onEnd(event, error)));
  }

  #clear(text, sampleRate) {
    this.chunks = [];
    this.receivedSamples = 0;
    this.sampleRate = sampleRate;
    this.report = null;
    this.firstAudioMs = null;
    this.waveform.reset(sampleRate);
    this.caption.reset(text);
    for (const id of ["m-first", "m-server", "m-rtf", "m-length", "m-lead"]) $(id).textContent = "–";
    $("m-underruns").textContent = "0";
    $("download").disabled = true;
    this.say("");
  }

  #onAudio(samples, last) {
    if (samples.length) {
      this.chunks.push(samples);
      this.receivedSamples += samples.length;
      this.waveform.push(samples);
      this.player.push(samples.slice());
      $("m-length").textContent = (this.receivedSamples / this.sampleRate).toFixed(2);
      $("download").disabled = false;
    }
    if (last) this.player.end();
  }

  #onEnd(event, error) {
    const { attempt } = this;
    if (error?.code === "busy" && attempt.tries < MAX_TRIES) {
      this.#show("queued");
      setTimeout(() => attempt === this.attempt && this.#request(attempt), error.retryAfterMs ?? BUSY_PAUSE_MS);
      return;
    }
    this.player.end(event?.audio_ms ?? 0); // what has arrived is played
    if (error) this.say(error);
    const silent = this.player === this.line ? !event?.audio_ms : !this.receivedSamples;
    if (silent) this.#finish(error ? "failed" : "idle");
    if (event?.type !== "utterance.done") return;
    if (event.first_audio_ms === null) {
      this.say(t("nothing"), "", true);
      return;
    }
    $("m-server").textContent = event.first_audio_ms.toFixed(0);
    $("m-rtf").textContent = event.rtf.toFixed(3);
  }

  #onReport(report) {
    this.report = report;
    if (!this.active) return;
    if (report.type === "heard") {
      this.firstAudioMs = performance.now() - this.attempt.tapped;
      $("m-first").textContent = this.firstAudioMs.toFixed(0);
      this.#show("speaking");
    }
    $("m-lead").textContent = (report.queued / this.sampleRate).toFixed(2);
    $("m-underruns").textContent = report.underruns;
    const now = performance.now();
    if (now - this.attempt.reportedAt > PLAYBACK_REPORT_MS) {
      this.attempt.reportedAt = now;
      this.attempt.utterance.played(this.playedMs);
    }
    if (report.type === "finished") this.#finish("finished");
  }

  /** Move the play head and the lit word with every picture, as long as this attempt lasts. */
  #follow(attempt) {
    if (attempt !== this.attempt) return;
    this.waveform.play(this.player.heardS);
    this.caption.at(this.playedMs);
    requestAnimationFrame(() => this.#follow(attempt));
  }

  #finish(state) {
    if (state === "finished") this.waveform.play(this.receivedSamples / this.sampleRate);
    this.attempt = null;
    this.caption.at(this.playedMs);
    this.caption.quiet();
    $("m-lead").textContent = this.receivedSamples ? "0.00" : "–";
    this.#show(state);
  }

  #show(state) {
    this.state = state;
    this.show();
  }
}
