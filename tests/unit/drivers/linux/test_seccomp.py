"""The seccomp list, as libseccomp makes a filter of it: every call, address family and protocol, for each machine."""

from collections.abc import Callable

import pytest

from holdfast.drivers.linux import seccomp
from support.machine.call_conformance import check_filters, listed
from support.machine.seccomp_filter import ARCHITECTURES, compile_profile, library, number_of

Make = Callable[[str], dict[str, object]]


@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
@pytest.mark.parametrize("make", [seccomp.profile, seccomp.docker_profile], ids=["oci", "docker"])
def test_every_call_is_as_listed(machine: str, make: Make) -> None:
    lib = library()
    if lib is None:
        pytest.skip("libseccomp is not installed")
    unknown = frozenset(name for name, _ in listed(machine).values() if number_of(lib, machine, name) < 0)
    check_filters([compile_profile(lib, make(machine), machine)], machine, unknown)


@pytest.mark.parametrize("make", [seccomp.profile, seccomp.docker_profile, seccomp.gvisor_profile])
def test_there_is_one_entry_into_the_kernel(make: Make) -> None:
    for machine in ARCHITECTURES:
        assert make(machine)["architectures"] == [f"SCMP_ARCH_{machine.upper()}"]
