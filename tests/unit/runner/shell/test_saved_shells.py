"""Saved shells: packed and unpacked the same, but for the variables that a copy has of its own."""

import subprocess

import pytest

from holdfast.runner.shell import saved_shells
from holdfast.runner.shell.bash_text import State
from holdfast.runner.shell.last_known import LastKnown

DUMP = b'declare -- A="1"\ndeclare -x B="2"\n\0\0\0\0\n\0'


def packed() -> tuple[dict[str, object], bytes]:
    known = LastKnown("/tmp", "/run/main")
    known.state = State(DUMP, builtin_is_hidden=False)
    return saved_shells.pack({"main": known})


def told(state: State | None) -> str:
    """What a bash says that goes on from there."""
    assert state is not None
    script = state.restore_script("/tmp", {}) + b'\nprintf "%s|" "${A-unset}" "${B-unset}" "${C-unset}"; printenv C'
    return subprocess.run(["bash", "-c", script], capture_output=True, check=False).stdout.decode()


def test_there_and_back() -> None:
    [(name, (cwd, state))] = saved_shells.unpack(*packed(), {}).items()
    assert (name, cwd) == ("main", "/tmp")
    assert state is not None and state.dump == DUMP
    assert told(state) == "1|2|unset|"


def test_variables_of_its_own() -> None:
    own = {"A": None, "B": "it's new", "C": "$HOME\n", "no name; exit": "x"}
    [(_, state)] = saved_shells.unpack(*packed(), own).values()
    assert told(state) == "unset|it's new|$HOME\n|$HOME\n\n"


def test_what_we_never_wrote() -> None:
    header, body = packed()
    with pytest.raises(ValueError, match="damaged"):
        saved_shells.unpack(header, body.replace(b"\0", b" ", 1), {})
    with pytest.raises(TypeError):
        saved_shells.unpack({"shells": None}, body, {})
