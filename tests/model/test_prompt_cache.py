"""States of voices: kept by a budget, spilled and loaded without a difference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cosyvoice_stream.cosyvoice.prompt_cache import PromptCache, state_of, state_tensors, voice_key
from cosyvoice_stream.cosyvoice.voice_parts import VoiceParts
from cosyvoice_stream.models.flow import FlowState
from support import cosyvoice

pytestmark = pytest.mark.model

CPU = torch.device("cpu")
VERSIONS = pytest.mark.parametrize("version", [2, 3])


def prompt_state(version: int, seed: int, tokens: int = 50) -> FlowState:
    model = cosyvoice.flow(version, "mini")
    generator = torch.Generator().manual_seed(seed)
    state = model.begin(
        torch.randn(1, 192, generator=generator),
        torch.randn(1, 2 * tokens, 80, generator=generator),
        3,
    )
    ids = torch.randint(0, 6561, (1, tokens + 3), generator=generator)
    with torch.inference_mode():
        model([state], ids[:, :tokens], ids[:, tokens:])
    return state


def continued(version: int, state: FlowState) -> torch.Tensor:
    ids = torch.arange(28)[None]
    with torch.inference_mode():
        mel: torch.Tensor = cosyvoice.flow(version, "mini")(
            [state.fork()], ids[:, :25], ids[:, 25:]
        )
    return mel


@VERSIONS
def test_a_state_survives_its_tensors(version: int) -> None:
    state = prompt_state(version, 0).fork()
    copy = state_of({name: tensor.clone() for name, tensor in state_tensors(state).items()})
    assert copy.done_tokens == 50
    torch.testing.assert_close(continued(version, copy), continued(version, state), atol=0, rtol=0)


@VERSIONS
def test_a_state_without_a_recording_survives_too(version: int) -> None:
    model = cosyvoice.flow(version, "mini")
    state = model.begin(torch.randn(1, 192), torch.zeros(1, 0, 80), 3)
    copy = state_of(state_tensors(state))
    torch.testing.assert_close(continued(version, copy), continued(version, state), atol=0, rtol=0)


def test_the_least_recently_used_leaves_and_comes_back_from_disk(tmp_path: Path) -> None:
    computed: list[int] = []

    def compute(seed: int) -> FlowState:
        computed.append(seed)
        return prompt_state(3, seed)

    size = prompt_state(3, 0).fork().nbytes
    cache = PromptCache(round(2.5 * size), tmp_path / "states", CPU)
    first = continued(3, cache.get("0", lambda: compute(0)))
    cache.get("1", lambda: compute(1))
    cache.get("0", lambda: compute(0))
    cache.get("2", lambda: compute(2))
    assert computed == [0, 1, 2]
    assert len(cache) == 2
    assert cache.nbytes <= 2.5 * size
    assert [path.name[0] for path in (tmp_path / "states").iterdir()] == ["1"]
    cache.get("1", lambda: compute(1))
    again = continued(3, cache.get("0", lambda: compute(0)))
    assert computed == [0, 1, 2]
    torch.testing.assert_close(again, first, atol=0, rtol=0)


def test_without_a_folder_states_are_computed_again() -> None:
    computed: list[int] = []

    def compute(seed: int) -> FlowState:
        computed.append(seed)
        return prompt_state(3, seed)

    cache = PromptCache(1, None, CPU)
    for seed in (0, 1, 0):
        cache.get(str(seed), lambda seed=seed: compute(seed))  # type: ignore[misc]
    assert computed == [0, 1, 0]
    assert len(cache) == 1


def test_a_damaged_file_is_computed_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = PromptCache(prompt_state(3, 0).fork().nbytes, tmp_path, CPU)
    cache.get("0", lambda: prompt_state(3, 0))
    cache.get("1", lambda: prompt_state(3, 1))
    (stored,) = tmp_path.iterdir()
    stored.write_bytes(stored.read_bytes()[:100])
    cache.get("0", lambda: prompt_state(3, 0))
    assert "damaged" in caplog.text


def test_the_folder_is_bounded(tmp_path: Path) -> None:
    size = prompt_state(3, 0).fork().nbytes
    cache = PromptCache(size // 4, tmp_path, CPU)
    for seed in range(6):
        cache.get(str(seed), lambda seed=seed: prompt_state(3, seed))  # type: ignore[misc]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 8 * (size // 4)


def test_a_folder_that_cannot_be_written_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    cache = PromptCache(1, tmp_path / "file", CPU)
    cache.get("0", lambda: prompt_state(3, 0))
    cache.get("1", lambda: prompt_state(3, 1))
    assert "could not be stored" in caplog.text


def test_a_key_names_everything_that_a_state_depends_on() -> None:
    def parts(seed: int) -> VoiceParts:
        generator = torch.Generator().manual_seed(seed)
        return VoiceParts(
            torch.randn(192, generator=generator).numpy(),
            torch.arange(2, dtype=torch.int32).numpy(),
            torch.randn(4, 80, generator=generator).numpy(),
        )

    assert voice_key(parts(0), "bf16", 10) == voice_key(parts(0), "bf16", 10)
    keys = {voice_key(parts(0), "bf16", 10), voice_key(parts(1), "bf16", 10)}
    keys |= {voice_key(parts(0), "fp32", 10), voice_key(parts(0), "bf16", 8)}
    assert len(keys) == 4


def test_a_recording_is_cut_so_that_the_first_hop_completes_its_block() -> None:
    for count in (75, 80, 99, 100, 250):
        parts = VoiceParts(
            torch.randn(192).numpy(),
            torch.arange(count, dtype=torch.int32).numpy(),
            torch.randn(2 * count, 80).numpy(),
        )
        for hop in (1, 10, 25):
            cut = parts.cut_for_first_hop(hop)
            cut.check()
            assert (len(cut.tokens) + hop) % 25 == 0
            assert 0 <= count - len(cut.tokens) < 25
            assert cut.tokens[-1] == count - 1
    short = VoiceParts(
        torch.randn(192).numpy(),
        torch.arange(5, dtype=torch.int32).numpy(),
        torch.randn(10, 80).numpy(),
    )
    assert short.cut_for_first_hop(10) is short
