"""A visitor that writes and reads bytes as they are, and tells the program of ``script`` what to answer."""

import base64
import json
import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.gateway.visitor import Site, listens

SCRIPT = Path(__file__).parent / "script.py"
PORT = 3100
SECONDS = 20.0
HANDSHAKE = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
Step = Sequence[object]


def send(data: bytes) -> Step:
    return ["send", base64.b64encode(data).decode()]


def flood(data: bytes, count: int, times: int = 1) -> Step:
    """``data``, repeated so many ``times``; and all of that so often."""
    return ["flood", base64.b64encode(data).decode(), count, times]


def until(data: bytes) -> Step:
    return ["until", base64.b64encode(data).decode()]


def target(*steps: Step) -> bytes:
    """The path that has the program answer so."""
    return b"/x?" + base64.urlsafe_b64encode(json.dumps(steps).encode()).rstrip(b"=")


def whole(body: bytes = b"", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: " + str(len(body)).encode(), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def scripted(site: Site) -> Site:
    """Start the program in the session of ``site``; return the site of its port."""
    found = Site(site.daemon, site.session_id, PORT)
    path = {"path": "/workspace/script.py", "content": SCRIPT.read_text()}
    assert site.api("POST", "/fs/write", path).status_code == 200
    started = site.api("POST", "/processes", {"argv": ["python3", "/workspace/script.py", str(PORT)]})
    assert started.status_code == 201, started.text
    listens(found)
    return found


def heard(site: Site) -> list[dict[str, Any]]:
    """Every request that has reached the program."""
    found: list[dict[str, Any]] = site.by_key("/heard").json()
    return found


def forget(site: Site) -> None:
    answer = site.by_key("/forget")
    assert answer.status_code == 204, answer.text


class Raw:
    """One connection."""

    def __init__(self, site: Site, *, receive_buffer: int = 0) -> None:
        host, _, port = site.daemon.url.removeprefix("http://").partition(":")
        self.site = site
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS)
        self.socket.connect((host, int(port)))
        self.data = b""

    def ask(
        self,
        where: bytes = b"/",
        *lines: bytes,
        method: bytes = b"GET",
        cookie: str | None = None,
        host: str | None = None,
        body: bytes = b"",
        key: bool = True,
    ) -> "Raw":
        """Send a request, with the key unless there is a cookie."""
        head = [method + b" " + where + b" HTTP/1.1", f"Host: {self.site.host() if host is None else host}".encode()]
        if cookie is not None:
            head.append(f"Cookie: {cookie}".encode())
        elif key:
            head.append(f"X-Holdfast-Key: {self.site.daemon.key}".encode())
        self.socket.sendall(b"\r\n".join([*head, *lines]) + b"\r\n\r\n" + body)
        return self

    def websocket(self, where: bytes, *lines: bytes, rest: bytes = b"", **more: Any) -> bytes:
        """Shake hands; return the head of the answer."""
        self.ask(where, *HANDSHAKE, *lines, body=rest, **more)
        return self.head()

    def head(self) -> bytes:
        """The head of the answer, with the empty line."""
        return self.until(b"\r\n\r\n")

    def until(self, end: bytes) -> bytes:
        while end not in self.data:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError(self.data)
            self.data += more
        found, self.data = self.data.split(end, 1)
        return found + end

    def read(self, count: int) -> bytes:
        while len(self.data) < count:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError(self.data)
            self.data += more
        found, self.data = self.data[:count], self.data[count:]
        return found

    def rest(self) -> bytes:
        """All that comes until the connection ends; a reset is an end."""
        try:
            while more := self.socket.recv(1 << 16):
                self.data += more
        except ConnectionResetError:
            pass
        found, self.data = self.data, b""
        return found

    def seconds_to_end(self) -> float:
        """How long it takes until the daemon hangs up. Raises TimeoutError if it does not."""
        began = time.monotonic()
        self.rest()
        return time.monotonic() - began

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """A whole answer; raises if it is not whole."""
        head = self.head()
        status, headers = parse(head)
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self.until(b"\r\n"), 16):
                body += self.read(size)
                self.until(b"\r\n")
            self.until(b"\r\n")
            return status, headers, body
        return status, headers, self.read(int(headers.get("content-length", 0)))


@contextmanager
def raw(site: Site, **more: Any) -> Iterator[Raw]:
    connection = Raw(site, **more)
    try:
        yield connection
    finally:
        connection.socket.close()


def parse(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = dict(re.split(r":\s*", line, maxsplit=1) for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value for name, value in headers.items()}


def exchange(site: Site, data: bytes, seconds: float = SECONDS) -> bytes:
    """Send bytes; return all that comes until the daemon hangs up, or says no more for a while."""
    with raw(site) as connection:
        connection.socket.sendall(data)
        connection.socket.settimeout(seconds)
        try:
            return connection.rest()
        except TimeoutError:
            return connection.data


def frame(payload: bytes, opcode: int = 1, *, last: bool = True, mask: bytes | None = None) -> bytes:
    """A frame as a client sends it."""
    length = len(payload)
    mask = os.urandom(4) if mask is None else mask
    if length < 126:
        size = bytes([0x80 | length])
    elif length < 1 << 16:
        size = bytes([0x80 | 126]) + struct.pack(">H", length)
    else:
        size = bytes([0x80 | 127]) + struct.pack(">Q", length)
    repeated = mask * (length // 4 + 1)
    masked = (int.from_bytes(payload) ^ int.from_bytes(repeated[:length])).to_bytes(length)
    return bytes([(0x80 if last else 0) | opcode]) + size + mask + masked


def close_frame(code: int, reason: bytes = b"") -> bytes:
    return frame(struct.pack(">H", code) + reason, opcode=8)


def rss_mb(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
