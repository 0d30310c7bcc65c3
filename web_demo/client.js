/**
 * A client of the protocol `cosyvoice-stream.v1`, without dependencies.
 *
 *     import { Session } from "./client.js";
 *     const session = await Session.open("ws://127.0.0.1:8000/v1/stream");
 *     const utterance = session.speak("Hello there.", { voice: "heart", marks: ["word"] });
 *     utterance.on("audio", (samples, position) => player.push(samples));
 *     const done = await utterance.ended;
 *     const { voice } = await session.clone(int16Samples, { consent: "my own voice", input: { sample_rate: 16000 } });
 *     session.speak(fragmentsOfAnLlm(), { voice: voice.id });
 *
 * `speak` takes a string, an array or an async iterable of fragments. Several utterances may be open at once; the
 * server speaks them in order. Samples are Float32Array, mono, at `output.sample_rate` (24000 unless asked otherwise).
 * Stop one utterance with `utterance.cancel()`, all of them with `session.cancel()`.
 */

export const PROTOCOL = "cosyvoice-stream.v1";
const HEADER_BYTES = 12;
const MAX_DELTA_CHARS = 16384;
const MAX_PIECE_SAMPLES = 16384;

/** An `error` of the server: `code`, `message`, `howToFix`, `retryAfterMs`. */
export class ServerError extends Error {
  constructor(event) {
    super(event.message);
    this.name = "ServerError";
    this.code = event.code;
    this.howToFix = event.how_to_fix ?? null;
    this.retryAfterMs = event.retry_after_ms ?? null;
  }
}

/** There is no server, or no more; its `code` is `connection_lost`. */
export class ConnectionLost extends Error {
  constructor(message) {
    super(message);
    this.name = "ConnectionLost";
    this.code = "connection_lost";
  }
}

/** A recording that cannot be used: `reason`, `message`, `howToFix`, `quality`. */
export class VoiceRejected extends Error {
  constructor(event) {
    super(event.message);
    this.name = "VoiceRejected";
    this.reason = event.reason;
    this.howToFix = event.how_to_fix ?? null;
    this.quality = event.quality ?? null;
  }
}

/** The audio of a frame: samples where the encoding is plain, otherwise its bytes. */
function decode(data, encoding) {
  if (encoding === "pcm_f32le") return new Float32Array(data.slice(HEADER_BYTES));
  if (encoding !== "pcm_s16le") return new Uint8Array(data.slice(HEADER_BYTES));
  const view = new DataView(data, HEADER_BYTES);
  const samples = new Float32Array(view.byteLength >> 1);
  for (let i = 0; i < samples.length; i++) samples[i] = view.getInt16(2 * i, true) / 32768;
  return samples;
}

/** Pieces that fit into messages. */
function* slices(samples) {
  for (let start = 0; start < samples.length; start += MAX_PIECE_SAMPLES) {
    yield samples.subarray(start, start + MAX_PIECE_SAMPLES);
  }
}

const isHighSurrogate = (unit) => unit >= 0xd800 && unit < 0xdc00;

/** Calls listeners by event name. */
class Emitter {
  #listeners = new Map();

  /** Call `listener` for every event `name`; returns this. */
  on(name, listener) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, []);
    this.#listeners.get(name).push(listener);
    return this;
  }

  /** Used by the session. */
  emit(name, ...values) {
    for (const listener of this.#listeners.get(name) ?? []) listener(...values);
  }
}

/**
 * One utterance. Events: `started` (what to expect), `audio` (samples, position of the first of them, whether it is the
 * last frame), `marks` ({words, visemes}), `end`; over WebRTC `position` ({sample, rtp_timestamp}) for `audio`. Samples are a Float32Array for `pcm_s16le` and `pcm_f32le`; other
 * encodings come as the Uint8Array of their bytes. `ended` resolves with the server's `utterance.done` or `utterance.cancelled`, and
 * rejects with a ServerError or ConnectionLost.
 */
export class Utterance extends Emitter {
  #session;
  #settle;

