"""The process that listens, with an engine of our own in place of the real one; and the errors where there is none."""

import asyncio
import importlib
import importlib.util
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from holdfast.errors import NotTranscribed
from holdfast.threads.files import whisper, whisper_child
from holdfast.threads.files.voice import NoTranscriber
from holdfast.threads.files.whisper import Whisper
from support.waiting import until

pytestmark = pytest.mark.anyio
ENGINE = """
import os, resource, time
class Segment:
    def __init__(self, text): self.text = text
class Samples(bytes):
    def astype(self, kind): return self
    def tobytes(self): return bytes(self)
def decode_audio(file):
    said = file.read().decode()
    if said == "hang": time.sleep(600)
    if said == "break": raise ValueError(f"this is no audio: {file.name}")
    if said == "noise":
        for _ in range(100): os.write(2, b"complaint " * 100_000)
        raise ValueError("that was all")
    if said == "env": said = " ".join(sorted(os.environ))
    if said == "memory":
        said = f"{resource.getrlimit(resource.RLIMIT_DATA)[1]} " + open("/proc/self/oom_score_adj").read()
    if said == "long": return Samples(b"x" * int(os.environ["TMPDIR"]))
    if said == "rights": said = f"{os.getuid()} {os.getgid()} {os.getgroups()}"
    return Samples(said.encode())
class WhisperModel:
    def __init__(self, model, device, compute_type, local_files_only):
        assert local_files_only and os.path.isfile(model + "/model.bin")
    def transcribe(self, samples, vad_filter):
        return (Segment(" " + part) for part in samples.decode().split("|")), None
"""
NUMPY = "def frombuffer(data, dtype): return data\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.bin").write_bytes(b"")
    return model


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / f"{whisper.ENGINE}.py").write_text(ENGINE)
    (tmp_path / "engine" / "numpy.py").write_text(NUMPY)
    monkeypatch.syspath_prepend(tmp_path / "engine")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "engine"))
    importlib.invalidate_caches()


def file(tmp_path: Path, said: str) -> Path:
    return named(tmp_path, "memo", said)


def named(tmp_path: Path, name: str, said: str) -> Path:
    path = tmp_path / f"{name}.ogg"
    path.write_text(said)
    return path


@pytest.mark.usefixtures("engine")
async def test_what_is_said(model: Path, tmp_path: Path) -> None:
    assert await Whisper(model).transcribe(file(tmp_path, "one two|three"), "ann") == "one two\nthree\n"


