"""Building the way in, for ``wiring``."""

import ipaddress
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from holdfast.api.services import GatewayServices
from holdfast.broker.egress.egress import PORT as EGRESS_PORT
from holdfast.callers.ring import KeyRing
from holdfast.daemon.config.config import Config
from holdfast.gateway.addresses import HostNames
from holdfast.gateway.admission import Admission
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.links import Links
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.previews import Previews
from holdfast.gateway.proxy.upstream import PortConnections
from holdfast.gateway.services.engine import SessionServices
from holdfast.gateway.services.metrics import ServiceMetrics
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.telling import Telling
from holdfast.gateway.tunnels import Tunnels
from holdfast.gateway.views.views import OwnViews
from holdfast.gateway.visits import Visits
from holdfast.gateway.waking import Waking
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.vocabulary.models import PORT as BROKER_PORT

CLOSED = frozenset({BROKER_PORT, EGRESS_PORT})
"""Ports of a sandbox that lead to the daemon: nobody comes in by them."""


@dataclass(frozen=True, slots=True)
class Doors:
    gateway: Gateway
    services: GatewayServices


def make_doors(
    settings: GatewaySettings,
    secret: bytes,
    store: Store,
    keys: KeyRing,
    sessions: SessionService,
    registry: CollectorRegistry,
) -> Doors:
    """Make the gateway. ``secret`` is one that a new daemon of this node has as well."""
    names = HostNames(settings.domain, settings.public_hosts, tls=settings.tls)
    metrics = GatewayMetrics(registry)
    visits = Visits(store.links, keys, secret, settings.session_seconds, time.time)
    tunnels = Tunnels(store.tunnels, sessions, CLOSED, time.time)
    links = Links(store.links, names, settings, keys, time.time, visits.forget)
    upstreams = PortConnections(sessions.ports, settings.max_connections)
    services = SessionServices(sessions, tunnels.check_port, ServiceMetrics(registry))
    gateway = Gateway(
        names,
        Admission(visits, keys, sessions, public_links=settings.public_links),
        visits,
        tunnels,
        Waking(sessions),
        services,
        upstreams,
        OwnViews(names, sessions.processes, upstreams, services, time.time),
        Telling(metrics, time.time, sessions, keys),
        metrics,
        time.time,
    )
    previews = Previews(store.threads, visits, tunnels, names, time.time, settings.thread_preview_port)
    return Doors(gateway, GatewayServices(links, tunnels, visits, services, previews))


def gateway_settings(config: Config) -> GatewaySettings:
    """Make the section of the gateway, with the names that follow from other settings."""
    chosen = config.section("gateway", GatewaySettings)
    return replace(chosen, public_hosts=(*chosen.public_hosts, *_own_hosts(config)))


def _own_hosts(config: Config) -> Iterator[str]:
    """Yield the names that follow from other settings: of ``public_url``, and of an address that is listened at."""
    if config.public_url is not None and (host := urlsplit(config.public_url).hostname):
        yield f"[{host}]" if ":" in host else host
    try:
        address = ipaddress.ip_address(config.host.partition("%")[0])
    except ValueError:
        yield config.host
        return
    if not address.is_unspecified:
        yield f"[{address}]" if address.version == 6 else str(address)
