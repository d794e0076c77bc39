"""What must be so of a thread whatever was done and whatever broke; read from the store, past all daemons.

P1: one sandbox. P2: no prompt is run twice, no message is lost, each ends. P3: every event is there once, in order;
transcript, events and the agent's memory tell the same story, also after something was taken back.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sqlalchemy as sa

from holdfast.agents.base import ConversationId
from holdfast.records.machine import Status
from holdfast.records.threads import MessageRow, MessageStatus, Mode, ThreadEventRow, ThreadRow, TranscriptLine, TurnRow
from holdfast.store.sessions.rows import row_of
from holdfast.store.tables import sessions
from holdfast.store.threads import tables, transcript
from holdfast.threads.names import ThreadRef
from holdfast.threads.resolve.sandboxes import made_for
from holdfast.vocabulary.thread_files import DISPLAY, upload_path
from holdfast.vocabulary.turn_events import Kind
from support.threads.threads import FakeSite

CHANNELS = ("default", "review")
_MANY = 10_000
_AGAIN = "+again"
_STEERED = "steered: "
_QUESTIONS = (Kind.QUESTION, Kind.QUESTION_CLOSED)
_USABLE = [status for status in Status if status not in (Status.DESTROYING, Status.DESTROYED, Status.ERROR)]


@dataclass(frozen=True, slots=True)
class Upload:
    id: str
    name: str
    content: bytes

    @property
    def path(self) -> str:
        return upload_path(self.id, self.name)


@dataclass(frozen=True, slots=True)
class Said:
    """A message as its user has it. The agent says its name, so that it is known wherever it comes to."""

    name: str
    mode: Mode = Mode.QUEUE
    channel: str = CHANNELS[0]
    attachments: tuple[Upload, ...] = ()
    makes_file: bool = False
    asks: bool = False

    @property
    def text(self) -> str:
        lines = [f"say {self.name} one", "sleep 0.02"]
        lines += ["attachments"] * bool(self.attachments)
        lines += [f"write {DISPLAY}/{self.file} by {self.name}"] * self.makes_file
        lines += ["ask sure? | yes | no"] * self.asks
        return "\n".join([*lines, "say two"])

    @property
    def file(self) -> str:
        return f"{self.name}.txt"


@dataclass(slots=True)
class Talk:
    """All that users have done to one thread since it was made."""

    said: dict[str, Said] = field(default_factory=dict)
    uploads: list[Upload] = field(default_factory=list)
    given_up: set[str] = field(default_factory=set)
    """Messages that somebody has taken back, or aborted the turn of, or may have."""
    struck: bool = False
    """Whether anything has broken meanwhile: a turn may end with an error."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store has of a thread, at one moment."""

    row: ThreadRow
    messages: list[MessageRow]
    turns: list[TurnRow]
    """Oldest first."""
    events: Sequence[ThreadEventRow]
    lines: Mapping[str, list[TranscriptLine]]
    """The transcripts, by channel."""
    sessions: Mapping[str, str]
    """Those of the agents, by channel."""
    asked_for: list[str]
    """What is still to be done by whoever has the thread, such as ``revert``."""
    sandboxes: list[str]
    """Those that could be used: made for the thread, and not known to be gone or going."""

    @property
    def reverted(self) -> set[str]:
        """As it was told to whoever follows the events."""
        told = (event.data["turn_ids"] for event in self.events if event.kind == Kind.REVERTED)
        return {str(id) for ids in told if isinstance(ids, list) for id in ids}

    @property
    def at_rest(self) -> bool:
        """Nothing waits, and nothing is being done."""
        waiting = (MessageStatus.QUEUED, MessageStatus.IN_TURN)
        return not self.asked_for and not any(message.status in waiting for message in self.messages)

    @property
    def questions(self) -> list[str]:
        """What the agents have asked and nobody has answered."""
        told = {str(event.data["question_id"]): event for event in self.events if event.kind in _QUESTIONS}
        open = {turn.id for turn in self.turns if turn.state != "ended"}
        return [id for id, last in told.items() if last.kind == Kind.QUESTION and last.turn_id in open]

    def answers_of(self, turn: TurnRow) -> list[str]:
        closed = [one for one in self.events if one.kind == Kind.QUESTION_CLOSED and one.turn_id == turn.id]
        assert len({str(one.data["question_id"]) for one in closed}) == len(closed), "P2: a question is closed twice"
        return [str(one.data["answer"]) for one in closed]

    def words_of(self, turn_id: str, *, steered: bool = True) -> str:
        pieces = [
            str(event.data["text"])
            for event in self.events
            if event.kind == Kind.TEXT_DELTA and event.turn_id == turn_id and not event.data.get("thought")
        ]
        return "".join(piece for piece in pieces if steered or not piece.startswith(_STEERED))

    def of_turn(self, turn: TurnRow) -> list[MessageRow]:
        return [message for message in self.messages if message.turn_id == turn.id]

    def asked(self, turn: TurnRow) -> list[MessageRow]:
        """The messages that it began with."""
        mine = self.of_turn(turn)
        return [one for one in mine if one.mode != Mode.STEER or one.seq is None or one.seq <= turn.first_seq]


