"""Redacts a key wherever a provider repeats it: no answer may bring it into a sandbox, an event or a log."""

from collections.abc import AsyncGenerator, AsyncIterator

_REDACTED = b"[key]"
_SHORTEST = 16
"""What servers of one's own are given as a key ("none", "ollama") is a word that answers may well have."""


class Redactor:
    """Redacts one answer, piece by piece. A piece that may end in the middle of the key is held back for that part."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        clean = (self._held + piece).replace(self._key, _REDACTED)
        keep = self._begun(clean)
        self._held = clean[len(clean) - keep :]
        return clean[: len(clean) - keep]

    def end(self) -> bytes:
        """Return what was held back, and was not the key after all."""
        held, self._held = self._held, b""
        return held

    def _begun(self, piece: bytes) -> int:
        """Return how many bytes at the end of a piece may be the beginning of the key."""
        at = max(len(piece) - len(self._key) + 1, 0)
        while (at := piece.find(self._key[:1], at)) >= 0:
            if self._key.startswith(piece[at:]):
                return len(piece) - at
            at += 1
        return 0


async def redacted(chunks: AsyncIterator[bytes], key: str | None) -> AsyncGenerator[bytes]:
    """Yield the same pieces without the key, if there is one. No piece is empty."""
    if key is None or len(key) < _SHORTEST:
        async for chunk in chunks:
            yield chunk
        return
    redactor = Redactor(key)
    async for chunk in chunks:
        if clean := redactor.feed(chunk):
            yield clean
    if rest := redactor.end():
        yield rest
