"""Several ways out are asked one after the other, as if they were one."""

from collections.abc import Mapping

import pytest

from holdfast.errors import BadInput
from holdfast.link.link import Link
from holdfast.records.limits import Limits
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SessionSpec
from holdfast.sessions.ways_out import WaysOut

pytestmark = pytest.mark.anyio


class Noted:
    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    def check(self, policy: NetworkPolicy, /) -> None:
        self._log.append(f"check {self._name} {policy.to_wire()}")

    def environment(self, _policy: NetworkPolicy, /) -> Mapping[str, str]:
        return {self._name: "1", "both": self._name}

    def attach(self, link: Link, spec: SessionSpec, /) -> None:
        self._log.append(f"attach {self._name} {link.session_id} {spec.kept}")

    async def open(self, link: Link, spec: SessionSpec, /) -> None:
        self._log.append(f"open {self._name} {link.session_id} {spec.kept}")

    def detach(self, session_id: str, /) -> None:
        self._log.append(f"detach {self._name} {session_id}")


async def test_each_is_asked() -> None:
    log: list[str] = []
    ways = WaysOut([Noted("a", log), Noted("b", log)])
    link = Link("ses_1", "token")
    spec = SessionSpec(Limits(cpus=1, memory_mb=64, pids=16, disk_mb=16), NetworkPolicy.NONE, False, {}, kept=True)
    ways.check(NetworkPolicy.NONE)
    await ways.open(link, spec)
    ways.attach(link, spec)
    ways.detach("ses_1")
    steps = ["check {} none", "open {} ses_1 True", "attach {} ses_1 True", "detach {} ses_1"]
    assert log == [step.format(name) for step in steps for name in "ab"]
    assert ways.environment(NetworkPolicy.NONE) == {"a": "1", "b": "1", "both": "b"}


def test_without_any_there_can_be_no_list() -> None:
    WaysOut().check(NetworkPolicy.FULL)
    with pytest.raises(BadInput, match="egress"):
        WaysOut().check(NetworkPolicy.allowing(["a.example"]))


def test_a_spec_says_who_keeps_the_session() -> None:
    spec = SessionSpec(Limits(cpus=1, memory_mb=64, pids=16, disk_mb=16), NetworkPolicy.NONE, False, {}, kept=True)
    assert SessionSpec.from_json(spec.to_json()).kept
    older = spec.to_json().replace(', "kept": true', "")
    assert older != spec.to_json() and not SessionSpec.from_json(older).kept
