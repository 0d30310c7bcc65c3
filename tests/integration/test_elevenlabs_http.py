"""ElevenLabs' HTTP endpoints, called by ElevenLabs' own Python client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from elevenlabs import AsyncElevenLabs, ElevenLabs, VoiceSettings
from elevenlabs.core import ApiError

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from support.features import feature
from support.media import hear
from support.served import Served, serving

pytestmark = pytest.mark.integration

API = "ElevenLabs HTTP"
TEXT = "hello there world."
SECONDS = 0.85
"""What the fake engine makes of it."""
REFERENCE = Path(__file__).parents[1] / "data" / "ref_wavs" / "flite_slt_female.wav"
PATH = "/v1/text-to-speech/beep"


def with_client(
    folder: Path,
    body: Callable[[AsyncElevenLabs, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    *,
    key: str = "none-is-set",
    prefix: str = "",
    **settings: Any,
) -> None:
    """Run `body` with ElevenLabs' client, of which nothing but the address is changed."""

    async def run() -> None:
        async with serving(folder, engine, **settings) as served:
            async with httpx.AsyncClient() as connections:
                client = AsyncElevenLabs(
                    base_url=f"http://127.0.0.1:{served.port}{prefix}",
                    api_key=key,
                    httpx_client=connections,
                )
                await body(client, served)
            assert served.services.admission.live == 0

    asyncio.run(run())


async def speak(client: AsyncElevenLabs, voice: str = "beep", **options: Any) -> bytes:
    options = {"text": TEXT, **options}
    return b"".join([data async for data in client.text_to_speech.convert(voice, **options)])


@feature(API, "`output_format` mp3_*, opus_*, wav_*", "partly", "at one bit rate each; not 32 kHz")
@pytest.mark.parametrize(
    ("form", "codec", "rate"),
    [
        (None, "mp3", 44_100),
        ("mp3_22050_32", "mp3", 22_050),
        ("mp3_44100_192", "mp3", 44_100),
        ("opus_48000_64", "opus", 48_000),
        ("wav_24000", "pcm_s16le", 24_000),
    ],
)
def test_files_can_be_played(tmp_path: Path, form: Any, codec: str, rate: int) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        heard = hear(await speak(client, **({"output_format": form} if form else {})))
        assert (heard.codec.removesuffix("float"), heard.sample_rate) == (codec, rate)
        assert heard.seconds == pytest.approx(SECONDS, abs=0.12)

    with_client(tmp_path, body)


