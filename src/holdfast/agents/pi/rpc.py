"""Sends requests to pi's process and reads its answers."""

import json
import secrets
from dataclasses import dataclass

from holdfast.agents.base import Place
from holdfast.agents.supervisor import AgentProcess, JsonObject, Supervisor
from holdfast.errors import AgentFailed


def line(kind: str, name: str, **fields: object) -> bytes:
    """One command as a line; pi's answer will have the id ``name``."""
    return json.dumps({"id": name, "type": kind, **fields}).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class PiState:
    """The state of pi. ``model`` is None if none is chosen."""

    session_file: str | None
    busy: bool
    model: tuple[str, str] | None


class Rpc:
    """Sends requests to one process."""

    def __init__(self, supervisor: Supervisor, place: Place, found: AgentProcess) -> None:
        self._supervisor = supervisor
        self._place = place
        self.found = found

    async def ask(self, kind: str, *, seconds: float | None = None, **fields: object) -> JsonObject:
        """Send a command and return the answer's ``data``.

        Raises ``AgentDown`` if there is no answer in time, ``AgentFailed`` if pi refuses.
        """
        name = f"r-{secrets.token_hex(8)}"
        answer = await self._supervisor.ask(
            self._place,
            self.found,
            line(kind, name, **fields),
            lambda told: told.get("type") == "response" and told.get("id") == name,
            seconds or self._supervisor.timeouts.request,
        )
        if answer.get("success") is not True:
            raise AgentFailed(f"pi refused {kind}: {str(answer.get('error') or 'it does not say why')[:1000]}")
        data = answer.get("data")
        return data if isinstance(data, dict) else {}

    async def state(self, seconds: float | None = None) -> PiState:
        data = await self.ask("get_state", seconds=seconds)
        file = data.get("sessionFile")
        busy = data.get("isStreaming") is True or data.get("isCompacting") is True
        match data.get("model"):
            case {"provider": str(provider), "id": str(name)}:
                return PiState(str(file) if file else None, busy, (provider, name))
        return PiState(str(file) if file else None, busy, None)
