# mypy: ignore-errors
"""A server for inside a sandbox that says what the request tells it to, byte by byte; standard library alone.

The query is a list of steps in JSON, in base64: ["send", BASE64], ["flood", BASE64, COUNT, TIMES], ["sleep", SECONDS],
["read", COUNT], ["until", BASE64], ["accept"] (a WebSocket), ["echo"] (all bytes, until the end), ["wait"], ["reset"].
After the last step it hangs up, or takes the next request where that is ["next"]. ``/heard`` tells every head and body
that has come, as they came; ``/forget`` forgets them.
"""

import base64
import contextlib
import hashlib
import json
import socket
import struct
import sys
import threading
import time

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
HEARD = []
LAST = threading.local()


class Connection:
    def __init__(self, connection):
        self.socket = connection
        self.data = b""

    def until(self, end):
        while end not in self.data:
            more = self.socket.recv(65536)
            if not more:
                return None
            self.data += more
        found, self.data = self.data.split(end, 1)
        return found + end

    def skip(self, count):
        """Read so many bytes and keep none; return how many came."""
        left = count
        while left:
            data, self.data = self.data or self.socket.recv(min(1 << 18, left)), b""
            if not data:
                break
            self.data = data[left:]
            left -= min(left, len(data))
        return count - left

    def serve(self):
        while (head := self.until(b"\r\n\r\n")) is not None:
            target = head.split(b" ", 2)[1]
            if target == b"/heard":
                body = json.dumps(HEARD).encode()
                self.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                continue
            if target == b"/forget":
                HEARD.clear()
                self.socket.sendall(b"HTTP/1.1 204 OK\r\n\r\n")
                continue
            heard = {"head": head.decode("latin-1"), "body": 0, "ended": None}
            HEARD.append(heard)
            del HEARD[:-200]
            if not self.play(head, target, heard):
                return

    def play(self, head, target, heard):
        words = target.partition(b"?")[2].partition(b"&")[0].rstrip(b"=") or b"W10"
        steps = json.loads(base64.urlsafe_b64decode(words + b"=="))
        for name, *rest in steps:
            if name == "send":
                self.socket.sendall(base64.b64decode(rest[0]))
            elif name == "flood":
                self.flood(base64.b64decode(rest[0]) * rest[2], rest[1], heard)
            elif name == "sleep":
                time.sleep(rest[0])
            elif name == "read":
                heard["body"] += self.skip(rest[0])
            elif name == "until":
                heard["body"] += len(self.until(base64.b64decode(rest[0])) or b"")
            elif name == "accept":
                self.accept(head, *rest)
            elif name == "echo":
                self.echo(heard)
            elif name == "wait":
                heard["ended"] = repr(self.socket.recv(1))
            elif name == "reset":
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif name == "next":
                return True
        return False

    def flood(self, piece, count, heard):
        for number in range(count):
            heard["flooded"] = number
            self.socket.sendall(piece)

    def accept(self, head, *headers):
        key = [
            line.split(b":")[1].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
        ]
        accept = base64.b64encode(hashlib.sha1(key[0] + GUID).digest()).decode()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", *headers]
        self.socket.sendall("\r\n".join([*lines, f"Sec-WebSocket-Accept: {accept}", "", ""]).encode())

    def echo(self, heard):
        if self.data:
            self.socket.sendall(self.data)
        while data := self.socket.recv(65536):
            heard["body"] += len(data)
            self.socket.sendall(data)


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError), connection:
        Connection(connection).serve()


def main():
    with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512) as server:
        while True:
            threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
