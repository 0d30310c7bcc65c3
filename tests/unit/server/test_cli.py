"""Parsing, help, and how mistakes are answered; what needs a process is in tests/integration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cosyvoice_stream.errors import EngineBusy, InvalidOption, VoiceStreamError
from cosyvoice_stream.server.cli import friendly, main
from cosyvoice_stream.version import __version__

pytestmark = pytest.mark.unit

COMMANDS = {
    (): ("say", "serve", "enrol", "voices", "bench", "doctor"),
    ("say",): ("--output", "--voice", "--play", "--url", "--speed", "--seed"),
    ("serve",): ("--host", "--port", "--engine", "--voices-dir"),
    ("enrol",): ("--check", "--name", "--transcript", "--consent", "--json"),
    ("voices",): ("list", "show", "delete"),
    ("voices", "list"): ("--json",),
    ("voices", "show"): ("VOICE_ID",),
    ("voices", "delete"): ("VOICE_ID",),
    ("bench",): ("--streams", "--rounds", "--json"),
    ("doctor",): ("--json",),
}
HEAVY = ("numpy", "onnxruntime", "starlette", "uvicorn", "pydantic", "av", "asyncio")


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSYVOICE_STREAM_VOICES_DIR", str(tmp_path / "voices"))


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=input)


def complaint(result: Result) -> tuple[str, str]:
    """The two lines of a refusal, without their labels; nothing else may have been printed."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 2, lines
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("fix: ")
    return lines[0].removeprefix("error: "), lines[1].removeprefix("fix: ")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_explains_itself(command: tuple[str, ...], flag: str) -> None:
    result = run(*command, flag)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")
    assert [word for word in COMMANDS[command] if word not in result.stdout] == []


def test_version_is_the_one_of_the_package() -> None:
    assert run("--version").stdout == f"cosyvoice-stream, version {__version__}\n"


@pytest.mark.parametrize("command", [["--help"], ["say", "--help"], ["--version"]])
def test_help_loads_no_heavy_package(command: list[str]) -> None:
    program = (
        "import sys\n"
        "from cosyvoice_stream.server.cli import main\n"
        f"main({command!r}, standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr == "[]\n"


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--speed", "9", "use a number from 0.5 to 2"),
        ("--speed", "nan", "use a number from 0.5 to 2"),
        ("--pitch", "-13", "use a number from -12 to 12"),
        ("--volume", "inf", "use a number from 0 to 2"),
        ("--strength", "1.01", "use a number from 0 to 1"),
        ("--seed", "-1", "use a whole number from 0 to 4294967295"),
    ],
)
def test_option_out_of_range_is_refused_with_the_range(option: str, value: str, rule: str) -> None:
    message, cure = complaint(run("say", "Hello.", "-o", "x.wav", option, value))
    assert message.startswith(f"{option[2:]} = ")
    assert cure == rule
    assert not Path("x.wav").exists()


@pytest.mark.parametrize(
    ("arguments", "message", "cure"),
    [
        (["-o", "x.doc"], "the suffix '.doc' names no audio format", ".wav, .mp3, .flac"),
        (["-o", "noend"], "noend has no suffix", "--format"),
        (["-o", "."], ". is a folder", "name a file"),
        (["-o", "no/such/x.wav"], "no/such/x.wav cannot be written: No such file", "-o"),
        (["-o", "x.wav", "--rate", "12345"], "wav is not available at 12345 Hz", "24000"),
        (["-o", "x.opus", "--rate", "44100"], "opus is not available at 44100 Hz", "48000"),
        (["-o", "x.wav", "--format", "gsm"], "the encoding 'gsm' is not available", "pcm_s16le"),
        (["-o", "x.wav", "--voice", "me.wav"], "there is no file me.wav", "path"),
        (["-o", "x.wav", "--voice", "a/b"], "there is no file a/b", "path"),
        (["-o", "x.wav", "--url", "ftp://x"], "'ftp://x' is not the address", "http://"),
        (["-o", "x.wav", "--url", "http://h:99999"], "is not the address", "http://"),
        (["-o", "x.wav", "--url", "http://[::1"], "is not the address", "http://"),
    ],
)
def test_wrong_arguments_of_say_are_refused_before_anything_is_made(
    arguments: list[str], message: str, cure: str
) -> None:
    found_message, found_cure = complaint(run("say", "Hello.", *arguments))
    assert message in found_message
    assert cure in found_cure
    assert list(Path().glob("**/*.wav")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["say", "Hello.", "--speed", "fast"],
        ["say", "Hello.", "--rate", "high"],
        ["bench", "--rounds", "0"],
        ["serve", "--port", "http"],
        ["serve", "--log-level", "loud"],
        ["enrol"],
        ["voices", "show"],
        ["unknown"],
    ],
)
def test_what_click_refuses_shows_the_usage(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")
    assert "Error: " in result.stderr


@pytest.mark.parametrize("streams", ["", "a", "1,,2", "0", "257", "1;2", "-1"])
def test_bench_refuses_what_is_no_list_of_numbers(streams: str) -> None:
    message, cure = complaint(run("bench", "--streams", streams))
    assert message == f"--streams {streams!r} is not a list of numbers"
    assert "1,4,8" in cure


def test_wrong_setting_is_refused_by_every_command_that_reads_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COSYVOICE_STREAM_PROT", "80")
    for arguments in (["say", "x", "-o", "x.wav"], ["voices"], ["doctor"], ["bench"], ["serve"]):
        message, cure = complaint(run(*arguments))
        assert "COSYVOICE_STREAM_PROT" in message
        assert "COSYVOICE_STREAM_PORT" in cure


def test_serve_refuses_an_unknown_engine_by_naming_the_known_ones() -> None:
    message, cure = complaint(run("serve", "--engine", "piper"))
    assert message == "there is no engine 'piper'"
    assert "lite" in cure


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (
            InvalidOption("speed", 9, "use less"),
            ["error: speed = 9 is not allowed", "fix: use less"],
        ),
        (
            EngineBusy(2.0),
            ["error: all synthesis slots are taken", "fix: try again in 2.0 s"],
        ),
        (VoiceStreamError("odd"), ["error: odd"]),
    ],
)
def test_known_error_becomes_lines_and_status_2(
    error: VoiceStreamError, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left, friendly():
        raise error
    assert left.value.code == 2
    assert capsys.readouterr().err.splitlines() == lines


def test_interruption_leaves_with_130_and_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left, friendly():
        raise KeyboardInterrupt
    assert left.value.code == 130
    assert capsys.readouterr() == ("", "")


def test_mistake_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), friendly():
        _ = 1 / 0
