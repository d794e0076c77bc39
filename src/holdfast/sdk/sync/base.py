"""How an async object gets a synchronous face: every call is handed to its loop, which runs in a thread of its own.

``forward`` keeps the signature, so editors and type checkers see the real one.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortal

from holdfast.sdk.sync.portal import iterate

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
W = TypeVar("W")


class Sync(Generic[A]):
    """A synchronous face of the async object ``inner``, whose loop runs behind ``portal``."""

    def __init__(self, portal: BlockingPortal, inner: A) -> None:
        self._portal = portal
        self._inner = inner


class Shown(Generic[R]):
    """An attribute of the inner object, to look at: ``id = Shown[str]()``."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Sync[Any] | None, owner: type) -> R:
        if instance is None:
            return self  # type: ignore[return-value]  # of the class itself, as a property has it
        found: R = getattr(instance._inner, self._name)
        return found

    def __set__(self, instance: Sync[Any], value: R) -> None:
        raise AttributeError(f"{self._name} cannot be set")


def forward(method: Callable[Concatenate[A, P], Awaitable[R]]) -> Callable[Concatenate[Sync[A], P], R]:
    """Make a method that calls ``method`` on the inner object and waits."""

    @wraps(method)
    def call(self: Sync[A], *args: P.args, **kwargs: P.kwargs) -> R:
        return self._portal.call(partial(_finish, method, self._inner, args, kwargs))

    return call  # type: ignore[return-value]  # wraps() hides that self has another type


def forward_as(
    wrap: Callable[[BlockingPortal, R], W], method: Callable[Concatenate[A, P], Awaitable[R]]
) -> Callable[Concatenate[Sync[A], P], W]:
    """As ``forward``, for methods that give out an object with a synchronous face of its own."""

    @wraps(method)
    def call(self: Sync[A], *args: P.args, **kwargs: P.kwargs) -> W:
        return wrap(self._portal, self._portal.call(partial(_finish, method, self._inner, args, kwargs)))

    return call  # type: ignore[return-value]  # wraps() hides that self has another type


def forward_object(
    wrap: Callable[[BlockingPortal, R], W], method: Callable[Concatenate[A, P], R]
) -> Callable[Concatenate[Sync[A], P], W]:
    """As ``forward_as``, for methods that give out the object at once."""

    @wraps(method)
    def call(self: Sync[A], *args: P.args, **kwargs: P.kwargs) -> W:
        return wrap(self._portal, method(self._inner, *args, **kwargs))

    return call  # type: ignore[return-value]  # wraps() hides that self has another type


def forward_iterator(
    method: Callable[Concatenate[A, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Sync[A], P], Generator[R, None, None]]:
    """As ``forward``, for async generators."""

    @wraps(method)
    def call(self: Sync[A], *args: P.args, **kwargs: P.kwargs) -> Generator[R, None, None]:
        return iterate(self._portal, method(self._inner, *args, **kwargs))

    return call  # type: ignore[return-value]  # wraps() hides that self has another type


async def _finish(method: Callable[..., Awaitable[R]], inner: object, args: tuple[Any, ...], named: Any) -> R:
    return await method(inner, *args, **named)
