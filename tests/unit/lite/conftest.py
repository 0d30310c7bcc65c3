"""The model is loaded once for all tests of the embedded engine."""

from __future__ import annotations

import pytest

from cosyvoice_stream.lite.acoustic import AcousticModel


@pytest.fixture(scope="session")
def model() -> AcousticModel:
    return AcousticModel.load()
