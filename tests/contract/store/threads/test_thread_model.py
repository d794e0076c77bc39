"""Any order of calls by two daemons, against a model that fits on a page: same refusals, same story."""

from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.store.threads.talk import a_thread, delta, finalize, kinds
from holdfast.errors import Conflict, HoldfastError, NotFound, StaleRow, TurnNotFound, WrongState
from holdfast.records.threads import Lease, MessageStatus, Mode, NewMessage
from holdfast.store import Store
from holdfast.vocabulary.turn_events import Kind

pytestmark = pytest.mark.anyio

_who = st.sampled_from(["a", "b"])
_which = st.integers(0, 3)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _which, st.sampled_from(["queue", "collect", "steer"])),
        st.tuples(st.just("cancel"), _which, st.none()),
        st.tuples(st.just("take"), _who, st.sampled_from([60.0, 60.0, -1.0])),
        st.tuples(st.just("release"), _who, st.none()),
        st.tuples(st.just("begin"), _who, st.none()),
        st.tuples(st.just("steer"), _who, _which),
        st.tuples(st.just("advance"), _who, st.sampled_from([0, 0, 0, 1])),
        st.tuples(st.just("end"), _who, st.none()),
    ),
    max_size=40,
)


@dataclass
class Model:
    """One channel of one thread, as it should be."""

    thread: str
    store: Store
    leases: dict[str, Lease] = field(default_factory=dict)
    generation: int = 0
    holder: str | None = None
    over: bool = False
    messages: dict[str, tuple[str, str]] = field(default_factory=dict)  # id -> mode, status; in order
    turns: int = 0
    running: bool = False
    cursor: int = 0
    story: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def lease(self, who: str) -> Lease:
        return self.leases.get(who, Lease(self.thread, who, -1))

    def holds(self, who: str) -> bool:
        return self.holder == who and self.lease(who).generation == self.generation

    @property
    def turn(self) -> str:
        return f"trn_{self.thread}_{self.turns:02}"

    def queued(self) -> list[str]:
        return [id for id, (_, status) in self.messages.items() if status == MessageStatus.QUEUED]

    def becomes(self, was: str, status: str) -> None:
        self.messages |= {id: (mode, status) for id, (mode, now) in self.messages.items() if now == was}

    async def step(self, name: str, first: object, second: object) -> None:
        await getattr(self, name)(first, second)

    async def put(self, which: int, mode: Mode) -> None:
        id = f"m{which}"
        mode = Mode(self.messages.get(id, (mode, ""))[0])
        put = await self.store.messages.put(self.thread, NewMessage(id=id, text=id, mode=mode))
        assert put.new == (id not in self.messages)
        self.messages.setdefault(id, (mode, MessageStatus.QUEUED))

    async def cancel(self, which: int, _: None) -> None:
        id = f"m{which}"
        call = self.store.messages.cancel(self.thread, id)
        status = self.messages.get(id, ("", None))[1]
        if status is None:
            await _refused(NotFound, call)
        elif status not in (MessageStatus.QUEUED, MessageStatus.CANCELED):
            await _refused(WrongState, call)
        else:
            await call
            self.story += [Kind.MESSAGE_CANCELED] if status == MessageStatus.QUEUED else []
            self.messages[id] = (self.messages[id][0], MessageStatus.CANCELED)

    async def take(self, who: str, ttl: float) -> None:
        call = self.store.leases.take(self.thread, owner=who, ttl=ttl)
        if self.holder not in (None, who) and not self.over:
            await _refused(Conflict, call)
            return
        self.leases[who] = (await call).lease
        self.generation, self.holder, self.over = self.generation + 1, who, ttl < 0
        assert self.leases[who].generation == self.generation

    async def release(self, who: str, _: None) -> None:
        free = await self.store.leases.release(self.lease(who))
        busy = self.running or bool(self.queued())
        assert free == (not self.holds(who) or not busy)
        if self.holds(who) and not busy:
            self.holder = None

    async def begin(self, who: str, _: None) -> None:
        turn = f"trn_{self.thread}_{self.turns + 1:02}"
        call = self.store.turns.begin(self.lease(who), "default", turn)
        if not self.holds(who):
            await _refused(StaleRow, call)
        elif self.running:
            await _refused(WrongState, call)
        elif not self.queued():
            assert await call is None
        else:
            batch = self._batch()
            begun = await call
            assert begun is not None
            assert begun.prompt == "\n\n".join(batch)
            self.messages |= {id: (self.messages[id][0], MessageStatus.IN_TURN) for id in batch}
            self.story += [Kind.MESSAGE_CREATE] * len(batch)
            self.said += batch
            self.turns, self.running, self.cursor = self.turns + 1, True, 0

    def _batch(self) -> list[str]:
        queue = self.queued()
        batch = queue[:1]
        if self.messages[batch[0]][0] == "collect":
            for id in queue[1:]:
                if self.messages[id][0] != "collect":
                    break
                batch.append(id)
        return batch

    async def steer(self, who: str, which: int) -> None:
        call = self.store.turns.steer(self.lease(who), self.turn, f"m{which}")
        if await self._refuses(who, call):
            return
        steered = await call
        assert (steered is not None) == (f"m{which}" in self.queued())
        if steered is not None:
            self.messages[steered.id] = (steered.mode, MessageStatus.IN_TURN)
            self.story.append(Kind.MESSAGE_CREATE)
            self.said.append(steered.id)

    async def advance(self, who: str, back: int) -> None:
        """``back``: the batch before is sent once more, as after a lost answer."""
        at = max(0, self.cursor - back)
        again = at < self.cursor
        call = self.store.turns.advance(
            self.lease(who), self.turn, after=str(at) if at else "", cursor=str(at + 1), events=[delta(f"{at} ")]
        )
        if await self._refuses(who, call, again=again):
            return
        await call
        if not again:
            self.cursor += 1
            self.story.append(Kind.TEXT_DELTA)

    async def end(self, who: str, _: None) -> None:
        call = self.store.turns.end(self.lease(who), self.turn, finalize())
        if await self._refuses(who, call, again=True):
            return
        ended = await call
        assert ended.answer == "".join(f"{at} " for at in range(self.cursor))
        if self.running:
            self.becomes(MessageStatus.IN_TURN, MessageStatus.DONE)
            self.story.append(Kind.FINALIZE)
            self.said += [ended.answer] if ended.answer else []
            self.running = False

    async def _refuses(self, who: str, call: Awaitable[object], *, again: bool = False) -> bool:
        """What all writes to a turn have in common; ``again``: it is fine also if the turn has ended."""
        if not self.holds(who):
            await _refused(StaleRow, call)
        elif not self.turns:
            await _refused(TurnNotFound, call)
        elif not self.running and not again:
            await _refused(WrongState, call)
        else:
            return False
        return True


async def _refused(error: type[HoldfastError], call: Awaitable[object]) -> None:
    with pytest.raises(error):
        await call


_examples = iter(range(1, 1_000_000))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps)
async def test_the_store_does_what_the_model_does(store: Store, steps: list[tuple[str, object, object]]) -> None:
    number = next(_examples)
    model = Model((await a_thread(store, number)).id, store)
    for name, first, second in steps:
        await model.step(name, first, second)
    assert await kinds(store, model.thread) == model.story
    stored = (await store.messages.page(model.thread, limit=100)).rows
    assert {row.id: row.status for row in stored} == {id: status for id, (_, status) in model.messages.items()}
    assert len(await store.turns.page(model.thread, limit=100)) == model.turns
    if not model.running:
        assert [line.text for line in await store.turns.transcript(model.thread)] == model.said
