"""The messages of docs/cosyvoice.proto, made when this module is imported.

They live in a pool of their own, so that a process may have the stubs of CosyVoice's own project as
well, whose messages have names in the same package.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

METHOD: Final = "Inference"
SERVICE: Final = "cosyvoice.CosyVoice"

_MODES: Final = {
    "sft_request": ("SftRequest", ("spk_id", "tts_text")),
    "zero_shot_request": ("ZeroShotRequest", ("tts_text", "prompt_text", "prompt_audio")),
    "cross_lingual_request": ("CrossLingualRequest", ("tts_text", "prompt_audio")),
    "instruct_request": ("InstructRequest", ("tts_text", "spk_id", "instruct_text")),
}
"""Field of ``Request`` → its message, and that one's fields by number."""

_Field = descriptor_pb2.FieldDescriptorProto


def _describe() -> Any:
    """The file as a descriptor."""
    file = descriptor_pb2.FileDescriptorProto(
        name="cosyvoice.proto", package="cosyvoice", syntax="proto3"
    )
    request = file.message_type.add(name="Request")
    request.oneof_decl.add(name="mode")
    for number, (mode, (message, fields)) in enumerate(_MODES.items(), 1):
        _add(
            request,
            mode,
            number,
            type=_Field.TYPE_MESSAGE,
            type_name=f".cosyvoice.{message}",
            oneof_index=0,
        )
        described = file.message_type.add(name=message)
        for place, field in enumerate(fields, 1):
            _add(described, field, place, type=_kind(field))
    response = file.message_type.add(name="Response")
    _add(response, "tts_audio", 1, type=_kind("tts_audio"))
    service = file.service.add(name="CosyVoice")
    service.method.add(
        name=METHOD,
        input_type=".cosyvoice.Request",
        output_type=".cosyvoice.Response",
        server_streaming=True,
    )
    return file


def _add(message: Any, name: str, number: int, **facts: Any) -> None:
    message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL, **facts)


def _kind(field: str) -> Any:
    return _Field.TYPE_BYTES if field.endswith("_audio") else _Field.TYPE_STRING


FILE: Final = _describe()
_POOL: Final = descriptor_pool.DescriptorPool()
_POOL.Add(FILE)
Request: Final[Any] = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("cosyvoice.Request")
)
Response: Final[Any] = message_factory.GetMessageClass(
    _POOL.FindMessageTypeByName("cosyvoice.Response")
)
