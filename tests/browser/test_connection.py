"""The page and its connection: servers that come late, go away, want a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.page import DEMO, heard, speak, until
from support.server_process import server_process

pytestmark = pytest.mark.browser

COMES_BACK_MS = 20_000


def test_the_page_comes_back_after_the_server_did(browser: Browser, tmp_path: Path) -> None:
    context: Any = browser.new_context()
    page = context.new_page()
    link, record = page.locator("#link"), page.locator("#record")
    with server_process(tmp_path) as first:
        port = first.rpartition(":")[2]
        page.goto(first)
        expect(link).to_have_attribute("data-state", "ready")
        page.fill("#text", "A long story about a lighthouse. " * 20)
        page.click("#speak")
        heard(page)
    expect(link).to_have_attribute("data-state", "lost")
    expect(link).to_contain_text("trying again")
    expect(page.locator("#message")).not_to_be_empty()
    page.keyboard.press("Escape")
    page.click("#speak")
    expect(page.locator("#message")).to_contain_text("no connection")
    with server_process(tmp_path, PORT=port):
        expect(link).to_have_attribute("data-state", "ready", timeout=COMES_BACK_MS)
        assert len(speak(page, "Back again.")) > 12_000
        page.check("#consent")
        record.click()
        until(page, f"{DEMO}.studio.state === 'recording'")
    expect(record).to_have_text("Record")
    expect(page.locator("#meter")).to_be_hidden()
    context.close()


def test_an_engine_that_warms_up_is_waited_for(page: Page) -> None:
    page.route("**/readyz", lambda route: route.fulfill(status=503, json={"status": "starting"}))
    link = page.locator("#link")
    page.evaluate(f"{DEMO}.connection.session.close()")
    expect(link).to_have_attribute("data-state", "warming")
    expect(link).to_contain_text("warming up")
    page.unroute("**/readyz")
    expect(link).to_have_attribute("data-state", "ready", timeout=COMES_BACK_MS)
    assert len(speak(page, "Warm at last.")) > 12_000


def test_a_page_that_is_looked_at_again_does_not_sit_out_a_pause(page: Page) -> None:
    page.evaluate(f"{DEMO}.connection.pauseMs = 600000")
    page.evaluate(f"{DEMO}.connection.session.close()")
    until(page, f"{DEMO}.connection.state === 'lost'")
    page.evaluate("window.dispatchEvent(new Event('online'))")
    expect(page.locator("#link")).to_have_attribute("data-state", "ready")


def test_a_key_is_asked_for_and_used(browser: Browser, tmp_path: Path) -> None:
    context: Any = browser.new_context()
    page = context.new_page()
    with server_process(tmp_path, API_KEYS="a-key-of-some-length") as address:
        page.goto(address)
        expect(page.locator("#link")).to_have_attribute("data-state", "locked")
        expect(page.locator("#link")).to_contain_text("api_key")
        page.goto(f"{address}/?api_key=a-key-of-some-length")
        expect(page.locator("#link")).to_have_attribute("data-state", "ready")
        expect(page.locator("#voices .name")).to_have_text(["Heart"])
        assert len(speak(page, "Unlocked.")) > 12_000
    context.close()
