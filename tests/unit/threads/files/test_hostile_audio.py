"""Broken and hostile audio files with the real decoder; only where the extra ``audio`` is installed."""

import asyncio
import importlib.util
import os
import random
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import NotTranscribed
from holdfast.threads.files import whisper
from holdfast.threads.files.whisper import Whisper

_REAL = importlib.util.find_spec(whisper.ENGINE)
pytestmark = [pytest.mark.anyio, pytest.mark.skipif(_REAL is None, reason="holdfast[audio] is not installed")]

# The decoder is the real one; in place of a model there is somebody who tells how many samples came out.
ENGINE = """
import importlib.util
spec = importlib.util.spec_from_file_location("real_audio", {audio!r})
real = importlib.util.module_from_spec(spec)
spec.loader.exec_module(real)
decode_audio = real.decode_audio
class Segment:
    def __init__(self, text): self.text = text
class WhisperModel:
    def __init__(self, *_, **__): pass
    def transcribe(self, samples, vad_filter): return [Segment(f"{{len(samples)}} samples")], None
"""
RATE = 16_000
SECONDS = 60.0


def wav(
    samples: bytes = bytes(2 * RATE),
    *,
    rate: int = RATE,
    channels: int = 1,
    bits: int = 16,
    claimed: int | None = None,
    kind: int = 1,
) -> bytes:
    size = len(samples) if claimed is None else claimed
    about = struct.pack("<HHIIHH", kind, channels, rate, rate * 2 & 0xFFFFFFFF, 2, bits)
    head = b"RIFF" + struct.pack("<I", 0xFFFFFFFF if claimed else 36 + size) + b"WAVEfmt " + struct.pack("<I", 16)
    return head + about + b"data" + struct.pack("<I", size) + samples


def ogg(seed: int) -> bytes:
    """Pages whose heads are right and whose content is noise."""
    noise = random.Random(seed)
    page = b"OggS" + bytes([0, 2]) + bytes(8) + struct.pack("<III", 1, 0, 0) + bytes([4]) + bytes([255] * 4)
    names = (b"\x01vorbis", b"OpusHead", b"\x7fFLAC", b"Speex   ")
    return (page + names[seed % 4] + noise.randbytes(4 * 255 - 8)) * 20


def atom(kind: bytes, content: bytes, size: int | None = None) -> bytes:
    return struct.pack(">I", 8 + len(content) if size is None else size) + kind + content


HOSTILE = {
    "empty": b"",
    "a head alone": wav(b""),
    "cut off": wav()[:-7],
    "a length of 4 GB": wav(claimed=0xFFFFFFFF),
    "no rate": wav(rate=0),
    "one sample a second, for hours": wav(bytes(1 << 16), rate=1),
    "a rate of 4 GHz": wav(rate=0xFFFFFFFF),
    "65535 channels": wav(channels=0xFFFF),
    "no channel": wav(channels=0),
    "no bits": wav(bits=0),
    "65535 bits": wav(bits=0xFFFF),
    "an unknown coding": wav(kind=0xFFFE),
    "ogg 0": ogg(0),
    "ogg 1": ogg(1),
    "ogg 2": ogg(2),
    "ogg 3": ogg(3),
    "flac": b"fLaC" + b"\x80\xff\xff\xff" + bytes(4096),
    "id3 without an end": b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f" + bytes(4096),
    "atoms in atoms": atom(b"ftyp", b"M4A ") + b"".join([struct.pack(">I", 0x7FFFFFFF) + b"moov"] * 2000),
    "an atom of 4 GB": atom(b"ftyp", b"M4A ") + atom(b"mdat", b"x", 0xFFFFFFFF),
    "matroska": b"\x1aE\xdf\xa3\x01\xff\xff\xff\xff\xff\xff\xff" + bytes(4096),
    "noise": random.Random(5).randbytes(1 << 16),
}


@pytest.fixture
def ear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Whisper:
    assert _REAL is not None and _REAL.origin is not None
    places = tmp_path / "engine"
    places.mkdir()
    audio = Path(_REAL.origin).with_name("audio.py")
    (places / f"{whisper.ENGINE}.py").write_text(ENGINE.format(audio=str(audio)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(places), str(audio.parents[1])]))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.bin").write_bytes(b"")
    return Whisper(tmp_path / "model", seconds=SECONDS)


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that everybody on this machine may read."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        Path(place).chmod(0o755)
        yield Path(place)


def kept(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "memo.ogg"
    path.write_bytes(content)
    return path


async def test_what_is_right_is_decoded(ear: Whisper, tmp_path: Path) -> None:
    assert await ear.transcribe(kept(tmp_path, wav()), "ann") == f"{RATE} samples\n"


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_wrong_ends_soon_and_harms_nobody(ear: Whisper, tmp_path: Path, name: str) -> None:
    begun = time.monotonic()
    try:
        said = await ear.transcribe(kept(tmp_path, HOSTILE[name]), "ann")
    except NotTranscribed as refused:
        assert "longer than" not in refused.message
        assert str(tmp_path) not in refused.message
        assert len(refused.message) < 500
    else:
        assert int(said.split()[0]) < 200 * RATE * 3600, said
    assert time.monotonic() - begun < SECONDS


@pytest.mark.parametrize(
    "text",
    [
        "ffconcat version 1.0\nfile {other}\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{other}\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{url}\n#EXT-X-ENDLIST\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio {port} RTP/AVP 0\n",
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet>'
        '<Representation id="1" mimeType="audio/wav"><BaseURL>{url}</BaseURL></Representation></AdaptationSet>'
        "</Period></MPD>",
    ],
    ids=["concat", "hls file", "hls url", "sdp", "dash"],
)
async def test_a_file_that_names_others_gets_nothing_of_them(
    ear: Whisper, tmp_path: Path, open_dir: Path, text: str
) -> None:
    """Lists of files are formats, too: neither another one's recording nor an address of the host is opened."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(100))
        writer.close()

    other = open_dir / "other.wav"
    other.write_bytes(wav())
    other.chmod(0o644)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        hostile = text.format(other=other, url=f"http://127.0.0.1:{port}/a.wav", port=port)
        with pytest.raises(NotTranscribed):
            await ear.transcribe(kept(tmp_path, hostile.encode()), "ann")
    assert asked == []
