"""From a configuration to a running application: each service is made here, and given the others that it needs.

A service makes its own parts. Only ``Breaks`` is told of another one later: of the sessions, which go out by the broker
that it belongs to.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from holdfast.api.app import create_app
from holdfast.api.files.links import FileLinks
from holdfast.api.services import Services
from holdfast.api.settings import ApiSettings
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.broker.egress.egress import EgressBroker
from holdfast.broker.egress.metrics import EgressMetrics
from holdfast.broker.models.answering.breaks import Breaks
from holdfast.callers.ring import KeyRing
from holdfast.daemon import node
from holdfast.daemon.config.config import Config
from holdfast.daemon.config.load import load_config
from holdfast.daemon.root_key import load_or_create_key
from holdfast.daemon.server.loop_meter import LoopMeter
from holdfast.daemon.wiring.gateway import gateway_settings, make_doors
from holdfast.daemon.wiring.image_users import describe_users
from holdfast.daemon.wiring.models import make_broker, make_catalogue
from holdfast.daemon.wiring.threads import make_books, make_threads
from holdfast.drivers.base import Driver
from holdfast.drivers.linux.machine import machine_limits
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.id_ranges import USUAL
from holdfast.errors import BadInput, ConfigError, ImageInUse
from holdfast.gateway.dispatch import Dispatcher
from holdfast.gateway.proxies import TrustedProxies
from holdfast.images.store import ImageInfo, ImageStore
from holdfast.images.unpack.layers import REGISTRY
from holdfast.link.hub import LinkHub
from holdfast.network.outside import Outside
from holdfast.network.proxies import Proxies
from holdfast.sessions.copies.locations import Kept
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.service import SessionService
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.events import EventFeed
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.telling.webhooks import WebhookMetrics, Webhooks, WebhookSettings
from holdfast.sessions.watch.clock import boot_clock
from holdfast.sessions.watch.room import Room
from holdfast.sessions.ways_out import WaysOut
from holdfast.store import Store, reserve_for
from holdfast.threads.service import ThreadService

MOST_PIDS = 16384
"""How many processes a session may ask for where ``max_pids`` is not set."""

_REMEDY = "run this as the user that the daemon runs as"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Daemon:
    """The parts of a running daemon."""

    app: FastAPI
    front: Dispatcher
    """What the HTTP server calls: it tells the API's requests from those into sessions."""
    service: SessionService
    driver: Driver
    events: EventFeed
    threads: ThreadService


def make_driver(config: Config) -> Driver:
    """Make the driver that the configuration names; each is imported only when it is chosen."""
    if config.driver == "process":
        from holdfast.drivers.process import ProcessDriver

        return ProcessDriver(config.state_dir)
    if config.driver == "fake":
        from holdfast.drivers.fake.driver import FakeDriver

        return FakeDriver()
    opened = PrivateHosts.parse(config.egress_private_hosts).blocks
    if config.driver == "docker":
        from holdfast.drivers.docker.client import DEFAULT_HOST
        from holdfast.drivers.docker.driver import DockerDriver

        host = config.docker_host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
        return DockerDriver(config.state_dir, host=host, opened=opened)
    from holdfast.drivers.oci.driver import OciDriver

    return OciDriver(config.state_dir, runtime=config.runtime, opened=opened, ids=config.id_range or USUAL)


