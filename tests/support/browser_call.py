"""A call of a real browser: what its page runs, and what it played."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Page

RATE_HZ = 48_000
PREPARE = """() => {
  const test = (window.callTest = { messages: [], pieces: [] });
  test.record = (track) => {
    const stream = new MediaStream([track]);
    test.element = new Audio();
    test.element.muted = true;
    test.element.srcObject = stream;
    test.element.play();
    test.context = new AudioContext({ sampleRate: 48000 });
    test.tap = test.context.createScriptProcessor(4096, 1, 1);
    test.tap.onaudioprocess = ({ inputBuffer }) =>
      test.pieces.push(inputBuffer.getChannelData(0).slice());
    test.context.createMediaStreamSource(stream).connect(test.tap);
    test.tap.connect(test.context.destination);
  };
}"""
OPEN = """async () => {
  const call = new RTCPeerConnection();
  call.addTransceiver("audio", { direction: "recvonly" });
  const channel = call.createDataChannel("cosyvoice-stream.v1");
  Object.assign(callTest, { call, channel });
  channel.onmessage = (event) => callTest.messages.push(JSON.parse(event.data));
  call.ontrack = ({ track }) => callTest.record(track);
  await call.setLocalDescription();
  return call.localDescription.sdp;
}"""
ANSWER = """(sdp) => callTest.call.setRemoteDescription({ type: "answer", sdp })"""
SAY = """(text) => {
  callTest.messages = [];
  callTest.channel.send(JSON.stringify({ type: "speak", id: "a", text }));
}"""
DONE = """callTest.messages.some((message) => message.type === "utterance.done")"""
SAMPLES = """() => {
  const bytes = new Uint8Array(callTest.pieces.length * 4096 * 2);
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const piece of callTest.pieces)
    for (const value of piece) {
      view.setInt16(at, Math.max(-1, Math.min(1, value)) * 32767, true);
      at += 2;
    }
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192)
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}"""
STATS = """async () => {
  for (const stat of (await callTest.call.getStats()).values())
    if (stat.type === "inbound-rtp") return stat;
}"""
READY = 'callTest.messages.some((m) => m.type === "session.ready")'


def heard(page: Page) -> NDArray[np.float32]:
    """What the page has played since `PREPARE`, at `RATE_HZ`."""
    return np.frombuffer(base64.b64decode(page.evaluate(SAMPLES)), "<i2") / np.float32(32768)
