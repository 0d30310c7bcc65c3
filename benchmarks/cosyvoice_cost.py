"""What CosyVoice costs on a CPU: per speech token and per block, at growing positions.

    python benchmarks/cosyvoice_cost.py [--versions 2,3] [--threads 2] [--json out.json]

Networks of official size with random weights, float32. The reference implementation runs flow and
vocoder over the whole prefix for each block, so its cost grows with the position; ours keeps state
and should not. The prompt has 75 tokens (3 s), a block 25 tokens (1 s of audio).
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from cosyvoice_stream.models.causal_vocoder import VocoderState, vocode
from cosyvoice_stream.models.centred_vocoder import CentredState, vocode_centred
from cosyvoice_stream.models.conformer import ConformerConfig
from cosyvoice_stream.models.dit import DitConfig
from cosyvoice_stream.models.flow import BLOCK_FRAMES, BLOCK_TOKENS, Flow, FlowV2, FlowV3
from cosyvoice_stream.models.hift import Hift, HiftConfig
from cosyvoice_stream.models.qwen2 import KvCache, Qwen2Config
from cosyvoice_stream.models.speech_lm import SPEECH_CODES, V2_IDS, V3_IDS, SpeechLm
from cosyvoice_stream.models.unet import UnetConfig

QWEN2_05B = Qwen2Config(151936, 896, 4864, 24, 14, 2)
PROMPT_TOKENS = 75
OFFSETS = (0, 25, 100, 200, 400)
CONTEXTS = (200, 600)
BATCHES = (1, 2, 4, 8)
STEPS = 12
RIGHT_CONTEXT_FRAMES = 8


def lm_token_ms(model: SpeechLm, context: int, batch: int) -> float:
    """Median milliseconds of one decode step of `batch` sequences after `context` rows."""
    cache = KvCache.empty(QWEN2_05B, batch, context + STEPS + 1, torch.device("cpu"), torch.float32)
    slots = torch.arange(batch)
    rows = torch.randn(batch, context, QWEN2_05B.hidden_size) * 0.02
    model.decoder(rows, slots, torch.full((batch,), context), cache)
    one = torch.ones(batch, dtype=torch.int64)
    times = []
    for step in range(STEPS):
        token = torch.full((batch,), step)
        began = time.perf_counter()
        hidden = model.decoder(model.speech_rows(token)[:, None], slots, one, cache)
        model.log_probs(hidden[:, -1])
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def transformers_token_ms(context: int) -> float | None:
    """The same for `transformers`' Qwen2 with its default cache, where it is installed."""
    try:
        from transformers import Qwen2Config as Config
        from transformers import Qwen2Model
    except ImportError:
        return None
    model = Qwen2Model(
        Config(
            vocab_size=QWEN2_05B.vocab_size,
            hidden_size=QWEN2_05B.hidden_size,
            intermediate_size=QWEN2_05B.intermediate_size,
            num_hidden_layers=QWEN2_05B.num_hidden_layers,
            num_attention_heads=QWEN2_05B.num_attention_heads,
            num_key_value_heads=QWEN2_05B.num_key_value_heads,
        )
    ).eval()
    rows = torch.randn(1, context, QWEN2_05B.hidden_size) * 0.02
    past = model(inputs_embeds=rows, use_cache=True).past_key_values
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        past = model(
            inputs_embeds=rows[:, :1], past_key_values=past, use_cache=True
        ).past_key_values
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def block_costs(
    flow: Flow, vocoder: Callable[[torch.Tensor], object], left_s: int | None
) -> dict[int, tuple]:
    """Flow and vocoder milliseconds of the block at each of `OFFSETS`, and the state's bytes."""
    count = PROMPT_TOKENS + max(OFFSETS) + BLOCK_TOKENS
    tokens = torch.randint(0, SPEECH_CODES, (1, count + 3))
    state = flow.begin(torch.randn(1, 192), torch.randn(1, 2 * PROMPT_TOKENS, 80))
    flow([state], tokens[:, :PROMPT_TOKENS], tokens[:, PROMPT_TOKENS : PROMPT_TOKENS + 3])
    state = state.fork()
    state.left_frames = None if left_s is None else BLOCK_FRAMES * left_s
    costs = {}
    for start in range(PROMPT_TOKENS, count, BLOCK_TOKENS):
        end = start + BLOCK_TOKENS
        began = time.perf_counter()
        mel = flow([state], tokens[:, start:end], tokens[:, end : end + 3])
        middle = time.perf_counter()
        vocoder(mel)
        ended = time.perf_counter()
        if start - PROMPT_TOKENS in OFFSETS:
            costs[start - PROMPT_TOKENS] = (
                round((middle - began) * 1e3),
                round((ended - middle) * 1e3),
                round(state.nbytes / 2**20),
            )
    return costs


def networks(version: int) -> tuple[Flow, Callable[[torch.Tensor], object]]:
    """Flow and a streaming vocoder of official size."""
    hift = Hift(HiftConfig(512, 512, causal=version == 3)).eval()
    hift.fold()
    if version == 3:
        flow: Flow = FlowV3(1024, DitConfig(1024, 22, 16))
        causal = VocoderState(None)
        return flow.eval(), lambda mel: vocode(hift, causal, mel, final=False)
    flow = FlowV2(ConformerConfig(512, 8, 2048, 6), UnetConfig(256, 4, 12, 8))
    centred = CentredState(None, RIGHT_CONTEXT_FRAMES)
    return flow.eval(), lambda mel: vocode_centred(hift, centred, mel, final=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--versions", default="2,3")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--left-context-s", type=int, help="bound what the flow looks back at")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    result: dict = {"machine": platform.machine(), "threads": arguments.threads}
    print(f"{platform.machine()}, {arguments.threads} threads, float32, torch {torch.__version__}")
    with torch.inference_mode():
        for version in (int(v) for v in arguments.versions.split(",")):
            lm = SpeechLm(QWEN2_05B, V2_IDS if version == 2 else V3_IDS).eval()
            row = {str(c): round(lm_token_ms(lm, c, 1), 1) for c in CONTEXTS}
            batches = {str(b): round(lm_token_ms(lm, 200, b) / b, 1) for b in BATCHES}
            del lm
            print(f"v{version} LM, ms per token by context: {row}")
            print(f"v{version} LM, ms per token and sequence at context 200 by batch: {batches}")
            costs = block_costs(*networks(version), arguments.left_context_s)
            print(
                f"v{version} block of 25 tokens: offset → flow ms, vocoder ms, state MiB: {costs}"
            )
            ratio = sum(costs[400][:2]) / sum(costs[25][:2])
            print(f"v{version} cost at offset 400 over cost at offset 25: {ratio:.2f}")
            result[f"v{version}"] = {"lm": row, "batch": batches, "blocks": costs, "ratio": ratio}
        theirs = {str(c): transformers_token_ms(c) for c in CONTEXTS}
        if all(theirs.values()):
            print(f"transformers' Qwen2, ms per token by context: {theirs}")
        else:
            print("transformers is not installed: no figure to compare the LM with")
        result["transformers"] = theirs
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.1f} GiB")
    result["peak_gib"] = round(peak, 2)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
