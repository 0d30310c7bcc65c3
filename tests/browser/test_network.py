"""A call in a real browser over a network that loses, delays and reorders.

Chromium's own jitter buffer and error concealment are in the way of the sound, as with any caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from playwright.sync_api import Page

from support.asr import transcribe, word_errors
from support.bad_network import (
    BadNetwork,
    Weather,
    bad_network,
    host_candidate,
    through,
    without_candidates,
)
from support.browser_call import ANSWER, DONE, OPEN, PREPARE, RATE_HZ, READY, SAY, STATS, heard
from support.page import until

pytestmark = pytest.mark.browser

SENTENCES = (
    "The weather will be sunny in the afternoon.",
    "Please call the office early in the morning.",
    "The train to the city leaves from the last platform.",
)
SPEECH_S = 30.0
WORD_ERRORS = 0.05
WEATHERS = {
    "5 % lost, 40 ms of jitter": Weather(lose_every=20, jitter_s=0.04),
    "250 ms there and back": Weather(delay_s=0.125),
}


@contextmanager
def call(page: Page, url: str, weather: Weather) -> Iterator[BadNetwork]:
    """A call through a network that loses nothing until the call has begun."""
    page.evaluate(PREPARE)
    offer = {"type": "offer", "sdp": without_candidates(page.evaluate(OPEN))}
    reply = page.request.post(f"{url}/v1/webrtc/offer", data=offer)
    assert reply.status == 201, reply.text()
    answer = reply.json()["sdp"]
    with bad_network(host_candidate(answer)) as (network, port):
        network.weather = replace(weather, lose_every=0)
        page.evaluate(ANSWER, through(answer, port))
        until(page, READY)
        network.passed, network.weather = 0, weather
        yield network
        page.evaluate("callTest.call.close()")
        page.evaluate("callTest.context.close()")


def mean_delay_s(page: Page, before: dict[str, float]) -> float:
    """How long samples waited in the jitter buffer since the last look."""
    after = page.evaluate(STATS)
    waited = after["jitterBufferDelay"] - before["jitterBufferDelay"]
    return waited / (after["jitterBufferEmittedCount"] - before["jitterBufferEmittedCount"])


@pytest.mark.parametrize("name", WEATHERS)
def test_speech_is_understood_and_does_not_fall_behind(page, url, name):
    with call(page, url, WEATHERS[name]) as network:
        delays = []
        for sentence in SENTENCES:
            before = page.evaluate(STATS)
            page.evaluate(SAY, sentence)
            until(page, DONE, SPEECH_S)
            page.wait_for_timeout(600)  # what is on its way or waits in the jitter buffer
            delays.append(mean_delay_s(page, before))
        text = transcribe(heard(page), RATE_HZ)
        errors, words = word_errors(" ".join(SENTENCES), text)
        assert errors <= WORD_ERRORS * words, text
        assert delays[-1] < delays[0] + 0.1, delays
        share = network.lost / (network.lost + network.passed)
        assert share == pytest.approx(0.05 if network.weather.lose_every else 0.0, abs=0.01)
