"""The parts of the page that others may use alone: the playback worklet and the client module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from support.listening import REFERENCES, read_wav

pytestmark = pytest.mark.browser

RATE = 24_000
BLOCK = 128
RENDER = """async ({ seconds, script, input }) => {
  const context = new OfflineAudioContext(1, seconds * 24000, 24000);
  await context.audioWorklet.addModule("/playback-worklet.js");
  const shape = { numberOfInputs: 0, outputChannelCount: [1] };
  const node = new AudioWorkletNode(context, "playback", shape);
  node.connect(context.destination);
  const reports = [];
  node.port.onmessage = ({ data }) => reports.push(data);
  const act = (steps) => {
    for (const [type, value] of steps) {
      const samples = type === "push" && new Float32Array(input.slice(...value));
      node.port.postMessage(samples ? { samples } : { type, turn: value });
    }
  };
  for (const [at, steps] of script) {
    if (at === 0) act(steps);
    else context.suspend(at).then(async () => {
      act(steps);
      // The worklet takes its messages on its own thread; give it the time before it renders on.
      await new Promise((resolve) => setTimeout(resolve, 100));
      context.resume();
    });
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
  const rendered = await context.startRendering();
  await new Promise((resolve) => setTimeout(resolve, 100));
  return { samples: Array.from(rendered.getChannelData(0)), reports };
}"""


def render(
    page: Page, signal: np.ndarray, seconds: float, script: list[Any]
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Play a script of messages through the worklet, faster than time."""
    answer = page.evaluate(RENDER, {"seconds": seconds, "script": script, "input": signal.tolist()})
    return np.array(answer["samples"], np.float32), answer["reports"]


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return np.random.default_rng(3).uniform(-0.5, 0.5, 12 * RATE).astype(np.float32)


def test_plays_every_sample_in_any_chunks(page: Page, noise: np.ndarray) -> None:
    # More than the ring holds at first, so it has to grow, and pieces of many sizes.
    cuts = np.unique(np.append(np.random.default_rng(4).integers(0, len(noise), 60), len(noise)))
    pushes = [["push", [int(a), int(b)]] for a, b in zip([0, *cuts[:-1]], cuts, strict=True)]
    played, reports = render(page, noise, 12.5, [[0, [["begin", 1], *pushes, ["end", None]]]])
    assert np.array_equal(played[: len(noise)], noise)
    assert not played[len(noise) :].any()
    assert [r["type"] for r in reports if r["type"] != "position"] == ["heard", "finished"]
    assert reports[-1]["played"] == len(noise)
    assert reports[-1]["underruns"] == 0


def test_the_ring_goes_round(page: Page, noise: np.ndarray) -> None:
    script: list[Any] = [[0, [["begin", 1], ["push", [0, RATE]]]]]
    for second in range(1, 12):
        # Half a second early each, so that the eight seconds of the ring are gone round once.
        part = ["push", [second * RATE, (second + 1) * RATE]]
        script.append([second - 0.5, [part, *([["end", None]] if second == 11 else [])]])
    played, reports = render(page, noise, 12.25, script)
    assert np.array_equal(played[: len(noise)], noise)
    assert reports[-1]["underruns"] == 0


def test_a_gap_is_one_underrun_and_costs_no_sample(page: Page, noise: np.ndarray) -> None:
    half = RATE // 2
    script = [
        [0, [["begin", 1], ["push", [0, half]]]],
        [1.0, [["push", [half, RATE]], ["end", None]]],
    ]
    played, reports = render(page, noise, 2, script)
    assert np.array_equal(played[:half], noise[:half])
    later = played[RATE - 2 * BLOCK :]
    start = int(np.flatnonzero(later)[0])
    assert start <= 3 * BLOCK
    assert np.array_equal(later[start : start + half], noise[half:RATE])
    assert reports[-1]["type"] == "finished"
    assert reports[-1]["underruns"] == 1
    assert reports[-1]["played"] == RATE


def test_waiting_for_the_first_sample_is_no_underrun(page: Page, noise: np.ndarray) -> None:
    script = [[0, [["begin", 1]]], [0.5, [["push", [0, RATE]], ["end", None]]]]
    _, reports = render(page, noise, 2, script)
    assert reports[-1]["underruns"] == 0
    assert [r["type"] for r in reports if r["type"] != "position"] == ["heard", "finished"]


def test_stop_fades_within_five_milliseconds(page: Page, noise: np.ndarray) -> None:
    script = [[0, [["begin", 1], ["push", [0, 4 * RATE]]]], [1.0, [["stop", None]]]]
    played, reports = render(page, noise, 2, script)
    fade = int(0.005 * RATE)
    stop = int(np.flatnonzero(played)[-1]) + 2
    assert RATE - BLOCK <= stop - fade <= RATE + BLOCK
    assert np.array_equal(played[: stop - fade], noise[: stop - fade])
    ramp = 1 - np.arange(1, fade + 1) / fade
    expected = noise[stop - fade : stop] * ramp.astype(np.float32)
    np.testing.assert_allclose(played[stop - fade : stop], expected, atol=1e-6)
    assert reports[-1]["type"] == "stopped"


def test_a_new_turn_takes_over_and_counts_for_itself(page: Page, noise: np.ndarray) -> None:
    script = [
        [0, [["begin", 1], ["push", [0, 4 * RATE]]]],
        [1.0, [["begin", 2], ["push", [5 * RATE, 6 * RATE]], ["end", None]]],
    ]
    played, reports = render(page, noise, 3, script)
    second = [r for r in reports if r["turn"] == 2]
    assert second[-1]["type"] == "finished"
    assert second[-1]["played"] == RATE
    end = int(np.flatnonzero(played)[-1]) + 1
    assert np.array_equal(played[end - RATE : end], noise[5 * RATE : 6 * RATE])
    assert end - RATE < 1.01 * RATE + 2 * BLOCK


def test_silence_at_the_beginning_is_not_heard(page: Page) -> None:
    signal = np.concatenate([np.zeros(RATE), np.full(RATE, 0.1)]).astype(np.float32)
    _, reports = render(page, signal, 3, [[0, [["begin", 1], ["push", [0, 2 * RATE]], ["end", 0]]]])
    heard = next(r for r in reports if r["type"] == "heard")
    assert RATE < heard["played"] <= RATE + BLOCK


CLIENT = """async ({ recording }) => {
  const { Session } = await import("/client.js");
  const url = new URL("/v1/stream", location.href.replace("http", "ws"));
  const session = await Session.open(url);
  const read = async (utterance) => {
    const pieces = [];
    const lasts = [];
    utterance.on("audio", (samples, _position, last) => {
      pieces.push(samples);
      lasts.push(last);
    });
    const event = await utterance.ended;
    return { type: event.type, ms: event.audio_ms, lasts: lasts.filter(Boolean).length,
             samples: pieces.reduce((n, p) => n + p.length, 0), kind: pieces[0]?.constructor.name };
  };
  async function* fragments() { for (const word of ["Text ", "in ", "parts."]) yield word; }
  const out = {};
  const [whole, parts] = [read(session.speak("Whole text.")), read(session.speak(fragments()))];
  out.whole = await whole;
  out.parts = await parts;
  out.floats = await read(session.speak("Floats.", { output: { encoding: "pcm_f32le" } }));
  out.bytes = await read(session.speak("Bytes.", { output: { encoding: "mp3" } }));
  const long = session.speak("A long story about a lighthouse. ".repeat(50));
  const second = session.speak("Never heard.");
  await new Promise((resolve) => long.on("audio", resolve));
  session.cancel();
  out.cancelled = [(await long.ended).type, (await second.ended).type];
  out.refused = await session.speak("x", { speed: 9 }).ended.catch((error) => error.code);
  async function* broken() { yield "Once "; throw new Error("the model is gone"); }
  out.broken = await session.speak(broken()).ended.catch((error) => error.message);
  const mine = { consent: "mine", input: { sample_rate: 16000 } };
  const made = await session.clone(new Int16Array(recording), mine);
  out.adapted = await read(session.speak("In that voice.", { voice: made.voice.id }));
  out.kind = made.voice.kind;
  out.rejected = await session.clone(new Int16Array(16000), mine)
    .catch((error) => `${error.name} ${error.reason}`);
  session.close();
  out.gone = await session.speak("x").ended.catch((error) => error.code);
  return out;
}"""


def test_the_client_module_alone(page: Page) -> None:
    samples, rate = read_wav(REFERENCES / "festival_ked_male.wav")
    assert rate == 16_000
    recording = (samples * 32767).astype(int).tolist()
    out = page.evaluate(CLIENT, {"recording": recording})
    for name in ("whole", "parts", "floats", "adapted"):
        got = out[name]
        assert got["type"] == "utterance.done"
        assert got["samples"] == pytest.approx(got["ms"] * 24, abs=24), name
        assert got["lasts"] == 1
        assert got["kind"] == "Float32Array"
    assert out["bytes"]["kind"] == "Uint8Array"
    assert out["bytes"]["samples"] > 1000
    assert out["cancelled"] == ["utterance.cancelled", "utterance.cancelled"]
    assert out["refused"] == "invalid_option"
    assert out["broken"] == "the model is gone"
    assert out["kind"] == "adapted"
    assert out["rejected"].startswith("VoiceRejected ")
    assert out["gone"] == "connection_lost"
