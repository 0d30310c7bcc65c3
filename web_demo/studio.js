// A voice of one's own: record it, or choose or drop a file, and read the report.

import { VoiceRejected } from "./client.js";
import { endpoint } from "./connection.js";
import { lookup, t } from "./i18n.js";
import { Recorder } from "./recorder.js";
import { showReport } from "./report.js";

const ENOUGH_SPEECH_MS = 3000;
const GOAL_SPEECH_MS = 6000;
const LONGEST_MS = 15_000;
const PAUSE_AFTER_GOAL_MS = 500;
const PAUSE_AFTER_ENOUGH_MS = 1400;
const TAIL_MS = 300; // recorded after "Done", so that the last word is whole
const LEVEL_FLOOR_DBFS = -60;
const LEVEL_RANGE_DB = 55;
const $ = (id) => document.getElementById(id);

export class Studio {
  /**
   * @param {import("./connection.js").Connection} connection
   * @param {import("./voices.js").Voices} voices
   * @param {(message: string | Error, detail?: string, gentle?: boolean) => void} say shows a message
   * @param {() => void} onRecord called in the tap that begins a recording
   */
  constructor(connection, voices, say, onRecord) {
    this.connection = connection;
    this.voices = voices;
    this.say = say;
    this.onRecord = onRecord;
    this.recorder = new Recorder();
    this.state = "idle"; // opening, recording, closing, checking
    this.report = null;
    this.sending = false; // pieces that are still on their way from the audio thread must not follow a commit
    $("record").addEventListener("click", () => this.#tap());
    $("file").addEventListener("change", (event) => this.#upload(event.target.files[0]));
    this.#acceptDrops($("drop"));
    this.#reset();
    this.show();
  }

  /** A new session: follow its recordings. One that was under way is lost. */
  attach(session) {
    session.on("progress", (event) => this.#progress(event));
    session.on("error", () => this.state === "recording" && this.cancel());
    session.on("close", () => this.cancel());
  }

  /** Forget the recording that is under way. */
  cancel() {
    if (this.state !== "recording") return;
    this.sending = false;
    this.connection.live?.cancelVoice();
    this.recorder.close();
    this.#enter("idle");
  }

  /** Write the state in the current language. */
  show() {
    const recording = this.state === "recording" || this.state === "closing";
    const label = recording ? (this.speechMs >= ENOUGH_SPEECH_MS ? "finish" : "cancel") : this.report ? "again" : "record";
    $("record").setAttribute("aria-pressed", String(recording));
    $("record").disabled = ["opening", "closing", "checking"].includes(this.state);
    $("record-text").textContent = t(label);
    $("meter").hidden = !recording;
    const checking = this.state === "checking" ? t("checking") : "";
    const hint = recording ? lookup("hints", this.hint, this.hint) : checking;
    // Written only when it changes: screen readers read every writing aloud.
    if ($("hint").textContent !== hint) $("hint").textContent = hint;
    if (!this.report) return;
    const { quality, rejected } = this.report;
    showReport($("report-title"), $("report-items"), quality, rejected);
  }

  #enter(state) {
    this.state = state;
    this.show();
  }

  // -- microphone ---------------------------------------------------------------------------------

  #tap() {
    if (this.state === "idle") this.#record();
    else if (this.speechMs >= ENOUGH_SPEECH_MS) this.#finish();
    else {
      const seconds = (this.speechMs / 1000).toFixed(1);
      this.cancel();
      this.say(t("tooShort").replace("{}", seconds), "", true);
    }
  }

  async #record() {
    const session = this.connection.live;
    if (!this.#allowed()) return;
    if (!session) return void this.say(t("notYet"), "", true);
    if (!navigator.mediaDevices) return void this.say(t("insecure"));
    this.onRecord();
    this.#forget();
    this.#enter("opening");
    try {
      const rate = await this.recorder.open(
        (piece) => this.sending && session.record(piece),
        () => this.cancel(),
      );
      session.beginVoice({
        name: this.#name(),
        consent: t("consent"),
        persist: true,
        input: { encoding: "pcm_s16le", sample_rate: rate },
      });
      this.sending = true;
    } catch (error) {
      await this.recorder.close();
      this.#enter("idle");
      const reason = error.name === "NotAllowedError" ? "microphoneForbidden" : "noMicrophone";
      return void this.say(t(reason));
    }
    this.#reset();
    this.#enter("recording");
    if (!session.open) this.cancel();
  }

  #reset() {
    this.speechMs = 0;
    this.speechGrewAtMs = 0;
    this.hint = "speak";
    this.#draw(LEVEL_FLOOR_DBFS);
  }

