// Voices: the list, a recording from the microphone or a file, the report about it.

import { VoiceRejected } from "./client.js";
import { endpoint } from "./connection.js";
import { lookup, t } from "./i18n.js";
import { Recorder } from "./recorder.js";

const ENOUGH_SPEECH_MS = 3000;
const GOAL_SPEECH_MS = 6000;
const LONGEST_MS = 12000;
const SIGNS = { ok: "✓", warn: "!", fail: "✗" };
const $ = (id) => document.getElementById(id);

export class Voices {
  /**
   * @param {import("./connection.js").Connection} connection
   * @param {(text: string | Error, detail?: string, gentle?: boolean) => void} say shows a message
   */
  constructor(connection, say) {
    this.connection = connection;
    this.say = say;
    this.recorder = new Recorder();
    this.recording = false;
    this.list = [];
    this.selected = null;
    this.report = null;
    $("record").addEventListener("click", () => (this.recording ? this.#finish() : this.#record()));
    $("file").addEventListener("change", (event) => this.#upload(event.target.files[0]));
    const drop = $("drop");
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.#upload(event.dataTransfer.files[0]);
    });
  }

  /** A new session: follow its recordings and show its voices. */
  attach(session) {
    session.on("progress", (event) => this.#progress(event));
    if (this.recording) this.#abandon();
    this.about();
    return this.refresh();
  }

  /** Say what this engine's voices are. */
  about() {
    const features = this.connection.session?.ready.engine.features ?? [];
    $("about").textContent = t(features.includes("cloning") ? "cloning" : "adaptation");
    $("strength-row").hidden = !features.includes("strength");
  }

  /** Read the list from the server. */
  async refresh() {
    try {
      const answer = await fetch(endpoint("/v1/voices"));
      if (answer.status === 401) return this.say(t("needKey"));
      this.list = (await answer.json()).voices;
    } catch {
      return undefined; // the connection says what is wrong
    }
    if (!this.list.some((voice) => voice.id === this.selected)) this.selected = this.list[0]?.id ?? null;
    return this.draw();
  }

  /** Show the list in the current language. */
  draw() {
    const rows = this.list.map((voice) => this.#row(voice));
    $("voices").replaceChildren(...rows);
    if (this.report) this.#showReport(this.report);
    $("record-text").textContent = t(this.recording ? "finish" : this.report ? "again" : "record");
  }

  #row(voice) {
    const row = document.createElement("li");
    const label = document.createElement("label");
    const radio = document.createElement("input");
    radio.type = "radio";
    radio.name = "voice";
    radio.value = voice.id;
    radio.checked = voice.id === this.selected;
    radio.addEventListener("change", () => {
      this.selected = voice.id;
    });
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = voice.name;
    const kind = document.createElement("span");
    kind.className = "kind";
    kind.textContent = t(voice.kind);
    label.append(radio, name, kind);
    row.append(label);
    if (voice.kind !== "builtin") {
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "quiet";
      remove.textContent = "✕";
      remove.setAttribute("aria-label", `${t("remove")}: ${voice.name}`);
      remove.addEventListener("click", () => this.#remove(voice.id));
      row.append(remove);
    }
    return row;
  }

  async #remove(id) {
    await fetch(endpoint(`/v1/voices/${encodeURIComponent(id)}`), { method: "DELETE" });
    await this.refresh();
  }

  // -- microphone ---------------------------------------------------------------------------------

  async #record() {
    const session = this.connection.live;
    if (!session || !this.#allowed()) return;
    if (!navigator.mediaDevices) return this.say(t("insecure"));
    this.say("");
    $("report").hidden = true;
    let begun = false;
    try {
      // Samples before the format is known would be noise to the server.
      const rate = await this.recorder.open((piece) => begun && session.record(piece));
      session.beginVoice({
        name: this.#name(),
        consent: t("consent"),
        persist: true,
        input: { encoding: "pcm_s16le", sample_rate: rate },
      });
      begun = true;
    } catch {
      await this.recorder.close();
      return this.say(t("noMicrophone"));
    }
    this.recording = true;
    this.#studio(true);
    return this.#progress({ captured_ms: 0, speech_ms: 0, level_dbfs: -96, hint: "speak" });
  }

  async #finish() {
    this.recording = false;
    await this.recorder.close();
    this.#studio(false);
    const session = this.connection.live;
    if (!session) return;
    $("hint").textContent = t("checking");
    try {
      const made = await session.commitVoice();
      await this.#made(made.voice, made.quality);
    } catch (error) {
      this.#refused(error);
    }
  }

  #abandon() {
    this.recording = false;
    this.recorder.close();
    this.#studio(false);
  }

