"""Every error that Holdfast raises on purpose, in one tree.

::

    HoldfastError                      code                 HTTP
    ├── BadInput                       bad_input            422
    │   ├── UnknownImage               unknown_image        422
    │   ├── LimitOutOfRange            limit_out_of_range   422
    │   ├── NotAFile                   not_a_file           422
    │   └── NotADirectory              not_a_directory      422
    ├── Unauthorized                   unauthorized         401
    │   └── BadSignature               bad_signature        401
    ├── Forbidden                      forbidden            403
    │   └── BadLink                    bad_link             403
    ├── NotFound                       not_found            404
    │   ├── SessionNotFound            session_not_found    404
    │   ├── ExecNotFound               exec_not_found       404
    │   ├── ProcessNotFound            process_not_found    404
    │   ├── FileMissing                file_not_found       404
    │   ├── ImageNotFound              image_not_found      404
    │   ├── SnapshotNotFound           snapshot_not_found   404
    │   ├── WorkspaceNotFound          workspace_not_found  404
    │   ├── StrayNotFound              stray_not_found      404
    │   ├── KeyNotFound                key_not_found        404
    │   ├── ThreadNotFound             thread_not_found     404
    │   ├── TurnNotFound               turn_not_found       404
    │   ├── LinkNotFound               link_not_found       404
    │   ├── TunnelNotFound             tunnel_not_found     404
    │   └── ServiceNotFound            service_not_found    404
    ├── BadRequest                     bad_request          400
    ├── RequestTimeout                 request_timeout      408
    ├── Misdirected                    misdirected          421
    ├── UpgradeRequired                upgrade_required     426
    ├── HeadTooLarge                   head_too_large       431
    ├── Conflict                       conflict             409
    │   ├── WrongState                 wrong_state          409
    │   ├── StaleRow                   stale_row            409
    │   ├── IdempotencyMismatch        idempotency_mismatch 409
    │   ├── ImageInUse                 image_in_use         409
    │   ├── NothingListens             nothing_listens      409
    │   ├── ServiceNeedsMemory         service_needs_memory 409
    │   ├── FileExists                 file_exists          409
    │   └── NotEmpty                   not_empty            409
    ├── SessionGone                    session_gone         410
    ├── TooLarge                       too_large            413
    │   └── DiskFull                   disk_full            413
    ├── BadRange                       bad_range            416
    ├── TooManySessions                too_many_sessions    429
    ├── TooManySnapshots               too_many_snapshots   429
    ├── TooManyWorkspaces              too_many_workspaces  429
    ├── TooManyWatches                 too_many_watches     429
    ├── TooManyTunnels                 too_many_tunnels     429
    ├── SandboxLost                    sandbox_lost         502
    ├── InvalidAnswer                      bad_answer           502
    ├── NoAnswer                       no_answer            504
    ├── ServiceFailed                  service_failed       502
    │   └── ServiceKeepsFailing        service_keeps_failing 503
    ├── Unavailable                    unavailable          503
    │   ├── Asleep                     asleep               503
    │   ├── ServiceStopped             service_stopped      503
    │   ├── CreateFailed               create_failed        503
    │   ├── TooManyConnections         too_many_connections 503
    │   ├── RuntimeUnavailable         runtime_unavailable  503
    │   └── ToolMissing                tool_missing         503
    ├── BuildFailed                    build_failed         500
    ├── ShellUnavailable               shell_unavailable    409
    ├── ConfigError                    bad_config           500
    ├── ProtocolError                  protocol_error       502
    ├── RepoFailed                     repo_failed          502
    ├── NotTranscribed                 not_transcribed      503
    ├── AgentError                     agent_error          502
    │   ├── AgentDown                  agent_down           503
    │   ├── AgentSessionMissing        agent_session_missing 404
    │   ├── AgentFailed                agent_failed         502
    │   │   ├── AgentNotInstalled      agent_not_installed  502
    │   │   └── AgentWithoutModel      agent_without_model  502
    │   └── AgentUnsupported           agent_unsupported    409
    └── DriverError                    driver_error         503
        ├── SandboxNotFound            sandbox_not_found    404
        ├── DriverUnauthorized         driver_unauthorized  503
        ├── DriverQuota                driver_quota         429
        ├── DriverConflict             driver_conflict      409
        ├── DriverUnsupported          driver_unsupported   409
        ├── SnapshotBroken             snapshot_broken      409
        └── DriverTransient            driver_transient     503

``code`` is stable: clients may match on it. The message says what happened and what to do, and may change.
"The command failed" is never an error: it is a result with an exit code. An error means that Holdfast could
not do what it was asked. Only ``SandboxNotFound`` proves that a sandbox is absent; any other driver error
says nothing about it.
"""


