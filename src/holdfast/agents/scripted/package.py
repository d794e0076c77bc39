"""Packs the scripted agent's program into one file for a sandbox, and makes the command line that starts it."""

import functools
import hashlib
import io
import re
import shlex
import zipfile
from pathlib import Path

import holdfast
from holdfast.vocabulary.models import channel_tag

_PACKAGE = Path(holdfast.__file__).parent
_INSIDE = "agents/scripted/inside"
_MODULE = "holdfast.agents.scripted.inside.main"
_MODULES = ("protocol/compact_json.py", *(f"{_INSIDE}/{name}.py" for name in ("script", "disk", "command", "main")))
_PARENTS = ("", "protocol/", "agents/", "agents/scripted/", f"{_INSIDE}/")
_NEVER = (1980, 1, 1, 0, 0, 0)  # the same content gives the same file
_MARK = re.compile(r"holdfast-scripted:([0-9a-f]{16}):([0-9]{1,9})$")


@functools.cache
def program() -> bytes:
    """Return an archive that Python imports from; not compressed, since the runtime bundle's Python cannot unpack."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for parent in _PARENTS:
            archive.writestr(zipfile.ZipInfo(f"holdfast/{parent}__init__.py", _NEVER), b"")
        for module in _MODULES:
            archive.writestr(zipfile.ZipInfo(f"holdfast/{module}", _NEVER), (_PACKAGE / module).read_bytes())
    return buffer.getvalue()


@functools.cache
def program_name() -> str:
    return f"scripted-{hashlib.sha256(program()).hexdigest()[:16]}.zip"


def mark(channel: str, generation: int) -> str:
    """Return the mark by which an agent's process is found in the list of processes; the newest generation counts."""
    return f"holdfast-scripted:{channel_tag(channel)}:{generation}"


def generation_of(command: str, channel: str) -> int | None:
    """Return the generation of the agent that was started by this command line; None if it is none of this channel."""
    found = _MARK.search(command)
    return int(found[2]) if found and found[1] == channel_tag(channel) else None


def start_line(archive: str, home: str, mark: str) -> str:
    """Return the command line for bash: it uses the runtime bundle's Python, or else the image's own."""
    code = f"import sys; sys.path.insert(0, {archive!r}); from {_MODULE} import main; main()"
    python = f"-I -S -X frozen_modules=on -c {shlex.quote(code)} {shlex.quote(home)} {mark}"
    bundle = "/.holdfast"
    return (
        f'for loader in {bundle}/lib/ld*.so*; do [ -x "$loader" ] && '
        f'exec "$loader" --library-path {bundle}/lib {bundle}/bin/python {python}; done; '
        f"exec python3 {python}"
    )
