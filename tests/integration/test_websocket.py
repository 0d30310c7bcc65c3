"""Sessions over real sockets, on an engine of tones."""

import asyncio
import random

import pytest
import websockets

from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.wire import PROTOCOL
from support.stream_server import PATIENCE_S, Client, stream_server

pytestmark = pytest.mark.integration


def run(test):
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S * 3))


def test_text_goes_in_and_audio_comes_out():
    async def test():
        async with stream_server() as server, server.client() as client:
            assert client.ready["protocol"] == PROTOCOL
            await client.send(type="speak", id="a", text="Hello *big* world.", marks=["word"])
            started = await client.message("utterance.started")
            done = await client.message("utterance.done")
        assert (started["number"], started["sample_rate"], started["channels"]) == (1, 24_000, 1)
        assert (started["bytes_per_sample"], started["byte_order"]) == (2, "little")
        assert len(client.audio(1)) == done["audio_ms"] / 1000 * 24_000 * 2
        assert [header.last for header, _ in client.frames].index(True) == len(client.frames) - 1

    run(test)


def test_word_marks_point_into_the_text_of_the_client():
    text = "Hello *big* world."

    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="speak", id="a", text=text, marks=["word"])
            words = []
            while (message := await client.message())["type"] != "utterance.done":
                if message["type"] == "marks":
                    words += message["words"]
                    # Not later than the audio that it describes.
                    heard = sum(len(audio) for _, audio in client.frames) / 48
                    assert all(word["start_ms"] >= heard for word in message["words"])
        spans = [text[word["char_start"] : word["char_end"]] for word in words]
        assert spans == ["Hello", "big", "world"]

    run(test)


