/**
 * Sessions of the protocol `cosyvoice-stream.v1` over WebRTC: control messages on a data channel, the voice as an audio
 * track that a media element plays, so that the browser's echo canceller knows what the loudspeaker says.
 *
 *     import { openCall } from "./call.js";
 *     const element = new Audio();
 *     const session = await openCall(new URL("/v1/webrtc/offer", location.href), { element });
 *     await session.speak("Hello there.", { marks: ["word"] }).ended;
 *     session.close();
 *
 * The session is that of `client.js`, but utterances have no `audio` events: what is heard is `session.call.stream`.
 */

import { ConnectionLost, PROTOCOL, ServerError, Session } from "./client.js";

const PATIENCE_MS = 15_000;
const GATHERING_MS = 2000; // a STUN server that does not answer must not hold up a call that needs none
const TRACK_HZ = 48_000;

/** A data channel and its peer connection behind the part of WebSocket that a Session uses. */
class Call {
  #channel;
  #peer;
  #closed = false;

  constructor(peer, channel, stream) {
    this.#peer = peer;
    this.#channel = channel;
    /** The voice of the server. */
    this.stream = stream;
    this.onmessage = null;
    this.onclose = null;
    channel.onmessage = (message) => this.onmessage?.(message);
    channel.onclose = () => this.close();
    peer.onconnectionstatechange = () => {
      // "disconnected" may heal; the server frees a peer that stays away, which closes the channel.
      if (["failed", "closed"].includes(peer.connectionState)) this.close();
    };
  }

  /** Sound comes as a track, not in messages. */
  get hasTrack() {
    return true;
  }

  get readyState() {
    return !this.#closed && this.#channel.readyState === "open" ? WebSocket.OPEN : WebSocket.CLOSED;
  }

  get bufferedAmount() {
    return this.#channel.bufferedAmount;
  }

  send(data) {
    this.#channel.send(data);
  }

  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#peer.close();
    this.onclose?.({ type: "close" });
  }

  /** The RTP time stamp that is heard now, at 48 kHz; null before the first packet has been played. */
  get rtpTimestamp() {
    const receiver = this.#peer.getReceivers().find(({ track }) => track.kind === "audio");
    return receiver?.getSynchronizationSources()[0]?.rtpTimestamp ?? null;
  }

  /**
   * Seconds of an utterance that have been heard by now.
   *
   * @param {{sample: number, rtp_timestamp: number}} position the last `position` event of the utterance
   */
  heardS(position) {
    const now = this.rtpTimestamp;
    if (now === null) return 0;
    // Time stamps are 32 bits wide and wrap around; as a signed difference that does not matter.
    return Math.max(0, position.sample + ((now - position.rtp_timestamp) | 0)) / TRACK_HZ;
  }

  /** Statistics of the received track, as of `RTCPeerConnection.getStats`: type `inbound-rtp`. */
  async statistics() {
    for (const report of (await this.#peer.getStats()).values()) {
      if (report.type === "inbound-rtp") return report;
    }
    return null;
  }
}

/** Wait for the candidates of this side; the server takes them with the offer. */
function gathered(peer) {
  return new Promise((resolve) => {
    const look = () => peer.iceGatheringState === "complete" && resolve();
    peer.addEventListener("icegatheringstatechange", look);
    setTimeout(resolve, GATHERING_MS);
    look();
  });
}

async function offer(url, peer) {
  await peer.setLocalDescription();
  await gathered(peer);
  const { type, sdp } = peer.localDescription;
  const reply = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ type, sdp }),
  });
  const answer = await reply.json();
  if (!reply.ok) throw new ServerError(answer.error ?? answer);
  await peer.setRemoteDescription({ type: "answer", sdp: answer.sdp });
}

/** Resolves with `session.ready`, which is the first message of the server. */
function greeted(peer, channel) {
  return new Promise((resolve, reject) => {
    const lost = () => reject(new ConnectionLost("no server answers"));
    channel.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === "session.ready") resolve(event);
      else if (event.type === "error") reject(new ServerError(event));
    };
    channel.onclose = lost;
    peer.onconnectionstatechange = () => peer.connectionState === "failed" && lost();
    setTimeout(lost, PATIENCE_MS);
  });
}

/**
 * Call the server and wait for `session.ready`. Rejects with a ServerError or ConnectionLost.
 *
 * @param {URL | string} url of `/v1/webrtc/offer`
 * @param {object} options
 * @param {HTMLMediaElement} [options.element] plays the voice; call its `play()` in a tap, as browsers want it
 * @param {MediaStream} [options.microphone] goes to the server, for `vad.start` and `voice.begin` without `input`
 * @param {RTCIceServer[]} [options.iceServers] as `GET /v1/webrtc` names them
 * @returns {Promise<Session>} its `call` has the `stream`, `heardS` and `statistics`
 */
export async function openCall(url, { element = null, microphone = null, iceServers = [] } = {}) {
  const peer = new RTCPeerConnection({ iceServers });
  const stream = new MediaStream();
  peer.ontrack = ({ track }) => stream.addTrack(track);
  const spoken = microphone?.getAudioTracks()[0];
  if (spoken) peer.addTransceiver(spoken, { direction: "sendrecv", streams: [microphone] });
  else peer.addTransceiver("audio", { direction: "recvonly" });
  const channel = peer.createDataChannel(PROTOCOL);
  channel.binaryType = "arraybuffer";
  const greeting = greeted(peer, channel);
  greeting.catch(() => {}); // the offer may fail first
  try {
    await offer(url, peer);
    const ready = await greeting;
    const call = new Call(peer, channel, stream);
    const session = new Session(call, ready);
    session.call = call;
    if (element) {
      element.srcObject = stream;
      element.play().catch(() => {}); // a browser that wants a tap first plays at the next `play()`
    }
    return session;
  } catch (error) {
    peer.close();
    if (error instanceof ServerError || error instanceof ConnectionLost) throw error;
    throw new ConnectionLost(error.message);
  }
}
