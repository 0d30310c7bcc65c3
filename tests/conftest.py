"""Rules that hold for every test."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

KINDS = {"unit", "protocol", "integration", "browser", "model", "quality", "gpu"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test whose module does not say what kind of test it is."""
    for item in items:
        if not KINDS & {marker.name for marker in item.iter_markers()}:
            raise pytest.UsageError(f"{item.nodeid} has none of the markers {sorted(KINDS)}")


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a thread of ours running; libraries may keep theirs."""
    before = set(threading.enumerate())
    yield
    leaked = [
        thread.name
        for thread in set(threading.enumerate()) - before
        if thread.name.startswith("cosyvoice-") and thread.is_alive()
    ]
    assert not leaked, f"threads left running: {leaked}"
