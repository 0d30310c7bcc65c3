"""What a test proves about an API of somebody else, for docs/compatibility.md.

A test declares it with a decorator whose arguments are literals or constants of its module, because
docs/make_compatibility.py reads them from the source without importing the test::

    @feature("OpenAI speech", "`response_format`: mp3, opus", "supported")
    def test_formats(): ...
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args

Verdict = Literal["supported", "partly", "ignored", "refused"]
VERDICTS: Final = get_args(Verdict)

_T = TypeVar("_T")


@dataclass(frozen=True)
class Feature:
    """One row of the table."""

    api: str
    name: str
    verdict: str
    note: str
    proof: str
    """Where the test is: file and function."""


def feature(api: str, name: str, verdict: Verdict, note: str = "") -> Callable[[_T], _T]:
    """Declare that a test proves how a feature of an API is treated.

    Args:
        api: Name of the API; it becomes a section of the table.
        name: The feature, in Markdown.
        verdict: ``supported``, ``partly`` (the note says what is missing), ``ignored`` (accepted
            without an effect) or ``refused`` (with an error in the API's own form).
        note: What a user has to know about it, in Markdown.
    """
    if verdict not in VERDICTS:
        raise ValueError(f"the verdict {verdict!r} is none of {VERDICTS}")
    return lambda test: test


def declared(folder: Path) -> list[Feature]:
    """Read all declarations below a folder, in the order of files and lines.

    Raises:
        ValueError: A declaration is made of something else, or its verdict is none.
    """
    return [found for path in sorted(folder.rglob("test_*.py")) for found in _in_file(path, folder)]


def _in_file(path: Path, folder: Path) -> Iterator[Feature]:
    text = path.read_text(encoding="utf-8")
    if "@feature(" not in text:
        return
    module = ast.parse(text)
    constants = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if _is_feature(decorator):
                    proof = f"{path.relative_to(folder.parent)}::{node.name}"
                    yield _read(decorator, constants, proof)


def _is_feature(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "feature"
    )


def _read(call: ast.expr, constants: dict[str, object], proof: str) -> Feature:
    assert isinstance(call, ast.Call)

    def value(node: ast.expr) -> str:
        known = isinstance(node, ast.Name) and node.id in constants
        return str(constants[node.id] if known else ast.literal_eval(node))

    values = dict(zip(("api", "name", "verdict", "note"), map(value, call.args), strict=False))
    values |= {str(word.arg): value(word.value) for word in call.keywords}
    found = Feature(**{"note": "", **values}, proof=proof)
    if found.verdict not in VERDICTS:
        raise ValueError(f"{proof}: the verdict {found.verdict!r} is none of {VERDICTS}")
    return found
