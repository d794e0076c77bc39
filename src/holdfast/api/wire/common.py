"""What all routes share: ids, the idempotency key, replies and the failures they are documented with."""

import re
from typing import Annotated, Any

from fastapi import Depends, Header, Path
from pydantic import BaseModel
from starlette.responses import Response

from holdfast.api.edge.failures import REPLY_REF
from holdfast.errors import BadInput, ExecNotFound, ProcessNotFound, SessionNotFound

# These dependencies are ``async`` only so that the framework does not send them through a thread each time.
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PRINTABLE = re.compile(r"[!-~]{1,255}")

FAILURES = {
    401: "no API key, or a wrong one",
    403: "the key's scope does not allow it, the sandbox's user may not do that, or a link has expired",
    404: "no such thing",
    409: "not possible in this state",
    410: "the session was destroyed or has expired",
    413: "too large",
    416: "the range is not in the file",
    422: "bad input; the message names the field",
    429: "too many of them",
    500: "something went wrong in the daemon",
    502: "the sandbox was lost during the call",
    503: "the runtime is unavailable; try again",
}


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How a route's failures appear in OpenAPI. By reference: of a model, each route would make a validator for each
    status, and that was most of the time that it took to build the application."""
    content = {"application/json": {"schema": {"$ref": REPLY_REF}}}
    return {
        status: {"description": FAILURES[status], "content": content} for status in sorted({401, 403, *statuses, 500})
    }


def reply(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Serialise the model once. To return the model itself would have the framework check and copy it again."""
    return Response(model.model_dump_json(), status, headers, "application/json")


def is_idempotency_key(text: str) -> bool:
    return _PRINTABLE.fullmatch(text) is not None


def checked_session_id(session_id: str) -> str:
    if not _ID.fullmatch(session_id):  # never reaches the store: no text that a database could choke on
        raise SessionNotFound(
            "there is no session with that id; `holdfast ls` (GET /v1/sessions) lists those there are"
        )
    return session_id


async def _session_id(session_id: Annotated[str, Path(description="ses_…")]) -> str:
    return checked_session_id(session_id)


async def _exec_id(exec_id: Annotated[str, Path(description="from the result of an exec")]) -> str:
    if not _ID.fullmatch(exec_id):
        raise ExecNotFound("there is no command with that id in this session")
    return exec_id


async def _process_id(process_id: Annotated[str, Path(description="prc_…")]) -> str:
    if not _ID.fullmatch(process_id):
        raise ProcessNotFound("there is no process with that id in this session")
    return process_id


async def _idempotency_key(
    idempotency_key: Annotated[
        str | None, Header(description="The same key with the same request gives the first result again")
    ] = None,
) -> str | None:
    if idempotency_key is not None and not is_idempotency_key(idempotency_key):
        raise BadInput("Idempotency-Key: must be 1 to 255 printable ASCII characters without spaces")
    return idempotency_key


SessionId = Annotated[str, Depends(_session_id)]
ProcessId = Annotated[str, Depends(_process_id)]
ExecId = Annotated[str, Depends(_exec_id)]
IdempotencyKey = Annotated[str | None, Depends(_idempotency_key)]
