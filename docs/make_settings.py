"""Write docs/settings.md and .env.example from the fields of `Settings`.

Run it after changing a setting: ``python docs/make_settings.py``. A test fails when the two files
do not say what this script would write.
"""

from __future__ import annotations

import textwrap
import types
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.phone_settings import PhoneSettings
from cosyvoice_stream.server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
FILES = {"docs/settings.md": "settings_page", ".env.example": "env_example"}

_INTRODUCTION = """\
# Settings

*Made from `server/settings.py` by `docs/make_settings.py`.*

A setting is given, in falling order of rank, by an option of `cosyvoice-stream serve`, by an
environment variable, or by a line in a file `.env` in the working directory
([`.env.example`](../.env.example) is a template). Lists are separated by commas. An empty value
counts as absent. A variable that begins with `COSYVOICE_STREAM_` and is not in this table stops
the start with a message that names the closest one; variables of other programs are ignored, also
those that Kubernetes makes for a Service called `cosyvoice-stream`.

| variable | default | values | meaning |
|---|---|---|---|
"""


def _names() -> list[str]:
    """All settings, those of telephone lines last."""
    return sorted(Settings.model_fields, key=lambda name: name in PhoneSettings.model_fields)


def _default(name: str) -> str:
    field = Settings.model_fields[name]
    if name == "voices_dir":
        return ""
    value: Any = field.default
    if value is None or value == ():
        return ""
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(name: str) -> str:
    field = Settings.model_fields[name]
    kinds = get_args(field.annotation) if get_origin(field.annotation) is types.UnionType else ()
    kind = kinds[0] if kinds else field.annotation
    if get_origin(kind) is Literal:
        return ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "list"
    limits = {type(entry).__name__: entry for entry in field.metadata}
    low = next((limits[key] for key in ("Ge", "Gt") if key in limits), None)
    high = limits.get("Le")
    noun = {int: "whole number", float: "number", bool: "true, false", Path: "folder"}.get(
        kind, "text"
    )
    if low is not None and high is not None:
        return f"{noun}, {low.ge}–{high.le}"
    if low is not None:
        bound = f"≥ {low.ge:g}" if hasattr(low, "ge") else f"> {low.gt:g}"
        return f"{noun} {bound}"
    return noun


def _meaning(name: str) -> str:
    return " ".join((Settings.model_fields[name].description or "").split())


def settings_page() -> str:
    """Return the text of docs/settings.md."""
    rows = []
    for name in _names():
        default = f"`{_default(name)}`" if _default(name) else ""
        rows.append(
            f"| `{PREFIX}{name.upper()}` | {default} | {_values(name)} | {_meaning(name)} |"
        )
    return _INTRODUCTION + "\n".join(rows) + "\n"


def env_example() -> str:
    """Return the text of .env.example."""
    blocks = [
        "# Settings of the server. Copy this file to `.env` in the folder where the server is\n"
        "# started and take the `#` off the lines that you change. docs/settings.md has the ranges."
    ]
    for name in _names():
        comment = textwrap.fill(
            _meaning(name).replace("`", ""), 98, initial_indent="# ", subsequent_indent="# "
        )
        blocks.append(f"{comment}\n#{PREFIX}{name.upper()}={_default(name)}")
    return "\n\n".join(blocks) + "\n"


def main() -> None:
    """Write both files."""
    for path, maker in FILES.items():
        (ROOT / path).write_text(globals()[maker](), encoding="utf-8")


if __name__ == "__main__":
    main()
