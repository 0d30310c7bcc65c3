"""OpenAI's speech endpoint, called by OpenAI's own Python client."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.openai_speech import VOICES
from support.features import feature
from support.media import ffprobe, hear
from support.noting_engine import NotingEngine
from support.served import Reply, Served, serving

pytestmark = pytest.mark.integration

API = "OpenAI speech"
TEXT = "hello there world"
SECONDS = len(TEXT) * 0.05
"""What the fake engine makes of it."""
REFERENCE = Path(__file__).parents[1] / "data" / "ref_wavs" / "flite_slt_female.wav"
MIMES = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
}


def with_client(
    folder: Path,
    body: Callable[[AsyncOpenAI, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    *,
    key: str = "none-is-set",
    **settings: Any,
) -> None:
    """Run `body` with OpenAI's client, of which nothing but the address is changed."""

    async def run() -> None:
        async with serving(folder, engine, **settings) as served:
            url = f"http://127.0.0.1:{served.port}/v1"
            async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
                await body(client, served)
            assert served.services.admission.live == 0

    asyncio.run(run())


def ask(**changes: Any) -> dict[str, Any]:
    return {"model": "gpt-4o-mini-tts", "input": TEXT, "voice": "alloy", **changes}


async def post(served: Served, value: Any, **headers: str) -> Reply:
    return await served.post_json("/v1/audio/speech", value, **headers)


@feature(API, "`response_format` mp3, opus, aac, flac, wav", "supported", "24 kHz mono")
@pytest.mark.parametrize("form", list(MIMES))
def test_files_can_be_played(tmp_path: Path, form: Any) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        answer = await client.audio.speech.create(**ask(response_format=form))
        assert answer.response.headers["content-type"] == MIMES[form]
        assert answer.response.headers["x-request-id"].startswith("req_")
        heard = hear(answer.content)
        assert heard.seconds == pytest.approx(SECONDS, abs=0.09)
        assert heard.peak > 0.2
        assert heard.sample_rate == (48_000 if form == "opus" else 24_000)
        if shutil.which("ffprobe"):
            assert int(ffprobe(answer.content)["channels"]) == 1
        for header in (b"RIFF", b"fLaC", b"OpusHead"):
            assert answer.content.count(header) <= 1

    with_client(tmp_path, body)


