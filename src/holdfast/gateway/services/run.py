"""One service of one session, as this daemon knows it."""

import asyncio
from dataclasses import dataclass, field

from holdfast.errors import ServiceFailed
from holdfast.gateway.services.states import ServiceEvent, ServiceState, next_state
from holdfast.records.services import TERMINAL, ServiceSpec
from holdfast.sessions.ids import service_process_id
from holdfast.sessions.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceView:
    """A service as people see it."""

    name: str
    title: str
    state: ServiceState
    port: int | None
    """None for the terminal, which the daemon offers itself."""
    process_id: str | None = None
    """Its process, while the session knows of one."""
    started_at: float | None = None
    reason: str | None = None
    """Why it is not running, where that is known."""


TERMINAL_VIEW = ServiceView(name=TERMINAL, title="Terminal", state=ServiceState.READY, port=None)


@dataclass(slots=True, eq=False)
class ServiceRun:
    """It belongs to a session as it is awake now: one that slept in between has other runs."""

    session: Session
    spec: ServiceSpec
    state: ServiceState = ServiceState.STOPPED
    reason: str | None = None
    started_at: float | None = None
    has_process: bool = False
    kills: int = 0
    """How often memory had run out in the session when it was started."""
    used_at: float = 0.0
    """By the loop's clock: when somebody last wanted it."""
    failed_at: float | None = None
    """By the loop's clock: when its last start failed."""
    starting: "asyncio.Future[None] | None" = None
    watching: "asyncio.Task[None] | None" = field(default=None, repr=False)
    """It follows the process to its end."""

    @property
    def process_id(self) -> str:
        return service_process_id(self.session.id, self.spec.name)

    def take(self, event: ServiceEvent, reason: str | None = None) -> None:
        self.state, self.reason = next_state(self.state, event), reason

    def note_use(self) -> None:
        """Somebody wants it now."""
        self.used_at = asyncio.get_running_loop().time()

    def failure(self) -> ServiceFailed:
        return ServiceFailed(f"the service {self.spec.name} failed: {self.reason}")

    def view(self) -> ServiceView:
        is_up = self.state in (ServiceState.STARTING, ServiceState.READY)
        return ServiceView(
            name=self.spec.name,
            title=self.spec.title,
            state=self.state,
            port=self.spec.port,
            process_id=self.process_id if self.has_process else None,
            started_at=self.started_at if is_up else None,
            reason=self.reason,
        )


def view_of(spec: ServiceSpec, reason: str) -> ServiceView:
    """Return the view of a service of a session that is not awake."""
    return ServiceView(name=spec.name, title=spec.title, state=ServiceState.STOPPED, port=spec.port, reason=reason)
