"""Planning, verifying and pinning a checkpoint download, with a hub that is a dictionary."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from cosyvoice_stream.cosyvoice import download as module
from cosyvoice_stream.cosyvoice.download import (
    RESERVE_BYTES,
    STAGING,
    compare,
    download,
    find_version,
    readable_size,
)
from cosyvoice_stream.cosyvoice.hubs import Listing, RemoteFile
from cosyvoice_stream.cosyvoice.manifest import MANIFEST, Manifest, PinnedFile, read_manifest
from cosyvoice_stream.cosyvoice.versions import VERSIONS
from cosyvoice_stream.errors import ConfigError, DownloadFailed
from support.model_hub import checkpoint_files

pytestmark = pytest.mark.unit

V2 = VERSIONS[2]
READ = V2.required_files + V2.optional_files
Usage = namedtuple("Usage", "total used free")


class DictHub:
    """Gives out files from a dictionary; fails at a chosen fetch."""

    name = "huggingface"
    default_revision = "main"

    def __init__(self, files: dict[str, bytes], commit: str | None = "c1") -> None:
        self.files = files
        self.commit = commit
        self.fetched: list[str] = []
        self.fail_at: int | None = None
        self.error: BaseException = KeyboardInterrupt()
        self.listed: list[tuple[str, str]] = []

    def list_files(self, repository: str, revision: str) -> Listing:
        self.listed.append((repository, revision))
        files = {
            name: RemoteFile(name, len(data), sha256=hashlib.sha256(data).hexdigest())
            for name, data in self.files.items()
        }
        return Listing(revision, self.commit, files)

    def fetch(self, repository: str, listing: Listing, file: RemoteFile, folder: Path) -> None:
        if len(self.fetched) == self.fail_at:
            self.fail_at = None
            raise self.error
        self.fetched.append(file.name)
        (folder / file.name).write_bytes(self.files[file.name])


def fetch_into(folder: Path, hub: DictHub, revision: str | None = None) -> Manifest:
    return download(V2, folder, hub, revision=revision, report=lambda line: None)


def holds(folder: Path, files: dict[str, bytes]) -> bool:
    """Whether a folder holds what the engine reads of these files, and its manifest, only."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found.pop(MANIFEST)
    return found == {name: data for name, data in files.items() if name in READ}


@pytest.fixture
def hub() -> DictHub:
    return DictHub(checkpoint_files())


@pytest.mark.parametrize("at", range(len(READ)))
def test_a_download_that_is_stopped_anywhere_goes_on(tmp_path: Path, hub: DictHub, at: int) -> None:
    hub.fail_at = at
    with pytest.raises(KeyboardInterrupt):
        fetch_into(tmp_path, hub)
    assert not any((tmp_path / name).exists() for name in READ)
    manifest = fetch_into(tmp_path, hub)
    assert sorted(hub.fetched) == sorted(READ)
    assert holds(tmp_path, hub.files)
    assert read_manifest(tmp_path) == manifest


