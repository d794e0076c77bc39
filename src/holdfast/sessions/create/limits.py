"""The limits of a new session: what was asked for, between what a sandbox needs and what it may have at most.

There are three ceilings: the machine's own size, the configuration's ``max_…`` and those of the caller's key; the
lowest counts. Who asks for more is refused, and told which one it was. What nobody asked for (a default, or what a
thread was given long ago) is lowered to the ceiling instead, so that a lower ceiling never locks anybody out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from holdfast.callers.ceilings import NO_CEILINGS, Ceilings
from holdfast.errors import LimitOutOfRange
from holdfast.records.limits import Limits
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.types import CreateRequest

FLOORS = Limits(cpus=0.01, memory_mb=32, pids=16, disk_mb=16)
"""With less, no sandbox starts."""
_NAMES = tuple(one.name for one in fields(Limits))


@dataclass(frozen=True, slots=True)
class _Ceiling:
    most: float
    whose: str


def choose_limits(
    request: CreateRequest, settings: SessionSettings, of_key: Ceilings = NO_CEILINGS, base: Limits | None = None
) -> Limits:
    """Raises ``LimitOutOfRange`` for a wish that cannot be; for what is ``kept``, takes the nearest that can.

    ``base``: of what the session goes on from, instead of the defaults. Its disk cannot be made smaller, so that one
    is refused if it is too large; of a thread, which would lose its files, it stays.
    """
    chosen = {name: _choose(name, request, settings, of_key, base) for name in _NAMES}
    return Limits(
        cpus=chosen["cpus"],
        memory_mb=int(chosen["memory_mb"]),
        pids=int(chosen["pids"]),
        disk_mb=int(chosen["disk_mb"]),
    )


def _choose(
    name: str, request: CreateRequest, settings: SessionSettings, of_key: Ceilings, base: Limits | None
) -> float:
    wanted: float | None = getattr(request, name)
    default: float = getattr(base or settings.default_limits, name)
    if base is not None and name == "disk_mb" and wanted is None:
        wanted = default
    if wanted is None:
        return min(default, _most(name, settings, of_key))
    if not request.kept:
        _refuse_outside(name, wanted, settings, of_key)
        return wanted
    least: float = base.disk_mb if base is not None and name == "disk_mb" else getattr(FLOORS, name)
    return max(min(wanted, _most(name, settings, of_key)), least)


def _refuse_outside(name: str, wanted: float, settings: SessionSettings, of_key: Ceilings) -> None:
    least = getattr(FLOORS, name)
    if wanted < least:
        raise LimitOutOfRange(
            f"limits.{name}: {_plain(wanted)} is less than {_plain(least)}, and no sandbox starts then"
        )
    ceilings = sorted(_ceilings(name, settings, of_key), key=lambda one: one.most)
    if ceilings and wanted > ceilings[0].most:
        lowest = ceilings[0]
        raise LimitOutOfRange(f"limits.{name}: {_plain(wanted)} is more than {_plain(lowest.most)}, {lowest.whose}")


def _most(name: str, settings: SessionSettings, of_key: Ceilings) -> float:
    return min((one.most for one in _ceilings(name, settings, of_key)), default=float("inf"))


def _ceilings(name: str, settings: SessionSettings, of_key: Ceilings) -> Iterator[_Ceiling]:
    """A ceiling below the floor is the floor: a key that may have no session at all says so by ``max_sessions``."""
    least: float = getattr(FLOORS, name)
    mine: float | None = getattr(of_key, f"max_{name}")
    everybodys: float | None = getattr(settings.ceilings, f"max_{name}")
    if mine is not None:
        yield _Ceiling(max(mine, least), f"the max_{name} of this key")
    if everybodys is not None:
        yield _Ceiling(max(everybodys, least), f"the max_{name} of this daemon")
    if settings.machine is not None:
        yield _Ceiling(max(getattr(settings.machine, name), least), _OF_MACHINE[name])


_OF_MACHINE = {
    "cpus": "the CPUs of this machine",
    "memory_mb": "the memory of this machine",
    "pids": "half of the processes that this machine can have",
    "disk_mb": "the size of the file system with the daemon's state",
}


def _plain(value: float) -> str:
    return f"{value:.15g}"
