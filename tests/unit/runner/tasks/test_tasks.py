"""Workers, asked directly over a socket: what they do to a tree, and what they leave when the host hangs up."""

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.protocol import frames
from holdfast.runner import linux
from holdfast.runner.lean import sockets
from holdfast.runner.tasks import TASKS, channel, serve
from holdfast.runner.tasks.channel import Channel

Header = frames.Header


class Host:
    """The other end of a worker's connection."""

    def __init__(self) -> None:
        self.socket, inside = socket.socketpair()
        self.socket.settimeout(20)
        self._thread = threading.Thread(target=self._work, args=[inside])
        self._thread.start()
        self._decoder = frames.Decoder()
        self._frames: list[frames.Frame] = []

    def _work(self, inside: sockets.socket) -> None:
        with inside:
            serve(inside)

    def send(self, header: Header, body: bytes = b"") -> None:
        self.socket.sendall(frames.encode(header, body))

    def receive(self) -> frames.Frame:
        while not self._frames:
            data = self.socket.recv(1 << 16)
            assert data, "the worker hung up"
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def hang_up(self) -> None:
        self.socket.close()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Header]]:
    monkeypatch.chdir(tmp_path)  # removing a tree goes into it
    hosts: list[Host] = []

    def go(task: str, **fields: object) -> Header:
        host = Host()
        hosts.append(host)
        host.send({"task": task, **fields})
        return host.receive()[0]

    yield go
    for host in hosts:
        host.hang_up()


def code(answer: Header) -> object:
    error = answer.get("error")
    assert isinstance(error, dict), answer
    return error["code"]


def test_every_task_can_be_found() -> None:
    for module, function in TASKS.values():
        assert callable(getattr(__import__(f"holdfast.runner.tasks.{module}", fromlist=[function]), function))


def test_an_upload_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_text("old")
    for body in (b"", b"half"):
        host = Host()
        host.send({"task": "put", "path": str(target), "mode": None})
        if body:
            host.send({}, body)
        host.hang_up()
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("f", "old")]


def test_a_worker_that_is_asked_for_nothing_does_nothing(tmp_path: Path) -> None:
    Host().hang_up()
    half = Host()
    half.socket.sendall(frames.encode({"task": "remove", "path": str(tmp_path), "recursive": True})[:-1])
    half.hang_up()
    assert tmp_path.exists()


def test_what_makes_no_sense_is_refused(ask: Callable[..., Header]) -> None:
    assert code(ask("nonsense")) == "protocol_error"
    assert code(ask("stat")) == "protocol_error"
    assert code(ask("list", path="/", limit="x")) == "protocol_error"


def test_a_copy_that_fails_leaves_nothing(
    ask: Callable[..., Header], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "sendfile", full)
    assert code(ask("copy", source=f"{tmp_path}/d", target=f"{tmp_path}/e", recursive=True)) == "disk_full"
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_a_move_between_file_systems(
    ask: Callable[..., Header], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")
    rename = linux.rename_to_new

    def across(source: str, target: str) -> bool:
        if ".holdfast-" not in source:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(source, target)

    monkeypatch.setattr(linux, "rename_to_new", across)
    assert "entry" in ask("move", source=f"{tmp_path}/d", target=f"{tmp_path}/e")
    assert [path.name for path in tmp_path.iterdir()] == ["e"] and (tmp_path / "e" / "f").read_text() == "x"


def test_a_rename_that_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    assert linux.rename_to_new(f"{tmp_path}/a", f"{tmp_path}/b") is False
    assert linux.rename_to_new(f"{tmp_path}/a", f"{tmp_path}/c") is True
    assert (tmp_path / "b").read_text() == "b" and (tmp_path / "c").read_text() == "a"
    with pytest.raises(FileNotFoundError):
        linux.rename_to_new(f"{tmp_path}/a", f"{tmp_path}/d")


def test_long_work_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "BUSY_SECONDS", -1.0)
    outside, inside = socket.socketpair()
    with outside, inside:
        Channel(inside).busy()
        assert frames.Decoder().feed(outside.recv(100)) == [({"busy": True}, b"")]
