# mypy: ignore-errors
"""A web server for inside a sandbox that costs next to nothing; stdlib only.

inside.py PORT    GET /: a hundred bytes. GET /big?MB: so many. A WebSocket: every frame comes back.
"""

import asyncio
import base64
import hashlib
import sys

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SMALL = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
PIECE = b"x" * (1 << 18)


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.waiting = b""
        self.is_socket = False
        self.left = 0

    def data_received(self, data):
        if self.is_socket:
            self.echo(data)
            return
        self.waiting += data
        while (end := self.waiting.find(b"\r\n\r\n")) >= 0:
            head, self.waiting = self.waiting[:end], self.waiting[end + 4 :]
            self.answer(head)

    def answer(self, head):
        target = head.split(b" ", 2)[1]
        if b"\r\nsec-websocket-key: " in head.lower():
            at = head.lower().index(b"sec-websocket-key: ") + 19
            key = head[at : at + 24]
            accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
            self.transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
            )
            self.is_socket = True
        elif target.startswith(b"/big?"):
            self.left = int(target[5:]) << 20
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.left)
            self.paused = False
            self.more()
        else:
            self.transport.write(SMALL)

    def more(self):
        while self.left and not self.paused:
            piece = PIECE[: self.left]
            self.left -= len(piece)
            self.transport.write(piece)

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False
        self.more()

    def echo(self, data):
        """Frames here are small, and each comes in one piece."""
        while data:
            length = data[1] & 0x7F
            mask, masked = data[2:6], data[6 : 6 + length]
            payload = bytes(byte ^ mask[number & 3] for number, byte in enumerate(masked))
            self.transport.write(bytes([data[0], length]) + payload)
            data = data[6 + length :]


async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
