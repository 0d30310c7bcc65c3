"""The shape of the house: which folder may import which, and what ends up in the package."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "cosyvoice_stream": ROOT / "cosyvoice_stream",
    "cosyvoice_stream.streaming": ROOT / "streaming",
    "cosyvoice_stream.server": ROOT / "server",
    "cosyvoice_stream.telephony": ROOT / "telephony",
    "cosyvoice_stream.web_demo": ROOT / "web_demo",
}
LEAVES = {"errors", "types", "version"}


def layer(module: str) -> int:
    """Rank of a module in ``errors, types ← streaming ← engines ← server ← telephony``."""
    parts = module.split(".")
    if len(parts) == 1:
        return 0  # the umbrella is lazy
    order = {"streaming": 1, "server": 3, "telephony": 4, "web_demo": 0}
    return 0 if parts[1] in LEAVES else order.get(parts[1], 2)


def modules() -> list[tuple[str, Path]]:
    found = []
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            name = ".".join([package, *path.relative_to(folder).with_suffix("").parts])
            found.append((name.removesuffix(".__init__"), path))
    return found


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_imports_run_one_way(module: str, path: Path) -> None:
    if module == "cosyvoice_stream":
        return  # re-exports lazily, for type checkers it names every layer
    mine = layer(module)
    wrong = {
        name
        for name in imported(path)
        if name.startswith("cosyvoice_stream.") and layer(name) > mine
    }
    assert not wrong


@pytest.mark.parametrize(
    ("module", "path"),
    [pair for pair in modules() if pair[0].startswith("cosyvoice_stream.streaming")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_streaming_is_pure(module: str, path: Path) -> None:
    impure = {"asyncio", "socket", "time", "threading", "torch", "starlette", "websockets"}
    assert not {name.split(".")[0] for name in imported(path)} & impure


def test_every_package_on_disk_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    on_disk = {name for name, path in modules() if path.name == "__init__.py"}
    assert listed == on_disk


@pytest.mark.parametrize(
    "module", ["cosyvoice_stream", "cosyvoice_stream.streaming", "cosyvoice_stream.server.wire"]
)
def test_importing_loads_no_model_and_no_server(module: str) -> None:
    heavy = ("torch", "onnxruntime", "hibari", "starlette", "uvicorn", "av")
    code = f"import {module}, sys; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["server", "streaming", "telephony", "web_demo"])
def test_folders_are_not_packages_of_their_own(name: str) -> None:
    assert importlib.util.find_spec(name) is None


def test_every_public_name_resolves() -> None:
    import cosyvoice_stream

    for name in cosyvoice_stream.__all__:
        assert getattr(cosyvoice_stream, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        _ = cosyvoice_stream.absent
