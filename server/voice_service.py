"""Voices for sessions and routes: enrolment, look-up and deletion without blocking the event loop.

Three kinds live side by side: those built into the engine, those in the `VoiceStore`, and temporary
ones that exist in memory only, are not listed, and are known to whoever holds their id.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from cosyvoice_stream.engine import Engine
from cosyvoice_stream.errors import (
    EngineBusy,
    EnrolmentRejected,
    InvalidState,
    LimitExceeded,
    ShuttingDown,
    VoiceNotFound,
)
from cosyvoice_stream.server.transcribing import settle_transcript
from cosyvoice_stream.server.voice_cache import VoiceCache
from cosyvoice_stream.server.voice_info import Enrolment, EnrolRequest, VoiceInfo
from cosyvoice_stream.types import Feature, Samples, Voice
from cosyvoice_stream.voice_files import VoiceRecord
from cosyvoice_stream.voices import VoiceStore, new_voice_id, timestamp

if TYPE_CHECKING:
    from cosyvoice_stream.asr import Transcriber
    from cosyvoice_stream.quality import Policy
    from cosyvoice_stream.reference import PreparedReference

__all__ = ["DEFAULT_NAME", "EnrolRequest", "Enrolment", "VoiceInfo", "VoiceService"]

DEFAULT_NAME: Final = "My voice"

_WORKERS = 3
_ENROLLING = 2
"""Recordings that are worked on at once; one worker stays free for look-ups."""
_RETRY_AFTER_S = 1.0

_T = TypeVar("_T")


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
        max_per_owner: Voices of one key, temporary ones included; further ones are refused.
        max_waiting: Enrolments at work or waiting; more are refused with `EngineBusy`.
        transcriber: Hears what is said in a recording; None takes the caller's word for it.
        forgotten: Is told the id of a voice that is no more, wherever it was kept.
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
        max_per_owner: int | None = None,
        max_waiting: int = 16,
        transcriber: Transcriber | None = None,
        forgotten: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._store = store
        self._require_consent = require_consent
        self._policy: Policy = policy
        self._max_reference_s = max_reference_s
        self._max_temporary = max_temporary
        self._max_per_owner = max_per_owner
        self._max_waiting = max_waiting
        self._transcriber = transcriber
        self._forgotten = forgotten
        self._enrolling_owners: Counter[str] = Counter()
        self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="cosyvoice-voices")
        self._enrolling = asyncio.Semaphore(_ENROLLING)
        self._waiting = 0
        self._cache = VoiceCache(memory_bytes)
        self._temporary: OrderedDict[str, tuple[VoiceRecord, Voice]] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Voice]] = {}
        self._closed = False

    @property
    def max_reference_s(self) -> float:
        """Longest accepted recording, in seconds."""
        return self._max_reference_s

    async def warm_up(self) -> None:
        """Import what reads recordings, so that the first enrolment does not wait for it.

        The modules are not imported at the top because they bring in scipy.signal, which takes
        0.7 s of a start that should take 3 s.
        """
        for module in ("cosyvoice_stream.decode", "cosyvoice_stream.reference"):
            await self._run(import_module, module)
        if self._transcriber is not None:
            await self._run(self._transcriber.load)

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
            self._forgotten(voice_id)
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
            self._forgotten(voice_id)
            return
        try:
            await self._run(self._store.delete, voice_id)
        finally:
            # After the deletion, so that a load that began before it cannot put the voice back.
            if (task := self._loading.pop(voice_id, None)) is not None:
                task.cancel()
            self._cache.drop(voice_id)
            self._forgotten(voice_id)

    def forget_temporary(self, voice_id: str) -> None:
        """Drop a voice that is not stored, if there is one: its session has ended."""
        self._temporary.pop(voice_id, None)
        self._forgotten(voice_id)

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
        owner = request.owner or ""
        self._waiting += 1
        self._enrolling_owners[owner] += 1
        try:
            await self._check_owner(request.owner)
            async with self._enrolling:
                prepared = await self._run(prepare)
                prepared, request = await self._run(
                    settle_transcript, prepared, request, self._transcriber, self._kind
                )
                try:
                    made = await self._engine.enrol(prepared.reference, request.transcript)
                except EnrolmentRejected as rejected:
                    rejected.quality = rejected.quality or prepared.quality.to_json()
                    raise
                return await self._keep(prepared, made, request)
        finally:
            self._waiting -= 1
            self._enrolling_owners[owner] -= 1
            self._enrolling_owners += Counter()  # forget the zeros

    async def _check_owner(self, owner: str | None) -> None:
        """Refuse one voice too many of a key, those that are being made included."""
        limit = self._max_per_owner
        if limit is None or owner is None:
            return
        records = await self._run(self._store.list)
        records += [record for record, _ in self._temporary.values()]
        count = sum(record.owner == owner for record in records) + self._enrolling_owners[owner]
        if count > limit:
            raise LimitExceeded(
                "voices of one key", limit, how_to_fix="delete one with DELETE /v1/voices/{id}"
            )

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
            owner=request.owner,
        )
        voice = replace(made, voice_id=record.voice_id, name=record.name)
        if request.persist:
            await self._store_or_undo(record, prepared, voice)
            self._cache.put(record.voice_id, voice)
        else:
            self._temporary[record.voice_id] = (record, voice)
            while len(self._temporary) > self._max_temporary:
                self._forgotten(self._temporary.popitem(last=False)[0])
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
        from cosyvoice_stream.decode import decode_audio

        decoded = decode_audio(data, max_seconds=self._max_reference_s)
        return self._check_reference(decoded.samples, decoded.sample_rate)

    def _prepare(self, samples: Samples, sample_rate: int) -> PreparedReference:
        if len(samples) > self._max_reference_s * sample_rate:
            raise LimitExceeded("seconds of audio", self._max_reference_s)
        return self._check_reference(samples, sample_rate)

    def _check_reference(self, samples: Samples, sample_rate: int) -> PreparedReference:
        from cosyvoice_stream.reference import prepare_reference

        return prepare_reference(samples, sample_rate, self._policy)

    def _check(self, request: EnrolRequest) -> EnrolRequest:
        request = request.checked()
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
