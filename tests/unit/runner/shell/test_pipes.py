"""The pipes of one command serve the next, unless anything about them is odd."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from holdfast.runner.loop import HANG_UP, READ, Loop
from holdfast.runner.shell.pipes import Pipes, WriteOrder, read


class Watches:
    """A loop without the waiting: who watches what."""

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, _events: int, handler: Callable[[int], None]) -> None:
        self.handlers[fd] = handler

    def unwatch(self, fd: int) -> None:
        self.handlers.pop(fd, None)


@pytest.fixture
def watches() -> Watches:
    return Watches()


@pytest.fixture
def order() -> Iterator[WriteOrder]:
    order = WriteOrder()
    yield order
    if order._fd >= 0:
        os.close(order._fd)


@pytest.fixture
def pipes(watches: Watches, order: WriteOrder, tmp_path: Path) -> Iterator[Pipes]:
    pipes = Pipes(cast(Loop, watches), order, str(tmp_path / "run" / "1"))
    yield pipes
    pipes.close(outputs=True)
    assert watches.handlers == {}, "nothing is watched any more"


def take_up(pipes: Pipes, cmd: bytes = b"true\n") -> None:
    pipes.take_up(cmd, lambda: None, lambda _events: None, lambda: None)


def path(pipes: Pipes, name: str) -> Path:
    return Path(pipes.directory, name)


def test_one_command_after_the_other(pipes: Pipes) -> None:
    for cmd in (b"a long command\n", b"short\n", b"a long command\n"):
        take_up(pipes, cmd)
        assert path(pipes, "cmd").read_bytes() == cmd
        assert not pipes.begun()
        with path(pipes, "out").open("wb") as out, path(pipes, "begun").open("wb"):
            out.write(cmd)
        assert pipes.begun()
        assert read(pipes.outputs[0], 100) == cmd
        pipes.add_file("in", b"stdin")
        pipes.end_outputs()
        assert pipes.lay_down()
        assert not path(pipes, "in").exists()


def test_that_a_command_has_begun_outlives_its_file(pipes: Pipes) -> None:
    take_up(pipes)
    path(pipes, "begun").write_bytes(b"")
    path(pipes, "begun").unlink()
    path(pipes, "begun").write_bytes(b"not so")
    assert pipes.begun()


@pytest.mark.parametrize("name", ["cmd", "begun", "out", "err", "result", "state"])
@pytest.mark.parametrize("replace", ["nothing", "file", "pipe", "link", "other"])
def test_what_was_replaced_is_not_used_again(pipes: Pipes, name: str, replace: str) -> None:
    take_up(pipes)
    pipes.end_outputs()
    assert pipes.lay_down()
    old = path(pipes, name)
    old.rename(old.with_suffix(".old"))
    if replace == "file":
        old.touch()
    elif replace == "pipe":
        os.mkfifo(old)
    elif replace == "link":
        old.symlink_to(old.with_suffix(".old"))
    elif replace == "other":
        old.mkdir()
    with pytest.raises(OSError):
        take_up(pipes)


def test_a_directory_that_is_gone_is_not_used_again(pipes: Pipes) -> None:
    take_up(pipes)
    for file in Path(pipes.directory).iterdir():
        file.unlink()
    Path(pipes.directory).rmdir()
    pipes.end_outputs()
    assert not pipes.lay_down()


def test_an_output_in_the_background_stays_open_until_it_is_let_go(pipes: Pipes, watches: Watches) -> None:
    take_up(pipes)
    background = os.open(path(pipes, "err"), os.O_WRONLY)
    pipes.end_outputs()
    assert list(pipes.outputs) == [1], "the other one has ended"
    assert not pipes.lay_down()
    pipes.close(outputs=False)
    assert pipes.in_use
    err = pipes.outputs[1]
    os.write(background, b"nobody minds")
    watches.handlers[err](READ)
    os.close(background)
    watches.handlers[err](HANG_UP)
    assert not pipes.in_use


def test_what_comes_between_commands_is_thrown_away(pipes: Pipes, watches: Watches) -> None:
    take_up(pipes)
    pipes.end_outputs()
    assert pipes.lay_down()
    for name, fd in (("result", pipes.result), ("out", pipes.outputs[0])):
        with path(pipes, name).open("wb") as pipe:
            pipe.write(b"forged")
        watches.handlers[fd](READ)
        assert read(fd, 100) is None


def test_no_descriptor_is_lost_when_they_cannot_be_made(
    watches: Watches, order: WriteOrder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkfifo

    def full(pipe: str, mode: int) -> None:
        if pipe.endswith("state"):
            raise OSError(errno.ENOSPC, "no space left")
        make(pipe, mode)

    monkeypatch.setattr(os, "mkfifo", full)
    before = open_descriptors()
    with pytest.raises(OSError, match="no space"):
        Pipes(cast(Loop, watches), order, str(tmp_path / "1"))
    assert open_descriptors() == before
    assert watches.handlers == {}
    assert not (tmp_path / "1").exists()


def open_descriptors() -> list[str]:
    return sorted(file.name for file in Path("/proc/self/fd").iterdir())
