"""/v1/sessions/{id}/exec: run a command, and get its result again."""

from starlette.responses import Response

from holdfast.api.exec.models import ExecIn, ExecOut
from holdfast.api.wire.common import ExecId, IdempotencyKey, SessionId
from holdfast.api.wire.pieces import JSON, PiecesReply
from holdfast.api.wire.routes import IN_SESSION, READ, SESSION, USE, Routes
from holdfast.sessions.service import SessionService

PATH = f"{SESSION}/exec"


async def exec_json(service: SessionService, session_id: str, body: ExecIn, key: str | None) -> list[bytes]:
    """Run a command; the reply as JSON, in pieces. The route and the short way to it both end here."""
    result = await service.exec(session_id, await body.request(), idempotency_key=key)
    return await ExecOut.json_of(result)


def router(service: SessionService) -> Routes:
    routes = Routes("exec")

    @routes.post(
        PATH,
        "Run a command",
        scope=USE,
        returns=ExecOut,
        fails=(*IN_SESSION, 413),
    )
    async def run_command(session_id: SessionId, body: ExecIn, key: IdempotencyKey) -> Response:
        """Run a command in the session's long-lived shell, and return when it has ended, with whatever exit code.

        A client that disconnects does not stop the command: its result stays readable under its exec_id.
        """
        return PiecesReply(await exec_json(service, session_id, body, key), JSON)

    @routes.get(
        f"{SESSION}/exec/{{exec_id}}", "The result of a command again", scope=READ, returns=ExecOut, fails=IN_SESSION
    )
    async def get_command_result(session_id: SessionId, exec_id: ExecId) -> Response:
        """Return the result of a command once more. This waits for a command that still runs, and works after a restart
        of the daemon, too."""
        return PiecesReply(await ExecOut.json_of(await service.exec_result(session_id, exec_id)), JSON)

    return routes
