"""A voice of one's own: from the microphone, from files, with a report; deleting it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page, expect

from cosyvoice_stream.pitch import track_pitch
from support.listening import REFERENCES, read_wav
from support.page import DEMO, encoded_bytes, finished, photograph, speak, until, wav_bytes

pytestmark = pytest.mark.browser

TEXT = "Could you spell your last name for me?"
STUDIO = f"{DEMO}.studio"
RECORDING_S = 30.0


def pitch_hz(samples: NDArray[np.float32]) -> float:
    return float(np.median(track_pitch(samples, 24_000)))


def voices(page: Page) -> list[str]:
    return page.locator("#voices .name").all_inner_texts()


def test_three_taps_from_the_microphone_to_hearing_it(page: Page) -> None:
    plain = speak(page, TEXT)
    page.check("#consent")
    page.click("#record")
    until(page, f"{STUDIO}.speechMs > 1000")
    expect(page.locator("#ring")).to_be_visible()
    assert page.evaluate("document.getElementById('ring-fill').style.strokeDasharray") != "0 100"
    until(page, "document.getElementById('level-fill').style.transform !== 'scaleX(0)'")
    assert page.inner_text("#hint")
    # It ends by itself when the speaker pauses.
    expect(page.locator("#hear")).to_be_visible(timeout=RECORDING_S * 1000)
    expect(page.locator("#report-items li")).to_have_count(12)
    photograph(page, "accepted")
    assert page.locator("#voices input:checked").get_attribute("value") != "heart"
    page.click("#hear")
    adapted = finished(page)
    assert pitch_hz(adapted) < 0.75 * pitch_hz(plain), "a man is deeper than the built-in voice"


def test_done_ends_a_recording_and_it_can_be_made_again(page: Page) -> None:
    page.check("#consent")
    page.click("#record")
    expect(page.locator("#record")).to_have_text("Cancel")
    until(page, f"{STUDIO}.speechMs >= 3000")
    expect(page.locator("#record")).to_have_text("Done")
    page.click("#record")
    expect(page.locator("#hear")).to_be_visible()
    expect(page.locator("#record")).to_have_text("Record again")
    page.click("#record")
    expect(page.locator("#report")).to_be_hidden()
    expect(page.locator("#ring-text")).to_have_text("0.0")
    page.keyboard.press("Escape")
    expect(page.locator("#meter")).to_be_hidden()
    assert len(voices(page)) == 2


def test_too_short_a_recording_is_caught_in_the_page(page: Page) -> None:
    asked: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda f: asked.append(str(f))))
    page.reload()
    expect(page.locator("#link")).to_have_attribute("data-state", "ready")
    page.check("#consent")
    page.click("#record")
    until(page, f"{STUDIO}.speechMs > 300")
    page.click("#record")
    expect(page.locator("#studio-message")).to_contain_text("three are needed")
    expect(page.locator("#meter")).to_be_hidden()
    assert any("voice.cancel" in frame for frame in asked)
    assert not any("voice.commit" in frame for frame in asked)
    assert voices(page) == ["Heart"]


def test_recording_needs_consent_and_silences_the_page(page: Page) -> None:
    page.click("#record")
    expect(page.locator("#studio-message")).to_contain_text("confirm")
    expect(page.locator("#consent")).to_be_focused()
    page.check("#consent")
    page.fill("#text", "A long story about a lighthouse. " * 20)
    page.click("#speak")
    until(page, f"{DEMO}.speech.active")
    page.click("#record")
    assert not page.evaluate(f"{DEMO}.speech.active"), "the microphone would hear the speech"
    until(page, f"{STUDIO}.state === 'recording'")
    page.click("#record")


def test_a_recording_that_the_server_refuses_ends(page: Page) -> None:
    page.check("#consent")
    page.click("#record")
    until(page, f"{STUDIO}.state === 'recording'")
    # A second beginning is an error of state, as any refusal in the middle is an error without id.
    page.evaluate(f"{DEMO}.connection.session.beginVoice({{ input: {{ sample_rate: 16000 }} }})")
    until(page, f"{STUDIO}.state === 'idle'")
    expect(page.locator("#message")).to_be_visible()
    page.click("#record")
    until(page, f"{STUDIO}.speechMs > 300")
    page.keyboard.press("Escape")


def test_a_forbidden_microphone_is_explained(page: Page) -> None:
    page.evaluate(
        """() => { navigator.mediaDevices.getUserMedia =
             () => Promise.reject(new DOMException("no", "NotAllowedError")); }"""
    )
    page.check("#consent")
    page.click("#record")
    expect(page.locator("#studio-message")).to_contain_text("Allow it")
    expect(page.locator("#record")).to_be_enabled()


@pytest.mark.parametrize(
    ("name", "container", "codec"),
    [("wav", "wav", "pcm_s16le"), ("mp3", "mp3", "libmp3lame"), ("webm", "webm", "libopus")],
)
def test_clones_from_a_file(page: Page, name: str, container: str, codec: str) -> None:
    samples, rate = read_wav(REFERENCES / "festival_ked_male.wav")
    data = encoded_bytes(samples, rate, container, codec)
    page.check("#consent")
    page.set_input_files("#file", {"name": f"Ked.{name}", "mimeType": "", "buffer": data})
    expect(page.locator("#hear")).to_be_visible()
    assert voices(page) == ["Heart", "Ked"]
    page.click("#hear")
    assert len(finished(page)) > 12_000


def test_a_dropped_file_is_taken(page: Page) -> None:
    samples, rate = read_wav(REFERENCES / "flite_slt_female.wav")
    page.check("#consent")
    page.evaluate(
        """(bytes) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], "Slt.wav"));
          document.getElementById("drop").dispatchEvent(
            new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        }""",
        list(wav_bytes(samples, rate)),
    )
    expect(page.locator("#hear")).to_be_visible()
    assert voices(page) == ["Heart", "Slt"]


def test_a_bad_recording_comes_with_advice(page: Page) -> None:
    page.check("#consent")
    short = wav_bytes(np.zeros(8000, np.float32), 16_000)
    page.set_input_files("#file", {"name": "short.wav", "mimeType": "", "buffer": short})
    expect(page.locator("#report-title")).to_have_text("This recording cannot be used")
    expect(page.locator("#report-items li").first).to_have_class("fail")
    expect(page.locator("#report-items .fail .advice").first).not_to_be_empty()
    expect(page.locator("#hear")).to_be_hidden()
    page.click("#language")
    expect(page.locator("#report-items .fail .advice").first).to_contain_text("语音")
    notes = b"no audio at all"
    page.set_input_files("#file", {"name": "notes.wav", "mimeType": "", "buffer": notes})
    expect(page.locator("#studio-message")).to_be_visible()
    expect(page.locator("#report")).to_be_hidden()


def test_a_file_that_is_too_large_is_not_sent(page: Page) -> None:
    page.check("#consent")
    page.evaluate(f"{DEMO}.connection.info.limits.max_upload_bytes = 1000")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    page.set_input_files("#file", {"name": "a.wav", "mimeType": "", "buffer": b"0" * 1001})
    expect(page.locator("#studio-message")).to_contain_text("too large")
    assert "POST" not in sent


def test_deleting_a_voice_asks_once_more(page: Page) -> None:
    samples, rate = read_wav(REFERENCES / "flite_kal16_male.wav")
    page.check("#consent")
    recording = wav_bytes(samples, rate)
    page.set_input_files("#file", {"name": "Kal.wav", "mimeType": "", "buffer": recording})
    expect(page.locator("#hear")).to_be_visible()
    remove = page.get_by_role("button", name="Kal")
    expect(remove).to_have_count(1)
    remove.click()
    expect(remove).to_have_text("Delete for good?")
    page.focus("#text")
    expect(remove).to_have_text("✕")
    remove.click()
    remove.click()
    expect(page.locator("#voices .name")).to_have_count(1)
    assert page.locator("#voices input:checked").get_attribute("value") == "heart"
    page.reload()
    expect(page.locator("#voices .name")).to_have_text(["Heart"])
