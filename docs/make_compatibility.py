"""Write docs/compatibility.md from what the tests declare with `support.features.feature`.

Run it after changing a declaration: ``python docs/make_compatibility.py``. A test fails when the
file does not say what this script would write.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = "docs/compatibility.md"

sys.path.insert(0, str(ROOT / "tests"))
from support.features import Feature, declared  # noqa: E402 - tests/ is not a package

_INTRODUCTION = """\
# Compatibility

*Made from the tests by `docs/make_compatibility.py`.*

What of other services' interfaces this server speaks, each row proven by the test in the last
column, wherever there is one with that service's own client. *supported*: works as there. *partly*:
works as far as the note says. *ignored*: accepted without an effect. *refused*: answered with an
error in the interface's own form.
"""


def page() -> str:
    """Return the text of docs/compatibility.md."""
    features = sorted(declared(ROOT / "tests"), key=lambda found: found.api)
    sections = [_section(api, list(rows)) for api, rows in groupby(features, lambda f: f.api)]
    return "\n".join([_INTRODUCTION, *sections])


def _section(api: str, rows: list[Feature]) -> str:
    lines = [f"## {api}", "", "| feature | verdict | note | test |", "|---|---|---|---|"]
    for row in rows:
        path, name = row.proof.split("::")
        link = f"[{name.removeprefix('test_').replace('_', ' ')}](../{path})"
        lines.append(f"| {row.name} | {row.verdict} | {row.note} | {link} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (ROOT / FILE).write_text(page(), encoding="utf-8")
