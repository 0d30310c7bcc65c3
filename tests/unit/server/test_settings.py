"""Settings: where values come from, and what a wrong one says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.settings import Settings, is_loopback, load_settings

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the settings of the person who runs it."""
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)
    return tmp_path


def test_defaults_serve_this_machine_only_and_need_no_key() -> None:
    settings = load_settings()
    assert settings.is_loopback
    assert settings.api_keys == ()
    assert settings.engine == "lite"


def test_argument_beats_environment_beats_file(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_folder / ".env").write_text(
        "COSYVOICE_STREAM_PORT=1\nCOSYVOICE_STREAM_THREADS=1\nCOSYVOICE_STREAM_HOST=::1\n"
    )
    monkeypatch.setenv("COSYVOICE_STREAM_PORT", "2")
    monkeypatch.setenv("COSYVOICE_STREAM_THREADS", "2")
    settings = load_settings(port=3)
    assert (settings.port, settings.threads, settings.host) == (3, 2, "::1")


def test_none_and_empty_values_count_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYVOICE_STREAM_PORT", "")
    assert load_settings(port=None).port == 8000


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYVOICE_STREAM_API_KEYS", "first, second,")
    monkeypatch.setenv("COSYVOICE_STREAM_ALLOWED_ORIGINS", "https://a.example,http://b.example:81")
    settings = load_settings()
    assert [key.get_secret_value() for key in settings.api_keys] == ["first", "second"]
    assert settings.allowed_origins == ("https://a.example", "http://b.example:81")


@pytest.mark.parametrize("key", ["COSYVOICE_STREAM_PROT", "COSYVOICE_STREAMS_PORT"])
@pytest.mark.parametrize("place", ["environment", "file"])
def test_unknown_key_names_itself_and_the_closest_one(
    key: str, place: str, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "file":
        (empty_folder / ".env").write_text(f"{key}=8001\n")
    else:
        monkeypatch.setenv(key, "8001")
    with pytest.raises(ConfigError, match=f"sets {key}, which is not a setting") as caught:
        load_settings()
    assert "did you mean COSYVOICE_STREAM_PORT?" in str(caught.value.how_to_fix)


def test_unknown_argument_names_the_closest_one() -> None:
    with pytest.raises(ConfigError, match="prot is not a setting; did you mean port?"):
        load_settings(prot=1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("POSTGRES_PASSWORD", "x"),
        ("COSYVOICE_MODEL_DIR", "/models"),
        ("COSYVOICE_STREAM_SERVICE_HOST", "10.0.0.7"),
        ("COSYVOICE_STREAM_PORT_8000_TCP_ADDR", "10.0.0.7"),
        ("COSYVOICE_STREAM_PORT", "tcp://10.0.0.7:8000"),
    ],
)
def test_variables_of_other_programs_are_left_alone(
    key: str, value: str, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_folder / ".env").write_text(f"{key}={value}\n")
    monkeypatch.setenv(key, value)
    assert load_settings().port == 8000


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("PORT", "99999", "COSYVOICE_STREAM_PORT = '99999': input should be less than"),
        ("LOG_LEVEL", "loud", "COSYVOICE_STREAM_LOG_LEVEL = 'loud': input should be 'debug'"),
        ("ALLOWED_ORIGINS", "a.example", "write it as https://example.org, without a path"),
        ("MAX_UPLOAD_MB", "0", "COSYVOICE_STREAM_MAX_UPLOAD_MB = '0': input should be greater"),
    ],
)
def test_wrong_value_names_the_variable_and_the_rule(
    key: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + key, value)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert message in str(caught.value)


def test_keys_are_in_no_text_form_of_the_settings() -> None:
    settings = load_settings(api_keys="s3cret-key")
    assert "s3cret" not in f"{settings} {settings!r}"


def test_home_sign_in_the_voices_folder_is_expanded() -> None:
    assert load_settings(voices_dir="~/voices").voices_dir == Path.home() / "voices"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.2", True), ("[::1]", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("path", ["docs/settings.md", ".env.example"])
def test_written_files_match_the_fields(path: str) -> None:
    maker = runpy.run_path(str(ROOT / "docs" / "make_settings.py"))
    expected = maker[maker["FILES"][path]]()
    assert (ROOT / path).read_text(encoding="utf-8") == expected, "run python docs/make_settings.py"


def test_example_file_is_read_without_complaint(empty_folder: Path) -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    lines = [line.lstrip("#") if PREFIX in line else line for line in example.splitlines()]
    (empty_folder / ".env").write_text("\n".join(lines), encoding="utf-8")
    assert load_settings() == Settings(_env_file=None)
