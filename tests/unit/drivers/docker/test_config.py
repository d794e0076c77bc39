"""What Docker is told about a sandbox."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.drivers.base import ImageRoot, SandboxSpec
from holdfast.drivers.docker import config as docker_config
from holdfast.drivers.docker.config import DockerHost, DockerPlaces
from holdfast.drivers.docker.skeleton import Skeleton
from holdfast.drivers.runtime_bundle import RuntimeBundle
from holdfast.records.limits import Limits, Network

SPEC = SandboxSpec(
    session_id="ses_0123456789abcdef",
    image=ImageRoot("host", Path("/images/host"), masked=("/usr/local/etc",)),
    limits=Limits(cpus=0.5, memory_mb=256, pids=100, disk_mb=64),
    network=Network.NONE,
    writable_root=False,
    env={"GREETING": "good day"},
    link_dir=Path("/state/link/ses_0123456789abcdef"),
    token="the-token",
)
HOST = DockerHost(RuntimeBundle(Path("/bundle"), "ld.so", True), owner=0, id_base=0, open_files=1024, machine="x86_64")
SKELETON = Skeleton({"usr": 0o755, "etc": 0o755}, frozenset(), {"bin": "usr/bin"})
PLACES = DockerPlaces(
    Path("/d/workspace"), Path("/d/tmp"), {"usr": Path("/v/usr"), "etc": Path("/v/etc")}, guarded=True
)


def build(spec: SandboxSpec = SPEC, host: DockerHost = HOST, places: DockerPlaces = PLACES) -> dict[str, Any]:
    return cast("dict[str, Any]", docker_config.build(spec, host, places, SKELETON, Path("/state")))


def mounts(config: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    return {one["Target"]: (one["Source"], one["ReadOnly"]) for one in config["HostConfig"]["Mounts"]}


def test_it_is_hardened() -> None:
    config = build()
    host = config["HostConfig"]
    assert host["CapDrop"] == ["ALL"] and not host["Privileged"] and "CapAdd" not in host
    assert (host["ReadonlyRootfs"], host["NetworkMode"], host["IpcMode"]) == (True, "none", "private")
    assert config["NetworkDisabled"] is True
    assert {"/proc/kcore", "/proc/sysrq-trigger", "/usr/local/etc"} <= set(host["MaskedPaths"])
    assert "/proc/sys" in host["ReadonlyPaths"]
    privileges, filter_ = host["SecurityOpt"]
    assert privileges == "no-new-privileges:true"
    seccomp = json.loads(filter_.removeprefix("seccomp="))
    assert seccomp["defaultAction"] == "SCMP_ACT_ERRNO"
    assert any("clone3" in rule["names"] and rule["errnoRet"] == 38 for rule in seccomp["syscalls"])


def test_what_is_counted_per_user_is_limited_per_process() -> None:
    """All sandboxes have the same ids."""
    counts = {"RLIMIT_SIGPENDING": 100, "RLIMIT_MSGQUEUE": 200, "RLIMIT_MEMLOCK": 300}
    limits = build(host=replace(HOST, counts=counts))["HostConfig"]["Ulimits"]
    assert {one["Name"]: (one["Soft"], one["Hard"]) for one in limits} == {
        "nofile": (1024, 1024),
        "core": (0, 0),
        "sigpending": (100, 100),
        "msgqueue": (200, 200),
        "memlock": (300, 300),
    }


def test_limits_hold_for_memory_and_swap_together() -> None:
    host = build()["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 256 << 20
    assert (host["NanoCpus"], host["PidsLimit"]) == (500_000_000, 100)
    in_memory = host["ShmSize"] + sum(
        int(option.removeprefix("size="))
        for options in host["Tmpfs"].values()
        for option in options.split(",")
        if option.startswith("size=")
    )
    assert in_memory < host["Memory"] / 2, "full file systems in memory leave no room to live"


def test_labels_say_whose_it_is_and_the_name_is_the_sessions() -> None:
    config = build()
    assert config["Labels"] == {"dev.holdfast.session": SPEC.session_id, "dev.holdfast.state-dir": "/state"}


def test_the_runner_gets_what_it_needs_and_docker_adds_nothing() -> None:
    env = build()["Env"]
    assert "HOLDFAST_TOKEN=the-token" in env
    assert "HOLDFAST_SOCKET=/.holdfast/link/host.sock" in env
    assert "HOSTNAME" in env, "a name without a value takes the variable away"
    assert build()["Entrypoint"] == []


@pytest.mark.parametrize(
    ("owner", "writable_root", "user"), [(0, False, "1000:1000"), (0, True, "0:0"), (1234, False, "1234:1234")]
)
def test_commands_run_as_who_owns_the_files(owner: int, writable_root: bool, user: str) -> None:
    config = build(replace(SPEC, writable_root=writable_root), replace(HOST, owner=owner))
    assert config["User"] == user
    assert config["HostConfig"]["ReadonlyRootfs"] is True, "what is written in the root itself is on Docker's own disk"
    assert f"uid={user.split(':')[0]}" in config["HostConfig"]["Tmpfs"]["/run"]


def test_what_is_not_guarded_by_its_own_mount_is_read_only() -> None:
    assert mounts(build())["/usr"] == ("/v/usr", False)
    assert mounts(build(places=replace(PLACES, guarded=False)))["/usr"] == ("/v/usr", True)


def test_the_bundle_and_the_link_are_read_only_and_the_sessions_own_is_not() -> None:
    found = mounts(build())
    assert found["/.holdfast"] == ("/bundle", True)
    assert found["/.holdfast/link"] == (str(SPEC.link_dir), True)
    assert found["/workspace"] == ("/d/workspace", False)
    assert found["/tmp"] == found["/var/tmp"] == ("/d/tmp", False)
    assert "/var/tmp" not in mounts(build(replace(SPEC, writable_root=True))), "a writable root has its own"


def test_a_name_server_only_with_a_network() -> None:
    assert "/etc/resolv.conf" not in mounts(build())
    found = mounts(build(places=replace(PLACES, resolver=Path("/d/resolv.conf"))))
    assert found["/etc/resolv.conf"] == ("/d/resolv.conf", True)
