"""A certificate authority of our own, and a server's certificate by it: made by openssl, for as long as a test."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """``ca_file`` is what a client must trust."""

    folder: Path

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def server(self, address: str = "127.0.0.1") -> ssl.SSLContext:
        """For a server at this address, by its number."""
        certificate, key = self.certificate(address, f"IP:{address}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    def certificate(self, file: str, *names: str) -> tuple[Path, Path]:
        """Make one for names such as ``DNS:*.example.net``; return its file, and its key's."""
        key, request, certificate = (self.folder / f"{file}.{kind}" for kind in ("key", "csr", "pem"))
        extensions = self.folder / f"{file}.ext"
        extensions.write_text(f"subjectAltName={','.join(names)}\n")
        _openssl("req", "-newkey", *_KEY, "-keyout", str(key), "-out", str(request), "-subj", "/CN=git server")
        signer = ["-CA", str(self.ca_file), "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial"]
        _openssl("x509", "-req", "-in", str(request), *signer, "-extfile", str(extensions), "-out", str(certificate))
        return certificate, key


_KEY = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def authority(folder: Path) -> Authority:
    folder.mkdir()
    where = ["-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.pem")]
    _openssl("req", "-x509", "-newkey", *_KEY, *where, "-subj", "/CN=Acme's own authority", "-days", "2")
    return Authority(folder)


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
