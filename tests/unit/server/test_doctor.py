"""Every check, with the failing condition made real where a test may."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.fake import FakeEngine
from cosyvoice_stream.server import app, doctor
from cosyvoice_stream.server.doctor import Check
from cosyvoice_stream.server.settings import Settings

pytestmark = pytest.mark.unit


def settings(folder: Path, **values: Any) -> Settings:
    return Settings(_env_file=None, voices_dir=folder / "voices", **values)


def only(checks: Iterator[Check]) -> Check:
    (check,) = checks
    assert bool(check.cure) == (check.verdict != "ok")
    return check


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(doctor.check_python()).verdict == "ok"
    monkeypatch.setattr(doctor, "MIN_PYTHON", (99, 0))
    check = only(doctor.check_python())
    assert (check.verdict, check.cure) == ("fail", "install Python 99.0 or later")


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(doctor.check_packages()).verdict == "ok"
    wanted = ["no-such-package>=1", "numpy>=999", "click", 'torch; extra == "torch"']
    monkeypatch.setattr(doctor, "requires", lambda name: wanted)
    check = only(doctor.check_packages())
    assert check.verdict == "fail"
    numpy = metadata.version("numpy")
    assert check.finding == f"no-such-package is missing; numpy {numpy} is not >=999"


def test_packages_of_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", missing)
    check = only(doctor.check_packages())
    assert (check.verdict, check.cure) == ("fail", "make setup")


def test_engine_that_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "build_engine", lambda _: FakeEngine())
    assert only(doctor.check_engine(settings(tmp_path))).verdict == "ok"
    monkeypatch.setattr(doctor, "SLOW_FIRST_AUDIO_MS", 0.0)
    assert only(doctor.check_engine(settings(tmp_path))).verdict == "warn"


def test_engine_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(FakeEngine):
        async def start(self) -> None:
            raise ModelLoadError("the weights are damaged", how_to_fix="run pip install again")

    monkeypatch.setattr(app, "build_engine", lambda _: Broken())
    check = only(doctor.check_engine(settings(tmp_path)))
    assert (check.verdict, check.cure) == ("fail", "run pip install again")
    assert check.finding == "lite: the weights are damaged"


def test_engine_that_does_not_exist(tmp_path: Path) -> None:
    check = only(doctor.check_engine(settings(tmp_path, engine="piper")))
    assert check.verdict == "fail"
    assert "lite" in (check.cure or "")


def test_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        check = only(doctor.check_port(settings(tmp_path, port=port)))
        assert check.verdict == "warn"
        assert check.finding == f"127.0.0.1:{port} cannot be used: Address already in use"
        assert "COSYVOICE_STREAM_PORT" in (check.cure or "")
    assert only(doctor.check_port(settings(tmp_path, port=port))).verdict == "ok"


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_address_of_another_machine(tmp_path: Path, host: str) -> None:
    check = only(doctor.check_port(settings(tmp_path, host=host, port=0)))
    assert check.verdict == "fail"
    assert "COSYVOICE_STREAM_HOST" in (check.cure or "")


@pytest.mark.parametrize(
    ("answer", "verdict", "finding"),
    [
        ("echo 'H200, 141 GiB, 570.1'", "ok", "H200"),
        ("exit 9", "warn", "no usable GPU"),
        ("true", "warn", "no usable GPU"),
    ],
)
def test_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, verdict: str, finding: str
) -> None:
    script(tmp_path, "nvidia-smi", answer)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    check = only(doctor.check_gpu())
    assert check.verdict == verdict
    assert finding in check.finding


def test_machine_without_a_gpu_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = only(doctor.check_gpu())
    assert check.verdict == "ok"
    assert check.finding.startswith("no NVIDIA driver")


def test_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        few = only(doctor.check_files())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (few.verdict, few.finding) == ("warn", "at most 512")


def test_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(doctor.check_clock()).verdict == "ok"
    monkeypatch.setattr(doctor, "EARLIEST", datetime(2999, 1, 1, tzinfo=UTC))
    assert only(doctor.check_clock()).verdict == "fail"


def test_coarse_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = SimpleNamespace(resolution=0.0156)
    monkeypatch.setattr(doctor.time, "get_clock_info", lambda name: coarse)
    assert only(doctor.check_clock()).verdict == "warn"


def test_voices_folder(tmp_path: Path) -> None:
    assert only(doctor.check_voices(settings(tmp_path))).verdict == "ok"
    (tmp_path / "file").write_text("")
    check = only(doctor.check_voices(settings(tmp_path / "file")))
    assert check.verdict == "fail"
    assert "Not a directory" in check.finding
    assert "COSYVOICE_STREAM_VOICES_DIR" in (check.cure or "")


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1e6))
    assert only(doctor.check_voices(settings(tmp_path))).verdict == "warn"


def test_player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosyvoice_stream.server.play._sounddevice", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert only(doctor.check_player()).verdict == "warn"
    script(tmp_path, "aplay", "cat > /dev/null")
    assert only(doctor.check_player()).finding == "aplay"


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"SC_AVPHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(doctor.os, "sysconf", pages.__getitem__)
    check = only(doctor.check_memory())
    assert check.verdict == "warn"
    assert check.finding.startswith("4 MB free")


def test_check_that_breaks_is_a_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterator[Check]:
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(doctor, "check_gpu", broken)
    monkeypatch.setattr(app, "build_engine", lambda _: FakeEngine())
    checks = list(doctor.run_checks(settings(tmp_path, port=0)))
    failed = [check for check in checks if check.name == "doctor"]
    assert [check.verdict for check in failed] == ["fail"]
    assert len(checks) == 10
