"""Spoken attachments of a thread: the agent reads what is said; where nobody can listen, the turn runs all the same."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.errors import AgentDown, NotTranscribed
from holdfast.records.threads import Mode
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, ThreadDaemon
from support.waiting import linger

pytestmark = pytest.mark.anyio


class Ear:
    """Hears what is written in the file."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.gate: asyncio.Event | None = None

    async def transcribe(self, path: Path, _owner: str, /) -> str:
        self.heard.append(path.name)
        if self.gate is not None:
            await self.gate.wait()
        said = path.read_text()
        if said == "noise":
            raise NotTranscribed("there is nothing but noise in it")
        return said


async def pieces(said: str) -> AsyncIterator[bytes]:
    yield said.encode()


async def send(daemon: ThreadDaemon, text: str, **files: str) -> list[str]:
    ids = []
    for name, said in files.items():
        ids.append((await daemon.threads.upload(REF, name.replace("_", "."), pieces(said))).id)
    await daemon.say(text, "m1", attachments=ids)
    return ids


async def test_what_is_said_comes_after_the_text(site: FakeSite) -> None:
    site.transcriber = ear = Ear()
    async with site.daemon() as daemon:
        audio, plain = await send(daemon, "look at this", memo_ogg="buy more tea", list_txt="tea")
        turn = await daemon.ended("m1")
        assert turn.row.prompt == "look at this"
    path = f"/workspace/uploads/{audio}/memo.ogg"
    assert f'look at this\n\n<audio-transcript file="{path}">\nbuy more tea\n</audio-transcript>' in str(
        turn.row.answer
    )
    assert ear.heard == [audio]
    assert plain not in str(turn.row.answer)


async def test_a_turn_runs_without_it_and_says_why(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await send(daemon, "look at this", memo_ogg="buy more tea")
        turn = await daemon.ended("m1")
        told = [event.data for event in await daemon.events() if event.kind == Kind.ERROR]
    assert turn.row.stop_reason == "end_turn"
    assert "It was not transcribed: no speech recognition is set up" in str(turn.row.answer)
    assert [(data["code"], "memo.ogg was not transcribed" in str(data["message"])) for data in told] == [
        ("not_transcribed", True)
    ]


async def test_one_that_cannot_be_understood_does_not_spoil_the_others(site: FakeSite) -> None:
    site.transcriber = Ear()
    async with site.daemon() as daemon:
        await send(daemon, "and?", a_ogg="noise", b_wav="hello")
        turn = await daemon.ended("m1")
    assert "nothing but noise" in str(turn.row.answer)
    assert "\nhello\n</audio-transcript>" in str(turn.row.answer)


async def test_a_turn_can_be_aborted_while_somebody_listens(site: FakeSite) -> None:
    site.transcriber = ear = Ear()
    ear.gate = asyncio.Event()
    async with site.daemon() as daemon:
        await send(daemon, "and?", a_ogg="hello")
        await until(lambda: bool(ear.heard), "it is listened to")
        await daemon.threads.abort(REF)
        assert (await daemon.ended("m1")).row.stop_reason == "canceled"


async def test_the_next_daemon_tells_it_no_second_time(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        daemon.agent.inject("start", hang=True, times=None)
        await send(daemon, "and?", a_ogg="hello")
        await daemon.wait_for(Kind.ERROR)
    async with site.daemon() as daemon:
        assert "It was not transcribed" in str((await daemon.ended("m1")).row.answer)
        assert len([event for event in await daemon.events() if event.kind == Kind.ERROR]) == 1


async def test_who_is_asked_twice_listens_once(site: FakeSite) -> None:
    site.transcriber = ear = Ear()
    async with site.daemon() as daemon:
        daemon.agent.inject("prompt", error=AgentDown("gone"))
        audio = await send(daemon, "and?", a_ogg="hello")
        turn = await daemon.ended("m1")
    assert (turn.row.stop_reason, turn.row.attempts) == ("end_turn", 2)
    assert ear.heard == audio


async def steered(daemon: ThreadDaemon, site: FakeSite, ear: Ear) -> tuple[str, str]:
    """A turn that goes on when ``/go`` is there, and a voice message into it that is being listened to."""
    await daemon.say("say begun\nwait-for /go", "m0")
    await daemon.wait_for(Kind.TEXT_DELTA)
    audio = (await daemon.threads.upload(REF, "memo.ogg", pieces("buy more tea"))).id
    await daemon.say("and this", "m1", mode=Mode.STEER, attachments=[audio])
    await until(lambda: ear.heard == [audio], "it is listened to")
    return str((await daemon.threads.get(REF)).row.session_id), audio


def go(site: FakeSite, session_id: str) -> None:
    runner = site.host.world.sandboxes[session_id].runner
    assert runner is not None
    runner.files["/go"] = b""


async def test_a_voice_message_into_a_turn_does_not_hold_up_its_end(site: FakeSite) -> None:
    site.transcriber = ear = Ear()
    ear.gate = asyncio.Event()
    async with site.daemon() as daemon:
        session, _audio = await steered(daemon, site, ear)
        go(site, session)
        assert (await daemon.ended("m0")).row.stop_reason == "end_turn"
        ear.gate.set()
        assert "buy more tea" in str((await daemon.ended("m1+again")).row.answer), "it comes as a message of its own"


async def test_nor_does_it_for_the_next_daemon(site: FakeSite) -> None:
    site.transcriber = ear = Ear()
    ear.gate = asyncio.Event()
    async with site.daemon() as daemon:
        session, audio = await steered(daemon, site, ear)
    async with site.daemon() as daemon:
        await until(lambda: ear.heard == [audio] * 2, "it is listened to again")
        go(site, session)
        assert (await daemon.ended("m0")).row.stop_reason == "end_turn"
        ear.gate.set()
        assert "buy more tea" in str((await daemon.ended("m1+again")).row.answer)


async def test_what_is_said_after_a_voice_message_waits_for_it(site: FakeSite) -> None:
    site.transcriber = ear = Ear()
    ear.gate = asyncio.Event()
    async with site.daemon() as daemon:
        session, audio = await steered(daemon, site, ear)
        await daemon.say("and that", "m2", mode=Mode.STEER)
        await linger()
        assert ("steer", session) not in daemon.agent.calls
        ear.gate.set()
        (known,) = site.agents.home(session, "default").sessions.values()
        await until(lambda: len(known.steered) == 2, "both are told")
        assert ear.heard == [audio], "it is listened to once"
        go(site, session)
        await daemon.ended("m0")
        assert [name.rpartition(":")[2] for name in sorted(known.steered)] == ["m1", "m2"]
