"""The caller of a request: put into the ASGI scope by the guard, taken out by the routes that ask who it is."""

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import Scope

from holdfast.errors import Unauthorized
from holdfast.keys.types import Caller

_CALLER = "holdfast.caller"


def put_caller(scope: Scope, caller: Caller) -> None:
    scope[_CALLER] = caller


def caller_in(scope: Scope) -> Caller | None:
    """None on what is open without a key."""
    caller: Caller | None = scope.get(_CALLER)
    return caller


async def _caller(connection: HTTPConnection) -> Caller:
    caller = caller_in(connection.scope)
    if caller is None:  # the guard was not in front of this route
        raise Unauthorized("no API key; send 'Authorization: Bearer <key>'")
    return caller


CallerOf = Annotated[Caller, Depends(_caller)]
