"""The speech LM gives the original's numbers, alone and in ragged batches, whole text and
streamed."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from cosyvoice_stream.cosyvoice.token_feed import Row, RowKind, TokenFeed
from cosyvoice_stream.models.qwen2 import KvCache
from cosyvoice_stream.models.speech_lm import SPEECH_CODES, SpeechLm
from support import cosyvoice

pytestmark = pytest.mark.model

END_OF_PROMPT = 151646
CPU = torch.device("cpu")


def new_cache(size: str, slots: int, positions: int = 512) -> KvCache:
    return KvCache.empty(cosyvoice.lm_config(size), slots, positions, CPU, torch.float32)


def feed(model: SpeechLm, cache: KvCache, slot: int, rows: Tensor) -> Tensor:
    """Append (K, D) rows to one slot and return the last hidden row."""
    hidden = model.decoder(rows[None], torch.tensor([slot]), torch.tensor([len(rows)]), cache)
    return hidden[0, -1]


@pytest.mark.parametrize(("size", "steps"), [("mini", 32), ("official", 16)])
@pytest.mark.parametrize("version", [2, 3])
def test_prefill_and_greedy_tokens(version: int, size: str, steps: int) -> None:
    expected = cosyvoice.recorded(version, size, "llm")
    model, cache = cosyvoice.lm(version, size), new_cache(size, 1)
    parts = [model.start_row(), model.text_rows(expected["prompt_text"].long())]
    parts += [model.text_rows(expected["text"].long()), model.task_row()]
    parts += [model.speech_rows(expected["prompt_speech"].long())]
    hidden = feed(model, cache, 0, torch.cat(parts))
    torch.testing.assert_close(hidden, expected["prefill.hidden_last"], atol=1e-3, rtol=0)
    log_probs = model.log_probs(hidden)
    torch.testing.assert_close(log_probs, expected["prefill.log_probs"], atol=1e-3, rtol=0)
    tokens = []
    for step in range(steps):
        token = log_probs[:SPEECH_CODES].argmax()
        tokens.append(int(token))
        log_probs = model.log_probs(feed(model, cache, 0, model.speech_rows(token[None])))
        if step < len(expected["greedy.log_probs"]):
            torch.testing.assert_close(
                log_probs, expected["greedy.log_probs"][step], atol=1e-3, rtol=0
            )
    assert tokens == expected["greedy.tokens"].tolist()


def test_a_ragged_batch_equals_each_sequence_alone() -> None:
    model = cosyvoice.lm(3, "mini")
    rng = random.Random(7)
    lengths = [rng.randint(1, 40) for _ in range(6)]
    sequences = [
        torch.randint(0, SPEECH_CODES, (n + 8,), generator=torch.Generator().manual_seed(n))
        for n in lengths
    ]
    alone = []
    for sequence, length in zip(sequences, lengths, strict=True):
        cache = new_cache("mini", 1)
        rows = [feed(model, cache, 0, model.speech_rows(sequence[:length]))]
        rows += [
            feed(model, cache, 0, model.speech_rows(sequence[i : i + 1]))
            for i in range(length, length + 8)
        ]
        alone.append(torch.stack(rows))

    cache = new_cache("mini", 9)
    slots = torch.tensor([8, 2, 5, 0, 7, 3])
    longest = max(lengths)
    padded = torch.stack(
        [
            torch.cat((s[:n], s[n - 1 : n].expand(longest - n)))
            for s, n in zip(sequences, lengths, strict=True)
        ]
    )
    hidden = model.decoder(model.speech_rows(padded), slots, torch.tensor(lengths), cache)
    together = [hidden[torch.arange(6), torch.tensor(lengths) - 1]]
    for i in range(8):
        new = torch.stack([s[n + i] for s, n in zip(sequences, lengths, strict=True)])
        step = model.decoder(
            model.speech_rows(new)[:, None], slots, torch.ones(6, dtype=torch.int64), cache
        )
        together.append(step[:, 0])
    torch.testing.assert_close(
        torch.stack(together, dim=1), torch.stack(alone), atol=1e-4, rtol=1e-4
    )


def test_a_sequence_that_does_not_fit_is_refused() -> None:
    model, cache = cosyvoice.lm(3, "mini"), new_cache("mini", 1, positions=4)
    with pytest.raises(ValueError, match="a sequence of 5 rows does not fit into 4"):
        feed(model, cache, 0, model.speech_rows(torch.arange(5)))
    assert cache.lengths.tolist() == [0]


def row(model: SpeechLm, item: Row) -> Tensor:
    if item.kind is RowKind.START:
        return model.start_row()
    if item.kind is RowKind.TASK:
        return model.task_row()
    token = torch.tensor([item.token])
    return model.text_rows(token) if item.kind is RowKind.TEXT else model.speech_rows(token)


def stream(version: int, case: dict[str, list[int]]) -> tuple[list[int], list[int]]:
    """Run the recorded arrival script with the recorded sampler: ids drawn and rows per pass."""
    model, cache = cosyvoice.lm(version, "mini"), new_cache("mini", 1, positions=1024)
    prompt = case["prompt_text"]
    head = prompt.index(END_OF_PROMPT) + 1 if version == 3 and END_OF_PROMPT in prompt else 0
    feeder = TokenFeed(prompt, case["prompt_speech"], head=head, streaming=True)
    drawn: list[int] = []
    passes: list[int] = []
    in_last_phase = 0

    def decode() -> None:
        nonlocal in_last_phase
        while rows := feeder.take():
            passes.append(len(rows))
            hidden = feed(model, cache, 0, torch.cat([row(model, item) for item in rows]))
            token = int(model.log_probs(hidden)[:SPEECH_CODES].argmax())
            allowed = feeder.allowed
            if allowed.fill and (allowed.forced or len(drawn) in case["scripted_fills"]):
                token = model.ids.fill
            elif allowed.end:
                in_last_phase += 1
                token = model.ids.end if in_last_phase == 25 else token
            drawn.append(token)
            feeder.accept(token, is_end=token == model.ids.end, is_fill=token == model.ids.fill)

    position = 0
    for count in case["text_sizes"]:
        feeder.push_text(case["text"][position : position + count])
        position += count
        decode()
    feeder.finish_text()
    decode()
    return drawn, passes


# What the original does otherwise, and why: `text_too_short` drops the rest of the prompt's speech,
# and version 3 without prompt speech speaks before it has been given any text.
SAME_AS_ORIGINAL = [
    *((2, name) for name in ("base", "early_fill", "one_by_one", "no_prompt", "no_prompt_speech")),
    *((3, name) for name in ("base", "early_fill", "one_by_one")),
]


def streaming_case(version: int, name: str) -> dict[str, list[int]]:
    recorded = cosyvoice.recorded(version, "mini", "bistream")
    prefix = f"{name}."
    return {
        key.removeprefix(prefix): value.tolist()
        for key, value in recorded.items()
        if key.startswith(prefix)
    }


@pytest.mark.parametrize(("version", "name"), SAME_AS_ORIGINAL)
def test_streamed_text(version: int, name: str) -> None:
    case = streaming_case(version, name)
    drawn, passes = stream(version, case)
    assert drawn == case["all_tokens_without_duplicate"]
    assert passes == case["feed_lengths_without_duplicate"]


@pytest.mark.parametrize("version", [2, 3])
def test_prompt_speech_is_kept_when_the_text_is_short(version: int) -> None:
    case = streaming_case(version, "text_too_short")
    _, passes = stream(version, case)
    text = len(case["prompt_text"]) + len(case["text"])
    assert passes[0] == 1 + text + 1 + len(case["prompt_speech"])


@pytest.mark.parametrize("name", ["no_prompt", "no_prompt_speech"])
def test_version_3_waits_for_text_before_it_speaks(name: str) -> None:
    case = streaming_case(3, name)
    head = case["prompt_text"].index(END_OF_PROMPT) + 1
    _, passes = stream(3, case)
    assert passes[0] == 1 + head + 5
