"""Reads the turn of one prompt from pi's output, with each event exactly once per cursor.

A cursor is ``COUNT:OFFSET``: how many events of the turn were read, and the offset in pi's output after them. The turn
is read from its beginning through the same mapper, and the first ``COUNT`` events are skipped. If the beginning is
lost, because the runner keeps only so much, reading goes on from the offset.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Sequence

from holdfast.agents.base import AgentEvent, Cursor, Place
from holdfast.agents.pi.mapper import PiMapper
from holdfast.agents.pi.rpc import Rpc
from holdfast.agents.supervisor import AgentProcess, Delivery, OutputLine, Supervisor, follow_lines, read_lines, record
from holdfast.agents.supervisor.output import find_process
from holdfast.errors import AgentDown, AgentFailed
from holdfast.sessions.use.processes import ProcessView
from holdfast.vocabulary.turn_events import Kind, TurnEvent

_CURSOR = re.compile(r"([0-9]{1,12}):([0-9]{1,15})")


class PiTurn:
    """One turn. ``name`` is the id of the prompt's command."""

    def __init__(self, supervisor: Supervisor, place: Place, name: str, delivery: Delivery) -> None:
        self._supervisor = supervisor
        self._place = place
        self._name = name
        self._delivery = delivery

    async def events(self, after: Cursor) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events after that cursor, to the end. Raises ``AgentDown`` if pi dies before."""
        reader = _Reader(self._mapper(), *_position(after))
        view = await find_process(self._place, self._delivery.process_id)
        start = self._delivery.output
        if view is None or view.kept_from > start:
            known = await self.load_record()
            if known is not None:
                for told in known[reader.skip :]:
                    yield told
                return
            for told in reader.into_the_middle():
                yield told
            start = max(reader.offset, 0 if view is None else view.kept_from)
        async with contextlib.aclosing(self._read(reader, view, start)) as reading:
            async for told in reading:
                yield told

    async def _read(self, reader: "_Reader", view: ProcessView | None, start: int) -> AsyncGenerator[AgentEvent, None]:
        if view is not None:
            lines = follow_lines(self._place, view.process_id, start, self._supervisor.timeouts.quiet)
            async with contextlib.aclosing(lines) as items:
                async for item in items:
                    if item is None:
                        await self._ask_whether_it_lives()
                    for told in reader.take(item) if isinstance(item, OutputLine) else ():
                        if told.event.kind is Kind.FINALIZE:
                            await self._save(reader)
                        yield told
                    if reader.mapper.ended:
                        return
        await self._check_replaced()
        for told in reader.died():
            if told.event.kind is Kind.FINALIZE:
                await self._save(reader)
            yield told

    def _mapper(self) -> PiMapper:
        return PiMapper(self._name, self._delivery.note.get("models", ""))

    async def so_far(self) -> tuple[PiMapper, ProcessView | None]:
        """Read the turn so far; the process is None if the runner does not know it any more."""
        mapper = self._mapper()
        view = await find_process(self._place, self._delivery.process_id)
        if view is not None:
            found, view = await read_lines(self._place, view.process_id, self._delivery.output)
            for one in found:
                mapper.take(one.message)
        return mapper, view

    async def wait_until(self, holds: Callable[[PiMapper], bool], seconds: float) -> PiMapper:
        """Wait until that holds, or the turn is over. Raises ``AgentDown`` if neither happens in time."""
        mapper = self._mapper()
        lines = follow_lines(self._place, self._delivery.process_id, self._delivery.output, seconds)
        try:
            async with asyncio.timeout(seconds), contextlib.aclosing(lines) as items:
                async for item in items:
                    if isinstance(item, OutputLine):
                        mapper.take(item.message)
                        if mapper.ended or holds(mapper):
                            return mapper
        except TimeoutError:
            raise AgentDown(f"pi did not get on within {seconds:.0f} s; the next message starts it again") from None
        raise AgentDown("pi's process has ended; the next message starts it again")

    async def load_record(self) -> list[AgentEvent] | None:
        return await record.load(self._place, await self._supervisor.directory(self._place), self._name)

    async def _save(self, reader: "_Reader") -> None:
        kept = reader.recording
        if kept.whole:
            await record.save(self._place, await self._supervisor.directory(self._place), self._name, kept.told)

    async def _ask_whether_it_lives(self) -> None:
        view = await find_process(self._place, self._delivery.process_id)
        if view is not None and view.running:
            rpc = Rpc(self._supervisor, self._place, AgentProcess(view, self._delivery.generation, ""))
            await rpc.state(self._supervisor.timeouts.hung)

    async def _check_replaced(self) -> None:
        """Raise ``AgentDown`` unless another process has taken the place of the dead one: only then the turn is
        over."""
        found = await self._supervisor.find(self._place)
        if found is None or not found.view.running or found.view.process_id == self._delivery.process_id:
            raise AgentDown("pi died in the middle of the turn; the next message starts it")


class _Reader:
    """Numbers events; the first ``skip`` of them were read before."""

    def __init__(self, mapper: PiMapper, skip: int, offset: int) -> None:
        self.mapper = mapper
        self.skip = skip
        self.recording = record.Recording()
        self.offset = offset
        self._count = 0

    def into_the_middle(self) -> list[AgentEvent]:
        """Begin in the middle, because the beginning is lost; return the first event if it was not read before."""
        self._count = self.skip
        self.recording.lose()
        return self._number(self.mapper.go_on(begun=self.skip > 0), self.offset)

    def take(self, line: OutputLine) -> list[AgentEvent]:
        events = self.mapper.take(line.message)
        fresh = self._number(events[:-1], line.start) + self._number(events[-1:], line.end)
        self.offset = line.end
        return fresh

    def died(self) -> list[AgentEvent]:
        return self._number(self.mapper.died(), self.offset)

    def _number(self, events: Sequence[TurnEvent], offset: int) -> list[AgentEvent]:
        fresh = []
        for event in events:
            self._count += 1
            one = AgentEvent(Cursor(f"{self._count}:{offset}"), event)
            self.recording.add(one)
            if self._count > self.skip:
                fresh.append(one)
        return fresh


def _position(after: Cursor) -> tuple[int, int]:
    if not after:
        return 0, 0
    found = _CURSOR.fullmatch(after)
    if not found:
        raise AgentFailed(f"{after[:100]!r} is no cursor of pi")
    return int(found[1]), int(found[2])
