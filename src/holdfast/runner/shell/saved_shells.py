"""A session's shells, as they are kept while the sandbox does not run: directories and states, in one body.

{"shells": [{"name", "cwd", "hidden", "bytes"}, …]} + the dumps, one after the other
"""

from __future__ import annotations

import os

from holdfast.protocol.frames import Header
from holdfast.runner.shell.bash_text import STATE_SECTIONS, State, quote
from holdfast.runner.shell.last_known import LastKnown


def pack(shells: dict[str, LastKnown]) -> tuple[Header, bytes]:
    listed: list[Header] = []
    body = bytearray()
    for name, known in shells.items():
        state = known.state
        dump = state.dump if state is not None else b""
        hidden = state is not None and state.builtin_is_hidden
        listed.append({"name": name, "cwd": known.cwd, "hidden": hidden, "bytes": len(dump)})
        body += dump
    return {"shells": listed}, bytes(body)


def unpack(header: Header, body: bytes, own: dict[str, str | None]) -> dict[str, tuple[str, State | None]]:
    """Unpack saved shells, with the variables in ``own`` set so, or (None) unset, whatever they were.

    Raises ``ValueError`` or ``TypeError`` on what we never wrote.
    """
    renewal = b"".join(_assignment(name, value) for name, value in own.items() if name.isidentifier())
    listed = header.get("shells")
    if not isinstance(listed, list):
        raise TypeError("shells must be a list")
    found: dict[str, tuple[str, State | None]] = {}
    for one in listed:
        name, cwd, size = one["name"], one["cwd"], one["bytes"]
        if not isinstance(name, str) or not isinstance(cwd, str) or not isinstance(size, int) or size > len(body):
            raise TypeError("a saved shell makes no sense")
        dump, body = body[:size], body[size:]
        if dump and dump.count(b"\0") != STATE_SECTIONS:
            raise ValueError("the state of a shell is damaged")
        dump = dump.replace(b"\0", renewal + b"\0", 1)  # its variables come first
        state = State(dump, builtin_is_hidden=bool(one.get("hidden"))) if dump else None
        found[name] = (cwd if os.path.isdir(cwd) else "/", state)
    return found


def _assignment(name: str, value: str | None) -> bytes:
    """Return a line for the end of a dump's variables."""
    if value is None:
        return f"\\builtin unset {name}\n".encode()
    return f"declare -x {name}={quote(value)}\n".encode("utf-8", "surrogateescape")