class Promises:
    """Those to the users of one site."""

    def __init__(self, site: FakeSite) -> None:
        self._site = site
        self._store = site.store

    async def kept(self, ref: ThreadRef) -> Kept | None:
        """None where there is no such thread."""
        work = partial(_read, owner=ref.owner, key=ref.key)
        return await self._site.store._database.read(work)

    # -- after each step -----------------------------------------------------------------------------------------------

    async def hold(self, ref: ThreadRef, talk: Talk) -> None:
        kept = await self.kept(ref)
        if kept is None:
            assert not talk.said, "the thread is lost"
            return
        assert len(kept.sandboxes) <= 1, "P1"
        self._events(kept)
        self._messages(kept, talk)
        self._runs(kept)
        self._transcript(kept)
        remembered = self._remembered(kept)
        again = await self.kept(ref)
        if again is not None and again.row == kept.row:  # else a revert may have come in between
            self._memory(kept, remembered)
        self._attachments(talk)

    def _events(self, kept: Kept) -> None:
        assert [event.seq for event in kept.events] == list(range(1, len(kept.events) + 1)), "P3: a gap"
        finals = Counter(event.turn_id for event in kept.events if event.kind == Kind.FINALIZE)
        assert set(finals.values()) <= {1}, "P3: a turn has ended twice"
        assert {turn.id for turn in kept.turns if turn.state == "ended"} == set(finals), "P3: an end is not told"

    def _messages(self, kept: Kept, talk: Talk) -> None:
        ids = [message.id for message in kept.messages]
        assert [id for id in ids if not id.endswith(_AGAIN)] == list(talk.said), "P2: a message is lost"
        again = {_name(id) for id in ids if id.endswith(_AGAIN)}
        assert all(talk.said[name].mode == Mode.STEER for name in again), "P2: a message is doubled"
        ended = {turn.id for turn in kept.turns if turn.state == "ended"}
        for message in kept.messages:
            assert (message.turn_id is not None) or message.status in (MessageStatus.QUEUED, MessageStatus.CANCELED)
            assert message.turn_id is None or (message.turn_id in ended) == (message.status != MessageStatus.IN_TURN)
            if message.status == MessageStatus.CANCELED:
                assert _name(message.id) in talk.given_up, f"P2: nobody has taken back {message.id}"

    def _runs(self, kept: Kept) -> None:
        ran = Counter(prompt for _session, prompt in self._site.agents.ran)
        assert not [prompt for prompt, count in ran.items() if count > 1], "P2: a prompt was run twice"
        steered = Counter(prompt for _session, prompt in self._site.agents.steered)
        times: Counter[str] = Counter()
        for turn in kept.turns:
            for message in kept.asked(turn):
                times[_name(message.id)] += ran[turn.id]
            for message in kept.of_turn(turn):
                times[_name(message.id)] += steered[f"{turn.id}:{message.id}"]
        assert not [name for name, count in times.items() if count > 1], "P2: a message was run twice"

    def _transcript(self, kept: Kept) -> None:
        back = kept.reverted
        assert back == {turn.id for turn in kept.turns if turn.reverted}, "P3: events tell another story than turns"
        for channel, lines in kept.lines.items():
            there = [turn for turn in kept.turns if turn.channel == channel and turn.id not in back]
            order = list(dict.fromkeys(line.turn_id for line in lines))
            assert order == [turn.id for turn in there], "P3: the transcript has other turns than the events"
            for turn in there:
                mine = [line for line in lines if line.turn_id == turn.id]
                users = [line.text for line in mine if line.role == "user"]
                assert users == [message.text for message in kept.of_turn(turn)], "P3: the transcript leaves out users"
                answer = "".join(line.text for line in mine if line.role == "agent")
                heard = kept.words_of(turn.id)
                assert answer.split() == heard.split(), "P3: the transcript has other words than the events"

    def _remembered(self, kept: Kept) -> dict[str, str]:
        """What the agents know, by channel: of those who have nothing to do, and a session."""
        if "revert" in kept.asked_for or kept.row.session_id not in self._site.host.world.sandboxes:
            return {}  # the agent and the store do it one after the other
        busy = {turn.channel for turn in kept.turns if turn.state != "ended"}
        found: dict[str, str] = {}
        for channel, session in kept.sessions.items():
            home = self._site.agents.home(str(kept.row.session_id), channel)
            known = home.sessions.get(ConversationId(session))
            if channel not in busy and known is not None:  # one that is lost is replaced before the next turn
                found[channel] = "\n".join(text for _role, text in known.memory())
        return found

    def _memory(self, kept: Kept, remembered: Mapping[str, str]) -> None:
        """The agent remembers what the transcript has, and nothing that was taken back."""
        for turn in (turn for turn in kept.turns if turn.channel in remembered):
            for message in kept.asked(turn):
                there = f"say {_name(message.id)} one\n" in remembered[turn.channel]
                assert not (there and turn.reverted), f"P3: the agent remembers {message.id}, which was taken back"
                assert there or turn.reverted or turn.stop_reason != "end_turn", f"P3: it forgot {message.id}"

    def _attachments(self, talk: Talk) -> None:
        """What an agent was told to be there is there."""
        content = {upload.path: upload.content for upload in talk.uploads}
        for home in self._site.agents.homes():
            files = None if home.sandbox.runner is None else home.sandbox.runner.files
            for turn in (turn for session in home.sessions.values() for turn in session.turns.values()):
                for path in turn.prompt.attachments:
                    if files is not None and path in content:
                        assert files.get(path) == content[path], "P2: an attachment is not there"

    # -- at the end ----------------------------------------------------------------------------------------------------

    async def settled(self, ref: ThreadRef, talk: Talk) -> None:
        """Of a thread at rest: every message has its answer, or a reason why not."""
        kept = await self.kept(ref)
        assert kept is not None
        files = {row.id: row for row in await self._store.thread_files.of_thread(kept.row.id)}
        told = {files[id].name for turn in kept.turns for id in turn.artifacts}
        for turn in kept.turns:
            asked = [talk.said[_name(message.id)] for message in kept.asked(turn) if _name(message.id) in talk.said]
            trouble = [event for event in kept.events if event.kind == Kind.ERROR and event.turn_id == turn.id]
            if turn.stop_reason == "end_turn" and asked:
                paths = [upload.path for one in asked for upload in one.attachments]
                answers = iter(kept.answers_of(turn))
                words = [word for one in asked for word in _answer(one, paths, answers)]
                assert kept.words_of(turn.id, steered=False).split() == words, "P3: words are lost, or there twice"
                assert trouble or {one.file for one in asked if one.makes_file} <= told, "P2: an artifact is lost"
            elif not talk.struck:
                assert all(one.name in talk.given_up for one in asked), f"P2: {turn.stop_reason} without a reason"
        self._steered(kept)

    def _steered(self, kept: Kept) -> None:
        """Each that went into a turn was heard by the agent, or is sent again, or its user is told."""
        heard = {prompt for _session, prompt in self._site.agents.steered}
        ids = {message.id for message in kept.messages}
        for turn in kept.turns:
            errors = [str(event.data) for event in kept.events if event.kind == Kind.ERROR and event.turn_id == turn.id]
            begun = kept.asked(turn)
            for message in (one for one in kept.of_turn(turn) if one not in begun):
                known = f"{turn.id}:{message.id}" in heard or f"{message.id}{_AGAIN}" in ids
                assert known or any(message.id in error for error in errors), f"P2: {message.id} is lost in {turn.id}"


