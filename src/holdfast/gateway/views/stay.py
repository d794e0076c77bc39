"""Somebody who stays: a visitor with a WebSocket of ours open."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.admission import Visitor
from holdfast.gateway.views.socket import OwnSocket
from holdfast.sessions.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Stay:
    session: Session
    place: SessionAddress
    visitor: Visitor
    socket: OwnSocket
    query: Mapping[str, str]
    on_activity: Callable[[], None]
    """Called when a person does something."""
