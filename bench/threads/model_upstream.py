"""A model provider that costs next to nothing: ``python -m bench.threads.model_upstream`` prints its port and serves.

It speaks chat completions. A request says how many events it wants, and how many seconds apart; each event carries the
server's clock at the moment when it was sent.
"""

import asyncio
import json
import time

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
_BILL = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":9}}\n\n'
_DONE = b"data: [DONE]\n\n"


class _Provider(asyncio.Protocol):
    """One connection, kept alive."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting = b""

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        head, found, body = self._waiting.partition(b"\r\n\r\n")
        if not found:
            return
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if len(body) < int(fields[b"content-length"]):
            return
        self._waiting = b""
        asked = json.loads(body)
        self._transport.write(_HEAD)
        self._next(int(asked["events"]), float(asked["every"]))

    def _next(self, left: int, every: float) -> None:
        if self._transport.is_closing():
            return
        if left == 0:
            self._transport.write(_chunk(_END) + _chunk(_BILL) + _chunk(_DONE) + b"0\r\n\r\n")
            return
        content = b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % time.monotonic_ns()
        self._transport.write(_chunk(content))
        self._loop.call_later(every, self._next, left - 1, every)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Provider, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