@feature(API, "`output_format` pcm_*, ulaw_8000, alaw_8000", "supported", "bare samples")
def test_bare_samples(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        for rate in (8000, 16_000, 22_050, 24_000, 44_100, 48_000):
            samples = np.frombuffer(await speak(client, output_format=f"pcm_{rate}"), "<i2")
            assert len(samples) == pytest.approx(SECONDS * rate, abs=40)
        for law in ("ulaw_8000", "alaw_8000"):
            assert len(await speak(client, output_format=law)) == pytest.approx(6800, abs=40)

    with_client(tmp_path, body)


@feature(API, "`/stream`", "supported", "audio leaves while it is made")
def test_audio_arrives_while_it_is_made(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(client: AsyncElevenLabs, served: Served) -> None:
        await gate.allow(1)
        pieces = client.text_to_speech.stream("beep", text=TEXT, output_format="pcm_24000")
        first = await anext(pieces)
        assert 0 < len(first) <= 4800  # of the one chunk that the engine was allowed
        await gate.open()
        rest = b"".join([piece async for piece in pieces])
        assert len(first + rest) == round(SECONDS * 24_000) * 2

    with_client(tmp_path, body, FakeEngine(gate=gate))


@feature(API, "closing the connection", "supported", "cancels the synthesis")
def test_cut_connection_cancels_the_work(tmp_path: Path) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(client: AsyncElevenLabs, served: Served) -> None:
        await gate.allow(1)
        pieces = client.text_to_speech.stream("beep", text=TEXT, output_format="pcm_24000")
        await anext(pieces)
        assert served.services.admission.live == 1
        await pieces.aclose()  # type: ignore[attr-defined]
        while served.services.admission.live:  # noqa: ASYNC110 - freed by the server's own task
            await asyncio.sleep(0.001)
        assert engine.counts.cancelled == 1

    with_client(tmp_path, body, engine)


@feature(API, "`/with-timestamps`", "supported", "evenly spread where an engine has no word times")
def test_whole_answer_with_timestamps(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        for form, pieces in (("pcm_24000", 40_800), ("ulaw_8000", 6800)):
            answer = await client.text_to_speech.convert_with_timestamps(
                "beep", text=TEXT, output_format=form
            )
            assert len(base64.b64decode(answer.audio_base_64)) == pytest.approx(pieces, abs=40)
            timed = answer.alignment
            assert timed is not None
            assert answer.normalized_alignment == timed
            assert "".join(timed.characters) == TEXT
            assert timed.character_start_times_seconds[6] == pytest.approx(0.3)
            assert timed.character_end_times_seconds[-1] == pytest.approx(SECONDS)

    with_client(tmp_path, body)


@feature(API, "`/stream/with-timestamps`", "supported", "times from the beginning of the answer")
def test_lines_with_timestamps(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        said, starts, audio = "", [0.0], b""
        async for line in client.text_to_speech.stream_with_timestamps(
            "beep", text=TEXT, output_format="pcm_24000"
        ):
            audio += base64.b64decode(line.audio_base_64)
            if line.alignment:
                said += "".join(line.alignment.characters)
                starts += line.alignment.character_start_times_seconds
        assert said == TEXT
        assert starts == sorted(starts)
        assert len(audio) == 40_800

    with_client(tmp_path, body)


@feature(API, "failure after the first audio", "supported", "the connection is cut")
def test_late_failure_cuts_the_answer(tmp_path: Path) -> None:
    engine = FakeEngine(fail_on={"broken": RuntimeError("secret")})

    async def body(client: AsyncElevenLabs, served: Served) -> None:
        for path in ("/stream", "/with-timestamps", "/stream/with-timestamps"):
            reply = await served.post_json(PATH + path, {"text": "all goes well until broken now"})
            assert (reply.status, reply.complete) == (200, False)
            assert b"secret" not in reply.body

    with_client(tmp_path, body, engine)


@feature(API, "synchronous client", "supported")
def test_synchronous_client(tmp_path: Path) -> None:
    async def body(_: AsyncElevenLabs, served: Served) -> None:
        def call() -> bytes:
            url = f"http://127.0.0.1:{served.port}"
            with httpx.Client() as connections:
                client = ElevenLabs(base_url=url, api_key="any", httpx_client=connections)
                return b"".join(client.text_to_speech.convert("beep", text=TEXT))

        assert hear(await asyncio.to_thread(call)).codec.startswith("mp3")

    with_client(tmp_path, body)


@feature(API, "`voice_settings.speed`, `seed`, `language_code`", "supported", "speed 0.5 to 2")
@feature(API, "the other `voice_settings`, `model_id`, `previous_text` and the like", "ignored")
def test_options(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        fast = VoiceSettings(speed=2.0, stability=0.1, similarity_boost=1.0, style=1.0)
        audio = await speak(
            client,
            output_format="pcm_24000",
            voice_settings=fast,
            seed=4_294_967_295,
            language_code="en",
            model_id="eleven_flash_v2_5",
            previous_text="before",
            next_text="after",
            apply_text_normalization="on",
            optimize_streaming_latency=3,
        )
        assert len(audio) == pytest.approx(SECONDS * 24_000, abs=40)
        reply = await served.post_json(PATH, {"text": TEXT, "later": 1, "voice_settings": None})
        assert reply.status == 200

    with_client(tmp_path, body)


@feature(API, "ids of their premade voices", "supported", "the default voice, or `VOICE_ALIASES`")
@feature(API, "`GET /v1/voices`, `/v2/voices`, `/v1/voices/{id}`", "supported", "see the decision")
def test_voices(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        listed = (await client.voices.get_all()).voices
        assert [(v.voice_id, v.category) for v in listed] == [
            ("beep", "premade"),
            ("boop", "premade"),
        ]
        page = await client.voices.search(page_size=1)
        assert (page.has_more, page.total_count, len(page.voices)) == (True, 2, 1)
        rest = await client.voices.search(page_size=1, next_page_token=page.next_page_token)
        assert (rest.has_more, rest.voices[0].voice_id) == (False, "boop")
        assert (await client.voices.search(search="BOO")).total_count == 1
        assert (await client.voices.get("beep")).name == "Beep"
        for voice, expected in (("JBFqnCBsd6RMkjVDRZzb", "beep"), ("Boop", "boop")):
            reply = await served.post_json(f"/v1/text-to-speech/{voice}", {"text": TEXT})
            assert reply.headers["x-voice"] == expected
            assert (await client.voices.get(voice)).voice_id == voice
        with pytest.raises(ApiError) as caught:
            await client.voices.get("nobody")
        assert caught.value.status_code == 404
        assert caught.value.body["detail"]["status"] == "voice_not_found"

    with_client(tmp_path, body)


@feature(API, "`POST /v1/voices/add`, `DELETE /v1/voices/{id}`", "partly", "one recording a voice")
def test_a_clone_comes_speaks_and_goes(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        made = await client.voices.ivc.create(
            name="slt", files=[REFERENCE.read_bytes()], remove_background_noise=False
        )
        assert made.requires_verification is False
        assert len(await speak(client, made.voice_id)) > 1000
        assert (await client.voices.get(made.voice_id)).category == "cloned"
        assert (await client.voices.delete(made.voice_id)).status == "ok"
        with pytest.raises(ApiError) as caught:
            await speak(client, made.voice_id)
        assert caught.value.status_code == 404
        with pytest.raises(ApiError) as caught:
            await client.voices.delete("beep")
        assert caught.value.status_code == 400
        with pytest.raises(ApiError) as caught:
            await client.voices.ivc.create(name="x", files=[b"no recording"])
        assert caught.value.status_code == 400

    with_client(tmp_path, body)


@feature(API, "`GET /v1/models`, `/v1/user`, `/v1/user/subscription`", "supported", "no quota")
def test_models_and_account(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        models = await client.models.list()
        assert [model.model_id for model in models][:2] == ["fake", "eleven_flash_v2_5"]
        assert (await client.user.subscription.get()).status == "active"
        assert (await client.user.get()).subscription.tier == "local"
        assert (await client.voices.settings.get_default()).speed == 1.0
        assert (await client.voices.settings.get("beep")).speed == 1.0

    with_client(tmp_path, body)


@feature(API, "base URL with `/elevenlabs`", "supported", "for clients without their headers")
def test_prefix_and_other_clients_of_the_same_paths(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        assert len(await speak(client)) > 1000
        reply = await served.get("/elevenlabs/v1/voices")
        assert "voice_id" in reply.json()["voices"][0]
        ours = await served.get("/v1/voices")
        assert "kind" in ours.json()["voices"][0]
        assert (await served.get("/v1/models")).json()["object"] == "list"
        theirs = await served.get("/v1/models", xi_api_key="any")
        assert isinstance(theirs.json(), list)

    with_client(tmp_path, body, prefix="/elevenlabs")


@feature(API, "wrong types and values, empty text, 200 kB of text", "refused", "422 or 400")
def test_mistakes(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        for wrong, field in (
            ({"text": 5}, "text"),
            ({}, "text"),
            ({"text": ""}, "text"),
            ({"text": " \n"}, "text"),
            ({"text": TEXT, "seed": "x"}, "seed"),
            ({"text": TEXT, "voice_settings": {"speed": 9}}, "voice_settings"),
            ({"text": TEXT, "apply_text_normalization": "perhaps"}, "apply_text_normalization"),
        ):
            reply = await served.post_json(PATH, wrong)
            (said,) = reply.json()["detail"]
            assert (reply.status, said["loc"]) == (422, ["body", field])
            assert set(said) == {"loc", "msg", "type"}
        for form in ("mp3", "pcm_32000", "ogg_24000", "opus_44100_32", "x" * 500):
            reply = await served.post_json(f"{PATH}?output_format={form}", {"text": TEXT})
            assert reply.status == 422
        for broken in (b"", b"{", b"[1]", b"\xff"):
            assert (await served.request("POST", PATH, broken)).status == 422
        with pytest.raises(ApiError) as caught:
            await speak(client, text="a " * 100_000)
        assert caught.value.body["detail"]["status"] == "max_character_limit_exceeded"
        reply = await served.get("/v2/voices?page_size=0")
        assert reply.status == 422
        assert (await served.get(PATH)).status == 405

    with_client(tmp_path, body)


@feature(API, "`xi-api-key`", "supported", "where keys are set")
def test_no_or_a_wrong_key(tmp_path: Path) -> None:
    async def body(client: AsyncElevenLabs, served: Served) -> None:
        with pytest.raises(ApiError) as caught:
            await speak(client)
        assert caught.value.status_code == 401
        assert caught.value.body["detail"]["status"] == "invalid_api_key"
        assert (await served.get("/elevenlabs/v1/voices")).status == 401
        right = await served.post_json(PATH, {"text": TEXT}, xi_api_key="right")
        assert right.status == 200

    with_client(tmp_path, body, key="wrong", api_keys="right")


@feature(API, "overload", "supported", "429")
def test_overload(tmp_path: Path) -> None:
    gate = ChunkGate()

    async def body(client: AsyncElevenLabs, served: Served) -> None:
        first = asyncio.create_task(speak(client))
        await gate.arrived(1)
        reply = await served.post_json(PATH, {"text": TEXT})
        assert reply.status == 429
        assert reply.json()["detail"]["status"] == "too_many_concurrent_requests"
        await gate.open()
        assert await first

    with_client(tmp_path, body, FakeEngine(gate=gate), max_live_utterances=1, queue_wait_s=0)
