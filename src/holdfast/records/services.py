"""Services: programs of a session that are started when somebody wants them, as an image declares them. Pure.

An image's recipe declares them; what it says is kept with the image, and copied into each session that is made of it.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from holdfast.errors import BadInput
from holdfast.records.gateway import MOST_NAME, PUBLIC, is_name

TERMINAL: Final = "terminal"
"""A service of every session, which has no process: the daemon offers it itself."""
USUAL: Final = frozenset({"ide", "desktop", TERMINAL})
"""Names that mean the same in every session; an image that has such a thing declares it under this name."""
TCP: Final = "tcp"
SERVICES_LABEL: Final = "dev.holdfast.services"
"""The label of a Docker image that declares its services, as JSON."""
MOST_SERVICES: Final = 16
MOST_BYTES: Final = 32 << 10
"""Of all services of an image together: each session's row has a copy."""
_MOST_COMMAND = 8 << 10
_MOST_REMOVE = 20
_MOST_ENV = 50
_DAYS = 7
_PATH = re.compile(r"/[!-~]{0,255}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """One service, with defaults filled in."""

    name: str
    command: str
    """A line for bash. The program stays in the foreground; when it ends, the service has ended."""
    port: int
    """Of the sandbox's loopback, where it answers."""
    ready: str = TCP
    """When it can be used: ``tcp``, when the port accepts; or a path, when it answers a GET of that with a success."""
    title: str = ""
    """For people; the name, where the image says nothing."""
    idle_seconds: int = 1800
    """It is stopped after so long without a connection."""
    start_seconds: int = 60
    """It must be ready so soon."""
    memory_mb: int | None = None
    """A session that may use less does not start it."""
    remove: tuple[str, ...] = ()
    """Files and directories that a killed program leaves behind and that keep it from starting; ``~/`` is the home."""
    env: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> dict[str, object]:
        """Return it as JSON has it, for ``read_services``."""
        fields = {**asdict(self), "remove": list(self.remove), "env": dict(self.env)}
        del fields["name"]
        return fields


ServiceSpecs = tuple[ServiceSpec, ...]


def read_services(table: object, *, strict: bool = False) -> ServiceSpecs:
    """Return the services that a table of names and their keys declares, in its order.

    Keys that are not known are left out, as a newer version may have written them; if ``strict``, they are refused.
    Raises ``BadInput``, whose message begins with the key.
    """
    if not isinstance(table, dict):
        raise BadInput("services: must be tables [services.NAME]")
    if len(table) > MOST_SERVICES:
        raise BadInput(f"services: an image has at most {MOST_SERVICES}")
    found = tuple(_Reader(str(name), entry).service(strict) for name, entry in table.items())
    ports = [service.port for service in found]
    for service in found:
        if ports.count(service.port) > 1:
            raise BadInput(f"services.{service.name}.port: another service has {service.port} already")
    if sum(_size(service) for service in found) > MOST_BYTES:
        raise BadInput(f"services: must have at most {MOST_BYTES >> 10} KB together; put scripts into files")
    return found


def memory_needed(services: ServiceSpecs) -> int:
    """Return the memory in MB of a session in which each of these can be started, one at a time; 0 for any."""
    return max((service.memory_mb or 0 for service in services), default=0)


def services_to_wire(services: ServiceSpecs) -> dict[str, object]:
    """Return services as JSON has them: what ``read_services`` reads."""
    return {service.name: service.to_wire() for service in services}


def _size(service: ServiceSpec) -> int:
    texts = [service.command, service.title, *service.remove, *service.env.keys(), *service.env.values()]
    return sum(len(text.encode()) for text in texts)


class _Reader:
    """One service's table, key by key."""

    def __init__(self, name: str, table: object) -> None:
        self._key = f"services.{name[:100]}"
        if not is_name(name) or name.startswith(PUBLIC) or name == TERMINAL:
            raise BadInput(
                f"{self._key}: a service is called by 1 to {MOST_NAME} of a-z, 0-9 and single hyphens, begins with a "
                f"letter but not with {PUBLIC}, and is not {TERMINAL}, which every session has"
            )
        if not isinstance(table, dict):
            raise BadInput(f"{self._key}: must be a table with command and port")
        self._name = name
        self._table: Mapping[str, object] = table

    def service(self, strict: bool) -> ServiceSpec:
        keys = [*(one for one in ServiceSpec.__dataclass_fields__ if one != "name")]
        unknown = sorted(str(key) for key in self._table if key not in keys)
        if strict and unknown:
            raise self._wrong(unknown[0][:100], f"there is no such key; the keys are {', '.join(keys)}")
        return ServiceSpec(
            name=self._name,
            command=self._text("command", None, _MOST_COMMAND),
            port=self._number("port", None, 1, 65535),
            ready=self._ready(),
            title=self._title(),
            idle_seconds=self._number("idle_seconds", 1800, 1, _DAYS * 86400),
            start_seconds=self._number("start_seconds", 60, 1, 600),
            memory_mb=None if self._table.get("memory_mb") is None else self._number("memory_mb", None, 1, 1 << 20),
            remove=self._remove(),
            env=self._env(),
        )

    def _ready(self) -> str:
        ready = self._text("ready", TCP, 256)
        if ready != TCP and not _PATH.fullmatch(ready):
            raise self._wrong("ready", f'must be "{TCP}", or a path such as "/healthz"')
        return ready

    def _title(self) -> str:
        title = self._text("title", self._name, 60)
        if not title.isprintable():
            raise self._wrong("title", "must be one line of printable characters")
        return title

    def _remove(self) -> tuple[str, ...]:
        paths = self._table.get("remove", [])
        if not isinstance(paths, list) or len(paths) > _MOST_REMOVE or not all(_may_go(path) for path in paths):
            raise self._wrong(
                "remove", f"must be a list of at most {_MOST_REMOVE} paths that begin with / or ~/ and have no .."
            )
        return tuple(paths)

    def _env(self) -> dict[str, str]:
        table = self._table.get("env", {})
        if not isinstance(table, dict) or len(table) > _MOST_ENV:
            raise self._wrong("env", f"must be a table of at most {_MOST_ENV} texts")
        for name, value in table.items():
            if not _VARIABLE.fullmatch(str(name)) or str(name).startswith("HOLDFAST_"):
                raise self._wrong("env", "names consist of letters, digits and _; HOLDFAST_ is not for images")
            if not isinstance(value, str) or "\0" in value:
                raise self._wrong(f"env.{name}", "must be text without a NUL character")
        return dict(table)

    def _text(self, key: str, default: str | None, most: int) -> str:
        value = self._table.get(key, default)
        if not isinstance(value, str) or not value.strip() or "\0" in value or len(value.encode()) > most:
            raise self._wrong(key, f"must be text of 1 to {most} bytes, without a NUL character")
        return value

    def _number(self, key: str, default: int | None, least: int, most: int) -> int:
        value = self._table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(key, f"must be a whole number from {least} to {most}")
        return value

    def _wrong(self, key: str, what: str) -> BadInput:
        return BadInput(f"{self._key}.{key}: {what}")


def _may_go(path: object) -> bool:
    """Say whether a service may have this removed before it starts: a path, but no home and no root."""
    if not isinstance(path, str) or len(path) > 500 or "\0" in path or not path.startswith(("/", "~/")):
        return False
    parts = [part for part in path.removeprefix("~").split("/") if part]
    return bool(parts) and not {".", ".."} & set(parts)
