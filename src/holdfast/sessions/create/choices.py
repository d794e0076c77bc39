"""What a new session is to be: the caller's wishes over the defaults, or the error that says why it cannot be so.

Limits have three ceilings: the machine's own size, the configuration's ``max_…`` and those of the caller's key; the
lowest counts. Who asks for more is refused, and told which one it was. What nobody asked for (a default, or what a
thread was given long ago) is lowered to the ceiling instead, so that a lower ceiling never locks anybody out.
"""

from collections.abc import Iterator
from dataclasses import fields, replace

from holdfast.callers.ceilings import NO_CEILINGS, Ceilings
from holdfast.drivers.base import Capabilities
from holdfast.errors import BadInput, LimitOutOfRange, UnknownImage
from holdfast.images.names import canonical
from holdfast.records.limits import Limits
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SessionSpec, SleepPolicy
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.types import CreateRequest

_MAX_ENV_BYTES = 128 << 10
KEPT_SECONDS = 50 * 365 * 24 * 3600
"""The time to live of a session that somebody else ends: longer than anything here lasts."""
FLOORS = Limits(cpus=0.01, memory_mb=32, pids=16, disk_mb=16)
"""With less, no sandbox starts."""
_NAMES = tuple(one.name for one in fields(Limits))


def choose_spec(
    request: CreateRequest,
    settings: SessionSettings,
    able: Capabilities,
    of_key: Ceilings = NO_CEILINGS,
    base: Limits | None = None,
    image_mb: int = 0,
) -> SessionSpec:
    """Lay the caller's wishes over the defaults. Raises ``BadInput`` naming what cannot be.

    ``of_key`` are the ceilings of the caller's key; ``base`` are the limits of what the session goes on from;
    ``image_mb`` is the memory that the image's services need.
    """
    network = _choose_network(request.network, settings.default_network, able)
    if sum(len(name) + len(value) for name, value in request.env.items()) > _MAX_ENV_BYTES:
        raise BadInput(f"env: more than {_MAX_ENV_BYTES} bytes in all")
    writable = settings.default_writable_root if request.writable_root is None else request.writable_root
    return SessionSpec(
        limits=choose_limits(request, settings, of_key, base, image_mb),
        network=network,
        writable_root=writable,
        env=dict(request.env),
        sleep=_choose_sleep(request.sleep, settings, able),
        kept=request.kept,
    )


def continued(request: CreateRequest, base: SessionSpec, image: str) -> CreateRequest:
    """Return the wish for a session that goes on from ``base``. What it does not say is as it was there, but for the
    limits.

    Raises ``BadInput`` for a smaller disk, and for a root that is writable where the other one was not: the files in
    it belong to somebody else then.
    """
    if request.disk_mb is not None and request.disk_mb < base.limits.disk_mb:
        raise BadInput(f"limits.disk_mb: the snapshot's disk has {base.limits.disk_mb} MB; ask for no less")
    if request.writable_root not in (None, base.writable_root):
        raise BadInput(f"writable_root: must be {str(base.writable_root).lower()}, as when the snapshot was taken")
    return replace(
        request,
        image=request.image or image,
        env={**base.env, **request.env},
        network=request.network or base.network,
        writable_root=base.writable_root,
        sleep=request.sleep or base.sleep,
    )


def _choose_sleep(wanted: SleepPolicy | None, settings: SessionSettings, able: Capabilities) -> SleepPolicy:
    policy = settings.default_sleep if wanted is None else wanted
    if wanted is not None and policy.pause_after_seconds is not None and not (able.pause or able.stop):
        raise BadInput("sleep.pause_after_seconds: this driver can put no session to sleep here")
    return policy


def _choose_network(wanted: NetworkPolicy | None, default: NetworkPolicy, able: Capabilities) -> NetworkPolicy:
    """A driver that offers one kind only (no isolation: always the host's) does not make every create name it."""
    if wanted is None and default.network not in able.networks and len(able.networks) == 1:
        return NetworkPolicy(next(iter(able.networks)))
    policy = wanted or default
    if policy.network not in able.networks:
        asked = policy.network if policy.allow is None else "allow, since it cannot keep a sandbox off the network"
        remedy = f". {able.network_remedy}" if able.network_remedy else ""
        offered = ", ".join(sorted(able.networks))
        raise BadInput(f"network: this driver does not offer {asked}; it offers {offered}{remedy}")
    return policy


