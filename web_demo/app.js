// The page: wires text, voices, recording, connection and language together.

import { Connection } from "./connection.js";
import { currentLanguage, setLanguage, t } from "./i18n.js";
import { remember } from "./memory.js";
import { messageIn } from "./message.js";
import { Speech } from "./speech.js";
import { Studio } from "./studio.js";
import { EXAMPLES } from "./texts.js";
import { Voices } from "./voices.js";

const MINUS = "−";
const percent = (value) => `${Math.round(100 * value)} %`;
const RANGES = {
  speed: (value) => `${value.toFixed(2)} ×`,
  pitch: (value) => (value > 0 ? `+${value}` : String(value).replace("-", MINUS)),
  volume: percent,
  strength: percent,
};
const NEARLY_FULL = 0.8; // of the longest text: the limit is shown from here on
const $ = (id) => document.getElementById(id);

const message = messageIn($("message"));
const studioMessage = messageIn($("studio-message"));

const connection = new Connection($("link"), (session) => {
  session.on("error", (error) => message.say(error));
  studio.attach(session);
  ways();
  voices.about();
  voices.refresh();
  examples();
  count();
});
const voices = new Voices(connection);
const speech = new Speech(connection, message.say);
const studio = new Studio(connection, voices, studioMessage.say, () => {
  speech.stop(); // the microphone would hear it
  // This tap unlocks the sound for the voice that comes of it; without a sound device, Speak will say so.
  speech.player.unlock(speech.sampleRate).catch(() => {});
});

function options() {
  const chosen = { voice: voices.selected ?? undefined };
  for (const name of Object.keys(RANGES)) {
    if (!$(`${name}-row`).hidden) chosen[name] = Number($(name).value);
  }
  if ($("seed").value !== "") chosen.seed = Number($("seed").value);
  return chosen;
}

function speak(event) {
  const text = $("text").value;
  if (!text.trim()) {
    message.say(t("noText"), "", true);
    $("text").focus();
    return;
  }
  if (!$("seed").checkValidity()) {
    message.say(t("badSeed"), "", true);
    $("seed").focus();
    return;
  }
  speech.start(text, options(), event.timeStamp);
}

/** Which way to the server is taken; a way that is closed says why. */
function ways() {
  const [, call] = $("transport").options;
  call.disabled = connection.calls !== null && !connection.canCall;
  call.textContent = call.disabled ? t("noCalls") : "WebRTC";
  $("transport").value = call.disabled ? "websocket" : connection.transport;
}

function count() {
  const characters = Array.from($("text").value).length;
  const most = connection.session?.ready.limits.max_utterance_chars ?? Infinity;
  const limit = characters > NEARLY_FULL * most ? ` / ${most}` : "";
  $("count").textContent = `${characters}${limit} ${t("characters")}`;
  $("count").classList.toggle("over", characters > most);
}

function figures() {
  for (const [name, show] of Object.entries(RANGES)) {
    const value = show(Number($(name).value));
    $(`${name}-row`).querySelector("[data-value]").textContent = value;
    $(name).setAttribute("aria-valuetext", value);
  }
}

/** Buttons for texts in a language that the engine speaks, the reader's own if it can. */
function examples() {
  const spoken = connection.session?.ready.engine.languages ?? ["en"];
  const language = spoken.some((tag) => tag.startsWith(currentLanguage())) ? currentLanguage() : "en";
  const texts = EXAMPLES[language];
  const buttons = t("exampleNames").map((name, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      $("text").value = texts[index];
      count();
      $("text").focus({ preventScroll: true });
    });
    return button;
  });
  $("examples").replaceChildren(...buttons);
}

function show(language) {
  setLanguage(language);
  $("language").textContent = language === "zh" ? "English" : "中文";
  $("language").lang = language === "zh" ? "en" : "zh-CN";
  const command = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";
  $("keys").textContent = t("keys").replace("{}", command);
  examples();
  ways();
  count();
  figures();
  connection.show();
  speech.show();
  studio.show();
  message.show();
  studioMessage.show();
  voices.about();
  voices.draw();
}

$("speak").addEventListener("click", speak);
$("stop").addEventListener("click", () => speech.stop());
$("transport").addEventListener("change", () => {
  speech.stop();
  connection.choose($("transport").value);
});
$("hear").addEventListener("click", speak);
$("download").addEventListener("click", () => speech.download());
$("text").addEventListener("input", count);
for (const name of Object.keys(RANGES)) $(name).addEventListener("input", figures);
$("reset").addEventListener("click", () => {
  for (const name of Object.keys(RANGES)) $(name).value = $(name).defaultValue;
  $("seed").value = "";
  figures();
});
$("language").addEventListener("click", () => show(currentLanguage() === "zh" ? "en" : "zh"));
$("theme").addEventListener("click", () => {
  const { dataset } = document.documentElement;
  dataset.theme = dataset.theme === "dark" ? "light" : "dark";
  remember("theme", dataset.theme);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speak(event);
  } else if (event.key === "Escape") {
    speech.stop();
    studio.cancel();
  }
});
// The sound takes a moment to wake up; any gesture before the one that speaks allows it. Speak says if there is none.
const wake = () => speech.player.unlock(connection.session?.ready.engine.sample_rate ?? speech.sampleRate).catch(() => {});
for (const name of ["pointerdown", "keydown"]) addEventListener(name, wake, { once: true });
// A file that misses its place must not replace the page.
for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());

$("text").value = EXAMPLES.en[0];
show(currentLanguage());
connection.open();

/** For tests and the console: what is connected, spoken and known. */
window.cosyvoiceDemo = { connection, speech, studio, voices };
