"""The settings of the server; with `environment` the only place that reads the environment.

Values come, in falling order of rank, from arguments, from environment variables that begin with
``COSYVOICE_STREAM_``, and from such lines in a file ``.env`` in the working directory. A key with
this prefix that names no setting is an error, and so is one whose prefix is nearly right. Keys of
other programs are left alone, because one ``.env`` often serves several. ``docs/settings.md`` and
``.env.example`` are made from this class by ``docs/make_settings.py``.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import sys
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.server.environment import PREFIX, Environment
from cosyvoice_stream.server.phone_settings import PhoneSettings
from cosyvoice_stream.server.setting_types import (
    Aliases,
    CommaList,
    FilePath,
    FolderPath,
    IpAddress,
    Origins,
    PortRange,
    Secrets,
)


def user_data_dir() -> Path:
    """Return this program's folder under the user's data folder of this platform."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return base / "cosyvoice-stream"


def default_voices_dir() -> Path:
    """Return the folder for voices of this user."""
    return user_data_dir() / "voices"


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address can only be reached from this machine."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Settings(PhoneSettings, BaseSettings):
    """How one server process runs. Immutable; durations are seconds, sizes are stated."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on. The default can be reached from this machine only; `0.0.0.0` opens the
    server to the network, where `api_keys` should be set."""
    port: int = Field(8000, ge=0, le=65535)
    """TCP port for HTTP and WebSocket. 0 takes a free one and prints it."""
    grpc_port: int | None = Field(None, ge=0, le=65535)
    """TCP port of a gRPC service like that of CosyVoice's own server, which has 50000; needs the
    extra `grpc`. Not set: none."""
    wyoming_port: int | None = Field(None, ge=0, le=65535)
    """TCP port for Home Assistant, which expects 10200 (the Wyoming protocol). Not set: none."""
    wyoming_host: str = "127.0.0.1"
    """Address of that port. The protocol has no keys: whoever reaches it may speak."""
    wyoming_announce: bool = False
    """Announce that port by multicast DNS (zeroconf), so that Home Assistant on the same network
    finds it by itself; needs the extra `wyoming`. On a loopback address only this machine hears
    of it."""
    engine: str = "lite"
    """Which engine speaks. `lite` is the embedded English engine (CPU, no download); `cosyvoice`
    runs a checkpoint of CosyVoice 2 or Fun-CosyVoice 3 (`model_dir`)."""
    model_dir: FolderPath | None = None
    """Checkpoint folder of the engine `cosyvoice`, as `cosyvoice-stream download` fetches it."""
    device: str = "auto"
    """What the engine `cosyvoice` runs on: `cpu`, `cuda`, `cuda:1`; `auto` takes CUDA where there
    is a device."""
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = "auto"
    """Of its LM and flow. `auto` is bf16 on CUDA and fp32 on a CPU; `int8` is for the LM on a
    CPU. One that fails the self-test is replaced by fp32."""
    model_slots: int = Field(16, ge=1, le=1024)
    """Utterances that the engine `cosyvoice` speaks at once; more are refused with `busy`."""
    model_memory_mb: int | None = Field(None, ge=64)
    """Megabytes (2^20 bytes) for the states of its live utterances. Not set: what a CUDA device has
    left after loading, and no bound on a CPU."""
    first_hop: int = Field(10, ge=1, le=25)
    """Speech tokens (40 ms each) before its first audio, besides three of lookahead."""
    flow_steps: int = Field(10, ge=1, le=50)
    """Steps of its flow unless a client asks for others: fewer are faster."""
    right_context: int = Field(8, ge=1, le=64)
    """Frames (20 ms each) that the vocoder of CosyVoice 2 looks ahead."""
    left_context_s: int | None = Field(None, ge=1, le=300)
    """Seconds of speech that its flow looks back at, besides the recording of the voice. Not set:
    all; a few save memory on small devices, and the sound is then approximate."""
    interleave_text: bool = False
    """Let CosyVoice speak while a sentence is still being written. Sooner where text comes slowly;
    the same seed may then give other speech, since that depends on when text came."""
    prompt_cache_mb: int = Field(2048, ge=0)
    """Megabytes for prepared states of voices that are not speaking."""
    prompt_cache_dir: FolderPath | None = None
    """Folder that keeps prepared states when memory is used up. Not set: none are kept."""
    compile_model: bool = False
    """Compile the networks with `torch.compile`: slower to start, faster to run."""
    threads: int | None = Field(None, ge=1, le=256)
    """CPU threads for synthesis. Not set: chosen by the engine from the number of cores."""
    voices_dir: FolderPath = Field(default_factory=default_voices_dir)
    """Folder of the stored voices. Not set: `cosyvoice-stream/voices` in the user's data folder."""
    max_voices: int = Field(1000, ge=0)
    """Stored voices; further enrolments with `persist` are refused."""
    max_voices_per_key: int | None = Field(None, ge=0)
    """Voices that one API key may make, those of open sessions included. Not set: no limit of its
    own."""
    voice_aliases: Aliases = ()
    """Other names of voices, as `NAME=VOICE` separated by commas, for clients of other services:
    `alloy=voice-…` lets a client that asks for `alloy` hear that voice. Names that are built into
    those services and stand in no alias get the default voice."""
    require_consent: bool = False
    """Refuse to make a voice without a statement of the speaker's consent."""
    max_live_utterances: int = Field(64, ge=1)
    """Utterances that are spoken at the same time, in all sessions; more are refused with `busy`
    and a hint when to try again."""
    max_live_per_key: int | None = Field(None, ge=1)
    """Of these, for one API key. Not set: no limit of its own."""
    queue_wait_s: float = Field(1.0, ge=0, le=60)
    """Longest wait for a free place among the `max_live_utterances`. Who would wait longer is
    refused at once; 0 refuses whoever finds no free place."""
    max_sessions: int = Field(500, ge=1)
    """Open WebSockets; more are refused with `busy`."""
    max_sessions_per_key: int | None = Field(None, ge=1)
    """Of these, for one API key. Not set: no limit of its own."""
    hold_back_ms: int = Field(400, ge=50, le=5000)
    """How long the end of a sentence waits for the next character of a text that is still coming:
    "3." may become "3.5". Behind a number or a word without an end it is five times as long."""
    max_text_chars: int = Field(100_000, ge=1)
    """Characters of text in one utterance."""
    lexicon_file: FilePath | None = None
    """File of words and their readings for all utterances, `.json` or `.csv`. It is read again when
    it changes, and written by `PUT /v1/lexicon`. Not set: such words are kept in memory."""
    max_upload_mb: float = Field(50, gt=0)
    """Megabytes (10^6 bytes) of an uploaded recording."""
    max_reference_s: float = Field(60, ge=3)
    """Seconds of a reference recording; longer ones are refused (3–10 s are best)."""
    reference_policy: Literal["warn", "strict"] = "warn"
    """`strict` refuses a reference recording for what `warn` only warns about: noise, clipping, a
    telephone line, words cut off at the ends, several attempts."""
    asr_model: str | None = None
    """Whisper model that hears what is said in reference recordings: the folder of a converted one,
    or a name such as `base`, which is fetched at the first start. Needs the extra `asr`. It fills
    in a missing transcript and takes the place of one that is wrong by more than 30 %; for engines
    that clone. Not set: transcripts are taken as they are sent."""
    stall_timeout_s: float = Field(30, gt=0)
    """Seconds for which a client may stop reading its audio, or sending its upload, before the
    connection is dropped."""
    resume_s: float = Field(30, ge=0)
    """Seconds for which a client that asked for it may come back after its connection broke, at
    most `stall_timeout_s`. Its session keeps its place meanwhile; 0 offers no resuming."""
    idle_timeout_s: float | None = Field(None, gt=0)
    """Seconds after which a WebSocket session that is not used is closed. Not set: never."""
    max_session_s: float | None = Field(None, gt=0)
    """Seconds after which a WebSocket session is closed, behind what it is saying. Not set:
    never."""
    audio_cache_mb: float = Field(64, ge=0)
    """Megabytes (10^6 bytes) of speech that are kept in memory: a whole text with the same voice,
    options and seed as before is not spoken again. 0 keeps nothing."""
    cache_unseeded: bool = False
    """Answer requests without a seed from the cache as well, with the seed of the first one.
    Otherwise each of them is spoken anew."""
    prompts_file: FilePath | None = None
    """TOML file of texts that are spoken at the start and stay in the cache, such as the menus of a
    telephone line: a table `[[prompt]]` for each, with `text` and the options of
    `POST /v1/speak`. A prompt without a seed answers requests without one."""
    lead_ms: int = Field(0, ge=0, le=60_000)
    """Milliseconds of audio that a session may be ahead of its listener unless the client says
    otherwise (`output.lead_ms`, at least 20). 0 sends as fast as the client reads."""
    webrtc_ice_servers: Secrets = ()
    """STUN and TURN servers for calls: `stun:host:3478`, `turn://user:password@host:3478`. Browsers
    are told them; the server uses them too unless `webrtc_public_address` is set."""
    webrtc_turn_secret: SecretStr | None = None
    """Secret shared with a TURN server (coturn's `static-auth-secret`): clients get credentials
    that end after a day instead of a password."""
    webrtc_public_address: IpAddress | None = None
    """IP address by which peers reach the UDP ports of calls, where it is not the one of this
    machine's network card: behind one-to-one NAT, in a container."""
    webrtc_ports: PortRange | None = None
    """UDP ports for calls, such as `50000-50100`; each call takes one for each address of this
    machine. Not set: any free port."""
    max_calls: int = Field(64, ge=0)
    """WebRTC peers at the same time, listeners included; more are refused with `busy`."""
    call_connect_s: float = Field(20, gt=0)
    """Seconds that a WebRTC peer gets to connect."""
    call_gone_s: float = Field(15, ge=5)
    """Seconds of silence on the network after which a WebRTC peer counts as gone. Browsers report
    every five seconds at the least."""
    call_bit_rate: int = Field(32_000, ge=6000, le=256_000)
    """Bits per second of the Opus audio of calls."""
    call_loss_percent: int = Field(5, ge=0, le=50)
    """Packet loss that calls carry redundancy (in-band FEC) for; 0 sends none."""
    drain_s: float = Field(20, ge=0)
    """Seconds that running utterances get to finish when the server is told to stop."""
    api_keys: Secrets = ()
    """Keys that clients must send, separated by commas. Not set: no key is needed."""
    allowed_origins: Origins = ()
    """Origins of other web pages that may use this server from a browser, such as
    `https://example.org`, separated by commas; `*` allows all. The server's own page and programs
    that are not browsers are always allowed."""
    allowed_hosts: CommaList = ()
    """Host names, besides the loopback ones, by which clients may call a server that listens on a
    loopback address; needed behind a reverse proxy that keeps the `Host` header."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged. No level logs text, audio, names or keys."""
    log_format: Literal["text", "json"] = "text"
    """`text` for people, `json` for log collectors (one object per line)."""

    @property
    def max_upload_bytes(self) -> int:
        """Bytes of an uploaded recording."""
        return int(self.max_upload_mb * 1_000_000)

    @property
    def aliases(self) -> dict[str, str]:
        """Voice by alias, in lower case."""
        pairs = (pair.partition("=") for pair in self.voice_aliases)
        return {name.strip().lower(): voice.strip() for name, _, voice in pairs}

    @property
    def is_loopback(self) -> bool:
        """Whether the server can be reached from this machine only."""
        return is_loopback(self.host)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Replace pydantic's readers, which ignore unknown variables, by a strict one."""
        env_file = getattr(dotenv_settings, "env_file", None)
        return init_settings, Environment(settings_cls, env_file)


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; `overrides` (from the command line) win, None among them counts as absent.

    Raises:
        ConfigError: A key or a value is wrong; the text names the variable and the rule, and holds
            no value of a secret setting.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise ConfigError(
            "; ".join(_explain(dict(detail)) for detail in error.errors()),
            how_to_fix="docs/settings.md lists every setting with its range",
        ) from None


_SECRET: Final = frozenset(
    {
        "api_keys",
        "phone_agent_token",
        "sip_password",
        "webrtc_ice_servers",
        "webrtc_turn_secret",
    }
)
"""Settings whose value no message quotes."""


def _explain(detail: dict[str, Any]) -> str:
    """Render one pydantic error for the person who set the value."""
    name = str(detail["loc"][0]) if detail["loc"] else "settings"
    variable = PREFIX + name.upper()
    reason = str(detail["msg"]).removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0.0)
        return f"{name} is not a setting; did you mean {near[0]}?"
    if name in _SECRET:
        return f"{variable}: {reason}"
    return f"{variable} = {detail['input']!r}: {reason}"
