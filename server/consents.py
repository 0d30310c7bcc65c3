"""Recorded statements of consent, as OpenAI's clients upload them before they make a voice.

A consent is two files beside the voices: the recording as it came, and a JSON file that is written
last and removed first, so that there is never one without its recording.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from cosyvoice_stream.errors import LimitExceeded, VoiceError
from cosyvoice_stream.server.error_map import ConsentNotFound
from cosyvoice_stream.voice_files import sync_folder, write

_ID: Final = re.compile(r"cons_[a-z2-7]{16}")
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass(frozen=True, slots=True)
class Consent:
    """What is known about a recorded statement."""

    consent_id: str
    name: str
    language: str
    """BCP 47 tag of what is said, as the client stated it."""
    created_at: int
    """Seconds since 1970."""
    owner: str | None = None
    """`key_name` of the key that uploaded it; only that key sees it."""

    @property
    def statement(self) -> str:
        """What is noted with a voice that is made on its strength."""
        return f"recorded consent {self.consent_id} ({self.language}): {self.name}"


def is_consent_id(text: str) -> bool:
    """Tell whether a text has the form of our ids."""
    return bool(_ID.fullmatch(text))


class ConsentStore:
    """Consents in a folder. All methods may block and may be called from several threads.

    Args:
        folder: Made when the first consent is added.
        max_consents: Further ones are refused.
    """

    def __init__(self, folder: Path, *, max_consents: int) -> None:
        self.folder = folder
        self.max_consents = max_consents
        self._changing = threading.Lock()

    def add(
        self, recording: bytes, *, name: str, language: str, owner: str | None, now: float
    ) -> Consent:
        """Keep a recording.

        Raises:
            LimitExceeded: There are `max_consents` already.
            VoiceError: The folder cannot be written.
        """
        drawn = "".join(secrets.choice(_ALPHABET) for _ in range(16))
        consent = Consent(f"cons_{drawn}", name, language, int(now), owner)
        try:
            with self._changing:
                if sum(1 for _ in self._paths()) >= self.max_consents:
                    raise LimitExceeded(
                        "stored consents", self.max_consents, how_to_fix="delete one"
                    )
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write(self._recording(consent.consent_id), recording)
                self._write(consent)
        except OSError as error:
            raise VoiceError(f"the consent cannot be stored: {error.strerror}") from error
        return consent

    def get(self, consent_id: str, owner: str | None) -> Consent:
        """Read one consent.

        Raises:
            ConsentNotFound: There is none with this id, or another key uploaded it.
        """
        consent = self._read(self._facts(consent_id))
        if consent is None or consent.owner != owner:
            raise ConsentNotFound
        return consent

    def list(self, owner: str | None) -> list[Consent]:
        """Read all consents of a key, newest first."""
        read = (self._read(path) for path in self._paths())
        mine = [consent for consent in read if consent is not None and consent.owner == owner]
        return sorted(mine, key=lambda one: (one.created_at, one.consent_id), reverse=True)

    def rename(self, consent_id: str, name: str, owner: str | None) -> Consent:
        """Give a consent another name; see `get` for the errors."""
        with self._changing:
            consent = replace(self.get(consent_id, owner), name=name)
            self._write(consent)
        return consent

    def delete(self, consent_id: str, owner: str | None) -> None:
        """Remove a consent; voices that were made with it stay. See `get` for the errors."""
        with self._changing:
            self.get(consent_id, owner)
            self._facts(consent_id).unlink()
            self._recording(consent_id).unlink(missing_ok=True)
            sync_folder(self.folder)

    def _facts(self, consent_id: str) -> Path:
        if not is_consent_id(consent_id):
            raise ConsentNotFound
        return self.folder / f"{consent_id}.json"

    def _recording(self, consent_id: str) -> Path:
        return self._facts(consent_id).with_suffix(".recording")

    def _paths(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from (p for p in self.folder.glob("cons_*.json") if is_consent_id(p.stem))

    def _write(self, consent: Consent) -> None:
        building = self.folder / f".{consent.consent_id}.new"
        write(building, json.dumps(asdict(consent), ensure_ascii=False).encode())
        building.replace(self._facts(consent.consent_id))
        sync_folder(self.folder)

    def _read(self, path: Path) -> Consent | None:
        try:
            consent = Consent(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        return consent if consent.consent_id == path.stem else None
