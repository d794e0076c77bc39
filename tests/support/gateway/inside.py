# mypy: ignore-errors
"""A web server for inside a sandbox, with the standard library alone: it tells what it gets, and can misbehave."""

import base64
import hashlib
import json
import socket
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PIECE = b"x" * 65536


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def answer(self, body, *headers, status=200, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def tell(self, *headers, **more):
        told = {"method": self.command, "path": self.path, "headers": self.headers.items(), **more}
        self.answer(json.dumps(told).encode(), *headers)

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            data = self.rfile.read(min(left, 1 << 20))
            left -= len(data)
            yield data

    def do_POST(self):
        digest, size = hashlib.sha256(), 0
        for data in self.body():
            digest.update(data)
            size += len(data)
        self.tell(size=size, sha256=digest.hexdigest())

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.do_POST
        raise AttributeError(name)

    def do_GET(self):
        page = self.path.partition("?")[0]
        handle = getattr(self, "page_" + page.strip("/").replace("-", "_"), None)
        if handle is None:
            self.tell()
        else:
            handle()

    def page_page(self):
        text = b"<!doctype html><title>inside</title><h1 id=h>inside</h1>"
        self.answer(text, kind="text/html")

    def page_cookies(self):
        evil = [("Set-Cookie", "__Host-hf=evil; Path=/; Secure"), ("Set-Cookie", "a=1; Domain=localhost")]
        self.tell(("Set-Cookie", "own=1; Path=/"), *evil)

    def page_big(self):
        size = int(self.path.partition("?")[2] or 1 << 20)
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        while size > 0:
            self.wfile.write(PIECE[:size])
            size -= len(PIECE)

    def page_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(self.path.partition("?")[2] or 3)):
            data = b"data: %d\n\n" % number
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
            time.sleep(0.3)
        self.wfile.write(b"0\r\n\r\n")

    def page_break(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(b"half")
        self.close_connection = True

    def page_until_close(self):
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it")

    def page_rubbish(self):
        self.close_connection = True
        self.wfile.write(b"this is no HTTP at all\r\n\r\n")

    def page_silence(self):
        self.close_connection = True

    def page_ws(self):
        accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + GUID).digest()).decode()
        protocol = self.headers.get("Sec-WebSocket-Protocol")
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.send_header("X-Seen", json.dumps(self.headers.items()))
        if protocol:
            self.send_header("Sec-WebSocket-Protocol", protocol.split(",")[0].strip())
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while (frame := self.frame()) is not None:
            opcode, payload = frame
            if opcode == 8:
                self.wfile.write(bytes([0x88, len(payload)]) + payload)
                return
            if opcode == 9:
                opcode = 10
            if payload == b"close me":
                self.wfile.write(bytes([0x88, 2]) + struct.pack(">H", 4321))
                return
            self.wfile.write(bytes([0x80 | opcode]) + self.length(payload) + payload)
            self.wfile.flush()

    @staticmethod
    def length(payload):
        if len(payload) < 126:
            return bytes([len(payload)])
        return bytes([127]) + struct.pack(">Q", len(payload))

    def frame(self):
        head = self.rfile.read(2)
        if len(head) < 2:
            return None
        length = head[1] & 0x7F
        if length == 126:
            length = struct.unpack(">H", self.rfile.read(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", self.rfile.read(8))[0]
        mask = self.rfile.read(4)
        payload = bytearray(self.rfile.read(length))
        for number in range(length):
            payload[number] ^= mask[number % 4]
        return head[0] & 0x0F, bytes(payload)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, *_args):
        pass


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.serve_forever()
