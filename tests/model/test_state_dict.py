"""Names and shapes of every tensor are those of the official checkpoints."""

from __future__ import annotations

import json

import pytest
import torch

from support import cosyvoice

pytestmark = pytest.mark.model

BUILD = {
    "llm": cosyvoice.bare_lm,
    "flow": cosyvoice.bare_flow,
    "hift": cosyvoice.bare_hift,
}


@pytest.mark.parametrize("part", BUILD)
@pytest.mark.parametrize("size", ["mini", "official"])
@pytest.mark.parametrize("version", [2, 3])
def test_names_and_shapes(version: int, size: str, part: str) -> None:
    listing = cosyvoice.DATA / f"v{version}" / f"{size}.state_dict.json"
    expected = json.loads(listing.read_text("utf-8"))[part]
    with torch.device("meta"):
        module = BUILD[part](version, size)
    assert {name: list(value.shape) for name, value in module.state_dict().items()} == expected
