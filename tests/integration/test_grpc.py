"""The gRPC service of CosyVoice's own server, called with stubs that protoc makes."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import wave
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.fake import ChunkGate, FakeEngine
from cosyvoice_stream.server.grpc_messages import FILE
from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.streaming.resample import Resampler
from support.features import feature
from support.noting_engine import NotingEngine
from support.served import Served, serving, until

pytestmark = pytest.mark.integration

API = "CosyVoice gRPC server"
TEXT = "hello there world"
ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "tests" / "data" / "ref_wavs" / "flite_slt_female.wav"

Stubs = tuple[ModuleType, ModuleType]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    """Messages and stub as a client has them."""
    folder = tmp_path_factory.mktemp("stubs")
    out = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main(["protoc", f"-I{ROOT / 'docs'}", *out, "cosyvoice.proto"]) == 0
    sys.path.insert(0, str(folder))
    try:
        return load(folder, "cosyvoice_pb2"), load(folder, "cosyvoice_pb2_grpc")
    finally:
        sys.path.remove(str(folder))


def load(folder: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def prompt() -> bytes:
    """The reference as bare 16-bit samples at 16 kHz."""
    with wave.open(str(REFERENCE)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype("f4") / 32768
    resampler = Resampler(rate, 16_000)
    return pcm.to_s16le(np.concatenate([*resampler.push(samples), *resampler.flush()]))


def with_stub(
    folder: Path,
    stubs: Stubs,
    body: Callable[[Any, Any, Served], Awaitable[None]],
    engine: FakeEngine | None = None,
    **settings: Any,
) -> None:
    async def run() -> None:
        async with serving(folder, engine, grpc_port=0, **settings) as served:
            service: Any = served.server.config.app
            address = f"127.0.0.1:{service.state.grpc.port}"
            async with grpc.aio.insecure_channel(address) as channel:
                await body(stubs[1].CosyVoiceStub(channel), stubs[0], served)
            await until(lambda: not served.services.admission.live)
            await until(lambda: not served.services.voices._temporary)

    asyncio.run(run())


async def spoken(call: Any) -> float:
    """Seconds of audio in the answer."""
    pieces = [piece.tts_audio async for piece in call]
    samples = np.frombuffer(b"".join(pieces), "<i2")
    assert len(pieces) > 1
    assert np.abs(samples).max() > 3000
    return len(samples) / 24_000


def test_the_published_file_says_what_is_served(tmp_path: Path) -> None:
    out = tmp_path / "set"
    folder = ROOT / "docs"
    assert protoc.main(["protoc", f"-I{folder}", f"-o{out}", "cosyvoice.proto"]) == 0
    (published,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    for field in (field for message in published.message_type for field in message.field):
        field.ClearField("json_name")
    assert published == FILE


@feature(API, "`Inference` in all four modes, streamed", "supported")
def test_modes(tmp_path: Path, stubs: Stubs) -> None:
    engine = NotingEngine()

    async def body(stub: Any, pb: Any, served: Served) -> None:
        clip = prompt()
        for fields in (
            {"sft_request": {"spk_id": "中文女", "tts_text": TEXT}},
            {
                "zero_shot_request": {
                    "tts_text": TEXT,
                    "prompt_text": "Words.",
                    "prompt_audio": clip,
                }
            },
            {"cross_lingual_request": {"tts_text": TEXT, "prompt_audio": clip}},
            {"instruct_request": {"tts_text": TEXT, "spk_id": "boop", "instruct_text": "Softly."}},
        ):
            seconds = await spoken(stub.Inference(pb.Request(**fields)))
            assert seconds == pytest.approx(len(TEXT) * 0.05)
        assert engine.transcripts == ["Words.", None]
        assert [options.instruct for options in engine.options] == [None, None, None, "Softly."]
        assert [voice.voice_id[:5] for voice in engine.voices] == ["beep", "voice", "voice", "boop"]
        scraped = (await served.get("/metrics")).body
        assert b'cosyvoice_stream_utterances_total{outcome="done"} 4.0' in scraped

    with_stub(tmp_path, stubs, body, engine)


@feature(API, "cancelling a call", "supported", "stops the synthesis")
def test_cancelling_stops_the_work(tmp_path: Path, stubs: Stubs) -> None:
    gate = ChunkGate()
    engine = FakeEngine(gate=gate)

    async def body(stub: Any, pb: Any, served: Served) -> None:
        await gate.allow(1)
        request = pb.Request(cross_lingual_request={"tts_text": TEXT, "prompt_audio": prompt()})
        call = stub.Inference(request)
        first = await call.read()
        assert len(first.tts_audio) == 4800
        call.cancel()
        await until(lambda: not served.services.admission.live)
        assert engine.counts.cancelled == 1

    with_stub(tmp_path, stubs, body, engine)


@feature(API, "no mode, unknown voices, empty or 200 kB texts, bad clips", "refused", "by status")
def test_mistakes(tmp_path: Path, stubs: Stubs) -> None:
    engine = FakeEngine(fail_on={"broken": RuntimeError("secret")})

    async def body(stub: Any, pb: Any, served: Served) -> None:
        status = grpc.StatusCode
        for fields, expected in (
            ({}, status.INVALID_ARGUMENT),
            ({"sft_request": {"spk_id": "nobody", "tts_text": TEXT}}, status.NOT_FOUND),
            ({"sft_request": {"spk_id": "beep", "tts_text": " "}}, status.INVALID_ARGUMENT),
            ({"sft_request": {"tts_text": "a " * 100_000}}, status.INVALID_ARGUMENT),
            ({"cross_lingual_request": {"tts_text": TEXT}}, status.INVALID_ARGUMENT),
            ({"sft_request": {"tts_text": "broken"}}, status.INTERNAL),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await spoken(stub.Inference(pb.Request(**fields)))
            assert caught.value.code() is expected, fields
            assert caught.value.details()
            assert "secret" not in str(caught.value)

    with_stub(tmp_path, stubs, body, engine)


@feature(API, "too many calls", "supported", "RESOURCE_EXHAUSTED with `retry-after-ms`")
def test_overload(tmp_path: Path, stubs: Stubs) -> None:
    gate = ChunkGate()

    async def body(stub: Any, pb: Any, served: Served) -> None:
        request = pb.Request(sft_request={"tts_text": TEXT})
        first = asyncio.create_task(spoken(stub.Inference(request)))
        await gate.arrived(1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await spoken(stub.Inference(request))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert int(dict(caught.value.trailing_metadata())["retry-after-ms"]) > 0
        await gate.open()
        await first

    with_stub(tmp_path, stubs, body, FakeEngine(gate=gate), max_live_utterances=1, queue_wait_s=0)


@feature(API, "a key as metadata `authorization: Bearer`", "supported", "where keys are set")
def test_keys(tmp_path: Path, stubs: Stubs) -> None:
    async def body(stub: Any, pb: Any, served: Served) -> None:
        request = pb.Request(sft_request={"tts_text": TEXT})
        for metadata in (None, (("authorization", "Bearer wrong"),)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await spoken(stub.Inference(request, metadata=metadata))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        for metadata in ((("authorization", "Bearer right"),), (("x-api-key", "right"),)):
            assert await spoken(stub.Inference(request, metadata=metadata))

    with_stub(tmp_path, stubs, body, api_keys="right")


def test_a_port_in_use_ends_the_server_with_a_reason(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as first:
            with pytest.raises(ConfigError, match="cannot be listened on"):
                async with serving(tmp_path, grpc_port=first.port):
                    pass

    asyncio.run(run())


def test_without_grpc_installed_the_setting_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)

    async def run() -> None:
        with pytest.raises(ConfigError, match="grpc is not installed") as caught:
            async with serving(tmp_path, grpc_port=0):
                pass
        assert "cosyvoice-stream[grpc]" in str(caught.value.how_to_fix)

    asyncio.run(run())
