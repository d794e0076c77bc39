"""A follower tells whoever wants to know that the daemon is away, and that it is back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from holdfast.errors import Unavailable
from holdfast.sdk.connection import following

pytestmark = pytest.mark.anyio


@dataclass
class Event:
    seq: int


async def test_an_absence_is_told_once_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(following, "_LONGEST_PAUSE_SECONDS", 0.01)
    told: list[bool] = []
    tries = 0

    async def connect(after: int | None) -> AsyncGenerator[Event | None, None]:
        nonlocal tries
        tries += 1
        if 1 < tries < 6:
            raise Unavailable("nobody listens")
        yield None
        yield Event((after or 0) + 1)

    async with asyncio.timeout(30), aclosing(following.followed(connect, 0, answers=told.append)) as events:
        assert (await anext(events)).seq == 1
        assert told == []
        assert (await anext(events)).seq == 2
    assert told == [False, True]
