"""What a sandbox's kernel lets it do, call by call, compared with the lists in ``system_calls/``."""

import json
import os
import secrets
from pathlib import Path

import pytest

from holdfast.drivers.conformance import DriverHarness
from holdfast.drivers.conformance.harness import eventually, sandbox
from support.machine.bpf import Call, Program, verdict
from support.machine.seccomp_filter import ARCHITECTURES, FOREIGN, X32_BIT, filters_of

LISTS = Path(__file__).with_name("system_calls")
WALK = Path(__file__).with_name("call_walk.py")
MOST = 600
"""No machine has as many calls."""
UNFILTERED: dict[str, set[int]] = {"x86_64": {335, 336}, "aarch64": set()}
"""uretprobe and uprobe: the kernel asks no filter, and ends with SIGILL whoever it has not sent there itself."""
FAMILIES = {1, 2, 10, 16}
NETLINK = {0, 4, 15}
INET, INET6 = {0, 1, 6, 17}, {0, 6, 17, 58}
GARBAGE = 0xDEADBEEF << 32
SAME_TABLE = {"socket by its own number", "x32 getpid", "x32 socket"}
"""What gVisor takes for a call; its ``int 0x80`` has the numbers of the 64-bit calls, and their filter."""
_WORDS = {"allowed": "allow", "EPERM": "errno 1", "ENOSYS": "errno 38"}
ENOSYS = frozenset({"ENOSYS"})
NO_FAMILY, NO_PROTOCOL = "errno 97", "errno 93"


def listed(machine: str) -> dict[int, tuple[str, str]]:
    """By number: the call's name, and the answer to it."""
    lines = (LISTS / f"{machine}.txt").read_text().splitlines()
    rows = [line.split(" ", 2) for line in lines if not line.startswith("#")]
    return {int(number): (name, answer) for number, name, answer in rows}


def numbers(machine: str) -> dict[str, int]:
    return {name: number for number, (name, _) in listed(machine).items()}


def check_filters(
    filters: list[Program], machine: str, unknown: frozenset[str] = frozenset(), unlisted: frozenset[str] = ENOSYS
) -> None:
    """Every number, family and protocol.

    ``unknown`` are calls that the library which made the filter cannot name; ``unlisted`` is the answer to the rest.
    """
    own, known = ARCHITECTURES[machine], listed(machine)
    for number in range(MOST):
        name, answer = known.get(number, ("", ""))
        if answer != "by arguments":
            wanted = {_WORDS[answer]} if answer else {_WORDS[one] for one in unlisted}
            found = verdict(filters, Call(own, number))
            assert found in wanted or name in unknown, f"{number} {name}: {found}"
        for entry, foreign in FOREIGN[machine].items():
            assert verdict(filters, Call(foreign, number)) == "kill", f"{entry} {number}"
        assert verdict(filters, Call(own, number | X32_BIT)) != "allow", f"x32 {number}"
    for upper in (0, GARBAGE, 0xFFFFFFFF << 32):
        _check_sockets(filters, machine, upper)
    _check_clone(filters, machine)
    _check_limits(filters, machine)
    _check_command_lines(filters, machine)


def _check_sockets(filters: list[Program], machine: str, upper: int) -> None:
    own, number = ARCHITECTURES[machine], numbers(machine)

    def answer(name: str, family: int, protocol: int = 0) -> str:
        return verdict(filters, Call(own, number[name], (upper | family, 1, upper | protocol)))

    for family in range(256):
        found = answer("socket", family)
        assert (found == "allow") == (family in FAMILIES), f"family {family}: {found}"
        assert found in ("allow", NO_FAMILY) or family > 45, f"family {family}: {found}"
        assert (answer("socketpair", family) == "allow") == (family == 1), f"a pair of family {family}"
    for protocol in range(300):
        for family, allowed in ((16, NETLINK), (2, INET), (10, INET6)):
            found = answer("socket", family, protocol)
            assert (found == "allow") == (protocol in allowed), f"family {family}, protocol {protocol}: {found}"
    audit = answer("socket", 16, 9)
    assert audit == NO_PROTOCOL, "programs that write audit records give up unless they hear that there are none"


def _check_clone(filters: list[Program], machine: str) -> None:
    own, number = ARCHITECTURES[machine], numbers(machine)["clone"]
    assert verdict(filters, Call(own, number, (0x3D0F00,))) == "allow", "a thread"
    assert verdict(filters, Call(own, number, (17,))) == "allow", "a process"
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(filters, Call(own, number, (17 | flag,))) in ("errno 1", "errno 38"), f"namespace {flag:x}"


