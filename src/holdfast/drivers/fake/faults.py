"""Faults on demand, for fakes: the next calls of a method fail or hang, before, amid or after their work."""

from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import anyio
from anyio import lowlevel

from holdfast.errors import HoldfastError

Moment = Literal["before", "middle", "after"]
"""When a fault strikes: before anything was done, when a part is done, or when all is done and the reply is lost."""


@dataclass(slots=True)
class _Fault:
    error: HoldfastError | None
    hang: bool
    times: int | None
    moment: Moment
    at: int
    released: anyio.Event = field(default_factory=anyio.Event)


class Faulty:
    """Base of a fake whose ``methods`` can be made to fail. ``calls`` lists each call as (method, session id)."""

    def __init__(self, methods: Container[str]) -> None:
        self.calls: list[tuple[str, str]] = []
        self._methods = methods
        self._faults: dict[str, list[_Fault]] = {}

    def inject(
        self,
        method: str,
        *,
        error: HoldfastError | None = None,
        hang: bool = False,
        times: int | None = 1,
        moment: Moment = "before",
        at: int = 0,
    ) -> None:
        """Let the next ``times`` calls (None: all) of a method fail with ``error``, or hang until ``release``.

        Faults of one method strike in the order in which they were injected. With both, it hangs, then fails. ``at``:
        where a call has several moments in its middle, which one.
        """
        if method not in self._methods:
            raise ValueError(f"the fake has no method {method!r}")
        self._faults.setdefault(method, []).append(_Fault(error, hang, times, moment, at))

    def release(self, method: str) -> None:
        """Let the calls of a method that hang go on, and take its faults away."""
        for fault in self._faults.pop(method, []):
            fault.released.set()

    async def _strike(self, method: str, moment: Moment, session_id: str, *, at: int = 0) -> None:
        """A point where a call can be cancelled, and where the next fault of this method and moment happens."""
        if moment == "before":
            self.calls.append((method, session_id))
        fault = self._take_fault(method, moment, at)
        await lowlevel.checkpoint()
        if fault is None:
            return
        if fault.hang:
            await fault.released.wait()
        if fault.error is not None:
            raise fault.error

    @asynccontextmanager
    async def _struck(self, method: str, session_id: str) -> AsyncIterator[None]:
        """The work of a call, with its faults before and after."""
        await self._strike(method, "before", session_id)
        yield
        await self._strike(method, "after", session_id)

    def _take_fault(self, method: str, moment: Moment, at: int) -> _Fault | None:
        for fault in self._faults.get(method, []):
            if fault.moment != moment or fault.at != at or fault.times == 0:
                continue
            if fault.times is not None:
                fault.times -= 1
            return fault
        return None
