// The report about a recording: one line per question, with advice in words where something is wrong.

import { lookup, t } from "./i18n.js";

const SIGNS = { ok: "✓", warn: "!", fail: "✗" };
const YES_OR_NO = new Set(["ending"]); // 0 or 1, which says nothing beside the sign

/**
 * Show a report.
 *
 * @param {HTMLElement} title gets the verdict
 * @param {HTMLElement} list gets the lines
 * @param {object | null} quality `quality` of the server's answer
 * @param {import("./client.js").VoiceRejected | null} rejected why there is no voice
 */
export function showReport(title, list, quality, rejected) {
  const verdict = rejected ? "fail" : quality?.verdict ?? "ok";
  title.textContent = t(`report_${verdict}`);
  title.className = verdict;
  const all = quality?.items ?? [];
  // Without speech its distance to the noise means nothing.
  const silent = all.some((item) => item.reason === "no_speech");
  const items = all.filter((item) => !(silent && item.item === "noise"));
  if (rejected && !items.some((item) => item.verdict === "fail")) {
    items.push({ verdict: "fail", reason: rejected.reason, message: rejected.message, advice: rejected.howToFix });
  }
  // What needs attention comes first.
  const order = ["fail", "warn", "ok"];
  items.sort((one, other) => order.indexOf(one.verdict) - order.indexOf(other.verdict));
  list.replaceChildren(...items.map(line));
}

function line({ item, value, unit, verdict, reason, message, advice }) {
  const row = document.createElement("li");
  row.className = verdict;
  const sign = cell("sign", SIGNS[verdict]);
  sign.setAttribute("role", "img");
  sign.setAttribute("aria-label", t(`sign_${verdict}`));
  row.append(sign, cell("item", item ? lookup("items", item, item) : t("problem")));
  row.append(cell("value", YES_OR_NO.has(item) ? "" : figure(value, unit)));
  if (verdict !== "ok") {
    const words = [message, advice].filter(Boolean).map(sentence).join(" ");
    row.append(cell("advice", lookup("advice", reason, words)));
  }
  return row;
}

function cell(name, text) {
  const node = document.createElement("span");
  node.className = name;
  node.textContent = text;
  return node;
}

/** A clause of the server as a sentence. */
export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?。！？]$/.test(begun) ? begun : `${begun}.`;
}

/** A measured value as a person reads it. */
function figure(value, unit) {
  if (value === null || value === undefined) return "";
  const minus = (text) => text.replace("-", "−");
  if (unit === "ratio") return `${(100 * value).toFixed(1)} %`;
  if (unit === "Hz") return `${(value / 1000).toFixed(1)} kHz`;
  if (unit === "count") return value.toFixed(0);
  return minus(`${value.toFixed(1)} ${unit ?? ""}`);
}