def test_frames_are_contiguous_in_every_output_format():
    async def test():
        async with stream_server() as server, server.client() as client:
            formats = [("pcm_s16le", 24_000, 2), ("pcm_f32le", 48_000, 4), ("mulaw", 8000, 1)]
            for number, (encoding, rate, width) in enumerate(formats, 1):
                output = {"encoding": encoding, "sample_rate": rate, "frame_ms": 20}
                await client.send(type="speak", id=encoding, text="one two three", output=output)
                done = await client.message("utterance.done", "error")
                assert done["type"] == "utterance.done", done
                frames = [(h, audio) for h, audio in client.frames if h.number == number]
                position = 0
                for header, audio in frames:
                    assert header.sample == position
                    position += len(audio) // width
                assert position == pytest.approx(done["audio_ms"] * rate / 1000, abs=2)
                assert {len(audio) for _, audio in frames[:-1]} == {rate // 50 * width}

    run(test)


def test_raw_framing():
    async def test():
        async with (
            stream_server() as server,
            websockets.connect(server.url + "?framing=raw", compression=None) as connection,
        ):
            client = Client(connection)
            await client.message("session.ready")
            await client.send(type="speak", id="a", text="tone")
            audio = b""
            while True:
                got = await client.receive()
                if isinstance(got, bytes):
                    audio += got
                elif got["type"] == "utterance.done":
                    break
        assert len(audio) == 4 * 50 * 48

    run(test)


@pytest.mark.parametrize(
    ("query", "subprotocols", "status"),
    [
        ("", ["other.v9"], 400),
        ("?framing=boxed", None, 400),
    ],
)
def test_handshakes_that_are_refused(query, subprotocols, status):
    async def test():
        async with stream_server() as server:
            with pytest.raises(websockets.InvalidStatus) as caught:
                await websockets.connect(server.url + query, subprotocols=subprotocols)
        assert caught.value.response.status_code == status
        assert b"invalid_message" in caught.value.response.body

    run(test)


def test_the_subprotocol_is_agreed_on():
    async def test():
        async with stream_server() as server:
            async with server.client(subprotocols=["other", PROTOCOL]) as client:
                assert client.connection.subprotocol == PROTOCOL
            async with server.client() as client:
                assert client.connection.subprotocol is None

    run(test)


def test_too_many_sessions_are_refused():
    async def test():
        async with stream_server(max_sessions=1) as server:
            async with server.client():
                with pytest.raises(websockets.InvalidStatus) as caught:
                    await websockets.connect(server.url)
            assert caught.value.response.status_code == 429
            assert b'"busy"' in caught.value.response.body
            await server.all_ended()
            async with server.client():
                pass

    run(test)


@pytest.mark.parametrize("seed", range(3))
def test_fifty_utterances_with_random_cancels_on_one_socket(seed):
    random_ = random.Random(seed)

    async def test():
        async with stream_server() as server, server.client() as client:
            ended: set[int] = set()
            numbers: dict[str, int] = {}
            outcomes: dict[str, str] = {}
            for turn in range(50):
                name = f"u{turn}"
                voice = random_.choice(["beep", "boop"])
                text = "some words to say " * random_.randint(0, 12)
                if random_.random() < 0.5:
                    await client.send(type="speak", id=name, text=text, voice=voice)
                else:
                    await client.send(type="utterance.start", id=name, voice=voice)
                    await client.send(type="text.delta", id=name, text=text)
                    await client.send(type="text.flush", id=name)
                    await client.send(type="utterance.end", id=name)
                numbers[name] = turn + 1
                takes = random_.choice([0, 0, 1, 3, 10, None])
                cancelled = takes is None
                while name not in outcomes:
                    if not cancelled and takes == 0:
                        await client.send(type="utterance.cancel", id=name)
                        cancelled = True
                    takes = None if takes is None else takes - 1
                    got = await client.receive()
                    if isinstance(got, bytes):
                        client.frames.clear()
                        number = int.from_bytes(got[4:8], "little")
                        assert number not in ended
                        assert number == turn + 1
                    elif got["type"] in ("utterance.done", "utterance.cancelled"):
                        if got["id"] == name:
                            outcomes[name] = got["type"]
                        # Done may cross a cancel, which is then answered as well.
                        ended.add(numbers[got["id"]])
            assert len(outcomes) == 50
            assert set(outcomes.values()) == {"utterance.done", "utterance.cancelled"}
            assert server.engine.counts.live == server.admission.live == 0

    run(test)


def test_an_error_in_utterance_seven_and_eight_works():
    async def test():
        async with stream_server() as server, server.client() as client:
            for number in range(1, 9):
                voice = "nobody" if number == 7 else None
                await client.send(type="speak", id=f"u{number}", text="words", voice=voice)
            ends = [await client.message("utterance.done", "error") for _ in range(8)]
        assert [end["type"] for end in ends] == ["utterance.done"] * 6 + ["error", "utterance.done"]
        assert (ends[6]["id"], ends[6]["code"]) == ("u7", "voice_not_found")

    run(test)


def test_cancel_before_the_first_audio_then_new_text():
    async def test():
        gate = ChunkGate()
        async with stream_server(FakeEngine(gate=gate)) as server, server.client() as client:
            await client.send(type="speak", id="old", text="old words")
            await gate.arrived(1)
            await client.send(type="utterance.cancel", id="old")
            await client.send(type="speak", id="new", text="new words")
            assert (await client.message("utterance.cancelled"))["id"] == "old"
            await gate.open()
            await client.message("utterance.done")
        assert {header.number for header, _ in client.frames} == {2}

    run(test)


def test_overload_refuses_the_rest_and_leaves_the_others_alone():
    async def test():
        gate = ChunkGate()
        async with stream_server(FakeEngine(gate=gate), max_live=2) as server:
            async with server.client() as a, server.client() as b, server.client() as c:
                await a.send(type="speak", id="a", text="words")
                await b.send(type="speak", id="b", text="words")
                await gate.arrived(2)
                await c.send(type="speak", id="c", text="words")
                refused = await c.message("error")
                await gate.open()
                for client in (a, b):
                    await client.message("utterance.done")
                await c.send(type="speak", id="c", text="words")
                await c.message("utterance.done")
            assert (refused["code"], refused["id"]) == ("busy", "c")
            assert refused["retry_after_ms"] > 0

    run(test)


def test_drain_tells_clients_and_closes_with_1001():
    async def test():
        async with stream_server() as server, server.client() as client:
            await server.sessions.drain(1)
            assert (await client.message("error"))["code"] == "shutting_down"
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await client.message()
            assert caught.value.rcvd.code == 1001
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(server.url)
            assert refused.value.response.status_code == 503

    run(test)
