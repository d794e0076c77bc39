"""The pool as a pure thing: whatever order its steps come in, a sandbox is in one place and is given out once."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from holdfast.records.limits import Limits
from holdfast.records.machine import Status
from holdfast.records.network import NetworkPolicy
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SessionSpec
from holdfast.sessions.pool.pool import Pool, WarmSandbox

SPEC = SessionSpec(Limits(1.0, 64, 64, 64), NetworkPolicy.NONE, False, {}, layout="/images/a/tree")
IMAGES = {"a": 3, "b": 1}


def a_row(session_id: str = "ses_request", image: str = "a", **changes: Any) -> SessionRow:
    spec = replace(SPEC, **changes)
    return SessionRow(
        id=session_id,
        status=Status.CREATING,
        image=image,
        owner="root",
        node="n",
        driver="fake",
        spec=spec,
        cwd="/",
        ttl_seconds=1,
        created_at=0,
        expires_at=1,
        last_activity_at=0,
        updated_at=0,
    )


def filled(*ids: str, image: str = "a") -> Pool:
    pool = Pool({image: len(ids)})
    for one in ids:
        pool.reserve(one, image)
        pool.put(WarmSandbox.of(a_row(one, image)))
    return pool


def test_the_oldest_goes_first_and_each_goes_once() -> None:
    pool = filled("1", "2")
    taken = [pool.take(a_row()) for _ in range(3)]
    assert [ready and ready.id for ready in taken] == ["1", "2", None]


def test_the_environment_may_differ() -> None:
    assert filled("1").take(a_row(env={"A": "b"})) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"limits": Limits(1.0, 65, 64, 64)},
        {"network": NetworkPolicy.FULL},
        {"writable_root": True},
        {"layout": "/images/a/newer"},
        {"env": {"SANDBOX_ID": "mine"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_else_differs_is_made_anew(changes: dict[str, Any]) -> None:
    assert filled("1").take(a_row(**changes)) is None


def test_another_image_or_driver_is_made_anew() -> None:
    assert filled("1").take(a_row(image="b")) is None
    assert filled("1").take(replace(a_row(), driver="other")) is None


def warmed(*ids: str) -> Pool:
    """Of the image a, for one purpose; and one of the same that has none."""
    pool = Pool({"agents": len(ids), "a": 1})
    for one in ids:
        pool.reserve(one, "agents")
        pool.put(WarmSandbox.of(a_row(one, kept=True), kind="agents", purpose="agent:pi"))
    pool.reserve("plain", "a")
    pool.put(WarmSandbox.of(a_row("plain")))
    return pool


def test_what_is_ready_for_a_purpose_is_for_that_alone() -> None:
    pool = warmed("1", "2")
    for row, purpose in ((a_row(), None), (a_row(kept=True), None), (a_row(kept=True), "agent:other")):
        found = pool.take(row, purpose)
        assert found is not None and found.id == "plain"
        pool.put(found)
    taken = [pool.take(a_row(kept=True), "agent:pi") for _ in range(4)]
    assert [ready and ready.id for ready in taken] == ["1", "2", "plain", None], "the most prepared first, each once"


@pytest.mark.parametrize(
    "changes",
    [
        {"env": {"A": "b"}},
        {"limits": replace(SPEC.limits, memory_mb=128)},
        {"network": NetworkPolicy.FULL},
        {"writable_root": True},
        {"kept": False},
        {"layout": "/images/a/newer"},
    ],
    ids=str,
)
def test_a_purpose_wants_it_exactly_so(changes: dict[str, Any]) -> None:
    """Programs run in it already: what they were started with cannot be changed any more."""
    found = warmed("1").take(a_row(**{"kept": True, **changes}), "agent:pi")
    assert found is None or found.id == "plain"


def test_a_taken_one_is_still_ours_until_it_is_released() -> None:
    pool = filled("1")
    assert pool.take(a_row()) is not None
    assert pool.owns("1")
    pool.release("1")
    assert not pool.owns("1")


def test_a_pool_of_nothing() -> None:
    pool = Pool({"a": 0})
    assert pool.kinds == []
    assert pool.most_wanted(pool.kinds) is None
    assert pool.take(a_row()) is None


def test_the_emptiest_is_filled_first() -> None:
    pool = Pool({"a": 4, "b": 1})
    pool.reserve("1", "a")
    assert pool.most_wanted(pool.kinds) == "b"
    pool.reserve("2", "b")
    assert pool.most_wanted(pool.kinds) == "a"
    assert pool.most_wanted(["b"]) is None


class PoolMachine(RuleBasedStateMachine):
    """Every order of steps that the keeper could take."""

    made: Bundle[str] = Bundle("made")
    taken: Bundle[WarmSandbox] = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(IMAGES)
        self.count = 0
        self.out: set[str] = set()
        self.gone: set[str] = set()

    @precondition(lambda self: self.pool.most_wanted(IMAGES) is not None)
    @rule(target=made)
    def reserve(self) -> str:
        image = self.pool.most_wanted(IMAGES)
        assert image is not None
        self.count += 1
        session_id = f"{image}{self.count}"
        self.pool.reserve(session_id, image)
        return session_id

    @rule(session_id=consumes(made), works=st.booleans())
    def finish(self, session_id: str, works: bool) -> None:
        if works:
            self.pool.put(WarmSandbox.of(a_row(session_id, session_id[0])))
        else:
            self.pool.release(session_id)
            self.gone.add(session_id)

    @precondition(lambda self: any(self.pool.count_ready(image) for image in IMAGES))
    @rule(target=taken)
    def take(self) -> WarmSandbox:
        image = next(image for image in IMAGES if self.pool.count_ready(image))
        ready = self.pool.take(a_row(image=image))
        assert ready is not None
        assert ready.id not in self.out, "given out twice"
        assert ready.id not in self.gone
        self.out.add(ready.id)
        return ready

    @rule(ready=consumes(taken), clean=st.booleans())
    def end_claim(self, ready: WarmSandbox, clean: bool) -> None:
        self.out.remove(ready.id)
        if clean and self.pool.lacks(ready.row.image):
            self.pool.put(ready)
        else:
            self.pool.release(ready.id)
            self.gone.add(ready.id)

    @invariant()
    def counts_hold(self) -> None:
        owned = self.pool.everything()
        assert len(owned) == len(set(owned)), "in two places at once"
        assert not self.gone & set(owned)
        assert self.out <= set(owned)
        for image, wanted in IMAGES.items():
            mine = [one for one in owned if one[0] == image and one not in self.out]
            assert len(mine) <= wanted, "more than are wanted"


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
