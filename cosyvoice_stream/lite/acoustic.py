"""The acoustic model: phonemes → spectra per frame, with the time of every word and mouth shape."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cosyvoice_stream.errors import ModelLoadError
from cosyvoice_stream.lite.phonemes import (
    BOUNDARY_ID,
    LENGTH_MARKS,
    STRESS_MARKS,
    VISEME_OF,
    PhonemeRun,
    Phonemizer,
    SourceWord,
)
from cosyvoice_stream.types import Viseme

SAMPLE_RATE: Final = 24_000
FRAME_SAMPLES: Final = 300
"""12.5 ms."""
BINS: Final = 601
"""20 Hz apart."""
MODEL_SHA256: Final = "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8"
PACKAGE: Final = "hibari-tts"
DURATIONS: Final = "/Cast_32_output_0"
"""Tensor inside the graph: duration of each phoneme id. This name and what follows hold for the
file of `MODEL_SHA256` only."""
EXACT_DURATIONS: Final = "/Sub_output_0"
"""The same before the division by the speed and the rounding."""
_ONE_SPEED: Final = b"\x0a\x05speed\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x08\x01"
"""ValueInfoProto of the input "speed": a float tensor of one dimension of size 1."""
_MANY_SPEEDS: Final = _ONE_SPEED[:-2] + b"\x12\x00"
"""The same with a dimension that has an (empty) name instead of a size."""
SHORTEST: Final = 1000.0
"""A speed that makes every phoneme as short as it gets."""

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WordFrames:
    """A word and the frames in which it is heard."""

    word: SourceWord
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class VisemeFrames:
    """A mouth shape and its frames."""

    viseme: Viseme
    mouth_open: float
    start: int
    end: int


@dataclass(slots=True)
class Spectra:
    """What the model says about one run of phonemes; T frames of 12.5 ms.

    The sound is ``exp(harmonic) · e^{iπ tanh(theta)} · pulses(f0) + exp(noise) · Z + exp(free) ·
    e^{iφ}`` per bin and frame, Z complex Gaussian.
    """

    harmonic: FloatArray
    """(601, T) log magnitude of the part that follows the pulses."""
    theta: FloatArray
    """(601, T) its phase before tanh."""
    noise: FloatArray
    """(601, T) log magnitude of the random part."""
    free: FloatArray
    """(601, T) log magnitude of the part with a phase of its own."""
    phi: FloatArray
    """(601, T) that phase."""
    f0: FloatArray
    """(T,) hertz, 0 where unvoiced."""
    words: tuple[WordFrames, ...]
    visemes: tuple[VisemeFrames, ...]

    @property
    def frames(self) -> int:
        """Number of frames T."""
        return len(self.f0)


def append_output(model: bytes, tensor: str) -> bytes:
    """Make a tensor inside an ONNX graph one of its outputs.

    Protocol buffers merge a message that occurs twice field by field, so a second ``graph`` (field
    7 of ModelProto) that holds only one ``output`` (field 12 of GraphProto) with a name (field 1 of
    ValueInfoProto) is appended to the first.
    """

    def message(field: int, payload: bytes) -> bytes:
        assert len(payload) < 128  # one-byte length
        return bytes([field << 3 | 2, len(payload)]) + payload

    return model + message(7, message(12, message(1, tensor.encode())))


def stretch(durations: NDArray[np.int64], tempo: float) -> NDArray[np.int64]:
    """Divide whole durations by a tempo, keeping the sum: what one is rounded by, the next gets.

    Args:
        durations: (N,) at tempo 1.
        tempo: Above 1 is faster.

    Returns:
        (N,) at least 1 each.
    """
    ends = np.cumsum(durations) / tempo
    stretched = np.empty_like(durations)
    spent = 0
    for index, end in enumerate(ends):
        stretched[index] = max(1, round(end - spent))
        spent += int(stretched[index])
    return stretched


class AcousticModel:
    """Weights and pronunciation rules. Loaded once; calls may come from several threads."""

    def __init__(self, session: Any, phonemizer: Phonemizer) -> None:
        self._session = session
        self._phonemizer = phonemizer

    @classmethod
    def load(cls) -> AcousticModel:
        """Read the registry package; about half a second.

        Raises:
            ModelLoadError: The package is missing, or its model is not the one this code was made
            for.
        """
        cure = f"reinstall it: pip install --force-reinstall {PACKAGE}==0.2.1"
        try:
            import onnxruntime
            from hibari.g2p import G2P

            assets = files("hibari") / "assets"
            model = (assets / "hibari.onnx").read_bytes()
            vocabulary = json.loads((assets / "vocab.json").read_text("utf-8"))
            phonemizer = Phonemizer(G2P(), vocabulary)
        except (ImportError, OSError, ValueError, EOFError, zlib.error) as error:
            raise ModelLoadError(f"{PACKAGE} cannot be loaded: {error}", how_to_fix=cure) from error
        if hashlib.sha256(model).hexdigest() != MODEL_SHA256:
            raise ModelLoadError(
                f"the model file of {PACKAGE} is not the expected one", how_to_fix=cure
            )
        model = model.replace(_ONE_SPEED, _MANY_SPEEDS)
        for tensor in (DURATIONS, EXACT_DURATIONS):
            model = append_output(model, tensor)
        options = onnxruntime.SessionOptions()
        # Several utterances share the cores, so each call keeps to one thread; a second thread
        # would gain a third for one utterance and lose as much for two. With one thread there is
        # nobody who could spin.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return cls(session, phonemizer)

    def phonemes(self, text: str, *, normalize: bool) -> list[PhonemeRun]:
        """Phonemes of a clause, in runs that `spectra` takes; none if it has nothing to say."""
        return self._phonemizer(text, normalize=normalize)

    def spectra(self, run: PhonemeRun, tempo: float) -> Spectra:
        """Run the model; about 5 ms a second of speech on one core, 8 ms at another tempo than 1.

        Args:
            run: What to say.
            tempo: Above 1 is faster; each phoneme keeps at least 25 ms, so that more than about 2.4
                has no effect.
        """
        vocabulary = self._phonemizer.vocabulary
        ids = np.array([[BOUNDARY_ID, *(vocabulary[p] for p in run.phonemes), BOUNDARY_ID]])
        speed = np.ones(1, np.float32)
        if tempo != 1:
            # The model divides and rounds each duration by itself; most are 1 to 3, so its tempo
            # has steps of a quarter. One speed for each phoneme gives the lengths that are wanted.
            (exact,) = self._session.run(
                [EXACT_DURATIONS], {"ids": ids, "speed": np.full(1, SHORTEST, np.float32)}
            )
            plain = np.maximum(np.rint(exact), 1).astype(np.int64)
            speed = np.maximum(exact, np.float32(1e-3)) / stretch(plain, tempo).astype(np.float32)
        *parts, durations, _ = self._session.run(None, {"ids": ids, "speed": speed})
        harmonic, theta, noise, free, phi, f0 = (part[0] for part in parts)
        # Durations count units of several frames; the sum of all is the whole.
        unit = len(f0) // max(1, int(durations.sum()))
        edges = np.concatenate(([0], np.cumsum(durations))) * unit
        return Spectra(
            harmonic, theta, noise, free, phi, f0, _words(run, edges), _visemes(run, edges)
        )


def _words(run: PhonemeRun, edges: NDArray[np.int64]) -> tuple[WordFrames, ...]:
    """Frames of every word; the id at index k covers edges[k] to edges[k + 1]."""
    spans: dict[int, tuple[int, int]] = {}
    for index, owner in enumerate(run.owners):
        if owner < 0:
            continue
        start, end = int(edges[index + 1]), int(edges[index + 2])
        first, last = spans.get(owner, (start, end))
        spans[owner] = (min(first, start), max(last, end))
    return tuple(WordFrames(run.words[owner], *spans[owner]) for owner in sorted(spans))


def _visemes(run: PhonemeRun, edges: NDArray[np.int64]) -> tuple[VisemeFrames, ...]:
    """Mouth shapes; marks of stress lean forwards, marks of length and gaps lean backwards."""
    shapes: list[tuple[Viseme, float]] = []
    for phoneme in run.phonemes:
        if (phoneme == " " or phoneme in LENGTH_MARKS) and shapes:
            shapes.append(shapes[-1])
        else:
            shapes.append(VISEME_OF.get(phoneme, (Viseme.SIL, 0.0)))
    for index in range(len(shapes) - 2, -1, -1):
        if run.phonemes[index] in STRESS_MARKS:
            shapes[index] = shapes[index + 1]
    merged: list[VisemeFrames] = []
    for index, (viseme, mouth_open) in enumerate(shapes):
        start, end = int(edges[index + 1]), int(edges[index + 2])
        if merged and merged[-1].viseme is viseme:
            merged[-1] = VisemeFrames(viseme, mouth_open, merged[-1].start, end)
        elif end > start:
            merged.append(VisemeFrames(viseme, mouth_open, start, end))
    return tuple(merged)


def package_version() -> str:
    """Version of the installed package, or "absent"."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "absent"
