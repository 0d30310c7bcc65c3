"""``cosyvoice-stream download``: an official checkpoint in a folder, fetched, verified, pinned."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cosyvoice_stream.cosyvoice.download import (
    compare,
    download,
    find_version,
    readable_size,
)
from cosyvoice_stream.cosyvoice.hubs import DISK_FULL, HUBS, HuggingFace
from cosyvoice_stream.cosyvoice.manifest import Manifest, read_manifest
from cosyvoice_stream.cosyvoice.versions import Version
from cosyvoice_stream.errors import ConfigError, DownloadFailed
from cosyvoice_stream.server.progress import Progress
from cosyvoice_stream.server.settings import user_data_dir


def run_download(
    model: str,
    *,
    folder: Path | None,
    hub: str | None,
    revision: str | None,
    check: bool,
    quiet: bool,
) -> bool:
    """Fetch or repair a checkpoint, or check one; print its folder on standard output.

    Returns:
        Whether the folder holds the whole checkpoint.

    Raises:
        ConfigError: A value of the command line is wrong, or a library is missing.
        DownloadFailed: The checkpoint could not be fetched.
    """
    version = find_version(model)
    folder = (folder or user_data_dir() / "models" / version.name).absolute()
    if check and (hub or revision):
        raise ConfigError(
            "--check compares with what was downloaded and asks no hub",
            how_to_fix="leave --from and --revision out",
        )
    try:
        if check:
            return _check(version, folder, quiet=quiet)
        return _download(version, folder, hub, revision or None, quiet=quiet)
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on where it stopped", err=True)
        raise
    except OSError as error:
        raise DownloadFailed(
            f"{error.filename or folder}: {error.strerror or error}",
            how_to_fix="free some space, then run the same command again"
            if error.errno in DISK_FULL
            else "name a folder that can be written with --to",
        ) from error


def _download(
    version: Version, folder: Path, hub: str | None, revision: str | None, *, quiet: bool
) -> bool:
    if hub is None:
        pinned = read_manifest(folder)
        hub = pinned.hub if pinned is not None and pinned.hub in HUBS else HuggingFace.name

    def report(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    source = HUBS[hub](bar=not quiet and sys.stderr.isatty())
    manifest = download(version, folder, source, revision=revision, report=report)
    report(_summary(manifest))
    click.echo(str(folder))
    return True


def _check(version: Version, folder: Path, *, quiet: bool) -> bool:
    with Progress(f"reading {folder}", quiet=quiet):
        manifest, broken = compare(version, folder)
    for name, what in broken.items():
        click.echo(f"{name} {what}", err=True)
    if broken:
        command = f"cosyvoice-stream download {version.name} --to {folder}"
        click.echo(f"fix: {command}", err=True)
        return False
    if not quiet:
        click.echo(_summary(manifest), err=True)
    click.echo(str(folder))
    return True


def _summary(manifest: Manifest) -> str:
    size = readable_size(sum(file.size_bytes for file in manifest.files.values()))
    return (
        f"{manifest.model} is whole: {len(manifest.files)} files, {size}, "
        f"{manifest.repository} at {manifest.commit or manifest.revision}"
    )
