"""The command ``cosyvoice-stream``. Each command imports what it needs, so that help is instant."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cosyvoice_stream.errors import ConfigError, InvalidOption, VoiceStreamError
from cosyvoice_stream.version import __version__

EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130
F = TypeVar("F", bound=Callable[..., Any])


def fail(error: VoiceStreamError) -> None:
    """Say what is wrong and what to do, on standard error, and leave."""
    message, cure = error.message, error.how_to_fix
    if isinstance(error, InvalidOption):
        message, cure = f"{error.option} = {error.value!r} is not allowed", error.allowed
    click.echo(f"error: {message}", err=True)
    if cure:
        click.echo(f"fix: {cure}", err=True)
    raise SystemExit(EXIT_ERROR)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print JSON that survives whatever encoding standard output has."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    click.echo(json.dumps(value, ensure_ascii=not encoding.startswith("utf"), indent=indent))


@contextlib.contextmanager
def friendly() -> Iterator[None]:
    """Turn what users can meet into one line instead of a traceback."""
    try:
        yield
    except VoiceStreamError as error:
        fail(error)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our pipe has left. Standard output must not be flushed again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cosyvoice-stream")
def main() -> None:
    """Speak text while it is still being written, in a voice from a short recording."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its number; nothing fails over it.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@main.command()
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on.")
@click.option("--engine", help="Engine to use.")
@click.option("--model-dir", type=click.Path(path_type=Path), help="Checkpoint of CosyVoice.")
@click.option("--device", help="What CosyVoice runs on: auto, cpu, cuda, cuda:1.")
@click.option("--threads", type=int, help="Threads that render speech.")
@click.option("--voices-dir", type=click.Path(path_type=Path), help="Folder for stored voices.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--log-format", type=click.Choice(["text", "json"]))
def serve(**options: Any) -> None:
    """Run the server; settings come from the environment and .env, options override them."""
    with friendly():
        from cosyvoice_stream.server.runner import serve as run
        from cosyvoice_stream.server.settings import load_settings

        run(load_settings(**options))


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address for Home Assistant.")
@click.option("--port", type=int, default=10200, show_default=True, help="Port for it.")
@click.option("--http-port", type=int, help="Port for everything else.")
@click.option("--engine", help="Engine to use.")
@click.option("--model-dir", type=click.Path(path_type=Path), help="Checkpoint of CosyVoice.")
def wyoming(host: str, port: int, http_port: int | None, **options: Any) -> None:
    """Run the server with a port for Home Assistant (the Wyoming protocol)."""
    with friendly():
        from cosyvoice_stream.server.runner import serve as run
        from cosyvoice_stream.server.settings import load_settings

        run(load_settings(wyoming_host=host, wyoming_port=port, port=http_port, **options))


@main.command()
@click.option("--menu", "phone_menu", type=click.Path(path_type=Path), help="Menu that answers.")
@click.option("--agent", "phone_agent", help="Program of yours that answers: ws:// or http://.")
@click.option("--host", "sip_host", default="127.0.0.1", show_default=True, help="For SIP and RTP.")
@click.option("--port", "sip_port", type=int, default=5060, show_default=True, help="SIP port.")
@click.option("--http-port", "port", type=int, help="Port for everything else.")
@click.option("--engine", help="Engine to use.")
@click.option("--model-dir", type=click.Path(path_type=Path), help="Checkpoint of CosyVoice.")
def phone(**options: Any) -> None:
    """Run the server as a telephone: a menu, or a program of yours, answers SIP calls."""
    with friendly():
        from cosyvoice_stream.server.runner import serve as run
        from cosyvoice_stream.server.settings import load_settings

        run(load_settings(**options))


def speech_options(function: F) -> F:
    """Options of `say` that decide how it sounds."""
    for option in (
        click.option("--speed", type=float, default=1.0, help="Tempo, 0.5 to 2."),
        click.option("--pitch", type=float, default=0.0, help="Shift in semitones, -12 to 12."),
        click.option("--volume", type=float, default=1.0, help="Gain, 0 to 2."),
        click.option("--seed", type=int, help="Same seed, same samples."),
        click.option(
            "--strength", type=float, default=1.0, help="How far the voice is adapted, 0 to 1."
        ),
        click.option("--instruct", help="Style in words, for engines that follow it."),
        click.option("--language", help="BCP 47 tag of the text; found from the text by default."),
        click.option("--raw", is_flag=True, help="Read markup and emoji as they are."),
    ):
        function = option(function)
    return function


