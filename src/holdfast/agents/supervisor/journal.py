"""A journal of what was written to an agent's stdin, by this daemon or another, so that nothing is ever written twice.

Before a line is written, a note of it is saved in the agent's own directory in the sandbox: which process it is for,
and how many bytes that process had received until then. The runner counts these bytes. So a daemon that finds the note
of another daemon, which may have died at any moment, can find out whether the line has arrived. If the process is gone
without a trace, the line counts as arrived: it is better not to run a prompt than to run it twice.

Everything that is written to one agent's stdin goes through here, one line at a time, or the count would mean nothing.
The thread's lease keeps other daemons away, and a lock orders the tasks of this one.
"""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from holdfast.agents.base import Place
from holdfast.agents.supervisor.home import find_file, write_file
from holdfast.agents.supervisor.lines import parse
from holdfast.agents.supervisor.output import find_process, require_running
from holdfast.concurrency import Bounded, Broadcast, KeyedLocks
from holdfast.errors import AgentDown, AgentFailed, Conflict, HoldfastError, ProcessNotFound
from holdfast.sessions.use.processes import ProcessView

_NAME = re.compile(r"[0-9a-f]{40}")
_LOCKS = KeyedLocks[tuple[str, str, str]]()


@dataclass(frozen=True, slots=True)
class Delivery:
    """One line for one process's stdin. ``output`` is the length of the process's output before it."""

    process_id: str
    generation: int
    input_before: int
    size: int
    output: int
    note: Mapping[str, str] = field(default_factory=dict)
    """Additional facts for the adapter."""

    def to_bytes(self) -> bytes:
        return json.dumps(
            {
                "process": self.process_id,
                "generation": self.generation,
                "input": self.input_before,
                "size": self.size,
                "output": self.output,
                "note": dict(self.note),
            }
        ).encode()


def _delivery(data: bytes) -> Delivery:
    match parse(data):
        case {
            "process": str(process_id),
            "generation": int(generation),
            "input": int(before),
            "size": int(size),
            "output": int(output),
            "note": dict(note),
        }:
            said = {str(key): str(value) for key, value in note.items()}
            return Delivery(process_id, generation, before, size, output, said)
    raise AgentFailed("a note in the agent's own directory makes no sense; start a new agent session")


class Journal:
    """The notes of one agent, of one kind (``prompts``, ``answers``, …). ``directory`` returns its own directory."""

    def __init__(self, agent: str, kind: str, directory: Callable[[Place], Awaitable[str]]) -> None:
        self._agent = agent
        self._kind = kind
        self._directory = directory
        self._arrived = Bounded[tuple[str, str, str], Delivery](10_000)  # this never changes again
        self.count = 0
        """How many deliveries this object has learnt to have arrived."""
        self._news = Broadcast()

    @staticmethod
    def name(*key: str) -> str:
        """Return the file name of a note: only letters and digits, whatever the key contains."""
        return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:40]

    async def find(self, place: Place, *key: str) -> Delivery | None:
        """Find the note with this key, whether its line has arrived or not."""
        return await self.find_named(place, self.name(*key))

    async def find_named(self, place: Place, name: str) -> Delivery | None:
        """Like ``find``, by the name of the note. The name is untrusted input."""
        if not _NAME.fullmatch(name):
            return None
        data = await find_file(place, f"{await self._directory(place)}/{self._kind}/{name}")
        return None if data is None else _delivery(data)

    async def arrived(self, place: Place, *key: str) -> Delivery | None:
        """Find the note with this key; None if its line has certainly not arrived."""
        known = self._arrived.get((place.session_id, place.channel, self.name(*key)))
        if known is not None:
            return known
        delivery = await self.find(place, *key)
        if delivery is None or not await _has_arrived(place, delivery):
            return None
        return self._remember(place, key, delivery)

    def _remember(self, place: Place, key: tuple[str, ...], delivery: Delivery) -> Delivery:
        self._arrived[place.session_id, place.channel, self.name(*key)] = delivery
        self.count += 1
        self._news.send()
        return delivery

    async def news(self, since: int) -> None:
        """Wait until ``count`` is more than ``since``. What another daemon does is not noticed here."""
        while self.count <= since:
            await self._news.wait()

    async def deliver(
        self,
        place: Place,
        process: ProcessView,
        generation: int,
        line: bytes,
        *key: str,
        note: Mapping[str, str] | None = None,
    ) -> Delivery:
        """Write a line to a running process, unless the line with this key was written before, to any process.

        ``AgentDown`` means that it was certainly not written. After any other error, ``arrived`` gives the answer.
        """
        async with stdin_lock(self._agent, place):
            known = await self.arrived(place, *key)
            if known is not None:
                return known
            now = await require_running(place, process.process_id)
            delivery = Delivery(
                now.process_id, generation, now.input_bytes or 0, len(line), now.written, dict(note or {})
            )
            await write_file(place, await self._path(place, key), delivery.to_bytes())
            try:
                await place.sandbox.processes.write(place.session_id, now.process_id, line, close=False)
            except (ProcessNotFound, Conflict) as error:
                if await _has_arrived(place, delivery):
                    return self._remember(place, key, delivery)
                raise AgentDown(
                    f"the agent takes no input: {error.message}; the next message starts it again"
                ) from error
            except HoldfastError:
                # The line may still be in the pipe. The process is killed, so that it cannot read it later, and the
                # count of bytes is final.
                with contextlib.suppress(HoldfastError):
                    await place.sandbox.processes.signal(place.session_id, now.process_id, "KILL")
                raise
            return self._remember(place, key, delivery)

    async def _path(self, place: Place, key: tuple[str, ...]) -> str:
        return f"{await self._directory(place)}/{self._kind}/{self.name(*key)}"


async def write_line(agent: str, place: Place, process_id: str, line: bytes) -> None:
    """Write a line whose repetition or loss does no harm."""
    async with stdin_lock(agent, place):
        try:
            await place.sandbox.processes.write(place.session_id, process_id, line, close=False)
        except (ProcessNotFound, Conflict) as error:
            raise AgentDown(f"the agent takes no input: {error.message}; the next message starts it again") from error


def stdin_lock(agent: str, place: Place) -> asyncio.Lock:
    """Return the lock on one agent's stdin, shared by all adapters of this daemon."""
    return _LOCKS.of((agent, place.session_id, place.channel))


async def _has_arrived(place: Place, delivery: Delivery) -> bool:
    view = await find_process(place, delivery.process_id)
    if view is None:
        return True  # it cannot be known, so it must not be written again
    return view.input_bytes is None or view.input_bytes >= delivery.input_before + delivery.size
