"""A name server on this host: it knows a few names, says nothing at all about those below ``slow.test``, and counts."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Mapping
from typing import cast

_A, _AAAA = 1, 28


class NameServer(asyncio.DatagramProtocol):
    """``known`` are names with their IPv4 address; there is nothing else, but for names that are slow for ever."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.known = dict(known)
        self.asked: list[str] = []
        self.place = ""
        """``address:port``."""
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        name, question, kind = _question(data)
        self.asked.append(name)
        if name.endswith("slow.test"):
            return
        address = self.known.get(name)
        found = b""
        if address is not None and kind == _A:
            packed = bytes(int(part) for part in address.split("."))
            found = b"\xc0\x0c" + struct.pack(">HHIH", _A, 1, 60, 4) + packed
        status = 0x8180 if address is not None else 0x8183
        assert self._transport is not None
        head = data[:2] + struct.pack(">HHHHH", status, 1, 1 if found else 0, 0, 0)
        self._transport.sendto(head + question + found, addr)


def _question(data: bytes) -> tuple[str, bytes, int]:
    labels, at = [], 12
    while size := data[at]:
        labels.append(data[at + 1 : at + 1 + size].decode())
        at += size + 1
    (kind,) = struct.unpack(">H", data[at + 1 : at + 3])
    return ".".join(labels).lower(), data[12 : at + 5], kind


@contextlib.asynccontextmanager
async def name_server(known: Mapping[str, str], address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: NameServer(known), local_addr=(address, port))
    host, port = transport.get_extra_info("sockname")[:2]
    server.place = f"{host}:{port}"
    try:
        yield server
    finally:
        transport.close()
