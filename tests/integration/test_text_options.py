"""What a client can say about its text, over real sockets."""

import asyncio

import pytest

from support.stream_server import PATIENCE_S, stream_server

CHAR_MS = 50
"""Of the fake engine."""

pytestmark = pytest.mark.integration


def run(test):
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S * 3))


async def words_of(client, utterance_id):
    """Words, warnings and length in characters of one utterance."""
    words, warnings = [], []
    while (message := await client.message())["type"] != "utterance.done":
        assert message["type"] != "error", message
        if message["type"] == "marks":
            words += message["words"]
        elif message["type"] == "utterance.warning":
            assert message["id"] == utterance_id
            warnings.append(message)
    return words, warnings, round(message["audio_ms"] / CHAR_MS)


def test_a_near_miss_is_spoken_and_reported_with_its_place():
    text = "So [laughs] *really* yes"

    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="speak", id="a", text=text, marks=["word"])
            words, warnings, _ = await words_of(client, "a")
        assert [word["text"] for word in words] == ["So", "laughs", "really", "yes"]
        (warning,) = warnings
        assert text[warning["char_start"] : warning["char_end"]] == "[laughs]"
        assert warning["suggestion"] == "[laughter]"
        assert warning["message"] == "this is no sound"

    run(test)


def test_a_lexicon_of_the_session_and_one_of_the_utterance():
    text = "Ask Xinference or nginx."

    async def test():
        async with stream_server() as server, server.client() as client:
            lexicon = {"Xinference": "ex inference", "nginx": "engine"}
            await client.send(type="session.update", lexicon=lexicon, marks=["word"])
            updated = await client.message("session.updated")
            assert updated["settings"]["lexicon"] == lexicon

            await client.send(type="utterance.start", id="a")
            for fragment in ("Ask Xinf", "eren", "ce or ngi", "nx", "."):
                await client.send(type="text.delta", id="a", text=fragment)
            await client.send(type="utterance.end", id="a")
            words, _, length = await words_of(client, "a")
            assert length == len("Ask ex inference or engine")
            assert [word["text"] for word in words] == ["Ask", "Xinference", "or", "nginx"]
            spans = [text[word["char_start"] : word["char_end"]] for word in words]
            assert spans == ["Ask", "Xinference", "or", "nginx"]

            changes = {"nginx": None, "or": "and"}
            await client.send(type="speak", id="b", text=text, lexicon=changes)
            words, _, length = await words_of(client, "b")
            assert length == len("Ask ex inference and nginx")
            assert [word["text"] for word in words] == ["Ask", "Xinference", "or", "nginx"]

            await client.send(type="session.update", lexicon=None)
            updated = await client.message("session.updated")
            assert updated["settings"]["lexicon"] == {}

    run(test)


def test_a_lexicon_with_a_mistake_is_refused_and_the_session_goes_on():
    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="speak", id="a", text="x", lexicon={"a": "[M][AY9]"})
            error = await client.message("error")
            assert (error["id"], error["code"]) == ("a", "invalid_option")
            assert "no ARPAbet symbol at character 3" in error["message"]
            many = {f"word{n}": "x" for n in range(1001)}
            await client.send(type="session.update", lexicon=many)
            error = await client.message("error")
            assert error["code"] == "limit_exceeded"
            assert "PUT /v1/lexicon" in error["how_to_fix"]
            await client.send(type="speak", id="b", text="fine")
            await client.message("utterance.done")

    run(test)


SSML = (
    "<speak>Hello <mark name='here'/>big<break time='700ms'/>"
    "<prosody rate='200%'>fast</prosody> <foo>world</foo></speak>"
)


