"""What a client may send by mistake or on purpose: a clear refusal, and the session goes on."""

import asyncio
import json
import random
import struct

import pytest
import websockets

from cosyvoice_stream.server import wire_requests
from support.raw_peer import RawPeer
from support.stream_server import PATIENCE_S, stream_server

pytestmark = pytest.mark.integration


def run(test):
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S * 3))


async def still_speaks(client):
    await client.send(type="speak", id="afterwards", text="still here")
    done = await client.message("utterance.done")
    assert (done["id"], done["audio_ms"]) == ("afterwards", 500.0)


HOSTILE = {
    "not JSON": ("{", "invalid_message"),
    "empty": ("", "invalid_message"),
    "null": ("null", "invalid_message"),
    "unknown type": ('{"type":"sing"}', "invalid_message"),
    "unknown field": ('{"type":"speak","id":"a","text":"x","voise":1}', "invalid_message"),
    "deep arrays": ("[" * 500_000, "invalid_message"),
    "deep objects": ('{"a":' * 100_000 + "1" + "}" * 100_000, "invalid_message"),
    "deep option": (
        '{"type":"speak","id":"a","text":"x","output":' + '{"a":' * 5000 + "1" + "}" * 5001,
        "invalid_message",
    ),
    "NaN": ('{"type":"speak","id":"a","text":"x","speed":NaN}', "invalid_message"),
    "Infinity": ('{"type":"speak","id":"a","text":"x","speed":-Infinity}', "invalid_message"),
    "1e999": ('{"type":"speak","id":"a","text":"x","volume":1e999}', "invalid_message"),
    "huge integer": (
        '{"type":"speak","id":"a","text":"x","seed":' + "9" * 100_000 + "}",
        "invalid_message",
    ),
    "lone surrogate": ('{"type":"speak","id":"a","text":"\\ud83d"}', "invalid_message"),
    "a megabyte of text": (
        json.dumps({"type": "speak", "id": "a", "text": "word " * 200_000}),
        "limit_exceeded",
    ),
    "a megabyte of id": (
        json.dumps({"type": "speak", "id": "a" * 1_000_000, "text": "x"}),
        "invalid_message",
    ),
    "a megabyte of junk": ("x" * 1_000_000, "invalid_message"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_is_refused_and_the_session_lives(name):
    frame, code = HOSTILE[name]

    async def test():
        async with stream_server() as server, server.client() as client:
            await client.connection.send(frame)
            error = await client.message()
            assert (error["type"], error["code"]) == ("error", code)
            assert len(json.dumps(error)) < 500
            await still_speaks(client)

    run(test)


def test_binary_noise():
    async def test():
        noise = random.Random(1)
        async with stream_server() as server, server.client() as client:
            for size in (0, 1, 11, 12, 1000, 1_000_000):
                await client.connection.send(noise.randbytes(size))
                assert (await client.message())["code"] == "invalid_state"
            await still_speaks(client)

    run(test)


def test_a_message_over_two_mebibytes_ends_the_connection():
    async def test():
        async with stream_server() as server, server.client() as client:
            sending = client.connection.send("x" * (2 * 1024 * 1024 + 1))
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await asyncio.gather(sending, client.message())
            assert caught.value.rcvd.code == 1009
            await server.all_ended()

    run(test)


def test_text_that_is_not_utf8_ends_the_connection():
    async def test():
        async with stream_server() as server:
            async with RawPeer(server.url) as peer:
                payload = b"\xff\xfe\xfd"
                await peer.send_bytes(
                    struct.pack("!BB", 0x81, 0x80 | len(payload)) + bytes(4) + payload
                )
                await peer.read_to_the_end()
            await server.all_ended()
            async with server.client() as client:
                await still_speaks(client)

    run(test)


def test_noise_instead_of_frames_ends_the_connection():
    async def test():
        noise = random.Random(2)
        async with stream_server() as server:
            for _ in range(10):
                async with RawPeer(server.url) as peer:
                    await peer.send_bytes(noise.randbytes(5000))
                    await peer.read_to_the_end()
            await server.all_ended()
            async with server.client() as client:
                await still_speaks(client)

    run(test)


def test_ten_thousand_tiny_deltas():
    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="utterance.start", id="a")
            for _ in range(5000):
                await client.send(type="text.delta", id="a", text="a")
                await client.send(type="text.delta", id="a", text=" ")
            await client.send(type="utterance.end", id="a")
            done = await client.message("utterance.done", "error")
        assert (done["type"], done["characters"]) == ("utterance.done", 10_000)
        assert done["audio_ms"] == (5000 + 4999) * 50

    run(test)


def test_duplicate_ids_do_not_disturb_the_first():
    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="utterance.start", id="a")
            await client.send(type="speak", id="a", text="impostor")
            error = await client.message("error")
            assert error["code"] == "duplicate_utterance"
            assert "id" not in error
            await client.send(type="text.delta", id="a", text="first")
            await client.send(type="utterance.end", id="a")
            assert (await client.message("utterance.done"))["audio_ms"] == 250.0

    run(test)


def test_text_faster_than_speech_is_bounded_for_that_utterance_only():
    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="utterance.start", id="a")
            for _ in range(4):
                await client.send(type="text.delta", id="a", text="word " * 8000)
            error = await client.message("error")
            assert (error["id"], error["code"]) == ("a", "limit_exceeded")
            await still_speaks(client)

    run(test)


def test_random_messages_never_break_a_session():
    async def test():
        dice = random.Random(3)
        values = [None, "a", "b", "", 1, -1, 0.5, True, [], {}, "word", {"encoding": "wav"}]
        fields = ["id", "text", "speed", "output", "marks", "played_ms", "voice", "input", "clean"]
        async with stream_server() as server, server.client() as client:
            for _ in range(1500):
                message = {"type": dice.choice(sorted(wire_requests._TYPES))}
                for field in dice.sample(fields, dice.randint(0, 3)):
                    message[field] = dice.choice(values)
                await client.connection.send(json.dumps(message))
                if dice.random() < 0.1:
                    await client.connection.send(dice.randbytes(dice.randint(0, 40)))
            await client.send(type="utterance.cancel")
            await client.send(type="session.update", output=None, text=None, voice=None, speed=None)
            await client.send(type="speak", id="afterwards", text="still here")
            while (await client.message("utterance.done"))["id"] != "afterwards":
                pass
            assert server.admission.live == server.engine.counts.live == 0

    run(test)
