"""The page as an interface: keyboard, names, contrast, languages, themes, sizes, pictures."""

from __future__ import annotations

import itertools
import json
from typing import Literal

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, WebSocketRoute, expect

from support.page import DEMO, heard, photograph, speak, until, wav_bytes

pytestmark = pytest.mark.browser

LONG = (
    "The lighthouse keeper had not spoken to anyone for eleven days when the boat appeared. "
    "At first it was only a dark line between two waves."
)
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, Theme] = ("light", "dark")
LOOKS = [
    (768, "light", "en"),
    *itertools.product((360, 1280), THEMES, ("en", "zh")),
]
STRICT = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self' ws:; base-uri 'none'; form-action 'none'"
)
CONTRAST = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) =>
    [0, 1, 2].map((i) => (top[i] * top[3] + below[i] * (255 - top[3])) / 255);
  const light = (colour) => colour.map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    if (!node) return [255, 255, 255];
    const own = rgba(getComputedStyle(node).backgroundColor);
    return own[3] === 255 ? own.slice(0, 3) : over(own, ground(node.parentElement));
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!text && node.tagName !== "TEXTAREA") continue;
    if (!node.checkVisibility() || node.closest(":disabled, .hidden, .skip")) continue;
    const below = ground(node);
    const [one, other] = [light(over(rgba(getComputedStyle(node).color), below)), light(below)];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) poor.push(`${node.className} ${node.textContent.trim()}: ${ratio}`);
  }
  return poor;
}"""


def overhang(page: Page) -> int:
    """Pixels that stand out at the side."""
    pixels: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return pixels


def test_the_keyboard_is_enough(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+A")
    page.keyboard.type(LONG)
    page.keyboard.press("Control+Enter")
    heard(page)
    page.keyboard.press("Escape")
    assert not page.evaluate(f"{DEMO}.speech.active")
    names = []
    page.focus("#text")
    for _ in range(16):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
        if page.evaluate("document.activeElement === document.body"):
            continue  # between the end of the page and its beginning
        ring = page.evaluate(
            """() => { const n = document.activeElement.closest("#drop") ?? document.activeElement;
                       return getComputedStyle(n).outlineStyle; }"""
        )
        assert ring != "none", f"no focus ring on {names[-1]}"
    for wanted in ("speak", "download", "voice", "consent", "record", "file"):
        assert wanted in names, f"Tab does not reach {wanted}: {names}"
    page.focus("#speak")
    page.keyboard.press("Enter")
    until(page, f"{DEMO}.speech.active")
    page.focus("#stop")
    page.keyboard.press("Space")
    assert not page.evaluate(f"{DEMO}.speech.active")
    page.focus("#consent")
    page.keyboard.press("Space")
    page.focus("#record")
    page.keyboard.press("Enter")
    until(page, f"{DEMO}.studio.state === 'recording'")
    page.keyboard.press("Escape")
    expect(page.locator("#meter")).to_be_hidden()


def test_every_control_has_a_name(page: Page) -> None:
    nameless: list[str] = page.evaluate(
        """[...document.querySelectorAll("button, input, textarea, summary, canvas, progress")]
           .filter(n => !n.textContent.trim() && !n.getAttribute("aria-label")
                        && !(n.labels && [...n.labels].some(l => l.textContent.trim())))
           .map(n => n.outerHTML)"""
    )
    assert nameless == []
    controls = page.locator("input, textarea, select")
    assert controls.count() >= 9
    unlabelled: list[str] = page.evaluate(
        """[...document.querySelectorAll("input, textarea, select")]
           .filter(n => !n.labels?.length).map(n => n.id)"""
    )
    assert unlabelled == []
    live = page.evaluate(
        "[...document.querySelectorAll('[role=status], [role=alert], output')].map(n => n.id)"
    )
    # Figures that change all the time are not read aloud.
    assert live == ["link", "message", "state", "hint", "studio-message"]


def test_both_languages_say_everything(page: Page) -> None:
    missing = page.evaluate(
        """async () => {
          const { en } = await import("/words-en.js");
          const { zh } = await import("/words-zh.js");
          const keys = (words) => Object.entries(words).flatMap(([key, value]) =>
            typeof value === "object" ? Object.keys(value).map((name) => `${key}.${name}`) : [key]);
          const server = /^(advice|errors|cures)\\./; // where English has the server's own words
          const used = [...document.querySelectorAll("*")]
            .flatMap(({ dataset }) => [dataset.t, dataset.tLabel, dataset.tPlaceholder])
            .filter(Boolean);
          return {
            zh: keys(en).filter((k) => !keys(zh).includes(k)),
            en: keys(zh).filter((k) => !keys(en).includes(k) && !server.test(k)),
            used: used.filter((k) => !(k in en)),
          };
        }"""
    )
    assert missing == {"zh": [], "en": [], "used": []}


def test_language_and_theme_are_remembered(page: Page) -> None:
    page.click("#language")
    page.click("#theme")
    expect(page.locator("#speak")).to_have_text("朗读")
    theme = page.evaluate("document.documentElement.dataset.theme")
    assert theme == "dark"
    page.reload()
    expect(page.locator("#speak")).to_have_text("朗读")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    english = page.evaluate(
        """[...document.querySelectorAll("main *")].flatMap(n => [...n.childNodes])
           .filter(n => n.nodeType === 3 && n.parentElement.checkVisibility())
           .map(n => n.data.trim()).filter(t => /[a-z]{4}/.test(t))"""
    )
    # What is spoken, and the name of the product, stay.
    own = ("Hello", "Heart", "Enter", "CosyVoice", "FLAC")
    assert [text for text in english if not any(word in text for word in own)] == []


def test_the_system_decides_at_first(browser: Browser, url: str) -> None:
    context = browser.new_context(locale="zh-CN", color_scheme="dark")
    opened = context.new_page()
    opened.goto(url)
    expect(opened.locator("#speak")).to_have_text("朗读")
    assert opened.evaluate("document.documentElement.dataset.theme") == "dark"
    opened.emulate_media(color_scheme="light")
    until(opened, "document.documentElement.dataset.theme === 'light'")
    context.close()


def test_works_under_a_strict_policy(page: Page) -> None:
    def strict(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(
            response=answer, headers={**answer.headers, "content-security-policy": STRICT}
        )

    # A page that a test hands in has no address of its own, so it may not reach ours unasked.
    page.context.grant_permissions(["local-network-access"])
    page.route("**/*", strict)
    page.reload()
    expect(page.locator("#link")).to_have_attribute("data-state", "ready")
    assert len(speak(page, "Nothing inline.")) > 12_000


def test_says_what_the_engine_makes_of_a_recording(page: Page) -> None:
    expect(page.locator("#about")).to_contain_text("voice adaptation")
    expect(page.locator("#about")).to_contain_text("CosyVoice")
    page.click(".options summary")
    expect(page.locator("#strength")).to_be_visible()

    def between(browser_side: WebSocketRoute) -> None:
        server = browser_side.connect_to_server()

        def pass_on(message: str | bytes) -> None:
            if isinstance(message, str) and "session.ready" in message:
                event = json.loads(message)
                event["engine"]["features"] = ["cloning", "word_times"]
                message = json.dumps(event)
            browser_side.send(message)

        server.on_message(pass_on)

    page.route_web_socket("**/v1/stream", between)
    page.reload()
    expect(page.locator("#about")).to_contain_text("This engine clones")
    page.click(".options summary")
    expect(page.locator("#strength")).to_be_hidden()
    expect(page.locator("#pitch")).to_be_hidden()
    # An option that the engine does not have is not sent.
    assert len(speak(page, "Only what it knows.")) > 12_000


def test_little_moves_for_those_who_ask(browser: Browser, url: str) -> None:
    context = browser.new_context(reduced_motion="reduce")
    opened = context.new_page()
    opened.goto(url)
    moving = opened.evaluate(
        """[...document.querySelectorAll("*")]
           .filter(n => parseFloat(getComputedStyle(n).transitionDuration) > 0).map(n => n.id)"""
    )
    assert moving == []
    context.close()


@pytest.mark.parametrize(("width", "theme", "language"), LOOKS)
def test_every_state_fits_and_can_be_read(
    browser: Browser, url: str, width: int, theme: Theme, language: str
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 860},
        locale="zh-CN" if language == "zh" else "en-GB",
        color_scheme=theme,
        has_touch=width < 800,
    )
    page = context.new_page()
    page.goto(url)
    expect(page.locator("#link")).to_have_attribute("data-state", "ready")
    expect(page.locator("#voices input:checked")).to_have_count(1)

    def look(state: str) -> None:
        photograph(page, f"{width}-{theme}-{language}-{state}")
        assert overhang(page) <= 0, f"{state} hangs over"
        assert page.evaluate(CONTRAST) == [], state

    look("idle")
    page.fill("#text", LONG)
    page.click("#speak")
    until(page, "document.querySelectorAll('#caption .said').length > 4")
    look("speaking")
    page.click("#stop")
    page.check("#consent")
    page.click("#record")
    until(page, f"{DEMO}.studio.speechMs > 1500")
    look("recording")
    page.keyboard.press("Escape")
    page.click(".options summary")
    silence = wav_bytes(np.zeros(60_000, np.float32), 16_000)
    page.set_input_files("#file", {"name": "a.wav", "mimeType": "", "buffer": silence})
    expect(page.locator("#report-items .fail").first).to_be_visible()
    look("report")
    page.fill("#text", "Привет, мир.")
    page.click("#speak")
    expect(page.locator("#message")).to_be_in_viewport()
    look("error")
    context.close()
