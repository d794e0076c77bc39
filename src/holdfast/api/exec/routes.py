"""/v1/sessions/{id}/exec: run a command, and get its result again."""

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.api.exec.models import ExecIn, ExecOut
from holdfast.api.protocols import SessionService
from holdfast.api.wire.common import ExecId, IdempotencyKey, SessionId, failures
from holdfast.api.wire.pieces import JSON, PiecesReply

PATH = "/v1/sessions/{session_id}/exec"


async def run_command(service: SessionService, session_id: str, body: ExecIn, key: str | None) -> list[bytes]:
    """Run a command; the reply as JSON, in pieces. The route and the short way to it both end here."""
    result = await service.exec(session_id, body.request(), idempotency_key=key)
    return await ExecOut.json_of(result)


def router(service: SessionService) -> APIRouter:
    routes = APIRouter(tags=["exec"])

    @routes.post(
        PATH,
        response_model=ExecOut,
        responses=failures(404, 409, 410, 413, 422, 502, 503),
        summary="Run a command",
    )
    async def run(session_id: SessionId, body: ExecIn, key: IdempotencyKey) -> Response:
        """Runs in the session's long-lived shell and returns when it has ended, with whatever exit code.

        A client that disconnects does not stop the command: its result stays readable under its exec_id.
        """
        return PiecesReply(await run_command(service, session_id, body, key), JSON)

    @routes.get(
        "/v1/sessions/{session_id}/exec/{exec_id}",
        response_model=ExecOut,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="The result of a command again",
    )
    async def result(session_id: SessionId, exec_id: ExecId) -> Response:
        """Waits for a command that still runs; works also after the daemon was restarted meanwhile."""
        return PiecesReply(await ExecOut.json_of(await service.exec_result(session_id, exec_id)), JSON)

    return routes