def _check_limits(filters: list[Program], machine: str) -> None:
    own, number = ARCHITECTURES[machine], numbers(machine)["prlimit64"]
    for upper in (0, GARBAGE, 0xFFFFFFFF << 32):
        for process in (0, *range(2, 40), 4194304, 0x10001, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF):
            assert verdict(filters, Call(own, number, (upper | process,))) == "allow", f"limits of {process}"
        assert verdict(filters, Call(own, number, (upper | 1,))) == "errno 1", "limits of PID 1"


def _check_command_lines(filters: list[Program], machine: str) -> None:
    own, number = ARCHITECTURES[machine], numbers(machine)["prctl"]
    for upper in (0, GARBAGE, 0xFFFFFFFF << 32):
        for option in (*range(35), *range(36, 80), 0x53564D41, 0x59616D61, 0xFFFFFFFF):
            assert verdict(filters, Call(own, number, (upper | option,))) == "allow", f"prctl {option}"
        assert verdict(filters, Call(own, number, (upper | 35,))) == "errno 1", "PR_SET_MM"


class SystemCallConformance:
    """One sandbox, walked from inside, and the filter that its processes live under."""

    own_kernel = False
    """True if the sandbox's kernel is not the host's, and answers what a filter lets through."""
    unlisted = ENOSYS
    """The answer to a call that no list names."""

    async def test_every_system_call_and_socket_is_as_listed(self, harness: DriverHarness) -> None:
        machine = os.uname().machine
        if machine not in ARCHITECTURES:
            pytest.skip(f"there is no list for {machine}")
        async with sandbox(harness) as box:
            known = listed(machine)
            let_through = {"allowed", "by arguments"}
            wish = {
                "refused": [
                    number
                    for number in range(MOST)
                    if known.get(number, ("", ""))[1] not in let_through and number not in UNFILTERED[machine]
                ],
                "socket": numbers(machine)["socket"],
                "socketpair": numbers(machine)["socketpair"],
                "foreign": machine == "x86_64",
            }
            walk = await box.run(f"python3 - '{json.dumps(wish)}'", stdin=WALK.read_bytes())
            assert walk.exit_code == 0, walk
            self._check_walk(json.loads(walk.stdout), known)
            mark = str(secrets.randbelow(10**9) + 10**9)
            await box.run(f"sleep {mark} >/dev/null 2>&1 &")
            if not self.own_kernel:
                await self._check_filters_of_process(mark, machine)
            assert (await box.run("echo on")).stdout == "on\n"

    def _check_walk(self, found: dict[str, dict[str, object]], known: dict[int, tuple[str, str]]) -> None:
        for number, answer in found["numbers"].items():
            wanted = {"EPERM"} if int(number) in known else self.unlisted
            assert answer in wanted, f"call {number}: {answer}, not {wanted}"
        for kind in ("families", "garbage"):
            made = {int(family) for family, answer in found[kind].items() if answer == "allow"}
            assert made <= FAMILIES and {1, 2, 10} <= made, f"{kind}: {made}"
        for kind in ("pairs", "pairs with garbage"):
            made = {int(family) for family, answer in found[kind].items() if answer == "allow"}
            assert made == {1}, f"{kind}: {made}"
        for kind, allowed in (("netlink", NETLINK), ("inet", INET), ("inet6", INET6)):
            made = {int(protocol) for protocol, answer in found[kind].items() if answer == "allow"}
            assert made <= allowed, f"{kind}: {made}"
        for name, end in found["foreign"].items():
            if not self.own_kernel or name in SAME_TABLE:
                assert end in ("SIGSYS", 1, 38), f"{name} by the 32-bit entry: {end}"

    async def _check_filters_of_process(self, mark: str, machine: str) -> None:
        found: list[int] = []

        async def is_there() -> bool:
            found[:] = [
                int(path.parent.name)
                for path in Path("/proc").glob("[0-9]*/cmdline")
                if path.read_bytes() == b"sleep\0" + mark.encode() + b"\0"
            ]
            return bool(found)

        await eventually(is_there, "the host sees a process of the sandbox")
        filters = filters_of(found[0])
        if filters is None:
            pytest.skip("this kernel, or this user, cannot read the filter of a process")
        assert filters, "there is no filter"
        check_filters(filters, machine, frozenset({"mseal"}), self.unlisted)
