"""Voices for sessions and routes: enrolment, look-up and deletion without blocking the event loop.

Three kinds live side by side: those built into the engine, those in the `VoiceStore`, and temporary
ones that exist in memory only, are not listed, and are known to whoever holds their id.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from cosyvoice_stream.decode import decode_audio
from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import (
    EngineBusy,
    EnrolmentRejected,
    InvalidState,
    LimitExceeded,
    ShuttingDown,
    VoiceNotFound,
)
from cosyvoice_stream.quality import Policy
from cosyvoice_stream.reference import PreparedReference, prepare_reference
from cosyvoice_stream.types import Feature, Samples, Voice
from cosyvoice_stream.voice_files import VoiceRecord
from cosyvoice_stream.voices import VoiceStore, new_voice_id, timestamp

MAX_NAME_CHARS: Final = 80
MAX_TRANSCRIPT_CHARS: Final = 1_000
MAX_CONSENT_CHARS: Final = 2_000
DEFAULT_NAME: Final = "My voice"

_WORKERS = 3
_ENROLLING = 2
"""Recordings that are worked on at once; one worker stays free for look-ups."""
_RETRY_AFTER_S = 1.0

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class EnrolRequest:
    """What a client says about a recording."""

    name: str | None = None
    transcript: str | None = None
    consent: str | None = None
    """The speaker's statement of consent."""
    persist: bool = True
    """Store the voice; otherwise it lives in memory until it is deleted or displaced."""


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """``VOICE`` of docs/protocol.md."""

    voice_id: str
    name: str
    kind: Literal["builtin", "adapted", "cloned"]
    engine: str
    created_at: str | None = None
    duration_ms: int | None = None
    transcript: str | None = None
    consent: str | None = None
    persistent: bool | None = None
    quality: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "id": self.voice_id,
            "name": self.name,
            "kind": self.kind,
            "engine": self.engine,
            "created_at": self.created_at,
            "duration_ms": self.duration_ms,
            "transcript": self.transcript,
            "consent": self.consent,
            "persistent": self.persistent,
            "quality": self.quality,
        }


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A voice that was made, and what the speaker should know about the recording."""

    voice: VoiceInfo
    quality: dict[str, Any]
    warnings: list[str]
    transcript: str | None


class VoiceService:
    """The voices of one engine. All methods are called from one event loop.

    Args:
        engine: Makes voices from references.
        store: Keeps them.
        require_consent: Refuse a recording without a statement of consent.
        policy: How strict to be about recordings.
        max_reference_s: Longest accepted recording.
        memory_bytes: Budget for the tensors of stored voices in memory.
        max_temporary: Voices that are not stored; the one used longest ago goes first.
        max_waiting: Enrolments at work or waiting; more are refused with `EngineBusy`.
    """

    def __init__(
        self,
        engine: Engine,
        store: VoiceStore,
        *,
        require_consent: bool = False,
        policy: Policy = "warn",
        max_reference_s: float = 60.0,
        memory_bytes: int = 64 * 1024 * 1024,
        max_temporary: int = 256,
        max_waiting: int = 16,
    ) -> None:
        self._engine = engine
        self._store = store
        self._require_consent = require_consent
        self._policy: Policy = policy
        self._max_reference_s = max_reference_s
        self._max_temporary = max_temporary
        self._max_waiting = max_waiting
        self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="cosyvoice-voices")
        self._enrolling = asyncio.Semaphore(_ENROLLING)
        self._waiting = 0
        self._cache = _VoiceCache(memory_bytes)
        self._temporary: OrderedDict[str, tuple[VoiceRecord, Voice]] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Voice]] = {}
        self._closed = False

    @property
    def max_reference_s(self) -> float:
        """Longest accepted recording, in seconds."""
        return self._max_reference_s

    async def list(self) -> list[VoiceInfo]:
        """Return the built-in voices, then the stored ones, oldest first."""
        builtin = [self._builtin_info(voice) for voice in self._engine.info.voices]
        records = await self._run(self._store.list)
        return builtin + [self._info(record, persistent=True) for record in records]

    async def info(self, voice_id: str) -> VoiceInfo:
        """Return the facts of one voice, temporary ones included.

        Raises:
            VoiceNotFound: There is no such voice.
        """
        if (builtin := self._builtin(voice_id)) is not None:
            return self._builtin_info(builtin)
        if (temporary := self._temporary.get(voice_id)) is not None:
            return self._info(temporary[0], persistent=False)
        return self._info(await self._run(self._store.get, voice_id), persistent=True)

    async def resolve(self, voice_id: str | None) -> Voice:
        """Return what the engine needs to speak with a voice.

        A stored voice that this engine has not made yet is enrolled again from its recording, once
        however many ask for it at the same time.

        Args:
            voice_id: None for the engine's default voice.

        Raises:
            VoiceNotFound: There is no such voice.
            EnrolmentRejected: This engine cannot make the voice from its recording.
        """
        if voice_id is None:
            return self._engine.info.voices[0]
        if (builtin := self._builtin(voice_id)) is not None:
            return builtin
        if (temporary := self._temporary.get(voice_id)) is not None:
            self._temporary.move_to_end(voice_id)
            return temporary[1]
        if (cached := self._cache.get(voice_id)) is not None:
            # Another process, such as the command line, may have deleted it from the store.
            if await self._run(self._store.exists, voice_id):
                return cached
            self._cache.drop(voice_id)
            raise VoiceNotFound(voice_id)
        task = self._loading.get(voice_id)
        if task is None:
            task = asyncio.create_task(self._load(voice_id), name="load voice")
            self._loading[voice_id] = task
            task.add_done_callback(partial(self._loaded, voice_id))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by `delete` or `close`, not by our caller
                raise VoiceNotFound(voice_id) from None
            raise

    async def enrol_file(self, data: bytes | Path, request: EnrolRequest) -> Enrolment:
        """Make a voice from a recording in any common file format.

        Args:
            data: The file, or where it lies; it is only read.
            request: What the client says about it.

        Raises:
            EnrolmentRejected: The recording cannot be used, or the consent is missing.
            UnsupportedFormat: It is not audio.
            LimitExceeded: It is too long, a text is too long, or the store is full.
            EngineBusy: Too many recordings are being worked on.
        """
        return await self._enrol(partial(self._prepare_file, data), request)

    async def enrol_samples(
        self, samples: Samples, sample_rate: int, request: EnrolRequest
    ) -> Enrolment:
        """Make a voice from samples; see `enrol_file` for the errors."""
        return await self._enrol(partial(self._prepare, samples, sample_rate), request)

    async def delete(self, voice_id: str) -> None:
        """Remove a voice from the store and from memory.

        Utterances that speak with it go on to their end.

        Raises:
            VoiceNotFound: There is no such voice.
            InvalidState: It is built into the engine.
        """
        if self._builtin(voice_id) is not None:
            raise InvalidState(
                "a built-in voice cannot be deleted", how_to_fix="choose another voice instead"
            )
        if self._temporary.pop(voice_id, None) is not None:
            return
        try:
            await self._run(self._store.delete, voice_id)
        finally:
            # After the deletion, so that a load that began before it cannot put the voice back.
            if (task := self._loading.pop(voice_id, None)) is not None:
                task.cancel()
            self._cache.drop(voice_id)

    def forget_temporary(self, voice_id: str) -> None:
        """Drop a voice that is not stored, if there is one: its session has ended."""
        self._temporary.pop(voice_id, None)

    async def close(self) -> None:
        """Stop taking work and wait for what runs. Safe to call twice."""
        self._closed = True
        tasks = [*self._loading.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)
        self._cache.clear()

    async def _enrol(
        self, prepare: Callable[[], PreparedReference], request: EnrolRequest
    ) -> Enrolment:
        request = self._check(request)
        if self._waiting >= self._max_waiting:
            raise EngineBusy(_RETRY_AFTER_S, "too many recordings are being worked on")
        self._waiting += 1
        try:
            async with self._enrolling:
                prepared = await self._run(prepare)
                try:
                    made = await self._engine.enrol(prepared.reference, request.transcript)
                except EnrolmentRejected as rejected:
                    rejected.quality = rejected.quality or prepared.quality.to_json()
                    raise
                return await self._keep(prepared, made, request)
        finally:
            self._waiting -= 1

    async def _keep(
        self, prepared: PreparedReference, made: Voice, request: EnrolRequest
    ) -> Enrolment:
        """Give the voice its name and put it where it will be found."""
        record = VoiceRecord(
            voice_id=new_voice_id(),
            name=request.name or DEFAULT_NAME,
            kind=self._kind,
            created_at=timestamp(),
            duration_ms=len(prepared.reference.samples) * 1000 // prepared.reference.sample_rate,
            bandwidth_hz=prepared.reference.bandwidth_hz,
            engine=self._engine.info.name,
            fingerprint=self._engine.info.fingerprint,
            transcript=request.transcript,
            consent=request.consent,
            quality=prepared.quality.to_json(),
        )
        voice = replace(made, voice_id=record.voice_id, name=record.name)
        if request.persist:
            await self._store_or_undo(record, prepared, voice)
            self._cache.put(record.voice_id, voice)
        else:
            self._temporary[record.voice_id] = (record, voice)
            while len(self._temporary) > self._max_temporary:
                self._temporary.popitem(last=False)
        return Enrolment(
            self._info(record, persistent=request.persist),
            dict(record.quality),
            list(prepared.warnings),
            request.transcript,
        )

    async def _store_or_undo(
        self, record: VoiceRecord, prepared: PreparedReference, voice: Voice
    ) -> None:
        """Store a voice; if the client goes away meanwhile, it leaves no voice behind."""
        storing = asyncio.ensure_future(
            self._run(self._store.add, record, prepared.reference, voice)
        )
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            await asyncio.wait([storing])
            if not storing.cancelled() and storing.exception() is None:
                await self._run(self._store.delete, record.voice_id)
            raise

    async def _load(self, voice_id: str) -> Voice:
        """Read a stored voice, or make it again for this engine; runs once at a time per voice."""
        fingerprint = self._engine.info.fingerprint
        voice = await self._run(self._store.voice, voice_id, fingerprint)
        if voice is None:
            record = await self._run(self._store.get, voice_id)
            reference = await self._run(self._store.reference, voice_id)
            async with self._enrolling:
                made = await self._engine.enrol(reference, record.transcript)
            voice = replace(made, voice_id=voice_id, name=record.name)
            await self._run(self._store.put_voice, voice_id, voice)
        self._cache.put(voice_id, voice)
        return voice

    def _loaded(self, voice_id: str, task: asyncio.Task[Voice]) -> None:
        if self._loading.get(voice_id) is task:
            del self._loading[voice_id]
        if not task.cancelled():
            task.exception()  # those who wait get it; without any it is nobody's

    def _prepare_file(self, data: bytes | Path) -> PreparedReference:
        decoded = decode_audio(data, max_seconds=self._max_reference_s)
        return prepare_reference(decoded.samples, decoded.sample_rate, self._policy)

    def _prepare(self, samples: Samples, sample_rate: int) -> PreparedReference:
        if len(samples) > self._max_reference_s * sample_rate:
            raise LimitExceeded("seconds of audio", self._max_reference_s)
        return prepare_reference(samples, sample_rate, self._policy)

    def _check(self, request: EnrolRequest) -> EnrolRequest:
        """Check and clean what the client says."""
        for what, text, limit in (
            ("characters in the name of a voice", request.name, MAX_NAME_CHARS),
            ("characters in a transcript", request.transcript, MAX_TRANSCRIPT_CHARS),
            ("characters in a consent statement", request.consent, MAX_CONSENT_CHARS),
        ):
            if text is not None and len(text) > limit:
                raise LimitExceeded(what, limit, len(text))
        request = EnrolRequest(
            _clean(request.name), _clean(request.transcript), _clean(request.consent),
            request.persist,
        )  # fmt: skip
        if self._require_consent and request.consent is None:
            raise EnrolmentRejected(
                "consent_missing",
                "this server makes a voice only with the speaker's consent",
                "send the speaker's statement of consent in the field `consent`",
            )
        return request

    async def _run(self, function: Callable[..., _T], *args: Any) -> _T:
        if self._closed:
            raise ShuttingDown
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    @property
    def _kind(self) -> Literal["adapted", "cloned"]:
        return "cloned" if Feature.CLONING in self._engine.info.features else "adapted"

    def _builtin(self, voice_id: str) -> Voice | None:
        voices = self._engine.info.voices
        return next((voice for voice in voices if voice.voice_id == voice_id), None)

    def _builtin_info(self, voice: Voice) -> VoiceInfo:
        return VoiceInfo(voice.voice_id, voice.name, "builtin", self._engine.info.name)

    def _info(self, record: VoiceRecord, *, persistent: bool) -> VoiceInfo:
        """Describe a voice as this engine speaks it, whichever engine it was made for."""
        return VoiceInfo(
            voice_id=record.voice_id,
            name=record.name,
            kind=self._kind,
            engine=self._engine.info.name,
            created_at=record.created_at,
            duration_ms=record.duration_ms,
            transcript=record.transcript,
            consent=record.consent,
            persistent=persistent,
            quality=dict(record.quality),
        )


class _VoiceCache:
    """Voices in memory up to a number of bytes; the one used longest ago goes first."""

    _OVERHEAD_BYTES = 1024

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._voices: OrderedDict[str, Voice] = OrderedDict()

    def get(self, voice_id: str) -> Voice | None:
        voice = self._voices.get(voice_id)
        if voice is not None:
            self._voices.move_to_end(voice_id)
        return voice

    def put(self, voice_id: str, voice: Voice) -> None:
        self.drop(voice_id)
        self._voices[voice_id] = voice
        self._bytes += self._size_bytes(voice)
        while self._bytes > self._max_bytes and self._voices:
            self.drop(next(iter(self._voices)))

    def drop(self, voice_id: str) -> None:
        if (voice := self._voices.pop(voice_id, None)) is not None:
            self._bytes -= self._size_bytes(voice)

    def clear(self) -> None:
        self._voices.clear()
        self._bytes = 0

    def _size_bytes(self, voice: Voice) -> int:
        return self._OVERHEAD_BYTES + sum(array.nbytes for array in voice.tensors.values())


def _clean(text: str | None) -> str | None:
    """Return the text without control characters and outer spaces, None if nothing is left."""
    if text is None:
        return None
    kept = "".join(
        " " if char.isspace() else char
        for char in text
        if char.isspace() or unicodedata.category(char)[0] != "C"
    )
    return kept.strip() or None
