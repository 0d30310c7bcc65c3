// The list of voices: choose one, delete one's own.

import { endpoint } from "./connection.js";
import { t } from "./i18n.js";

const SURE_MS = 4000;
const $ = (id) => document.getElementById(id);

export class Voices {
  /** @param {import("./connection.js").Connection} connection */
  constructor(connection) {
    this.connection = connection;
    this.list = [];
    this.selected = null;
  }

  /** Say what this engine makes of a recording, and offer only what it can do. */
  about() {
    const features = this.connection.session?.ready.engine.features ?? [];
    const clones = features.includes("cloning");
    $("about").textContent = t(clones ? "cloning" : "adaptation");
    $("strength-row").hidden = !features.includes("strength");
    $("pitch-row").hidden = !features.includes("pitch");
  }

  /** Read the list from the server, and choose `wanted` if it is there. */
  async refresh(wanted = this.selected) {
    try {
      const answer = await fetch(endpoint("/v1/voices"));
      if (!answer.ok) return;
      this.list = (await answer.json()).voices;
    } catch {
      return; // the connection says what is wrong
    }
    this.selected = this.list.some((voice) => voice.id === wanted) ? wanted : this.list[0]?.id ?? null;
    this.draw();
  }

  /** Show the list in the current language; the focus stays where it is. */
  draw() {
    const focused = $("voices").contains(document.activeElement);
    $("voices").replaceChildren(...this.list.map((voice) => this.#row(voice)));
    if (focused) $("voices").querySelector("input:checked")?.focus();
  }

  #row(voice) {
    const row = document.createElement("div");
    row.className = "voice";
    const label = document.createElement("label");
    const radio = document.createElement("input");
    radio.type = "radio";
    radio.name = "voice";
    radio.value = voice.id;
    radio.checked = voice.id === this.selected;
    radio.addEventListener("change", () => {
      this.selected = voice.id;
    });
    label.append(radio, part("name", voice.name), part("kind", t(voice.kind)));
    row.append(label);
    if (voice.kind !== "builtin") row.append(this.#remover(voice));
    return row;
  }

  /** A button that asks once more before it deletes: there is no way back. */
  #remover(voice) {
    const button = document.createElement("button");
    button.type = "button";
    let timer = null;
    const ask = (sure) => {
      clearTimeout(timer);
      timer = sure ? setTimeout(() => ask(false), SURE_MS) : null;
      button.className = sure ? "remove sure" : "remove quiet";
      button.textContent = sure ? t("sure") : "✕";
      button.setAttribute("aria-label", `${t(sure ? "sure" : "remove")}: ${voice.name}`);
      button.title = t("remove");
    };
    ask(false);
    button.addEventListener("click", () => (timer === null ? ask(true) : this.#remove(voice.id)));
    button.addEventListener("blur", () => ask(false));
    return button;
  }

  async #remove(id) {
    try {
      await fetch(endpoint(`/v1/voices/${encodeURIComponent(id)}`), { method: "DELETE" });
    } catch {
      return; // it stays in the list; the connection says what is wrong
    }
    await this.refresh();
  }
}

function part(name, text) {
  const node = document.createElement("span");
  node.className = name;
  node.textContent = text;
  return node;
}
