"""Rows to test with."""

from dataclasses import replace
from typing import Any

from holdfast.records.limits import Limits
from holdfast.records.machine import Status
from holdfast.records.network import NetworkPolicy
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SessionSpec

NOW = 1_700_000_000.123456
"""With microseconds, which a 32-bit float or an integer column would lose."""

NODE = "node-a"

_ROW = SessionRow(
    id="ses_0001",
    owner="root",
    status=Status.ACTIVE,
    image="host",
    node=NODE,
    driver="fake",
    spec=SessionSpec(Limits(1, 512, 256, 1024), NetworkPolicy.NONE, writable_root=False, env={"A": "b"}),
    metadata={"team": "blue"},
    cwd="/home/user",
    ttl_seconds=600,
    created_at=NOW,
    expires_at=NOW + 600,
    last_activity_at=NOW,
    updated_at=NOW,
)


def a_row(number: int = 1, **changes: Any) -> SessionRow:
    """Row ``number``: ids sort as the numbers do."""
    return replace(_ROW, **{"id": f"ses_{number:04}"} | changes)
