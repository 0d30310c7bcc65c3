"""Lexicons as JSON and CSV.

JSON is one object, word → reading. CSV has two columns, word and reading, with or without a line
``word,reading`` in front.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cosyvoice_stream.errors import ConfigError, InvalidMessage

_HEADER: Final = ("word", "reading")


def parse_json(text: str) -> dict[str, str]:
    """Read a lexicon.

    Raises:
        InvalidMessage: It is no object of strings.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f": line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidMessage(f"the lexicon is no JSON{place}") from None
    if not isinstance(entries, dict) or not all(isinstance(v, str) for v in entries.values()):
        raise InvalidMessage(
            "the lexicon is not one JSON object with texts",
            how_to_fix='write it as {"word": "reading"}',
        )
    return entries


def parse_csv(text: str) -> dict[str, str]:
    """Read a lexicon; of a word that comes twice the later reading counts.

    Raises:
        InvalidMessage: A line does not have two columns.
    """
    entries: dict[str, str] = {}
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in rows:
            if not row or (rows.line_num == 1 and tuple(map(str.strip, row)) == _HEADER):
                continue
            if len(row) != len(_HEADER):
                raise InvalidMessage(
                    f"line {rows.line_num} of the lexicon has {len(row)} columns",
                    how_to_fix="write word,reading; quote what holds a comma",
                )
            entries[row[0].strip()] = row[1].strip()
    except csv.Error:
        raise InvalidMessage(f"line {rows.line_num} of the lexicon is no CSV") from None
    return entries


def to_json(entries: Mapping[str, str]) -> str:
    """Write a lexicon for people: one word per line."""
    return json.dumps(dict(entries), ensure_ascii=False, indent=2) + "\n"


def to_csv(entries: Mapping[str, str]) -> str:
    """Write a lexicon with the line ``word,reading`` in front."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADER)
    writer.writerows(entries.items())
    return out.getvalue()


Parse = Callable[[str], dict[str, str]]
Write = Callable[[Mapping[str, str]], str]
_FORMS: Final[dict[str, tuple[Parse, Write]]] = {
    ".json": (parse_json, to_json),
    ".csv": (parse_csv, to_csv),
}


def form_of(path: Path) -> tuple[Parse, Write]:
    """How a file is read and written.

    Raises:
        ConfigError: Its name ends in neither ``.json`` nor ``.csv``.
    """
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise ConfigError(
            f"the lexicon {path} is neither .json nor .csv",
            how_to_fix="rename it after its form",
        )
    return form
