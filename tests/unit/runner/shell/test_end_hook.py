"""What a shell leaves behind at its end: read with suspicion, and never shown as the user's own."""

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.runner.shell import end_hook
from holdfast.runner.shell.bash_text import STATE_SECTIONS, State

DUMP = b"variables\0functions\0aliases\0shopts\0options\ntraps\0"


def run_bash(directory: Path, command: str) -> subprocess.CompletedProcess[bytes]:
    """An interactive bash with the trap in its place, which runs one command."""
    end_hook.write(str(directory))
    lines = f"{end_hook.keep(str(directory))}\n{command}\n"
    argv = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    return subprocess.run(argv, input=lines.encode(), capture_output=True, timeout=60, check=False)


def test_what_a_shell_tells_is_read_once(tmp_path: Path) -> None:
    ended = run_bash(tmp_path, "cd /; mine=5; f() { local mine=6 hidden=7; exit 4; }; f")
    assert ended.returncode == 4
    found = end_hook.take(str(tmp_path))
    assert found is not None
    cwd, dump = found
    assert cwd == "/"
    assert b'declare -- mine="5"' in dump and b"hidden" not in dump.split(b"\0")[0]
    assert dump.count(b"\0") == STATE_SECTIONS
    assert end_hook.take(str(tmp_path)) is None


def test_our_trap_is_not_the_users(tmp_path: Path) -> None:
    run_bash(tmp_path, "exit")
    told = end_hook.take(str(tmp_path))
    assert told is not None
    dump, was_there = end_hook.split(told[1], str(tmp_path))
    assert was_there and b" EXIT\n" not in dump
    run_bash(tmp_path, f"builtin trap 'echo '\\''bye'\\''' EXIT; {end_hook.keep(str(tmp_path))}; exit")
    told = end_hook.take(str(tmp_path))
    assert told is not None
    dump, was_there = end_hook.split(told[1], str(tmp_path))
    assert was_there and b"trap -- 'echo '\\''bye'\\''' EXIT\n" in dump
    assert end_hook.split(DUMP, str(tmp_path)) == (DUMP, False)


@pytest.mark.parametrize("junk", [b"", b"nonsense", b"end\0/\0" + DUMP[:-1], b"end\0/\0" + DUMP + b"\0", b"end\0/"])
def test_junk_is_no_state(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "last").write_bytes(junk)
    assert end_hook.take(str(tmp_path)) is None


def test_nothing_that_a_command_puts_there_holds_us_up(tmp_path: Path) -> None:
    for name in end_hook.NAMES:
        os.mkfifo(tmp_path / name)
    assert end_hook.take(str(tmp_path)) is None
    end_hook.write(str(tmp_path))
    assert (tmp_path / "end").is_file() and (tmp_path / "tell").is_file()
    (tmp_path / "keep").unlink()
    (tmp_path / "keep").mkdir()
    end_hook.write(str(tmp_path))
    (tmp_path / "last").unlink(missing_ok=True)
    (tmp_path / "last").symlink_to("/etc/passwd")
    assert end_hook.take(str(tmp_path)) is None


def test_a_directory_in_its_place_costs_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert end_hook.take(str(tmp_path)) is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_function_only_where_it_is_needed() -> None:
    assert end_hook.needs_function(b"trap 'x' EXIT; exit")
    assert end_hook.needs_function(b"trap x 0")
    for other in (b"echo EXIT", b"trap x INT", b"trap x RETURN EXIT", b"trap() { :; }; trap x EXIT"):
        assert not end_hook.needs_function(other)


@pytest.mark.parametrize(
    ("variables", "hook"),
    [
        (b"declare -- PROMPT_COMMAND=x\n", True),
        (b"declare -- PS0=x\n", True),
        (b'declare -- PS1="\\$(date)"\n', True),
        (b'declare -- PS1="\\s-\\v\\$ "\ndeclare -- X="\\$(date)"\n', False),
        (b"declare -- X=x\n", False),
    ],
)
def test_prompts_that_run_something_are_known(variables: bytes, hook: bool) -> None:
    state = State(DUMP.replace(b"variables", variables), builtin_is_hidden=False)
    assert state.has_prompt_hook is hook
