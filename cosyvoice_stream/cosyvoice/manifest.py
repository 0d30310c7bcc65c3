"""The file that pins a checkpoint: where it is from, and each file's size and SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cosyvoice_stream.errors import ConfigError, DownloadFailed

MANIFEST: Final = "cosyvoice-stream.lock.json"
FORMAT: Final = 1


@dataclass(frozen=True)
class PinnedFile:
    """What a file was when it arrived."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint folder holds, and where it came from."""

    model: str
    """As on the command line, such as ``cosyvoice2``."""
    hub: str
    repository: str
    revision: str
    """As it was asked for: branch, tag or commit."""
    commit: str | None
    """What the revision stood for, or None where the hub does not say."""
    files: dict[str, PinnedFile]

    def problems(self, folder: Path) -> dict[str, str]:
        """Compare a folder with the manifest; reads every file.

        Returns:
            Name of each file that differs → what is wrong with it.

        Raises:
            OSError: A file cannot be read.
        """
        found = {}
        for name, pinned in self.files.items():
            path = folder / name
            if not path.is_file():
                found[name] = "is missing"
            elif (size := path.stat().st_size) != pinned.size_bytes:
                found[name] = f"has {size} bytes instead of {pinned.size_bytes}"
            elif sha256_of(path) != pinned.sha256:
                found[name] = "has another checksum"
        return found

    def write(self, folder: Path) -> None:
        """Store in a folder, all or nothing."""
        content = {
            "format": FORMAT,
            "model": self.model,
            "hub": self.hub,
            "repository": self.repository,
            "revision": self.revision,
            "commit": self.commit,
            "files": {
                name: {"size": file.size_bytes, "sha256": file.sha256}
                for name, file in sorted(self.files.items())
            },
        }
        draft = folder / f".{MANIFEST}.tmp"
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / MANIFEST)


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a folder; None if it has none.

    Raises:
        ConfigError: The folder is a file.
        DownloadFailed: The manifest is damaged or from another version of this program.
    """
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_bytes())
        if raw["format"] != FORMAT:
            raise ValueError("unknown format")
        return Manifest(
            _text(raw["model"]),
            _text(raw["hub"]),
            _text(raw["repository"]),
            _text(raw["revision"]),
            None if raw["commit"] is None else _text(raw["commit"]),
            {_name(name): _pinned(file) for name, file in raw["files"].items()},
        )
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise not_a_folder(folder) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DownloadFailed(
            f"{path} is damaged, or another version of cosyvoice-stream wrote it",
            how_to_fix="delete it and download again: files that are right are kept",
        ) from error


def not_a_folder(folder: Path) -> ConfigError:
    """Return what to raise when a path for a checkpoint leads to a file."""
    return ConfigError(f"{folder} is not a folder", how_to_fix="name a folder with --to")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _name(value: Any) -> str:
    path = Path(_text(value))
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("a name that leaves the folder")
    return str(value)


def _pinned(raw: Any) -> PinnedFile:
    if type(raw["size"]) is not int:
        raise TypeError("not a size")
    return PinnedFile(raw["size"], _text(raw["sha256"]))


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git_sha1_of(path: Path) -> str:
    """Name that git gives to a file's content, in hexadecimal."""
    size = path.stat().st_size
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        ).hexdigest()
