"""Write docs/asyncapi.yaml from the message types of `cosyvoice_stream.server.wire`.

Run it after changing a message: ``python docs/make_asyncapi.py``. A test fails when the file does
not say what this script would write.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from cosyvoice_stream.server import wire, wire_replies
from cosyvoice_stream.version import __version__

ROOT = Path(__file__).resolve().parent.parent
FILE = "docs/asyncapi.yaml"

_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$./-]*")
_WORDS_OF_YAML = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})

_AUDIO = (
    "Little-endian header of 12 bytes, then audio in the stated encoding: u8 kind = 1; u8 flags, "
    "bit 0 = last frame of the utterance; u16 zero; u32 number of the utterance; u32 index of the "
    "first sample. With framing=raw the header is left out."
)
_MICROPHONE = (
    "Bare audio in the stated input encoding, between voice.begin and voice.commit or between "
    "vad.start and vad.stop."
)


def document() -> dict[str, Any]:
    """The AsyncAPI document as plain data."""
    from_client = get_args(get_args(wire.ClientMessage)[0])
    from_server = get_args(wire_replies.ServerMessage)
    messages = {_name(kind): _message(kind) for kind in (*from_client, *from_server)}
    messages["audio"] = _binary("Audio of the utterance that is being spoken", _AUDIO)
    messages["microphone"] = _binary("A piece of the microphone", _MICROPHONE)
    server_names = [*map(_name, from_server), "audio"]
    client_names = [*map(_name, from_client), "microphone"]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "cosyvoice-stream",
            "version": __version__,
            "description": f"The native protocol {wire.PROTOCOL}. What the fields mean, and in "
            "which order messages come, is in protocol.md.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"local": {"host": "127.0.0.1:8000", "protocol": "ws"}},
        "channels": {
            "stream": {
                "address": "/v1/stream",
                "messages": {
                    name: {"$ref": f"#/components/messages/{name}"}
                    for name in (*client_names, *server_names)
                },
                "bindings": {
                    "ws": {
                        "method": "GET",
                        "query": {
                            "type": "object",
                            "properties": {
                                "framing": {"type": "string", "enum": ["raw"]},
                                "api_key": {"type": "string"},
                            },
                        },
                    }
                },
            }
        },
        "operations": {
            "listen": _operation("receive", client_names),
            "answer": _operation("send", server_names),
        },
        "components": {"messages": messages, "schemas": _schemas(from_client, from_server)},
    }


def _name(kind: type[BaseModel]) -> str:
    return str(kind.model_fields["type"].default)


def _message(kind: type[BaseModel]) -> dict[str, Any]:
    summary = (kind.__doc__ or "").strip().split("\n")[0]
    return {
        "name": _name(kind),
        "summary": summary,
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
    }


def _binary(summary: str, description: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": description,
        "contentType": "application/octet-stream",
        "payload": {"type": "string", "format": "binary"},
    }


def _operation(action: str, names: list[str]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": "#/channels/stream"},
        "messages": [{"$ref": f"#/channels/stream/messages/{name}"} for name in names],
    }


def _schemas(
    from_client: tuple[type[BaseModel], ...], from_server: tuple[type[BaseModel], ...]
) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for kinds, mode in ((from_client, "validation"), (from_server, "serialization")):
        for kind in kinds:
            schema = kind.model_json_schema(ref_template="#/components/schemas/{model}", mode=mode)
            schemas.update(schema.pop("$defs", {}))
            schemas[kind.__name__] = schema
    for schema in schemas.values():
        properties = schema.get("properties", {})
        if "const" in properties.get("type", {}):
            schema["required"] = sorted({*schema.get("required", []), "type"})
    return dict(sorted(schemas.items()))


def to_yaml(value: Any, depth: int = 0) -> str:
    """Render plain data as YAML: block style, JSON scalars."""
    indent = "  " * depth
    if isinstance(value, dict) and value:
        return "".join(f"{indent}{_key(key)}:{_nested(item, depth)}" for key, item in value.items())
    if isinstance(value, list) and value:
        return "".join(f"{indent}-{_nested(item, depth)}" for item in value)
    return f"{indent}{json.dumps(value, ensure_ascii=False)}\n"


def _nested(value: Any, depth: int) -> str:
    if isinstance(value, (dict, list)) and value:
        return "\n" + to_yaml(value, depth + 1)
    return f" {json.dumps(value, ensure_ascii=False)}\n"


def _key(key: str) -> str:
    plain = _PLAIN.fullmatch(key) and key.lower() not in _WORDS_OF_YAML
    return key if plain else json.dumps(key)


def text() -> str:
    """The whole file."""
    return "# Made from server/wire.py by docs/make_asyncapi.py.\n" + to_yaml(document())


if __name__ == "__main__":
    (ROOT / FILE).write_text(text(), encoding="utf-8")
