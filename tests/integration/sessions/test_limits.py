"""Ceilings in the real service: every way in which a limit can come in."""

from dataclasses import replace

import pytest

from holdfast.callers.ceilings import Ceilings
from holdfast.callers.types import ROOT, Caller, Scope
from holdfast.errors import LimitOutOfRange
from holdfast.records.limits import Limits
from holdfast.sessions.types import CreateRequest, ForkRequest
from integration.sessions.copies.test_snapshots import start, take
from support.fake_host import DEFAULTS, FakeHost, new

pytestmark = pytest.mark.anyio

CEILINGS = Ceilings(max_cpus=2, max_memory_mb=256, max_pids=100, max_disk_mb=128)
ADA = Caller("key_ada", "ada", Scope.USE, "ada", None, CEILINGS)
LARGE = Caller("key_large", "ada-2", Scope.USE, "ada", None)
WHOLE = {"cpus": 4.0, "memory_mb": 512, "pids": 200, "disk_mb": 256}


@pytest.mark.parametrize(("name", "value"), WHOLE.items())
async def test_a_key_gets_no_more_than_its_ceiling(host: FakeHost, name: str, value: float) -> None:
    async with host.daemon() as service:
        wish = CreateRequest(**{name: value})  # type: ignore[arg-type]  # one of its fields
        with pytest.raises(LimitOutOfRange, match=f"limits.{name}: {value:g} is more than"):
            await service.create(wish, idempotency_key=None, caller=ADA)
        made = await service.create(wish, idempotency_key=None, caller=LARGE)
        assert getattr(made.spec.limits, name) == value
        assert host.count("create") == 1, "nothing was made for the wish that was refused"


async def test_a_copy_and_a_restore_get_no_more_either(host: FakeHost) -> None:
    async with host.daemon() as service:
        large = await service.create(CreateRequest(**{**WHOLE, "disk_mb": 128}), idempotency_key=None, caller=LARGE)  # type: ignore[arg-type]  # its own fields, by name
        lowered = Limits(2, 256, 100, 128)
        copy, _ = await service.fork(large.id, ForkRequest(), idempotency_key=None, caller=ADA)
        assert copy.spec.limits == lowered
        await take(service, large.id, "base", caller=LARGE)
        assert (await service.get(await start(service, "base", ADA))).spec.limits == lowered
        with pytest.raises(
            LimitOutOfRange, match=r"limits\.memory_mb: 512 is more than 256, the max_memory_mb of this"
        ):
            await start(service, "base", ADA, memory_mb=512)


async def test_a_larger_disk_comes_in_by_no_copy(host: FakeHost) -> None:
    async with host.daemon() as service:
        large = await service.create(CreateRequest(disk_mb=256), idempotency_key=None, caller=LARGE)
        await take(service, large.id, "base", caller=LARGE)
        with pytest.raises(
            LimitOutOfRange, match=r"limits\.disk_mb: 256 is more than 128, the max_disk_mb of this key"
        ):
            await service.fork(large.id, ForkRequest(), idempotency_key=None, caller=ADA)
        with pytest.raises(
            LimitOutOfRange, match=r"limits\.disk_mb: 256 is more than 128, the max_disk_mb of this key"
        ):
            await start(service, "base", ADA)


async def test_a_workspace_has_the_disk_of_its_first_session(host: FakeHost) -> None:
    async with host.daemon() as service:
        with pytest.raises(LimitOutOfRange, match="disk_mb"):
            await service.create(CreateRequest(workspace="w", disk_mb=129), idempotency_key=None, caller=ADA)
        assert await service.workspaces.list(caller=ADA) == []
        await service.create(CreateRequest(workspace="w", disk_mb=128), idempotency_key=None, caller=ADA)
        [workspace] = await service.workspaces.list(caller=ADA)
        assert workspace.row.disk_mb == 128


async def test_the_pool_is_lowered_too(host: FakeHost) -> None:
    """A machine that is smaller than the defaults has sessions all the same, and those of the pool are like others."""
    machine = Limits(cpus=0.5, memory_mb=48, pids=32, disk_mb=32)
    async with host.daemon(replace(DEFAULTS, machine=machine, pool={"empty": 1})) as service:
        made = await service.get(await new(service, caller=ROOT))
        assert made.spec.limits == machine
        with pytest.raises(LimitOutOfRange, match=r"limits\.cpus: 1 is more than 0\.5, the CPUs of this machine"):
            await service.create(CreateRequest(cpus=1.0), idempotency_key=None, caller=ROOT)
