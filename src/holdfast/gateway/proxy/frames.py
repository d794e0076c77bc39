"""Reads along in what a browser sends by WebSocket, to know whether a person is there. Pure.

Frames are passed on as they are. What counts as a person's doing is a data frame that is not one of the signs of life
which well-known programs send by themselves: else a tab that somebody has forgotten would keep its session awake.
Compressed frames cannot be read along, so compression is not passed on when a WebSocket is opened.
"""

_HEARTBEATS = frozenset(
    {
        b"2",  # engine.io: ping, pong
        b"3",
        b"ping",
        b"pong",
        b'{"type":"ping"}',  # vite
        b'{"type":"pong"}',
        b"",
    }
)
_CODE_SERVER = 13
"""The length of a bare header of VS Code's protocol: a sign of life, or an acknowledgement."""
_LONGEST = 16
_CONTROL = 0x8


class FrameReader:
    """Fed with all bytes from the browser, in pieces of any size."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._skip = 0
        """Bytes of the current frame's payload that are still to come, and need no look."""

    def feed(self, data: bytes) -> bool:
        """Say whether a person has done something in these bytes."""
        active, at = False, 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            self._head.append(data[at])
            at += 1
            done = self._frame()
            active = active or bool(done)
        return active

    def _frame(self) -> bool | None:
        """Look at the frame that has begun; None while too little of it is here."""
        head = self._head
        if len(head) < 2:
            return None
        opcode, length, size = head[0] & 0x0F, head[1] & 0x7F, 2
        if length > 125:
            extra = 2 if length == 126 else 8
            size += extra
            if len(head) < size:
                return None
            length = int.from_bytes(head[2:size])
        mask_at = size
        size += 4 if head[1] & 0x80 else 0
        if len(head) < size:
            return None
        if length > _LONGEST:
            head.clear()
            self._skip = length
            return opcode < _CONTROL
        if len(head) < size + length:
            return None
        mask = bytes(head[mask_at:size]) or b"\0\0\0\0"
        payload = bytes(byte ^ mask[n % 4] for n, byte in enumerate(head[size:]))
        head.clear()
        if opcode >= _CONTROL or (opcode == 2 and len(payload) == _CODE_SERVER):
            return False
        return payload not in _HEARTBEATS
