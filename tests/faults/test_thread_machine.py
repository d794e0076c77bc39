"""Random sequences of what users do and what breaks, on a fake machine; the three promises hold after every step.

P1: a thread has one sandbox. P2: no prompt is run twice. P3: every event is there once, in order, without a gap.
TEST_SEQUENCES says how many sequences.
"""

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.errors import AgentDown, AgentFailed, HoldfastError, SandboxLost
from holdfast.protocol.turn_events import Kind
from holdfast.sessions.machine import Status
from holdfast.sessions.sleep import PausedAs
from holdfast.threads.keys import ThreadRef
from holdfast.threads.sandboxes import made_for
from support.threads import STEADY, Desk, Street, open_street, text_of
from support.waiting import until

REFS = [ThreadRef("root", "machine:a"), ThreadRef("root", "machine:b")]
pytestmark = pytest.mark.timeout(3600)

T = TypeVar("T")
threads = st.sampled_from(REFS)
_USABLE = [status for status in Status if status not in (Status.DESTROYING, Status.DESTROYED, Status.ERROR)]


class Threads(RuleBasedStateMachine):
    """The event loop stands still between two steps; what was begun goes on with the next."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._directory = tempfile.TemporaryDirectory(prefix="hf-machine-")
        self._outer, self._inner = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
        self.sent: dict[str, dict[str, str]] = {ref.key: {} for ref in REFS}
        self.street: Street = self._run(self._outer.enter_async_context(open_street(Path(self._directory.name))))
        self.desk: Desk = self._run(self._inner.enter_async_context(self.street.daemon(STEADY)))

    def _run(self, work: Coroutine[None, None, T]) -> T:
        return self._runner.run(work)

    # -- what users do -----------------------------------------------------------------------------------------------

    @rule(ref=threads, wait=st.booleans())
    def send(self, ref: ThreadRef, wait: bool) -> None:
        mine = self.sent[ref.key]
        name = f"m{len(mine)}"
        mine[name] = f"say {name} one\nsleep 0.02\nsay two"
        self._run(self._send(ref, name, wait))

    async def _send(self, ref: ThreadRef, name: str, wait: bool) -> None:
        await self.desk.say(self.sent[ref.key][name], name, ref)
        if wait:
            await self.desk.ended(name, ref)

    @precondition(lambda self: any(self.sent.values()))
    @rule(ref=threads)
    def send_again(self, ref: ThreadRef) -> None:
        for name, text in list(self.sent[ref.key].items())[-1:]:
            self._run(self.desk.say(text, name, ref))

    @rule(ref=threads)
    def resolve(self, ref: ThreadRef) -> None:
        found = self._run(self.desk.threads.resolve(ref))
        assert found.session_id in self.street.sandboxes()

    @rule(ref=threads, queued=st.booleans())
    def abort(self, ref: ThreadRef, queued: bool) -> None:
        if self.sent[ref.key]:
            self._run(self.desk.threads.abort(ref, queued=queued))

    @rule(ref=threads)
    def take_back(self, ref: ThreadRef) -> None:
        for name in list(self.sent[ref.key])[-1:]:
            self._run(self._quietly(self.desk.threads.cancel(ref, name)))

    @rule(ref=threads)
    def delete(self, ref: ThreadRef) -> None:
        self._run(self.desk.threads.delete(ref))
        self.sent[ref.key].clear()
        assert not self._run(self._sandboxes_of(ref))

    @rule(how=st.sampled_from([PausedAs.FROZEN, PausedAs.FILES]), ref=threads)
    def sleep(self, ref: ThreadRef, how: PausedAs) -> None:
        self._with_sandbox(ref, lambda session: self._quietly(self.desk.sessions.pause(session, how)))

    # -- what breaks -------------------------------------------------------------------------------------------------

    @rule(ref=threads)
    def agent_dies(self, ref: ThreadRef) -> None:
        self._with_sandbox(ref, lambda session: self._sync(self.street.agents.kill, session))

    @rule(ref=threads)
    def agent_forgets(self, ref: ThreadRef) -> None:
        self._with_sandbox(ref, lambda session: self._sync(self.street.agents.forget, session))

    @rule(
        method=st.sampled_from(["health", "resume_session", "prompt", "events"]),
        error=st.sampled_from([AgentDown("down"), AgentFailed("503"), SandboxLost("cut")]),
    )
    def agent_fails(self, method: str, error: HoldfastError) -> None:
        self.desk.agent.inject(method, error=error)

    @rule(ref=threads)
    def link_is_cut(self, ref: ThreadRef) -> None:
        self._with_sandbox(ref, lambda session: self._sync(self.desk.driver.cut_link, session))

    @rule(ref=threads)
    def sandbox_dies(self, ref: ThreadRef) -> None:
        self._with_sandbox(ref, lambda session: self.desk.driver.kill(session))

    @rule(ref=threads)
    def sandbox_is_destroyed(self, ref: ThreadRef) -> None:
        self._with_sandbox(ref, lambda session: self._quietly(self.desk.sessions.destroy(session)))

    @rule()
    def daemon_is_replaced(self) -> None:
        self._run(self._inner.aclose())
        self.desk = self._run(self._inner.enter_async_context(self.street.daemon(STEADY)))

    @rule()
    def janitor(self) -> None:
        self._run(self.desk.threads.janitor.tick())

    def _with_sandbox(self, ref: ThreadRef, strike: Callable[[str], Coroutine[None, None, object]]) -> None:
        self._run(self._strike(ref, strike))

    async def _strike(self, ref: ThreadRef, strike: Callable[[str], Coroutine[None, None, object]]) -> None:
        if not self.sent[ref.key]:
            return
        session = (await self.desk.threads.get(ref)).session_id
        box = self.street.house.world.sandboxes.get(session or "")
        if session is not None and box is not None and box.runner is not None:
            await strike(session)

    async def _sync(self, work: Callable[[str], None], session: str) -> None:
        work(session)

    async def _quietly(self, work: Coroutine[None, None, object]) -> None:
        with contextlib.suppress(HoldfastError):
            await work

    # -- the promises ------------------------------------------------------------------------------------------------

    @invariant()
    def promises(self) -> None:
        ran = Counter(prompt for _session, prompt in self.street.agents.ran)
        assert not [prompt for prompt, count in ran.items() if count > 1], "P2"
        for ref in REFS:
            if self.sent[ref.key]:
                self._run(self._check(ref))

    async def _sandboxes_of(self, ref: ThreadRef) -> list[str]:
        """Those that could be used: made for the thread, and not known to be gone or going."""
        rows = await self.street.store.sessions.page(statuses=_USABLE, limit=1000, after=None)
        mine = [(row.id, made_for(row)) for row in rows]
        threads = {row.id for row in await self.street.store.threads.page(limit=10) if row.key == ref.key}
        return [id for id, made in mine if made is not None and made[0] in threads]

    async def _check(self, ref: ThreadRef) -> None:
        assert len(await self._sandboxes_of(ref)) <= 1, "P1"
        events = await self.desk.events(ref)
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), "P3"
        finals = Counter(event.turn_id for event in events if event.kind == Kind.FINALIZE)
        assert set(finals.values()) <= {1}, "P3"

    def teardown(self) -> None:
        try:
            self._run(self._settle())
        finally:
            self._run(self._inner.aclose())
            self._run(self._outer.aclose())
            self._runner.close()
            self._directory.cleanup()

    async def _settle(self) -> None:
        """Nothing is stuck, nothing lost, nothing left."""
        for method in ("health", "resume_session", "prompt", "events"):
            self.desk.agent.release(method)
        owned = []
        for ref in REFS:
            mine = self.sent[ref.key]
            if not mine:
                continue
            await self.desk.talk("say last", "last", ref)
            for name in mine:
                turn = await self.desk.ended(name, ref)
                if turn.reason == "end_turn":
                    assert text_of(await self.desk.events(ref), turn.id).split() == [name, "one", "two"], "P3"
            messages, _more = await self.desk.threads.messages(ref)
            assert [message.id for message in messages] == [*mine, "last"], "a message is lost"
            assert (await self.desk.ended("last", ref)).reason == "end_turn", "stuck"
        for row in await self.street.store.threads.page(limit=10):
            if row.session_id is not None:
                owned.append(row.session_id)
        await self.desk.threads.janitor.tick()
        await until(lambda: sorted(self.street.sandboxes()) == sorted(owned), "P1: one sandbox each")


TestThreads = Threads.TestCase
TestThreads.settings = settings(
    settings.get_profile("steady"), max_examples=int(os.environ.get("TEST_SEQUENCES", "20")), stateful_step_count=15
)
