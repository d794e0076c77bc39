"""The process that listens: ``python whisper_child.py MODEL FILE`` prints what is said in a file, a line per pause.

Decoders are large, and the files are strangers'. So a file is decoded in a process that has no rights left: nobody's,
and without a network, where the daemon is root. What comes out of it are plain samples. A small file can hold days of
silence: neither the decoder nor its samples get more than half of the memory that is free, and where that runs out all
the same, it is this process that the kernel ends, and no other.
"""

import ctypes
import importlib
import os
import resource
import signal
import sys
import traceback
from typing import Any, NoReturn

_NOBODY = 65534
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SAMPLES = "float32"
_LEAST_ROOM = 256 << 20
_TOO_LONG = "it is too long for the memory of this machine"


def main(model: str, path: str) -> None:
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    engine = importlib.import_module("faster_whisper")  # an extra: it need not be there when types are checked
    samples = _decoded(engine, path)
    whisper = engine.WhisperModel(model, device="auto", compute_type="default", local_files_only=True)
    segments, _info = whisper.transcribe(samples, vad_filter=False)
    for segment in segments:
        sys.stdout.write(segment.text.strip() + "\n")


def _decoded(engine: Any, path: str) -> Any:  # of numpy, which is the engine's and need not be there either
    reader, writer = os.pipe()
    room = _room()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _decode(engine, path, writer, room)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read(room + 1)
        if len(data) > room:
            os.kill(child, signal.SIGKILL)  # before it can complain that nobody reads
            sys.exit(_TOO_LONG)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(1)  # it has said why
    return importlib.import_module("numpy").frombuffer(data, dtype=_SAMPLES)


def _room() -> int:
    """Return how many bytes a file may take when it is decoded."""
    with open("/proc/meminfo") as told:
        free = next(int(line.split()[1]) << 10 for line in told if line.startswith("MemAvailable:"))
    return max(free // 2, _LEAST_ROOM)


def _decode(engine: Any, path: str, writer: int, room: int) -> NoReturn:
    status = 1
    try:
        with open(path, "rb") as file, open(writer, "wb") as pipe:
            _limit_memory(room)
            _give_up_rights()
            pipe.write(engine.decode_audio(file).astype(_SAMPLES).tobytes())
        status = 0
    except MemoryError:
        sys.stderr.write(f"{_TOO_LONG}\n")
        sys.stderr.flush()
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def _limit_memory(room: int) -> None:
    """Allow so much beside what the engine has taken already."""
    with open("/proc/self/status") as told:
        taken = next(int(line.split()[1]) << 10 for line in told if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (taken + room, taken + room))


def _give_up_rights() -> None:
    libc = ctypes.CDLL(None)
    if os.geteuid() == 0:
        libc.unshare(_CLONE_NEWNET)  # not in every container; being nobody is what counts
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # last: whoever becomes another user loses it


if __name__ == "__main__":
    main(*sys.argv[1:])
