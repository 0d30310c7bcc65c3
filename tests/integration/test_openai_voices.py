"""OpenAI's voices and voice consents, called by OpenAI's own Python client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from support.features import feature
from support.served import Served, serving

pytestmark = pytest.mark.integration

API = "OpenAI voices"
REFERENCE = Path(__file__).parents[1] / "data" / "ref_wavs" / "flite_slt_female.wav"


def with_client(
    folder: Path,
    body: Callable[[AsyncOpenAI, Served], Awaitable[None]],
    key: str = "any",
    **settings: Any,
) -> None:
    async def run() -> None:
        async with serving(folder, **settings) as served:
            url = f"http://127.0.0.1:{served.port}/v1"
            async with AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
                await body(client, served)

    asyncio.run(run())


async def consent(client: AsyncOpenAI, name: str = "Slt") -> str:
    made = await client.audio.voice_consents.create(
        name=name, language="en-US", recording=("consent.wav", REFERENCE.read_bytes())
    )
    return made.id


@feature(API, "`POST /v1/audio/voices` from a sample with a consent", "supported")
@feature(API, "`DELETE /v1/audio/voices/{id}`", "supported")
def test_a_voice_from_consent_to_speech_to_deletion(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        consent_id = await consent(client)
        voice = await client.audio.voices.create(
            name="Slt", audio_sample=REFERENCE, consent=consent_id
        )
        assert (voice.object, voice.name, voice.type) == ("audio.voice", "Slt", "audio_sample")
        assert voice.created_at > 1_700_000_000
        stored = await served.services.voices.info(voice.id)
        assert stored.consent is not None
        assert consent_id in stored.consent
        spoken = await client.audio.speech.create(model="m", input="hi", voice={"id": voice.id})
        assert spoken.response.headers["x-voice"] == voice.id
        deleted = await client.audio.voices.delete(voice.id)
        assert (deleted.id, deleted.deleted) == (voice.id, True)
        with pytest.raises(openai.NotFoundError):
            await client.audio.voices.delete(voice.id)

    with_client(tmp_path, body, require_consent=True)


@feature(API, "consent as a statement in words, `ref_text`", "supported", "vLLM-Omni's fields")
@feature(
    API,
    "`GET /v1/audio/voices`",
    "supported",
    "a list of ids; Open WebUI wants objects, and shows OpenAI's names then",
)
@feature(API, "`DELETE /v1/audio/voices/{name}`", "supported", "vLLM-Omni's form")
def test_fields_of_peers(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        extra = {"ref_text": "Hello.", "speaker_description": "low"}
        made = await client.audio.voices.with_raw_response.create(
            name="Slt", audio_sample=REFERENCE, consent="I agree.", extra_body=extra
        )
        answer = made.http_response.json()
        assert answer["success"] is True
        assert answer["voice"]["name"] == "Slt"
        stored = await served.services.voices.info(answer["id"])
        assert (stored.consent, stored.transcript) == ("I agree.", "Hello.")
        listed = (await served.get("/v1/audio/voices")).json()
        assert listed["voices"] == ["beep", "boop", answer["id"]]
        assert [voice["name"] for voice in listed["uploaded_voices"]] == ["Slt"]
        assert (await client.audio.voices.delete("Slt")).deleted

    with_client(tmp_path, body)


@feature(API, "`type` prompt (voice design)", "refused", "400")
def test_voices_are_not_designed(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.audio.voices.create(name="x", prompt="a deep voice", type="prompt")
        assert caught.value.param == "type"
        reply = await served.post_json("/v1/audio/voices", {"type": "prompt", "name": "x"})
        assert (reply.status, reply.error["param"]) == (400, "type")

    with_client(tmp_path, body)


@feature(API, "samples that are no recordings, missing fields, built-in voices", "refused", "400")
def test_mistakes(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        voices, consents = client.audio.voices, client.audio.voice_consents
        with pytest.raises(openai.BadRequestError) as not_audio:
            await voices.create(name="x", audio_sample=b"text, no sound", consent="yes")
        assert not_audio.value.code in ("unsupported_format", "voice_rejected")
        with pytest.raises(openai.BadRequestError, match="audio"):
            await consents.create(name="x", language="en", recording=b"text, no sound")
        with pytest.raises(openai.BadRequestError) as language:
            await consents.create(name="x", language="english!", recording=REFERENCE)
        assert language.value.param == "language"
        with pytest.raises(openai.NotFoundError) as unknown:
            await voices.create(name="x", audio_sample=REFERENCE, consent="cons_1234")
        assert unknown.value.code == "consent_not_found"
        with pytest.raises(openai.BadRequestError, match="built-in"):
            await voices.delete("beep")
        with pytest.raises(openai.NotFoundError):
            await voices.delete("alloy")
        form = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\nx\r\n--b--\r\n'
        for path, given, missing in (
            ("voices", b"name", "audio_sample"),
            ("voices", b"consent", "name"),
            ("voice_consents", b"language", "name"),
        ):
            reply = await served.request(
                "POST",
                f"/v1/audio/{path}",
                form % given,
                content_type="multipart/form-data; boundary=b",
            )
            assert reply.status == 400, reply.body
            assert reply.error["param"] in (missing, "language")
        assert (await served.get("/v1/audio/voices")).json()["uploaded_voices"] == []

    with_client(tmp_path, body)


def test_consent_is_needed_where_the_server_says_so(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError, match="consent"):
            await client.audio.voices.create(name="x", audio_sample=REFERENCE, consent="")

    with_client(tmp_path, body, require_consent=True)


@feature(API, "`/v1/audio/voice_consents`: create, list, get, rename, delete", "supported")
def test_consents_come_and_go(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        consents = client.audio.voice_consents
        ids = {await consent(client, f"consent {number}") for number in range(5)}
        listed = [one async for one in consents.list(limit=2)]  # three pages
        assert {one.id for one in listed} == ids
        assert len(listed) == 5
        one = await consents.retrieve(listed[0].id)
        assert (one.object, one.language) == ("audio.voice_consent", "en-US")
        assert (await consents.update(one.id, name="other")).name == "other"
        assert (await consents.retrieve(one.id)).name == "other"
        recordings = list((tmp_path / "consents").glob("*.recording"))
        assert len(recordings) == 5
        assert (await consents.delete(one.id)).deleted
        for call in (consents.retrieve, consents.delete):
            with pytest.raises(openai.NotFoundError) as gone:
                await call(one.id)
            assert gone.value.code == "consent_not_found"
        assert len(list((tmp_path / "consents").iterdir())) == 2 * 4
        for query in ("limit=0", "limit=101", "limit=x", f"after={one.id}"):
            reply = await served.get(f"/v1/audio/voice_consents?{query}")
            assert reply.status == 400
        assert (await served.get("/v1/audio/voice_consents/..%2F..%2Fetc")).status == 404

    with_client(tmp_path, body)


@feature(API, "consents of another key", "refused", "404: only the key that uploaded one sees it")
def test_consents_belong_to_a_key(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        mine = await consent(client)
        other = client.with_options(api_key="second").audio
        assert [one async for one in other.voice_consents.list()] == []
        for call in (other.voice_consents.retrieve, other.voice_consents.delete):
            with pytest.raises(openai.NotFoundError):
                await call(mine)
        with pytest.raises(openai.NotFoundError):
            await other.voices.create(name="x", audio_sample=REFERENCE, consent=mine)
        assert (await client.audio.voice_consents.retrieve(mine)).id == mine

    with_client(tmp_path, body, key="first", api_keys="first,second")


def test_number_of_consents_is_limited(tmp_path: Path) -> None:
    async def body(client: AsyncOpenAI, served: Served) -> None:
        await consent(client)
        with pytest.raises(openai.BadRequestError, match="at most 1 stored consents"):
            await consent(client)

    with_client(tmp_path, body, max_voices=1)
