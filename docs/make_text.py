"""Write the table of readings in docs/text.md from the corpus of the tests.

Run it after changing the corpus: ``python docs/make_text.py``. A test fails when the file does not
say what this script would write.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = "docs/text.md"
CORPUS = "tests/data/text_corpus.jsonl"
BEGIN = "<!-- readings: made by docs/make_text.py -->\n"
END = "<!-- end of readings -->\n"
PER_KIND = 2
_NAMES = {
    "zh": "Mandarin",
    "yue": "Cantonese",
    "en": "English",
    "ja": "Japanese",
}


def table() -> str:
    """The first sentences of each kind, by language."""
    lines = (ROOT / CORPUS).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    parts = []
    others = [row for row in rows if row["language"] not in _NAMES]
    for name, chosen in [
        *((_NAMES[key], [r for r in rows if r["language"] == key]) for key in _NAMES),
        ("Other languages", others),
    ]:
        parts.append(f"**{name}**\n\n| Sent | Spoken |\n|---|---|\n")
        for _, kind in groupby(chosen, key=lambda row: (row["language"], row["kind"])):
            for row in list(kind)[:PER_KIND]:
                parts.append(f"| {_cell(row['text'])} | {_cell(row['spoken'])} |\n")
        parts.append("\n")
    return "".join(parts)


def _cell(text: str) -> str:
    escaped = text.replace("|", "\\|").replace("`", "'")
    return f"`{escaped}`"


def text() -> str:
    """The whole file with the table replaced."""
    written = (ROOT / FILE).read_text(encoding="utf-8")
    head, rest = written.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table()}{END}{tail}"


if __name__ == "__main__":
    (ROOT / FILE).write_text(text(), encoding="utf-8")
