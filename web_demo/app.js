// The page: wires text, voices, connection and language together.

import { Connection } from "./connection.js";
import { currentLanguage, lookup, setLanguage, t } from "./i18n.js";
import { Speech } from "./speech.js";
import { Voices } from "./voices.js";

const EXAMPLES = [
  "Hello, and welcome. It is good to hear from you. How can I help you today?",
  "Turn left at the next corner, then walk straight on until you see the bridge. The museum is on the other side, next to a small café.",
  "Your order of 3 items comes to $47.50. It was shipped on March 3rd, 2026, and should arrive between 9:30 and 11 am.",
  "The lighthouse keeper had not spoken to anyone for eleven days when the boat appeared. At first it was only a dark line between two waves, so faint that he took it for a piece of driftwood. Then it turned, and the evening sun caught its sail. He put down his cup, went to the window, and counted the people on board: two, perhaps three. Nobody came out here in October. He took his coat from the hook, lit the lamp an hour early, and went down the hundred and twelve steps to the landing.",
];
const RANGES = { speed: (v) => `${v.toFixed(2)}×`, pitch: (v) => `${v > 0 ? "+" : ""}${v}`, volume: (v) => `${Math.round(100 * v)}%`, strength: (v) => `${Math.round(100 * v)}%` };
const $ = (id) => document.getElementById(id);
let lastError = null; // said again when the language changes

/** Show a message, or an error with its cure; an empty text hides it. */
function say(message, detail = "", gentle = false) {
  lastError = message instanceof Error ? message : null;
  const box = $("message");
  const failed = message instanceof Error;
  const text = failed ? lookup("errors", message.code, message.message) : message;
  const cure = failed ? message.howToFix ?? "" : detail;
  box.hidden = !text;
  box.className = gentle ? "message gentle" : "message";
  box.replaceChildren(text);
  if (cure) {
    const small = document.createElement("small");
    small.textContent = cure;
    box.append(small);
  }
}

const connection = new Connection($("link"), (session) => {
  session.on("error", say);
  voices.attach(session);
  $("speak").disabled = false;
});
const voices = new Voices(connection, say);
const speech = new Speech(connection, say);

function options() {
  const chosen = { voice: voices.selected ?? undefined };
  for (const name of Object.keys(RANGES)) chosen[name] = Number($(name).value);
  if ($("seed").value !== "") chosen.seed = Number($("seed").value);
  if ($("strength-row").hidden) delete chosen.strength;
  return chosen;
}

function speak() {
  const text = $("text").value;
  if (!text.trim()) {
    say(t("noText"), "", true);
    $("text").focus();
    return;
  }
  speech.start(text, options());
}

function count() {
  $("count").textContent = `${Array.from($("text").value).length} ${t("characters")}`;
}

function figures() {
  for (const [name, show] of Object.entries(RANGES)) {
    $(name).nextElementSibling.textContent = show(Number($(name).value));
  }
}

function examples() {
  const buttons = t("exampleNames").map((name, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      $("text").value = EXAMPLES[index];
      count();
      $("text").focus();
    });
    return button;
  });
  $("examples").replaceChildren(...buttons);
}

function show(language) {
  setLanguage(language);
  $("language").textContent = language === "zh" ? "English" : "中文";
  $("language").lang = language === "zh" ? "en" : "zh";
  examples();
  count();
  figures();
  connection.show();
  if (lastError) say(lastError);
  voices.about();
  voices.draw();
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  speech.waveform.draw();
}

$("speak").addEventListener("click", speak);
$("stop").addEventListener("click", () => speech.stop());
$("hear").addEventListener("click", speak);
$("download").addEventListener("click", () => speech.download());
$("text").addEventListener("input", count);
for (const name of Object.keys(RANGES)) $(name).addEventListener("input", figures);
$("language").addEventListener("click", () => show(currentLanguage() === "zh" ? "en" : "zh"));
$("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const current = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = current === "dark" ? "light" : "dark";
  localStorage.setItem("theme", next);
  setTheme(next);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speak();
  } else if (event.key === "Escape") {
    speech.stop();
  }
});

$("text").value = EXAMPLES[0];
show(currentLanguage());
setTheme(localStorage.getItem("theme"));
connection.open();

/** For tests and the console: what is connected, spoken and known. */
window.cosyvoiceDemo = { connection, speech, voices };
