"""The link to one session's runner: calls with deadlines, which survive a reconnect.

Every call of the protocol is idempotent (commands, and what is written to a process, carry an id that counts once).
So when the connection is cut, a call waits for the runner to dial again and is sent once more, until its deadline.
Only ``lose`` ends it early: the owner of the link has found out that there is no runner any more.
"""

import asyncio
import itertools
from collections.abc import Callable

from holdfast.errors import HoldfastError, ProtocolError, SandboxLost, by_code
from holdfast.link.connection import STREAM_BUFFER, Connection, same_token
from holdfast.protocol import frames

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TakeCaller = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
"""It receives a connection that a program in the sandbox has opened, and has to close it."""
MakeProtocol = Callable[[], asyncio.Protocol | None]
"""It makes the protocol that serves such a connection from its first byte on; None hangs up."""


class _Cut(Exception):
    """The connection was lost during a call."""


def _expire(call: asyncio.Future[frames.Frame]) -> None:
    if not call.done():
        call.set_exception(TimeoutError())


class Link:
    """Calls to one runner. Made by ``LinkHub.listen``, closed by ``LinkHub.close``."""

    def __init__(self, session_id: str, token: str) -> None:
        self.session_id = session_id
        self._token = token
        self._connection: Connection | None = None
        self._connected = asyncio.Event()
        self._ids = itertools.count(1)
        self._calls: dict[int, asyncio.Future[frames.Frame]] = {}
        self._streams: dict[str, asyncio.Future[Stream]] = {}
        self._buffers: dict[str, int] = {}
        self._takers: dict[str, TakeCaller] = {}
        self._protocols: dict[str, MakeProtocol] = {}
        self._lost: HoldfastError | None = None
        self._held: HoldfastError | None = None
        self.former_token: str | None = None
        """The token of the session that this one was copied from, with its running processes. The runner in the copy
        still has that token when it dials for the first time; the welcome gives it the new one."""
        self.home = "/"
        """Where the session's commands start; the runner says so when it arrives."""
        self.on_disconnect: Callable[[], None] | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def lost(self) -> bool:
        return self._lost is not None

    @property
    def held(self) -> HoldfastError | None:
        """The error of every call while the runner stands still (see ``hold``); otherwise None."""
        return self._held

    async def wait_connected(self, timeout: float) -> None:
        """Wait for a runner to connect. Raises ``SandboxLost`` when the time is over, or the error of ``lose``."""
        if self._connection is None and self._lost is None:
            try:
                async with asyncio.timeout(timeout):
                    await self._connected.wait()
            except TimeoutError:
                raise SandboxLost(
                    f"the sandbox of {self.session_id} has not answered for {timeout:.0f} s; destroy the session"
                ) from None
        if self._lost is not None:
            raise self._lost

    async def call(self, op: str, fields: frames.Header, body: bytes = b"", *, timeout: float) -> frames.Frame:
        """Call the runner and return its answer.

        Raises the runner's own error by its code, the error of ``hold`` or ``lose``, or ``SandboxLost`` when there
        is no answer in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            if self._held is not None:
                raise self._held
            if self._connection is None or self._lost is not None:
                await self.wait_connected(max(deadline - loop.time(), 0))
            try:
                header, reply_body = await self._ask_once(op, fields, body, deadline)
            except _Cut:
                continue
            except TimeoutError:
                raise SandboxLost(
                    f"the runner of {self.session_id} did not answer {op} within {timeout:.0f} s; destroy the session"
                ) from None
            return self._checked(header), reply_body

    async def _ask_once(self, op: str, fields: frames.Header, body: bytes, deadline: float) -> frames.Frame:
        connection = self._connection
        if connection is None:
            raise _Cut
        call_id = next(self._ids)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[frames.Frame] = loop.create_future()
        self._calls[call_id] = future
        timer = loop.call_at(deadline, _expire, future)
        try:
            connection.send({**fields, "id": call_id, "op": op}, body)
            return await future
        finally:
            timer.cancel()
            del self._calls[call_id]

    def _checked(self, header: frames.Header) -> frames.Header:
        error = header.get("error")
        if error is None:
            return header
        if not isinstance(error, dict):
            raise ProtocolError(f"the runner of {self.session_id} sent an error that is no object")
        raise by_code(str(error.get("code")))(str(error.get("message")))

    def expect_stream(self, stream: str, *, buffer: int = STREAM_BUFFER) -> asyncio.Future[Stream]:
        """A future for the connection that the runner will open for ``stream``. ``forget_stream`` gives it up.

        While more than twice ``buffer`` bytes of it are unread, no more are taken from the sandbox.
        """
        future: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        self._streams[stream] = future
        self._buffers[stream] = buffer
        return future

    def forget_stream(self, stream: str) -> None:
        self._buffers.pop(stream, None)
        future = self._streams.pop(stream, None)
        if future is not None:
            future.cancel()

    def take_callers(self, name: str, take: TakeCaller) -> None:
        """Pass connections to the listener ``name`` in the sandbox to ``take``. Before this call they are closed."""
        self._takers[name] = take

    def speak_to_callers(self, name: str, make: MakeProtocol) -> None:
        """Like ``take_callers``, for a server that is an asyncio protocol and needs no reader or writer."""
        self._protocols[name] = make

    def hold(self, error: HoldfastError) -> None:
        """End every call with this error, now and until ``let_go``, because the runner stands still.

        Calls that were sent already are carried out when the runner goes on.
        """
        self._held = error
        self._end_calls(error)

    def let_go(self) -> None:
        self._held = None

    def lose(self, error: HoldfastError) -> None:
        """End every call with this error, now and for ever, because there is no runner any more."""
        self._lost = error
        self._connected.set()
        self._end_calls(error)
        if self._connection is not None:
            self._connection.close()

    def _end_calls(self, error: HoldfastError) -> None:
        for call in self._calls.values():
            if not call.done():
                call.set_exception(error)
        for stream in self._streams.values():
            if not stream.done():
                stream.set_exception(error)

    # -- called by the connection ----------------------------------------------------------------------------------

    def token_matches(self, token: str) -> bool:
        return same_token(self._token, token) or self._is_former(token)

    def _is_former(self, token: str) -> bool:
        return self.former_token is not None and same_token(self.former_token, token)

    def new_identity(self, token: str) -> frames.Header:
        """Return the session id and token that a runner must use from now on; empty if it has them already."""
        return {"session": self.session_id, "token": self._token} if self._is_former(token) else {}

    def runner_arrived(self, connection: Connection, hello: frames.Header) -> None:
        older, self._connection = self._connection, connection
        self.home = str(hello.get("home") or "/")
        if older is not None:
            self._cut_calls()
            older.send({"op": "replaced"})
            older.close()
        self._connected.set()

    def runner_said(self, connection: Connection, header: frames.Header, body: bytes) -> None:
        number = header.get("number")
        if header.get("op") == "ping" and isinstance(number, int):
            connection.send_if_read({"op": "pong", "number": number})
            return
        call_id = header.get("id")
        future = self._calls.get(call_id) if isinstance(call_id, int) else None
        if connection is self._connection and future is not None and not future.done():
            future.set_result((header, body))

    def runner_left(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if self._lost is None:
            self._connected.clear()
            self._cut_calls()
            if self.on_disconnect is not None:
                self.on_disconnect()

    def _cut_calls(self) -> None:
        for call in self._calls.values():
            if not call.done():
                call.set_exception(_Cut())

    def buffer_of(self, stream: str) -> int:
        return self._buffers.pop(stream, STREAM_BUFFER)

    def stream_arrived(self, stream: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        future = self._streams.pop(stream, None)
        if future is None or future.done():
            writer.transport.abort()
        else:
            future.set_result((reader, writer))

    def protocol_for(self, name: str) -> MakeProtocol | None:
        return None if self._lost is not None else self._protocols.get(name)

    def caller_arrived(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        take = self._takers.get(name)
        if take is None or self._lost is not None:
            writer.transport.abort()
        else:
            take(reader, writer)