  constructor(session, id) {
    super();
    this.#session = session;
    this.id = id;
    this.number = null;
    this.sampleRate = null;
    this.encoding = null;
    this.finished = false;
    this.ended = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.ended.catch(() => {}); // callers may listen to events only
  }

  /** Append text. */
  push(text) {
    for (let start = 0; start < text.length; ) {
      let end = Math.min(text.length, start + MAX_DELTA_CHARS);
      // A character outside the basic plane is a pair; halves of it would be two broken characters.
      if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end -= 1;
      this.#session.send({ type: "text.delta", id: this.id, text: text.slice(start, end) });
      start = end;
    }
  }

  /** Speak what has arrived without waiting for the end of the clause. */
  flush() {
    this.#session.send({ type: "text.flush", id: this.id });
  }

  /** No more text. */
  end() {
    if (!this.finished) this.#session.send({ type: "utterance.end", id: this.id });
  }

  /** Stop it; `ended` resolves with what was heard. */
  cancel() {
    if (!this.finished) this.#session.send({ type: "utterance.cancel", id: this.id });
    return this.ended;
  }

  /** Tell the server how much has been played, which makes the answer to a cancel exact. */
  played(milliseconds) {
    if (!this.finished) {
      this.#session.send({ type: "playback", id: this.id, played_ms: Math.max(0, milliseconds) });
    }
  }

  /** Used by the session. */
  settle(event, error = null) {
    if (this.finished) return;
    this.finished = true;
    if (error) this.#settle.reject(error);
    else this.#settle.resolve(event);
    this.emit("end", event, error);
  }
}

/** One connection. Events: `progress` (of a recording), `error` (that belongs to no utterance), `close`. */
export class Session extends Emitter {
  #socket;
  #ids = 0;
  #live = new Map();
  #byNumber = new Map();
  #voice = null;

  constructor(socket, ready) {
    super();
    this.#socket = socket;
    /** The server's `session.ready`: engine, limits, settings. */
    this.ready = ready;
    socket.onmessage = (message) => this.#receive(message.data);
    socket.onclose = (event) => this.#closed(event);
  }

