// Chooses the language and puts its words on the page. Server messages come in English; what they mean in another
// language is chosen by their code.

import { recall, remember } from "./memory.js";
import { en } from "./words-en.js";
import { zh } from "./words-zh.js";

const WORDS = { en, zh };

let language = recall("language");
if (!Object.hasOwn(WORDS, language ?? "")) language = navigator.language.startsWith("zh") ? "zh" : "en";

/** Current language, "en" or "zh". */
export const currentLanguage = () => language;

/** The word for a key. */
export const t = (key) => WORDS[language][key] ?? key;

/** A word from one of the tables `hints`, `items`, `advice`, `errors`, `cures`, or the fallback. */
export const lookup = (table, key, fallback) => WORDS[language][table][key] ?? fallback;

/** Switch, remember, and rewrite the page. */
export function setLanguage(next) {
  if (next !== language) remember("language", next);
  language = next;
  document.documentElement.lang = next === "zh" ? "zh-CN" : "en";
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-label]")) {
    node.setAttribute("aria-label", t(node.dataset.tLabel));
    if (node.tagName === "BUTTON") node.title = t(node.dataset.tLabel);
  }
  for (const node of document.querySelectorAll("[data-t-placeholder]")) {
    node.placeholder = t(node.dataset.tPlaceholder);
  }
}