@main.command()
@click.argument("text", nargs=-1)
@click.option("-o", "--output", help="File to write; the suffix names the format. - is stdout.")
@click.option("--voice", help="Id of a voice, or a recording to adapt to on the fly.")
@click.option("--play", is_flag=True, help="Play on this machine (the default without -o).")
@click.option("--url", help="Use a running server, such as http://127.0.0.1:8000.")
@click.option("--api-key", envvar="COSYVOICE_API_KEY", help="Key for --url.")
@click.option("--format", "encoding", help="Format of the file, overriding its suffix.")
@click.option("--rate", type=int, default=24_000, show_default=True, help="Sample rate in hertz.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on standard error.")
@speech_options
def say(text: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Speak TEXT; - or no TEXT reads standard input as a stream and speaks while it arrives."""
    with friendly():
        from cosyvoice_stream.server.say_command import run_say

        words = None if not text or text == ("-",) else " ".join(text)
        if words is None and (sys.stdin is None or (not text and sys.stdin.isatty())):
            raise ConfigError("there is no text", how_to_fix='cosyvoice-stream say "Hello."')
        summary = run_say(words, quiet=quiet, **options)
        if not quiet:
            click.echo(summary, err=True)


@main.command()
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--name", help="What to call the voice.")
@click.option("--transcript", help="What is said in the recording.")
@click.option("--consent", help="The speaker's statement of consent.")
@click.option("--check", is_flag=True, help="Judge the recording only; store nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
def enrol(recording: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    """Make a voice from a RECORDING of 3 to 10 seconds.

    The embedded engine *adapts* its voice to the recording: pitch, formants and timbre move towards
    the speaker. CosyVoice models clone it: timbre, accent and rhythm come from the recording
    itself.
    """
    with friendly():
        from cosyvoice_stream.server.voice_commands import print_enrolment, run_enrol

        result = run_enrol(recording, quiet=quiet, **options)
        if as_json:
            print_json(result)
        else:
            print_enrolment(result)
        if result.get("rejected"):
            raise SystemExit(EXIT_ERROR)


@main.group(invoke_without_command=True)
@click.pass_context
def voices(context: click.Context) -> None:
    """List, show and delete voices."""
    if context.invoked_subcommand is None:
        context.invoke(list_voices)


@voices.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_voices(as_json: bool = False) -> None:
    """List built-in and stored voices."""
    with friendly():
        from cosyvoice_stream.server.voice_commands import print_voices, run_list

        found = run_list()
        if as_json:
            print_json(found)
        else:
            print_voices(found)


@voices.command("show")
@click.argument("voice_id")
def show_voice(voice_id: str) -> None:
    """Print everything that is known about one voice, as JSON."""
    with friendly():
        from cosyvoice_stream.server.voice_commands import run_show

        print_json(run_show(voice_id))


@voices.command("delete")
@click.argument("voice_id")
def delete_voice(voice_id: str) -> None:
    """Delete a stored voice: recording, transcript and caches."""
    with friendly():
        from cosyvoice_stream.server.voice_commands import run_delete

        run_delete(voice_id)
        click.echo(f"deleted {voice_id}", err=True)


@main.command()
@click.option("--streams", default="1,2,4,8", show_default=True, help="Numbers of streams to try.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(streams: str, rounds: int, as_json: bool) -> None:
    """Measure first audio and real-time factor of the engine in this process."""
    with friendly():
        from cosyvoice_stream.server.bench_command import run_bench

        run_bench(streams, rounds, as_json=as_json)


@main.command()
@click.argument("model", metavar="cosyvoice2|cosyvoice3")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Folder for the checkpoint.")
@click.option("--from", "hub", type=click.Choice(["huggingface", "modelscope"]), help="Model hub.")
@click.option("--revision", help="Branch, tag or commit; the one downloaded before by default.")
@click.option("--check", is_flag=True, help="Only compare the folder with what was downloaded.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
def download(model: str, **options: Any) -> None:
    """Fetch an official CosyVoice checkpoint: what the engine reads, verified and pinned.

    Interrupted, the same command goes on where it stopped; run again, it verifies the folder and
    repairs it. The folder is printed on standard output.
    """
    with friendly():
        from cosyvoice_stream.server.download_command import run_download

        if not run_download(model, **options):
            raise SystemExit(1)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Check this machine; every finding that is not fine comes with a cure."""
    with friendly():
        from dataclasses import asdict

        from cosyvoice_stream.server.doctor import run_checks
        from cosyvoice_stream.server.settings import load_settings

        signs = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
        checks = []
        for check in run_checks(load_settings()):
            checks.append(check)
            if not as_json:
                sign, colour = signs[check.verdict]
                name = click.style(f"{sign} {check.name}", fg=colour)
                click.echo(f"{name}: {check.finding}")
                if check.cure:
                    click.echo(f"    {check.cure}")
        if as_json:
            print_json([asdict(check) for check in checks])
        if any(check.verdict == "fail" for check in checks):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
