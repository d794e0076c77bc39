"""Types of the settings of sandboxes: ids of the host, the Docker daemon, the network, and how many are kept ready."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, InstanceOf

from holdfast.daemon.config.types import read_json
from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT
from holdfast.drivers.oci.id_ranges import LAST, Layout
from holdfast.errors import BadInput
from holdfast.images.names import canonical
from holdfast.records.network import NetworkPolicy

_FIRST = 100_000
"""Below are ordinary users."""
THREADS = "threads"
"""Instead of an image: sandboxes that wait for a thread, with its agent."""
_POOL_FORMS = 'must map images to counts, as {"host": 4} or host=4,python=2'
_MOST = 1000
"""Of one image. More is a slip of the finger."""


def _layout(value: object) -> object:
    if isinstance(value, Layout):
        return value
    match = re.fullmatch(r"\s*([0-9]{1,12})\s*-\s*([0-9]{1,12})\s*", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be FIRST-LAST, such as 2001000000-2147352575")
    first, last = int(match[1]), int(match[2])
    if first < _FIRST or last > LAST:
        raise ValueError(f"must be within {_FIRST}-{LAST}")
    if first < ID_BASE + ID_COUNT and last >= ID_BASE:
        raise ValueError(f"must not hold any of {ID_BASE}-{ID_BASE + ID_COUNT - 1}, which files on disk belong to")
    return Layout.within(first, last)


def _on_this_machine(value: str) -> str:
    """Refuse a Docker daemon elsewhere: it could not show sandboxes the directory with the socket of this daemon."""
    if not value.startswith("unix:///"):
        raise ValueError("must be a socket on this machine, such as unix:///var/run/docker.sock")
    return value


def _network(value: object) -> object:
    """Read ``none``, ``full``, or a list of hosts, which the environment has as JSON."""
    if isinstance(value, NetworkPolicy):
        return value
    if isinstance(value, str):
        value = value.strip().lower()
        if value.startswith("{"):
            value = read_json(value, 'must be none, full or JSON such as {"allow": ["pypi.org"]}')
    try:
        return NetworkPolicy.from_wire(value)
    except BadInput as error:
        raise ValueError(error.message.removeprefix("network: ").removeprefix("network.")) from None


def _pool(value: object) -> Mapping[str, int]:
    """Read a mapping or text. Raises ValueError, which names the image whose count is wrong."""
    pairs = _pool_from_text(value) if isinstance(value, str) else value
    if not isinstance(pairs, Mapping):
        raise ValueError(_POOL_FORMS)
    sizes: dict[str, int] = {}
    for name, count in pairs.items():
        image = canonical(str(name).strip())
        if not image:
            raise ValueError(_POOL_FORMS)
        if image == THREADS != str(name).strip():
            raise ValueError(f"{name}: the word {THREADS} is for threads; give the image another tag, or name")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST:
            raise ValueError(f"{image}: must be a whole number from 0 to {_MOST}")
        sizes[image] = count
    return sizes


def _pool_from_text(text: str) -> object:
    """Read JSON, or pairs with commas, as the environment has only text."""
    if text.lstrip().startswith("{"):
        return read_json(text, _POOL_FORMS)
    pairs = [item.partition("=") for item in text.split(",") if item.strip()]
    return {name: _number(count.strip()) for name, _, count in pairs}


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


IdRange = Annotated[InstanceOf[Layout], BeforeValidator(_layout)]
LocalSocket = Annotated[str, AfterValidator(_on_this_machine)]
Reachable = Annotated[InstanceOf[NetworkPolicy], BeforeValidator(_network)]
PoolSizes = Annotated[Mapping[str, int], BeforeValidator(_pool)]