@pytest.mark.parametrize("at", range(len(READ)))
def test_a_download_that_is_stopped_while_files_take_their_places_goes_on(
    tmp_path: Path, hub: DictHub, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, replace = [], Path.replace

    def stopping(path: Path, target: Path) -> Path:
        if len(moved) == at:
            monkeypatch.undo()
            raise KeyboardInterrupt
        moved.append(target)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", stopping)
    with pytest.raises(KeyboardInterrupt):
        fetch_into(tmp_path, hub)
    fetch_into(tmp_path, hub)
    assert sorted(hub.fetched) == sorted(READ)
    assert holds(tmp_path, hub.files)


def test_the_manifest_says_what_arrived(tmp_path: Path, hub: DictHub) -> None:
    fetch_into(tmp_path, hub)
    raw = json.loads((tmp_path / MANIFEST).read_text())
    data = hub.files["llm.pt"]
    assert raw["files"]["llm.pt"] == {
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    del raw["files"]
    assert raw == {
        "format": 1,
        "model": "cosyvoice2",
        "hub": "huggingface",
        "repository": "FunAudioLLM/CosyVoice2-0.5B",
        "revision": "main",
        "commit": "c1",
    }


def test_a_whole_folder_asks_no_hub(tmp_path: Path, hub: DictHub) -> None:
    fetch_into(tmp_path, hub)
    listed = list(hub.listed)
    fetch_into(tmp_path, hub)
    fetch_into(tmp_path, hub, revision="c1")
    assert hub.listed == listed
    assert compare(V2, tmp_path)[1] == {}


def test_a_repair_asks_for_the_pinned_commit(tmp_path: Path, hub: DictHub) -> None:
    first = fetch_into(tmp_path, hub)
    (tmp_path / "llm.pt").write_bytes(bytes(len(hub.files["llm.pt"])))
    assert compare(V2, tmp_path)[1] == {"llm.pt": "has another checksum"}
    hub.fetched.clear()
    assert fetch_into(tmp_path, hub) == first
    assert hub.listed[-1][1] == "c1"
    assert hub.fetched == ["llm.pt"]


def test_a_file_that_another_revision_lacks_goes(tmp_path: Path, hub: DictHub) -> None:
    fetch_into(tmp_path, hub)
    del hub.files["spk2info.pt"]
    hub.commit = "c2"
    assert "spk2info.pt" not in fetch_into(tmp_path, hub, revision="main").files
    assert not (tmp_path / "spk2info.pt").exists()


def test_files_that_are_right_are_taken_over(tmp_path: Path, hub: DictHub) -> None:
    (tmp_path / "llm.pt").write_bytes(hub.files["llm.pt"])
    (tmp_path / "mine.txt").write_text("notes")
    fetch_into(tmp_path, hub)
    assert "llm.pt" not in hub.fetched
    assert (tmp_path / "mine.txt").read_text() == "notes"


def test_files_of_somebody_else_are_never_replaced(tmp_path: Path, hub: DictHub) -> None:
    (tmp_path / "llm.pt").write_bytes(b"fine-tuned")
    with pytest.raises(DownloadFailed, match=r"llm\.pt is there and is not the file of"):
        fetch_into(tmp_path, hub)
    assert (tmp_path / "llm.pt").read_bytes() == b"fine-tuned"
    assert hub.fetched == []


def test_parts_of_another_content_are_dropped(tmp_path: Path, hub: DictHub) -> None:
    hub.fail_at = 3
    with pytest.raises(KeyboardInterrupt):
        fetch_into(tmp_path, hub)
    hub.files = checkpoint_files(seed=b"second")
    hub.fetched.clear()
    fetch_into(tmp_path, hub)
    assert sorted(hub.fetched) == sorted(READ)
    assert holds(tmp_path, hub.files)


def test_space_is_asked_for_before_anything_is_fetched(
    tmp_path: Path, hub: DictHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(len(hub.files[name]) for name in READ)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free))
    free = RESERVE_BYTES + needed - 1
    with pytest.raises(DownloadFailed, match="are needed in") as failure:
        fetch_into(tmp_path, hub)
    assert "on another disk" in str(failure.value.how_to_fix)
    assert hub.fetched == []
    free += 1
    hub.fail_at = 8
    with pytest.raises(KeyboardInterrupt):
        fetch_into(tmp_path, hub)
    free -= sum(len(hub.files[name]) for name in hub.fetched)
    fetch_into(tmp_path, hub)  # what is here already is not asked for again
    free = 0
    fetch_into(tmp_path, hub)


def test_a_disk_that_fills_up_leaves_what_arrived(tmp_path: Path, hub: DictHub) -> None:
    hub.fail_at, hub.error = 5, OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        fetch_into(tmp_path, hub)
    fetch_into(tmp_path, hub)
    assert sorted(hub.fetched) == sorted(READ)


def test_one_folder_holds_one_model(tmp_path: Path, hub: DictHub) -> None:
    fetch_into(tmp_path, hub)
    for act in (
        lambda: download(VERSIONS[3], tmp_path, hub, revision=None, report=print),
        lambda: compare(VERSIONS[3], tmp_path),
    ):
        with pytest.raises(DownloadFailed, match="holds cosyvoice2, not cosyvoice3"):
            act()
    assert holds(tmp_path, hub.files)


def test_a_failure_without_parts_leaves_nothing(tmp_path: Path, hub: DictHub) -> None:
    del hub.files["flow.pt"]
    with pytest.raises(DownloadFailed, match=r"lacks flow\.pt"):
        fetch_into(tmp_path / "new", hub)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_download_that_runs_is_left_alone(tmp_path: Path, hub: DictHub) -> None:
    with (
        module._alone(tmp_path),
        pytest.raises(DownloadFailed, match="another download"),
        module._alone(tmp_path),
    ):
        pass
    assert not (tmp_path / STAGING).exists()


GOOD = {
    "format": 1,
    "model": "cosyvoice2",
    "hub": "huggingface",
    "repository": "r",
    "revision": "main",
    "commit": None,
    "files": {"llm.pt": {"size": 1, "sha256": "00"}},
}


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        json.dumps(GOOD | {"format": 2}).encode(),
        json.dumps(GOOD | {"model": 2}).encode(),
        json.dumps(GOOD | {"files": []}).encode(),
        json.dumps(GOOD | {"files": {"llm.pt": None}}).encode(),
        json.dumps(GOOD | {"files": {"llm.pt": {"size": "1", "sha256": "00"}}}).encode(),
        json.dumps(GOOD | {"files": {"../llm.pt": {"size": 1, "sha256": "00"}}}).encode(),
        json.dumps(GOOD | {"files": {"/etc/x": {"size": 1, "sha256": "00"}}}).encode(),
    ],
)
def test_a_damaged_manifest_is_told(tmp_path: Path, hub: DictHub, damage: bytes) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(GOOD))
    assert read_manifest(tmp_path) is not None
    (tmp_path / MANIFEST).write_bytes(damage)
    for act in (lambda: compare(V2, tmp_path), lambda: fetch_into(tmp_path, hub)):
        with pytest.raises(DownloadFailed, match="is damaged") as failure:
            act()
        assert str(failure.value.how_to_fix).startswith("delete it")


def test_names_of_models() -> None:
    assert find_version("cosyvoice3") is VERSIONS[3]
    for name in ("cosyvoice1", "", "COSYVOICE2"):
        with pytest.raises(ConfigError) as failure:
            find_version(name)
        assert failure.value.how_to_fix == "name cosyvoice2 or cosyvoice3"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (28_300_000, "28.3 MB"), (2_023e6, "2.02 GB")],
)
def test_sizes_read_well(size_bytes: int, text: str) -> None:
    assert readable_size(size_bytes) == text


def test_a_manifest_compares_every_file(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"ab").hexdigest()
    files = {name: PinnedFile(2, digest) for name in ("right", "gone", "short", "other")}
    manifest = Manifest("cosyvoice2", "huggingface", "r", "main", None, files)
    for name, content in {"right": b"ab", "short": b"a", "other": b"xy"}.items():
        (tmp_path / name).write_bytes(content)
    assert manifest.problems(tmp_path) == {
        "gone": "is missing",
        "short": "has 1 bytes instead of 2",
        "other": "has another checksum",
    }