@contextlib.asynccontextmanager
async def running(config: Config) -> AsyncIterator[Daemon]:
    """Run everything, from the first file to the last watcher; it is taken apart in the reverse order.

    Whoever calls it holds the state directory's lock.
    """
    async with contextlib.AsyncExitStack() as stack:
        root_key = load_or_create_key(config)
        reserve = reserve_for(config.resolved_database_url, config.disk_reserve_mb << 20)
        store = await Store.open(config.resolved_database_url, reserve=reserve)
        stack.push_async_callback(store.close)
        if reserve is not None:
            await stack.enter_async_context(reserve.kept())
        keys = KeyRing(store.keys, root_key, clock=time.time, max_sessions=config.max_sessions_per_key)
        await stack.enter_async_context(keys.running())
        driver = make_driver(config)
        await driver.prepare()
        _warn_of_missing_limits(driver)
        stack.push_async_callback(driver.close)
        images = make_images(config, driver)
        registry = CollectorRegistry()
        books = make_books(config, store, node.node_id(config.state_dir))
        proxies = Proxies.from_environment(os.environ)
        outside = Outside(proxies=proxies)
        stack.push_async_callback(outside.close)
        egress = make_egress(config, registry, proxies)
        stack.push_async_callback(egress.close)
        catalogue = make_catalogue(config)
        breaks = Breaks()
        broker = make_broker(stack, config, driver, catalogue, books, breaks, registry, outside)
        service = SessionService(
            store.sessions,
            driver,
            images,
            LinkHub(config.state_dir / "link"),
            SavedShells(config.state_dir / "asleep"),
            Kept(store.snapshots, store.workspaces, config.state_dir, config.snapshot_dir),
            session_settings(config),
            node=node.node_id(config.state_dir),
            link_key=node.link_key(config.state_dir),
            clock=time.time,
            steady=boot_clock,
            metrics=SessionMetrics(registry),
            way_out=WaysOut([egress, broker]),
        )
        breaks.attend(service.processes.tell)
        await stack.enter_async_context(service.running())
        feed = EventFeed(store.events)
        await stack.enter_async_context(feed.running())
        webhooks = Webhooks(
            store.webhooks,
            store.events,
            feed,
            config.section("webhooks", WebhookSettings),
            node=node.node_id(config.state_dir),
            clock=time.time,
            steady=boot_clock,
            metrics=WebhookMetrics(registry),
            outside=outside,
        )
        await stack.enter_async_context(webhooks.running())
        threads = make_threads(
            config,
            store,
            service,
            driver,
            registry,
            images=images,
            node=node.node_id(config.state_dir),
            books=books,
            models=catalogue if broker.unavailable is None else None,
        )
        await stack.enter_async_context(threads.running())
        secret = node.link_key(config.state_dir)
        doors = make_doors(gateway_settings(config), secret, store, keys, service, registry)
        await stack.enter_async_context(doors.gateway.running())
        services = Services(
            sessions=service,
            keys=keys,
            images=HostImages(images, store, node.node_id(config.state_dir), service.room),
            events=feed,
            threads=threads,
            links=FileLinks(node.link_key(config.state_dir), time.time, keys.has),
            gateway=doors.services,
            registry=registry,
        )
        settings = replace(
            config.section("api", ApiSettings),
            max_body_bytes=config.max_file_bytes * 4 // 3 + (1 << 20),
            node=node.node_id(config.state_dir),
        )
        app = create_app(services, settings)
        await stack.enter_async_context(LoopMeter(registry).running())  # last: the start itself may take its time
        front = Dispatcher(app, doors.gateway, TrustedProxies(config.trusted_proxies))
        yield Daemon(app=app, front=front, service=service, driver=driver, events=feed, threads=threads)


def _warn_of_missing_limits(driver: Driver) -> None:
    """Log which limits are not enforced: such a limit is worse than none, unless somebody says so."""
    able = driver.capabilities
    offered = {"memory": able.memory_limit, "cpu": able.cpu_limit, "pids": able.pids_limit, "disk": able.disk_limit}
    missing = [name for name, enforced in offered.items() if not enforced]
    if missing and able.isolation:
        log.warning("limits.not_enforced", limits=missing, remedy="holdfast doctor says what is missing")


def make_egress(config: Config, registry: CollectorRegistry, proxies: Proxies) -> EgressBroker:
    private = PrivateHosts.parse(config.egress_private_hosts)
    egress = EgressBroker(private, EgressMetrics(registry), proxies=proxies)
    try:
        egress.check(config.network)
    except BadInput as error:
        raise ConfigError(f"network: {error.message}") from None
    return egress


def make_images(config: Config, driver: Driver) -> ImageStore:
    return ImageStore(config.state_dir / "images", id_base=driver.root_id)


def open_images(config_file: Path | None) -> ImageStore:
    """Open the image store of the daemon with this configuration, for builds and exports, which take no daemon.

    Raises ``ConfigError`` where we may not write.
    """
    config = load_config(config_file)
    root = config.state_dir / "images"
    try:
        for directory in (config.state_dir, root):
            directory.mkdir(0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"state_dir: cannot make {root} ({error.strerror}); {_REMEDY}") from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise ConfigError(f"state_dir: {root} belongs to another user; {_REMEDY}")
    if config.driver == "docker":
        return asyncio.run(_docker_images(config))
    # the driver knows only once it is prepared, which is the daemon's to do
    return ImageStore(root, id_base=ID_BASE if os.geteuid() == 0 and config.driver == "oci" else None)


async def _docker_images(config: Config) -> ImageStore:
    driver = make_driver(config)
    await driver.prepare()
    return make_images(config, driver)


def session_settings(config: Config) -> SessionSettings:
    """Make the section of sessions, with what the machine has, and a ceiling for processes where none is set."""
    chosen = config.section("sessions", SessionSettings)
    most = chosen.ceilings.max_pids or max(MOST_PIDS, chosen.default_limits.pids)
    ceilings = replace(chosen.ceilings, max_pids=most)
    return replace(chosen, ceilings=ceilings, machine=machine_limits(config.state_dir))


class HostImages:
    """The image store as the API sees it: it also knows which images sessions still use."""

    def __init__(self, images: ImageStore, store: Store, node_id: str, room: Room) -> None:
        self._images = images
        self._store = store
        self._node = node_id
        self._room = room

    async def list(self) -> Sequence[ImageInfo]:
        return await self._images.list()

    async def import_(self, name: str, source: str, /, *, replace: bool) -> ImageInfo:
        await self._room.check("imports")
        where = source if source.startswith(REGISTRY) else Path(source)
        return await self._images.import_(name, where, replace=replace)

    async def remove(self, name: str, /) -> None:
        try:
            await self._images.remove(name, in_use=await self._store.sessions.referenced_images(node=self._node))
        except ImageInUse:
            raise ImageInUse(await describe_users(self._store, self._node, name)) from None