@feature(API, "`response_format` pcm", "supported", "24 kHz, 16 bit, mono, no header")
def test_pcm_is_bare_samples_at_24_khz(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        answer = await client.audio.speech.create(**ask(response_format="pcm"))
        assert answer.response.headers["content-type"] == "audio/pcm"
        samples = np.frombuffer(answer.content, "<i2")
        assert len(samples) == pytest.approx(SECONDS * 24_000, abs=20)
        assert np.abs(samples).max() > 3000

    with_client(tmp_path, body, FakeEngine(sample_rate=22_050))


@feature(API, "default format mp3, any `model`", "supported", "one engine answers to all names")
def test_defaults(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        answer = await client.audio.speech.create(model="any", input=TEXT, voice="nova")
        assert hear(answer.content).codec.startswith("mp3")

    with_client(tmp_path, body)


@feature(API, "`with_streaming_response`", "supported", "audio leaves while it is made")
def test_audio_arrives_while_it_is_made(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(client: AsyncOpenAI, served: Served) -> None:
        await gate.allow(1)
        streaming = client.audio.speech.with_streaming_response
        async with streaming.create(**ask(response_format="pcm")) as answer:
            pieces = answer.iter_bytes()
            first = await anext(pieces)
            assert len(first) == 4800  # the one chunk that the engine was allowed
            await gate.open()
            rest = b"".join([piece async for piece in pieces])
        assert len(first + rest) == round(SECONDS * 24_000) * 2

    with_client(tmp_path, body, FakeEngine(gate=gate))


@feature(API, "closing the connection", "supported", "cancels the synthesis")
def test_client_that_stops_reading_cancels_the_work(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(client: AsyncOpenAI, served: Served) -> None:
        await gate.allow(1)
        streaming = client.audio.speech.with_streaming_response
        async with streaming.create(**ask(response_format="pcm")) as answer:
            await anext(answer.iter_bytes())
            assert served.services.admission.live == 1
        while served.services.admission.live:  # noqa: ASYNC110 - freed by the server's own task
            await asyncio.sleep(0.001)
        assert engine.counts.cancelled == 1

    with_client(tmp_path, body, engine)


@feature(API, "`stream_format` sse", "supported", "`speech.audio.delta`, `speech.audio.done`")
def test_events_hold_the_pieces_of_one_file(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        streaming = client.audio.speech.with_streaming_response
        async with streaming.create(**ask(response_format="wav", stream_format="sse")) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = [line async for line in answer.iter_lines() if line]
        assert all(line.startswith("data: ") for line in lines)
        events = [json.loads(line.removeprefix("data: ")) for line in lines]
        assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * (
            len(events) - 1
        )
        assert events[-1]["type"] == "speech.audio.done"
        usage = events[-1]["usage"]
        assert usage["input_tokens"] == len(TEXT)
        assert usage["output_tokens"] == round(SECONDS * 25)
        assert usage["total_tokens"] == len(TEXT) + round(SECONDS * 25)
        audio = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
        assert hear(audio).seconds == pytest.approx(SECONDS)

    with_client(tmp_path, body)


@feature(API, "failure after the first audio", "supported", "`speech.audio.error`; audio is cut")
def test_late_failure_is_told_in_events_and_cuts_audio(tmp_path: Path) -> None:
    engine = FakeEngine(fail_on={"broken": RuntimeError("secret")})
    text = "long words before broken ones"

    async def body(client: AsyncOpenAI, served: Served) -> None:
        told = await post(served, ask(input=text, stream_format="sse"))
        assert told.complete
        last = json.loads(told.body.split(b"\n\n")[-2].removeprefix(b"data: "))
        assert last["type"] == "speech.audio.error"
        assert last["error"]["type"] == "server_error"
        assert b"secret" not in told.body
        cut = await post(served, ask(input=text, response_format="pcm"))
        assert (cut.status, cut.complete) == (200, False)

    with_client(tmp_path, body, engine)


@feature(API, "synchronous client", "supported")
def test_synchronous_client(tmp_path: Path) -> None:
    async def body(_: AsyncOpenAI, served: Served) -> None:
        def speak() -> bytes:
            url = f"http://127.0.0.1:{served.port}/v1"
            with (
                OpenAI(base_url=url, api_key="k", max_retries=0) as client,
                client.audio.speech.with_streaming_response.create(
                    **ask(response_format="flac")
                ) as answer,
            ):
                answer.stream_to_file(tmp_path / "speech.flac")
            return (tmp_path / "speech.flac").read_bytes()

        assert hear(await asyncio.to_thread(speak)).codec == "flac"

    with_client(tmp_path, body)


@feature(
    API,
    "`speed` 0.25–4",
    "partly",
    "below 0.5 is spoken at 0.5, above 2 at 2; outside 0.25–4 is refused",
)
@pytest.mark.parametrize(("speed", "factor"), [(0.25, 0.5), (0.5, 0.5), (1, 1), (2.0, 2), (4.0, 2)])
def test_speed(tmp_path: Path, speed: float, factor: float) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        answer = await client.audio.speech.create(**ask(response_format="wav", speed=speed))
        assert hear(answer.content).seconds == pytest.approx(SECONDS / factor, abs=0.002)

    with_client(tmp_path, body)


@feature(API, "`instructions`", "supported", "on engines that take them (CosyVoice), else ignored")
@feature(API, "`language`, `seed`, `sample_rate` in `extra_body`", "supported", "our extensions")
def test_instructions_and_extensions_reach_the_engine(tmp_path: Path) -> None:
    engine = NotingEngine()

    async def body(client: AsyncOpenAI, served: Served) -> None:
        extra = {"language": "en-GB", "seed": 7, "sample_rate": 16_000, "lang_code": "a"}
        wanted = ask(instructions="whisper", response_format="wav")
        answer = await client.audio.speech.create(**wanted, extra_body=extra)
        assert hear(answer.content).sample_rate == 16_000
        (options,) = engine.options
        assert (options.instruct, options.language, options.seed) == ("whisper", "en-GB", 7)

    with_client(tmp_path, body, engine)


@feature(API, "unknown fields", "ignored", "as other compatible servers do")
def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        extra = {"ref_text": 5, "normalization_options": {"a": []}, "stream": True}
        assert (await client.audio.speech.create(**ask(), extra_body=extra)).content

    with_client(tmp_path, body)


@feature(
    API,
    "the 13 names of OpenAI's voices",
    "supported",
    "the default voice, or what `VOICE_ALIASES` says",
)
def test_their_voices_are_the_default_voice_or_an_alias(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        for name in VOICES:
            answer = await client.audio.speech.create(**ask(voice=name))
            expected = "boop" if name == "nova" else "beep"
            assert answer.response.headers["x-voice"] == expected

    with_client(tmp_path, body, voice_aliases="NOVA=boop")


@feature(API, "`voice` as text or `{id}`, our clones by id or name", "supported")
def test_our_voices(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        made = await served.request("POST", "/v1/voices?name=Slt", REFERENCE.read_bytes())
        clone = made.json()["voice"]["id"]
        for voice, expected in (
            ("boop", "boop"),
            ({"id": "boop"}, "boop"),
            ("Boop", "boop"),
            ("", "beep"),
            (clone, clone),
            ({"id": clone}, clone),
            ("slt", clone),
        ):
            answer = await client.audio.speech.create(**ask(voice=voice))
            assert answer.response.headers["x-voice"] == expected

    with_client(tmp_path, body)


@feature(API, "wrong types, values and voices", "refused", "400 with `param`, as OpenAI does")
def test_mistakes_are_bad_requests_that_name_the_field(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (ask(input=5), "input"),
        (ask(input=["a"]), "input"),
        (ask(input=""), "input"),
        (ask(input=" \n"), "input"),
        (ask(model=None), "model"),
        (ask(voice=5), "voice"),
        (ask(voice={"name": "x"}), "voice"),
        (ask(voice="nobody"), "voice"),
        (ask(voice="voice-aaaaaaaaaaaaaaaa"), "voice"),
        (ask(voice="../../etc"), "voice"),
        (ask(response_format="ogg"), "response_format"),
        (ask(stream_format="json"), "stream_format"),
        (ask(speed="fast"), "speed"),
        (ask(speed=0.1), "speed"),
        (ask(speed=4.5), "speed"),
        (ask(instructions={}), "instructions"),
        ({"input": TEXT, "voice": "alloy"}, "model"),
        ({"model": "tts-1", "voice": "alloy"}, "input"),
        ({"model": "tts-1", "input": TEXT}, "voice"),
        (ask(voice="x" * 200), "voice"),
        (ask(kwargs="no json"), "kwargs"),
        (ask(sample_rate=0), "sample_rate"),
        (ask(sample_rate=12_345), "sample_rate"),
        (ask(seed=-1), "seed"),
    ]

    async def body(client: AsyncOpenAI, served: Served) -> None:
        for wrong, field in cases:
            wanted = {"voice": "alloy", **{k: v for k, v in wrong.items() if k in ask()}}
            wanted = ask() | wanted
            extra = {k: v for k, v in wrong.items() if k not in ask()}
            reply = await post(served, wrong)
            assert reply.status == 400, wrong
            assert set(reply.error) == {"message", "type", "param", "code"}
            assert reply.error["type"] == "invalid_request_error"
            assert reply.error["param"] == field, wrong
            assert "constrained" not in reply.error["message"]
            if len(wrong) >= len(ask()):  # the client itself insists on the others
                with pytest.raises(openai.BadRequestError) as caught:
                    await client.audio.speech.create(**wanted, extra_body=extra)
                assert caught.value.param == field
                assert caught.value.type == "invalid_request_error"

    with_client(tmp_path, body)


@feature(API, "bodies that are no JSON object", "refused", "400")
def test_broken_bodies(tmp_path: Path) -> None:
    async def body(_: AsyncOpenAI, served: Served) -> None:
        for broken in (
            b"",
            b"{",
            b"[1]",
            b'"text"',
            b"\xff\xfe",
            b'{"input": "\xff"}',
            b"[" * 50_000,
        ):
            reply = await served.request("POST", "/v1/audio/speech", broken)
            assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")

    with_client(tmp_path, body)


@feature(API, "200 kB of text", "refused", "`MAX_TEXT_CHARS` (100 000) instead of their 4 096")
def test_very_long_texts(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        answer = await client.audio.speech.create(**ask(input="a " * 2500, speed=2.0))
        assert answer.content
        with pytest.raises(openai.BadRequestError, match="at most 100000 characters"):
            await client.audio.speech.create(**ask(input="a " * 100_000))
        with pytest.raises(openai.BadRequestError, match="at most"):
            await client.audio.speech.create(**ask(input="a " * 1_000_000))

    with_client(tmp_path, body, FakeEngine(ms_per_char=1))


@feature(API, "`Authorization: Bearer`", "supported", "where keys are set")
def test_no_or_a_wrong_key(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.audio.speech.create(**ask())
        assert caught.value.code == "invalid_api_key"
        assert caught.value.type == "invalid_request_error"
        assert caught.value.response.headers["x-request-id"]
        for path in ("/v1/models", "/v1/audio/speech"):
            without = await served.get(path)
            assert (without.status, without.error["code"]) == (401, "invalid_api_key")
        right = client.with_options(api_key="right")
        assert (await right.audio.speech.create(**ask())).content

    with_client(tmp_path, body, key="wrong", api_keys="right")


@feature(API, "overload", "supported", "429 with `Retry-After`; their client tries again")
def test_overload_is_a_rate_limit_error(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(client: AsyncOpenAI, served: Served) -> None:
        first = asyncio.create_task(client.audio.speech.create(**ask()))
        await gate.arrived(1)
        with pytest.raises(openai.RateLimitError) as caught:
            await client.audio.speech.create(**ask())
        assert caught.value.type == "rate_limit_error"
        assert int(caught.value.response.headers["retry-after"]) >= 1
        patient = client.with_options(max_retries=5)
        second = asyncio.create_task(patient.audio.speech.create(**ask()))
        await gate.open()
        assert (await first).content
        assert (await second).content

    with_client(tmp_path, body, FakeEngine(gate=gate), max_live_utterances=1, queue_wait_s=0)


@feature(API, "languages that the engine does not speak", "refused", "400")
def test_errors_of_the_engine(tmp_path: Path) -> None:
    engine = FakeEngine(
        refuse={"zh": lambda word: word == "forbidden"}, fail_on={"broken": RuntimeError("secret")}
    )

    async def body(client: AsyncOpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError, match="cannot speak language"):
            await client.audio.speech.create(**ask(input="forbidden"))
        with pytest.raises(openai.InternalServerError) as caught:
            await client.audio.speech.create(**ask(input="broken"))
        assert caught.value.type == "server_error"
        assert "secret" not in str(caught.value)

    with_client(tmp_path, body, engine)


@feature(API, "`GET /v1/audio/models`", "supported", "as Open WebUI reads it")
@feature(API, "`GET /v1/models`, `GET /v1/models/{id}`", "supported", "the engine and their names")
def test_models(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        models = [model async for model in client.models.list()]
        assert [model.id for model in models][:2] == ["fake", "tts-1"]
        for model in models:
            assert (model.object, model.owned_by) == ("model", "cosyvoice-stream")
            assert (await client.models.retrieve(model.id)).id == model.id
        with pytest.raises(openai.NotFoundError) as caught:
            await client.models.retrieve("whisper-1")
        assert caught.value.code == "model_not_found"
        listed = (await served.get("/v1/audio/models")).json()["models"]
        assert listed == [{"id": model.id} for model in models]

    with_client(tmp_path, body)


def test_wrong_methods_and_paths_have_the_same_form(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        for method, path, status in (
            ("GET", "/v1/audio/speech", 405),
            ("POST", "/v1/models", 405),
            ("POST", "/v1/audio/transcriptions", 404),
        ):
            reply = await served.request(method, path)
            assert reply.status == status
            assert reply.error["type"] == "invalid_request_error"

    with_client(tmp_path, body)
