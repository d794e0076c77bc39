"""The protocol's messages: JSON-RPC, one object per line.

PyPI's ``agent-client-protocol`` has the same as pydantic models and a connection over a subprocess. Its connection does
not fit: ours are the runner's pipes, which a daemon may leave in the middle of a turn, and another one reads on from an
offset. Its models refuse messages of newer agents, and cost half a second to import; we read the few fields that
matter and ignore the rest. So it is not used.
"""

import json
import secrets
from typing import Final

from holdfast.agents.supervisor.lines import JsonObject

PROTOCOL_VERSION: Final = 1
METHOD_NOT_FOUND: Final = -32601
RESOURCE_NOT_FOUND: Final = -32002

Id = str | int


def request(id: Id, method: str, params: JsonObject) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def new_id() -> str:
    return f"holdfast-{secrets.token_hex(8)}"


def ping(id: str) -> bytes:
    """Return a request that every agent answers at once: that it does not know this method."""
    return request(id, "_holdfast/ping", {})


def notification(method: str, params: JsonObject) -> bytes:
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def result(id: Id, value: JsonObject) -> bytes:
    return _line({"jsonrpc": "2.0", "id": id, "result": value})


def refusal(id: Id, method: str) -> bytes:
    """The answer to a request that we do not know: agents ask even clients without files and terminals for them."""
    error = {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}
    return _line({"jsonrpc": "2.0", "id": id, "error": error})


def initialize() -> JsonObject:
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "holdfast", "version": "1"},
    }


def is_answer(told: JsonObject, id: Id) -> bool:
    return told.get("id") == id and "method" not in told and ("result" in told or "error" in told)


def request_of(told: JsonObject) -> tuple[Id, str, JsonObject] | None:
    """Return the agent's request to us in this line, if it is one."""
    match told:
        case {"id": str() | int() as id, "method": str(method)}:
            params = told.get("params")
            return id, method, params if isinstance(params, dict) else {}
    return None


def update_of(told: JsonObject, conversation: str) -> JsonObject | None:
    """Return the agent's update about this conversation in this line, if it is one."""
    match told:
        case {"method": "session/update", "params": {"sessionId": str(name), "update": dict(update)}}:
            return update if name == conversation else None
    return None


def canceled_request(told: JsonObject) -> Id | None:
    """Return the id of the request that the agent withdraws in this line, if it does."""
    match told:
        case {"method": "$/cancel_request", "params": {"requestId": str() | int() as id}}:
            return id
    return None


def explain(error: object) -> str:
    """Return the most useful message in an error of the agent."""
    if not isinstance(error, dict):
        return str(error)
    data = error.get("data")
    inner = data.get("message") or data.get("details") if isinstance(data, dict) else data
    said = str(error.get("message") or "")
    if isinstance(inner, str) and inner and inner not in said:
        said = inner if said in ("", "Internal error", "Invalid params") else f"{said}: {inner}"
    return _unwrap(said) or "the agent told no reason"


def _unwrap(said: str) -> str:
    """Take the message out of a provider's JSON, which some agents pass on as a whole."""
    try:
        told = json.loads(said)
    except ValueError:
        return said
    match told:
        case {"error": {"message": str(message)}} | {"message": str(message)}:
            return message
    return said


def _line(message: JsonObject) -> bytes:
    return json.dumps(message).encode() + b"\n"
