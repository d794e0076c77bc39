"""Whom the broker believes to be a git server: whoever this machine trusts, and those that the operator vouches for."""

import asyncio
import ssl
from pathlib import Path


class Untrusted(Exception):
    """The file with the certificates is of no use; the text says why."""


class Trust:
    """Reads a file of certificates when it is first needed, and again when it has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int], ssl.SSLContext]] = {}

    async def context(self, ca_file: str) -> ssl.SSLContext | bool:
        """For a client's connection. Without a file, the client's own."""
        return await asyncio.to_thread(self._read, ca_file) if ca_file else True

    def _read(self, ca_file: str) -> ssl.SSLContext:
        try:
            found = Path(ca_file).stat()
            version = (found.st_mtime_ns, found.st_ino)
            known = self._known.get(ca_file)
            if known is not None and known[0] == version:
                return known[1]
            context = ssl.create_default_context()
            context.load_verify_locations(cafile=ca_file)
        except ssl.SSLError:
            raise Untrusted(f"{ca_file} has no certificates in PEM") from None
        except OSError as error:
            raise Untrusted(f"{ca_file} cannot be read: {error.strerror}") from None
        self._known[ca_file] = (version, context)
        return context
