// The connection to the server: opened at once, opened again with growing pauses, its state said in words.

import { openCall } from "./call.js";
import { Session } from "./client.js";
import { t } from "./i18n.js";
import { recall, remember } from "./memory.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;

const apiKey = new URLSearchParams(location.search).get("api_key");

/** Address of an HTTP endpoint, with the key where the page was given one. */
export function endpoint(path, query = {}) {
  const url = new URL(path, location.href);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  if (apiKey) url.searchParams.set("api_key", apiKey);
  return url;
}

export class Connection {
  /**
   * @param {HTMLElement} lamp shows the state: connecting, ready, warming, lost or locked
   * @param {(session: Session) => void} onSession called with every session that is opened
   */
  constructor(lamp, onSession) {
    this.lamp = lamp;
    this.onSession = onSession;
    this.session = null;
    this.info = null; // answer of /v1/info
    this.calls = null; // answer of /v1/webrtc
    this.transport = recall("transport") === "webrtc" ? "webrtc" : "websocket";
    this.element = new Audio(); // plays calls
    this.state = "connecting";
    this.pauseMs = FIRST_PAUSE_MS;
    this.timer = null;
    // A phone that wakes up, or finds its network, should not sit out a pause.
    addEventListener("online", () => this.#hurry());
    document.addEventListener("visibilitychange", () => !document.hidden && this.#hurry());
  }

  /** Connect and stay connected. */
  async open() {
    this.timer = null;
    const state = await this.#look();
    if (state !== "ready") {
      this.#again(state);
      return;
    }
    try {
      const wanted = this.transport;
      const session = await this.#connect();
      if (wanted !== this.transport) {
        session.close(); // another was chosen meanwhile
        await this.open();
        return;
      }
      this.session = session;
      this.pauseMs = FIRST_PAUSE_MS;
      session.on("close", () => session === this.session && this.#again("lost"));
      this.show("ready");
      this.onSession(session);
    } catch (error) {
      this.#again(error.code === "busy" ? "full" : "lost");
    }
  }

  /** Go on over "websocket" or "webrtc", and remember it. */
  choose(transport) {
    this.transport = transport;
    remember("transport", transport);
    this.pauseMs = 0;
    this.session?.close();
  }

  /** Whether the server takes calls, and the browser makes them. */
  get canCall() {
    return this.calls?.available === true && "RTCPeerConnection" in window;
  }

  /** Show the state, in the current language. */
  show(state = this.state) {
    this.state = state;
    this.lamp.dataset.state = state;
    const engine = this.session?.ready.engine.name;
    this.lamp.lastElementChild.textContent = state === "ready" ? `${t("ready")} · ${engine}` : t(state);
  }

  /** The session if it can be used now. */
  get live() {
    return this.session?.open ? this.session : null;
  }

  #connect() {
    if (this.transport === "webrtc" && this.canCall) {
      const options = { element: this.element, iceServers: this.calls.ice_servers };
      return openCall(endpoint("/v1/webrtc/offer"), options);
    }
    const url = endpoint("/v1/stream");
    url.protocol = url.protocol.replace("http", "ws");
    return Session.open(url);
  }

  /** A refused socket does not say why; HTTP does: is there a server, is it warm, does it want a key? */
  async #look() {
    try {
      const ready = await fetch(endpoint("/readyz"), { cache: "no-store" });
      if (ready.status === 503) {
        // Also while it stops; a server that fails to start ends.
        return (await ready.json()).status === "starting" ? "warming" : "lost";
      }
      const known = await fetch(endpoint("/v1/info"), { cache: "no-store" });
      if (known.status === 401) return "locked";
      this.info = await known.json();
      this.calls = await (await fetch(endpoint("/v1/webrtc"), { cache: "no-store" })).json();
      return "ready";
    } catch {
      return this.session === null ? "connecting" : "lost";
    }
  }

  #again(state) {
    this.show(state);
    this.timer = setTimeout(() => this.open(), this.pauseMs);
    this.pauseMs = Math.min(LONGEST_PAUSE_MS, Math.max(FIRST_PAUSE_MS, this.pauseMs * 2));
  }

  #hurry() {
    if (this.timer === null) return;
    clearTimeout(this.timer);
    this.pauseMs = FIRST_PAUSE_MS;
    this.open();
  }
}
