"""Which limits a session gets, and which wishes are refused, with the ceiling named."""

from dataclasses import replace

import pytest

from holdfast.callers.ceilings import NO_CEILINGS, Ceilings
from holdfast.errors import LimitOutOfRange
from holdfast.records.limits import Limits
from holdfast.sessions.create.choices import choose_limits
from holdfast.sessions.types import CreateRequest
from support.fake_host import DEFAULTS

MACHINE = Limits(cpus=4, memory_mb=8192, pids=16384, disk_mb=100_000)
SETTINGS = replace(DEFAULTS, machine=MACHINE, ceilings=Ceilings(max_memory_mb=1024, max_pids=500))
KEY = Ceilings(max_cpus=2, max_memory_mb=256, max_disk_mb=1000)


def choose(of_key: Ceilings = NO_CEILINGS, base: Limits | None = None, **wishes: float) -> Limits:
    return choose_limits(CreateRequest(**wishes), SETTINGS, of_key, base)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("of_key", "wish", "says"),
    [
        (NO_CEILINGS, {"cpus": 1000.0}, "limits.cpus: 1000 is more than 4, the CPUs of this machine"),
        (NO_CEILINGS, {"memory_mb": 1 << 20}, "limits.memory_mb: 1048576 is more than 1024, the max_memory_mb of this"),
        (NO_CEILINGS, {"pids": 4_000_000}, "limits.pids: 4000000 is more than 500, the max_pids of this daemon"),
        (NO_CEILINGS, {"disk_mb": 1 << 20}, "limits.disk_mb: 1048576 is more than 100000, the size of the file system"),
        (KEY, {"cpus": 2.5}, "limits.cpus: 2.5 is more than 2, the max_cpus of this key"),
        (KEY, {"memory_mb": 257}, "limits.memory_mb: 257 is more than 256, the max_memory_mb of this key"),
        (KEY, {"disk_mb": 1001}, "limits.disk_mb: 1001 is more than 1000, the max_disk_mb of this key"),
        (KEY, {"pids": 501}, "limits.pids: 501 is more than 500, the max_pids of this daemon"),
        (Ceilings(max_cpus=100), {"cpus": 5.0}, "limits.cpus: 5 is more than 4, the CPUs of this machine"),
        (NO_CEILINGS, {"memory_mb": 1}, "limits.memory_mb: 1 is less than 32, and no sandbox starts then"),
        (NO_CEILINGS, {"cpus": 0.0}, "limits.cpus: 0 is less than 0.01"),
        (NO_CEILINGS, {"pids": -1}, "limits.pids: -1 is less than 16"),
        (NO_CEILINGS, {"disk_mb": 15}, "limits.disk_mb: 15 is less than 16"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(of_key: Ceilings, wish: dict[str, float], says: str) -> None:
    with pytest.raises(LimitOutOfRange) as caught:
        choose(of_key, None, **wish)
    assert caught.value.message.startswith(says)
    assert (caught.value.code, caught.value.status) == ("limit_out_of_range", 422)


def test_what_is_allowed_is_given() -> None:
    assert choose(cpus=4.0, memory_mb=1024, pids=500, disk_mb=100_000) == Limits(4.0, 1024, 500, 100_000)
    assert choose(KEY, cpus=2.0, memory_mb=256, disk_mb=1000) == Limits(2.0, 256, 64, 1000)
    assert choose() == DEFAULTS.default_limits


def test_a_default_is_raised_to_what_image_and_agent_need() -> None:
    default = DEFAULTS.default_limits
    wish = CreateRequest(least_memory_mb=400)
    assert choose_limits(CreateRequest(), SETTINGS, image_mb=700) == replace(default, memory_mb=700)
    assert choose_limits(wish, SETTINGS, image_mb=300) == replace(default, memory_mb=400)
    assert choose_limits(wish, SETTINGS, image_mb=700) == replace(default, memory_mb=700)
    assert choose_limits(CreateRequest(least_memory_mb=1), SETTINGS, image_mb=1) == default, "it is not lowered"


def test_what_is_needed_raises_no_wish_no_ceiling_and_no_copy() -> None:
    assert choose_limits(CreateRequest(memory_mb=64, least_memory_mb=400), SETTINGS, image_mb=700).memory_mb == 64
    assert choose_limits(CreateRequest(), SETTINGS, image_mb=4096).memory_mb == 1024
    assert choose_limits(CreateRequest(), SETTINGS, KEY, image_mb=4096).memory_mb == 256
    copied = Limits(1, 128, 64, 64)
    assert choose_limits(CreateRequest(), SETTINGS, base=copied, image_mb=700) == copied


def test_a_default_is_lowered_to_the_ceiling_and_never_refused() -> None:
    low = Ceilings(max_cpus=0.5, max_memory_mb=48, max_pids=20, max_disk_mb=32)
    assert choose(low) == Limits(0.5, 48, 20, 32)
    tiny = Ceilings(max_cpus=0.001, max_memory_mb=1, max_pids=1, max_disk_mb=1)
    assert choose(tiny) == Limits(0.01, 32, 16, 16), "a ceiling below what a sandbox needs is what it needs"


def test_what_a_session_goes_on_from_is_lowered_but_for_its_disk() -> None:
    base = Limits(cpus=3, memory_mb=512, pids=400, disk_mb=900)
    assert choose(base=base) == base
    assert choose(KEY, base) == Limits(2, 256, 400, 900)
    with pytest.raises(LimitOutOfRange, match="disk_mb: 2000 is more than 1000, the max_disk_mb of this key"):
        choose(KEY, replace(base, disk_mb=2000))
    with pytest.raises(LimitOutOfRange, match="memory_mb: 512 is more than 256"):
        choose(KEY, base, memory_mb=512)


def test_a_thread_is_never_locked_out_by_a_ceiling_that_came_later() -> None:
    base = Limits(cpus=3, memory_mb=512, pids=400, disk_mb=2000)
    kept = CreateRequest(cpus=1000, memory_mb=1 << 20, disk_mb=3000, kept=True)
    assert choose_limits(kept, SETTINGS, KEY) == Limits(2, 256, 64, 1000)
    assert choose_limits(kept, SETTINGS, KEY, base) == Limits(2, 256, 400, 2000)
    assert choose_limits(CreateRequest(kept=True), SETTINGS, KEY, base) == Limits(2, 256, 400, 2000)
