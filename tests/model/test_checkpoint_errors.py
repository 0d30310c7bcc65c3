"""What people get wrong about a checkpoint is said in a way that helps."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyvoice_stream.cosyvoice import networks
from cosyvoice_stream.cosyvoice.checkpoint import read_spec
from cosyvoice_stream.cosyvoice.config import EngineConfig
from cosyvoice_stream.cosyvoice.engine import CosyVoiceEngine
from cosyvoice_stream.cosyvoice.networks import choose_device, choose_precision, load_networks
from cosyvoice_stream.cosyvoice.presets import read_presets
from cosyvoice_stream.errors import ConfigError, ModelLoadError, VoiceStreamError
from support.mini_checkpoint import mini_folder, speak, with_engine

pytestmark = pytest.mark.model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint that may be damaged: big files are links until they are replaced."""
    target = tmp_path / "model"
    shutil.copytree(mini_folder(3), target, copy_function=lambda a, b: Path(b).symlink_to(a))
    return target


def start(folder: Path) -> None:
    async def main() -> None:
        engine = CosyVoiceEngine(folder)
        try:
            await engine.start()
        finally:
            await engine.close()

    asyncio.run(main())


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name",
    [
        "llm.pt",
        "flow.pt",
        "hift.pt",
        "campplus.onnx",
        "speech_tokenizer_v3.onnx",
        "CosyVoice-BlankEN/vocab.json",
    ],
)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelLoadError, match=f"{name} is missing") as caught:
        start(folder)
    assert "cosyvoice-stream download cosyvoice3" in str(caught.value.how_to_fix)


@pytest.mark.parametrize("name", ["llm.pt", "flow.pt", "hift.pt"])
def test_truncated_weights_are_named(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    replace(folder / name, data[: len(data) // 2])
    with pytest.raises(ModelLoadError, match="truncated"):
        start(folder)


@pytest.mark.parametrize("name", ["campplus.onnx", "speech_tokenizer_v3.onnx"])
def test_damaged_networks_are_named(folder: Path, name: str) -> None:
    replace(folder / name, b"not a network")
    with pytest.raises(ModelLoadError, match="cannot be read as an ONNX network"):
        start(folder)


def test_the_yaml_of_another_version_does_not_fit(folder: Path) -> None:
    (folder / "cosyvoice3.yaml").unlink()
    shutil.copy(mini_folder(2) / "cosyvoice2.yaml", folder)
    (folder / "speech_tokenizer_v2.onnx").symlink_to(folder / "speech_tokenizer_v3.onnx")
    with pytest.raises(ModelLoadError, match="does not fit the network") as caught:
        start(folder)
    assert "same checkpoint" in str(caught.value.how_to_fix)


def test_version_1_and_no_checkpoint_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="holds no cosyvoice2.yaml or cosyvoice3.yaml"):
        CosyVoiceEngine(tmp_path)
    (tmp_path / "cosyvoice.yaml").write_text("sample_rate: 22050\n", "utf-8")
    with pytest.raises(ModelLoadError, match="CosyVoice 1 checkpoint"):
        CosyVoiceEngine(tmp_path)
    with pytest.raises(ModelLoadError, match="not a folder"):
        CosyVoiceEngine(tmp_path / "nowhere")


def test_weights_that_are_no_numbers(folder: Path) -> None:
    weights = torch.load(folder / "flow.pt", weights_only=True)
    weights["spk_embed_affine_layer.bias"].fill_(float("nan"))
    (folder / "flow.pt").unlink()
    torch.save(weights, folder / "flow.pt")
    with pytest.raises(ModelLoadError, match="values that are no numbers"):
        start(folder)


def test_devices_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="no kind of device 'gpu9'"):
        choose_device("gpu9")
    with pytest.raises(ConfigError, match="does not run on 'mps'"):
        choose_device("mps")
    with pytest.raises(ConfigError, match="int8 is for the CPU"):
        choose_precision("int8", torch.device("cuda"))
    if torch.cuda.is_available():
        with pytest.raises(ConfigError, match="there is no device cuda:99"):
            choose_device("cuda:99")
    else:
        with pytest.raises(ConfigError, match="finds no CUDA device") as caught:
            choose_device("cuda")
        assert "nvidia-smi" in str(caught.value.how_to_fix)
        assert choose_device("auto").type == "cpu"


@pytest.mark.parametrize("precision", ["bf16", "fp16", "int8"])
def test_a_reduced_precision_passes_its_trial_and_speaks(precision: str) -> None:
    async def test(engine: CosyVoiceEngine) -> None:
        assert engine.precision == precision
        assert len((await speak(engine, "hello.", engine.info.voices[0])).samples) > 0

    with_engine(3, test, precision=precision)


def test_a_precision_that_is_off_is_rejected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trial = networks._trial
    seen: list[int] = []

    def broken(*parts):  # type: ignore[no-untyped-def]
        seen.append(1)
        log_probs, mel = trial(*parts)
        return log_probs, mel * (float("nan") if len(seen) == 2 else 1.0)

    monkeypatch.setattr(networks, "_trial", broken)
    spec = read_spec(mini_folder(3))
    loaded = load_networks(spec, EngineConfig(device="cpu", precision="bf16"))
    assert loaded.precision == "fp32"
    assert loaded.lm.speech_embedding.weight.dtype == torch.float32
    assert "precision bf16 is off" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [("precision", "fp8"), ("first_hop", 0), ("first_hop", 26), ("flow_steps", 0), ("slots", 0)],
)
def test_configurations_out_of_range(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        EngineConfig(**{name: value})


def preset(**changes: torch.Tensor) -> dict[str, dict[str, torch.Tensor]]:
    return {"Anna": {"embedding": torch.randn(1, 192)} | changes}


def test_preset_speakers_are_the_voices_of_a_checkpoint(folder: Path) -> None:
    torch.save(
        preset()
        | {
            "Ben": {
                "flow_embedding": torch.randn(1, 192),
                "flow_prompt_speech_token": torch.arange(40, dtype=torch.int32)[None],
                "prompt_speech_feat": torch.randn(1, 80, 80),
            }
        },
        folder / "spk2info.pt",
    )

    async def main() -> None:
        engine = CosyVoiceEngine(folder)
        await engine.start()
        try:
            assert [voice.voice_id for voice in engine.info.voices] == ["Anna", "Ben"]
            first, second = [
                (await speak(engine, "hello.", voice)).samples for voice in engine.info.voices
            ]
            assert len(first) > 0
            assert np.abs(first - second[: len(first)]).max() > 1e-3
        finally:
            await engine.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (preset(embedding=torch.randn(1, 12)), "speaker 'Anna' cannot be used"),
        ({"Anna": {}}, "speaker 'Anna' cannot be used"),
        ([1, 2], "does not hold speakers by name"),
    ],
)
def test_presets_that_are_none(tmp_path: Path, content: object, message: str) -> None:
    torch.save(content, tmp_path / "spk2info.pt")
    with pytest.raises(ModelLoadError, match=message):
        read_presets(tmp_path / "spk2info.pt")


def test_a_damaged_preset_file(tmp_path: Path) -> None:
    (tmp_path / "spk2info.pt").write_bytes(b"nothing")
    with pytest.raises(ModelLoadError, match="cannot be read") as caught:
        read_presets(tmp_path / "spk2info.pt")
    assert isinstance(caught.value, VoiceStreamError)