  #progress(event) {
    if (this.state !== "recording") return;
    if (event.speech_ms > this.speechMs) this.speechGrewAtMs = event.captured_ms;
    this.speechMs = event.speech_ms;
    this.hint = event.hint;
    this.#draw(event.level_dbfs);
    this.show();
    const pauseMs = event.captured_ms - this.speechGrewAtMs;
    const done =
      (this.speechMs >= GOAL_SPEECH_MS && pauseMs >= PAUSE_AFTER_GOAL_MS) ||
      (this.speechMs >= ENOUGH_SPEECH_MS && (pauseMs >= PAUSE_AFTER_ENOUGH_MS || event.captured_ms >= LONGEST_MS));
    if (done) this.#finish();
  }

  #draw(levelDbfs) {
    const part = Math.min(1, this.speechMs / GOAL_SPEECH_MS);
    $("ring-fill").style.strokeDasharray = `${100 * part} 100`;
    $("ring").classList.toggle("enough", this.speechMs >= ENOUGH_SPEECH_MS);
    $("ring-text").textContent = (this.speechMs / 1000).toFixed(1);
    const level = Math.max(0, Math.min(1, (levelDbfs - LEVEL_FLOOR_DBFS) / LEVEL_RANGE_DB));
    $("level-fill").style.transform = `scaleX(${level})`;
  }

  async #finish() {
    const session = this.connection.live;
    if (this.state !== "recording" || !session) return;
    this.#enter("closing");
    await new Promise((resolve) => setTimeout(resolve, TAIL_MS));
    this.sending = false;
    await this.recorder.close();
    this.#enter("checking");
    try {
      const { voice, quality } = await session.commitVoice();
      await this.#made(voice, quality);
    } catch (error) {
      this.#refused(error);
    }
  }

  // -- files --------------------------------------------------------------------------------------

  #acceptDrops(place) {
    place.addEventListener("dragover", (event) => {
      event.preventDefault();
      place.classList.add("over");
    });
    place.addEventListener("dragleave", () => place.classList.remove("over"));
    place.addEventListener("drop", (event) => {
      event.preventDefault();
      place.classList.remove("over");
      this.#upload(event.dataTransfer.files[0]);
    });
  }

  #upload(file) {
    const most = this.connection.info?.limits.max_upload_bytes ?? Infinity;
    if (!file || this.state !== "idle" || !this.#allowed()) {
      $("file").value = ""; // so that the same file can be chosen again
      return;
    }
    this.#forget();
    if (file.size > most) {
      $("file").value = "";
      this.say(t("tooLarge").replace("{}", String(Math.floor(most / 1_000_000))));
      return;
    }
    this.#enter("checking");
    const query = { name: file.name.replace(/\.[^.]+$/, "").slice(0, 80), consent: t("consent"), persist: "true" };
    // fetch cannot report the progress of an upload
    const request = new XMLHttpRequest();
    request.open("POST", endpoint("/v1/voices", query));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    $("upload").hidden = false;
    request.upload.onprogress = (event) => {
      $("upload").value = event.total ? event.loaded / event.total : 0;
    };
    request.onloadend = () => {
      $("file").value = "";
      $("upload").hidden = true;
      $("upload").value = 0;
      const answer = request.response;
      if (request.status === 201) this.#made(answer.voice, answer.quality);
      else this.#refused(problem(request.status, answer?.error));
    };
    request.send(file);
  }

  // -- results ------------------------------------------------------------------------------------

  #allowed() {
    if ($("consent").checked) return true;
    this.say(t("consentFirst"), "", true);
    $("consent").focus();
    return false;
  }

  #name() {
    const clock = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return `${t("mine")} ${clock}`;
  }

  #forget() {
    this.say("");
    this.report = null;
    $("report").hidden = true;
  }

  async #made(voice, quality) {
    await this.voices.refresh(voice.id);
    this.#publish(quality, null);
    $("hear").focus();
  }

  #refused(error) {
    if (error instanceof VoiceRejected) {
      this.#publish(error.quality, error);
    } else {
      this.#enter("idle");
      this.say(error);
    }
  }

  #publish(quality, rejected) {
    this.report = { quality, rejected };
    $("hear").hidden = rejected !== null;
    $("report").hidden = false;
    this.#enter("idle");
    // Its end is the button that speaks; the hidden one has no place.
    (rejected ? $("report-title") : $("hear")).scrollIntoView({ block: "nearest" });
  }
}

/** The error of an HTTP answer; an answer that is none comes from a lost connection. */
function problem(status, error) {
  if (error?.code === "voice_rejected") return new VoiceRejected(error);
  const made = new Error(error?.message ?? "the connection was lost");
  made.code = error?.code ?? (status === 413 ? "limit_exceeded" : "connection_lost");
  made.howToFix = error?.how_to_fix;
  return made;
}
