"""The same client for code that is not async.

There is no second implementation: one thread runs an event loop, and every method below hands its call to the method
of the same name on the async object. ``forward`` keeps the signature, so editors and type checkers see the real one.
"""

import importlib.util
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from holdfast.sdk.client import DEFAULT_RETRIES, DEFAULT_SECONDS, Client
from holdfast.sdk.files import Files
from holdfast.sdk.images import Images
from holdfast.sdk.portal import iterate
from holdfast.sdk.results import SessionInfo
from holdfast.sdk.session import Session

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class _Sync(Generic[A]):
    """A synchronous face of the async object ``inner``, whose loop runs behind ``portal``."""

    def __init__(self, portal: BlockingPortal, inner: A) -> None:
        self._portal = portal
        self._inner = inner


def forward(method: Callable[Concatenate[A, P], Awaitable[R]]) -> Callable[Concatenate[_Sync[A], P], R]:
    """A method that calls ``method`` on the inner object and waits."""

    @wraps(method)
    def call(self: _Sync[A], *args: P.args, **kwargs: P.kwargs) -> R:
        return self._portal.call(partial(_finish, method, self._inner, args, kwargs))

    return call  # type: ignore[return-value]  # wraps() hides that self has another type


def forward_session(
    method: Callable[Concatenate[A, P], Awaitable[Session]],
) -> Callable[Concatenate[_Sync[A], P], "SyncSession"]:
    """As ``forward``, for methods that give out a session."""

    @wraps(method)
    def call(self: _Sync[A], *args: P.args, **kwargs: P.kwargs) -> "SyncSession":
        return SyncSession(self._portal, self._portal.call(partial(_finish, method, self._inner, args, kwargs)))

    return call  # type: ignore[return-value]  # wraps() hides that self has another type


def forward_iterator(
    method: Callable[Concatenate[A, P], AsyncIterator[R]],
) -> Callable[Concatenate[_Sync[A], P], Iterator[R]]:
    """As ``forward``, for methods that give one thing after the other."""

    @wraps(method)
    def call(self: _Sync[A], *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return iterate(self._portal, method(self._inner, *args, **kwargs))

    return call  # type: ignore[return-value]  # wraps() hides that self has another type


async def _finish(method: Callable[..., Awaitable[R]], inner: object, args: tuple[Any, ...], named: Any) -> R:
    return await method(inner, *args, **named)


class SyncFiles(_Sync[Files]):
    """The files of a session: ``session.files``."""

    upload = forward(Files.upload)
    download = forward(Files.download)
    stream = forward_iterator(Files.stream)
    upload_folder = forward(Files.upload_folder)
    download_folder = forward(Files.download_folder)
    pack = forward_iterator(Files.pack)
    unpack = forward(Files.unpack)
    link = forward(Files.link)
    stat = forward(Files.stat)
    list = forward(Files.list)
    find = forward(Files.find)
    mkdir = forward(Files.mkdir)
    move = forward(Files.move)
    copy = forward(Files.copy)
    remove = forward(Files.remove)
    chmod = forward(Files.chmod)
    watch = forward_iterator(Files.watch)


class SyncSession(_Sync[Session]):
    """One sandbox. As a context manager it is destroyed at the end of the block."""

    exec = forward(Session.exec)
    exec_result = forward(Session.exec_result)
    write = forward(Session.write)
    read = forward(Session.read)
    destroy = forward(Session.destroy)

    def __repr__(self) -> str:
        return f"<SyncSession {self.id} {self.status}>"

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def status(self) -> str:
        return self._inner.status

    @property
    def info(self) -> SessionInfo:
        return self._inner.info

    @property
    def files(self) -> SyncFiles:
        return SyncFiles(self._portal, self._inner.files)

    def refresh(self) -> Self:
        self._portal.call(self._inner.refresh)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()


class SyncImages(_Sync[Images]):
    list = forward(Images.list)
    import_ = forward(Images.import_)
    remove = forward(Images.remove)


class SyncClient(_Sync[Client]):
    """As ``Client``, with the same arguments. ``close`` it, or use it in a ``with`` block, to end its thread."""

    create_session = forward_session(Client.create_session)
    get_session = forward_session(Client.get_session)

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_SECONDS,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        client = Client(url, api_key, timeout=timeout, retries=retries)
        running = start_blocking_portal("asyncio", {"use_uvloop": _has_uvloop()}, name="holdfast-sdk")
        super().__init__(running.__enter__(), client)
        self.images = SyncImages(self._portal, client.images)
        self._stop = weakref.finalize(self, _shut, self._portal, client, running)

    @property
    def url(self) -> str:
        return self._inner.url

    def list_sessions(self, status: str | Iterable[str] | None = None) -> list[SyncSession]:
        found = self._portal.call(self._inner.list_sessions, status)
        return [SyncSession(self._portal, one) for one in found]

    def close(self) -> None:
        """Close the connections and end the thread. Sessions live on."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


def _shut(portal: BlockingPortal, client: Client, running: Any) -> None:
    try:
        portal.call(client.close)
    finally:
        running.__exit__(None, None, None)