def choose_image(name: str | None, settings: SessionSettings) -> str:
    """Return the image's name in the one form that rows have. Raises ``UnknownImage`` for one that is not allowed."""
    chosen = canonical(name or settings.default_image)
    if settings.allowed_images is not None and chosen not in map(canonical, settings.allowed_images):
        allowed = ", ".join(sorted(settings.allowed_images)) or "none"
        raise UnknownImage(f"image: {chosen} is not allowed here; allowed are: {allowed}")
    return chosen


def choose_ttl(ttl_seconds: int | None, settings: SessionSettings) -> int:
    ttl = settings.ttl_seconds if ttl_seconds is None else ttl_seconds
    if not 1 <= ttl <= settings.max_ttl_seconds:
        raise BadInput(f"ttl_seconds: {ttl} is not between 1 and {settings.max_ttl_seconds}")
    return ttl


def choose_limits(
    request: CreateRequest,
    settings: SessionSettings,
    of_key: Ceilings = NO_CEILINGS,
    base: Limits | None = None,
    image_mb: int = 0,
) -> Limits:
    """Raises ``LimitOutOfRange`` for a wish that cannot be; for what is ``kept``, takes the nearest that can.

    ``base``: of what the session goes on from, instead of the defaults. Its disk cannot be made smaller, so that one
    is refused if it is too large; of a thread, which would lose its files, it stays. Where nobody says how much memory,
    it is enough for the image's services, and for ``least_memory_mb`` of the request.
    """
    memory_mb = max(settings.default_limits.memory_mb, request.least_memory_mb or 0, image_mb)
    default = base or replace(settings.default_limits, memory_mb=memory_mb)
    chosen = {name: _choose(name, request, settings, of_key, default, base) for name in _NAMES}
    return Limits(
        cpus=chosen["cpus"],
        memory_mb=int(chosen["memory_mb"]),
        pids=int(chosen["pids"]),
        disk_mb=int(chosen["disk_mb"]),
    )


def _choose(
    name: str,
    request: CreateRequest,
    settings: SessionSettings,
    of_key: Ceilings,
    defaults: Limits,
    base: Limits | None,
) -> float:
    wanted: float | None = getattr(request, name)
    default: float = getattr(defaults, name)
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
        raise LimitOutOfRange(f"limits.{name}: {wanted:.15g} is less than {least:.15g}, and no sandbox starts then")
    most, whose = min(_ceilings(name, settings, of_key), key=lambda one: one[0], default=(wanted, ""))
    if wanted > most:
        raise LimitOutOfRange(f"limits.{name}: {wanted:.15g} is more than {most:.15g}, {whose}")


def _most(name: str, settings: SessionSettings, of_key: Ceilings) -> float:
    return min((most for most, _whose in _ceilings(name, settings, of_key)), default=float("inf"))


def _ceilings(name: str, settings: SessionSettings, of_key: Ceilings) -> Iterator[tuple[float, str]]:
    """Yield how much at most, and who says so.

    A ceiling below the floor is the floor: a key that may have no session at all says so by ``max_sessions``.
    """
    least: float = getattr(FLOORS, name)
    mine: float | None = getattr(of_key, f"max_{name}")
    everybodys: float | None = getattr(settings.ceilings, f"max_{name}")
    if mine is not None:
        yield max(mine, least), f"the max_{name} of this key"
    if everybodys is not None:
        yield max(everybodys, least), f"the max_{name} of this daemon"
    if settings.machine is not None:
        yield max(getattr(settings.machine, name), least), _OF_MACHINE[name]


_OF_MACHINE = {
    "cpus": "the CPUs of this machine",
    "memory_mb": "the memory of this machine",
    "pids": "half of the processes that this machine can have",
    "disk_mb": "the size of the file system with the daemon's state",
}