  #studio(on) {
    $("record").setAttribute("aria-pressed", String(on));
    $("record-text").textContent = t(on ? "finish" : "again");
    $("ring").hidden = $("level").hidden = !on;
    if (!on) $("hint").textContent = "";
  }

  #progress(event) {
    if (!this.recording) return;
    const part = Math.min(1, event.speech_ms / GOAL_SPEECH_MS);
    $("ring-fill").style.strokeDasharray = `${100 * part} 100`;
    $("ring-text").textContent = (event.speech_ms / 1000).toFixed(1);
    const level = Math.max(0, Math.min(1, (event.level_dbfs + 60) / 55));
    $("level-fill").style.transform = `scaleX(${level})`;
    if (event.hint) $("hint").textContent = lookup("hints", event.hint, event.hint);
    if (event.captured_ms >= LONGEST_MS && event.speech_ms >= ENOUGH_SPEECH_MS) this.#finish();
  }

  // -- files --------------------------------------------------------------------------------------

  #upload(file) {
    $("file").value = "";
    if (!file || !this.#allowed()) return;
    this.say("");
    $("report").hidden = true;
    $("hint").textContent = t("checking");
    const bar = $("upload");
    bar.hidden = false;
    const query = { name: file.name.replace(/\.[^.]+$/, "").slice(0, 80), consent: t("consent"), persist: "true" };
    // fetch cannot report the progress of an upload
    const request = new XMLHttpRequest();
    request.open("POST", endpoint("/v1/voices", query));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = (event) => {
      bar.value = event.total ? event.loaded / event.total : 0;
    };
    request.onloadend = () => {
      bar.hidden = true;
      bar.value = 0;
      $("hint").textContent = "";
      const answer = request.response;
      if (request.status === 201) this.#made(answer.voice, answer.quality);
      else this.#refused(this.#problem(request.status, answer?.error));
    };
    request.send(file);
  }

  #problem(status, error) {
    if (error?.code === "voice_rejected") return new VoiceRejected(error);
    const problem = new Error(error?.message ?? t(status === 413 ? "tooLarge" : "lost"));
    problem.code = error?.code;
    problem.howToFix = error?.how_to_fix;
    return problem;
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

  async #made(voice, quality) {
    $("hint").textContent = "";
    this.selected = voice.id;
    this.report = { quality, rejected: null };
    await this.refresh();
    $("hear").focus();
  }

  #refused(error) {
    $("hint").textContent = "";
    if (error instanceof VoiceRejected) {
      this.report = { quality: error.quality, rejected: error };
      this.draw();
    } else {
      this.say(error);
    }
  }

  #showReport({ quality, rejected }) {
    $("report").hidden = false;
    $("hear").hidden = Boolean(rejected);
    const verdict = rejected ? "reportFail" : quality?.verdict === "warn" ? "reportWarn" : "reportOk";
    $("report-title").textContent = t(verdict);
    const items = (quality?.items ?? []).map((item) => reportRow(item));
    if (rejected && !items.length) {
      items.push(reportRow({ item: "", verdict: "fail", reason: rejected.reason, advice: `${rejected.message}. ${rejected.howToFix ?? ""}` }));
    }
    $("report-items").replaceChildren(...items);
  }
}

function reportRow({ item, value, unit, verdict, reason, advice }) {
  const row = document.createElement("li");
  row.className = verdict;
  const cell = (name, text) => {
    const node = document.createElement("span");
    node.className = name;
    node.textContent = text;
    return node;
  };
  row.append(cell("sign", SIGNS[verdict]), cell("item", item && lookup("items", item, item)), cell("value", figure(value, unit)));
  if (verdict !== "ok") row.append(cell("advice", lookup("advice", reason, advice)));
  return row;
}

/** A measured value as a person reads it. */
function figure(value, unit) {
  if (value === null || value === undefined) return "";
  if (unit === "ratio") return `${(100 * value).toFixed(1)} %`;
  if (unit === "Hz") return `${(value / 1000).toFixed(1)} kHz`;
  if (unit === "count") return value.toFixed(0);
  return `${value.toFixed(1)} ${unit ?? ""}`;
}
