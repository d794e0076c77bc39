"""From a configuration to a running application: each service is made here, and given the others that it needs."""

import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from holdfast.api.app import create_app
from holdfast.api.files.links import FileLinks
from holdfast.api.settings import ApiSettings
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.broker.egress.egress import EgressBroker
from holdfast.broker.egress.metrics import EgressMetrics
from holdfast.broker.models.answering.breaks import Breaks
from holdfast.callers.ceilings import Ceilings
from holdfast.callers.ring import KeyRing
from holdfast.daemon import node
from holdfast.daemon.config.config import Config
from holdfast.daemon.config.pool import THREADS
from holdfast.daemon.root_key import load_or_create_key
from holdfast.daemon.server.loop_meter import LoopMeter
from holdfast.daemon.wiring.image_users import describe_users
from holdfast.daemon.wiring.models import make_catalogue, running_broker
from holdfast.daemon.wiring.threads import make_books, make_threads
from holdfast.drivers.base import Driver
from holdfast.drivers.linux.machine import machine_limits
from holdfast.drivers.oci.id_ranges import USUAL
from holdfast.errors import BadInput, ConfigError, ImageInUse
from holdfast.images.store import ImageInfo, ImageStore
from holdfast.images.unpack.layers import REGISTRY
from holdfast.link.hub import LinkHub
from holdfast.network.outside import Outside
from holdfast.network.proxies import Proxies
from holdfast.records.limits import Limits
from holdfast.records.spec import SleepPolicy
from holdfast.sessions.copies.locations import Kept
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.service import SessionService
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.events import EventFeed
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.telling.webhook import Webhook
from holdfast.sessions.telling.webhooks import WebhookMetrics, Webhooks, WebhookSettings
from holdfast.sessions.watch.clock import boot_clock
from holdfast.sessions.watch.room import Room
from holdfast.sessions.ways_out import WaysOut
from holdfast.store import Store, reserve_for
from holdfast.threads.resolve.warm import POOL
from holdfast.threads.service import ThreadService

MOST_PIDS = 16384
"""How many processes a session may ask for where ``max_pids`` is not set."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Daemon:
    """What is running."""

    app: FastAPI
    service: SessionService
    driver: Driver
    events: EventFeed
    threads: ThreadService


def make_driver(config: Config) -> Driver:
    """The driver that the configuration names; each is imported only when it is chosen."""
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
    """Everything, from the first file to the last watcher; taken apart again in the reverse order.

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
        broker = await stack.enter_async_context(
            running_broker(config, driver, catalogue, books, breaks, registry, outside)
        )
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
            webhook_settings(config),
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
        app = create_app(
            service,
            keys=keys,
            events=feed,
            settings=ApiSettings(
                max_body_bytes=config.max_file_bytes * 4 // 3 + (1 << 20),
                public_url=config.public_url,
                trusted_proxies=config.trusted_proxies,
                node=node.node_id(config.state_dir),
            ),
            registry=registry,
            commands=service.commands,
            processes=service.processes,
            ports=service.ports,
            snapshots=service.snapshots,
            workspaces=service.workspaces,
            strays=service.strays,
            images=HostImages(images, store, node.node_id(config.state_dir), service.room),
            files=service.files,
            links=FileLinks(node.link_key(config.state_dir), time.time, keys.has),
            threads=threads,
        )
        await stack.enter_async_context(LoopMeter(registry).running())  # last: the start itself may take its time
        yield Daemon(app=app, service=service, driver=driver, events=feed, threads=threads)


def _warn_of_missing_limits(driver: Driver) -> None:
    """A limit that nobody enforces is worse than none, unless somebody says so."""
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


def session_settings(config: Config) -> SessionSettings:
    return SessionSettings(
        default_image=config.default_image,
        allowed_images=config.allowed_images,
        default_limits=Limits(
            cpus=config.cpu_limit,
            memory_mb=config.mem_limit_mb,
            pids=config.pids_limit,
            disk_mb=config.disk_limit_mb,
        ),
        ceilings=session_ceilings(config),
        machine=machine_limits(config.state_dir),
        default_network=config.network,
        default_writable_root=not config.readonly_rootfs,
        ttl_seconds=config.session_ttl_seconds,
        max_ttl_seconds=config.max_ttl_seconds,
        max_sessions=config.max_sessions,
        max_snapshots=config.max_snapshots,
        max_workspaces=config.max_workspaces,
        exec_timeout_ms=config.exec_timeout_ms,
        max_exec_timeout_ms=config.max_exec_timeout_ms,
        max_output_bytes=config.max_output_bytes,
        max_file_bytes=config.max_file_bytes,
        reap_interval_seconds=config.reap_interval_seconds,
        event_retention_seconds=config.event_retention_hours * 3600,
        stray_keep_seconds=config.stray_keep_days * 24 * 3600,
        low_disk_bytes=config.disk_low_mb << 20,
        pool={kind: count for kind, count in config.pool.items() if kind != THREADS},
        warm_pool={POOL: config.pool.get(THREADS, 0)},
        default_sleep=SleepPolicy(
            pause_after_seconds=config.pause_after_seconds,
            hibernate_after_seconds=config.hibernate_after_seconds,
            destroy_after_seconds=config.destroy_after_seconds,
        ),
    )


def session_ceilings(config: Config) -> Ceilings:
    """As configured. Of processes there are some also where nobody says so: a machine can have millions."""
    return Ceilings(
        max_cpus=config.max_cpus,
        max_memory_mb=config.max_memory_mb,
        max_pids=config.max_pids or max(MOST_PIDS, config.pids_limit),
        max_disk_mb=config.max_disk_mb,
    )


def webhook_settings(config: Config) -> WebhookSettings:
    return WebhookSettings(
        webhooks=[Webhook(one.url, one.secret.get_secret_value(), one.events) for one in config.webhooks],
        retry_seconds=config.webhook_retry_hours * 3600,
    )


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
