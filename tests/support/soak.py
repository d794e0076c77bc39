"""Real sandboxes, several threads, random faults for as long as you like; then nothing may be lost, doubled or left.

``make soak SOAK_SECONDS=3600``; the seed is printed, and SOAK_SEED=… repeats the choices (not the timing).
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter

from holdfast.errors import HoldfastError
from holdfast.protocol.turn_events import Kind
from holdfast.sessions.sleep import PausedAs
from holdfast.threads.keys import ThreadRef
from support.real_threads import RealDesk, Town, open_town
from support.threads import text_of
from support.waiting import until

THREADS = 3
FAULTS = (
    *("nothing", "link cut", "runner killed", "runner stopped", "agent killed", "agent forgets"),
    *("deleted", "slept", "restart"),
)
_END_SECONDS = 180.0


class Soak:
    """One run. ``sent`` is what each thread was asked, in order."""

    def __init__(self, town: Town, seed: int) -> None:
        self.town = town
        self.random = random.Random(seed)
        self.refs = [ThreadRef("root", f"soak:{number}") for number in range(THREADS)]
        self.sent: dict[str, list[str]] = {ref.key: [] for ref in self.refs}
        self.faults: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        """Daemon after daemon: some end in the middle of whatever they do."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            async with self.town.daemon() as desk:
                while time.monotonic() < end and await self._step(desk):
                    pass
        async with self.town.daemon() as desk:
            for ref in self.refs:
                await self._check(desk, ref)
            await self._check_sandboxes(desk)
            for ref in self.refs:
                await desk.threads.delete(ref)
            await until(lambda: self.town.sandboxes() == [], "nothing is left", _END_SECONDS)

    async def _step(self, desk: RealDesk) -> bool:
        """A message or two, and a fault in the middle of them; False if the daemon is to be replaced."""
        ref = self.random.choice(self.refs)
        for _ in range(self.random.randint(1, 2)):
            await self._say(desk, ref)
        await asyncio.sleep(self.random.uniform(0.0, 0.5))
        fault = self.random.choice(FAULTS)
        self.faults[fault] += 1
        if fault == "restart":
            return False
        try:
            await self._strike(desk, ref, fault)
        except (HoldfastError, OSError, AssertionError, ValueError):
            self.faults[f"{fault}, not possible then"] += 1
        except Exception as error:  # the runtime says no: it is being made, or gone already
            self.faults[f"{fault}, {type(error).__name__}"] += 1
        return True

    async def _say(self, desk: RealDesk, ref: ThreadRef) -> None:
        """Each leaves a line in a file of the sandbox: what ran twice has two."""
        name = f"m{len(self.sent[ref.key])}"
        self.sent[ref.key].append(name)
        await desk.say(f"run echo {name} >> /workspace/ran\nsay {name} one two", name, ref)
        if self.random.random() < 0.3:  # a client that got no answer
            await desk.say(f"run echo {name} >> /workspace/ran\nsay {name} one two", name, ref)

    async def _strike(self, desk: RealDesk, ref: ThreadRef, fault: str) -> None:
        session = (await desk.threads.get(ref)).session_id
        if session is None or fault == "nothing":
            return
        if fault == "runner killed":
            self.town.signal_runner(session, signal.SIGKILL)
        elif fault == "runner stopped":
            self.town.signal_runner(session, signal.SIGSTOP)
            await asyncio.sleep(self.random.uniform(0.5, 4.0))
            self.town.signal_runner(session, signal.SIGCONT)
        elif fault == "link cut":
            await asyncio.to_thread(self.town.cut_link, session)
        elif fault == "agent killed":
            await self.town.kill_agent(desk, session)
        elif fault == "agent forgets":
            await self.town.lose_agent_sessions(desk, session)
        elif fault == "deleted":
            await desk.sessions.destroy(session)
        elif fault == "slept":
            await desk.sessions.pause(session, self.random.choice([PausedAs.FROZEN, PausedAs.FILES]))

    async def _check(self, desk: RealDesk, ref: ThreadRef) -> None:
        if not self.sent[ref.key]:
            return

        async def settled() -> bool:
            messages, _more = await desk.threads.messages(ref, limit=100_000)
            return all(message.status in ("done", "failed") for message in messages)

        await until(settled, f"no message of {ref.key} is stuck", _END_SECONDS)
        messages, _more = await desk.threads.messages(ref, limit=100_000)
        assert [message.id for message in messages] == self.sent[ref.key], "a message is lost, or there twice"
        events = await desk.events(ref)
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), "events have a gap"
        finals = Counter(event.turn_id for event in events if event.kind == Kind.FINALIZE)
        assert set(finals.values()) <= {1}, "a turn has ended twice"
        for message in messages:
            assert message.turn_id is not None
            turn = await desk.threads.turn(ref, message.turn_id)
            self.reasons[str(turn.reason)] += 1
            if turn.reason == "end_turn":
                assert text_of(events, turn.id).split() == [message.id, "one", "two"], "words are lost, or there twice"
        last = await desk.talk("run cat /workspace/ran || true", "last", ref)
        assert last.reason == "end_turn", f"{ref.key} cannot be talked to: {last.error}"
        output = [
            event.data.get("output")
            for event in await desk.events(ref)
            if event.kind == Kind.TOOL_UPDATE and event.turn_id == last.id
        ]
        twice = [name for name, count in Counter(str(output[-1]).split()).items() if count > 1]
        assert not twice, f"ran twice: {twice}"

    async def _check_sandboxes(self, desk: RealDesk) -> None:
        await desk.threads.janitor.tick()
        owned = sorted([str((await desk.threads.get(ref)).session_id) for ref in self.refs if self.sent[ref.key]])
        await until(lambda: self.town.sandboxes() == owned, "each thread has one sandbox, and there is no other", 60)
        assert await desk.tools.store.leases.abandoned(limit=10) == []


def soak(seconds: float, seed: int) -> Soak:
    """Raises ``AssertionError`` where a promise is broken."""
    with open_town() as town:
        one = Soak(town, seed)
        asyncio.run(one.run(seconds))
    return one


if __name__ == "__main__":
    chosen = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SOAK_SEED={chosen}", flush=True)
    done = soak(float(os.environ.get("SOAK_SECONDS") or 600), chosen)
    print(f"messages: {sum(map(len, done.sent.values()))}; turns: {dict(done.reasons)}; faults: {dict(done.faults)}")
    print("nothing lost, nothing doubled, nothing left, nothing stuck")
