"""`cosyvoice-stream download` as a process, with the hubs' own libraries, from a loopback hub."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_stream.cosyvoice.download import STAGING
from cosyvoice_stream.cosyvoice.manifest import MANIFEST
from cosyvoice_stream.cosyvoice.versions import VERSIONS
from support.command import TIMEOUT_S, command, environment
from support.model_hub import FakeHub, checkpoint_files, model_hub

pytestmark = pytest.mark.integration

FIRST, SECOND = "a" * 40, "b" * 40
BIG_BYTES = 24_000_000
"""More than Hugging Face's library collects before it writes (10 MiB)."""
WRITTEN_BYTES = 20 * 1024 * 1024
READ = set(VERSIONS[2].required_files + VERSIONS[2].optional_files)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with model_hub({FIRST: checkpoint_files()}, FIRST) as served:
        yield served


def env(tmp_path: Path, hub: FakeHub) -> dict[str, str]:
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    caches = {"HF_HOME": str(tmp_path / "hf"), "MODELSCOPE_CACHE": str(tmp_path / "ms")}
    return environment(tmp_path) | home | caches | hub.settings()


def run(
    tmp_path: Path, hub: FakeHub, *arguments: str, stderr: Any = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run `download cosyvoice2 --to model` with further arguments."""
    result = subprocess.run(
        command("download", "cosyvoice2", "--to", "model", *arguments),
        cwd=tmp_path,
        env=env(tmp_path, hub),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "Traceback" not in (result.stderr or "")
    return result


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, without the manifest."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


def expected(hub: FakeHub, commit: str = FIRST) -> dict[str, bytes]:
    return {name: data for name, data in hub.commits[commit].items() if name in READ}


def assert_whole(tmp_path: Path, hub: FakeHub, commit: str = FIRST) -> None:
    assert contents(tmp_path / "model") == expected(hub, commit)


def refusal(result: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """Message and cure, the last two lines."""
    assert (result.returncode, result.stdout) == (2, "")
    message, cure = result.stderr.splitlines()[-2:]
    assert message.startswith("error: ")
    assert cure.startswith("fix: ")
    return message.removeprefix("error: "), cure.removeprefix("fix: ")


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_what_the_engine_reads_arrives_and_nothing_else(
    tmp_path: Path, hub: FakeHub, source: str
) -> None:
    if source == "modelscope":
        hub.repository = "iic/CosyVoice2-0.5B"
    result = run(tmp_path, hub, "--from", source)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{tmp_path / 'model'}\n"
    assert_whole(tmp_path, hub)
    pinned = json.loads((tmp_path / "model" / MANIFEST).read_text())
    assert pinned["hub"] == source
    assert pinned["commit"] == (FIRST if source == "huggingface" else None)
    assert pinned["files"]["llm.pt"]["size"] == len(hub.commits[FIRST]["llm.pt"])
    assert set(pinned["files"]) == hub.names() == READ
    again = run(tmp_path, hub)  # needs no hub, and no word about which
    assert again.returncode == 0, again.stderr
    assert len(hub.fetched) == len(READ)
    assert run(tmp_path, hub, "--check").returncode == 0


def test_version_3_comes_from_its_own_repository_into_the_data_folder(tmp_path: Path) -> None:
    with model_hub({FIRST: checkpoint_files(3)}, FIRST) as hub:
        hub.repository = "FunAudioLLM/Fun-CosyVoice3-0.5B-2512"
        result = subprocess.run(
            command("download", "cosyvoice3", "-q"),
            env=env(tmp_path, hub),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        folder = tmp_path / "data" / "cosyvoice-stream" / "models" / "cosyvoice3"
        assert (result.returncode, result.stdout, result.stderr) == (0, f"{folder}\n", "")
        assert (folder / "speech_tokenizer_v3.onnx").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize(("quiet", "seen"), [((), True), (("-q",), False)])
def test_a_terminal_shows_a_bar(
    tmp_path: Path, hub: FakeHub, quiet: tuple[str, ...], seen: bool
) -> None:
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))
    with open(ours, "rb", buffering=0), open(theirs, "wb", buffering=0) as terminal:
        run(tmp_path, hub, *quiet, stderr=terminal)
        terminal.write(b"end")
        shown = b""
        while not shown.endswith(b"end"):
            shown += os.read(ours, 65_536)
    assert (b"llm.pt: 100%|" in shown) == seen
    assert (shown == b"end") != seen


def test_files_that_a_revision_lacks(tmp_path: Path, hub: FakeHub) -> None:
    del hub.commits[FIRST]["spk2info.pt"]
    assert run(tmp_path, hub).returncode == 0
    assert "spk2info.pt" not in contents(tmp_path / "model")
    hub.commits[SECOND] = {
        name: data for name, data in hub.commits[FIRST].items() if name != "cosyvoice2.yaml"
    }
    message, cure = refusal(run(tmp_path, hub, "--revision", SECOND))
    assert "lacks cosyvoice2.yaml" in message
    assert "--revision main" in cure
    assert_whole(tmp_path, hub)


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
@pytest.mark.parametrize("misdeed", ["cut", "end"])
def test_a_broken_connection_is_taken_up_where_it_broke(
    tmp_path: Path, source: str, misdeed: str
) -> None:
    with model_hub({FIRST: checkpoint_files(lm_bytes=BIG_BYTES)}, FIRST) as hub:
        if source == "modelscope":
            hub.repository = "iic/CosyVoice2-0.5B"
        getattr(hub, misdeed)["llm.pt"] = BIG_BYTES - 1000
        result = run(tmp_path, hub, "--from", source)
        assert result.returncode == 0, result.stderr
        assert_whole(tmp_path, hub)
        starts = [first for name, first in hub.fetched if name == "llm.pt"]
        assert len(starts) == 2
        assert starts[0] == 0
        assert starts[1] > 0


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_download_goes_on(tmp_path: Path, source: str, end: signal.Signals) -> None:
    with model_hub({FIRST: checkpoint_files(lm_bytes=BIG_BYTES)}, FIRST) as hub:
        if source == "modelscope":
            hub.repository = "iic/CosyVoice2-0.5B"
        hub.hold["llm.pt"] = BIG_BYTES - 1000
        with subprocess.Popen(
            command("download", "cosyvoice2", "--to", "model", "--from", source),
            cwd=tmp_path,
            env=env(tmp_path, hub),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            wait_for_part(tmp_path / "model" / STAGING)
            busy, _ = refusal(run(tmp_path, hub, "--from", source))
            assert "another download" in busy
            process.send_signal(end)
            out, errors = process.communicate(timeout=TIMEOUT_S)
        assert out == ""
        if end is signal.SIGINT:
            assert process.returncode == 130
            assert errors.endswith("interrupted; the same command goes on where it stopped\n")
            assert "Traceback" not in errors
        assert not (tmp_path / "model" / "llm.pt").exists()
        assert not (tmp_path / "model" / MANIFEST).exists()
        before = len(hub.fetched)
        result = run(tmp_path, hub, "--from", source)
        assert result.returncode == 0, result.stderr
        ((name, first),) = hub.fetched[before:]
        assert name == "llm.pt"
        assert first >= WRITTEN_BYTES
        assert_whole(tmp_path, hub)


def wait_for_part(staging: Path) -> None:
    """Wait until most of the big file is on disk."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        parts = [path for path in staging.rglob("llm.pt.*") if path.is_file()]
        if any(path.stat().st_size >= WRITTEN_BYTES for path in parts):
            return
        time.sleep(0.01)
    raise AssertionError("no part appeared")


def test_a_hub_that_cannot_resume_starts_the_file_again(tmp_path: Path) -> None:
    with model_hub({FIRST: checkpoint_files(lm_bytes=BIG_BYTES)}, FIRST) as hub:
        hub.end["llm.pt"] = BIG_BYTES - 1000
        hub.ignore_range = True
        assert run(tmp_path, hub).returncode == 0
        assert_whole(tmp_path, hub)


@pytest.mark.parametrize("name", ["llm.pt", "CosyVoice-BlankEN/vocab.json"])
def test_a_wrong_checksum_is_fetched_again_once(tmp_path: Path, hub: FakeHub, name: str) -> None:
    hub.damage[name] = 1
    result = run(tmp_path, hub)
    assert result.returncode == 0, result.stderr
    assert f"{name} arrived with a wrong checksum" in result.stderr
    assert_whole(tmp_path, hub)


def test_a_checksum_that_stays_wrong_is_refused(tmp_path: Path, hub: FakeHub) -> None:
    hub.damage["flow.pt"] = 2
    message, _ = refusal(run(tmp_path, hub))
    assert message.startswith("flow.pt from huggingface does not have the checksum")
    assert not (tmp_path / "model" / "flow.pt").exists()
    assert not (tmp_path / "model" / MANIFEST).exists()
    assert run(tmp_path, hub).returncode == 0
    assert_whole(tmp_path, hub)


def test_the_revision_stays_pinned_until_another_is_asked_for(tmp_path: Path, hub: FakeHub) -> None:
    hub.commits[SECOND] = checkpoint_files(seed=b"second")
    assert run(tmp_path, hub).returncode == 0
    hub.branches["main"] = SECOND
    (tmp_path / "model" / "hift.pt").write_bytes(b"damaged")
    (tmp_path / "model" / "flow.pt").unlink()
    checked = run(tmp_path, hub, "--check")
    assert checked.returncode == 1
    assert "hift.pt has 7 bytes instead of 999" in checked.stderr
    assert "flow.pt is missing" in checked.stderr
    before = len(hub.fetched)
    assert run(tmp_path, hub).returncode == 0
    assert {name for name, _ in hub.fetched[before:]} == {"hift.pt", "flow.pt"}
    assert_whole(tmp_path, hub)
    assert json.loads((tmp_path / "model" / MANIFEST).read_text())["revision"] == "main"
    assert run(tmp_path, hub, "--revision", "main").returncode == 0
    assert_whole(tmp_path, hub, SECOND)
    assert run(tmp_path, hub, "--revision", FIRST).returncode == 0
    assert_whole(tmp_path, hub, FIRST)


def test_what_a_hub_without_commits_replaced_is_not_taken_for_a_repair(
    tmp_path: Path, hub: FakeHub
) -> None:
    hub.repository = "iic/CosyVoice2-0.5B"
    assert run(tmp_path, hub, "--from", "modelscope").returncode == 0
    hub.commits[SECOND] = checkpoint_files(seed=b"second")
    hub.branches["master"] = SECOND
    (tmp_path / "model" / "hift.pt").unlink()
    message, cure = refusal(run(tmp_path, hub))
    assert message.startswith("hift.pt has changed in iic/CosyVoice2-0.5B")
    assert cure.endswith("--revision master")
    assert run(tmp_path, hub, "--revision", "master").returncode == 0
    assert_whole(tmp_path, hub, SECOND)


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--revision", "nothing"), "no revision nothing"), ((), "cannot be reached")],
)
def test_hubs_that_do_not_give(
    tmp_path: Path, hub: FakeHub, source: str, arguments: tuple[str, ...], words: str
) -> None:
    if source == "modelscope":
        hub.repository = "iic/CosyVoice2-0.5B"
    if not arguments:
        hub.url = "http://127.0.0.1:9"
    message, cure = refusal(run(tmp_path, hub, "--from", source, *arguments))
    assert words in message
    assert cure
    assert list((tmp_path / "model").iterdir()) == []