  /** Connect and wait for `session.ready`. Rejects with a ServerError or an Error. */
  static open(url) {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url, [PROTOCOL]);
      socket.binaryType = "arraybuffer";
      socket.onclose = () => reject(new ConnectionLost("no server answers"));
      socket.onmessage = (message) => {
        const event = JSON.parse(message.data);
        if (event.type === "session.ready") resolve(new Session(socket, event));
        else if (event.type === "error") reject(new ServerError(event));
      };
    });
  }

  /**
   * Start an utterance.
   *
   * @param {string | string[] | AsyncIterable<string>} text what to say
   * @param {object} options voice, speed, pitch, volume, seed, strength, language, marks, output, text
   */
  speak(text, options = {}) {
    const utterance = new Utterance(this, `u${++this.#ids}`);
    if (!this.open) {
      // Not at once: the caller has still to listen.
      queueMicrotask(() => utterance.settle(null, new ConnectionLost("the connection was lost")));
      return utterance;
    }
    this.#live.set(utterance.id, utterance);
    const start = { type: "utterance.start", id: utterance.id, ...options };
    if (this.#socket.hasTrack) delete start.output; // a call has the format of its track
    else start.output = { encoding: "pcm_s16le", ...(options.output ?? {}) };
    this.send(start);
    if (typeof text === "string") {
      utterance.push(text);
      utterance.end();
    } else {
      this.#feed(utterance, text);
    }
    return utterance;
  }

  async #feed(utterance, fragments) {
    try {
      for await (const fragment of fragments) {
        if (utterance.finished) return;
        utterance.push(fragment);
      }
      utterance.end();
    } catch (error) {
      utterance.cancel();
      utterance.settle(null, error);
    }
  }

  /** Change the defaults of utterances that are started afterwards. */
  update(options) {
    this.send({ type: "session.update", ...options });
  }

  /**
   * Begin a recording; send frames with `record` and finish with `commit`.
   *
   * @param {object} options name, transcript, consent, persist, input {encoding, sample_rate}
   */
  beginVoice(options) {
    this.send({ type: "voice.begin", ...options });
  }

  /** Send 16-bit samples of the recording. */
  record(samples) {
    if (this.open) this.#socket.send(samples);
  }

  /** Finish the recording; resolves with `voice.ready`, rejects with VoiceRejected or ServerError. */
  commitVoice() {
    if (!this.open) return Promise.reject(new ConnectionLost("the connection was lost"));
    return new Promise((resolve, reject) => {
      this.#voice = { resolve, reject };
      this.send({ type: "voice.commit" });
    });
  }

  /** Forget the recording. */
  cancelVoice() {
    this.send({ type: "voice.cancel" });
  }

  /**
   * Make a voice from a recording that is already there: `beginVoice`, `record` and `commitVoice` in one.
   *
   * @param {Int16Array | Iterable<Int16Array> | AsyncIterable<Int16Array>} recording mono samples
   * @param {object} options as for `beginVoice`; `input` says the sample rate
   * @returns {Promise<object>} `voice.ready`
   */
  async clone(recording, options = {}) {
    this.beginVoice(options);
    try {
      for await (const piece of recording instanceof Int16Array ? slices(recording) : recording) this.record(piece);
    } catch (error) {
      this.cancelVoice();
      throw error;
    }
    return this.commitVoice();
  }

  /** Stop all utterances. */
  cancel() {
    this.send({ type: "utterance.cancel" });
  }

  /** Whether messages can be sent. */
  get open() {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  /** Bytes that wait to be sent. */
  get waitingBytes() {
    return this.#socket.bufferedAmount;
  }

  /** Send one control message; dropped when the connection is gone, which `close` reports. */
  send(message) {
    if (this.open) this.#socket.send(JSON.stringify(message));
  }

  close() {
    this.#socket.close();
  }

  #receive(data) {
    if (typeof data === "string") this.#handle(JSON.parse(data));
    else this.#audio(data);
  }

  #audio(data) {
    const view = new DataView(data);
    if (view.byteLength < HEADER_BYTES || view.getUint8(0) !== 1) return;
    const utterance = this.#byNumber.get(view.getUint32(4, true));
    if (!utterance) return;
    const last = (view.getUint8(1) & 1) === 1;
    utterance.emit("audio", decode(data, utterance.encoding), view.getUint32(8, true), last);
  }

  #handle(event) {
    const utterance = this.#live.get(event.id);
    switch (event.type) {
      case "utterance.started":
        if (!utterance) return;
        utterance.number = event.number;
        utterance.sampleRate = event.sample_rate;
        utterance.encoding = event.encoding;
        this.#byNumber.set(event.number, utterance);
        utterance.emit("started", event);
        return;
      case "marks":
        utterance?.emit("marks", event);
        return;
      case "track.position":
        utterance?.emit("position", event);
        return;
      case "utterance.done":
      case "utterance.cancelled":
        this.#drop(utterance);
        utterance?.settle(event);
        return;
      case "voice.progress":
        this.emit("progress", event);
        return;
      case "voice.ready":
        this.#voice?.resolve(event);
        this.#voice = null;
        return;
      case "voice.rejected":
        this.#voice?.reject(new VoiceRejected(event));
        this.#voice = null;
        return;
      case "error":
        this.#fail(event, utterance);
    }
  }

  #fail(event, utterance) {
    const error = new ServerError(event);
    if (utterance) {
      this.#drop(utterance);
      utterance.settle(null, error);
    } else if (this.#voice && event.id == null) {
      this.#voice.reject(error);
      this.#voice = null;
    } else {
      this.emit("error", error);
    }
  }

  #drop(utterance) {
    if (!utterance) return;
    this.#live.delete(utterance.id);
    this.#byNumber.delete(utterance.number);
  }

  #closed(event) {
    const error = new ConnectionLost("the connection was lost");
    for (const utterance of this.#live.values()) utterance.settle(null, error);
    this.#live.clear();
    this.#byNumber.clear();
    this.#voice?.reject(error);
    this.#voice = null;
    this.emit("close", event);
  }
}
