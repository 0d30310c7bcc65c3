from __future__ import annotations

import json
import logging
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import wave
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_stream import voices as voices_module
from cosyvoice_stream.errors import LimitExceeded, VoiceError, VoiceNotFound
from cosyvoice_stream.types import ReferenceAudio, Voice
from cosyvoice_stream.voice_files import VoiceRecord
from cosyvoice_stream.voices import VoiceStore, new_voice_id, timestamp

pytestmark = pytest.mark.unit

REFERENCE = ReferenceAudio(
    np.linspace(-0.5, 0.5, 3 * 24_000, dtype=np.float32), 24_000, bandwidth_hz=8_000.0
)
VOICE = Voice(
    "", "", "lite/1",
    tensors={"eq": np.arange(6, dtype=np.float32).reshape(2, 3), "f0": np.array([5.0])},
    metadata={"alpha": "0.93", "note": "größer"},
)  # fmt: skip


def a_record(**changes: object) -> VoiceRecord:
    facts: dict[str, object] = {
        "voice_id": new_voice_id(),
        "name": "Zoë 张",
        "kind": "adapted",
        "created_at": timestamp(),
        "duration_ms": 3_000,
        "bandwidth_hz": 8_000.0,
        "engine": "lite",
        "fingerprint": "lite/1",
        "transcript": "Good morning.",
        "consent": "I agree.",
        "quality": {"verdict": "ok", "items": []},
    }
    return VoiceRecord(**(facts | changes))  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(tmp_path / "data" / "voices")


