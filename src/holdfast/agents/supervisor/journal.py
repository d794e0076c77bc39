"""What was given to an agent's stdin, whichever daemon gave it: so that nothing is ever given twice.

Before a line is written, a note of it is put into the agent's own directory in the sandbox: to which process, and how
many bytes that had been given until then. The runner counts them. So a daemon that finds the note of another, which
may have died at any moment, can tell whether the line has arrived. Where the process is gone without a trace it counts
as arrived: better not run than run twice.

All that is written to one agent's stdin goes through here, one at a time, or the count would say nothing. Daemons take
turns by the thread's lease; the tasks of one by a lock.
"""

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from holdfast.agents.base import Place
from holdfast.agents.supervisor.home import find_file, write_file
from holdfast.agents.supervisor.lines import parse
from holdfast.errors import AgentDown, AgentFailed, Conflict, HoldfastError, ProcessNotFound
from holdfast.sessions.use.processes import ProcessView

_REMEMBERED = 10_000
_NAME = re.compile(r"[0-9a-f]{40}")
_LOCKS: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Delivery:
    """One line for one process's stdin. ``output`` is where the process's output stood before."""

    process_id: str
    generation: int
    input_before: int
    size: int
    output: int
    note: Mapping[str, str] = field(default_factory=dict)
    """Whatever the adapter wants to find again."""

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
    """Notes of one agent, of one kind (``prompts``, ``answers``, …). ``directory`` tells its own directory."""

    def __init__(self, agent: str, kind: str, directory: Callable[[Place], Awaitable[str]]) -> None:
        self._agent = agent
        self._kind = kind
        self._directory = directory
        self._arrived: dict[tuple[str, str, str], Delivery] = {}  # what has arrived once has arrived
        self.count = 0
        """How often something new was learnt to have arrived."""
        self._news = asyncio.Event()

    @staticmethod
    def name(*key: str) -> str:
        """What a note is called: letters and digits, whatever the key is made of."""
        return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:40]

    async def find(self, place: Place, *key: str) -> Delivery | None:
        """What was noted under this key, arrived or not."""
        return await self.find_named(place, self.name(*key))

    async def find_named(self, place: Place, name: str) -> Delivery | None:
        """The same, for who has only the name. It may be anybody's word."""
        if not _NAME.fullmatch(name):
            return None
        data = await find_file(place, f"{await self._directory(place)}/{self._kind}/{name}")
        return None if data is None else _delivery(data)

    async def arrived(self, place: Place, *key: str) -> Delivery | None:
        """The same, or None where it certainly has not arrived."""
        known = self._arrived.get((place.session_id, place.channel, self.name(*key)))
        if known is not None:
            return known
        delivery = await self.find(place, *key)
        if delivery is None or not await _has_arrived(place, delivery):
            return None
        return self._remember(place, key, delivery)

    def _remember(self, place: Place, key: tuple[str, ...], delivery: Delivery) -> Delivery:
        if len(self._arrived) >= _REMEMBERED:
            self._arrived.clear()
        self._arrived[place.session_id, place.channel, self.name(*key)] = delivery
        self.count += 1
        self._news.set()
        self._news = asyncio.Event()
        return delivery

    async def news(self, since: int) -> None:
        """Returns when ``count`` is more than that. What another daemon does is not noticed here."""
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
        """Give a running process a line, unless it, or another, was given the one of this key before.

        ``AgentDown``: it was certainly not given. After any other error, ``arrived`` tells.
        """
        async with stdin_lock(self._agent, place):
            known = await self.arrived(place, *key)
            if known is not None:
                return known
            now = await _present(place, process.process_id)
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
                # It may wait in a pipe that nobody reads: whoever could still take it up is ended, so that the
                # count says the last word.
                with contextlib.suppress(HoldfastError):
                    await place.sandbox.processes.signal(place.session_id, now.process_id, "KILL")
                raise
            return self._remember(place, key, delivery)

    async def _path(self, place: Place, key: tuple[str, ...]) -> str:
        return f"{await self._directory(place)}/{self._kind}/{self.name(*key)}"


async def write_line(agent: str, place: Place, process_id: str, line: bytes) -> None:
    """A line that may be given twice, or never."""
    async with stdin_lock(agent, place):
        try:
            await place.sandbox.processes.write(place.session_id, process_id, line, close=False)
        except (ProcessNotFound, Conflict) as error:
            raise AgentDown(f"the agent takes no input: {error.message}; the next message starts it again") from error


def stdin_lock(agent: str, place: Place) -> asyncio.Lock:
    """For all adapters of this daemon, whoever made them."""
    return _LOCKS.setdefault((agent, place.session_id, place.channel), asyncio.Lock())


async def _present(place: Place, process_id: str) -> ProcessView:
    try:
        view = await place.sandbox.processes.get(place.session_id, process_id)
    except ProcessNotFound as error:
        raise AgentDown("the agent's process is not there; the next message starts it") from error
    if not view.running:
        raise AgentDown("the agent's process has ended; the next message starts it")
    return view


async def _has_arrived(place: Place, delivery: Delivery) -> bool:
    try:
        view = await place.sandbox.processes.get(place.session_id, delivery.process_id)
    except ProcessNotFound:
        return True  # nobody knows; so it must not be given again
    return view.input_bytes is None or view.input_bytes >= delivery.input_before + delivery.size