@pytest.mark.usefixtures("engine")
async def test_it_does_not_have_the_daemons_keys(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    names = (await Whisper(model).transcribe(file(tmp_path, "env"), "ann")).split()
    assert "PATH" in names
    assert "ANTHROPIC_API_KEY" not in names


@pytest.mark.usefixtures("engine")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
async def test_a_file_is_decoded_by_nobody(model: Path, tmp_path: Path) -> None:
    secret = file(tmp_path, "rights")
    secret.chmod(0o600)
    assert (await Whisper(model).transcribe(secret, "ann")).startswith("65534 65534 []")


@pytest.mark.usefixtures("engine")
async def test_a_file_may_take_half_of_the_free_memory(model: Path, tmp_path: Path) -> None:
    """And if that is too much, it is the one whom the kernel ends."""
    limit, score = (await Whisper(model).transcribe(file(tmp_path, "memory"), "ann")).split()
    assert 0 < int(limit) < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") + (1 << 30)
    assert score == "1000"


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", [65 << 20, 513 << 20])
async def test_a_file_that_is_longer_than_that(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Whether the decoder finds no room, or has sent more than it may have."""
    child = tmp_path / "child.py"
    source = Path(whisper_child.__file__).read_text()
    child.write_text(source.replace("free // 2, _LEAST_ROOM", "0, 64 << 20").replace("taken + room", "512 << 20"))
    monkeypatch.setattr(whisper, "_CHILD", child)
    monkeypatch.setenv("TMPDIR", str(size))
    with pytest.raises(NotTranscribed, match="too long for the memory"):
        await Whisper(model).transcribe(file(tmp_path, "long"), "ann")


@pytest.mark.usefixtures("engine")
async def test_a_file_that_is_no_audio(model: Path, tmp_path: Path) -> None:
    with pytest.raises(NotTranscribed, match="this is no audio: the file") as raised:
        await Whisper(model).transcribe(file(tmp_path, "break"), "ann")
    assert str(tmp_path) not in raised.value.message


@pytest.mark.usefixtures("engine")
async def test_a_decoder_that_says_too_much_costs_the_daemon_no_memory(model: Path, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(NotTranscribed, match="that was all"):
            await Whisper(model).transcribe(file(tmp_path, "noise"), "ann")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20, "it has said 100 MB"
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("engine")
async def test_it_has_a_deadline_and_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    with pytest.raises(NotTranscribed, match="longer than"):
        await Whisper(model, seconds=2).transcribe(file(tmp_path, "hang"), "ann")
    await until(lambda: not running(tmp_path), "it is gone")


@pytest.mark.usefixtures("engine")
async def test_who_gives_up_waiting_ends_it(model: Path, tmp_path: Path) -> None:
    listening = asyncio.ensure_future(Whisper(model).transcribe(file(tmp_path, "hang"), "ann"))
    await until(lambda: running(tmp_path), "it listens", every=0.05)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    await until(lambda: not running(tmp_path), "it is gone")


@pytest.mark.usefixtures("engine")
async def test_one_owners_slow_files_leave_a_place_for_others(model: Path, tmp_path: Path) -> None:
    ears = Whisper(model, seconds=30)
    slow = [asyncio.ensure_future(ears.transcribe(named(tmp_path, f"slow{n}", "hang"), "ann")) for n in range(5)]
    await until(lambda: running(tmp_path), "it listens", every=0.05)
    async with asyncio.timeout(20):
        assert await ears.transcribe(named(tmp_path, "bobs", "hello"), "bob") == "hello\n"
    assert not any(one.done() for one in slow)
    for one in slow:
        one.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


@pytest.mark.usefixtures("engine")
async def test_waiting_is_bounded_in_number_and_time(model: Path, tmp_path: Path) -> None:
    ears = Whisper(model, seconds=2)
    path = file(tmp_path, "hang")
    many = await asyncio.gather(*(ears.transcribe(path, "ann") for _ in range(40)), return_exceptions=True)
    said = [one.message for one in many if isinstance(one, NotTranscribed)]
    assert len(said) == 40
    assert sum("waiting already" in one for one in said) == 40 - 1 - whisper._WAITING
    assert sum("came first" in one for one in said) >= whisper._WAITING - 2


@pytest.mark.usefixtures("engine")
async def test_no_model_at_that_place(tmp_path: Path) -> None:
    with pytest.raises(NotTranscribed, match=r"no Whisper model .* in /nowhere"):
        await Whisper(Path("/nowhere")).transcribe(file(tmp_path, "x"), "ann")


@pytest.mark.skipif(importlib.util.find_spec(whisper.ENGINE) is not None, reason="the extra is installed here")
async def test_without_the_extra(model: Path, tmp_path: Path) -> None:
    assert whisper.ENGINE not in sys.modules
    with pytest.raises(NotTranscribed, match=r"install holdfast\[audio\]"):
        await Whisper(model).transcribe(file(tmp_path, "x"), "ann")


async def test_without_any_setting(tmp_path: Path) -> None:
    with pytest.raises(NotTranscribed, match="set transcription_model"):
        await NoTranscriber().transcribe(tmp_path, "ann")


def running(tmp_path: Path) -> bool:
    """Whether there is a process that was given a file of this test's."""
    return any(_is_ours(path, tmp_path) for path in Path("/proc").glob("[0-9]*/cmdline"))


def _is_ours(cmdline: Path, tmp_path: Path) -> bool:
    try:
        return str(tmp_path).encode() in cmdline.read_bytes()
    except OSError:
        return False
