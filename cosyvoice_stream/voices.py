"""Voices on disk: one folder per voice, complete or absent whatever happens to the process.

::

    voices/                      mode 0700: recordings of people's voices
      .lock                      shared by writers, so that nobody sweeps up what another builds
      voice-7k2m…/               mode 0700
        voice.json               `VoiceRecord`
        reference.wav            the checked recording, mono, 16 bit
        engine-<hash>.safetensors  what an engine made of it; a cache, made again when missing
      .new-voice-…, .gone-voice-…   being built, being removed; swept up at the next start

A voice is built under a temporary name, flushed to the disk and renamed; it is deleted by renaming
it away first. Several processes may use one folder.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import threading
import time
import wave
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import safetensors

from cosyvoice_stream.errors import LimitExceeded, VoiceError, VoiceNotFound
from cosyvoice_stream.types import ReferenceAudio, Voice
from cosyvoice_stream.voice_files import (
    VoiceRecord,
    cache_name,
    from_json,
    from_safetensors,
    from_wav,
    sync_folder,
    to_json,
    to_safetensors,
    to_wav,
    write,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

_ID = re.compile(r"voice-[a-z2-7]{16}")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_NEW, _GONE = ".new-", ".gone-"
_RECORD, _REFERENCE = "voice.json", "reference.wav"
_CACHES_KEPT = 4
_LEFTOVER_AGE_S = 3600.0
"""Age from which a leftover is swept up where files cannot be locked."""
_ECHOED_CHARS = 64


def new_voice_id() -> str:
    """Draw an id: it cannot be guessed, and tells nothing of the person."""
    return "voice-" + "".join(secrets.choice(_ALPHABET) for _ in range(16))


def is_voice_id(text: str) -> bool:
    """Tell whether a text has the form of the ids that `new_voice_id` draws."""
    return bool(_ID.fullmatch(text))


def timestamp() -> str:
    """Return the time in the form of `VoiceRecord.created_at`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class VoiceStore:
    """Stored voices. All methods block on the disk and may be called from any thread.

    Args:
        folder: Made, with its parents, when the first voice is added.
        max_voices: Further voices are refused.
    """

    def __init__(self, folder: Path, *, max_voices: int = 1000) -> None:
        self.folder = folder
        self.max_voices = max_voices
        self._changing = threading.Lock()
        if folder.is_dir():
            self._sweep()

    def add(self, record: VoiceRecord, reference: ReferenceAudio, voice: Voice) -> None:
        """Store a voice under ``record.voice_id``.

        Args:
            record: Its facts; the id comes from `new_voice_id`.
            reference: The recording from which any engine can make the voice again.
            voice: What the engine made of it.

        Raises:
            LimitExceeded: There are `max_voices` already.
            VoiceError: The folder cannot be written.
        """
        final = self._path(record.voice_id)
        with self._changing, _explain_os_errors(), self._shared_lock():
            if sum(1 for _ in self._ids()) >= self.max_voices:
                raise LimitExceeded(
                    "stored voices",
                    self.max_voices,
                    how_to_fix="delete one that is not needed",
                )
            building = self.folder / f"{_NEW}{record.voice_id}"
            try:
                building.mkdir(mode=0o700)
                write(building / _REFERENCE, to_wav(reference))
                write(building / cache_name(voice.engine), to_safetensors(voice))
                write(building / _RECORD, to_json(record))
                sync_folder(building)
                building.rename(final)
            except BaseException:
                shutil.rmtree(building, ignore_errors=True)
                raise
            sync_folder(self.folder)

    def exists(self, voice_id: str) -> bool:
        """Tell whether a voice is stored under this id."""
        return bool(_ID.fullmatch(voice_id)) and (self.folder / voice_id / _RECORD).is_file()

    def get(self, voice_id: str) -> VoiceRecord:
        """Read the facts of a voice.

        Raises:
            VoiceNotFound: There is no such voice.
            VoiceError: Its files are damaged.
        """
        path = self._path(voice_id)
        try:
            record = from_json((path / _RECORD).read_bytes())
            complete = record.voice_id == voice_id and (path / _REFERENCE).is_file()
        except FileNotFoundError:
            if (path / _REFERENCE).is_file():
                raise _damaged() from None
            raise VoiceNotFound(voice_id) from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _damaged() from error
        if not complete:
            raise _damaged()
        return record

    def list(self) -> list[VoiceRecord]:
        """Read the facts of all voices, oldest first; damaged ones are left out with a warning."""
        records: list[VoiceRecord] = []
        damaged = 0
        for voice_id in self._ids():
            try:
                records.append(self.get(voice_id))
            except VoiceNotFound:
                continue  # deleted meanwhile
            except VoiceError:
                damaged += 1
        if damaged:
            logger.warning("%d damaged voices were left out", damaged)
        return sorted(records, key=lambda record: (record.created_at, record.voice_id))

    def reference(self, voice_id: str) -> ReferenceAudio:
        """Read the recording of a voice.

        Raises:
            VoiceNotFound: There is no such voice.
            VoiceError: Its files are damaged.
        """
        record = self.get(voice_id)
        try:
            samples, rate = from_wav(self._path(voice_id) / _REFERENCE)
        except FileNotFoundError:
            raise VoiceNotFound(voice_id) from None
        except (OSError, EOFError, wave.Error, ValueError) as error:
            raise _damaged() from error
        return ReferenceAudio(samples, rate, record.bandwidth_hz)

    def voice(self, voice_id: str, fingerprint: str) -> Voice | None:
        """Read what an engine made of a voice, or None if this one has not made it yet.

        Raises:
            VoiceNotFound: There is no such voice.
            VoiceError: Its facts are damaged.
        """
        record = self.get(voice_id)
        path = self._path(voice_id) / cache_name(fingerprint)
        try:
            return from_safetensors(path, record, fingerprint)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, safetensors.SafetensorError):
            logger.warning("a damaged engine cache of a voice will be made again")
            return None

    def put_voice(self, voice_id: str, voice: Voice) -> None:
        """Keep what an engine made of a stored voice; a few engines' caches are kept for each.

        Raises:
            VoiceNotFound: There is no such voice, or it was deleted meanwhile.
            VoiceError: The folder cannot be written.
        """
        path = self._path(voice_id)
        name = cache_name(voice.engine)
        if not path.is_dir():
            raise VoiceNotFound(voice_id)
        with self._changing, _explain_os_errors(), self._shared_lock():
            building = path / f"{_NEW}{name}"
            try:
                write(building, to_safetensors(voice))
                building.replace(path / name)
                sync_folder(path)
            except FileNotFoundError:
                raise VoiceNotFound(voice_id) from None
            caches = sorted(path.glob("engine-*"), key=lambda cache: cache.stat().st_mtime_ns)
            for old in caches[:-_CACHES_KEPT]:
                old.unlink(missing_ok=True)

    def delete(self, voice_id: str) -> None:
        """Remove a voice with everything that was made of it; damaged ones can be removed too.

        Raises:
            VoiceNotFound: There is no such voice.
            VoiceError: The folder cannot be written.
        """
        path = self._path(voice_id)
        leaving = self.folder / f"{_GONE}{voice_id}-{secrets.token_hex(4)}"
        if not path.is_dir():
            raise VoiceNotFound(voice_id)
        with self._changing, _explain_os_errors(), self._shared_lock():
            try:
                path.rename(leaving)
            except FileNotFoundError:
                raise VoiceNotFound(voice_id) from None
            sync_folder(self.folder)
            shutil.rmtree(leaving)
            sync_folder(self.folder)

    def _path(self, voice_id: str) -> Path:
        """Return the folder of a voice; every id passes here, so none leaves `folder`."""
        if not _ID.fullmatch(voice_id):
            raise VoiceNotFound(voice_id[:_ECHOED_CHARS])
        return self.folder / voice_id

    def _ids(self) -> Iterator[str]:
        try:
            entries = list(os.scandir(self.folder))
        except FileNotFoundError:
            return
        for entry in entries:
            if _ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                yield entry.name

    def _sweep(self) -> None:
        """Remove what a killed process left behind, unless another one is at work."""
        patterns = (f"{_NEW}*", f"{_GONE}*", f"voice-*/{_NEW}*")
        leftovers = [entry for pattern in patterns for entry in self.folder.glob(pattern)]
        if not leftovers:
            return
        try:
            with self._exclusive_lock() as alone:
                for entry in leftovers:
                    if alone or time.time() - entry.stat().st_mtime > _LEFTOVER_AGE_S:
                        _remove(entry)
        except OSError as error:
            logger.warning("leftovers in the voices folder stay: %s", error.strerror)

    @contextlib.contextmanager
    def _shared_lock(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _exclusive_lock(self) -> Iterator[bool]:
        """Yield whether no other process is writing, which cannot be told everywhere."""
        lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            alone = False
            if fcntl is not None:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    alone = True
            yield alone
        finally:
            os.close(lock)


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def _damaged() -> VoiceError:
    return VoiceError("the files of this voice are damaged", how_to_fix="delete it and enrol again")


@contextlib.contextmanager
def _explain_os_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise VoiceError(
            f"the voices folder cannot be written: {error.strerror}",
            how_to_fix="check free space and permissions of the voices folder",
        ) from error