def test_a_voice_comes_back_as_it_was(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    again = VoiceStore(store.folder)
    assert again.get(record.voice_id) == record
    assert again.list() == [record]
    assert again.exists(record.voice_id)
    reference = again.reference(record.voice_id)
    assert (reference.sample_rate, reference.bandwidth_hz) == (24_000, 8_000.0)
    np.testing.assert_allclose(reference.samples, REFERENCE.samples, atol=2 / 65_536)
    voice = again.voice(record.voice_id, "lite/1")
    assert voice is not None
    assert (voice.voice_id, voice.name, voice.engine) == (record.voice_id, "Zoë 张", "lite/1")
    assert voice.metadata == VOICE.metadata
    assert set(voice.tensors) == set(VOICE.tensors)
    for name, tensor in VOICE.tensors.items():
        np.testing.assert_array_equal(voice.tensors[name], tensor)
        assert voice.tensors[name].dtype == tensor.dtype


def test_an_empty_store_needs_no_folder(store: VoiceStore) -> None:
    assert store.list() == []
    assert not store.folder.exists()
    assert not store.exists(new_voice_id())
    with pytest.raises(VoiceNotFound):
        store.delete(new_voice_id())


def test_another_engine_finds_no_cache_and_may_add_one(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    assert store.voice(record.voice_id, "cosyvoice/3") is None
    store.put_voice(record.voice_id, replace(VOICE, engine="cosyvoice/3", tensors={}))
    other = store.voice(record.voice_id, "cosyvoice/3")
    assert other is not None
    assert other.tensors == {}
    assert store.voice(record.voice_id, "lite/1") is not None


def test_only_a_few_engine_caches_are_kept(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    for number in range(2, 9):
        store.put_voice(record.voice_id, replace(VOICE, engine=f"lite/{number}"))
    assert len(list((store.folder / record.voice_id).glob("engine-*"))) == 4
    assert store.voice(record.voice_id, "lite/8") is not None
    assert store.voice(record.voice_id, "lite/1") is None


def test_deleting_leaves_nothing(store: VoiceStore) -> None:
    kept, gone = a_record(), a_record()
    store.add(kept, REFERENCE, VOICE)
    store.add(gone, REFERENCE, VOICE)
    store.delete(gone.voice_id)
    assert store.list() == [kept]
    assert {entry.name for entry in store.folder.iterdir()} == {kept.voice_id, ".lock"}
    for use in (store.get, store.reference, store.delete, lambda i: store.voice(i, "lite/1")):
        with pytest.raises(VoiceNotFound):
            use(gone.voice_id)
    with pytest.raises(VoiceNotFound):
        store.put_voice(gone.voice_id, VOICE)
    assert not store.exists(gone.voice_id)


BAD_IDS = ["", ".", "..", "../x", "/etc/passwd", "voice-", "heart", ".lock"]
BAD_IDS += ["voice-../../../etc/pa", "voice-" + "a" * 16 + "\n", "voice-" + "A" * 16]
BAD_IDS += ["voice-" + "a" * 17, "voice-\0" * 3]
BAD_IDS += ["x" * 100_000]


@pytest.mark.parametrize("voice_id", BAD_IDS, ids=range(len(BAD_IDS)))
def test_an_id_never_leads_out_of_the_folder(store: VoiceStore, voice_id: str) -> None:
    store.add(a_record(), REFERENCE, VOICE)
    assert not store.exists(voice_id)
    for use in (store.get, store.reference, store.delete, lambda i: store.voice(i, "lite/1")):
        with pytest.raises(VoiceNotFound) as refused:
            use(voice_id)
        assert len(str(refused.value)) < 500
    with pytest.raises(VoiceNotFound):
        store.add(a_record(voice_id=voice_id), REFERENCE, VOICE)
    with pytest.raises(VoiceNotFound):
        store.put_voice(voice_id, VOICE)
    assert len(list(store.folder.iterdir())) == 2


def test_ids_tell_nothing_and_differ() -> None:
    ids = {new_voice_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(voice_id) == 22 for voice_id in ids)


def test_a_link_in_the_folder_is_not_a_voice(store: VoiceStore, tmp_path: Path) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    os.symlink(store.folder / record.voice_id, store.folder / new_voice_id())
    assert store.list() == [record]


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_only_the_owner_can_read(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    store.put_voice(record.voice_id, replace(VOICE, engine="other"))
    for path in [store.folder, *store.folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def damage_json(path: Path) -> None:
    (path / "voice.json").write_bytes(b'{"voice_id": "x", ')


DAMAGE = {
    "cut json": damage_json,
    "binary json": lambda path: (path / "voice.json").write_bytes(bytes(range(256))),
    "a list": lambda path: (path / "voice.json").write_text("[]"),
    "missing fields": lambda path: (path / "voice.json").write_text('{"name": "x"}'),
    "wrong types": lambda path: (path / "voice.json").write_text(
        json.dumps({**json.loads((path / "voice.json").read_text()), "duration_ms": "long"})
    ),
    "another's record": lambda path: (path / "voice.json").write_text(
        json.dumps({**json.loads((path / "voice.json").read_text()), "voice_id": new_voice_id()})
    ),
    "no json": lambda path: (path / "voice.json").unlink(),
    "no recording": lambda path: (path / "reference.wav").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_voice_hides_no_other(
    store: VoiceStore, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = a_record(), a_record()
    store.add(good, REFERENCE, VOICE)
    store.add(bad, REFERENCE, VOICE)
    damage(store.folder / bad.voice_id)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        assert VoiceStore(store.folder).list() == [good]
    assert caplog.messages == ["1 damaged voices were left out"]
    with pytest.raises(VoiceError, match="damaged"):
        store.get(bad.voice_id)
    store.delete(bad.voice_id)
    assert not (store.folder / bad.voice_id).exists()


def test_an_empty_folder_is_no_voice(store: VoiceStore) -> None:
    store.add(a_record(), REFERENCE, VOICE)
    (store.folder / new_voice_id()).mkdir()
    assert len(store.list()) == 1


@pytest.mark.parametrize("content", [b"", b"RIFF", b"\0" * 5_000])
def test_a_damaged_recording_is_reported(store: VoiceStore, content: bytes) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    (store.folder / record.voice_id / "reference.wav").write_bytes(content)
    with pytest.raises(VoiceError, match="damaged"):
        store.reference(record.voice_id)


def test_a_shortened_recording_is_reported(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    path = store.folder / record.voice_id / "reference.wav"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(VoiceError, match="damaged"):
        store.reference(record.voice_id)


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, bytes(200)])
def test_a_damaged_engine_cache_counts_as_missing(store: VoiceStore, content: bytes) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    (cache,) = (store.folder / record.voice_id).glob("engine-*")
    cache.write_bytes(content)
    assert store.voice(record.voice_id, "lite/1") is None
    store.put_voice(record.voice_id, VOICE)
    assert store.voice(record.voice_id, "lite/1") is not None


def test_records_of_a_later_version_are_read(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    path = store.folder / record.voice_id / "voice.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "later": 1}))
    assert store.get(record.voice_id) == record


def test_the_number_of_voices_is_limited(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path, max_voices=2)
    first = a_record()
    store.add(first, REFERENCE, VOICE)
    store.add(a_record(), REFERENCE, VOICE)
    with pytest.raises(LimitExceeded, match="at most 2 stored voices"):
        store.add(a_record(), REFERENCE, VOICE)
    store.delete(first.voice_id)
    store.add(a_record(), REFERENCE, VOICE)


def test_voices_are_listed_oldest_first(store: VoiceStore) -> None:
    for day in (3, 1, 2):
        store.add(a_record(created_at=f"2026-01-0{day}T00:00:00Z"), REFERENCE, VOICE)
    assert [record.created_at[:10] for record in store.list()] == [
        "2026-01-01", "2026-01-02", "2026-01-03",
    ]  # fmt: skip


def test_a_failed_write_leaves_nothing(store: VoiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def full_disk(path: Path, data: bytes) -> None:
        nonlocal written
        written += 1
        if written == 2:
            raise OSError(28, "No space left on device")
        path.write_bytes(data)

    monkeypatch.setattr(voices_module, "write", full_disk)
    with pytest.raises(VoiceError, match="No space left on device"):
        store.add(a_record(), REFERENCE, VOICE)
    assert [entry.name for entry in store.folder.iterdir()] == [".lock"]


def test_a_file_in_the_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = VoiceStore(tmp_path / "file" / "voices")
    with pytest.raises(VoiceError, match="cannot be written"):
        store.add(a_record(), REFERENCE, VOICE)


def test_threads_add_read_and_delete_together(store: VoiceStore) -> None:
    def live(number: int) -> VoiceRecord:
        kept, gone = a_record(name=f"kept {number}"), a_record()
        store.add(kept, REFERENCE, VOICE)
        store.add(gone, REFERENCE, VOICE)
        store.list()
        store.put_voice(kept.voice_id, replace(VOICE, engine="other"))
        store.delete(gone.voice_id)
        assert store.get(kept.voice_id) == kept
        return kept

    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(live, range(12)))
    assert {record.voice_id for record in store.list()} == {record.voice_id for record in kept}


def test_two_deletions_of_one_voice_are_one(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    barrier = threading.Barrier(4)

    def delete(_: int) -> bool:
        barrier.wait()
        try:
            store.delete(record.voice_id)
        except VoiceNotFound:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(delete, range(4))) == 1


def test_leftovers_are_swept_up_unless_someone_is_writing(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    for name in (f".new-{new_voice_id()}", f".gone-{new_voice_id()}-00000000"):
        (store.folder / name).mkdir()
        (store.folder / name / "reference.wav").touch()
    (store.folder / record.voice_id / ".new-engine-0").touch()
    with store._shared_lock():
        VoiceStore(store.folder)
        assert len(list(store.folder.iterdir())) == 4
    assert VoiceStore(store.folder).list() == [record]
    assert {entry.name for entry in store.folder.iterdir()} == {record.voice_id, ".lock"}
    assert len(list((store.folder / record.voice_id).iterdir())) == 3


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.rglob("*")}


WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    import numpy as np
    from cosyvoice_stream.types import ReferenceAudio, Voice
    from cosyvoice_stream.voice_files import VoiceRecord
    from cosyvoice_stream.voices import VoiceStore, new_voice_id, timestamp

    store = VoiceStore(Path(sys.argv[1]), max_voices=100_000)
    reference = ReferenceAudio(np.full(72_000, 0.25, np.float32), 24_000, 8_000.0)
    voice = Voice("", "", "lite/1", {"eq": np.ones(20_000, np.float32)})
    mine = []
    print("writing", flush=True)
    while True:
        record = VoiceRecord(
            new_voice_id(), "x", "adapted", timestamp(), 3_000, 8_000.0, "lite", "lite/1"
        )
        store.add(record, reference, voice)
        store.put_voice(record.voice_id, voice)
        mine.append(record.voice_id)
        if len(mine) > 3:
            store.delete(mine.pop(0))
""")


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_kill_at_any_moment_leaves_complete_voices_only(tmp_path: Path) -> None:
    chance = random.Random(7)
    leftovers = 0
    rounds = 0
    while rounds < 6 or (not leftovers and rounds < 60):
        rounds += 1
        writer = subprocess.Popen(
            [sys.executable, "-P", "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == b"writing\n"
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(chance.uniform(0.02, 0.15))
        finally:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
        leftovers += sum(name.startswith((".new", ".gone")) for name in names(tmp_path))
        store = VoiceStore(tmp_path)
        records = store.list()
        assert not any(name.startswith((".new", ".gone")) for name in names(tmp_path))
        assert {*os.listdir(tmp_path)} == {".lock", *(record.voice_id for record in records)}
        for record in records:
            np.testing.assert_allclose(store.reference(record.voice_id).samples, 0.25, atol=1e-4)
            voice = store.voice(record.voice_id, "lite/1")
            assert voice is not None
            assert voice.tensors["eq"].sum() == 20_000
    assert leftovers, "no kill hit a write; the test shows nothing"


def test_the_recording_is_a_plain_wav_file(store: VoiceStore) -> None:
    record = a_record()
    store.add(record, REFERENCE, VOICE)
    with wave.open(str(store.folder / record.voice_id / "reference.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        assert file.getnframes() == len(REFERENCE.samples)
