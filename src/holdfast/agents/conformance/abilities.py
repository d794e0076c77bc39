"""Tests of optional features; an agent without one must say so."""

import secrets
import struct
import zlib

from holdfast.agents.base import Prompt
from holdfast.agents.conformance.harness import Harness, data_of, need, raises, reason_of, script, talk, text_of
from holdfast.errors import AgentFailed, AgentUnsupported
from holdfast.vocabulary.turn_events import Kind, StopReason

_SQUARE = 32


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PICTURE = b"\x89PNG\r\n\x1a\n" + b"".join(
    (
        _chunk(b"IHDR", struct.pack(">IIBBBBB", _SQUARE, _SQUARE, 8, 2, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * _SQUARE) * _SQUARE)),
        _chunk(b"IEND", b""),
    )
)
"""A red square, which agents may open, as some do."""


class AbilityConformance:
    """Tests of ``steer``, ``revert``, models, and files that come with a message."""

    async def test_steer(self, harness: Harness) -> None:
        need(harness.make_agent().abilities.steer, "this agent cannot be steered")
        async with talk(harness) as one:
            prompt_id = await one.prompt(harness.wishes.say("begun"), harness.wishes.wait_for(one.path("go")))
            await one.read_until(prompt_id, Kind.TEXT_DELTA)
            for _ in range(2):
                await one.agent.steer(one.place, one.conversation, Prompt("stp_1", "to the left"))
            assert await one.agent.accepted(one.place, one.conversation, "stp_1")
            assert not await one.agent.accepted(one.place, one.conversation, "stp_2")
            await one.touch("go")
            turn = await one.read(prompt_id)
            assert text_of(turn).count("to the left") == 1
            assert reason_of(turn) is StopReason.END_TURN
            await one.agent.steer(one.place, one.conversation, Prompt("stp_1", "to the left"))  # long since done
            await raises(AgentFailed, one.agent.steer(one.place, one.conversation, Prompt("stp_2", "too late")))

    async def test_revert(self, harness: Harness) -> None:
        need(harness.make_agent().abilities.revert, "this agent cannot take back a turn")
        async with talk(harness) as one:
            old, new = one.path("old.txt"), one.path("new.txt")
            await harness.write_file(one.place, old, b"before")
            await one.turn(harness.wishes.say("the number is 1"))
            first = await one.prompt(harness.wishes.write(old, "after"), harness.wishes.say("the number is 2"))
            await one.read(first)
            last = Prompt("trn_last", script(harness.wishes.write(old, "again"), harness.wishes.write(new, "made")))
            await one.agent.prompt(one.place, one.conversation, last)
            await one.read(last.id)
            for _ in range(2):
                await one.agent.revert(one.place, one.conversation, first)
            assert await harness.read_file(one.place, old) == b"before"
            assert await harness.read_file(one.place, new) is None
            assert "no" in text_of(await one.turn(harness.wishes.recall("the number is 2")))
            assert "yes" in text_of(await one.turn(harness.wishes.recall("the number is 1")))
            await one.agent.prompt(one.place, one.conversation, last)  # taken back, and still not to be run again
            assert await harness.read_file(one.place, new) is None

    async def test_a_running_turn_is_not_taken_back(self, harness: Harness) -> None:
        need(harness.make_agent().abilities.revert, "this agent cannot take back a turn")
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(harness.wishes.wait_for(one.path("go")))
            await raises(AgentFailed, one.agent.revert(one.place, one.conversation, prompt_id))
            await raises(AgentFailed, one.agent.revert(one.place, one.conversation, "trn_never"))
            await one.touch("go")
            assert reason_of(await one.read(prompt_id)) is StopReason.END_TURN

    async def test_files_that_come_with_a_message(self, harness: Harness) -> None:
        """The agent learns where the files are; if it can see images, it sees each once, in this message only."""
        async with talk(harness, fresh=False) as one:
            paths = [one.path("notes with a blank.txt"), one.path("picture")]
            for path, data in zip(paths, (b"the number is 4711", PICTURE), strict=True):
                await harness.write_file(one.place, path, data)
            prompt = Prompt("trn_files", script(harness.wishes.attachments()), attachments=paths)
            await one.agent.prompt(one.place, one.conversation, prompt)
            turn = await one.read(prompt.id)
            assert reason_of(turn) is StopReason.END_TURN
            assert all(path in text_of(turn) for path in paths), text_of(turn)
            assert text_of(turn).count("image/png") == harness.sees_images, text_of(turn)
            assert "no attachments" in text_of(await one.turn(harness.wishes.attachments()))

    async def test_models_are_told_once(self, harness: Harness) -> None:
        async with talk(harness) as one:
            models = [model.id for model in one.place.brief.models]
            need(bool(models), "there is no model")
            told = data_of(await one.turn(harness.wishes.say("first")), Kind.MODELS)
            assert [data["current"] for data in told] == models[:1]
            assert told[0]["models"] in (models, models[:1])
            other = one.another_daemon()
            assert data_of(await other.turn(harness.wishes.say("second")), Kind.MODELS) == []

    async def test_each_prompt_may_name_a_model(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            models = one.place.brief.models
            need(len(models) > 1, "there is only one model")
            for model in (models[1], models[0], models[1]):
                prompt = Prompt(f"trn_{secrets.token_hex(8)}", script(harness.wishes.model()), model=model.id)
                try:
                    await one.agent.prompt(one.place, one.conversation, prompt)
                except AgentFailed as error:  # it keeps the one that it was started with, and says so
                    assert model != models[0] and model.id in error.message
                    continue
                turn = await one.read(prompt.id)
                assert text_of(turn).strip() == model.name
                assert [data["current"] for data in data_of(turn, Kind.MODELS)] == [
                    model.id
                ]  # each time it is another one
            unknown = Prompt("trn_unknown", script(harness.wishes.model()), model="nobody/nothing")
            await raises(AgentFailed, one.agent.prompt(one.place, one.conversation, unknown))
            assert not await one.agent.accepted(one.place, one.conversation, unknown.id)

    async def test_what_it_cannot_do_it_says(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            able = one.agent.abilities
            prompt = Prompt("p", "say hello")
            if not able.steer:
                await raises(AgentUnsupported, one.agent.steer(one.place, one.conversation, prompt))
            if not able.revert:
                await raises(AgentUnsupported, one.agent.revert(one.place, one.conversation, prompt.id))
