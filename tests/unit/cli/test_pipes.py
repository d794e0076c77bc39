"""A reader that has seen enough (``| head``) ends a verb quietly, with the status that a shell knows for that."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.api_host import ApiHost, running_api

PROGRAM = "from holdfast.cli.main import main; main()"
BROKEN_PIPE = 141


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHost]:
    with running_api() as running:
        running.run(running.tell("created"))
        yield running


def run(api: ApiHost, *words: str, close: tuple[int, ...] = ()) -> tuple[int, bytes]:
    """With nobody at the other end of standard output; or with streams closed from the beginning."""
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOLDFAST_URL": api.url, "HOLDFAST_API_KEY": api.key},
        preexec_fn=lambda: _close(close),
    ) as running:
        os.close(writing)
        _, said = running.communicate(timeout=60)
    return running.returncode, said


def _close(numbers: tuple[int, ...]) -> None:
    for number in numbers:
        os.close(number)


@pytest.mark.parametrize(
    "words",
    [("--help",), ("ls", "--help"), ("--version",), ("ls",), ("--json", "ls"), ("events",), ("image", "ls"), ("new",)],
    ids=" ".join,
)
def test_a_broken_pipe_ends_quietly(api: ApiHost, words: tuple[str, ...]) -> None:
    assert run(api, *words) == (BROKEN_PIPE, b"")


def test_a_command_whose_output_nobody_reads_is_ended(api: ApiHost) -> None:
    one = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--url", api.url, "--key", api.key, "new"], capture_output=True, text=True
    ).stdout.strip()
    api.files(one)["/w/text"] = b"out" * 100_000
    assert run(api, "cp", f"{one}:/w/text", "-") == (BROKEN_PIPE, b"")
    assert run(api, "exec", one, "--", "echo hi") == (BROKEN_PIPE, b"")


def test_a_full_disk_is_told_in_one_line_and_ends_the_command(api: ApiHost) -> None:
    """Where the output cannot be written: a traceback of generators that were left open told nobody anything."""
    account = ["--url", api.url, "--key", api.key]
    program = [sys.executable, "-c", PROGRAM, *account]
    one = subprocess.run([*program, "new"], capture_output=True, text=True).stdout.strip()
    for words in (("ls",), ("version",), ("exec", one, "--", "echo hi")):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*program, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (1, "holdfast: [Errno 28] No space left on device\n"), words


def test_closed_streams_are_no_traceback(api: ApiHost) -> None:
    status, said = run(api, "ls", close=(0, 1))
    assert (status, said) in ((0, b""), (0, b"no sessions; `holdfast new` makes one\n"))