class HoldfastError(Exception):
    """The root; raised itself only for what has no better name."""

    code = "internal"
    status = 500
    request_id: str | None = None
    """Set by the SDK on errors that came from a daemon: what to look for in its log."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.__class__.__name__)

    @property
    def message(self) -> str:
        return str(self)


class BadInput(HoldfastError):
    """The caller sent something that cannot be right; the message names the field."""

    code = "bad_input"
    status = 422


class UnknownImage(BadInput):
    code = "unknown_image"


class LimitOutOfRange(BadInput):
    """The limit is more than the machine, the daemon or the key allows, or too little to start a session."""

    code = "limit_out_of_range"


class NotAFile(BadInput):
    """The path names a directory, a socket or a device where a regular file is needed."""

    code = "not_a_file"


class NotADirectory(BadInput):
    """The path names something else where a folder is needed."""

    code = "not_a_directory"


class Unauthorized(HoldfastError):
    code = "unauthorized"
    status = 401


class BadSignature(Unauthorized):
    """A webhook request was not signed with our secret, or too long ago. The SDK raises it for receivers."""

    code = "bad_signature"


class Forbidden(HoldfastError):
    """The key's scope does not allow this; or the sandbox's own user may not read or write that path."""

    code = "forbidden"
    status = 403


class BadLink(Forbidden):
    """The signed link has expired, is for something else, or was not made by this daemon."""

    code = "bad_link"


class NotFound(HoldfastError):
    code = "not_found"
    status = 404


class BadRequest(HoldfastError):
    """What was sent is no HTTP request that can be read."""

    code = "bad_request"
    status = 400


class RequestTimeout(HoldfastError):
    """The rest of a request did not come in time."""

    code = "request_timeout"
    status = 408


class Misdirected(HoldfastError):
    """The request was sent to a host name that is none of this daemon's."""

    code = "misdirected"
    status = 421


class UpgradeRequired(HoldfastError):
    """A WebSocket was expected, and an ordinary request came: as a rule, a proxy on the way does not pass them on."""

    code = "upgrade_required"
    status = 426


class HeadTooLarge(HoldfastError):
    """The line and headers of a request are more than anybody needs."""

    code = "head_too_large"
    status = 431


class SessionNotFound(NotFound):
    code = "session_not_found"


class ExecNotFound(NotFound):
    code = "exec_not_found"


class ProcessNotFound(NotFound):
    code = "process_not_found"


class FileMissing(NotFound):
    code = "file_not_found"


class ImageNotFound(NotFound):
    code = "image_not_found"


class SnapshotNotFound(NotFound):
    code = "snapshot_not_found"


class WorkspaceNotFound(NotFound):
    code = "workspace_not_found"


class StrayNotFound(NotFound):
    code = "stray_not_found"


class KeyNotFound(NotFound):
    code = "key_not_found"


class ThreadNotFound(NotFound):
    code = "thread_not_found"


class TurnNotFound(NotFound):
    code = "turn_not_found"


class LinkNotFound(NotFound):
    code = "link_not_found"


class TunnelNotFound(NotFound):
    code = "tunnel_not_found"


class ServiceNotFound(NotFound):
    """The session's image declares no service of that name."""

    code = "service_not_found"


class Conflict(HoldfastError):
    code = "conflict"
    status = 409


class WrongState(Conflict):
    """The session exists but its state does not allow this."""

    code = "wrong_state"


class StaleRow(Conflict):
    """Someone else changed the row first: the guarded UPDATE matched nothing."""

    code = "stale_row"


class IdempotencyMismatch(Conflict):
    """The same Idempotency-Key came with another request."""

    code = "idempotency_mismatch"


class ImageInUse(Conflict):
    code = "image_in_use"


class NothingListens(Conflict):
    """Nobody takes connections at that port inside the sandbox."""

    code = "nothing_listens"


class ServiceNeedsMemory(Conflict):
    """The service needs more memory than the session may use."""

    code = "service_needs_memory"


class FileExists(Conflict):
    """Something is in the way; the message says how to replace it."""

    code = "file_exists"


class NotEmpty(Conflict):
    """The folder has something in it, and only an empty one may be removed."""

    code = "not_empty"


class SessionGone(HoldfastError):
    """The session was destroyed or has expired; it will not come back."""

    code = "session_gone"
    status = 410


class TooLarge(HoldfastError):
    code = "too_large"
    status = 413


class DiskFull(TooLarge):
    """The session's writable space is used up."""

    code = "disk_full"


class BadRange(HoldfastError):
    """The part of the file that was asked for is not in it."""

    code = "bad_range"
    status = 416


class TooManySessions(HoldfastError):
    code = "too_many_sessions"
    status = 429


class TooManySnapshots(HoldfastError):
    code = "too_many_snapshots"
    status = 429


class TooManyWorkspaces(HoldfastError):
    code = "too_many_workspaces"
    status = 429


class TooManyWatches(HoldfastError):
    """A session, or the kernel, watches as many folders as it may."""

    code = "too_many_watches"
    status = 429


class TooManyTunnels(HoldfastError):
    code = "too_many_tunnels"
    status = 429


