"""What the server says, with its gaps and its end."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from holdfast.agents.base import Place, Sandbox
from holdfast.agents.http import ServerSentEvent
from holdfast.agents.sandbox_agent.server import AcpServer
from holdfast.agents.sandbox_agent.wire import EXITED, LAST, HttpSupervisor
from holdfast.agents.supervisor import OutputLine, Timeouts
from holdfast.agents.supervisor.lines import BROKE, CUT
from holdfast.errors import AgentDown, AgentError, ProcessNotFound
from holdfast.protocol.messages import BROKE as BROKE_OFF
from holdfast.protocol.messages import CUT as CUT_OFF
from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import ProcessView

pytestmark = pytest.mark.anyio

VIEW = ProcessView("prc_1", 7, "", False, True, None, 0.0, None, 0, 0)


class Processes:
    """One process, that runs as often as it is asked about; and a tap beside it, with what that has written, and what
    the runner has told it."""

    def __init__(self, running: int, tap: bytes) -> None:
        self.running = running
        self.tap = tap
        self.reads = 0
        self.words = 0

    def told(self, _session_id: str) -> int:
        return self.words

    async def list(self, _session_id: str) -> Sequence[ProcessView]:
        cmd = f"bash -c … holdfast-tap-{VIEW.process_id} /token 8000 /v1/acp/main"
        other = replace(VIEW, process_id="prc_3", cmd="bash -c … holdfast-tap-prc_9", written=4)
        return [VIEW, other, replace(VIEW, process_id="prc_2", cmd=cmd, written=len(self.tap))]

    async def read(
        self, _session_id: str, process_id: str, *, offset: int, limit: int
    ) -> tuple[Sequence[Chunk], ProcessView]:
        assert process_id == "prc_2" and limit > 0
        self.reads += 1
        said, told, _ = self.tap[offset:].partition(BROKE_OFF)
        if CUT_OFF in said:
            said, told, _ = said.partition(CUT_OFF)
        chunk = Chunk(STDOUT, offset, said[:50]) if said else Chunk(STDERR, offset, told)
        return [chunk] if chunk.data else [], replace(VIEW, process_id="prc_2", written=len(self.tap))

    async def get(self, _session_id: str, process_id: str, *, wait_ms: int = 0) -> ProcessView:
        if process_id != VIEW.process_id:
            raise ProcessNotFound("no")
        self.running -= 1
        return VIEW if self.running >= 0 else ProcessView("prc_1", 7, "", False, False, 0, 0.0, 1.0, 5, 0)


class Box:
    def __init__(self, running: int, tap: bytes = b"") -> None:
        self.processes = Processes(running, tap)


class Stub:
    """A server. Each connection is given the next of these lists, and then hung up on; ``asked`` is from where."""

    def __init__(self, *connections: Sequence[int]) -> None:
        self.connections = list(connections)
        self.asked: list[int] = []
        self.exits = 0

    async def events(self, after: int) -> AsyncGenerator[ServerSentEvent | None, None]:
        self.asked.append(after)
        yield None
        for number in self.connections.pop(0) if self.connections else ():
            told = {"method": EXITED} if number == self.exits else {"n": number}
            yield ServerSentEvent(str(number), json.dumps(told))
        raise AgentDown("hung up")


class Wired(HttpSupervisor):
    def __init__(self, stub: Stub) -> None:
        super().__init__("sandbox-agent", "opencode", Timeouts(quiet=0.05))
        self.stub = stub

    async def _server(self, place: Place, view: ProcessView) -> AcpServer:
        return cast(AcpServer, self.stub)


async def said(stub: Stub, offset: int, *, running: int, tap: bytes = b"") -> list[object]:
    return await said_to(Wired(stub), Box(running, tap), offset)


async def said_to(wired: Wired, box: Box, offset: int) -> list[object]:
    """Lines as their numbers, and the rest as it is."""
    found: list[object] = []
    async with contextlib.aclosing(wired.follow(place_with(box), VIEW.process_id, offset, 10)) as items:
        async for item in items:
            found.append(item.start if isinstance(item, OutputLine) and item.message not in (BROKE, CUT) else item)
    return found


def place_with(box: Box) -> Place:
    return Place("ses_1", cast(Sandbox, box))


def cut_before(number: int) -> OutputLine:
    return OutputLine(number, number, CUT)


def ended(found: Sequence[object]) -> bool:
    return isinstance(found[-1], ProcessView) and found[-1].written == LAST


async def test_a_connection_that_breaks_is_made_again() -> None:
    stub = Stub([4, 5], [6])
    found = await said(stub, 3, running=2)
    assert found[:-1] == [Attached(), 4, 5, 6] and ended(found)
    assert stub.asked == [3, 5]


async def test_an_event_that_was_skipped_is_asked_for() -> None:
    stub = Stub([1, 2, 4, 5], [3, 4, 5])
    found = await said(stub, 0, running=1)
    assert found[:-1] == [Attached(), 1, 2, 3, 4, 5] and ended(found)
    assert stub.asked == [0, 2]


async def test_events_that_the_server_has_forgotten_are_lost() -> None:
    found = await said(Stub([10, 11]), 3, running=1)
    assert found[:-1] == [Attached(), 6, 10, 11]  # the 6 is how many


def tapped(*numbers: int) -> bytes:
    """As the server tells it: a head, and events."""
    events = [f"id: {number}\nevent: message\ndata: {json.dumps({'n': number})}\n\n" for number in numbers]
    return f"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{''.join(events)}".encode()


async def test_what_the_server_has_forgotten_the_tap_has() -> None:
    cut = tapped(1, 2, 3, 4, 5, 6)[:-9]  # a connection that broke off, and the next one, which begins again
    found = await said(Stub([10, 11]), 3, running=1, tap=cut + b"\n\n" + tapped(5, 6, 7, 8, 9, 10, 11))
    assert found[:-1] == [Attached(), 4, 5, 6, 7, 8, 9, 10, 11]


async def test_what_neither_has_is_lost() -> None:
    found = await said(Stub([20, 21]), 3, running=1, tap=tapped(8, 9))
    assert found[:-1] == [Attached(), 4, 8, 9, 10, 20, 21]  # the 4 and the 10 are how many


async def test_of_a_server_that_is_gone_the_tap_has_the_rest() -> None:
    found = await said(Stub(), 2, running=0, tap=tapped(1, 2, 3, 4))
    assert found[:-1] == [Attached(), 3, 4] and ended(found)


async def test_a_cut_is_told_where_the_runner_has_told_it_to_the_tap() -> None:
    """Though the server knows nothing of it; and though a tap that was connected anew repeats what came before."""
    tap = tapped(1, 2, 3, 4, 5) + CUT_OFF + b"\n\n" + tapped(2, 3, 4, 5, 6, 7) + CUT_OFF + tapped(8)
    found = await said(Stub([4, 5, 6, 7, 8]), 3, running=1, tap=tap)
    assert found[:-1] == [Attached(), 4, 5, cut_before(6), 6, 7, cut_before(8), 8]


async def test_a_cut_is_known_before_the_tap_has_what_came_after_it() -> None:
    found = await said(Stub([4, 5, 6]), 3, running=1, tap=tapped(1, 2, 3, 4, 5) + CUT_OFF)
    assert found[:-1] == [Attached(), 4, 5, cut_before(6), 6]


async def test_a_cut_in_the_rest_that_only_the_tap_has() -> None:
    """In the middle of an event's bytes, too: these are another stream's."""
    whole = tapped(1, 2, 3, 4, 5)
    found = await said(Stub(), 2, running=0, tap=whole[:-9] + CUT_OFF + whole[-9:])
    assert found[:-1] == [Attached(), 3, 4, cut_before(5), 5]


async def test_of_what_was_heard_as_it_was_said_nobody_asks_the_tap() -> None:
    """As long as the connection stands."""
    tap = tapped(1, 2, 3, 4, 5) + CUT_OFF + tapped(6)
    wired, box = Wired(Stub([4, 5], [6])), Box(2, tap)
    wired._hear_from(place_with(box), VIEW, 3)
    assert (await said_to(wired, box, 3))[:-1] == [Attached(), 4, 5, cut_before(6), 6]
    wired, box = Wired(Stub([4, 5, 6])), Box(1, tap)
    wired._hear_from(place_with(box), VIEW, 3)
    async with contextlib.aclosing(wired.follow(place_with(box), VIEW.process_id, 3, 10)) as items:
        heard = [await anext(items) for _ in range(4)]
    assert [item.start for item in heard if isinstance(item, OutputLine)] == [4, 5, 6] and box.processes.reads == 0


async def test_a_word_that_this_daemon_has_left_is_asked_for() -> None:
    """Also behind an event that was heard already: the tap may lag."""
    tap = tapped(1, 2, 3) + BROKE_OFF + tapped(4, 5) + CUT_OFF
    wired, box = Wired(Stub([4, 5, 6], [7])), Box(2, tap)
    wired._hear_from(place_with(box), VIEW, 3)
    async with contextlib.aclosing(wired.follow(place_with(box), VIEW.process_id, 3, 10)) as items:
        heard = [await anext(items) for _ in range(3)]
        box.processes.words = 2
        heard += [await anext(items) for _ in range(3)]
    assert heard[1:] == [line(4), line(5), OutputLine(6, 6, BROKE), OutputLine(6, 6, CUT), line(6)]


def line(number: int) -> OutputLine:
    return OutputLine(number, number + 1, {"n": number})


async def test_events_come_once_though_they_are_repeated() -> None:
    assert (await said(Stub([2, 3, 4]), 3, running=1))[:-1] == [Attached(), 4]


async def test_the_end_of_the_agent_behind_it_is_an_end() -> None:
    stub = Stub([1, 2, 3])
    stub.exits = 2
    found = await said(stub, 0, running=5)
    assert found[:-1] == [Attached(), 1] and ended(found)


async def test_one_that_runs_and_is_not_to_be_reached_is_down() -> None:
    stub = Stub([1])
    with pytest.raises(AgentDown):
        await said(stub, 0, running=100)
    assert stub.asked[0] == 0 and set(stub.asked[1:]) == {1}


async def test_a_process_that_is_not_known_says_nothing() -> None:
    place = Place("ses_1", cast(Sandbox, Box(0)))
    assert [item async for item in Wired(Stub()).follow(place, "prc_2", 0, 10)] == [Attached()]
    with pytest.raises(ProcessNotFound):
        await Wired(Stub()).read(place, "prc_2", 0)


class Refusing(Stub):
    """Its server answers what it is told with an error, and has no events: they are waited for."""

    @contextlib.asynccontextmanager
    async def hold_post(
        self, _message: object, refused: Callable[[AgentError], None]
    ) -> AsyncGenerator["asyncio.Future[None]", None]:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused(AgentDown("503"))
        answer.set_exception(AgentDown("503"))
        yield answer
        answer.exception()

    async def events(self, _after: int) -> AsyncGenerator[ServerSentEvent | None, None]:
        yield None
        await asyncio.Event().wait()


async def test_what_the_server_itself_refuses_is_answered_though_no_event_comes_of_it() -> None:
    """Else the turn of a prompt that the agent never got would have no end: the server lives, and says so."""
    wired, heard = Wired(Refusing()), list[str]()
    place = place_with(Box(10))

    async def note() -> None:
        heard.append("heard")

    line = b'{"jsonrpc": "2.0", "id": "holdfast-1", "method": "session/prompt", "params": {}}'
    await wired.send(place, VIEW, line, "one", note)
    told: list[object] = []
    async with asyncio.timeout(5), contextlib.aclosing(wired.follow(place, VIEW.process_id, 3, 10)) as items:
        async for item in items:
            told.append(item)
            if isinstance(item, OutputLine):
                break
    error = {"code": -32603, "message": "503"}
    assert told[-1] == OutputLine(3, 3, {"jsonrpc": "2.0", "id": "holdfast-1", "error": error})
    assert heard == []
