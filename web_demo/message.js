// A place where the page says something to the reader, or what went wrong and what to do about it.

import { lookup } from "./i18n.js";
import { sentence } from "./report.js";

/**
 * Make a place speak.
 *
 * @param {HTMLElement} box with role="alert"
 * @returns {{say: (message: string | Error, detail?: string, gentle?: boolean) => void, show: () => void}} `say` shows
 *   a message, or hides the box when it is empty; `show` says an error again, in the current language
 */
export function messageIn(box) {
  let lastError = null;

  function say(message, detail = "", gentle = false) {
    const failed = message instanceof Error;
    lastError = failed ? message : null;
    const text = failed ? lookup("errors", message.code, sentence(message.message)) : message;
    const cure = failed ? lookup("cures", message.code, message.howToFix && sentence(message.howToFix)) : detail;
    box.hidden = !text;
    box.className = gentle ? "message gentle" : "message";
    box.replaceChildren(text);
    if (cure) {
      const small = document.createElement("small");
      small.textContent = cure;
      box.append(small);
    }
    if (text) box.scrollIntoView({ block: "nearest" });
  }

  return { say, show: () => say(lastError ?? "") };
}
