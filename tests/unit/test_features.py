"""The table of what other services' clients find here."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from support.features import declared, feature

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    maker = runpy.run_path(str(ROOT / "docs" / "make_compatibility.py"))
    page = (ROOT / maker["FILE"]).read_text(encoding="utf-8")
    assert page == maker["page"](), "run python docs/make_compatibility.py"


def test_declarations_are_read_without_running_the_tests(tmp_path: Path) -> None:
    source = '@feature("A", "x", "ignored", note="why")\n@feature(API, "y", "refused")\n'
    source = 'API = "A"\n' + source
    (tmp_path / "test_a.py").write_text(source + "async def test_it(): raise SystemExit\n")
    first, second = declared(tmp_path)
    assert (first.api, first.name, first.verdict, first.note) == ("A", "x", "ignored", "why")
    assert (second.name, second.note) == ("y", "")
    assert first.proof.endswith("test_a.py::test_it")


def test_verdicts_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of"):
        feature("A", "x", "maybe")  # type: ignore[arg-type]
    (tmp_path / "test_a.py").write_text('@feature("A", "x", "maybe")\ndef test_it(): ...\n')
    with pytest.raises(ValueError, match="none of"):
        declared(tmp_path)
