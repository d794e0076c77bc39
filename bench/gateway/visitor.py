"""Asks the server of ``inside``, and prints what it saw as JSON; stdlib only. It runs on the host, and also in a
sandbox's own network, where it reaches the server directly.

visitor.py PORT HEADERS get COUNT               one after the other over one connection: the milliseconds of each
visitor.py PORT HEADERS rate SECONDS MANY       over so many connections at the same time: how many a second
visitor.py PORT HEADERS down MB                 one large answer: the seconds that it took
visitor.py PORT HEADERS echo COUNT              one frame after the other over a WebSocket: the milliseconds of each
visitor.py PORT HEADERS idle COUNT              so many WebSockets, until its input ends; it says when they are open
"""

import asyncio
import json
import socket
import sys
import time

SECONDS = 120.0
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
ANSWER = 100
"""The bytes of a small answer's body."""


def request(headers: list[str], target: str = "/", *more: str) -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", *headers, *more, "", ""]).encode()


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read_head(connection: socket.socket, status: bytes) -> bytes:
    """Return what came after the head."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(1 << 16)
        if not more:
            raise SystemExit("the connection was closed")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    if status not in head.split(b"\r\n")[0]:
        raise SystemExit(data[:2000].decode(errors="replace"))
    return rest


def get(port: int, headers: list[str], count: int) -> list[float]:
    took = []
    asked = request(headers)
    with connect(port) as connection:
        for _ in range(count):
            started = time.perf_counter()
            connection.sendall(asked)
            rest = read_head(connection, b" 200 ")
            while len(rest) < ANSWER:
                rest += connection.recv(1 << 16)
            took.append((time.perf_counter() - started) * 1000)
    return took


class Asker(asyncio.Protocol):
    """Asks again as soon as it has an answer."""

    def __init__(self, asked: bytes) -> None:
        self.asked = asked
        self.answers = 0
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.asked)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.data += data
        end = self.data.find(b"\r\n\r\n")
        if end < 0 or len(self.data) < end + 4 + ANSWER:
            return
        if b" 200 " not in self.data[:20]:
            raise SystemExit(self.data[:2000].decode(errors="replace"))
        self.data = b""
        self.answers += 1
        self.transport.write(self.asked)  # type: ignore[attr-defined]


async def rate(port: int, headers: list[str], seconds: float, many: int) -> float:
    loop = asyncio.get_running_loop()
    asked = request(headers)
    askers = [(await loop.create_connection(lambda: Asker(asked), "127.0.0.1", port))[1] for _ in range(many)]
    await asyncio.sleep(0.5)
    before, started = sum(one.answers for one in askers), time.perf_counter()
    await asyncio.sleep(seconds)
    count = sum(one.answers for one in askers) - before
    took = time.perf_counter() - started
    if any(one.transport.is_closing() for one in askers):
        raise SystemExit("a connection was closed")
    return count / took


def down(port: int, headers: list[str], size_mb: int) -> float:
    target = memoryview(bytearray(1 << 18))
    with connect(port) as connection:
        started = time.perf_counter()
        connection.sendall(request(headers, f"/big?{size_mb}"))
        size = len(read_head(connection, b" 200 "))
        while size < size_mb << 20:
            count = connection.recv_into(target)
            if not count:
                raise SystemExit("the answer broke off")
            size += count
        return time.perf_counter() - started


def frame(payload: bytes) -> bytes:
    mask = b"\x01\x02\x03\x04"
    masked = bytes(byte ^ mask[number & 3] for number, byte in enumerate(payload))
    return bytes([0x81, 0x80 | len(payload)]) + mask + masked


def open_websocket(port: int, headers: list[str]) -> socket.socket:
    connection = connect(port)
    connection.sendall(request(headers, "/", *WEBSOCKET))
    if read_head(connection, b" 101 "):
        raise SystemExit("a frame came that nobody has asked for")
    return connection


def echo(port: int, headers: list[str], count: int) -> list[float]:
    took = []
    sent = frame(b"a line of text, as people type it")
    with open_websocket(port, headers) as connection:
        for _ in range(count):
            started = time.perf_counter()
            connection.sendall(sent)
            found = b""
            while len(found) < len(sent) - 4:
                found += connection.recv(1 << 16)
            took.append((time.perf_counter() - started) * 1000)
    return took


def idle(port: int, headers: list[str], count: int) -> None:
    connections = [open_websocket(port, headers) for _ in range(count)]
    print(len(connections), flush=True)
    sys.stdin.read()


def main() -> None:
    port, headers, what, *numbers = sys.argv[1:]
    asked: tuple[int, list[str]] = int(port), json.loads(headers)
    if what == "get":
        print(json.dumps(get(*asked, int(numbers[0]))))
    elif what == "rate":
        print(json.dumps([asyncio.run(rate(*asked, float(numbers[0]), int(numbers[1])))]))
    elif what == "down":
        print(json.dumps([down(*asked, int(numbers[0]))]))
    elif what == "echo":
        print(json.dumps(echo(*asked, int(numbers[0]))))
    else:
        idle(*asked, int(numbers[0]))


if __name__ == "__main__":
    main()
