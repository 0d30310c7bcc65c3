"""The lexicon of the server: in memory, and in a file that people and requests may both change."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from cosyvoice_stream.errors import ConfigError, VoiceStreamError
from cosyvoice_stream.server.lexicon_files import form_of
from cosyvoice_stream.streaming.lexicon import Lexicon

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0
"""Between two looks at the file."""

_Stamp = tuple[int, int, int] | None
_T = TypeVar("_T")


class LexiconBook:
    """Keeps the lexicon of the server. Called from one event loop; files are read in threads.

    Utterances take `current` when they begin and keep it.

    Args:
        path: ``.json`` or ``.csv``; need not exist. None keeps the lexicon in memory only.

    Raises:
        ConfigError: The file's name ends otherwise.
    """

    def __init__(self, path: Path | None) -> None:
        self.current = Lexicon.empty()
        self._path = path
        self._form = None if path is None else form_of(path)
        self._stamp: _Stamp = None
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Read the file.

        Raises:
            ConfigError: It cannot be read or holds a mistake.
        """
        async with self._changing:
            try:
                await self._load()
            except (VoiceStreamError, OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"the lexicon {self._path} cannot be used: {error}",
                    how_to_fix="correct the file, or leave the setting out",
                ) from error

    async def watch(self) -> None:
        """Look at the file for ever; a changed one counts for utterances that begin afterwards."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Read the file if it has changed. A mistake in it is logged, and nothing changes."""
        if self._path is None:
            return
        async with self._changing:
            try:
                if await _in_thread(_stamp_of, self._path) == self._stamp:
                    return
                await self._load()
            except (VoiceStreamError, OSError, UnicodeDecodeError) as error:
                logger.warning("the changed lexicon is not used: %s", error)
            else:
                logger.info("read a lexicon of %d words", len(self.current.entries))

    async def replace(self, entries: Mapping[str, str]) -> None:
        """Put another lexicon in place, in the file as well.

        Raises:
            InvalidOption: An entry cannot be used; nothing has changed.
            LimitExceeded: There are too many.
            OSError: The file cannot be written; nothing has changed.
        """
        async with self._changing:
            await self._replace(entries)

    async def update(self, changes: Mapping[str, str | None]) -> None:
        """Add, change and (with None) remove words; see `replace` for the errors."""
        async with self._changing:
            merged = {**self.current.entries, **changes}
            await self._replace({word: read for word, read in merged.items() if read is not None})

    async def _replace(self, entries: Mapping[str, str]) -> None:
        lexicon = await _in_thread(Lexicon, entries)
        if self._path is not None and self._form is not None:
            text = self._form[1](lexicon.entries)
            self._stamp = await _in_thread(_write, self._path, text)
        self.current = lexicon

    async def _load(self) -> None:
        if self._path is None or self._form is None:
            return
        stamp, text = await _in_thread(_read, self._path)
        # A file with a mistake is not read again before it changes.
        self._stamp = stamp
        entries = self._form[0](text) if stamp is not None else {}
        self.current = await _in_thread(Lexicon, entries)


async def _in_thread(function: Callable[..., _T], *args: object) -> _T:
    """Run in a thread, to the end even when the caller is cancelled: nothing is half done."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()
        raise


def _stamp_of(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[_Stamp, str]:
    stamp = _stamp_of(path)
    if stamp is None:
        return None, ""
    return stamp, path.read_text(encoding="utf-8-sig")


def _write(path: Path, text: str) -> _Stamp:
    """Replace the file at once, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
    return _stamp_of(path)
