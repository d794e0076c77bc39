"""Random sequences of what users do and what breaks, on a fake machine; the three promises hold after every step.

``support.threads.promises`` says which. TEST_SEQUENCES says how many sequences, TEST_STEPS how long each is.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.drivers.fake.faults import Moment
from holdfast.errors import AgentDown, AgentFailed, HoldfastError, SandboxLost
from holdfast.records.machine import PausedAs
from holdfast.records.threads import MessageStatus, Mode
from holdfast.threads.names import ThreadRef
from support.daemons.crash_points import CuttingFuse
from support.daemons.doomed import mortal
from support.fake_host import tick
from support.threads.promises import CHANNELS, Kept, Promises, Said, Talk, Upload
from support.threads.threads import FakeSite, ThreadDaemon, open_site, pieces
from support.waiting import until

REFS = [ThreadRef("root", "machine:a"), ThreadRef("root", "machine:b")]
pytestmark = pytest.mark.timeout(3600)

T = TypeVar("T")
Work = Callable[[ThreadDaemon], Coroutine[None, None, T]]
threads = st.sampled_from(REFS)
channels = st.sampled_from(CHANNELS)
nth = st.integers(0, 3)
"""Which one of many, from the newest on."""
modes = st.sampled_from([Mode.QUEUE, Mode.QUEUE, Mode.STEER, Mode.COLLECT])
begun = precondition(lambda self: any(talk.said for talk in self.talks.values()))
_OVER = (MessageStatus.DONE, MessageStatus.FAILED, MessageStatus.CANCELED)
_METHODS = ["health", "resume_conversation", "prompt", "events", "steer", "accepted", "create_conversation", "revert"]
_METHODS += ["abort", "answer"]


class Threads(RuleBasedStateMachine):
    """The event loop stands still between two steps; what was begun goes on with the next."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._directory = tempfile.TemporaryDirectory(prefix="hf-machine-")
        self._outer, self._inner = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
        self._begun: set[asyncio.Task[object]] = set()
        self.talks = {ref.key: Talk() for ref in REFS}
        self.site: FakeSite = self._run(self._outer.enter_async_context(open_site(Path(self._directory.name))))
        self.promises = Promises(self.site)
        self._run(self._start())

    # -- daemons -----------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[None, None, T]) -> T:
        return self._runner.run(work)

    async def _start(self) -> None:
        self.fuse = CuttingFuse()
        self.thread_daemon: ThreadDaemon = await self._inner.enter_async_context(mortal(self.site, self.fuse))

    async def _replace(self) -> None:
        """By another daemon. Who waits for an answer of this one gets none."""
        if self.fuse.blown.is_set():
            self.fuse.bury()
            self._strike_all()
        for task in self._begun:
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)
        self._begun.clear()
        await self._inner.aclose()
        await self._start()

    def _strike_all(self) -> None:
        for talk in self.talks.values():
            talk.struck = True

    def _do(self, work: Work[T]) -> T:
        """What a user does who does it again if the daemon dies over it."""
        return self._run(self._insist(work))

    async def _insist(self, work: Work[T]) -> T:
        while True:
            task, died = asyncio.ensure_future(work(self.thread_daemon)), asyncio.create_task(self.fuse.blown.wait())
            await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            if not self.fuse.blown.is_set():
                return await task
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._replace()

    def _try(self, work: Work[object], wait: bool = True) -> None:
        """What may be refused; with ``wait``, until it is known. Else it goes on with the next steps."""
        if wait:
            self._do(lambda thread_daemon: self._quietly(work(thread_daemon)))
        else:
            self._run(self._begin(work))

    async def _begin(self, work: Work[object]) -> None:
        self._begun.add(asyncio.create_task(self._quietly(work(self.thread_daemon))))
        await asyncio.sleep(0)

    async def _quietly(self, work: Coroutine[None, None, object]) -> object:
        with contextlib.suppress(HoldfastError):
            await work
        return None

    # -- what users do -----------------------------------------------------------------------------------------------

    @rule(
        ref=threads,
        channel=channels,
        mode=modes,
        attach=st.booleans(),
        makes_file=st.booleans(),
        wait=st.booleans(),
    )
    def send(self, ref: ThreadRef, channel: str, mode: Mode, attach: bool, makes_file: bool, wait: bool) -> None:
        said = self._send(ref, channel, mode, attach, makes_file)
        if wait and said.name not in self.talks[ref.key].given_up:
            self._do(lambda thread_daemon: self._ended(thread_daemon, ref, said.name))

    async def _ended(self, thread_daemon: ThreadDaemon, ref: ThreadRef, name: str) -> None:
        """Who waits answers what is asked meanwhile."""

        async def over() -> bool:
            kept = await self._answer_all(thread_daemon, ref)
            return kept is not None and any(one.id == name and one.status in _OVER for one in kept.messages)

        await until(over, f"{name} is answered", every=0.05)

    async def _answer_all(self, thread_daemon: ThreadDaemon, ref: ThreadRef, answer: str = "yes") -> Kept | None:
        kept = await self.promises.kept(ref)
        for question in kept.questions if kept is not None else []:
            await self._quietly(thread_daemon.threads.answer(ref, question, answer))
        return kept

    @begun
    @rule(ref=threads, answer=st.sampled_from(["yes", "no"]))
    def answer(self, ref: ThreadRef, answer: str) -> None:
        self._do(lambda thread_daemon: self._answer_all(thread_daemon, ref, answer))

    def _send(
        self, ref: ThreadRef, channel: str, mode: Mode, attach: bool, makes_file: bool, asks: bool = False
    ) -> Said:
        talk = self.talks[ref.key]
        attached = tuple(talk.uploads[-2:]) if attach else ()
        said = talk.said[f"m{len(talk.said)}"] = Said(f"m{len(talk.said)}", mode, channel, attached, makes_file, asks)
        if any(not task.done() for task in self._begun):
            talk.given_up.add(said.name)  # an abort may be on its way
        self._do(lambda thread_daemon: self._say(thread_daemon, ref, said))
        return said

    @rule(ref=threads, channel=channels)
    def send_what_asks(self, ref: ThreadRef, channel: str) -> None:
        self._send(ref, channel, Mode.QUEUE, False, False, asks=True)

    @rule(ref=threads, channel=channels, some=st.lists(st.tuples(modes, st.booleans(), st.booleans()), max_size=3))
    def send_some(self, ref: ThreadRef, channel: str, some: list[tuple[Mode, bool, bool]]) -> None:
        """One after the other, as fast as one can."""
        for mode, attach, makes_file in [(Mode.QUEUE, False, False), *some]:
            self._send(ref, channel, mode, attach, makes_file)

    async def _say(self, thread_daemon: ThreadDaemon, ref: ThreadRef, said: Said) -> None:
        ids = [upload.id for upload in said.attachments]
        await thread_daemon.say(said.text, said.name, ref, said.mode, said.channel, ids)

    @begun
    @rule(ref=threads, which=nth)
    def send_again(self, ref: ThreadRef, which: int) -> None:
        said = self._nth(ref, which)
        if said is not None:
            self._do(lambda thread_daemon: self._say(thread_daemon, ref, said))

    @rule(ref=threads, content=st.binary(max_size=40))
    def upload(self, ref: ThreadRef, content: bytes) -> None:
        found = self._do(lambda thread_daemon: thread_daemon.threads.upload(ref, "data.bin", pieces(content)))
        self.talks[ref.key].uploads.append(Upload(found.id, found.name, content))

    @begun
    @rule(ref=threads, channel=channels)
    def resolve(self, ref: ThreadRef, channel: str) -> None:
        found = self._do(lambda thread_daemon: thread_daemon.threads.resolve(ref, channel=channel))
        assert found.session_id in self.site.sandboxes()

    @begun
    @rule(ref=threads, channel=channels, queued=st.booleans(), wait=st.booleans())
    def abort(self, ref: ThreadRef, channel: str, queued: bool, wait: bool) -> None:
        self._give_up(ref, channel)
        self._try(lambda thread_daemon: thread_daemon.threads.abort(ref, channel=channel, queued=queued), wait)

    @begun
    @rule(ref=threads, which=nth)
    def take_back(self, ref: ThreadRef, which: int) -> None:
        said = self._nth(ref, which)
        if said is not None:
            self.talks[ref.key].given_up.add(said.name)
            self._try(lambda thread_daemon: thread_daemon.threads.cancel(ref, said.name))

    @begun
    @rule(ref=threads, channel=channels, which=nth, wait=st.booleans())
    def revert(self, ref: ThreadRef, channel: str, which: int, wait: bool) -> None:
        kept = self._run(self.promises.kept(ref))
        there = [turn for turn in kept.turns if turn.channel == channel and not turn.reverted] if kept else []
        turn = there[max(0, len(there) - 1 - which)].id if there else None
        self._try(lambda thread_daemon: self._revert(thread_daemon, ref, channel, turn), wait)

    async def _revert(self, thread_daemon: ThreadDaemon, ref: ThreadRef, channel: str, turn: str | None) -> None:
        back = await thread_daemon.threads.revert(ref, turn, channel=channel)
        assert back.row.reverted and turn in (None, back.row.id)

    @begun
    @rule(ref=threads, hibernate=st.booleans())
    def pause(self, ref: ThreadRef, hibernate: bool) -> None:
        self._try(lambda thread_daemon: thread_daemon.threads.pause(ref, hibernate=hibernate))

    @begun
    @rule(ref=threads)
    def delete(self, ref: ThreadRef) -> None:
        self._do(lambda thread_daemon: thread_daemon.threads.delete(ref))
        self.talks[ref.key] = Talk()

    def _nth(self, ref: ThreadRef, which: int) -> Said | None:
        said = list(self.talks[ref.key].said.values())
        return said[-1 - which] if which < len(said) else None

    def _give_up(self, ref: ThreadRef, channel: str) -> None:
        talk = self.talks[ref.key]
        talk.given_up |= {said.name for said in talk.said.values() if said.channel == channel}

    # -- what breaks -------------------------------------------------------------------------------------------------

    @begun
    @rule(how=st.sampled_from([PausedAs.FROZEN, PausedAs.FILES]), ref=threads)
    def sleep(self, ref: ThreadRef, how: PausedAs) -> None:
        self._with_sandbox(ref, lambda thread_daemon, session: thread_daemon.sessions.pause(session, how))

    @begun
    @rule(ref=threads, channel=channels)
    def agent_dies(self, ref: ThreadRef, channel: str) -> None:
        self._with_sandbox(ref, lambda _, session: _sync(lambda: self.site.agents.kill(session, channel)))

    @begun
    @rule(ref=threads, channel=channels)
    def agent_forgets(self, ref: ThreadRef, channel: str) -> None:
        self._with_sandbox(ref, lambda _, session: _sync(lambda: self.site.agents.forget(session, channel)))

    @rule(
        method=st.sampled_from(_METHODS),
        error=st.sampled_from([AgentDown("down"), AgentFailed("503"), SandboxLost("cut")]),
        moment=st.sampled_from(["before", "after"]),
    )
    def agent_fails(self, method: str, error: HoldfastError, moment: Moment) -> None:
        if method == "prompt" and moment == "after":
            error = AgentFailed("the reply was lost")  # any other says that it was certainly not accepted
        if method == "revert":
            self.thread_daemon.agent.release(
                method
            )  # it is told so a few times, and then its user is told that it cannot
        self._strike_all()
        self.thread_daemon.agent.inject(method, error=error, moment=moment)

    @begun
    @rule(ref=threads)
    def link_is_cut(self, ref: ThreadRef) -> None:
        self._with_sandbox(ref, lambda thread_daemon, session: _sync(lambda: thread_daemon.driver.cut_link(session)))

    @begun
    @rule(ref=threads)
    def sandbox_dies(self, ref: ThreadRef) -> None:
        self._with_sandbox(ref, lambda thread_daemon, session: thread_daemon.driver.kill(session))

    @begun
    @rule(ref=threads)
    def sandbox_is_destroyed(self, ref: ThreadRef) -> None:
        self._with_sandbox(ref, lambda thread_daemon, session: thread_daemon.sessions.destroy(session))

    @begun
    @rule()
    def daemon_is_replaced(self) -> None:
        self._run(self._replace())

    @begun
    @rule(steps=st.integers(1, 60))
    def daemon_will_die(self, steps: int) -> None:
        """In the midst of what comes next, or of what is under way."""
        self.fuse.at = len(self.fuse.steps) + steps

    @begun
    @rule()
    def janitor(self) -> None:
        self._do(lambda thread_daemon: thread_daemon.threads.janitor.tick())
        self._do(lambda thread_daemon: tick(thread_daemon.sessions))

    def _with_sandbox(
        self, ref: ThreadRef, strike: Callable[[ThreadDaemon, str], Coroutine[None, None, object]]
    ) -> None:
        kept = self._run(self.promises.kept(ref))
        session = None if kept is None else kept.row.session_id
        box = self.site.host.world.sandboxes.get(session or "")
        if session is not None and box is not None and box.runner is not None:
            self.talks[ref.key].struck = True
            self._try(lambda thread_daemon: strike(thread_daemon, session))

    # -- the promises ------------------------------------------------------------------------------------------------

    @invariant()
    def promises_hold(self) -> None:
        for ref in REFS:
            self._run(self.promises.hold(ref, self.talks[ref.key]))

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
        self.fuse.at = None
        if self.fuse.blown.is_set():
            await self._replace()
        for method in _METHODS:
            self.thread_daemon.agent.release(method)
        await asyncio.gather(*self._begun)
        await tick(self.thread_daemon.sessions)  # who died in its sleep is found by that
        for ref in REFS:
            talk = self.talks[ref.key]
            await self._at_rest(ref)
            await self.promises.hold(ref, talk)
            for channel in sorted({said.channel for said in talk.said.values()}):
                last = Said(f"m{len(talk.said)}", channel=channel)
                talk.said[last.name] = last
                await self._say(self.thread_daemon, ref, last)
                assert (await self.thread_daemon.ended(last.name, ref)).row.stop_reason == "end_turn", "stuck"
            if talk.said:
                await self.promises.hold(ref, talk)
                await self.promises.settled(ref, talk)
        await self.thread_daemon.threads.janitor.tick()
        kept = [(ref, await self.promises.kept(ref)) for ref in REFS]
        owned = {one.row.session_id for _ref, one in kept if one is not None}
        needed = {one.row.session_id for ref, one in kept if one is not None and self.talks[ref.key].said}
        await until(lambda: needed <= set(self.site.sandboxes()) <= owned, "P1: one sandbox each")

    async def _at_rest(self, ref: ThreadRef) -> None:
        async def so() -> bool:
            kept = await self._answer_all(self.thread_daemon, ref)
            return kept is None or kept.at_rest

        await until(so, f"{ref.key} is at rest", every=0.05)


async def _sync(work: Callable[[], None]) -> None:
    work()


TestThreads = Threads.TestCase
TestThreads.settings = settings(
    settings.get_profile("steady"),
    max_examples=int(os.environ.get("TEST_SEQUENCES", "10")),
    stateful_step_count=int(os.environ.get("TEST_STEPS", "15")),
)
