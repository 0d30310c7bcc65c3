"""A WHEP client of others (npm, whip-whep) plays what a call says, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from support.asr import transcribe, word_errors
from support.browser_call import PREPARE, RATE_HZ, STATS, heard
from support.node_client import FOLDER, installed
from support.page import until

pytestmark = pytest.mark.browser

SENTENCE = "The weather will be sunny in the afternoon."
CALL = """async () => {
  const caller = (window.caller = new RTCPeerConnection());
  caller.addTransceiver("audio", { direction: "recvonly" });
  const channel = (window.callerChannel = caller.createDataChannel("cosyvoice-stream.v1"));
  window.callerMessages = [];
  channel.onmessage = (event) => callerMessages.push(JSON.parse(event.data));
  await caller.setLocalDescription();
  await new Promise((resolve) => {
    if (caller.iceGatheringState === "complete") resolve();
    else caller.onicegatheringstatechange = () =>
      caller.iceGatheringState === "complete" && resolve();
  });
  const reply = await fetch("/v1/webrtc/offer", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(caller.localDescription),
  });
  const answer = await reply.json();
  await caller.setRemoteDescription({ type: "answer", sdp: answer.sdp });
  return answer.session;
}"""
VIEW = """async (session) => {
  const { WHEPClient } = await import("/whep-client.js");
  const viewer = (callTest.call = new RTCPeerConnection());
  viewer.addTransceiver("audio", { direction: "recvonly" });
  viewer.ontrack = ({ track }) => callTest.record(track);
  callTest.whep = new WHEPClient();
  await callTest.whep.view(viewer, new URL(`/whep/${session}`, location.href).href);
}"""


def test_it_connects_with_trickle_is_understood_and_says_good_bye(page: Page, url: str) -> None:
    installed()
    script = (FOLDER / "node_modules" / "whip-whep" / "whep.js").read_text()
    page.route(
        "**/whep-client.js",
        lambda route: route.fulfill(body=script, content_type="text/javascript"),
    )
    page.evaluate(PREPARE)
    session = page.evaluate(CALL)
    until(page, 'callerMessages.some((m) => m.type === "session.ready")')
    page.evaluate(VIEW, session)
    until(page, 'callTest.call.connectionState === "connected" && callTest.pieces.length > 2')
    message = {"type": "speak", "id": "a", "text": SENTENCE}
    page.evaluate("(message) => callerChannel.send(JSON.stringify(message))", message)
    until(page, 'callerMessages.some((m) => m.type === "utterance.done")')
    page.wait_for_timeout(600)  # what waits in the jitter buffer
    errors, _ = word_errors(SENTENCE, transcribe(heard(page), RATE_HZ))
    assert errors == 0
    assert page.evaluate(STATS)["packetsLost"] == 0
    assert len(calls(page, url)) == 2
    page.evaluate("callTest.whep.stop()")
    while len(calls(page, url)) > 1:
        page.wait_for_timeout(50)
    page.evaluate("caller.close()")
    page.evaluate("callTest.context.close()")


def calls(page: Page, url: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = page.request.get(f"{url}/v1/webrtc/stats").json()["calls"]
    return found
