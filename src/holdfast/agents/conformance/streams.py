"""Tests of events: each comes exactly once per cursor, for every reader."""

import asyncio
import contextlib

from holdfast.agents.base import START, AgentEvent
from holdfast.agents.conformance.harness import PATIENCE_SECONDS, Harness, reason_of, talk, text_of
from holdfast.vocabulary.turn_events import StopReason


class StreamConformance:
    """Tests of ``events``."""

    async def test_reading_on_from_every_cursor_gives_exactly_the_rest(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            noise = [line for line in [harness.wishes.noise()] if line is not None]
            prompt_id = await one.prompt(harness.wishes.say("one two three"), *noise, harness.wishes.run("echo four"))
            turn = await one.read(prompt_id)
            cursors = [START, *(told.cursor for told in turn)]
            assert len(set(cursors)) == len(cursors), f"each event has a cursor of its own: {cursors}"
            for count, cursor in enumerate(cursors[:-1]):
                assert await one.another_daemon().read(prompt_id, cursor) == turn[count:]

    async def test_readers_that_come_and_go_see_each_event_once(self, harness: Harness) -> None:
        """The turn goes on meanwhile; each reader takes one event and is cut off, as if its daemon died."""
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(
                harness.wishes.say("one two three four"), harness.wishes.run("echo five; sleep 0.05; echo six")
            )
            seen: list[AgentEvent] = []
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not seen or seen[-1].event.kind != "message.finalize":
                    after = seen[-1].cursor if seen else START
                    async with contextlib.aclosing(one.events(prompt_id, after)) as events:
                        seen.append(await anext(events))
            assert seen == await one.read(prompt_id)
            assert reason_of(seen) is StopReason.END_TURN

    async def test_the_next_daemon_reads_on_in_mid_turn(self, harness: Harness) -> None:
        """The first one is gone with all that it knew but the cursor."""
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(
                harness.wishes.say("one two three"),
                harness.wishes.wait_for(one.path("go")),
                harness.wishes.say("four five"),
            )
            seen: list[AgentEvent] = []
            async with asyncio.timeout(PATIENCE_SECONDS):
                async with contextlib.aclosing(one.events(prompt_id)) as events:
                    while not text_of(seen):
                        seen.append(await anext(events))
            other = one.another_daemon()
            await one.touch("go")
            seen += await other.read(prompt_id, seen[-1].cursor)
            assert text_of(seen).split() == ["one", "two", "three", "four", "five"]
            assert reason_of(seen) is StopReason.END_TURN
            assert seen == await one.another_daemon().read(prompt_id)

    async def test_two_readers_see_the_same(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(harness.wishes.wait_for(one.path("go")), harness.wishes.say("to all of you"))
            readers = [asyncio.ensure_future(one.another_daemon().read(prompt_id)) for _ in range(3)]
            await one.touch("go")
            first, *others = await asyncio.gather(*readers)
            assert reason_of(first) is StopReason.END_TURN
            assert all(other == first for other in others)
            assert await one.read(prompt_id) == first

    async def test_a_reader_who_is_early_sees_it_as_it_happens(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(
                harness.wishes.say("before"), harness.wishes.wait_for(one.path("go")), harness.wishes.say("after")
            )
            text = ""
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for told in one.events(prompt_id):
                    text += str(told.event.data.get("text", ""))
                    if text.strip() == "before":  # only now: had it been told late, we would wait for ever
                        await one.touch("go")
            assert text.split() == ["before", "after"]
