"""The caller of a request: put into the ASGI scope by the guard, taken out by the routes that ask who it is."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import Scope

from holdfast.callers.types import Caller
from holdfast.errors import Unauthorized
from holdfast.sessions.use.sight import see_files_only

_CALLER = "holdfast.caller"
_ADMITTED = "holdfast.admitted"


def put_caller(scope: Scope, caller: Caller) -> None:
    scope[_CALLER] = caller
    if not caller.sees_secrets:
        see_files_only()
    admit(scope)


def admit(scope: Scope) -> None:
    """Note that the sender has a key, or a link that is as good: the server closes connections of others first.

    In the state, which is one for all copies of a scope.
    """
    scope.get("state", {})[_ADMITTED] = True


def is_admitted(scope: Mapping[str, object]) -> bool:
    state = scope.get("state")
    return isinstance(state, dict) and _ADMITTED in state


def caller_in(scope: Scope) -> Caller | None:
    """Return who sent the request; None for what is open without a key."""
    caller: Caller | None = scope.get(_CALLER)
    return caller


async def _caller(connection: HTTPConnection) -> Caller:
    caller = caller_in(connection.scope)
    if caller is None:  # the guard was not in front of this route
        raise Unauthorized("no API key; send 'Authorization: Bearer <key>'")
    return caller


CallerOf = Annotated[Caller, Depends(_caller)]