def test_credentials_stay_with_the_hub(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    result = run(tmp_path, hub)
    assert result.returncode == 0, result.stderr
    by_host = {host.split(":")[0]: token for host, token in hub.tokens}
    assert by_host == {"127.0.0.1": "Bearer hf_secret", "localhost": None}


def test_a_hub_out_of_order(tmp_path: Path, hub: FakeHub) -> None:
    hub.status = 500
    assert refusal(run(tmp_path, hub))[0] == "huggingface cannot be reached (it answered 500)"


def test_an_offline_switch_is_named(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert refusal(run(tmp_path, hub)) == (
        "HF_HUB_OFFLINE forbids downloads",
        "unset HF_HUB_OFFLINE",
    )


def test_a_repository_that_is_not_there(tmp_path: Path, hub: FakeHub) -> None:
    hub.repository = "somebody/else"
    message, cure = refusal(run(tmp_path, hub))
    assert "no repository FunAudioLLM/CosyVoice2-0.5B" in message
    assert "--from" in cure


def test_words_that_are_wrong(tmp_path: Path, hub: FakeHub) -> None:
    (tmp_path / "file").write_text("")
    told = {
        ("cosyvoice1",): "'cosyvoice1' is not a model",
        ("cosyvoice2", "--to", "file"): "is not a folder",
        ("cosyvoice2", "--to", "file/model"): "is not a folder",
        ("cosyvoice2", "--to", "none", "--check"): "nothing was downloaded into",
        ("cosyvoice2", "--check", "--from", "modelscope"): "asks no hub",
        ("cosyvoice2", "--to", "/dev/null/model"): "is not a folder",
        ("cosyvoice2", "--to", "x" * 300): "File name too long",
    }
    for arguments, words in told.items():
        result = subprocess.run(
            command("download", *arguments),
            cwd=tmp_path,
            env=env(tmp_path, hub),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert words in refusal(result)[0]


@pytest.mark.parametrize("library", ["huggingface_hub", "modelscope_hub"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    tmp_path: Path, hub: FakeHub, library: str
) -> None:
    source = library.split("_")[0]
    code = (
        f"import sys; sys.modules[{library!r}] = None; sys.argv[0] = 'cosyvoice-stream'; "
        "from cosyvoice_stream.server.cli import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", code, "download", "cosyvoice2", "--from", source],
        cwd=tmp_path,
        env=env(tmp_path, hub),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    _, cure = refusal(result)
    assert cure == "pip install 'cosyvoice-stream[download]'"
