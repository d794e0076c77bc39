"""Freezing, on kernels that do not do at once what they are told."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from holdfast.drivers.linux import cgroups, freezer
from holdfast.errors import DriverTransient


@dataclass
class Kernel:
    """One that is frozen when ``when`` says so of all that was written."""

    when: Callable[[list[str]], bool]
    written: list[str] = field(default_factory=list)

    def write(self, _name: str, v1: str, _v2: str) -> None:
        self.written.append(v1)

    def is_frozen(self, _name: str) -> bool:
        return self.written[-1] == "FROZEN" and self.when(self.written)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(lambda _written: True)
    monkeypatch.setattr(freezer, "_write", made.write)
    monkeypatch.setattr(freezer, "is_frozen", made.is_frozen)
    monkeypatch.setattr(cgroups, "unified", lambda: False)
    monkeypatch.setattr(freezer, "_THAW_SECONDS", 0.02)
    return made


def test_what_stands_still_at_once_is_told_once(kernel: Kernel) -> None:
    freezer.freeze("ses_1-a")
    assert kernel.written == ["FROZEN"]


def test_whoever_came_in_meanwhile_is_told_again(kernel: Kernel) -> None:
    kernel.when = lambda written: written.count("FROZEN") >= 3
    freezer.freeze("ses_1-a")
    assert kernel.written[-1] == "FROZEN" and kernel.written.count("FROZEN") >= 3


def test_all_are_let_go_on_where_telling_again_is_not_enough(kernel: Kernel) -> None:
    kernel.when = lambda written: "THAWED" in written
    freezer.freeze("ses_1-a")
    assert kernel.written[-2:] == ["THAWED", "FROZEN"]


@pytest.mark.parametrize("unified", [False, True])
def test_what_never_stands_still_goes_on(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, unified: bool) -> None:
    kernel.when = lambda _written: False
    monkeypatch.setattr(freezer, "_SECONDS", 0.1)
    monkeypatch.setattr(cgroups, "unified", lambda: unified)
    with pytest.raises(DriverTransient, match="has not frozen"):
        freezer.freeze("ses_1-a")
    assert kernel.written[-1] == "THAWED"
    assert (kernel.written.count("THAWED") > 1) == (not unified), "v2 needs no help"
