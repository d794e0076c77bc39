"""Real sandboxes, several threads, random faults for as long as you like; then nothing may be lost, doubled or left.

Daemons come and go: some end in order, others are processes that are killed with -9, also while they start.
``make soak SOAK_SECONDS=3600``; the seed is printed, and SOAK_SEED=… repeats the choices (not the timing).
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.records.machine import PausedAs
from holdfast.threads.names import ThreadRef
from holdfast.vocabulary.turn_events import Kind
from support.daemons.soak_journal import Journal
from support.threads.real_threads import RealSite, RealThreadDaemon, open_real_site
from support.threads.threads import text_of
from support.waiting import until

THREADS = 3
FAULTS = (
    *("nothing", "link cut", "runner killed", "runner stopped", "agent killed", "agent forgets"),
    *("deleted", "slept", "restart"),
)
KILLED = 0.6
"""How many of the daemons are processes that are killed; the others end in order."""
_END_SECONDS = 180.0
_START_SECONDS = 120.0
_CHILD = Path(__file__).with_name("soak_child.py")


class Soak:
    """One run. What each thread was asked is in the journal, for whoever goes on with it."""

    def __init__(self, site: RealSite, choices: random.Random) -> None:
        self.site = site
        self.random = choices
        self.refs = [ThreadRef("root", f"soak:{number}") for number in range(THREADS)]
        self.journal = Journal(site.root / "journal")
        self.reasons: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        """Daemon after daemon: some end in the middle of whatever they do, in order or by ``kill -9``."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.journal.faults or self.random.random() < KILLED:  # the first one in any case
                await self._live_and_die()
            else:
                async with self.site.daemon() as daemon:
                    await self.live(daemon, end)
        async with self.site.daemon() as daemon:
            await self._send_again(daemon)
            for ref in self.refs:
                await self._check(daemon, ref)
            await self._check_sandboxes(daemon)
            for ref in self.refs:
                await daemon.threads.delete(ref)
            await until(lambda: self.site.sandboxes() == [], "nothing is left", _END_SECONDS)

    async def live(self, daemon: RealThreadDaemon, end: float, *, mortal: bool = False) -> None:
        """What one daemon does until it is to be replaced; a mortal one goes on until it is killed."""
        await self._send_again(daemon)
        while time.monotonic() < end and (await self._step(daemon) or mortal):
            pass

    async def _live_and_die(self) -> None:
        """A daemon as a process: killed while it starts, or somewhere in the midst of what it does then."""
        starting = self.random.random() < 0.2
        mark, seconds = ("begins", self.random.uniform(0.0, 0.5)) if starting else ("up", self.random.uniform(0.0, 6.0))
        before = self.journal.marks[mark]
        told = self.site.root / "child.log"
        with told.open("wb") as log:
            command = [sys.executable, str(_CHILD), str(self.site.root), str(self.random.randrange(1 << 32))]
            child = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)

        def has_come() -> bool:
            self.journal.read()
            return child.returncode is not None or self.journal.marks[mark] > before

        try:
            await until(has_come, "the daemon is there", _START_SECONDS, every=0.05)
            await asyncio.wait([asyncio.ensure_future(child.wait())], timeout=seconds)
        finally:
            if child.returncode is None:
                child.kill()
            code = await child.wait()
        assert code == -signal.SIGKILL, told.read_text(errors="replace")[-5000:]
        self.journal.read()
        self.journal.note("fault", "killed while it started" if starting else "killed")
        if self.journal.stopped is not None:  # who had stopped it cannot let it go on any more
            with contextlib.suppress(OSError):
                os.kill(self.journal.stopped, signal.SIGCONT)

    async def _step(self, daemon: RealThreadDaemon) -> bool:
        """A message or two, and a fault in the middle of them; False if the daemon is to be replaced."""
        ref = self.random.choice(self.refs)
        for _ in range(self.random.randint(1, 2)):
            await self._say(daemon, ref)
        await asyncio.sleep(self.random.uniform(0.0, 0.5))
        fault = self.random.choice(FAULTS)
        self.journal.note("fault", fault)
        if fault == "restart":
            return False
        try:
            await self._strike(daemon, ref, fault)
        except (HoldfastError, OSError, AssertionError, ValueError):
            self.journal.note("fault", f"{fault}, not possible then")
        except Exception as error:  # the runtime says no: it is being made, or gone already
            self.journal.note("fault", f"{fault}, {type(error).__name__}")
        return True

    async def _say(self, daemon: RealThreadDaemon, ref: ThreadRef) -> None:
        """Each leaves a line in a file of the sandbox: what ran twice has two."""
        name = f"m{len(self._sent(ref))}"
        self.journal.note("sends", ref.key, name)
        await daemon.say(_script(name), name, ref)
        self.journal.note("sent", ref.key, name)
        if self.random.random() < 0.3:  # a client that got no answer
            await daemon.say(_script(name), name, ref)

    async def _send_again(self, daemon: RealThreadDaemon) -> None:
        """As clients do that got no answer because the daemon was killed."""
        for key, name in self.journal.unanswered:
            await daemon.say(_script(name), name, ThreadRef("root", key))
            self.journal.note("sent", key, name)

    def _sent(self, ref: ThreadRef) -> list[str]:
        return self.journal.sent.get(ref.key, [])

    async def _strike(self, daemon: RealThreadDaemon, ref: ThreadRef, fault: str) -> None:
        session = (await daemon.threads.get(ref)).row.session_id
        if session is None or fault == "nothing":
            return
        if fault == "runner killed":
            self.site.signal_runner(session, signal.SIGKILL)
        elif fault == "runner stopped":
            pid = self.site.runner_pid(session)
            self.journal.note("stops", str(pid))
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(self.random.uniform(0.5, 4.0))
            finally:
                os.kill(pid, signal.SIGCONT)  # that one: the runtime may not know it any more, or another
        elif fault == "link cut":
            await asyncio.to_thread(self.site.cut_link, session)
        elif fault == "agent killed":
            await self.site.kill_agent(daemon, session)
        elif fault == "agent forgets":
            await self.site.lose_agent_sessions(daemon, session)
        elif fault == "deleted":
            await daemon.sessions.destroy(session)
        elif fault == "slept":
            await daemon.sessions.pause(session, self.random.choice([PausedAs.FROZEN, PausedAs.FILES]))

    async def _check(self, daemon: RealThreadDaemon, ref: ThreadRef) -> None:
        if not self._sent(ref):
            return

        async def settled() -> bool:
            messages, _more = await daemon.threads.messages(ref, limit=100_000)
            return all(message.status in ("done", "failed") for message in messages)

        await until(settled, f"no message of {ref.key} is stuck", _END_SECONDS)
        messages, _more = await daemon.threads.messages(ref, limit=100_000)
        assert [message.id for message in messages] == self._sent(ref), "a message is lost, or there twice"
        events = await daemon.events(ref)
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), "events have a gap"
        finals = Counter(event.turn_id for event in events if event.kind == Kind.FINALIZE)
        assert set(finals.values()) <= {1}, "a turn has ended twice"
        for message in messages:
            assert message.turn_id is not None
            turn = await daemon.threads.turn(ref, message.turn_id)
            self.reasons[str(turn.row.stop_reason)] += 1
            if turn.row.stop_reason == "end_turn":
                assert text_of(events, turn.row.id).split() == [message.id, "one", "two"], (
                    "words are lost, or there twice"
                )
        last = await daemon.talk("run cat /workspace/ran || true", "last", ref)
        assert last.row.stop_reason == "end_turn", f"{ref.key} cannot be talked to: {last.row.error}"
        output = [
            event.data.get("output")
            for event in await daemon.events(ref)
            if event.kind == Kind.TOOL_UPDATE and event.turn_id == last.row.id
        ]
        twice = [name for name, count in Counter(str(output[-1]).split()).items() if count > 1]
        assert not twice, f"ran twice: {twice}"

    async def _check_sandboxes(self, daemon: RealThreadDaemon) -> None:
        await daemon.threads.janitor.tick()
        owned = sorted([str((await daemon.threads.get(ref)).row.session_id) for ref in self.refs if self._sent(ref)])
        await until(lambda: self.site.sandboxes() == owned, "each thread has one sandbox, and there is no other", 60)
        assert await daemon.tools.store.leases.abandoned(limit=10) == []


def _script(name: str) -> str:
    return f"run echo {name} >> /workspace/ran\nsay {name} one two"


def soak(seconds: float, seed: int) -> Soak:
    """Raises ``AssertionError`` where a promise is broken."""
    with open_real_site() as site:
        one = Soak(site, random.Random(seed))
        asyncio.run(one.run(seconds))
    return one


if __name__ == "__main__":
    chosen = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SOAK_SEED={chosen}", flush=True)
    done = soak(float(os.environ.get("SOAK_SECONDS") or 600), chosen)
    messages = sum(map(len, done.journal.sent.values()))
    print(f"messages: {messages}; turns: {dict(done.reasons)}; faults: {dict(done.journal.faults)}")
    print("nothing lost, nothing doubled, nothing left, nothing stuck")
