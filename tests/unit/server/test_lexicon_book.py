import asyncio
import json
import os
from pathlib import Path

import pytest

from cosyvoice_stream.errors import ConfigError, InvalidMessage, InvalidOption
from cosyvoice_stream.server import lexicon_book
from cosyvoice_stream.server.lexicon_book import LexiconBook
from cosyvoice_stream.server.lexicon_files import parse_csv, parse_json, to_csv, to_json

pytestmark = pytest.mark.unit

ENTRIES = {"重庆": "chong2 qing4", "Xinference": "ex inference", "a,b": 'say "so"', "hmm": ""}


@pytest.mark.parametrize(("write", "parse"), [(to_json, parse_json), (to_csv, parse_csv)])
def test_what_is_written_is_read(write, parse):
    assert parse(write(ENTRIES)) == ENTRIES
    assert parse(write({})) == {}


def test_csv_with_and_without_a_first_line():
    assert parse_csv("word,reading\r\nUS, you ess\r\n\r\n") == {"US": "you ess"}
    assert parse_csv("US,you ess") == {"US": "you ess"}


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_json, "{", "no JSON: line 1"),
        (parse_json, "[1]", "not one JSON object with texts"),
        (parse_json, '{"a": 1}', "not one JSON object with texts"),
        (parse_csv, "a,b\nc\n", "line 2 of the lexicon has 1 columns"),
        (parse_csv, 'a,"b', "line 1 of the lexicon is no CSV"),
    ],
)
def test_says_what_is_wrong_with_a_file(parse, text, message):
    with pytest.raises(InvalidMessage, match=message):
        parse(text)


def run(path, body):
    async def whole():
        book = LexiconBook(path)
        await book.start()
        await body(book)

    asyncio.run(whole())


def touch_later(path: Path, text: str) -> None:
    """Write a file so that it is seen to differ whatever the clock of the file system."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


@pytest.mark.parametrize("name", ["words.json", "words.csv"])
def test_a_file_is_read_again_when_it_changes(tmp_path, name):
    path = tmp_path / name
    write = to_json if name.endswith("json") else to_csv

    async def body(book):
        assert not book.current
        touch_later(path, write(ENTRIES))
        await book.look()
        assert book.current.entries == ENTRIES
        held = book.current
        await book.look()
        assert book.current is held
        touch_later(path, write({"a": "b"}))
        await book.look()
        assert book.current.entries == {"a": "b"}
        path.unlink()
        await book.look()
        assert not book.current

    run(path, body)


def test_a_mistake_in_a_changed_file_changes_nothing(tmp_path, caplog):
    path = tmp_path / "words.json"
    path.write_text(to_json(ENTRIES), encoding="utf-8")

    async def body(book):
        for wrong in ("{", '{"a": "[M][AY9]"}'):
            touch_later(path, wrong)
            await book.look()
            assert book.current.entries == ENTRIES
        assert "no JSON: line 1" in caplog.text
        assert "no ARPAbet symbol" in caplog.text
        caplog.clear()
        await book.look()
        assert caplog.text == ""  # said once
        touch_later(path, '{"a": "b"}')
        await book.look()
        assert book.current.entries == {"a": "b"}

    run(path, body)


def test_changes_are_written_to_the_file(tmp_path):
    path = tmp_path / "new" / "words.json"

    async def body(book):
        await book.replace(ENTRIES)
        await book.update({"hmm": None, "x": "y"})
        assert json.loads(path.read_text("utf-8")) == book.current.entries
        assert "hmm" not in book.current.entries
        assert book.current.entries["x"] == "y"
        held = book.current
        await book.look()
        assert book.current is held  # what it wrote itself is no news
        assert [file.name for file in path.parent.iterdir()] == ["words.json"]

    run(path, body)


def test_a_refused_change_changes_nothing(tmp_path):
    path = tmp_path / "words.csv"

    async def body(book):
        await book.replace({"a": "b"})
        written = path.read_text("utf-8")
        with pytest.raises(InvalidOption):
            await book.update({"": "x"})
        assert book.current.entries == {"a": "b"}
        assert path.read_text("utf-8") == written

    run(path, body)


def test_a_cancelled_change_is_done_or_not_done(tmp_path, monkeypatch):
    path = tmp_path / "words.json"

    async def body(book):
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()
        real = lexicon_book._write

        def slow(*args):
            loop.call_soon_threadsafe(begun.set)
            return real(*args)

        monkeypatch.setattr(lexicon_book, "_write", slow)
        task = asyncio.create_task(book.replace({"a": "b"}))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert json.loads(path.read_text("utf-8")) == {"a": "b"}
        await book.look()
        assert book.current.entries == {"a": "b"}

    run(path, body)


def test_the_server_does_not_start_with_a_broken_file(tmp_path):
    path = tmp_path / "words.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be used: the lexicon is no JSON"):
        run(path, None)
    with pytest.raises(ConfigError, match=r"neither \.json nor \.csv"):
        LexiconBook(tmp_path / "words.txt")
