"""The lexicon of a server over HTTP, and what it does to speech."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from support.served import Served, serving
from support.stream_server import PATIENCE_S

pytestmark = pytest.mark.integration


def run(folder: Path, body, **settings) -> None:
    async def whole() -> None:
        async with serving(folder, **settings) as served:
            await body(served)

    asyncio.run(asyncio.wait_for(whole(), PATIENCE_S * 3))


async def change(served: Served, method: str, entries: dict[str, str | None]):
    body = json.dumps({"entries": entries}).encode()
    return await served.request(method, "/v1/lexicon", body, content_type="application/json")


async def spoken_ms(served: Served, text: str, **options) -> int:
    """Length of the speech: the engine of tones takes 50 ms for each letter."""
    reply = await served.post_json("/v1/speak", {"text": text, **options})
    assert reply.status == 200
    return len(reply.body) // 48


def test_put_patch_get_delete(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        assert (await served.get("/v1/lexicon")).json() == {"entries": {}}
        put = await change(served, "PUT", {"重庆": "chong2 qing4", "US": "you ess"})
        assert put.status == 200
        patched = await change(served, "PATCH", {"US": None, "nginx": "engine ex"})
        assert patched.json() == {"entries": {"重庆": "chong2 qing4", "nginx": "engine ex"}}
        csv = await served.get("/v1/lexicon", accept="text/csv")
        assert csv.body.decode() == "word,reading\n重庆,chong2 qing4\nnginx,engine ex\n"
        one = await served.request("DELETE", "/v1/lexicon/" + quote("重庆"))
        assert one.status == 204
        assert (await served.get("/v1/lexicon")).json() == {"entries": {"nginx": "engine ex"}}
        assert (await served.request("DELETE", "/v1/lexicon")).status == 204
        assert (await served.get("/v1/lexicon")).json() == {"entries": {}}

    run(tmp_path, body)


def test_csv_in(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        put = await served.request(
            "PUT", "/v1/lexicon", b"word,reading\nUS,you ess\n", content_type="text/csv"
        )
        assert put.json() == {"entries": {"US": "you ess"}}
        wrong = await served.request("PUT", "/v1/lexicon", b"a,b,c\n", content_type="text/csv")
        assert (wrong.status, wrong.error["code"]) == (400, "invalid_message")
        assert "3 columns" in wrong.error["message"]

    run(tmp_path, body)


def test_mistakes_are_named_and_change_nothing(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        await change(served, "PUT", {"a": "b"})
        wrong = await change(served, "PUT", {"x": "y", "好": "[hao3]"})
        assert (wrong.status, wrong.error["code"]) == (400, "invalid_option")
        assert "reading 2" in wrong.error["message"]
        assert "did you mean [h][ǎo]?" in wrong.error["message"]
        assert (await change(served, "PUT", {"a": None})).status == 400
        unknown = await served.request("PUT", "/v1/lexicon", b'{"words": {}}')
        assert unknown.status == 400
        assert (await served.get("/v1/lexicon")).json() == {"entries": {"a": "b"}}

    run(tmp_path, body)


def test_it_counts_for_what_begins_afterwards(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        plain_ms = await spoken_ms(served, "US")
        await change(served, "PUT", {"US": "you ess"})
        assert await spoken_ms(served, "US") == plain_ms + 5 * 50
        assert await spoken_ms(served, "US", lexicon={"US": "us all"}) == plain_ms + 4 * 50

    run(tmp_path, body)


def test_the_file_of_the_settings_is_read_watched_and_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("cosyvoice_stream.server.lexicon_book.LOOK_EVERY_S", 0.01)
    path = tmp_path / "words.json"
    path.write_text('{"US": "you ess"}', encoding="utf-8")

    async def body(served: Served) -> None:
        assert (await served.get("/v1/lexicon")).json() == {"entries": {"US": "you ess"}}
        path.write_text('{"US": "the states"}', encoding="utf-8")
        while (await served.get("/v1/lexicon")).json() != {"entries": {"US": "the states"}}:
            pass  # the server looks every 10 ms
        await change(served, "PATCH", {"EU": "ee you"})
        assert json.loads(path.read_text("utf-8")) == {"US": "the states", "EU": "ee you"}

    run(tmp_path / "voices", body, lexicon_file=path)


def test_a_key_is_needed_where_keys_are_set(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        assert (await served.get("/v1/lexicon")).status == 401
        assert (await served.get("/v1/lexicon", x_api_key="secret")).status == 200
        refused = await served.request(
            "PUT",
            "/v1/lexicon",
            b'{"entries": {}}',
            x_api_key="secret",
            origin="https://elsewhere.example",
        )
        assert refused.status == 403

    run(tmp_path, body, api_keys="secret")
