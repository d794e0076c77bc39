"""How Docker's words about itself are taken, and its errors."""

from collections.abc import Iterable

import pytest

from holdfast.drivers.base import Check
from holdfast.drivers.docker.client import DockerClient, translate
from holdfast.drivers.docker.machine import DockerMachine, examine, judge
from holdfast.errors import (
    DriverConflict,
    DriverQuota,
    DriverTransient,
    DriverUnauthorized,
    HoldfastError,
    SandboxNotFound,
)

GOOD = {
    "ServerVersion": "20.10.24+dfsg1",
    "Driver": "overlay2",
    "OSType": "linux",
    "DockerRootDir": "/var/lib/docker/165536.165536",
    "SecurityOptions": ["name=seccomp,profile=default", "name=userns"],
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "CgroupVersion": "2",
    "LiveRestoreEnabled": True,
}
PACKAGE = Check("aiodocker", True, "is installed")
OWN = {"disk limits", "network full", "kernel limits"}
"""Checks of the machine that the tests run on."""


def findings(changes: dict[str, object], *, privileged: bool = True) -> DockerMachine:
    return judge({**GOOD, **changes}, PACKAGE, privileged=privileged)


def failed(checks: Iterable[Check], *, fatal: bool | None = None) -> list[str]:
    return [one.name for one in checks if not one.ok and one.name not in OWN and fatal in (None, one.fatal)]


def test_all_is_well() -> None:
    machine = findings({})
    assert failed(machine.checks) == []
    assert machine.id_base == 165536
    assert machine.limits == {"memory", "pids", "cpu"}


@pytest.mark.parametrize(
    ("changes", "name", "fatal"),
    [
        ({"ServerVersion": "19.03.5"}, "docker", True),
        ({"ServerVersion": ""}, "docker", True),
        ({"OSType": "windows"}, "docker kind", True),
        ({"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}, "docker kind", True),
        ({"SecurityOptions": ["name=userns"]}, "seccomp", True),
        ({"SecurityOptions": None}, "seccomp", True),
        ({"DockerRootDir": "/var/lib/docker"}, "user namespace", True),
        ({"DockerRootDir": "/var/lib/docker/100000.200000"}, "user namespace", True),
        ({"SecurityOptions": ["name=seccomp"]}, "user namespace", False),
        ({"LiveRestoreEnabled": False}, "live restore", False),
        ({"MemoryLimit": False}, "cgroups", False),
    ],
)
def test_what_is_wrong_has_a_line_and_a_remedy(changes: dict[str, object], name: str, fatal: bool) -> None:
    machine = findings(changes)
    assert name in failed(machine.checks, fatal=fatal)
    assert all(check.remedy for check in machine.checks if not check.ok)


def test_a_limit_that_docker_cannot_hold_is_not_promised() -> None:
    assert findings({"MemoryLimit": False}).limits == {"pids", "cpu"}


def test_remapped_ids_are_for_root_only() -> None:
    assert "user namespace" in failed(findings({}, privileged=False).checks, fatal=True)
    plain = findings({"SecurityOptions": ["name=seccomp"], "DockerRootDir": "/var/lib/docker"}, privileged=False)
    assert failed(plain.checks, fatal=True) == []
    assert (plain.id_base, plain.loop_disks, plain.full_network.ok) == (0, False, False)


@pytest.mark.anyio
async def test_a_docker_elsewhere_is_refused_without_asking_it() -> None:
    client = DockerClient("tcp://192.0.2.1:2375")
    checks = (await examine(client)).checks
    assert failed(checks, fatal=True) == ["docker"]
    assert "docker_host" in checks[-1].remedy


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, DriverUnauthorized),
        (403, DriverUnauthorized),
        (404, SandboxNotFound),
        (409, DriverConflict),
        (507, DriverQuota),
        (400, DriverTransient),
        (500, DriverTransient),
        (900, DriverTransient),
        (0, DriverTransient),
    ],
)
def test_errors_are_translated_and_only_404_proves_absence(status: int, kind: type[HoldfastError]) -> None:
    error = translate("to start ses_1", status, "first\n  second " + "x" * 1000)
    assert type(error) is kind
    assert error.message.startswith("asked Docker to start ses_1: first second ")
    assert len(error.message) < 500
