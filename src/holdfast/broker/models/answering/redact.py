"""A key is blotted out wherever a provider repeats it: no answer may bring it into a sandbox, an event or a log."""

from collections.abc import AsyncGenerator, AsyncIterator

_BLOT = b"[key]"
_SHORTEST = 16
"""What servers of one's own are given as a key ("none", "ollama") is a word that answers may well have."""


class Blotter:
    """Of one answer, piece by piece. A piece that may end in the middle of the key is held back for that part."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        clean = (self._held + piece).replace(self._key, _BLOT)
        keep = self._begun(clean)
        self._held = clean[len(clean) - keep :]
        return clean[: len(clean) - keep]

    def end(self) -> bytes:
        """What was held back, and was not the key after all."""
        held, self._held = self._held, b""
        return held

    def _begun(self, piece: bytes) -> int:
        """How many bytes at the end of a piece may be the beginning of the key."""
        at = max(len(piece) - len(self._key) + 1, 0)
        while (at := piece.find(self._key[:1], at)) >= 0:
            if self._key.startswith(piece[at:]):
                return len(piece) - at
            at += 1
        return 0


async def blotted(chunks: AsyncIterator[bytes], key: str | None) -> AsyncGenerator[bytes]:
    """The same without the key; ``None``: there is none. Never an empty piece."""
    if key is None or len(key) < _SHORTEST:
        async for chunk in chunks:
            yield chunk
        return
    blotter = Blotter(key)
    async for chunk in chunks:
        if clean := blotter.feed(chunk):
            yield clean
    if rest := blotter.end():
        yield rest
