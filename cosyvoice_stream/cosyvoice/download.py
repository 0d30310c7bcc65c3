"""Bring an official checkpoint into a folder: only what the engine reads, pinned and verified.

Files are fetched into a folder beside their places and verified there; only when all have arrived
do they take their places, so that a checkpoint is never half of one revision and half of another.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cosyvoice_stream.cosyvoice.hubs import Hub, Listing, RemoteFile
from cosyvoice_stream.cosyvoice.manifest import (
    Manifest,
    PinnedFile,
    git_sha1_of,
    not_a_folder,
    read_manifest,
    sha256_of,
)
from cosyvoice_stream.cosyvoice.versions import VERSIONS, Version
from cosyvoice_stream.errors import ConfigError, DownloadFailed

STAGING: Final = ".cosyvoice-stream-download"
"""Folder, inside the checkpoint's, for what has not arrived whole."""
RESERVE_BYTES: Final = 64_000_000
"""Space that a download leaves free."""
ATTEMPTS: Final = 2
"""Times that a file with a wrong checksum is fetched."""
REPOSITORIES: Final = {
    2: {"huggingface": "FunAudioLLM/CosyVoice2-0.5B", "modelscope": "iic/CosyVoice2-0.5B"},
    3: {
        "huggingface": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
        "modelscope": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
    },
}
Report = Callable[[str], None]


def find_version(model: str) -> Version:
    """Find a model by its name on the command line.

    Raises:
        ConfigError: No model has this name.
    """
    for version in VERSIONS.values():
        if version.name == model:
            return version
    names = " or ".join(version.name for version in VERSIONS.values())
    raise ConfigError(
        f"{model!r} is not a model that can be downloaded", how_to_fix=f"name {names}"
    )


def compare(version: Version, folder: Path) -> tuple[Manifest, dict[str, str]]:
    """Compare a folder with what was downloaded into it; needs no network.

    Returns:
        The folder's manifest, and what is wrong with each file that differs.

    Raises:
        DownloadFailed: The folder has no manifest, a damaged one, or holds another model.
    """
    manifest = _manifest_of(version, folder)
    if manifest is None:
        raise DownloadFailed(
            f"nothing was downloaded into {folder}",
            how_to_fix=f"cosyvoice-stream download {version.name} --to {folder}",
        )
    return manifest, manifest.problems(folder)


@dataclass(frozen=True)
class _Plan:
    """Which files a folder lacks."""

    listing: Listing
    repository: str
    wanted: dict[str, RemoteFile]
    kept: dict[str, PinnedFile]
    """Files that are in their places and right."""

    @property
    def missing(self) -> list[RemoteFile]:
        """What has to be fetched, small files first."""
        absent = (file for name, file in self.wanted.items() if name not in self.kept)
        return sorted(absent, key=lambda file: file.size_bytes)


def download(
    version: Version, folder: Path, hub: Hub, *, revision: str | None, report: Report
) -> Manifest:
    """Make a folder hold a checkpoint: fetch what is missing, repair what differs.

    Without `revision`, what an earlier download pinned stays pinned; a whole folder then needs no
    network. Interrupted at any point, the next call goes on.

    Args:
        version: The model.
        folder: Where to; made if need be.
        hub: Where from.
        revision: Branch, tag or commit. None: the pinned one, else the hub's default.
        report: Called with a line about each thing that takes long.

    Raises:
        ConfigError: The folder is not one.
        DownloadFailed: The folder holds another model or a file that is not ours to replace, the
            disk is too small, the hub fails, a checksum is wrong.
        OSError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise not_a_folder(folder) from error
    with _alone(folder):
        pinned = _manifest_of(version, folder)
        if pinned is not None and revision in (None, pinned.commit) and hub.name == pinned.hub:
            report(f"checking {len(pinned.files)} files in {folder}")
            broken = pinned.problems(folder)
            if not broken:
                return pinned
            for name, what in broken.items():
                report(f"{name} {what}")
            good = {name: file for name, file in pinned.files.items() if name not in broken}
            plan = _repair_plan(version, folder, hub, pinned, good)
            revision = pinned.revision
        else:
            plan = _plan(version, folder, hub, revision or hub.default_revision, pinned)
            revision = plan.listing.revision
        staged = _stage(plan, folder, hub, report)
        _install(staged, folder, _staging(plan, folder))
        files = plan.kept | staged
        if pinned is not None:
            for name in pinned.files.keys() - files.keys():
                (folder / name).unlink(missing_ok=True)
        commit = plan.listing.commit
        manifest = Manifest(version.name, hub.name, plan.repository, revision, commit, files)
        manifest.write(folder)
    return manifest


def _manifest_of(version: Version, folder: Path) -> Manifest | None:
    manifest = read_manifest(folder)
    if manifest is not None and manifest.model != version.name:
        raise DownloadFailed(
            f"{folder} holds {manifest.model}, not {version.name}",
            how_to_fix="name another folder with --to",
        )
    return manifest


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other downloads out of a folder; leave parts behind only if something goes wrong."""
    from filelock import FileLock, Timeout

    staging = folder / STAGING
    staging.mkdir(exist_ok=True)
    try:
        with FileLock(staging / "lock", timeout=0) as lock:
            whole = False
            try:
                yield
                whole = True
            finally:
                held = Path(lock.lock_file)
                parts = (path for path in staging.rglob("*") if path.is_file() and path != held)
                if whole or not any(parts):
                    shutil.rmtree(staging, ignore_errors=True)
    except Timeout as error:
        raise DownloadFailed(
            f"another download into {folder} is running", how_to_fix="wait until it is done"
        ) from error


