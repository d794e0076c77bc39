"""One turn in the agent's output: where it begins, what it asks, whether it is over; and how to answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.agents.acp.always import Always
from holdfast.agents.acp.mapper import AcpMapper, Ended, Quirks, Refuse, Withdrawn
from holdfast.agents.acp.messages import notification, refusal, result
from holdfast.agents.acp.permission import ALLOW_ALWAYS, CANCELED, PermissionRequest
from holdfast.agents.base import AgentEvent, Place
from holdfast.agents.supervisor import record
from holdfast.agents.supervisor.journal import Delivery
from holdfast.agents.supervisor.output import require_running
from holdfast.agents.supervisor.supervisor import Supervisor
from holdfast.errors import ProcessNotFound
from holdfast.sessions.use.processes import ProcessView


def request_id(name: str) -> str:
    """The id of a prompt's request, made from the name of its note, so that every daemon can recognise the answer."""
    return f"holdfast-{name[:24]}"


@dataclass(frozen=True, slots=True)
class AcpTurn:
    """One turn. ``name`` is the name of the prompt's note in the journal; ``delivery`` is the note."""

    supervisor: Supervisor
    place: Place
    conversation: str
    name: str
    delivery: Delivery
    quirks: Quirks

    def mapper(self) -> AcpMapper:
        offer = self.delivery.note.get("models", "")
        return AcpMapper(self.conversation, request_id(self.name), f"msg_{self.name[:24]}", self.quirks, offer)

    def question_id(self, number: int) -> str:
        return f"{self.name}.{number}"

    # -- when it is over -----------------------------------------------------------------------------------------------

    async def save_record(self, told: Sequence[AgentEvent]) -> None:
        """Save the events for later readers, because the runner forgets a process and its output, for example in a
        sleep."""
        await record.save(self.place, await self.supervisor.directory(self.place), self.name, told)

    async def load_record(self) -> Sequence[AgentEvent]:
        return await record.load(self.place, await self.supervisor.directory(self.place), self.name) or ()

    # -- as it stands now ----------------------------------------------------------------------------------------------

    async def scan(self) -> tuple[list[PermissionRequest], bool]:
        """Read the questions so far, and whether the turn is over."""
        try:
            lines = await self.supervisor.read(self.place, self.delivery.process_id, self.delivery.output)
        except ProcessNotFound:
            return [], True
        mapper, asked, over = self.mapper(), list[PermissionRequest](), False
        for line in lines:
            for step in mapper.feed(line.message):
                if isinstance(step, PermissionRequest):
                    asked.append(step)
                elif isinstance(step, Withdrawn):
                    asked = [replace(one, withdrawn=one.withdrawn or one.number == step.number) for one in asked]
                over = over or isinstance(step, Ended)
        return asked, over

    async def process(self) -> ProcessView:
        return await require_running(self.place, self.delivery.process_id)

    # -- answers -------------------------------------------------------------------------------------------------------

    async def find_answer(self, number: int) -> str | None:
        """Find the answer to this request; None if there is none yet."""
        given = await self.supervisor.journal("answers").arrived(self.place, self.name, str(number))
        return None if given is None else given.note.get("answer", "")

    async def answer(self, asked: PermissionRequest, answer: str) -> None:
        """Answer a question, unless it was answered before."""
        if answer == ALLOW_ALWAYS:
            await self.always.note(asked, self.name)
        await self._reply(asked.number, result(asked.id, asked.outcome(answer)), answer)

    @property
    def always(self) -> Always:
        return Always(self.supervisor, self.place, self.delivery)

    async def refuse(self, step: Refuse) -> None:
        await self._reply(step.number, refusal(step.id, step.method), "refused")

    async def _reply(self, number: int, line: bytes, answer: str) -> None:
        view = await self.process()
        await self.supervisor.journal("answers").deliver(
            self.place, view, self.delivery.generation, line, self.name, str(number), note={"answer": answer}
        )

    # -- abort ---------------------------------------------------------------------------------------------------------

    async def find_abort(self) -> Delivery | None:
        return await self.supervisor.journal("aborts").arrived(self.place, self.name)

    async def abort(self) -> None:
        """Cancel the turn, unless it is over. Open questions are answered, or the agent would wait for them."""
        asked, over = await self.scan()
        if over:
            return
        view = await self.process()
        await self.supervisor.journal("aborts").deliver(
            self.place, view, self.delivery.generation, self.cancel_line(), self.name
        )
        for one in asked:
            if not one.withdrawn and await self.find_answer(one.number) is None:
                await self.answer(one, CANCELED)

    def cancel_line(self) -> bytes:
        return notification("session/cancel", {"sessionId": self.conversation})
