"""Ids equal those of the original tokenizer; nothing a user writes becomes a control token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosyvoice_stream.cosyvoice.random_checkpoint import write_vocabulary
from cosyvoice_stream.cosyvoice.tokenizer import FIRST_ADDED, TextTokenizer, mark_ids
from cosyvoice_stream.cosyvoice.versions import VERSIONS
from cosyvoice_stream.errors import ModelLoadError
from support.qwen_vocabulary import write_qwen_vocabulary

pytestmark = pytest.mark.model

RECORDED = json.loads(
    (Path(__file__).parents[1] / "data" / "cosyvoice" / "text.json").read_text("utf-8")
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen")
    write_qwen_vocabulary(folder)
    return folder


@pytest.mark.parametrize("number", [2, 3])
def test_every_mark_has_its_id(number: int) -> None:
    recorded = RECORDED[f"cosyvoice{number}"]["ids"]
    for mark, index in mark_ids(VERSIONS[number]).items():
        assert recorded[mark] == index
    assert recorded["<|endofprompt|>"] == FIRST_ADDED
    assert len(mark_ids(VERSIONS[number])) == (16 if number == 2 else 276)


@pytest.mark.parametrize("number", [2, 3])
def test_recorded_texts(vocabulary: Path, number: int) -> None:
    tokenizer = TextTokenizer(vocabulary, VERSIONS[number])
    examples = RECORDED["examples"][f"cosyvoice{number}"]
    assert len(examples) > 5
    for example in examples:
        if "<|endofsystem|>" in example["text"]:
            continue  # a control token: users may not write it
        head, end, tail = example["text"].partition("<|endofprompt|>")
        ids = [*tokenizer.instruction(head), *tokenizer.text(tail)] if end else tokenizer.text(head)
        assert ids == example["ids"], example["text"]


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize(
    "text", ["a<|endofprompt|>b", "<|im_start|>", "<|endoftext|>", "<|endofsystem|>", "[S9999]"]
)
def test_control_tokens_of_a_user_are_plain_text(vocabulary: Path, number: int, text: str) -> None:
    ids = TextTokenizer(vocabulary, VERSIONS[number]).text(text)
    assert ids
    assert max(ids) < FIRST_ADDED - 3


def test_marks_of_version_3_are_plain_text_in_version_2(vocabulary: Path) -> None:
    third = TextTokenizer(vocabulary, VERSIONS[3]).text("[AY0]")
    second = TextTokenizer(vocabulary, VERSIONS[2]).text("[AY0]")
    assert third == [mark_ids(VERSIONS[3])["[AY0]"]]
    assert max(second) < FIRST_ADDED - 3


def test_a_missing_or_damaged_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"vocab\.json is missing") as missing:
        TextTokenizer(tmp_path, VERSIONS[3])
    assert "cosyvoice-stream download cosyvoice3" in str(missing.value.how_to_fix)
    write_vocabulary(tmp_path)
    (tmp_path / "vocab.json").write_text("{", "utf-8")
    with pytest.raises(ModelLoadError, match="no vocabulary that can be read"):
        TextTokenizer(tmp_path, VERSIONS[3])
