"""Servers on this host for sandboxes to reach: a package index, and what tests need of HTTP."""

import base64
import contextlib
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.2"
"""Loopback too, but programs in a sandbox do not take it for their own: it is not in NO_PROXY."""
DOWNLOAD = 100 << 20
PACKAGE = "holdfast_probe"


def wheel() -> bytes:
    """A package of one module, as pip wants it."""
    info = f"{PACKAGE}-1.0.dist-info"
    files = {
        f"{PACKAGE}.py": b"ANSWER = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=") for name, data in files.items()
    }
    rows = [f"{name},sha256={digests[name].decode()},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    name = f"{PACKAGE}-1.0-py3-none-any.whl"
    content = wheel()

    def do_GET(self) -> None:
        match self.path:
            case "/simple/holdfast-probe/":
                self._send(f'<a href="/files/{self.name}">{self.name}</a>'.encode(), "text/html")
            case path if path == f"/files/{self.name}":
                self._send(self.content)
            case "/large":
                self._send_large()
            case "/redirect":
                self.send_response(302)
                self.send_header("Location", "http://169.254.169.254/latest/meta-data/")
                self.send_header("Content-Length", "0")
                self.end_headers()
            case "/hello":
                self._send(b"hello")
            case _:
                self.send_error(404)

    def do_PUT(self) -> None:
        """Says how much came, and its sum; chunked or by length."""
        digest, size = hashlib.sha256(), 0
        for piece in self._body():
            digest.update(piece)
            size += len(piece)
        self._send(f"{size} {digest.hexdigest()}".encode())

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") != "chunked":
            yield self.rfile.read(int(self.headers["Content-Length"]))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _send(self, body: bytes, kind: str = "application/octet-stream") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_large(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(DOWNLOAD))
        self.end_headers()
        for _ in range(DOWNLOAD >> 20):
            self.wfile.write(bytes(1 << 20))

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Callers that hang up are part of the tests."""


@contextlib.contextmanager
def http_server(host: str = HOST) -> Iterator[int]:
    """Its port."""
    with _Server((host, 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