@pytest.mark.parametrize("fragment_chars", [0, 1, 7])
def test_ssml_on_the_socket(fragment_chars):
    async def test():
        async with stream_server() as server, server.client() as client:
            if fragment_chars:
                await client.send(type="utterance.start", id="a", ssml=True, marks=["word"])
                for at in range(0, len(SSML), fragment_chars):
                    piece = SSML[at : at + fragment_chars]
                    await client.send(type="text.delta", id="a", text=piece)
                await client.send(type="utterance.end", id="a")
            else:
                await client.send(type="speak", id="a", ssml=True, marks=["word"], text=SSML)
            words, warnings, bookmarks = [], [], []
            while (message := await client.message())["type"] != "utterance.done":
                assert message["type"] != "error", message
                if message["type"] == "marks":
                    words += message["words"]
                    bookmarks += message.get("bookmarks", [])
                elif message["type"] == "utterance.warning":
                    warnings.append(message)
        spans = [SSML[word["char_start"] : word["char_end"]] for word in words]
        assert spans == ["Hello", "big", "fast", "world"]
        by_text = {word["text"]: word for word in words}
        assert bookmarks == [{"name": "here", "at_ms": by_text["big"]["start_ms"]}]
        gap_ms = by_text["fast"]["start_ms"] - by_text["big"]["end_ms"]
        assert gap_ms == pytest.approx(700, abs=1)
        length_ms = by_text["fast"]["end_ms"] - by_text["fast"]["start_ms"]
        assert length_ms == pytest.approx(100, abs=1)
        (warning,) = warnings
        assert SSML.startswith("<foo>", warning["char_start"])

    run(test)


def test_malformed_ssml_is_an_error_with_line_and_column():
    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="speak", id="a", ssml=True, text="<speak>a\n<b></speak>")
            error = await client.message("error")
            assert (error["id"], error["code"]) == ("a", "invalid_markup")
            assert error["message"].startswith("line 2, column ")
            await client.send(type="utterance.start", id="b", ssml=True)
            await client.send(type="text.delta", id="b", text="<speak>one two <!DOCTYPE x>")
            error = await client.message("error")
            assert (error["id"], error["code"]) == ("b", "invalid_markup")
            assert client.audio(1)  # what stood before the mistake
            await client.send(type="speak", id="c", text="fine")
            await client.message("utterance.done")

    run(test)


def test_voices_within_ssml():
    text = "<speak>a<voice name='boop'>b</voice><voice name='nobody'>c</voice></speak>"

    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="speak", id="a", ssml=True, text=text, marks=["word"])
            words, warnings, _ = await words_of(client, "a")
            assert [word["text"] for word in words] == ["a", "b", "c"]
            assert [warning["message"] for warning in warnings] == [
                "a voice of the text is not known"
            ]

    run(test)


def test_a_style_is_never_spoken_and_what_the_engine_lacks_is_said():
    style = {"dialect": "sichuan", "emotion": "happy", "pace": "fast", "text": "like a pirate"}

    async def test():
        async with stream_server() as server, server.client() as client:
            await client.send(type="session.update", style=style, marks=["word"])
            updated = await client.message("session.updated")
            assert updated["settings"]["style"] == style | {"loudness": None}
            ignored = [warning.partition(" ")[0] for warning in updated["warnings"]]
            assert ignored == ["style.dialect", "style.emotion", "style.text"]

            await client.send(type="speak", id="a", text="Hello.")
            started = await client.message("utterance.started")
            assert started["warnings"] == updated["warnings"]
            words, _, _ = await words_of(client, "a")
            assert [word["text"] for word in words] == ["Hello"]
            assert words[0]["end_ms"] == pytest.approx(5 * 50 / 1.25, abs=1)

            await client.send(type="speak", id="b", text="Hello.", style={"pace": None})
            words, _, _ = await words_of(client, "b")
            assert words[0]["end_ms"] == pytest.approx(5 * 50, abs=1)

            await client.send(type="speak", id="c", text="x", style={"dialect": "klingon"})
            error = await client.message("error")
            assert (error["id"], error["code"]) == ("c", "invalid_option")
            assert "cantonese" in error["message"]

    run(test)
