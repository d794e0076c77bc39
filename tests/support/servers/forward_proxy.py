"""A small forward proxy on loopback, as stands before the world in many companies: CONNECT, and whole URLs."""

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Mapping


class ForwardProxy:
    """``hosts`` says where each ``host:port`` really is; it knows no other. With ``login``, it wants to be told."""

    def __init__(self, hosts: Mapping[str, tuple[str, int]], login: str = "") -> None:
        self.hosts = hosts
        self.login = login
        self.heads: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        method, target = head.split(b" ", 2)[:2]
        if self.login and base64.b64encode(self.login.encode()) not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        place = target.decode().removeprefix("http://").partition("/")[0]
        if place not in self.hosts:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        there = await asyncio.open_connection(*self.hosts[place])
        if method == b"CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = target[len(b"http://") + len(place) :]
            passed = re.sub(rb"(?i)\r\nproxy-[^\r]*", b"", head)  # they are for the proxy alone
            there[1].write(passed.replace(target, path, 1))
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def forward_proxy(hosts: Mapping[str, tuple[str, int]], login: str = "") -> AsyncIterator[ForwardProxy]:
    proxy = ForwardProxy(hosts, login)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    user = f"{login}@" if login else ""
    proxy.url = f"http://{user}127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