def _read(connection: sa.Connection, owner: str, key: str) -> Kept | None:
    connection.exec_driver_sql("BEGIN")  # all of it as it was in one moment
    this = sa.select(tables.threads).where(tables.threads.c.key == key, tables.threads.c.owner == owner)
    found = connection.execute(this.where(sa.text(tables.NOT_DELETED))).one_or_none()
    if found is None:
        return None
    id = found.id

    def rows(table: sa.Table, order: str) -> list[Mapping[str, Any]]:
        query = sa.select(table).where(table.c.thread_id == id).order_by(table.c[order])
        return [row._asdict() for row in connection.execute(query)]

    channels = rows(tables.thread_channels, "channel")
    usable = sa.select(sessions).where(sessions.c.status.in_(_USABLE))
    made = [(row.id, made_for(row_of(row))) for row in connection.execute(usable)]
    return Kept(
        row=ThreadRow(**found._mapping),
        messages=[MessageRow(**row) for row in rows(tables.messages, "position")],
        turns=[TurnRow(**row) for row in rows(tables.turns, "first_seq")],
        events=[ThreadEventRow(**row) for row in rows(tables.thread_events, "seq")],
        lines={name: transcript.read(connection, id, channel=name, limit=_MANY) for name in CHANNELS},
        sessions={row["channel"]: row["agent_session_id"] for row in channels if row["agent_session_id"] is not None},
        asked_for=[row["kind"] for row in rows(tables.thread_requests, "at") if row["done_at"] is None],
        sandboxes=[session for session, thread in made if thread is not None and thread[0] == id],
    )


def _name(message_id: str) -> str:
    return message_id.removesuffix(_AGAIN)


def _answer(said: Said, paths: Sequence[str], answers: Iterator[str]) -> list[str]:
    heard = ["answer:", next(answers)] if said.asks else []
    return [said.name, "one", *(paths if said.attachments else []), *heard, "two"]
