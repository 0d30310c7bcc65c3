"""What we show to newcomers runs as it stands: the examples, and the blocks of the documents."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_stream.decode import decode_audio
from support.command import TIMEOUT_S, server
from support.recordings import RATE, REFERENCES, encode, silence

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
RECORDING = str(REFERENCES / "flite_rms_male.wav")
DEFAULT_URL = "http://127.0.0.1:8000"
STARTS = ("curl", "echo", "cosyvoice-stream", "python")
"""Commands in the documents; what else is there needs a fresh machine or a container."""
PAGES = ["README.md", "docs/quickstart.md"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("server")) as address:
        yield address


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert set(lengths) >= {"speak.py", "llm_pipe.py", "clone_voice.py"}
    assert {name for name, lines in lengths.items() if lines > 50} == set()


def test_speak_saves_a_file_and_prints_words(tmp_path: Path, url: str) -> None:
    script = str(EXAMPLES / "speak.py")
    result = python(tmp_path, script, "The quick brown fox.", "fox.wav", url)
    assert result.returncode == 0, result.stderr
    words = [line.split()[-1] for line in result.stdout.splitlines()[:-1]]
    assert words == ["The", "quick", "brown", "fox"]
    with wave.open(str(tmp_path / "fox.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert file.getframerate() == 24_000
    assert len(samples) > 12_000
    assert np.abs(samples).max() > 1000


def test_llm_pipe_stops_where_the_user_cuts_in(tmp_path: Path, url: str) -> None:
    result = python(tmp_path, str(EXAMPLES / "llm_pipe.py"), url)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    heard = lines[-2].removeprefix("The user has heard: ")
    assert heard.startswith("The ferry leaves")
    assert len(heard) < 80
    assert int(lines[-1].split()[0]) > 12_000


@pytest.mark.parametrize("name", ["hello.wav", "hello.mp3"])
def test_clone_voice_speaks_in_the_voice(tmp_path: Path, url: str, name: str) -> None:
    script = str(EXAMPLES / "clone_voice.py")
    result = python(tmp_path, script, RECORDING, "Good morning.", name, url)
    assert result.returncode == 0, result.stderr
    assert len(decode_audio(tmp_path / name, max_seconds=60).samples) > 12_000


def test_clone_voice_says_what_is_wrong_with_a_recording(tmp_path: Path, url: str) -> None:
    (tmp_path / "silent.wav").write_bytes(encode(silence(5), RATE, "wav", "pcm_s16le"))
    script = str(EXAMPLES / "clone_voice.py")
    result = python(tmp_path, script, "silent.wav", "Good morning.", "x.wav", url)
    assert (result.returncode, result.stdout) == (1, "")
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 2


def blocks(page: str, start: str) -> list[str]:
    """Python blocks, or indented commands that begin with a word, of a page."""
    text = (ROOT / page).read_text()
    if start == "```python":
        return re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    joined = text.replace("\\\n", " ")
    lines = [line.split("  #")[0].strip() for line in joined.splitlines() if line[:4] == " " * 4]
    return [line for line in lines if line.startswith(f"{start} ")]


@pytest.mark.parametrize("page", PAGES)
def test_python_of_the_documents_runs(tmp_path: Path, url: str, page: str) -> None:
    programs = blocks(page, "```python")
    assert programs
    for program in programs:
        assert DEFAULT_URL in program
        result = python(tmp_path, "-c", program.replace(DEFAULT_URL, url))
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has our command and curl, and no player."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("curl", "bash", "echo", "cat"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    own = Path(sys.executable).parent
    return {"PATH": f"{own}:{programs}", "HOME": str(tmp_path), "LANG": "C.UTF-8"}


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_the_documents_run(
    tmp_path: Path, url: str, page: str, shell: dict[str, str]
) -> None:
    (tmp_path / "me.wav").write_bytes(Path(RECORDING).read_bytes())
    (tmp_path / "examples").symlink_to(EXAMPLES)
    lines = [line for start in STARTS for line in blocks(page, start)]
    assert [line for line in lines if line.startswith("curl")]
    for line in lines:
        result = subprocess.run(
            ["bash", "-ec", line.replace(DEFAULT_URL, url)]
            if "examples/" not in line
            else ["bash", "-ec", f"{line} {url}"],
            cwd=tmp_path,
            env=shell,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert result.returncode == 0 or "doctor" in line, (line, result.stderr)
        assert b"Traceback" not in result.stderr
        if written := re.search(r"-o (\S+)", line):
            assert len(decode_audio(tmp_path / written[1], max_seconds=60).samples) > 10_000, line
