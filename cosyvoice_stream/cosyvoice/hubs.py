"""Model hubs through their own client libraries: what a repository holds, and single files."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cosyvoice_stream.errors import ConfigError, DownloadFailed

logger = logging.getLogger(__name__)

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
ATTEMPTS: Final = 3
"""Times that a file is asked for in a row without a byte of it arriving."""
LONGEST_REASON: Final = 160
"""Characters of a library's message that are shown."""
GO_ON: Final = "check the network and run the same command again: it goes on where it stopped"


@dataclass(frozen=True)
class RemoteFile:
    """One file as a hub announces it."""

    name: str
    """Relative to the repository, with forward slashes."""
    size_bytes: int
    sha256: str | None = None
    git_sha1: str | None = None
    """Name of the file's git blob, where the hub stores it outside of LFS."""


@dataclass(frozen=True)
class Listing:
    """What a repository holds at one revision."""

    revision: str
    """As it was asked for: branch, tag or commit."""
    commit: str | None
    """What the revision stands for, or None where the hub does not say."""
    files: dict[str, RemoteFile]


class Hub(Protocol):
    """Where checkpoints come from."""

    name: str
    """As on the command line."""
    default_revision: str

    def list_files(self, repository: str, revision: str) -> Listing:
        """Ask what a repository holds.

        Raises:
            DownloadFailed: No network, no such repository or revision.
        """

    def fetch(self, repository: str, listing: Listing, file: RemoteFile, folder: Path) -> None:
        """Fetch a file into a folder, going on from what an earlier call left there.

        The file has its name only when it is whole.

        Raises:
            DownloadFailed: No network, or the hub does not give the file out.
            OSError: The folder cannot be written.
        """


def _needs_extra(library: str) -> ConfigError:
    return ConfigError(
        f"downloading needs the Python package {library}",
        how_to_fix="pip install 'cosyvoice-stream[download]'",
    )


