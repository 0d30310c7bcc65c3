"""First audio and underruns against the number of streams, by policy, on a simulated device.

    python benchmarks/scheduler_simulation.py [--streams 1,8,32] [--decode-ms 7] [--json out.json]

The scheduler is the engine's own; the device is a table of step costs, which can be given on the
command line as a machine was measured. Every stream speaks one answer after another, with pauses
between, for a minute; all times are of the simulated clock, so the figures are the same anywhere.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path

from cosyvoice_stream.cosyvoice.simulation import (
    AUDIBLE_UNDERRUN_S,
    POLICIES,
    TOKEN_S,
    Arrival,
    Costs,
    simulate,
)

SECONDS = 60.0


def load(streams: int, seed: int) -> list[Arrival]:
    """Answers of 2 to 12 s with 1 to 4 s between them, on each of `streams` lines."""
    rng = random.Random(seed)
    arrivals = []
    for _ in range(streams):
        at = rng.uniform(0, 5)
        while at < SECONDS:
            tokens = rng.randint(50, 300)
            arrivals.append(Arrival(at, tokens))
            at += tokens * TOKEN_S + rng.uniform(1, 4)
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


def row(policy: str, streams: int, costs: Costs, seed: int) -> dict[str, float | str]:
    played = simulate(load(streams, seed), costs, POLICIES[policy]())
    first = sorted(one.first_audio_s * 1e3 for one in played)
    late = [one for one in played if one.underrun_s > AUDIBLE_UNDERRUN_S]
    return {
        "policy": policy,
        "streams": streams,
        "utterances": len(played),
        "first_audio_p50_ms": round(statistics.median(first)),
        "first_audio_p95_ms": round(first[int(0.95 * (len(first) - 1))]),
        "underrun_percent": round(100 * len(late) / len(played), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", default="1,4,8,16,32,64,96")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    for name in Costs.__dataclass_fields__:
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=float, default=getattr(Costs, name))
    options = parser.parse_args()
    costs = Costs(**{name: getattr(options, name) for name in Costs.__dataclass_fields__})
    print(f"assumed costs: {costs}")
    heads = ("policy", "streams", "utterances", "p50 ms", "p95 ms", "underruns > 100 ms")
    print("  ".join(f"{head:>10}" for head in heads))
    rows = []
    for streams in map(int, options.streams.split(",")):
        for policy in POLICIES:
            rows.append(row(policy, streams, costs, options.seed))
            print("  ".join(f"{value:>10}" for value in rows[-1].values()), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"costs": vars(costs), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
