"""How many listeners one CUDA device serves: first audio, underruns, real-time factor, memory.

    python benchmarks/cosyvoice_gpu.py [--version 3] [--streams 1,4,8,16,32,64] [--json out.json]
    python benchmarks/cosyvoice_gpu.py --size mini --device cpu --streams 1,4    # to try it out

Without ``--model-dir`` a checkpoint of official size with random weights is written to a temporary
folder: it costs what the real one costs and says nothing sensible. Every stream is one listener in
this process, who plays in real time, hears an answer to its end, waits a moment and hears the next.
First audio counts from the call, with the text at hand, to the first chunk with samples.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import torch

from cosyvoice_stream.cosyvoice.config import EngineConfig
from cosyvoice_stream.cosyvoice.engine import CosyVoiceEngine
from cosyvoice_stream.cosyvoice.random_checkpoint import MINI, OFFICIAL, write_random_checkpoint
from cosyvoice_stream.types import SynthesisOptions, Voice

SIZES = {"mini": MINI, "official": OFFICIAL}
TEXTS = ("hello hello.", "go on then, hello.", "hello, hello hello.", "wait, hello. hello.")
AUDIBLE_UNDERRUN_S = 0.1
MAX_LEAD_S = 4.0
"""A listener takes no more while it holds so much that it has not played."""


@dataclass
class Heard:
    first_audio_s: float
    underrun_s: float
    audio_s: float


async def text_of(text: str) -> AsyncIterator[str]:
    yield text


async def listen(engine: CosyVoiceEngine, voice: Voice, text: str, seed: int) -> Heard:
    """Hear one answer as a person would."""
    began = time.monotonic()
    first = underrun = 0.0
    runs_dry = 0.0
    samples = 0
    rate = engine.info.sample_rate
    options = SynthesisOptions(seed=seed)
    async with aclosing(engine.synthesize(text_of(text), voice, options)) as chunks:
        async for chunk in chunks:
            now = time.monotonic()
            if len(chunk.samples):
                if not first:
                    first = now - began
                    runs_dry = now
                underrun += max(0.0, now - runs_dry)
                runs_dry = max(now, runs_dry) + len(chunk.samples) / rate
                samples += len(chunk.samples)
            if runs_dry - now > MAX_LEAD_S:
                await asyncio.sleep(runs_dry - now - MAX_LEAD_S)
    return Heard(first, underrun, samples / rate)


async def stream(
    engine: CosyVoiceEngine, voice: Voice, index: int, answers: int, heard: list[Heard]
) -> None:
    rng = random.Random(index)
    await asyncio.sleep(rng.uniform(0, 1))
    for answer in range(answers):
        heard.append(await listen(engine, voice, rng.choice(TEXTS), 1000 * index + answer))
        await asyncio.sleep(rng.uniform(0.2, 0.8))


async def measure(engine: CosyVoiceEngine, streams: int, answers: int) -> dict[str, float]:
    voice = engine.info.voices[0]
    heard: list[Heard] = []
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for index in range(streams):
            group.create_task(stream(engine, voice, index, answers, heard))
    elapsed = time.monotonic() - began
    first = sorted(one.first_audio_s * 1e3 for one in heard)
    late = sum(one.underrun_s > AUDIBLE_UNDERRUN_S for one in heard)
    return {
        "streams": streams,
        "answers": len(heard),
        "first_audio_p50_ms": round(statistics.median(first), 1),
        "first_audio_p95_ms": round(first[int(0.95 * (len(first) - 1))], 1),
        "underrun_percent": round(100 * late / len(heard), 1),
        "audio_s_per_s": round(sum(one.audio_s for one in heard) / elapsed, 2),
    }


def memory_gib(device: str) -> float:
    if device.startswith("cuda"):
        return torch.cuda.max_memory_reserved() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


async def run(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    counts = [int(part) for part in options.streams.split(",")]
    config = EngineConfig(
        device=options.device,
        precision=options.precision,
        slots=max(counts),
        compile=options.compile,
        first_hop=options.first_hop,
        flow_steps=options.flow_steps,
    )
    engine = CosyVoiceEngine(folder, config)
    began = time.monotonic()
    await engine.start()
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    print(
        f"CosyVoice {options.version}, {options.size}, {engine.precision} on {name}, torch "
        f"{torch.__version__}, loaded in {time.monotonic() - began:.0f} s"
    )
    heads = ("streams", "answers", "p50 ms", "p95 ms", "late %", "audio s/s")
    print("  ".join(f"{head:>10}" for head in heads))
    rows = []
    try:
        await measure(engine, 2, 1)
        for count in counts:
            rows.append(await measure(engine, count, options.answers))
            print("  ".join(f"{value:>10}" for value in rows[-1].values()), flush=True)
    finally:
        await engine.close()
    peak = memory_gib(options.device)
    print(f"memory {peak:.1f} GiB")
    return {"device": name, "precision": engine.precision, "rows": rows, "memory_gib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", type=int, default=3, choices=(2, 3))
    parser.add_argument("--size", default="official", choices=SIZES)
    parser.add_argument("--model-dir", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--streams", default="1,4,8,16,32,64")
    parser.add_argument("--answers", type=int, default=8, help="of each stream")
    parser.add_argument("--first-hop", type=int, default=10)
    parser.add_argument("--flow-steps", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.model_dir or write_random_checkpoint(
            Path(scratch), options.version, SIZES[options.size]
        )
        result = asyncio.run(run(folder, options))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