def _one_line(error: BaseException) -> str:
    """The start of a library's message; some add pages of advice."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _is_local(error: BaseException) -> bool:
    """Whether the disk is at fault and not the network."""
    return isinstance(error, OSError) and (
        error.errno in DISK_FULL or error.filename is not None or isinstance(error, PermissionError)
    )


def _http_errors() -> tuple[type[Exception], ...]:
    """What Hugging Face's library lets through when the network fails.

    Its own errors stem from the root error of whichever HTTP client it uses, and from OSError.
    """
    from huggingface_hub.errors import HfHubHTTPError

    return tuple(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception))


class HuggingFace:
    """Hugging Face, or a mirror of it that ``HF_ENDPOINT`` names.

    Args:
        bar: Show a progress bar, if standard error is a terminal.
    """

    name = "huggingface"
    default_revision = "main"

    def __init__(self, *, bar: bool = True) -> None:
        if not bar:
            os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # read at import
        try:
            import huggingface_hub  # noqa: F401
        except ImportError as error:
            raise _needs_extra("huggingface_hub") from error

    def list_files(self, repository: str, revision: str) -> Listing:
        """See `Hub`."""
        from huggingface_hub import HfApi

        with self._errors(repository, revision):
            info = HfApi().model_info(repository, revision=revision, files_metadata=True)
        files = {}
        for entry in info.siblings or ():
            lfs = entry.lfs
            files[entry.rfilename] = RemoteFile(
                entry.rfilename,
                (lfs.size if lfs else entry.size) or 0,
                sha256=lfs.sha256 if lfs else None,
                git_sha1=None if lfs else entry.blob_id,
            )
        return Listing(revision, info.sha, files)

    def fetch(self, repository: str, listing: Listing, file: RemoteFile, folder: Path) -> None:
        """See `Hub`."""
        from huggingface_hub import get_token, hf_hub_url
        from huggingface_hub.errors import HfHubHTTPError
        from huggingface_hub.file_download import http_get

        target = folder / file.name
        part = target.with_name(f"{target.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        revision = listing.commit or listing.revision
        # A compressed answer could not be resumed: its offsets are not those of the file.
        headers = {"accept-encoding": "identity"}
        if token := get_token():
            headers["authorization"] = f"Bearer {token}"
        with part.open("ab") as out, self._errors(repository, revision):
            if out.tell() > file.size_bytes:
                out.truncate(0)
            vain = 0
            while (start := out.tell()) < file.size_bytes:
                try:
                    http_get(
                        hf_hub_url(repository, file.name, revision=revision),
                        out,
                        resume_size=start,
                        headers=headers,
                        expected_size=file.size_bytes,
                        displayed_filename=file.name,
                    )
                except _http_errors() as error:
                    out.flush()
                    vain = 0 if out.tell() > start else vain + 1
                    if _is_local(error) or isinstance(error, HfHubHTTPError) or vain == ATTEMPTS:
                        raise
                    logger.warning("Connection lost after %d bytes, going on", out.tell())
        part.replace(target)

    @contextlib.contextmanager
    def _errors(self, repository: str, revision: str) -> Iterator[None]:
        from huggingface_hub import errors

        try:
            yield
        except errors.RevisionNotFoundError as error:
            raise _no_revision(self, repository, revision) from error
        except errors.GatedRepoError as error:
            raise DownloadFailed(
                f"{repository} is given out only to accounts that accepted its terms",
                how_to_fix="accept them on its page, then: hf auth login",
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise _no_repository(self, repository) from error
        except errors.EntryNotFoundError as error:
            raise DownloadFailed(
                f"{repository} at {revision} lists a file that it does not give out",
                how_to_fix="try again later, or another revision with --revision",
            ) from error
        except errors.OfflineModeIsEnabled as error:
            raise DownloadFailed(
                "HF_HUB_OFFLINE forbids downloads", how_to_fix="unset HF_HUB_OFFLINE"
            ) from error
        except errors.HfHubHTTPError as error:
            raise _unreachable(self, f"it answered {error.response.status_code}") from error
        except _http_errors() as error:
            if _is_local(error):
                raise
            raise _unreachable(self, _one_line(error)) from error


class ModelScope:
    """ModelScope, or another site of it that ``MODELSCOPE_ENDPOINT`` names.

    Its listing names no commit, so what pins a download are the checksums.

    Args:
        bar: Show a progress bar, if standard error is a terminal.
    """

    name = "modelscope"
    default_revision = "master"

    def __init__(self, *, bar: bool = True) -> None:
        if not bar:
            os.environ["TQDM_DISABLE"] = "1"  # the only switch; read when tqdm is imported
        try:
            from modelscope_hub import HubApi
        except ImportError as error:
            raise _needs_extra("modelscope-hub") from error
        self._api = HubApi()

    def list_files(self, repository: str, revision: str) -> Listing:
        """See `Hub`."""
        with self._errors(repository, revision):
            entries = self._api.list_repo_files(repository, "model", revision=revision)
        files = {
            entry.path: RemoteFile(
                entry.path, entry.size, sha256=(entry.sha256 or "").lower() or None
            )
            for entry in entries
            if not entry.is_dir
        }
        return Listing(revision, None, files)

    def fetch(self, repository: str, listing: Listing, file: RemoteFile, folder: Path) -> None:
        """See `Hub`."""
        with self._errors(repository, listing.revision):
            self._api.download_file(
                repository, "model", file.name, revision=listing.revision, local_dir=folder
            )

    @contextlib.contextmanager
    def _errors(self, repository: str, revision: str) -> Iterator[None]:
        from modelscope_hub import errors

        try:
            yield
        except errors.NotExistError as error:
            raise _no_revision(self, repository, revision) from error
        except (errors.AuthenticationError, errors.PermissionDeniedError) as error:
            raise _no_repository(self, repository) from error
        except errors.FileIntegrityError as error:
            raise DownloadFailed(
                f"{self.name} gave out damaged data ({_one_line(error)})", how_to_fix=GO_ON
            ) from error
        except errors.HubError as error:
            raise _unreachable(self, _one_line(error)) from error


def _no_repository(hub: Hub, repository: str) -> DownloadFailed:
    return DownloadFailed(
        f"{hub.name} has no repository {repository}, or does not show it to this account",
        how_to_fix="try the other hub with --from, or unset the endpoint of a mirror",
    )


def _no_revision(hub: Hub, repository: str, revision: str) -> DownloadFailed:
    return DownloadFailed(
        f"{hub.name} has no revision {revision} of {repository}",
        how_to_fix=f"leave --revision out, or name a branch such as {hub.default_revision}",
    )


def _unreachable(hub: Hub, why: str) -> DownloadFailed:
    return DownloadFailed(f"{hub.name} cannot be reached ({why})", how_to_fix=GO_ON)


HUBS: Final[dict[str, Callable[..., Hub]]] = {
    HuggingFace.name: HuggingFace,
    ModelScope.name: ModelScope,
}
