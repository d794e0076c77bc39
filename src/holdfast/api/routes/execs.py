"""/v1/sessions/{id}/exec: run a command, and get its result again."""

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.api.models import ExecIn, ExecOut
from holdfast.api.ports import SessionService
from holdfast.api.routes.common import ExecId, IdempotencyKey, SessionId, failures, reply


def router(service: SessionService) -> APIRouter:
    routes = APIRouter(tags=["exec"])

    @routes.post(
        "/v1/sessions/{session_id}/exec",
        response_model=ExecOut,
        responses=failures(404, 409, 410, 413, 422, 502, 503),
        summary="Run a command",
    )
    async def run(session_id: SessionId, body: ExecIn, key: IdempotencyKey) -> Response:
        """Runs in the session's long-lived shell and returns when it has ended, with whatever exit code.

        A client that disconnects does not stop the command: its result stays readable under its exec_id.
        """
        return reply(ExecOut.of(await service.exec(session_id, body.request(), idempotency_key=key)))

    @routes.get(
        "/v1/sessions/{session_id}/exec/{exec_id}",
        response_model=ExecOut,
        responses=failures(404, 409, 410, 422, 502, 503),
        summary="The result of a command again",
    )
    async def result(session_id: SessionId, exec_id: ExecId) -> Response:
        """Waits for a command that still runs; works also after the daemon was restarted meanwhile."""
        return reply(ExecOut.of(await service.exec_result(session_id, exec_id)))

    return routes
