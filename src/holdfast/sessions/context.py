"""What all verbs of sessions need: one frozen record, which ``SessionService`` makes."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.drivers.base import Driver
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from holdfast.sessions.copies.locations import Kept
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.operations import Operations
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.types import Clock
from holdfast.sessions.watch.clock import ClockWatch
from holdfast.sessions.watch.marks import Marks
from holdfast.sessions.watch.room import Room
from holdfast.sessions.ways_out import WayOut
from holdfast.store import SessionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The session service's surroundings on one host."""

    store: SessionStore
    driver: Driver
    images: ImageStore
    hub: LinkHub
    shells: SavedShells
    """Those of sleeping sessions."""
    kept: Kept
    settings: SessionSettings
    node: str
    link_key: bytes
    clock: Clock
    watch: ClockWatch
    metrics: SessionMetrics
    way_out: WayOut
    marks: Marks
    room: Room
    operations: Operations
    on_hang_up: Callable[[str], None]
    """It is told the id of each session whose runner has hung up."""