class SandboxLost(HoldfastError):
    """The sandbox died, or stopped answering, while a call was under way."""

    code = "sandbox_lost"
    status = 502


class InvalidAnswer(HoldfastError):
    """The program at that port of the sandbox did not answer in HTTP, or hung up before it answered."""

    code = "bad_answer"
    status = 502


class NoAnswer(HoldfastError):
    """The program at that port of the sandbox took the request and has not answered in time."""

    code = "no_answer"
    status = 504


class ServiceFailed(HoldfastError):
    """A service of the session did not start, or has died; the message says why, with the end of its output."""

    code = "service_failed"
    status = 502


class ServiceKeepsFailing(ServiceFailed):
    """It has failed several times in a row, and is not started for a while."""

    code = "service_keeps_failing"
    status = 503


class Unavailable(HoldfastError):
    """Try again later: the daemon is starting, stopping or overloaded."""

    code = "unavailable"
    status = 503


class Asleep(Unavailable):
    """The session sleeps, and a request like this one does not wake it."""

    code = "asleep"


class ServiceStopped(Unavailable):
    """The service is stopped, and this request is not one that starts it."""

    code = "service_stopped"


class CreateFailed(Unavailable):
    """An earlier request with this Idempotency-Key could not make its session, and left none: use another key."""

    code = "create_failed"


class TooManyConnections(Unavailable):
    """The API has as many connections as it may, and all are in use."""

    code = "too_many_connections"


class RuntimeUnavailable(Unavailable):
    """The container runtime cannot work on this machine as it is set up; the message says why and what to do."""

    code = "runtime_unavailable"


class ToolMissing(Unavailable):
    """A program of the host that this takes is not installed; the message says how to."""

    code = "tool_missing"


class BuildFailed(HoldfastError):
    """An image could not be built; the message has the last lines of the log, and says where all of it is."""

    code = "build_failed"


class ShellUnavailable(HoldfastError):
    """There is no bash in the image and none in the runtime bundle."""

    code = "shell_unavailable"
    status = 409


class ConfigError(HoldfastError):
    """The configuration is wrong; the message names the key."""

    code = "bad_config"


class ProtocolError(HoldfastError):
    """The other end of a link broke the protocol."""

    code = "protocol_error"
    status = 502


class RepoFailed(HoldfastError):
    """The thread's git repository could not be cloned into its sandbox; the message has git's own last line."""

    code = "repo_failed"
    status = 502


class NotTranscribed(HoldfastError):
    """An audio file was not turned into text; the message says why, and what to do."""

    code = "not_transcribed"
    status = 503


class AgentError(HoldfastError):
    """The agent inside a sandbox, as its adapter sees it. Says nothing about the sandbox itself."""

    code = "agent_error"
    status = 502


class AgentDown(AgentError):
    """Its process is not there, or does not answer in time; starting it is the remedy."""

    code = "agent_down"
    status = 503


class AgentSessionMissing(AgentError):
    """The agent was asked and certainly does not know that conversation; a new one is the remedy."""

    code = "agent_session_missing"
    status = 404


class AgentFailed(AgentError):
    """The agent answered with an error, or with something that makes no sense."""

    code = "agent_failed"


class AgentNotInstalled(AgentFailed):
    """The sandbox's image does not have the agent's program; another image is the remedy."""

    code = "agent_not_installed"


class AgentWithoutModel(AgentFailed):
    """The agent can talk to no model that the thread may use; another provider or allow-list is the remedy."""

    code = "agent_without_model"


class AgentUnsupported(AgentError):
    """This agent cannot do that; its abilities say what it can."""

    code = "agent_unsupported"
    status = 409


class DriverError(HoldfastError):
    """A driver could not do it. Subclasses say what that means; unknown causes are ``DriverTransient``."""

    code = "driver_error"
    status = 503


class SandboxNotFound(DriverError):
    """Proof of absence: the driver looked, and there is no such sandbox."""

    code = "sandbox_not_found"
    status = 404


class DriverUnauthorized(DriverError):
    code = "driver_unauthorized"


class DriverQuota(DriverError):
    code = "driver_quota"
    status = 429


class DriverConflict(DriverError):
    code = "driver_conflict"
    status = 409


class DriverUnsupported(DriverError):
    """This driver cannot do that; its capabilities say so beforehand."""

    code = "driver_unsupported"
    status = 409


class SnapshotBroken(DriverError):
    """There is no complete snapshot where one should be; trying again will not help."""

    code = "snapshot_broken"
    status = 409


class DriverTransient(DriverError):
    """It may work on the next try. Everything that we do not understand is this."""

    code = "driver_transient"


def _subclasses(root: type[HoldfastError]) -> dict[str, type[HoldfastError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_subclasses(child))
    return found


def by_code(code: str) -> type[HoldfastError]:
    """Return the class behind a wire code; ``HoldfastError`` for codes of a newer version."""
    return _subclasses(HoldfastError).get(code, HoldfastError)
