"""The page at /docs, which shows the HTTP interface and tries it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from support.listening import REFERENCES
from support.page import until

pytestmark = pytest.mark.browser


@pytest.fixture
def docs(page: Page, url: str) -> Page:
    """The page with its list; the fixture below it fails the test for requests to other hosts."""
    page.goto(f"{url}/docs")
    expect(page.locator(".operation").first).to_be_visible()
    return page


def opened(docs: Page, operation: str) -> Locator:
    details = docs.locator(f"#{operation}")
    details.locator("summary").click()
    return details


def test_lists_every_request_of_the_document(docs: Page, url: str) -> None:
    document = docs.request.get(f"{url}/openapi.json").json()
    count = sum(len(operations) for operations in document["paths"].values())
    expect(docs.locator(".operation")).to_have_count(count)
    assert docs.locator("h2.group").all_text_contents() == [tag["name"] for tag in document["tags"]]


def test_speech_can_be_tried_and_played(docs: Page) -> None:
    speech = opened(docs, "openai_speech")
    expect(speech.locator(".fields")).to_contain_text("response_format")
    speech.get_by_role("button", name="Send").click()
    expect(speech.locator(".status")).to_contain_text("200")
    expect(speech.locator("audio")).to_be_visible()
    until(docs, "document.querySelector('#openai_speech audio').duration > 0.3")


def test_errors_are_shown_as_they_come(docs: Page) -> None:
    speech = opened(docs, "openai_speech")
    speech.locator("textarea").fill('{"model": "tts-1", "input": "", "voice": "alloy"}')
    speech.get_by_role("button", name="Send").click()
    expect(speech.locator(".status")).to_contain_text("400")
    expect(speech.locator("pre")).to_contain_text("invalid_request_error")


def test_forms_with_files_and_paths_with_parameters(docs: Page) -> None:
    made = opened(docs, "create_voice")
    made.locator("input[name=file]").set_input_files(REFERENCES / "flite_slt_female.wav")
    made.locator("input[name=name]").fill("Slt")
    made.get_by_role("button", name="Send").click()
    expect(made.locator(".status")).to_contain_text("201")
    expect(made.locator("pre")).to_contain_text('"name": "Slt"')
    one = opened(docs, "get_voice")
    one.locator("input[name=voice_id]").fill("no/such voice")
    one.get_by_role("button", name="Send").click()
    expect(one.locator(".status")).to_contain_text("404")


def test_an_address_can_point_at_one_request(docs: Page, url: str) -> None:
    docs.goto("about:blank")
    docs.goto(f"{url}/docs#speak")
    expect(docs.locator("#speak form")).to_be_visible()


def test_narrow_screens_do_not_scroll_sideways(docs: Page) -> None:
    docs.set_viewport_size({"width": 360, "height": 780})
    opened(docs, "openai_speech")
    width = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert docs.evaluate(width)
