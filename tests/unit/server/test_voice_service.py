from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.errors import (
    EngineBusy,
    EnrolmentRejected,
    InvalidState,
    LimitExceeded,
    ShuttingDown,
    UnsupportedFormat,
    VoiceNotFound,
)
from cosyvoice_stream.server.voice_service import Enrolment, EnrolRequest, VoiceService
from cosyvoice_stream.types import (
    EngineInfo,
    Feature,
    PcmChunk,
    ReferenceAudio,
    SynthesisOptions,
    TextStream,
    Voice,
)
from cosyvoice_stream.voices import VoiceStore, new_voice_id
from support.recordings import RATE, encode, silence, speech, with_noise

pytestmark = pytest.mark.unit


@dataclass
class CountingEngine:
    """Enrols when its gate is open, and counts."""

    fingerprint: str = "count/1"
    features: frozenset[Feature] = frozenset({Feature.ADAPTATION})
    tensor_bytes: int = 4_000
    rejects: bool = False
    transcripts: list[str | None] = field(default_factory=list)
    entered: int = 0
    enrolling: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.changed = asyncio.Condition()

    @property
    def info(self) -> EngineInfo:
        builtin = Voice("heart", "Heart", self.fingerprint)
        return EngineInfo(
            "count", self.fingerprint, 24_000, ("en",), self.features, (builtin,), "Counts."
        )

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def enrol(self, reference: ReferenceAudio, transcript: str | None) -> Voice:
        self.transcripts.append(transcript)
        self.enrolling += 1
        self.most_at_once = max(self.most_at_once, self.enrolling)
        async with self.changed:
            self.entered += 1
            self.changed.notify_all()
        try:
            await self.gate.wait()
            if self.rejects:
                raise EnrolmentRejected("no_speech", "nothing voiced", "speak")
        finally:
            self.enrolling -= 1
        tensor = np.full(self.tensor_bytes // 4, reference.samples[5_000], np.float32)
        return Voice("", "", self.fingerprint, {"t": tensor}, {"bandwidth": "wide"})

    async def wait_entered(self, times: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.entered >= times)

    def synthesize(
        self, text: TextStream, voice: Voice, options: SynthesisOptions
    ) -> AsyncIterator[PcmChunk]:
        raise NotImplementedError


RECORDING = encode(speech(), RATE, "wav", "pcm_s16le")
Use = Callable[[VoiceService, CountingEngine], Awaitable[None]]


def run(
    folder: Path, use: Use, engine: dict[str, Any] | None = None, **options: Any
) -> CountingEngine:
    """Let `use` work with a service on `folder`."""

    async def session() -> CountingEngine:
        made = CountingEngine(**(engine or {}))
        service = VoiceService(made, VoiceStore(folder), **options)
        try:
            async with asyncio.timeout(20):
                await use(service, made)
        finally:
            await service.close()
        return made

    return asyncio.run(session())


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def enrol(folder: Path, **request: Any) -> Enrolment:
    """Enrol the recording and return what was made."""
    made: list[Enrolment] = []

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made.append(await service.enrol_file(RECORDING, EnrolRequest(**request)))

    run(folder, use)
    return made[0]


def test_a_recording_becomes_a_voice_that_outlives_the_process(tmp_path: Path) -> None:
    made = enrol(tmp_path, name=" Anna\n", transcript="Please leave.", consent="I agree.")
    voice = made.voice
    assert (voice.name, voice.kind, voice.engine) == ("Anna", "adapted", "count")
    assert (voice.transcript, voice.consent, voice.persistent) == (
        "Please leave.",
        "I agree.",
        True,
    )
    assert made.transcript == "Please leave."
    assert made.warnings == []
    assert made.quality["verdict"] == "ok"

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        assert await service.info(voice.voice_id) == voice
        found = await service.resolve(voice.voice_id)
        assert (found.voice_id, found.name) == (voice.voice_id, "Anna")
        assert found.metadata == {"bandwidth": "wide"}
        assert engine.entered == 0

    run(tmp_path, use)


def test_voice_json_is_that_of_the_protocol(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made = await service.enrol_file(RECORDING, EnrolRequest())
        builtin, stored = [voice.to_json() for voice in await service.list()]
        assert builtin == {
            "id": "heart", "name": "Heart", "kind": "builtin", "engine": "count",
            "created_at": None, "duration_ms": None, "transcript": None, "consent": None,
            "persistent": None, "quality": None,
        }  # fmt: skip
        assert stored == made.voice.to_json()
        assert list(stored) == list(builtin)
        assert json.loads(json.dumps(stored, allow_nan=False)) == stored
        assert stored["name"] == "My voice"
        assert 3_000 <= stored["duration_ms"] <= 5_000
        assert stored["created_at"].endswith("Z")

    run(tmp_path, use)


def test_a_cloning_engine_clones(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made = await service.enrol_samples(speech(), RATE, EnrolRequest())
        assert made.voice.kind == "cloned"

    run(tmp_path, use, {"features": frozenset({Feature.CLONING})})


def test_builtin_voices_come_first_and_cannot_be_deleted(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        assert (await service.resolve(None)).voice_id == "heart"
        assert (await service.resolve("heart")).voice_id == "heart"
        assert (await service.info("heart")).kind == "builtin"
        with pytest.raises(InvalidState, match="built-in"):
            await service.delete("heart")

    run(tmp_path, use)


@pytest.mark.parametrize("voice_id", ["nobody", "", "../..", new_voice_id()])
def test_unknown_ids_are_not_found(tmp_path: Path, voice_id: str) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        for call in (service.resolve, service.info, service.delete):
            with pytest.raises(VoiceNotFound):
                await call(voice_id)

    run(tmp_path, use)


def test_a_deleted_voice_is_gone_everywhere(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made = await service.enrol_file(RECORDING, EnrolRequest())
        voice_id = made.voice.voice_id
        await service.resolve(voice_id)
        await service.delete(voice_id)
        for call in (service.resolve, service.info, service.delete):
            with pytest.raises(VoiceNotFound):
                await call(voice_id)
        assert len(await service.list()) == 1
        assert files_in(tmp_path) == [".lock"]

    run(tmp_path, use)


def test_a_voice_that_another_process_deleted_is_gone(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made = await service.enrol_file(RECORDING, EnrolRequest())
        voice_id = made.voice.voice_id
        await service.resolve(voice_id)
        VoiceStore(tmp_path).delete(voice_id)
        with pytest.raises(VoiceNotFound):
            await service.resolve(voice_id)

    run(tmp_path, use)


def test_another_engine_enrols_the_recording_again_once(tmp_path: Path) -> None:
    made = enrol(tmp_path, name="Anna", transcript="Please leave.")
    voice_id = made.voice.voice_id

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        engine.gate.clear()
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(service.resolve(voice_id)) for _ in range(10)]
            await engine.wait_entered(1)
            engine.gate.set()
        voices = [task.result() for task in asking]
        assert all(voice is voices[0] for voice in voices)
        assert (voices[0].engine, voices[0].name) == ("count/2", "Anna")
        assert (await service.info(voice_id)).kind == "cloned"

    other = {"fingerprint": "count/2", "features": frozenset({Feature.CLONING})}
    engine = run(tmp_path, use, other)
    assert engine.transcripts == ["Please leave."]

    async def again(service: VoiceService, engine: CountingEngine) -> None:
        await service.resolve(voice_id)

    assert run(tmp_path, again, other).entered == 0
    assert run(tmp_path, again).entered == 0


def test_deleting_a_voice_that_is_being_enrolled_again_wins(tmp_path: Path) -> None:
    voice_id = enrol(tmp_path).voice.voice_id

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        engine.gate.clear()
        asking = asyncio.create_task(service.resolve(voice_id))
        await engine.wait_entered(1)
        await service.delete(voice_id)
        with pytest.raises(VoiceNotFound):
            await asking
        engine.gate.set()
        with pytest.raises(VoiceNotFound):
            await service.resolve(voice_id)
        assert engine.enrolling == 0

    run(tmp_path, use, {"fingerprint": "count/2"})


def test_one_who_stops_waiting_does_not_stop_the_others(tmp_path: Path) -> None:
    voice_id = enrol(tmp_path).voice.voice_id

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        engine.gate.clear()
        first = asyncio.create_task(service.resolve(voice_id))
        second = asyncio.create_task(service.resolve(voice_id))
        await engine.wait_entered(1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        engine.gate.set()
        assert (await second).voice_id == voice_id

    assert run(tmp_path, use, {"fingerprint": "count/2"}).entered == 1


def test_an_engine_that_cannot_make_a_stored_voice_says_so_every_time(tmp_path: Path) -> None:
    voice_id = enrol(tmp_path).voice.voice_id

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        for _ in range(2):
            with pytest.raises(EnrolmentRejected):
                await service.resolve(voice_id)

    assert run(tmp_path, use, {"fingerprint": "count/2", "rejects": True}).entered == 2


def test_temporary_voices_are_not_stored_and_not_listed(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made = await service.enrol_samples(speech(), RATE, EnrolRequest(persist=False))
        voice_id = made.voice.voice_id
        assert made.voice.persistent is False
        assert (await service.resolve(voice_id)).voice_id == voice_id
        assert await service.info(voice_id) == made.voice
        assert len(await service.list()) == 1
        assert not files_in(tmp_path)
        await service.delete(voice_id)
        with pytest.raises(VoiceNotFound):
            await service.resolve(voice_id)
        other = await service.enrol_samples(speech(), RATE, EnrolRequest(persist=False))
        service.forget_temporary(other.voice.voice_id)
        service.forget_temporary(other.voice.voice_id)
        with pytest.raises(VoiceNotFound):
            await service.info(other.voice.voice_id)

    run(tmp_path, use)


def test_the_temporary_voice_used_longest_ago_goes_first(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        async def temporary() -> str:
            made = await service.enrol_samples(speech(), RATE, EnrolRequest(persist=False))
            return made.voice.voice_id

        first, second = await temporary(), await temporary()
        await service.resolve(first)
        third = await temporary()
        for voice_id in (first, third):
            await service.resolve(voice_id)
        with pytest.raises(VoiceNotFound):
            await service.resolve(second)

    run(tmp_path, use, max_temporary=2)


def test_memory_for_stored_voices_is_bounded(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        ids = []
        for _ in range(3):
            made = await service.enrol_samples(speech(), RATE, EnrolRequest())
            ids.append(made.voice.voice_id)
        voices = [await service.resolve(voice_id) for voice_id in ids]
        newest = await service.resolve(ids[-1])
        assert newest is voices[-1]
        assert await service.resolve(ids[0]) is not voices[0]
        assert service._cache.size_bytes <= 12_000

    run(tmp_path, use, {"tensor_bytes": 4_000}, memory_bytes=12_000)


def test_a_voice_larger_than_the_budget_is_still_served(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made = await service.enrol_samples(speech(), RATE, EnrolRequest())
        assert (await service.resolve(made.voice.voice_id)).tensors
        assert service._cache.size_bytes == 0

    run(tmp_path, use, memory_bytes=100)


@pytest.mark.parametrize("consent", [None, "", "  \n"])
def test_consent_is_needed_where_the_policy_says_so(tmp_path: Path, consent: str | None) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        with pytest.raises(EnrolmentRejected) as refused:
            await service.enrol_file(RECORDING, EnrolRequest(consent=consent))
        assert refused.value.reason == "consent_missing"
        assert "consent" in str(refused.value.how_to_fix)
        await service.enrol_file(RECORDING, EnrolRequest(consent="I agree."))

    run(tmp_path, use, require_consent=True)


def test_bad_recordings_are_refused(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        with pytest.raises(UnsupportedFormat):
            await service.enrol_file(b"PK\3\4 not audio", EnrolRequest())
        with pytest.raises(EnrolmentRejected, match="silent") as refused:
            await service.enrol_samples(silence(5), RATE, EnrolRequest())
        assert refused.value.quality is not None
        with pytest.raises(LimitExceeded):
            await service.enrol_file(encode(silence(6), RATE, "flac", "flac"), EnrolRequest())
        with pytest.raises(LimitExceeded):
            await service.enrol_samples(silence(6), RATE, EnrolRequest())
        assert engine.entered == 0

    run(tmp_path, use, max_reference_s=5.0)


def test_the_policy_is_used(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        with pytest.raises(EnrolmentRejected) as refused:
            await service.enrol_samples(with_noise(speech(), 10), RATE, EnrolRequest())
        assert refused.value.reason == "noisy"

    run(tmp_path, use, policy="strict")


def test_what_the_engine_refuses_carries_the_report(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        with pytest.raises(EnrolmentRejected) as refused:
            await service.enrol_file(RECORDING, EnrolRequest())
        assert refused.value.quality is not None
        assert refused.value.quality["verdict"] == "ok"
        assert not files_in(tmp_path)

    run(tmp_path, use, {"rejects": True})


@pytest.mark.parametrize(
    "request_", [{"name": "n" * 81}, {"transcript": "t" * 1001}, {"consent": "c" * 2001}]
)
def test_long_texts_are_refused(tmp_path: Path, request_: dict[str, str]) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        with pytest.raises(LimitExceeded):
            await service.enrol_file(RECORDING, EnrolRequest(**request_))

    run(tmp_path, use)


def test_enrolments_are_bounded_and_the_rest_refused_at_once(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        engine.gate.clear()
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(service.enrol_file(RECORDING, EnrolRequest()))
            await engine.wait_entered(2)
            with pytest.raises(EngineBusy) as refused:
                await service.enrol_file(RECORDING, EnrolRequest())
            assert refused.value.retry_after_s > 0
            # Look-ups go on meanwhile.
            assert len(await service.list()) == 1
            engine.gate.set()
        assert len(await service.list()) == 5
        await service.enrol_file(RECORDING, EnrolRequest())

    assert run(tmp_path, use, max_waiting=4).most_at_once == 2


def test_a_client_that_leaves_frees_its_place(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        engine.gate.clear()
        leaving = asyncio.create_task(service.enrol_file(RECORDING, EnrolRequest()))
        await engine.wait_entered(1)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        engine.gate.set()
        await service.enrol_file(RECORDING, EnrolRequest())
        assert len(await service.list()) == 2

    run(tmp_path, use, max_waiting=1)


def test_a_client_that_leaves_while_its_voice_is_stored_leaves_none(tmp_path: Path) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        loop = asyncio.get_running_loop()
        storing, go_on = asyncio.Event(), threading.Event()
        add = service._store.add

        def slow_add(*args: Any) -> None:
            loop.call_soon_threadsafe(storing.set)
            assert go_on.wait(10)
            add(*args)

        service._store.add = slow_add  # type: ignore[method-assign]
        leaving = asyncio.create_task(service.enrol_file(RECORDING, EnrolRequest()))
        await storing.wait()
        leaving.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert len(await service.list()) == 1
        assert files_in(tmp_path) == [".lock"]

    run(tmp_path, use)


def test_a_closed_service_takes_nothing(tmp_path: Path) -> None:
    voice_id = enrol(tmp_path).voice.voice_id

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        engine.gate.clear()
        waiting = asyncio.create_task(service.resolve(voice_id))
        await engine.wait_entered(1)
        await service.close()
        with pytest.raises(VoiceNotFound):
            await waiting
        with pytest.raises(ShuttingDown):
            await service.enrol_file(RECORDING, EnrolRequest())
        with pytest.raises(ShuttingDown):
            await service.list()
        await service.close()

    run(tmp_path, use, {"fingerprint": "count/2"})
    assert not [t for t in threading.enumerate() if t.name.startswith("cosyvoice-voices")]


def test_names_and_words_reach_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made = await service.enrol_file(RECORDING, EnrolRequest("Annabelle", "Zebra", "Okapi"))
        (tmp_path / made.voice.voice_id / "voice.json").write_text("{")
        await service.list()
        assert "nnabelle" not in made.voice.voice_id

    with caplog.at_level(logging.DEBUG):
        run(tmp_path, use)
    assert "damaged" in caplog.text
    for word in ("nnabelle", "Zebra", "Okapi"):
        assert word not in caplog.text


@dataclass
class ScriptedTranscriber:
    """Hears what it is told to."""

    heard: str
    loaded: int = 0
    asked: int = 0

    def load(self) -> None:
        self.loaded += 1

    def transcribe(self, reference: ReferenceAudio) -> str:
        assert reference.sample_rate == 24_000
        self.asked += 1
        return self.heard


CLONING = {"features": frozenset({Feature.CLONING})}


def enrolled_with(
    folder: Path, transcriber: ScriptedTranscriber | None, transcript: str | None
) -> tuple[Enrolment, CountingEngine]:
    made: list[Enrolment] = []

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        await service.warm_up()
        made.append(
            await service.enrol_file(RECORDING, EnrolRequest(name="A", transcript=transcript))
        )

    engine = run(folder, use, CLONING, transcriber=transcriber)
    return made[0], engine


def transcript_item(made: Enrolment) -> dict[str, Any] | None:
    return next((each for each in made.quality["items"] if each["item"] == "transcript"), None)


def test_a_missing_transcript_is_heard_and_shown(tmp_path: Path) -> None:
    transcriber = ScriptedTranscriber("Please leave the parcel.")
    made, engine = enrolled_with(tmp_path, transcriber, None)
    assert transcriber.loaded == 1
    assert engine.transcripts == ["Please leave the parcel."]
    assert made.transcript == made.voice.transcript == "Please leave the parcel."
    item = transcript_item(made)
    assert item is not None
    assert item["reason"] == "transcribed"
    assert any("speech recognition" in warning for warning in made.warnings)


def test_a_wrong_transcript_is_replaced_and_the_caller_told(tmp_path: Path) -> None:
    transcriber = ScriptedTranscriber("Please leave the parcel.")
    made, engine = enrolled_with(tmp_path, transcriber, "Once upon a time in a far country.")
    assert engine.transcripts == ["Please leave the parcel."]
    item = transcript_item(made)
    assert item is not None
    assert item["reason"] == "transcript_differs"
    assert item["value"] > 0.3


def test_a_right_transcript_stays_as_it_was_written(tmp_path: Path) -> None:
    transcriber = ScriptedTranscriber("please leave the parsel")
    made, engine = enrolled_with(tmp_path, transcriber, "Please leave the parcel!")
    assert engine.transcripts == ["Please leave the parcel!"]
    item = transcript_item(made)
    assert item is not None
    assert item["verdict"] == "ok"


def test_without_a_transcript_the_report_says_so(tmp_path: Path) -> None:
    made, engine = enrolled_with(tmp_path, None, None)
    assert engine.transcripts == [None]
    item = transcript_item(made)
    assert item is not None
    assert item["reason"] == "no_transcript"


def test_an_adapted_voice_needs_no_transcript(tmp_path: Path) -> None:
    transcriber = ScriptedTranscriber("x")
    made: list[Enrolment] = []

    async def use(service: VoiceService, engine: CountingEngine) -> None:
        made.append(await service.enrol_file(RECORDING, EnrolRequest(name="A")))

    run(tmp_path, use, transcriber=transcriber)
    assert transcriber.asked == 0
    assert transcript_item(made[0]) is None