def _wanted(
    version: Version, hub: Hub, repository: str, revision: str
) -> tuple[Listing, dict[str, RemoteFile]]:
    """Ask the hub for the files that the engine reads."""
    listing = hub.list_files(repository, revision)
    wanted = {
        name: listing.files[name]
        for name in version.required_files + version.optional_files
        if name in listing.files
    }
    absent = [name for name in version.required_files if name not in wanted]
    if absent:
        raise DownloadFailed(
            f"{repository} at {revision} lacks {', '.join(absent)}",
            how_to_fix=f"try --revision {hub.default_revision}, or the other hub with --from",
        )
    return listing, wanted


def _plan(
    version: Version, folder: Path, hub: Hub, revision: str, pinned: Manifest | None
) -> _Plan:
    """Find out what a folder lacks of a revision."""
    repository = REPOSITORIES[version.number][hub.name]
    listing, wanted = _wanted(version, hub, repository, revision)
    ours = pinned.files if pinned is not None else {}
    kept = {}
    for name, file in wanted.items():
        path = folder / name
        found = _matching(path, file)
        if found is not None:
            kept[name] = found
        elif path.exists() and name not in ours:
            raise DownloadFailed(
                f"{path} is there and is not the file of {repository} at {revision}",
                how_to_fix="move it away, or name another folder with --to",
            )
    return _Plan(listing, repository, wanted, kept)


def _repair_plan(
    version: Version, folder: Path, hub: Hub, pinned: Manifest, good: dict[str, PinnedFile]
) -> _Plan:
    """Find out how to get back what was pinned, and nothing else."""
    at = pinned.commit or pinned.revision
    listing, offered = _wanted(version, hub, pinned.repository, at)
    wanted = {}
    for name, file in pinned.files.items():
        offer = offered.get(name)
        if name not in good and (
            offer is None
            or offer.size_bytes != file.size_bytes
            or offer.sha256 not in (None, file.sha256)
        ):
            raise DownloadFailed(
                f"{name} has changed in {pinned.repository} at {at} since it was downloaded",
                how_to_fix=f"move to what is there now with --revision {pinned.revision}",
            )
        wanted[name] = RemoteFile(name, file.size_bytes, sha256=file.sha256)
    return _Plan(listing, pinned.repository, wanted, good)


def _matching(path: Path, file: RemoteFile) -> PinnedFile | None:
    """What a file on disk is, if it is what the hub announces."""
    if not path.is_file() or path.stat().st_size != file.size_bytes:
        return None
    sha256 = sha256_of(path)
    if file.sha256 is not None:
        right = sha256 == file.sha256
    else:
        right = file.git_sha1 is None or git_sha1_of(path) == file.git_sha1
    return PinnedFile(file.size_bytes, sha256) if right else None


def _staging(plan: _Plan, folder: Path) -> Path:
    """Where parts are kept; another content has another place, so parts always fit."""
    content = sorted(repr(file) for file in plan.wanted.values())
    return folder / STAGING / hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]


def _stage(plan: _Plan, folder: Path, hub: Hub, report: Report) -> dict[str, PinnedFile]:
    """Fetch all that is missing into the staging folder, and verify it there."""
    staging = _staging(plan, folder)
    for other in (folder / STAGING).iterdir():
        if other.is_dir() and other != staging:
            shutil.rmtree(other)
    missing = plan.missing
    here = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())
    rest = max(0, sum(file.size_bytes for file in missing) - here)
    _require_space(folder, rest)
    at = plan.listing.commit or plan.listing.revision
    report(
        f"{plan.repository} at {at} from {hub.name}: {len(missing)} of {len(plan.wanted)} files, "
        f"{readable_size(rest)} to fetch"
    )
    staged = {}
    for number, file in enumerate(missing, start=1):
        report(f"[{number}/{len(missing)}] {file.name}, {readable_size(file.size_bytes)}")
        staged[file.name] = _fetch(plan, file, staging, hub, report)
    return staged


def _require_space(folder: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed_bytes and needed_bytes + RESERVE_BYTES > free:
        lacking = readable_size(needed_bytes + RESERVE_BYTES - free)
        raise DownloadFailed(
            f"{readable_size(needed_bytes)} are needed in {folder}, {readable_size(free)} are free",
            how_to_fix=f"free {lacking}, or name a folder on another disk with --to",
        )


def _fetch(plan: _Plan, file: RemoteFile, staging: Path, hub: Hub, report: Report) -> PinnedFile:
    path = staging / file.name
    for attempt in range(1, ATTEMPTS + 1):
        found = _matching(path, file)
        if found is None:
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            hub.fetch(plan.repository, plan.listing, file, staging)
            found = _matching(path, file)
        if found is not None:
            return found
        path.unlink(missing_ok=True)
        if attempt < ATTEMPTS:
            report(f"{file.name} arrived with a wrong checksum, fetching it again")
    raise DownloadFailed(
        f"{file.name} from {hub.name} does not have the checksum that the hub announces",
        how_to_fix="try again later, or the other hub with --from; a proxy may be changing files",
    )


def _install(staged: dict[str, PinnedFile], folder: Path, staging: Path) -> None:
    for name in staged:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (staging / name).replace(target)


def readable_size(size_bytes: int) -> str:
    """A size for people, in decimal units."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"
