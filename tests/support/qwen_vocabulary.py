"""The Qwen2 vocabulary as files of a checkpoint, made from the ranks that `dashscope` ships."""

from __future__ import annotations

import base64
import json
from importlib.util import find_spec
from pathlib import Path


def _symbols() -> dict[int, str]:
    """Printable stand-ins of bytes in byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {byte: chr(byte) for byte in plain}
    others = [byte for byte in range(256) if byte not in symbols]
    return symbols | {byte: chr(256 + i) for i, byte in enumerate(others)}


def _parts(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two tokens whose merge gives a token."""
    parts = [bytes([byte]) for byte in token]
    limit = ranks[token]
    while len(parts) > 2:
        best = min(
            range(len(parts) - 1),
            key=lambda i: ranks.get(parts[i] + parts[i + 1], limit),
        )
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts[0], parts[1]


def write_qwen_vocabulary(folder: Path) -> None:
    """Write ``vocab.json`` and ``merges.txt``."""
    spec = find_spec("dashscope")
    assert spec is not None
    assert spec.submodule_search_locations
    source = Path(spec.submodule_search_locations[0]) / "resources" / "qwen.tiktoken"
    ranks: dict[bytes, int] = {}
    for line in source.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    symbols = _symbols()

    def name(token: bytes) -> str:
        return "".join(symbols[byte] for byte in token)

    merges = [_parts(token, ranks) for token in ranks if len(token) > 1]
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {name(token): rank for token, rank in ranks.items()}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    lines = "\n".join(f"{name(left)} {name(right)}" for left, right in merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}\n", "utf-8")
