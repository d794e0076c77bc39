"""Types of the settings of the gateway."""

import re
from typing import Annotated

from pydantic import AfterValidator

from holdfast.daemon.config.types import Name, Names

_HOST = re.compile(r"(?=.{1,200}\Z)[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\]")


def _domain(value: str) -> str:
    name, colon, port = value.lower().removeprefix("*.").partition(":")
    if not _HOST.fullmatch(name) or name.startswith("[") or (colon and not (port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError("must be a domain whose names all lead here, such as sandbox.example.net")
    if re.fullmatch(r"[0-9.]+", name):
        raise ValueError("must be a domain and no address: an address has no names below it")
    return name + colon + port


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _HOST.fullmatch(value.lower()):
            raise ValueError(f"{value!r}: must be a host name without a port, such as holdfast.example.com")
    return tuple(value.lower() for value in values)


Domain = Annotated[Name, AfterValidator(_domain)]
Hosts = Annotated[Names, AfterValidator(_hosts)]
