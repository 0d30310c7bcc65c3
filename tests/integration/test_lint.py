"""A look at a text before it is spoken, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.served import Served, serving
from support.stream_server import PATIENCE_S

pytestmark = pytest.mark.integration


def run(folder: Path, body) -> None:
    async def whole() -> None:
        async with serving(folder) as served:
            await body(served)

    asyncio.run(asyncio.wait_for(whole(), PATIENCE_S * 3))


def test_lists_near_misses_and_uncertain_words_with_their_places(tmp_path: Path) -> None:
    text = "**行长** [laughs] 在重庆，再重做"

    async def body(served: Served) -> None:
        reply = await served.post_json("/v1/lint", {"text": text})
        assert reply.status == 200
        found = reply.json()
        (problem,) = found["problems"]
        assert text[problem["char_start"] : problem["char_end"]] == "[laughs]"
        assert problem["suggestion"] == "[laughter]"
        assert [each["text"] for each in found["ambiguous"]] == ["行长", "重"]
        first = found["ambiguous"][0]
        assert first["readings"] == ["hang2 zhang3", "xing2 chang2"]
        assert text[first["char_start"] : first["char_end"]] == "行长"

        lexicon = {"行长": "hang2 zhang3", "重做": "chong2 zuo4"}
        known = await served.post_json("/v1/lint", {"text": text, "lexicon": lexicon})
        assert known.json()["ambiguous"] == []

    run(tmp_path, body)


def test_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        assert (await served.post_json("/v1/lint", {"words": "x"})).status == 400
        assert (await served.post_json("/v1/lint", {"text": "x" * 20_001})).status == 413
        assert (await served.post_json("/v1/lint", {"text": ""})).json() == {
            "problems": [],
            "ambiguous": [],
        }

    run(tmp_path, body)
