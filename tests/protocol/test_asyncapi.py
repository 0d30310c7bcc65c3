"""The AsyncAPI file says what the message types say."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.protocol

ROOT = Path(__file__).parents[2]
MAKER = runpy.run_path(str(ROOT / "docs" / "make_asyncapi.py"))


def test_the_file_is_up_to_date():
    written = (ROOT / MAKER["FILE"]).read_text(encoding="utf-8")
    assert written == MAKER["text"](), "run python docs/make_asyncapi.py"


def test_every_reference_has_its_target():
    document = MAKER["document"]()

    def references(value):
        if isinstance(value, dict):
            for key, item in value.items():
                if key == "$ref":
                    yield item
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    found = set(references(document))
    assert len(found) > 50
    for reference in found:
        target = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


def test_every_message_of_the_page_is_described():
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    for name in MAKER["document"]()["channels"]["stream"]["messages"]:
        if name not in ("audio", "microphone"):
            assert f"`{name}`" in page


def test_the_file_is_yaml():
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load(MAKER["text"]())
    assert read["components"]["schemas"]["Speak"]["additionalProperties"] is False
    assert read["operations"]["listen"]["action"] == "receive"
