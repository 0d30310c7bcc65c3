"""The server as a telephone: SIP calls that come in and go out, the menu, the calls over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.lite.engine import LiteEngine
from cosyvoice_stream.server.app import create_app
from cosyvoice_stream.server.settings import Settings
from cosyvoice_stream.telephony.extension import Telephony
from cosyvoice_stream.telephony.sip_agent import UserAgent
from cosyvoice_stream.telephony.sip_call import SipCall
from cosyvoice_stream.telephony.sip_signalling import CallFailed
from cosyvoice_stream.types import Samples
from support.asr import transcribe, word_errors
from support.baresip import baresip
from support.served import Served, serving, until
from support.sip_peer import agent, stream, taken

pytestmark = pytest.mark.integration

MENU = """\
start: greet
steps:
  greet:
    say: You may press one.
    keys: {1: rate}
    wait_s: 30
  rate: {say: This is the rate., hang_up: true}
"""
SPEECH_MENU = """\
start: library
steps:
  library:
    say: >-
      Good morning, and thank you for calling the city library. We are open every day from nine in
      the morning until six in the evening. Press seven to hear where we are.
    keys: {7: where}
    wait_s: 30
  where: {say: The library is beside the old railway station., hang_up: true}
"""
GREETING = (
    "Good morning, and thank you for calling the city library. We are open every day from nine in "
    "the morning until six in the evening. Press seven to hear where we are."
)
DIRECTIONS = "The library is beside the old railway station."


def telephony(served: Served) -> Telephony:
    """The telephony of a running server."""
    app: Any = served.server.config.app
    (found,) = app.state.extensions
    assert isinstance(found, Telephony)
    return found


async def dial(peer: UserAgent, served: Served) -> SipCall:
    """Call the server and be answered."""
    sip = telephony(served).sip
    assert sip is not None
    call = await peer.place(f"sip:bot@127.0.0.1:{sip.port}")
    await peer.answered(call)
    return call


def with_menu(folder: Path, text: str = MENU) -> Path:
    path = folder / "menu.yaml"
    path.write_text(text)
    return path


async def none_left(served: Served) -> None:
    """Wait until nothing of any call is there."""
    services, desk = served.services, telephony(served).desk
    await until(lambda: not (desk.live or services.sessions.live or services.admission.live))


def test_a_caller_hears_the_menu_presses_a_key_and_is_hung_up_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            serving(tmp_path, sip_port=0, phone_menu=with_menu(tmp_path)) as served,
            agent() as peer,
        ):
            call = await dial(peer, served)
            assert call.leg is not None
            assert np.abs(await stream(call.leg, 60)).max() > 0.1
            call.leg.press("1")
            await stream(call.leg, 60, first=60)
            async with asyncio.timeout(20):
                await call.over.wait()
            await none_left(served)

    asyncio.run(run())


def test_a_caller_who_hangs_up_leaves_nothing_behind(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, sip_port=0) as served, agent() as peer:
            call = await dial(peer, served)
            assert call.leg is not None
            await stream(call.leg, 20)
            call.hang_up()
            await none_left(served)

    asyncio.run(run())


def test_the_server_hangs_up_when_it_stops(tmp_path: Path) -> None:
    async def run() -> None:
        async with agent() as peer:
            async with serving(tmp_path, sip_port=0, drain_s=0) as served:
                call = await dial(peer, served)
            async with asyncio.timeout(20):
                await call.over.wait()

    asyncio.run(run())


def test_one_call_too_many_is_busy(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            serving(tmp_path, sip_port=0, phone_max_calls=1) as served,
            agent() as peer,
        ):
            first = await dial(peer, served)
            with pytest.raises(CallFailed) as refused:
                await dial(peer, served)
            assert refused.value.status == 486
            first.hang_up()
            await none_left(served)
            second = await dial(peer, served)
            second.hang_up()

    asyncio.run(run())


def test_the_server_calls_says_a_text_and_hangs_up(tmp_path: Path) -> None:
    heard: list[float] = []
    ended = asyncio.Event()

    async def listens(call: SipCall) -> None:
        leg = await call.answer()
        heard.append(float(np.abs(await stream(leg, 100)).max()))
        await call.over.wait()
        ended.set()

    async def run() -> None:
        async with serving(tmp_path, sip_port=0) as served, agent(listens) as peer:
            wanted = {"to": f"sip:you@127.0.0.1:{peer.port}", "text": "your taxi is here"}
            reply = await served.post_json("/v1/calls", wanted)
            assert reply.status == 202
            async with asyncio.timeout(20):
                await ended.wait()
            await none_left(served)

    asyncio.run(run())
    assert heard[0] > 0.1


def test_calls_are_listed_without_numbers_and_ended_by_id(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, sip_port=0) as served, agent(taken) as peer:
            target = f"sip:secret-number@127.0.0.1:{peer.port}"
            placed = (await served.post_json("/v1/calls", {"to": target})).json()
            await until(lambda: telephony(served).desk.live == 1)
            listed = await served.get("/v1/calls")
            (live,) = listed.json()["calls"]
            assert live["id"] == placed["id"]
            assert live["carrier"] == "sip"
            assert b"secret-number" not in listed.body
            assert (await served.request("DELETE", f"/v1/calls/{live['id']}")).status == 204
            await none_left(served)
            gone = await served.request("DELETE", f"/v1/calls/{live['id']}")
            assert gone.status == 404

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"to": ""}, 400),
        ({"to": 5}, 400),
        ({"to": "tel:123"}, 400),
        ({"to": "sip:a@b", "text": "x" * 10_001}, 400),
        ({"to": "sip:a@b", "size": 1}, 400),
    ],
)
def test_a_wrong_call_is_refused(tmp_path: Path, body: dict[str, Any], status: int) -> None:
    async def run() -> None:
        async with serving(tmp_path, sip_port=0) as served:
            reply = await served.post_json("/v1/calls", body)
            assert reply.status == status
            assert reply.error["message"]

    asyncio.run(run())


def test_a_server_without_sip_says_how_to_place_calls(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            reply = await served.post_json("/v1/calls", {"to": "sip:a@127.0.0.1"})
            assert reply.status >= 400
            assert "SIP_PORT" in json.dumps(reply.json())
            assert (await served.get("/v1/calls")).json() == {"calls": []}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"sip_tls_port": 0}, "needs a certificate"),
        ({"sip_account": "bot"}, "is no address"),
        ({"sip_allow": ("home",)}, "is no network"),
        ({"sip_codecs": ("gsm",)}, "gsm"),
        ({"phone_menu": Path("nowhere.yaml")}, "cannot be read"),
    ],
)
def test_wrong_settings_are_named_before_the_start(
    tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    chosen = Settings(_env_file=None, voices_dir=tmp_path, sip_port=0, **settings)
    with pytest.raises(ConfigError, match=expected):
        create_app(chosen)


def test_no_number_and_no_key_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def run() -> None:
        async with (
            serving(tmp_path, sip_port=0, phone_menu=with_menu(tmp_path)) as served,
            agent(user="private-caller") as peer,
        ):
            call = await dial(peer, served)
            assert call.leg is not None
            call.leg.press("1")
            await stream(call.leg, 60)
            call.hang_up()
            await none_left(served)

    asyncio.run(run())
    assert "private-caller" not in caplog.text
    assert "You may press" not in caplog.text
    assert "KeyPressed('1')" not in caplog.text


def test_a_telephone_calls_a_server_and_understands_it(tmp_path: Path) -> None:
    """baresip with G.711 records what the embedded engine says; a recogniser reads it."""
    quiet = np.zeros(8000 * 120, np.float32)

    async def run() -> tuple[Samples, int]:
        menu = with_menu(tmp_path, SPEECH_MENU)
        async with (
            serving(tmp_path, LiteEngine(), patience_s=120, sip_port=0, phone_menu=menu) as served,
            baresip(tmp_path / "phone", ["g711"], quiet) as phone,
        ):
            sip, desk = telephony(served).sip, telephony(served).desk
            assert sip is not None
            await phone.command("dial", f"sip:bot@127.0.0.1:{sip.port}")
            await phone.event("CALL_ESTABLISHED")
            await until(lambda: desk.live == 1 and desk.calls[0].says_something)
            await desk.calls[0].all_heard()
            await phone.command("sndcode", "7")
            await phone.command("sndcode", "\x04")
            await phone.event("CALL_CLOSED")
            await none_left(served)
        return phone.heard()

    recorded, rate = asyncio.run(run())
    errors, words = word_errors(f"{GREETING} {DIRECTIONS}", transcribe(recorded, rate))
    assert errors / words <= 0.10
